"""Which tasks are worth training on: what is left out before a run begins, counted and named.

A prompt that is too long, a reference that fails its own tests, and where the user asks for it tests that
catch too little (``dataset.min_mutants_killed``) and tasks like those of a benchmark
(``dataset.max_overlap``); what ``python -m curriculum audit`` shows. Verdicts are kept in the user's cache.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.schema import Config, ExecutionConfig, GenerationConfig
from configs.task_sets import BUILT_IN_DATASETS
from curriculum.audit import examine
from curriculum.audit.overlap import Overlap, benchmark_tasks
from curriculum.judging import Executor, execution_request, has_passed, start_sandbox
from curriculum.task import Task
from pipeline.host.files import cache_root, files_digest, read_object, write_text_atomically
from pipeline.models.prompts import encode_prompt
from rewards.digest import judge_digest, module_versions, task_digest
from sandbox.pool import SAFE_LEVELS
from sandbox.result import Outcome

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pipeline.models.prompts import PromptTokenizer

Note = Callable[[str, str], None]
# Of a reference: slower here than elsewhere.
_TOO_SLOW = (Outcome.TIMEOUT_CPU, Outcome.TIMEOUT_WALL)
_MAX_NAMED = 5
_SAVE_S = 30.0


def sound_tasks(
    tasks: Sequence[Task], config: Config, note: Note, is_unwanted: Callable[[], bool] = lambda: False
) -> tuple[Task, ...]:
    """``tasks`` but for those that are not worth it; ``note`` gets a kind and a text for each reason.

    References of built-in sets, but for MBPP's, are not looked at: the project's tests do that. One that runs
    out of time is no reason: another machine may be faster. A task without a reference has no mutants, and
    stays. Raises ValueError where no task is left, and InterruptedError once ``is_unwanted``: what was
    measured is kept.
    """
    dataset, kept = config.dataset, tuple(tasks)
    is_tested = dataset.name in BUILT_IN_DATASETS and dataset.name != "mbpp"
    if config.execution.enabled and not is_tested:
        references = [task for task in kept if task.reference]
        faults = _failing_references(references, config.execution, is_unwanted)
        words = "those of {} of {} tasks fail their own tests"
        kept = _without(kept, faults, "wrong references", words, config, note)
    if config.execution.enabled and dataset.min_mutants_killed is not None:
        weak = _weak_tests([task for task in kept if task.reference], config, is_unwanted)
        words = (
            f"those of {{}} of {{}} tasks kill less than {dataset.min_mutants_killed:.0%} of their mutants"
        )
        kept = _without(kept, weak, "weak tests", words, config, note)
    if dataset.max_overlap is not None:
        near = _near_tasks(kept, dataset.max_overlap, note)
        words = f"{{}} of {{}} have more than {dataset.max_overlap} in common with one of a benchmark"
        kept = _without(kept, near, "tasks near a benchmark", words, config, note)
    return kept


def tasks_that_fit(
    tokenizer: PreTrainedTokenizerBase | PromptTokenizer,
    tasks: Sequence[Task],
    heldout: Sequence[Task],
    config: Config,
    note: Note,
) -> tuple[Task, ...]:
    """``tasks`` but for those that ``dataset.overlong_prompts`` leaves out; ``note`` gets a kind and a text.

    It also hears of how many prompts tests were hidden. Raises ValueError, before any engine is started,
    where a prompt is too long that must not be left out: any, unless that setting is "skip", one of
    ``heldout`` (other tasks would be another measurement), or all.
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
    lengths = {task.task_id: len(encode_prompt(tokenizer, task, generation)) for task in tasks}
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


def _without(
    tasks: tuple[Task, ...], faults: Mapping[str, str], kind: str, words: str, config: Config, note: Note
) -> tuple[Task, ...]:
    if not faults:
        return tasks
    named = "; ".join(f"{name}: {why}" for name, why in list(faults.items())[:_MAX_NAMED])
    more = f"; and {len(faults) - _MAX_NAMED} more" if len(faults) > _MAX_NAMED else ""
    said = f"{words.format(len(faults), len(tasks))} ({named}{more})"
    if len(faults) == len(tasks):
        raise ValueError(f"dataset.name: value {config.dataset.name!r}: {kind}: {said}: no task is left")
    note(kind, f"{said}: their tasks are left out")
    return tuple(task for task in tasks if task.task_id not in faults)


