"""The stages of a run, started beside each other and ended together.

    engine's process ─► vLLM ─► model ──────────┐
    Ray ─► reward workers ──────────────────────┼─► first scored rollout
         └► trainer (may be the last: it is first needed when a step's groups are there)

Called by pipeline.orchestrator and pipeline.first_score; trains and measures nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from configs.schema import Config
from curriculum.sources import load_tasks
from curriculum.task import Task
from pipeline import startup
from pipeline.engine_start import check_tensor_parallel, choose_device, running_generator
from pipeline.generator import Generator
from pipeline.heldout import heldout_tasks, refuse_long_prompts
from pipeline.launch import Launched
from pipeline.loader_checks import refuse_unusable_loaders
from pipeline.prompt_tokenizer import PromptTokenizer, find_model
from pipeline.sandbox_check import check_sandbox
from pipeline.trainer_group import TrainerHandle, start_trainer
from rewards.custom import load_custom
from rewards.pool import RewardPool

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What a run works with. ``trainer`` may still be loading its model, and raises here if that fails."""

    tokenizer: PromptTokenizer
    generator: Generator
    scorer: RewardPool
    trainer: asyncio.Task[TrainerHandle]

    async def beside_trainer(self, work: Awaitable[T]) -> T:
        """The result of ``work``, given up at once when the trainer's start fails meanwhile."""
        job = asyncio.ensure_future(_awaited(work))
        try:
            await _all_of({job}, self.trainer)
        finally:
            if not job.done():
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)
        return job.result()


def prepare(config: Config) -> tuple[tuple[Task, ...], tuple[Task, ...], str]:
    """Tasks, held-out tasks and device; raises ValueError for what can be refused before any model loads."""
    with startup.span("driver", "load the tasks"):
        tasks = load_tasks(config.dataset)
        heldout = heldout_tasks(config)
        device = choose_device(config)
        refuse_unusable_loaders(config, device)
        check_tensor_parallel(config, device)
        load_custom(config.rewards.custom)
    if config.execution.enabled:
        with startup.span("driver", "check the sandbox"):
            check_sandbox(config.execution)
    return tasks, heldout, device


@asynccontextmanager
async def running_stages(
    config: Config,
    tasks: Sequence[Task],
    device: str,
    early: Launched,
    *,
    reward_cache: Path,
    activity: Callable[[str], None],
) -> AsyncIterator[Stages]:
    """Every stage up but for the trainer; all are ended on the way out.

    Raises ValueError for a prompt of ``tasks`` that does not fit, before the engine loads its model; and what
    the stages' own starts raise.
    """
    activity("loading the model")
    with startup.span("driver", "find the model"):
        model_path = str(await asyncio.to_thread(find_model, config.model))
        if config.lora.enabled:
            # Imported here: only adapters need to know the model's layers in this process.
            from pipeline.adapter_targets import refuse_unknown_layers

            await asyncio.to_thread(refuse_unknown_layers, config, model_path)
    with startup.span("driver", "load the tokenizer, encode the prompts"):
        tokenizer = PromptTokenizer(Path(model_path), trust_remote_code=config.model.trust_remote_code)
        refuse_long_prompts(tokenizer, tasks, config.generation)
        tokenizer.save()
    async with AsyncExitStack() as stack:
        activity("starting generator, trainer and reward workers")
        generator = _begin(stack, _generator(config, model_path, device, early, stack))
        await asyncio.to_thread(early.wait_for_ray)
        # Waited for at the end: a thread cannot be cancelled, and would leave its workers running.
        start = asyncio.to_thread(_start_scorer, config, reward_cache)
        scorer = _begin(stack, start, RewardPool.close, is_waited_for=True)
        trainer = _begin(stack, _start_trainer(config, model_path, device), TrainerHandle.close)
        await _all_of({scorer, generator}, trainer)
        yield Stages(
            tokenizer=tokenizer, generator=generator.result(), scorer=scorer.result(), trainer=trainer
        )


def _begin(
    stack: AsyncExitStack,
    start: Awaitable[T],
    close: Callable[[T], None] | None = None,
    *,
    is_waited_for: bool = False,
) -> asyncio.Task[T]:
    """``start`` in a task of its own; at the end it is cancelled (or waited for), or its result closed."""
    task: asyncio.Task[T] = asyncio.ensure_future(_awaited(start))

    async def end() -> None:
        if not is_waited_for:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            started = await task
            if close is not None:
                close(started)

    stack.push_async_callback(end)
    return task


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


async def _awaited(start: Awaitable[T]) -> T:
    return await start


async def _generator(
    config: Config, model_path: str, device: str, early: Launched, stack: AsyncExitStack
) -> Generator:
    with startup.span("driver", "wait for the engine"):
        return await stack.enter_async_context(
            running_generator(config, model_path, device, early.take_host())
        )


async def _start_trainer(config: Config, model_path: str, device: str) -> TrainerHandle:
    asked_s = time.time()
    trainer = await start_trainer(config, model_path, device)
    for rank, pid in enumerate(trainer.pids):
        _note_child(f"trainer {rank}", "process, imports, model", pid, asked_s)
    return trainer


def _start_scorer(config: Config, reward_cache: Path) -> RewardPool:
    asked_s = time.time()
    scorer = RewardPool(
        config.rewards,
        config.execution,
        config.acceleration.reward_cache,
        config.acceleration.async_rewards.workers,
        cache_file=reward_cache,
        timeout_s=config.runtime.reward_timeout_s,
        startup_timeout_s=config.runtime.startup_timeout_s,
    )
    for number, pid in enumerate(scorer.worker_pids):
        _note_child(f"reward worker {number}", "process, imports, sandbox", pid, asked_s)
    return scorer


def _note_child(process: str, name: str, pid: int, asked_s: float) -> None:
    """Ray starts workers ahead: what counts is from when this one was asked for, or from its own start."""
    with contextlib.suppress(OSError):
        asked_s = max(asked_s, startup.process_started_s(pid))
    startup.note(process, name, asked_s, time.time(), pid=pid)
