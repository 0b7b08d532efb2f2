"""The held-out measurement of a run, before and after training: the same for the main job and the baseline.

Chooses the tasks, refuses prompts that do not fit, samples and scores through pipeline.evaluation.evaluate,
and leaves evaluation_<when>.json. Starts no generator and no scorer: they are the caller's.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from configs.schema import Config, GenerationConfig
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from pipeline.evaluation.evaluate import (
    EvaluationPace,
    EvaluationReport,
    TextScorer,
    evaluate_tasks,
    task_deadline_s,
)
from pipeline.evaluation.forms import chat_form
from pipeline.generation.generator import Generator
from pipeline.host.spans import Stopwatch
from pipeline.models.prompts import encode_prompt, evaluation_sampling
from pipeline.record.progress import Progress
from pipeline.record.run_folder import RunFolder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pipeline.models.prompts import PromptTokenizer


_MAX_SAID = 300


def heldout_tasks(config: Config) -> tuple[Task, ...]:
    """The tasks of ``config.evaluation``; none where it is off, or (with a note) where no test may be run.

    Raises ValueError for a set that cannot be had.
    """
    if not config.evaluation.enabled:
        return ()
    if not config.execution.enabled:
        print("note: nothing is measured before and after: execution.enabled is false", file=sys.stderr)
        return ()
    return load_named_tasks(config.evaluation.tasks)[: config.evaluation.max_tasks]


def refuse_long_prompts(
    tokenizer: PreTrainedTokenizerBase | PromptTokenizer, tasks: Iterable[Task], generation: GenerationConfig
) -> None:
    """Raise ValueError for a prompt that does not fit, before any engine is started."""
    for task in tasks:
        length = len(encode_prompt(tokenizer, task, generation.assistant_prefill))
        if length > generation.max_prompt_length:
            raise ValueError(
                f"generation.max_prompt_length: {generation.max_prompt_length}: the prompt of task "
                f"{task.task_id!r} has {length} tokens; raise the limit or leave the task out"
            )


async def measure(
    when: str,
    tasks: Sequence[Task],
    generator: Generator,
    scorer: TextScorer,
    *,
    config: Config,
    tokenizer: PreTrainedTokenizerBase | PromptTokenizer,
    folder: RunFolder,
    progress: Progress,
    stopwatch: Stopwatch,
) -> EvaluationReport:
    """Pass@1 on ``tasks`` with the generator's present weights; ``when`` is "before" or "after".

    Raises as ``evaluate_tasks`` does.
    """
    progress.activity(f"measuring {config.evaluation.tasks} {when} training")
    with stopwatch.timed(f"evaluation_{when}"):
        report = await evaluate_tasks(
            generator,
            tasks,
            chat_form(config.generation, tokenizer),
            evaluation_sampling(config),
            config.evaluation.num_samples,
            scorer,
            config.training.seed,
            pace=EvaluationPace(task_timeout_s=task_deadline_s(config.runtime)),
            on_task_done=lambda done, total: progress.activity(f"{when} training: {done}/{total} tasks"),
        )
    folder.write_evaluation(when, report)
    progress.message(f"{when}: {report.describe()}")
    return report


def earlier_measurement(path: Path) -> EvaluationReport | None:
    """What ``measure`` left at ``path``, in the folder of a run that is resumed, or None.

    Raises ValueError naming the file when it is damaged.
    """
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        for sample in record["samples"]:
            # JSON has no NaN, which is the reward of what could not be scored.
            if sample["result"]["reward"] is None:
                sample["result"]["reward"] = math.nan
        return TypeAdapter(EvaluationReport).validate_python(record)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        # Validation errors have a paragraph for each field.
        said = " ".join(str(error).split())[:_MAX_SAID]
        raise ValueError(f"{path} is damaged ({said}); delete it to measure again") from error