def _failing_references(
    tasks: Sequence[Task], execution: ExecutionConfig, is_unwanted: Callable[[], bool]
) -> dict[str, str]:
    """Why references fail, by task id."""
    found = _measured("references.json", tasks, execution, _fault_of_reference, is_unwanted)
    return {name: str(fault) for name, fault in found.items() if fault}


def _weak_tests(tasks: Sequence[Task], config: Config, is_unwanted: Callable[[], bool]) -> dict[str, str]:
    """What the tests kill of their mutants, by task id, where it is too little."""
    least = config.dataset.min_mutants_killed or 0.0
    found = _measured("mutants.json", tasks, config.execution, _killed_share, is_unwanted)
    return {name: f"{share:.0%}" for name, share in found.items() if share is not None and share < least}


def _near_tasks(tasks: Sequence[Task], most: float, note: Note) -> dict[str, str]:
    """The nearest task of a benchmark, by task id, where it is too near."""
    overlap = Overlap(benchmark_tasks(None, partial(note, "benchmarks")))
    nearest = {task.task_id: overlap.nearest(task) for task in tasks}
    return {name: f"{other} ({share:.2f})" for name, (other, share) in nearest.items() if share > most}


def _measured(
    file: str,
    tasks: Sequence[Task],
    execution: ExecutionConfig,
    measure: Callable[[Executor, ExecutionConfig, Task], Any],
    is_unwanted: Callable[[], bool],
) -> dict[str, Any]:
    """What ``measure`` finds of each task on a sandbox, by task id; kept in ``file`` of the user's cache.

    It is written every ``_SAVE_S``, for a run that ends meanwhile. None, of what the sandbox could not judge,
    is not kept, and nothing that a sandbox below level L2 found: there references may fail for that alone.
    """
    path, terms = cache_root() / file, _terms(execution)
    keys = {task.task_id: _key(task, terms) for task in tasks}
    known, saved_s = _kept(path), time.monotonic()
    new = [task for task in tasks if keys[task.task_id] not in known]
    if new:
        num_workers = len(os.sched_getaffinity(0))
        with start_sandbox(execution, num_workers) as sandbox, ThreadPoolExecutor(num_workers) as threads:
            values = threads.map(partial(measure, sandbox, execution), new)
            keep = _keep if sandbox.level in SAFE_LEVELS else lambda *_: None
            for task, value in zip(new, values, strict=True):
                if value is not None:
                    known[keys[task.task_id]] = value
                if time.monotonic() - saved_s > _SAVE_S:
                    keep(known, path)
                    saved_s = time.monotonic()
                if is_unwanted():
                    threads.shutdown(wait=False, cancel_futures=True)
                    keep(known, path)
                    raise InterruptedError("the run that wanted to know of its tasks has ended")
        keep(known, path)
    return {task.task_id: known.get(keys[task.task_id]) for task in tasks}


def _kept(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except ValueError:
        return {}  # None yet, or a damaged one.


def _keep(known: dict[str, Any], path: Path) -> None:
    with suppress(OSError):  # Measured anew by the next run, where the cache cannot be written.
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another run may have written its own meanwhile.
        write_text_atomically(path, json.dumps(_kept(path) | known))


def _terms(execution: ExecutionConfig) -> str:
    """What a verdict depends on besides the task: limits, and the code that judges or makes mutants."""
    versions = [platform.python_version(), *module_versions(execution.modules)]
    mutants = files_digest(Path(examine.__file__).parent, "*.py")
    return "\n".join([execution.model_dump_json(), judge_digest(), mutants, *versions])


def _key(task: Task, terms: str) -> str:
    digest = blake2b(task_digest(task), digest_size=16)
    digest.update(f"{task.reference}\n{terms}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _killed_share(sandbox: Executor, execution: ExecutionConfig, task: Task) -> float | None:
    """The share of mutants that the tests fail; None where that could not be measured, if only today."""
    found = examine.Examiner(sandbox=sandbox, execution=execution, max_mutants=examine.MAX_MUTANTS).examine(
        task
    )
    return None if found.fault else found.killed_share


def _fault_of_reference(sandbox: Executor, execution: ExecutionConfig, task: Task) -> str | None:
    """Why the reference fails; empty where it passes or is too slow here, None where it was not judged."""
    try:
        run = sandbox.run(execution_request(task, task.reference, execution))
    except ValueError as failure:
        return str(failure)
    if run.outcome is Outcome.INFRA_ERROR:
        return None
    if has_passed(run) or run.outcome in _TOO_SLOW:
        return ""
    return f"{run.outcome} {run.detail}".strip()
