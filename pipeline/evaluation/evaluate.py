"""Measures pass@k: samples from a generator, runs every sample in the sandbox, counts, keeps a journal.

``evaluate_tasks`` is the measurement of a run (pipeline.evaluation.heldout) and of the command
evaluate_humaneval (pipeline.evaluation.command). A sample that the sandbox could not judge is left out of the
counts and reported, never counted as wrong.

The journal has every completion and its verdict, written as they come: one JSON line a sample, after a first
line that says which evaluation it is. An evaluation that is started again takes up what is there; a line torn
by a crash is cut off. Samples that could not be judged are not written, so they are made again. Only one
process may write. Of the tasks in flight at a crash the short answers are there and the long ones are drawn
again: these tasks lean to short answers then, unless the sampling is greedy.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from configs.command_line import named
from configs.schema import Config
from curriculum.task import Task
from pipeline.errors import OtherEvaluationError, StageError, in_short
from pipeline.evaluation.forms import AnswerForm
from pipeline.evaluation.passk import Estimate, TaskCount, count_by_task, mean_pass_at_k
from pipeline.generation.generator import Generator, GeneratorError
from pipeline.generation.resident import differences
from pipeline.messages import Completion, GenerationRequest, SamplingSettings
from pipeline.models.prompts import request_seed
from rewards.digest import task_digest
from rewards.result import RewardResult
from sandbox.result import Outcome

NUM_CONCURRENT_REQUESTS = 32


class TextScorer(Protocol):
    """What evaluation needs of the reward pool."""

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict on an answer, prefill and completion together."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedTurn:
    """A later answer to a task, after ``feedback``; ``num_tokens`` are those of both."""

    feedback: str
    text: str
    result: RewardResult
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedSample:
    """One answer (in the chat form prefill and completion together), its verdict, and who wrote it.

    ``min_policy_version`` and ``max_policy_version`` are those of its oldest and its newest token. ``turns``
    came after it, where it failed and more were asked for; ``resampled`` says whether a fresh answer with as
    many tokens passed instead, ``resampled_by_answers`` with as many as their answers alone have; None where
    there was none (pipeline.evaluation.turns).
    """

    task_id: str
    text: str
    result: RewardResult
    min_policy_version: int = 0
    max_policy_version: int = 0
    turns: tuple[EvaluatedTurn, ...] = ()
    resampled: bool | None = None
    resampled_by_answers: bool | None = None

    @property
    def is_judged(self) -> bool:
        """Whether this answer and those after it have verdicts."""
        return not any(
            result.is_infra_error for result in (self.result, *(turn.result for turn in self.turns))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """What an evaluation found.

    ``counts`` holds the tasks with at least one judged sample, ``outcomes`` how many samples came to
    which Outcome (by its value; "infra_error" ones are in no count), ``samples`` all of them, by task.
    """

    counts: tuple[TaskCount, ...]
    pass_at_1: Estimate
    outcomes: Mapping[str, int]
    samples: tuple[EvaluatedSample, ...]
    # Of what was measured, where a later measurement is compared with it.
    tasks_digest: str = ""

    def describe(self) -> str:
        """One line for people."""
        unjudged = self.outcomes.get(Outcome.INFRA_ERROR.value, 0)
        note = f", {unjudged} samples could not be judged" if unjudged else ""
        mean, interval = self.pass_at_1.in_percent()
        return (
            f"pass@1 {mean} (95 %: {interval}) on {self.pass_at_1.num_tasks} tasks, "
            f"{len(self.samples)} samples{note}"
        )


def make_report(samples: Iterable[EvaluatedSample]) -> EvaluationReport:
    """Count the verdicts. Raises StageError, with one reason, when no sample could be judged."""
    samples = tuple(samples)
    counts = count_by_task(
        (sample.task_id, sample.result.passed) for sample in samples if not sample.result.is_infra_error
    )
    if not counts:
        reason = samples[0].result.detail if samples else "there were none"
        raise StageError(f"evaluation: none of {len(samples)} samples could be judged: {reason}")
    return EvaluationReport(
        counts=counts,
        pass_at_1=mean_pass_at_k(counts, 1),
        outcomes=Counter(sample.result.outcome.value for sample in samples),
        samples=samples,
    )


def tasks_digest(tasks: Sequence[Task]) -> str:
    """Changes with the tasks, their names and their order."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(task.task_id.encode("utf-8", "surrogatepass") + b"\n" + task_digest(task))
    return digest.hexdigest()[:16]


