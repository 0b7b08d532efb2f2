"""The held-out tasks, measured before and after training, and each ``evaluation.every_steps`` steps of it.

Before and after no step runs beside it. On the way training goes on (``InLoopEvaluation``):

    weights_loaded(version) ─► some tasks, a few at a time, on the run's own generators and reward workers
                                 ├─► evaluation_step-000010.json, whole
                                 └─► drain(): the metrics, which the step closed next takes along

No trained step waits for it, but where an engine sleeps in the trainer's turn. What it asks is written with
the weights that are there, so while it works training may publish newer ones: its metrics name the version it
was started for and the newest that wrote any token of it. One runs at a time; one that is due meanwhile is
left out, with a note. Samples are kept as they come, so that a resume at the same version goes on with them;
the metrics of a measurement that had ended are logged again where the step that took them along was lost. A
failure is noted and ends that measurement, not the run.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from configs.schema import Config
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from pipeline.errors import OtherEvaluationError, StageError, in_short
from pipeline.evaluation.evaluate import (
    EvaluationJournal,
    EvaluationReport,
    EvaluationTerms,
    TextScorer,
    evaluate_tasks,
    task_deadline_s,
    tasks_digest,
)
from pipeline.evaluation.forms import AnswerForm, ChatForm
from pipeline.evaluation.scorers import PoolScorer
from pipeline.generation.generator import Generator
from pipeline.host.spans import EVALUATION, Stopwatch
from pipeline.models.prompts import evaluation_sampling
from pipeline.record.metrics import read_metrics
from pipeline.record.progress import Progress
from pipeline.record.run_folder import Context, RunFolder
from rewards.pool import RewardPool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pipeline.models.prompts import PromptTokenizer


_PREFIX = "step-"
_JOURNAL = ".journal.jsonl"


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
            ChatForm(tokenizer=tokenizer, generation=config.generation),
            evaluation_sampling(config),
            config.evaluation.num_samples,
            scorer,
            config.training.seed,
            terms=EvaluationTerms(task_timeout_s=task_deadline_s(config, config.evaluation.num_samples)),
            on_task_done=lambda done, total: progress.activity(f"{when} training: {done}/{total} tasks"),
        )
    report = replace(report, tasks_digest=tasks_digest(tasks))
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


class InLoopEvaluation:
    """Measures ``tasks`` in the background; without ``evaluation.every_steps`` or tasks it does nothing."""

    def __init__(
        self,
        context: Context,
        *,
        tasks: Sequence[Task],
        form: AnswerForm,
        generator: Generator,
        scorer: RewardPool,
    ) -> None:
        self._config = context.config
        self._tasks = spread(tasks, self._config.evaluation.inloop_tasks)
        self._form = form
        self._generator = generator
        self._scorer = PoolScorer(scorer)
        self._folder = context.folder
        self._ledger = context.ledger
        self._timeline = context.timeline
        self._note = partial(context.note, "evaluation")
        self._version = 0  # of the one that runs
        self._job: asyncio.Task[None] | None = None
        self._found: deque[dict[str, float]] = deque()

    def begin(self, step: int) -> None:
        """Take up a run at ``step``: forget what later steps left, go on with what this one has begun."""
        logged = _logged_versions(self._folder.metrics, step)
        # A line of a lost step stays in the file until one of the step before it is written.
        logged &= {row.get("eval/policy_version") for row in self._ledger.metrics()}
        for path in sorted(self._folder.path.glob(f"evaluation_{_PREFIX}*")):
            version = _version_of(path)
            if version is None:
                continue
            is_journal = path.name.endswith(_JOURNAL)
            if version > step or (version not in logged and not _is_of(path, step, is_journal=is_journal)):
                # Steps that are trained again make other weights.
                path.unlink()
            elif version < step and is_journal:
                path.unlink()
                self._note(f"the measurement of step {version} was not finished; its weights are gone")
            elif not is_journal and version not in logged:
                self._log_again(version, path)
        self.weights_loaded(step)

    def _log_again(self, version: int, path: Path) -> None:
        try:
            report = earlier_measurement(path)
        except ValueError as error:
            self._note(str(error))
            return
        if report is not None:
            self._found.append(_metrics(version, report))

    def weights_loaded(self, version: int) -> None:
        """The generators hold ``version``: start to measure it, if it is due. Returns at once."""
        if not self.is_due(version) or self._path(version).exists():
            return
        if self._job is not None and not self._job.done():
            self._note(f"step {version} is not measured: the measurement of step {self._version} still runs")
            return
        self._raise_fault()
        self._version = version
        self._job = asyncio.create_task(self._measure(version), name=f"measure step {version}")

    def is_due(self, version: int) -> bool:
        """Whether ``version`` is one to measure."""
        every = self._config.evaluation.every_steps
        # The measurements before and after training are those of the first and the last version.
        is_between = 0 < version < self._config.training.max_steps
        return bool(self._tasks) and is_between and every is not None and version % every == 0

    def drain(self) -> dict[str, float]:
        """The metrics of a measurement that has ended, each once; empty if there is none."""
        self._raise_fault()
        return self._found.popleft() if self._found else {}

    async def finish(self) -> None:
        """Wait for the one that runs, before the engine sleeps or the run ends; too long a one ends."""
        if self._job is None:
            return
        runtime, num_requests = self._config.runtime, self._config.evaluation.inloop_requests
        deadline_s = runtime.generation_timeout_s * math.ceil(len(self._tasks) / num_requests)
        await asyncio.wait({self._job}, timeout=deadline_s)
        if not self._job.done():
            self._note(f"the measurement of step {self._version} was given up after {deadline_s:g} s")
            await self.cancel()
        self._raise_fault()

    async def cancel(self) -> None:
        """End the one that runs; what it has stays in its journal."""
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    def _raise_fault(self) -> None:
        """A fault of the program is not to be overlooked."""
        if self._job is not None and self._job.done() and not self._job.cancelled():
            self._job.result()

    async def _measure(self, version: int) -> None:
        try:
            with self._timeline.span(EVALUATION, f"version {version}"):
                report = await self._evaluate(version)
        except (StageError, OSError, ValueError, RuntimeError) as error:
            self._note(f"the measurement of step {version} failed: {error or type(error).__name__}")
            return
        metrics = _metrics(version, report)
        self._found.append(metrics)
        newest = int(metrics["eval/newest_policy_version"])
        others = f" (weights up to step {newest})" if newest > version else ""
        self._note(f"step {version}: {report.describe()}{others}")

    async def _evaluate(self, version: int) -> EvaluationReport:
        evaluation = self._config.evaluation
        path = self._path(version)
        identity = {
            "policy version": str(version),
            "tasks": " ".join(task.task_id for task in self._tasks),
            "settings": str(evaluation_sampling(self._config)),
        }
        journal_path = path.with_name(path.stem + _JOURNAL)
        open_journal = partial(EvaluationJournal, journal_path, identity, hint=f"delete {journal_path}")
        try:
            begun = open_journal()
        except OtherEvaluationError:
            # A resume may measure other tasks, or other numbers of them: what was begun is of no use.
            journal_path.unlink()
            begun = open_journal()
        with closing(begun) as journal:
            report = await evaluate_tasks(
                self._generator,
                self._tasks,
                self._form,
                evaluation_sampling(self._config),
                evaluation.inloop_samples,
                self._scorer,
                self._config.training.seed,
                terms=EvaluationTerms(
                    num_concurrent=evaluation.inloop_requests,
                    task_timeout_s=task_deadline_s(self._config, evaluation.inloop_samples),
                ),
                journal=journal,
            )
            self._folder.write_evaluation(_name(version), report)
            journal_path.unlink(missing_ok=True)
        return report

    def _path(self, version: int) -> Path:
        return self._folder.evaluation(_name(version))


def spread(tasks: Sequence[Task], number: int) -> tuple[Task, ...]:
    """``number`` of ``tasks`` (all, if there are fewer), at even distances."""
    count = min(number, len(tasks))
    return tuple(tasks[index * len(tasks) // count] for index in range(count))


def _name(version: int) -> str:
    return f"{_PREFIX}{version:06d}"


def _version_of(path: Path) -> int | None:
    """The version that a file of a measurement is of; None for another file."""
    digits = path.name.removeprefix(f"evaluation_{_PREFIX}").partition(".")[0]
    return int(digits) if digits.isdecimal() else None


def _logged_versions(metrics: Path, step: int) -> set[float | None]:
    """The versions whose measurement is logged in a step up to ``step``; those after it are lost."""
    rows = read_metrics(metrics) if metrics.is_file() else []
    return {row.get("eval/policy_version") for row in rows if (row["step"] or 0) <= step}


def _is_of(path: Path, step: int, *, is_journal: bool) -> bool:
    """Whether weights up to ``step`` wrote all that is measured in ``path``, as far as it can be read."""
    try:
        if not is_journal:
            samples = json.loads(path.read_text(encoding="utf-8"))["samples"]
        else:
            # Behind the last line break is half of one.
            *lines, _ = path.read_text(encoding="utf-8").split("\n")
            samples = [json.loads(line) for line in lines[1:]]
        return all(sample["max_policy_version"] <= step for sample in samples)
    except (OSError, ValueError, KeyError, TypeError):
        return True  # What is wrong with it is told by who reads it.


def _metrics(version: int, report: EvaluationReport) -> dict[str, float]:
    estimate = report.pass_at_1
    return {
        "eval/pass_at_1": estimate.mean,
        "eval/pass_at_1_low": estimate.low,
        "eval/pass_at_1_high": estimate.high,
        "eval/num_tasks": float(estimate.num_tasks),
        "eval/policy_version": float(version),
        "eval/newest_policy_version": float(max(sample.max_policy_version for sample in report.samples)),
    }
