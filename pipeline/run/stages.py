"""The stages of a run, started beside each other and ended together.

    engine's process ─► vLLM ─► model ─┐
    reward workers ────────────────────┼─► first scored rollout
    (Ray ─►) trainer (may be the last: it is first needed when a step's groups are there)

All are processes of this machine, or Ray's where ``cluster.address`` asks for it. With few cores the trainer
waits until the engine is at work: it would only take the processor from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from configs.rollouts_schema import MAX_FEEDBACK_LENGTH
from configs.schema import Config
from curriculum.task import Task
from pipeline.errors import TrainerDiedError
from pipeline.evaluation.scorers import reward_worker_starter
from pipeline.generation.generator import Generator
from pipeline.generation.start import running_generator
from pipeline.host import spans
from pipeline.host.device import num_gpus
from pipeline.host.limits import num_oom_kills, why_killed
from pipeline.host.restarts import RestartLimit
from pipeline.host.shares import is_shared, uses_ray
from pipeline.messages import Completion
from pipeline.models.files import refuse_misfit, refuse_untrainable
from pipeline.models.find import resolve_model
from pipeline.models.prompts import PromptTokenizer, TurnTokens
from pipeline.record.checkpoints import keep_for
from pipeline.record.progress import Progress
from pipeline.record.run_folder import RunFolder
from pipeline.rollouts.turns import TurnTerms
from pipeline.run.early_start import Launched
from pipeline.run.job import Job, choose_tasks
from pipeline.training.handle import TrainerHandle
from rewards.pool import RewardPool
from rewards.result import RewardResult

if TYPE_CHECKING:
    from pipeline.cluster import ClusterPlaces


T = TypeVar("T")
# An engine and a trainer that start at once keep about this many busy.
_MANY_CORES = 4
# For so long the first requests have fewer cores than that to themselves.
_HEAD_START_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What a run works with: the model's folder, the job's ``tasks`` whose prompts fit, and the stages.

    ``trainer`` may still be loading its model, and raises here if that fails. ``turns`` are the terms of
    later turns, None where there is one.
    """

    model_path: str
    tasks: tuple[Task, ...]
    tokenizer: PromptTokenizer
    generator: Generator
    scorer: RewardPool
    trainer: asyncio.Task[TrainerHandle]
    turns: TurnTerms | None = None


@asynccontextmanager
async def running_stages(
    job: Job,
    early: Launched,
    *,
    folder: RunFolder,
    progress: Progress,
    note: Callable[[str, str], None],
    restarts: RestartLimit,
    after_ray: Callable[[], None],
    is_trainer_first: bool,
) -> AsyncIterator[Stages]:
    """Every stage up but for the trainer; all are ended on the way out.

    ``is_trainer_first`` says that there is no work for the others before the trainer is up. ``after_ray`` is
    called when Ray runs, which sets signal handlers of its own. ``restarts`` counts those of generators
    and of the trainer's start; ``note`` is told of those of rewards, with a kind and a text.

    Raises ValueError for a prompt that does not fit, before the engine loads its model; and what the stages'
    own starts raise.
    """
    config, device = job.config, job.device
    progress.activity("loading the model")
    model_path = await _found_model(config, device)
    _keep_models(config, folder, model_path, note)
    with spans.span("driver", "load the tokenizer, encode the prompts"):
        tokenizer = PromptTokenizer(Path(model_path), trust_remote_code=config.model.trust_remote_code)
        tasks = await _chosen(job, tokenizer, folder.path, note)
        tokenizer.save()
        turn_tokens = _turn_tokens(config, tokenizer, tasks)
    async with AsyncExitStack() as stack:
        progress.activity("starting generator, trainer and reward workers")
        ray = _begin(stack, _ray(early if uses_ray(config, device) else None, after_ray))
        places = await _places(job, ray, stack)
        # Below the trainer: an engine that is left to a later run wakes then, on what may be the same card.
        engines = await stack.enter_async_context(AsyncExitStack())

        async def engine() -> Generator:
            await ray
            with spans.span("driver", "wait for the engine"):
                return await engines.enter_async_context(
                    running_generator(config, model_path, device, early.take_host(), restarts, places)
                )

        generator = _begin(stack, engine())
        # Waited for at the end: a thread cannot be cancelled, and would leave its workers running.
        start = _scorer(config, ray, folder.reward_cache, note)
        scorer = _begin(stack, start, RewardPool.close, is_waited_for=True)
        first = _before_trainer(job, generator, scorer, is_trainer_first=is_trainer_first)
        begun = _trainer(job, model_path, first, ray, places, restarts)
        trainer = _begin(stack, begun, TrainerHandle.close)
        await _all_of({scorer, generator}, trainer)
        yield Stages(
            model_path=model_path,
            tasks=tasks,
            tokenizer=tokenizer,
            generator=generator.result(),
            scorer=scorer.result(),
            trainer=trainer,
            turns=None if turn_tokens is None else _turn_terms(config, turn_tokens, scorer.result()),
        )


