"""Measures pass@k: samples from a generator, runs every sample in the sandbox, counts.

``evaluate_tasks`` is the measurement before and after training (pipeline.heldout calls it);
``run_evaluation`` is the command evaluate_humaneval (pipeline.cli calls it). Both ask as training asks
(pipeline.prompts). A sample that the sandbox could not judge is left out of the counts and reported,
never counted as wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.table import Table

from configs.evaluation_options import EvaluationOptions
from configs.schema import Config, ExecutionConfig, RuntimeConfig
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from pipeline.generator import Generator, GeneratorError
from pipeline.messages import GenerationRequest, SamplingSettings
from pipeline.passk import Estimate, TaskCount, mean_pass_at_k, paired_difference
from pipeline.prompts import encode_prompt
from pipeline.resident_evaluation import evaluation_generator
from pipeline.samples import read_samples, sample_completion, sample_program, write_results, write_samples
from pipeline.sampling import stop_strings
from pipeline.sandbox_check import check_sandbox
from pipeline.sandbox_scorer import SandboxScorer
from rewards.execution import start_sandbox
from rewards.result import RewardResult
from sandbox.result import Outcome

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pipeline.prompt_tokenizer import PromptTokenizer

_NUM_CONCURRENT_REQUESTS = 32
_TASK_TIMEOUT_S = 1800.0


class TextScorer(Protocol):
    """What evaluation needs of the reward pool."""

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict on an answer, prefill and completion together."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedSample:
    """One answer (prefill and completion together) and its verdict."""

    task_id: str
    text: str
    result: RewardResult


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

    @property
    def pass_rates(self) -> dict[str, float]:
        """The share of judged samples that passed, by task_id."""
        return {count.task_id: count.pass_rate for count in self.counts}

    def describe(self) -> str:
        """One line for people."""
        unjudged = self.outcomes.get(Outcome.INFRA_ERROR.value, 0)
        note = f", {unjudged} samples could not be judged" if unjudged else ""
        return (
            f"pass@1 {_percent(self.pass_at_1)} on {self.pass_at_1.num_tasks} tasks, "
            f"{len(self.samples)} samples{note}"
        )


def difference(before: EvaluationReport, after: EvaluationReport) -> Estimate:
    """How much pass@1 rose from ``before`` to ``after``, paired over the tasks that both judged."""
    left, right = before.pass_rates, after.pass_rates
    common = left.keys() & right.keys()
    return paired_difference(
        {task_id: left[task_id] for task_id in common}, {task_id: right[task_id] for task_id in common}
    )


def make_report(samples: Iterable[EvaluatedSample]) -> EvaluationReport:
    """Count the verdicts. Raises RuntimeError, with one reason, when no sample could be judged."""
    samples = tuple(samples)
    judged: defaultdict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        if not sample.result.is_infra_error:
            judged[sample.task_id].append(sample.result.passed)
    if not judged:
        reason = samples[0].result.detail if samples else "there were none"
        raise RuntimeError(f"evaluation: none of {len(samples)} samples could be judged: {reason}")
    counts = tuple(
        TaskCount(task_id=task_id, num_samples=len(passed), num_correct=sum(passed))
        for task_id, passed in judged.items()
    )
    return EvaluationReport(
        counts=counts,
        pass_at_1=mean_pass_at_k(counts, 1),
        outcomes=Counter(sample.result.outcome.value for sample in samples),
        samples=samples,
    )


def task_deadline_s(runtime: RuntimeConfig) -> float:
    """How long a task may wait and work: an engine that runs one request at a time has others ahead of it."""
    return _NUM_CONCURRENT_REQUESTS * runtime.generation_timeout_s


async def evaluate_tasks(
    generator: Generator,
    tokenizer: PreTrainedTokenizerBase | PromptTokenizer,
    tasks: Sequence[Task],
    settings: SamplingSettings,
    num_samples: int,
    scorer: TextScorer,
    prefill: str,
    seed: int,
    *,
    task_timeout_s: float = _TASK_TIMEOUT_S,
    on_task_done: Callable[[int, int], None] = lambda num_done, num_tasks: None,
) -> EvaluationReport:
    """Sample ``num_samples`` answers to each task, 32 tasks at a time, and score each as it finishes.

    The seed of a task's samples depends on ``seed`` and its id only. Raises GeneratorError, naming the
    task, when its samples are not there and scored within ``task_timeout_s`` or are too few, and
    whatever generator or scorer raise; work in flight is cancelled then.
    """
    gate = asyncio.Semaphore(_NUM_CONCURRENT_REQUESTS)
    num_done = 0

    async def evaluate(task: Task) -> list[EvaluatedSample]:
        nonlocal num_done
        async with gate:
            request = GenerationRequest(
                request_id=f"evaluation/{task.task_id}",
                prompt_ids=encode_prompt(tokenizer, task, prefill),
                num_generations=num_samples,
                sampling=settings,
                seed=_seed_of(seed, task.task_id),
            )
            try:
                async with asyncio.timeout(task_timeout_s):
                    samples = await _sample_task(generator, task, request, scorer, prefill)
            except TimeoutError as failure:
                raise GeneratorError(
                    f"evaluation of {task.task_id}: {num_samples} samples were not there and scored within "
                    f"{task_timeout_s:g} s"
                ) from failure
        num_done += 1
        on_task_done(num_done, len(tasks))
        return samples

    try:
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(evaluate(task)) for task in tasks]
    except BaseExceptionGroup as failures:
        raise _first_cause(failures) from failures
    return make_report(sample for job in jobs for sample in job.result())


async def _sample_task(
    generator: Generator, task: Task, request: GenerationRequest, scorer: TextScorer, prefill: str
) -> list[EvaluatedSample]:
    async def judge(text: str) -> EvaluatedSample:
        return EvaluatedSample(task_id=task.task_id, text=text, result=await scorer.score(task, text))

    async with asyncio.TaskGroup() as group:
        jobs = {}
        async for completion in generator.generate(request):
            jobs[completion.index] = group.create_task(judge(prefill + completion.text))
    if len(jobs) != request.num_generations:
        raise GeneratorError(
            f"evaluation of {task.task_id}: the generator gave {len(jobs)} of {request.num_generations} "
            "samples"
        )
    return [jobs[index].result() for index in sorted(jobs)]


def _seed_of(seed: int, task_id: str) -> int:
    # Far apart for neighbouring seeds and tasks: engines seed sample i of a request with seed + i.
    return int.from_bytes(hashlib.sha256(f"{seed}/{task_id}".encode()).digest()[:4]) >> 1


def _first_cause(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def run_evaluation(options: EvaluationOptions) -> int:
    """Sample and score, or score ``options.samples``; write the files, print the table, return 0.

    Raises ValueError for options that cannot be used here, before any model is loaded.
    """
    tasks = load_named_tasks(options.tasks)[: options.limit]
    console = Console()
    execution = ExecutionConfig(allow_unsafe=options.allow_unsafe, modules=list(options.modules))
    check_sandbox(execution, modules_flag="--module", unsafe_flag="--allow-unsafe")
    with start_sandbox(execution, max(1, (os.cpu_count() or 2) // 2)) as sandbox:
        scorer = SandboxScorer(sandbox, execution)
        if options.samples is not None:
            report, completions = asyncio.run(_score_samples(options.samples, tasks, scorer))
            stem = options.output or options.samples
        else:
            report = asyncio.run(_sample_and_score(options, tasks, scorer))
            by_id = {task.task_id: task for task in tasks}
            completions = [sample_completion(by_id[sample.task_id], sample.text) for sample in report.samples]
            stem = options.output or f"{Path(options.tasks).stem}_samples.jsonl"
            ids = [sample.task_id for sample in report.samples]
            write_samples(Path(stem), zip(ids, completions, strict=True))
            console.print(f"samples: {stem}", highlight=False)
    results = Path(f"{stem}_results.jsonl")
    write_results(
        results,
        ((s.task_id, text, s.result) for s, text in zip(report.samples, completions, strict=True)),
    )
    console.print(f"results: {results}", highlight=False)
    _print_report(console, options, report, len(tasks))
    return 0


async def _score_samples(
    path: str, tasks: Sequence[Task], scorer: SandboxScorer
) -> tuple[EvaluationReport, list[str]]:
    samples = read_samples(path, tasks)
    gate = asyncio.Semaphore(_NUM_CONCURRENT_REQUESTS)

    async def judge(task: Task, completion: str) -> EvaluatedSample:
        async with gate:
            result = await scorer.score_program(task, sample_program(task, completion))
        return EvaluatedSample(task_id=task.task_id, text=completion, result=result)

    judged = await asyncio.gather(*(judge(task, completion) for task, completion in samples))
    return make_report(judged), [completion for _, completion in samples]


async def _sample_and_score(
    options: EvaluationOptions, tasks: Sequence[Task], scorer: SandboxScorer
) -> EvaluationReport:
    # Imported here: a training run measures through this file, and need not wait for torch.
    from pipeline.models import load_tokenizer, resolve_model

    config = _config_of(options)
    model_path = resolve_model(config.model)
    tokenizer = load_tokenizer(model_path)
    prefill = config.generation.assistant_prefill
    longest = max(len(encode_prompt(tokenizer, task, prefill)) for task in tasks)
    generation = config.generation.model_copy(update={"max_prompt_length": longest})
    config = config.model_copy(update={"generation": generation})
    async with evaluation_generator(config, str(model_path)) as generator:
        return await evaluate_tasks(
            generator,
            tokenizer,
            tasks,
            SamplingSettings(
                temperature=options.temperature,
                top_p=options.top_p,
                max_completion_length=options.max_completion_length,
                stop=stop_strings(config.generation),
            ),
            options.num_samples,
            scorer,
            prefill,
            options.seed,
            task_timeout_s=task_deadline_s(config.runtime),
            on_task_done=_show_progress,
        )


def _config_of(options: EvaluationOptions) -> Config:
    return Config.model_validate(
        {
            "model": {"name": options.model},
            "generation": {
                "engine": options.engine,
                "max_completion_length": options.max_completion_length,
            },
            "training": {"seed": options.seed},
            "runtime": {"attach": options.attach, "keep_alive": options.keep_alive},
        }
    )


def _show_progress(num_done: int, num_tasks: int) -> None:
    if num_done == num_tasks or num_done % max(1, num_tasks // 10) == 0:
        print(f"evaluated {num_done} of {num_tasks} tasks", file=sys.stderr, flush=True)


def _print_report(
    console: Console, options: EvaluationOptions, report: EvaluationReport, num_tasks: int
) -> None:
    table = Table(title=f"{options.tasks}: {len(report.counts)} of {num_tasks} tasks")
    for heading in ("", "mean over tasks", "95 % interval"):
        table.add_column(heading, justify="right")
    fewest = min(count.num_samples for count in report.counts)
    for k in sorted(set(options.ks)):
        if k > fewest:
            table.add_row(f"pass@{k}", "not known", f"a task has {fewest} samples")
            continue
        estimate = mean_pass_at_k(report.counts, k)
        interval = f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f} %"
        table.add_row(f"pass@{k}", f"{100 * estimate.mean:.1f} %", interval)
    console.print(table)
    console.print(
        "outcomes: " + ", ".join(f"{name} {number}" for name, number in sorted(report.outcomes.items())),
        highlight=False,
    )


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.mean:.1f} % (95 %: {100 * estimate.low:.1f} to {100 * estimate.high:.1f})"