def task_deadline_s(config: Config, num_samples: int) -> float:
    """How long a task may wait and work: an engine that runs one request at a time has others ahead of it."""
    num_batches = math.ceil(num_samples / config.generation.max_num_seqs)
    return NUM_CONCURRENT_REQUESTS * num_batches * config.runtime.generation_timeout_s


# Goes on after an answer that failed (pipeline.evaluation.turns): the last three fields of its sample.
LaterTurns = Callable[
    [Generator, TextScorer, Task, GenerationRequest, Completion, RewardResult],
    Awaitable[tuple[tuple[EvaluatedTurn, ...], bool | None, bool | None]],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTerms:
    """How long a task may wait and work, how many do at once, and what comes after an answer that failed."""

    task_timeout_s: float
    num_concurrent: int = NUM_CONCURRENT_REQUESTS
    later_turns: LaterTurns | None = None


async def evaluate_tasks(
    generator: Generator,
    tasks: Sequence[Task],
    form: AnswerForm,
    settings: SamplingSettings,
    num_samples: int,
    scorer: TextScorer,
    seed: int,
    *,
    terms: EvaluationTerms,
    journal: EvaluationJournal | None = None,
    on_task_done: Callable[[int, int], None] = lambda num_done, num_tasks: None,
) -> EvaluationReport:
    """Sample ``num_samples`` answers to each task, some tasks at a time, and score each as it finishes.

    Only what ``journal`` does not have is made, and added to it. The seed of a task's samples depends on
    ``seed``, its id and how many are kept only. Raises GeneratorError, naming the task, when its samples are
    not there and scored in time or are too few, and whatever generator or scorer raise; work in flight is
    cancelled then.
    """
    gate = asyncio.Semaphore(terms.num_concurrent)
    num_done = 0

    async def evaluate(task: Task) -> list[EvaluatedSample]:
        nonlocal num_done
        samples = list(journal.kept.get(task.task_id, ()))[:num_samples] if journal is not None else []
        if len(samples) < num_samples:
            async with gate:
                # A request for what is missing must not draw again what is there.
                name = f"{task.task_id}/{len(samples)}" if samples else task.task_id
                request = GenerationRequest(
                    request_id=f"evaluation/{task.task_id}",
                    prompt_ids=form.prompt_ids(task),
                    num_generations=num_samples - len(samples),
                    sampling=replace(settings, stop=form.stop(task)),
                    seed=request_seed(seed, name),
                )
                try:
                    async with asyncio.timeout(terms.task_timeout_s):
                        samples += await _sample_task(
                            generator, task, request, scorer, form, journal, terms.later_turns
                        )
                except TimeoutError as failure:
                    raise GeneratorError(
                        f"evaluation of {task.task_id}: {request.num_generations} samples were not there and "
                        f"scored within {terms.task_timeout_s:g} s"
                    ) from failure
        num_done += 1
        on_task_done(num_done, len(tasks))
        return samples

    try:
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(evaluate(task)) for task in tasks]
    except BaseExceptionGroup as failures:
        cause: BaseException = failures
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        raise cause from failures
    return make_report(sample for job in jobs for sample in job.result())