def _turn_tokens(config: Config, tokenizer: PromptTokenizer, tasks: Sequence[Task]) -> TurnTokens | None:
    """What encodes feedback, None for one turn.

    Raises ValueError for a chat template that cannot go on after an answer.
    """
    if config.rollouts.max_turns == 1:
        return None
    return TurnTokens(tokenizer.real(), config.generation, MAX_FEEDBACK_LENGTH, tasks[0])


def _turn_terms(config: Config, tokens: TurnTokens, scorer: RewardPool) -> TurnTerms:
    async def feedback(task: Task, completion: Completion, result: RewardResult, priority: float) -> str:
        text = config.generation.assistant_prefill + completion.text
        return await scorer.tell(task, text, result, config.rollouts, priority=priority)

    rollouts = config.rollouts
    return TurnTerms(tokens=tokens, feedback=feedback, kind=rollouts.feedback, max_turns=rollouts.max_turns)


async def _chosen(
    job: Job, tokenizer: PromptTokenizer, run: Path, note: Callable[[str, str], None]
) -> tuple[Task, ...]:
    """``choose_tasks`` in a thread; the ledger that ``note`` writes to is for the loop's own thread only."""
    loop = asyncio.get_running_loop()

    def on_loop(kind: str, text: str) -> None:
        loop.call_soon_threadsafe(note, kind, text)

    is_cancelled = threading.Event()
    try:
        return await asyncio.to_thread(
            choose_tasks,
            job.tasks,
            job.heldout,
            job.config,
            tokenizer,
            on_loop,
            run=run,
            is_unwanted=is_cancelled.is_set,
        )
    finally:
        is_cancelled.set()


def _before_trainer(
    job: Job, generator: asyncio.Task[Any], scorer: asyncio.Task[Any], *, is_trainer_first: bool
) -> set[asyncio.Task[Any]]:
    """What is up before the trainer begins.

    On a GPU that both use it is always the generator: vLLM takes what the whole card uses meanwhile for its
    own need, and leaves so much less for its cache.
    """
    if job.device == "cuda" and is_shared(job.config, job.device, num_gpus(job.device)):
        return {generator}
    has_few_cores = len(os.sched_getaffinity(0)) < _MANY_CORES
    return {generator, scorer} if has_few_cores and not is_trainer_first else set()


def _keep_models(
    config: Config, folder: RunFolder, model_path: str, note: Callable[[str, str], None]
) -> None:
    """Have the checkpoints of other runs outlast these, in which the model lies, and the one that drafts."""
    speculative = config.acceleration.speculative
    drafting = speculative.draft_model if speculative.enabled else None
    for rests_on in (model_path, *([] if drafting is None else [drafting])):
        if (kept := keep_for(folder.path, Path(rests_on).resolve())) is not None:
            note("base", f"{kept} is kept for this run, which rests on it")


async def _found_model(config: Config, device: str) -> str:
    """The model's folder. Raises ValueError for adapters of layers that it has not."""
    with spans.span("driver", "find the model"):
        model_path = str(await asyncio.to_thread(resolve_model, config.model))
        refuse_untrainable(config, Path(model_path))
        refuse_misfit(config, Path(model_path), device)
        if config.lora.enabled:
            # Imported here: only adapters need to know the model's layers in this process.
            from pipeline.training.adapters import refuse_unknown_layers

            await asyncio.to_thread(refuse_unknown_layers, config, model_path)
    return model_path


