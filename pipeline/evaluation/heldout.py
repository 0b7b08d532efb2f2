"""The held-out tasks, measured before and after training: pass@1 with the generator's present weights.

Nothing runs beside it; what is measured on the way is the affair of pipeline.evaluation.inloop.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from configs.schema import Config, GenerationConfig
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from pipeline.errors import in_short
from pipeline.evaluation.evaluate import (
    EvaluationReport,
    EvaluationTerms,
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

_MAX_NAMED = 5


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


def tasks_that_fit(
    tokenizer: PreTrainedTokenizerBase | PromptTokenizer,
    tasks: Sequence[Task],
    heldout: Sequence[Task],
    config: Config,
    note: Callable[[str, str], None],
) -> tuple[Task, ...]:
    """``tasks`` but for those that ``dataset.overlong_prompts`` leaves out; ``note`` gets a kind and a text.

    It also hears of how many prompts tests were hidden. Raises ValueError, before any engine is started,
    where a prompt is too long that must not be left out: one of ``heldout`` (other tasks would be another
    measurement), or all.
    """
    if num_hiding := sum(task.hides_tests for task in tasks):
        note(
            "shown tests",
            f"{num_hiding} of {len(tasks)} prompts show all the tests that judge their answers: the first "
            "stays, the others are hidden (dataset.shown_tests)",
        )
    long = _overlong(tokenizer, tasks, config.generation)
    if long:
        said = _describe_overlong(long, len(tasks), config)
        if config.dataset.overlong_prompts == "error":
            raise ValueError(f"{said}, or set dataset.overlong_prompts to skip")
        if len(long) == len(tasks):
            raise ValueError(f"{said}: no task is left")
        note("overlong prompts", f"{said}: their tasks are left out")
    if long_heldout := _overlong(tokenizer, heldout, config.generation):
        said = _describe_overlong(long_heldout, len(heldout), config)
        raise ValueError(f"{said}; evaluation.tasks must fit")
    return tuple(task for task in tasks if task.task_id not in long)


def _overlong(
    tokenizer: PreTrainedTokenizerBase | PromptTokenizer, tasks: Iterable[Task], generation: GenerationConfig
) -> dict[str, int]:
    """The tokens of each prompt that is longer than ``generation.max_prompt_length``, by task id."""
    lengths = {
        task.task_id: len(encode_prompt(tokenizer, task, generation.assistant_prefill)) for task in tasks
    }
    return {name: length for name, length in lengths.items() if length > generation.max_prompt_length}


def _describe_overlong(long: Mapping[str, int], num_tasks: int, config: Config) -> str:
    """Which of ``num_tasks`` prompts are too long, by how much, and what would do."""
    longest = sorted(long, key=lambda name: -long[name])
    names = ", ".join(f"{name!r} ({long[name]})" for name in longest[:_MAX_NAMED])
    more = f" and {len(long) - _MAX_NAMED} more" if len(long) > _MAX_NAMED else ""
    return (
        f"generation.max_prompt_length: value {config.generation.max_prompt_length}: {len(long)} of "
        f"{num_tasks} prompts have more tokens: {names}{more}; raise it to {long[longest[0]]}"
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
            terms=EvaluationTerms(task_timeout_s=task_deadline_s(config.runtime)),
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
        raise ValueError(f"{path} is damaged ({in_short(error)}); delete it to measure again") from error