async def _sample_task(
    generator: Generator,
    task: Task,
    request: GenerationRequest,
    scorer: TextScorer,
    form: AnswerForm,
    journal: EvaluationJournal | None,
    later_turns: LaterTurns | None,
) -> list[EvaluatedSample]:
    async def judge(completion: Completion) -> EvaluatedSample:
        text = form.answer(task, completion.text)
        result = await scorer.score(task, text)
        turns: tuple[EvaluatedTurn, ...] = ()
        resampled = alone = None
        if later_turns is not None:
            turns, resampled, alone = await later_turns(generator, scorer, task, request, completion, result)
        sample = EvaluatedSample(
            task_id=task.task_id,
            text=text,
            result=result,
            min_policy_version=completion.min_policy_version,
            max_policy_version=completion.max_policy_version,
            turns=turns,
            resampled=resampled,
            resampled_by_answers=alone,
        )
        if journal is not None:
            journal.add(sample)
        return sample

    async with asyncio.TaskGroup() as group:
        jobs = {}
        async for completion in generator.generate(request):
            jobs[completion.index] = group.create_task(judge(completion))
    if len(jobs) != request.num_generations:
        raise GeneratorError(
            f"evaluation of {task.task_id}: the generator gave {len(jobs)} of {request.num_generations} "
            "samples"
        )
    return [jobs[index].result() for index in sorted(jobs)]


_SAMPLE = TypeAdapter(EvaluatedSample)


class EvaluationJournal:
    """The samples of one evaluation in ``path``, which ``identity`` describes (names and values as text).

    ``kept`` are those of an earlier process, by task; ``num_kept`` counts all in the file. Raises ValueError,
    and changes nothing, for a file that is damaged, in use, or of another evaluation.
    """

    def __init__(self, path: Path, identity: Mapping[str, str], *, hint: str) -> None:
        """``hint`` tells users what to do with a file of another evaluation."""
        self.path = path
        try:
            self._file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{path}: cannot be written ({error.strerror})") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ValueError(f"{path}: another evaluation writes it just now; {hint}") from None
        try:
            self.kept = self._take_up(dict(identity), hint)
            self.num_kept = sum(map(len, self.kept.values()))
        except BaseException:
            self._file.close()
            raise

    def add(self, sample: EvaluatedSample) -> None:
        """Write one sample; it is out of this process on return."""
        if sample.is_judged:
            # As a dict: pydantic's own JSON has no lone surrogates, which a model may write.
            self._write(_SAMPLE.dump_python(sample, mode="json"))
            self.num_kept += 1

    def close(self) -> None:
        """Close the file, which stays if there is a sample in it."""
        if not self.num_kept:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _take_up(self, identity: Mapping[str, str], hint: str) -> dict[str, list[EvaluatedSample]]:
        self._file.seek(0)
        try:
            text = self._file.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: is no journal of an evaluation ({error}); {hint}") from None
        whole = text[: text.rfind("\n") + 1]
        lines = whole.splitlines()
        if text and not lines:
            raise ValueError(f"{self.path}: is no journal of an evaluation; {hint}")
        found = self._identity_in(lines[0], hint) if lines else {}
        if len(lines) < 2:
            # One that was ended before its first sample holds nothing, whichever it was.
            self._file.truncate(0)
            self._write({"evaluation": identity})
            return {}
        if differing := differences(identity, found):
            raise OtherEvaluationError(
                f"{self.path}: holds an unfinished evaluation that differs ({'; '.join(differing)}); {hint}"
            )
        kept: defaultdict[str, list[EvaluatedSample]] = defaultdict(list)
        for number, line in enumerate(lines[1:], start=2):
            try:
                sample = _SAMPLE.validate_python(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{self.path}:{number}: is damaged ({in_short(error)}); {hint}") from None
            kept[sample.task_id].append(sample)
        os.truncate(self.path, len(whole.encode("utf-8")))
        return dict(kept)

    def _identity_in(self, line: str, hint: str) -> dict[str, str]:
        try:
            return dict(json.loads(line)["evaluation"])
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{self.path}:1: is no journal of an evaluation; {hint}") from None

    def _write(self, line: Mapping[str, object]) -> None:
        with named(self.path):
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