def _begin(
    stack: AsyncExitStack,
    start: Awaitable[T],
    close: Callable[[T], None] | None = None,
    *,
    is_waited_for: bool = False,
) -> asyncio.Task[T]:
    """``start`` in a task of its own; at the end it is cancelled (or waited for), or its result closed."""
    task = asyncio.ensure_future(start)

    async def end() -> None:
        if not is_waited_for:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            started = await task
            if close is not None:
                close(started)

    stack.push_async_callback(end)
    return task


async def beside(other: asyncio.Task[Any], work: Awaitable[T]) -> T:
    """The result of ``work``, given up at once when ``other`` fails meanwhile."""
    job = asyncio.ensure_future(work)
    try:
        await _all_of({job}, other)
    finally:
        if not job.done():
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
    return job.result()


async def _all_of(wanted: set[asyncio.Task[Any]], beside: asyncio.Task[Any]) -> None:
    """Return when all of ``wanted`` are done; raises what any of them raised, or ``beside``, at once."""
    while wanted:
        done, _ = await asyncio.wait({*wanted, beside}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        wanted = wanted - done
        if beside in done:
            await asyncio.gather(*wanted)
            return


async def _ray(early: Launched | None, after: Callable[[], None]) -> None:
    """Return when Ray runs, where it is wanted, and ``after`` was called."""
    if early is not None:
        await asyncio.to_thread(early.wait_for_ray)
        after()


async def _places(job: Job, ray: asyncio.Task[None], stack: AsyncExitStack) -> ClusterPlaces | None:
    """The places of a cluster, given back at the end; None where there is none."""
    if not job.config.cluster.is_joined:
        return None
    await ray
    # Imported here: most runs know no other node.
    from pipeline.cluster import reserve

    with spans.span("driver", "reserve places on the cluster"):
        places = await reserve(job.config, job.device)
    stack.callback(places.release)
    return places


async def _trainer(
    job: Job,
    model_path: str,
    first: set[asyncio.Task[Any]],
    ray: asyncio.Task[None],
    places: ClusterPlaces | None,
    restarts: RestartLimit,
) -> TrainerHandle:
    """The trainer, started when what comes ``first`` has ended, well or not."""
    if first:
        await asyncio.wait(first)
        if job.device == "cpu":
            await asyncio.sleep(_HEAD_START_S)
    await ray
    asked_s = time.time()
    trainer = TrainerHandle(job.config, model_path, job.device, places)
    while True:
        try:
            await trainer.start()
            break
        except TrainerDiedError as error:
            restarts.admit("the trainer", str(error), has_worked=False)
    for rank, pid in enumerate(trainer.pids):
        _note_child(f"trainer {rank}", "process, imports, model", pid, asked_s)
    return trainer


async def _scorer(
    config: Config, ray: asyncio.Task[None], reward_cache: Path, note: Callable[[str, str], None]
) -> RewardPool:
    if config.cluster.address is not None:
        await ray
    asked_s, num_kills = time.time(), num_oom_kills()
    scorer = await asyncio.to_thread(
        RewardPool,
        config.rewards,
        config.execution,
        config.acceleration.reward_cache,
        config.acceleration.async_rewards.workers,
        cache_file=reward_cache,
        timeout_s=config.runtime.reward_timeout_s,
        startup_timeout_s=config.runtime.startup_timeout_s,
        start_worker=reward_worker_starter(config.cluster),
        on_restart=lambda text: note("restart", f"{text}; {why_killed(num_kills)}"),
    )
    for number, pid in enumerate(scorer.worker_pids):
        _note_child(f"reward worker {number}", "process, imports, sandbox", pid, asked_s)
    return scorer


def _note_child(process: str, name: str, pid: int, asked_s: float) -> None:
    """Ray starts workers ahead: what counts is from when this one was asked for, or from its own start."""
    with contextlib.suppress(OSError):
        asked_s = max(asked_s, spans.process_started_s(pid))
    spans.note(process, name, asked_s, time.time(), pid=pid)
