"""The driver's side of the trainer: its ranks as one handle, each call with a deadline.

    TrainerHandle.step ─► rank 0, rank 1, … (pipeline.training.rank) ─► the first rank's answer

A step is one collective after the other, so a rank that fails or falls silent holds up all of them: the call
ends when one fails, or at its deadline, with an error that names the rank, and all ranks are ended. They can
be started again, and are then as at the start of the run, until ``load``. Each is a process of this machine,
or where there is Ray an actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.schema import Config
from pipeline.errors import StageError, TrainerDiedError, TrainerError, TrainerLostError
from pipeline.host.device import num_gpus
from pipeline.host.limits import KEEPING_ALLOCATOR, memory_figures, num_oom_kills
from pipeline.host.shares import ALLOCATOR, NCCL_ERRORS, cpu_threads, is_shared, sends_weights, uses_ray
from pipeline.messages import StepResult, TrainBatch, WeightUpdate
from pipeline.processes.connection import CallFailedError, OutOfMemoryError, Remote
from pipeline.processes.local import LocalProcess
from pipeline.weights.receipts import NUM_TURNS

if TYPE_CHECKING:
    from pipeline.cluster import ClusterPlaces


_RANK = "pipeline.training.rank:TrainerRank"
# For the disk, besides what a step may take.
_SAVE_LIMIT_S = 600.0
_FIT_LIMIT = (60.0, "fixed")
# After the first error of a rank: a rank that died makes the others' collectives fail, sometimes sooner
# than its own death is known.
_GRACE_S = 5.0
_PROBE_TIMEOUT_S = 3.0


class TrainerHandle:
    """The ``runtime.trainer_ranks`` ranks, their model on ``device`` ("cpu" or "cuda"), on ``places`` if any.

    Every call has a deadline and raises TrainerLostError past it. ``pids`` are the ranks' processes, in
    order: none before ``start``, after an error those that it ended.
    """

    def __init__(
        self, config: Config, model_path: str, device: str, places: ClusterPlaces | None = None
    ) -> None:
        self._config = config
        self._places = places
        self._runtime = config.runtime
        self._model_path = model_path
        self._device = device
        self._ranks: list[Remote] = []
        self._sends = False
        self._is_one_card = False
        self._limit = 0  # number of the limit of micro-batches
        self._num_threads = cpu_threads(config, len(os.sched_getaffinity(0))).trainer
        self._is_fitted = False
        self._num_oom_kills = num_oom_kills()
        # A rank was ended by Ray, or could not allocate: shortages that the kernel does not count.
        self._is_short = False
        self.pids: tuple[int, ...] = ()

    async def start(self) -> None:
        """Start the ranks' processes, have them meet and load the model.

        When it fails nothing of it is left. Raises ValueError when there are fewer GPUs than ranks;
        TrainerError when it fails or takes longer than ``runtime.startup_timeout_s``.
        """
        self.close()
        self.pids = ()
        self._is_fitted = False
        num_cards = num_gpus(self._device)
        self._sends = sends_weights(self._config, self._device, num_cards)
        self._is_one_card = self._device == "cuda" and is_shared(self._config, self._device, num_cards)
        self._ranks = self._make_ranks()
        try:
            await self._meet_and_load()
        except BaseException:
            self.close()
            raise

    def _make_ranks(self) -> list[Remote]:
        config, device = self._config, self._device
        num_ranks = self._runtime.trainer_ranks
        num_threads = max(self._num_threads // num_ranks, 1)
        environment = _environment(device, num_threads)
        ranks: list[Remote] = []
        for rank in range(num_ranks):
            arguments = (config, self._model_path, device, num_threads, rank, num_ranks)
            if not uses_ray(config, device):
                ranks.append(LocalProcess(_RANK, *arguments, environment=environment))
                continue
            # Imported here: most runs do without Ray.
            from pipeline.cluster import CardPlaces
            from pipeline.processes.ray_remote import RayProcess

            places = CardPlaces(config, device) if self._places is None else self._places
            options = places.rank_options(rank)
            ranks.append(RayProcess(_RANK, *arguments, environment=environment, options=options))
        return ranks

    async def _meet_and_load(self) -> None:
        limit = (self._runtime.startup_timeout_s, "runtime.startup_timeout_s")
        meeting_point: tuple[str, int] | None = None
        if len(self._ranks) > 1:
            (meeting_point,) = await self._wait([self._ranks[0].call("open")], "start", *limit)
        self.pids = tuple(await self._all("start", meeting_point, what="start", limit=limit))

    async def fit_memory(self) -> str | None:
        """Before a step: have micro-batches fit into memory, as ``training.memory`` asks.

        They are chosen before the first step of new ranks, and are smaller from then on where any process was
        ended for want of memory: nothing is tried again unchanged. Returns what was changed, in words. Raises
        TrainerError where nothing smaller is left, or may be taken.
        """
        # What the host lacks is no matter of micro-batches on a card.
        num_kills = self._num_kills()
        is_short = self._is_shortage(num_kills)
        if self._config.training.memory == "fixed":
            if is_short:
                raise TrainerError(
                    f"a process was ended for want of memory ({memory_figures()}) and training.memory is "
                    "fixed: set it to auto, or lower acceleration.token_packing.max_tokens"
                )
            return None
        if self._is_fitted and not is_short:
            return None
        number, self._is_fitted = self._limit + is_short, False
        limit = self._after_a_save(_FIT_LIMIT)
        found: list[int] = await self._all("fit_memory", number, what="fit", limit=limit)
        words: list[str] = await self._all("adopt_limit", max(found), what="fit", limit=_FIT_LIMIT)
        is_new, self._limit, self._is_fitted = max(found) > self._limit, max(found), True
        # Not before they have answered: new ranks are to know of it.
        self._num_oom_kills, self._is_short = num_kills, False
        cause = "a process lacked memory" if is_short else "to fit into memory"
        return f"micro-batches have {words[0]} ({cause})" if is_new else None

    def _after_a_save(self, limit: tuple[float, str]) -> tuple[float, str]:
        """``limit`` with the time of a save, which several ranks may still be at, before it."""
        return limit if len(self._ranks) == 1 else (limit[0] + self._save_limit[0], limit[1])

    @property
    def layout(self) -> dict[str, int]:
        """What a step's rounding hangs on besides its samples, its parts and failed allocations.

        And in how many turns receipts reach all columns: others have other digests.
        """
        return {"limit": self._limit, "threads": self._num_threads, "turns": NUM_TURNS}

    async def adopt(self, limit: int) -> None:
        """Keep micro-batches to the ``limit`` of a step's ``layout`` from now on; call it before the step."""
        if self._config.training.memory == "auto" and (limit != self._limit or not self._is_fitted):
            await self._all("adopt_limit", limit, what="fit", limit=_FIT_LIMIT)
            self._limit, self._is_fitted = limit, True

    async def accumulate(self, batch: TrainBatch) -> None:
        """Add the gradient of an earlier part of a step, within ``runtime.train_step_timeout_s``.

        With several ranks that begins when the last step is saved.
        """
        what = f"part {batch.part} of step {batch.step}"
        await self._all("accumulate", batch, what=what, limit=self._after_a_save(self._step_limit))

    async def step(self, batch: TrainBatch) -> StepResult:
        """Train on ``batch``, a step or its last part, within ``runtime.train_step_timeout_s``."""
        what = f"step {batch.step}"
        results: list[StepResult] = await self._all("step", batch, what=what, limit=self._step_limit)
        return results[0]

    async def publish(self, directory: str) -> WeightUpdate:
        """Make the current weights ready to be loaded, within ``runtime.weight_update_timeout_s``.

        They are in ``directory`` then, or the first rank sends them to whoever asks: see
        ``runtime.weight_transport``.
        """
        limit = (self._runtime.weight_update_timeout_s, "runtime.weight_update_timeout_s")
        updates: list[WeightUpdate]
        if self._sends:
            updates = await self._all("offer", self._is_one_card, what="publish", limit=limit)
        else:
            updates = await self._all("publish", directory, what="publish", limit=limit)
        return updates[0]

    async def release_memory(self) -> None:
        """Give the card what a step no longer needs of it; weights and optimiser stay."""
        await self._all("release_memory", what="release memory", limit=_FIT_LIMIT)

    async def save(self, folder: Path, step: int) -> Path:
        """Write the checkpoint of ``step`` to ``folder``, while the next one has changed no weights yet.

        With several ranks it waits for what they are doing, since they save together. Raises TrainerError
        where the weights are those of another step by then.
        """
        is_alone = len(self._ranks) == 1
        calls = [rank.call("save", _path(folder), step, is_beside=is_alone) for rank in self._ranks]
        paths = await self._wait(calls, f"save of step {step}", *self._save_limit)
        return Path(paths[0])

    async def load(self, folder: Path) -> int:
        """Go on from the checkpoint in ``folder``; returns its step."""
        steps = await self._all("load", _path(folder), what=f"load of {folder}", limit=self._save_limit)
        return int(steps[0])

    async def require_all(self) -> None:
        """Raise TrainerLostError unless every rank answers, whatever it is doing."""
        calls = [rank.call("answer", is_beside=True) for rank in self._ranks]
        await self._wait(calls, "weights on offer", _PROBE_TIMEOUT_S, "fixed")

    def close(self) -> None:
        """End the ranks' processes."""
        for rank in self._ranks:
            rank.kill()
        self._ranks = []

    @property
    def _step_limit(self) -> tuple[float, str]:
        return self._runtime.train_step_timeout_s, "runtime.train_step_timeout_s"

    @property
    def _save_limit(self) -> tuple[float, str]:
        seconds, setting = self._step_limit
        return _SAVE_LIMIT_S + seconds, f"{_SAVE_LIMIT_S:g} s and {setting}"

    def _num_kills(self) -> int:
        return num_oom_kills() if self._device == "cpu" else self._num_oom_kills

    @property
    def is_short(self) -> bool:
        """Whether a process lacked memory, or was ended for it, since micro-batches were last made to fit."""
        return self._is_shortage(self._num_kills())

    def _is_shortage(self, num_kills: int) -> bool:
        return self._is_short or num_kills > self._num_oom_kills

    async def _all(self, method: str, *arguments: object, what: str, limit: tuple[float, str]) -> Any:
        return await self._wait([rank.call(method, *arguments) for rank in self._ranks], what, *limit)

    async def _wait(self, calls: Sequence[Future[Any]], what: str, timeout_s: float, setting: str) -> Any:
        """The answers to ``calls``, the first of them to rank 0 and so on."""
        if not calls:
            raise TrainerLostError(f"the trainer: {what}: its processes have ended")
        tasks = [asyncio.wrap_future(call) for call in calls]
        try:
            done, pending = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION)
            if any(task.exception() for task in done):
                await asyncio.wait(tasks, timeout=_GRACE_S)
                rank, error = _culprit(tasks)
                lacks_memory = isinstance(error, OutOfMemoryError) or self._can_take_less(error)
                self._is_short |= lacks_memory
                has_failed = isinstance(error, CallFailedError) and not lacks_memory
                kind = TrainerError if has_failed else TrainerDiedError
                raise kind(f"{self._name(rank)}: {what}: {error}") from error
            if pending:
                late = [rank for rank, task in enumerate(tasks) if not task.done()]
                names = ", ".join([self._name(rank) for rank in await self._silent(late)])
                raise TrainerLostError(f"{names}: {what}: no answer within {timeout_s:.0f} s ({setting})")
        except TrainerError:
            self.close()
            raise
        finally:
            for task in tasks:
                task.cancel()
        return [task.result() for task in tasks]

    def _can_take_less(self, error: BaseException) -> bool:
        """Whether an allocation failed in one of several ranks, which begin again with smaller micro-batches.

        One rank alone takes smaller ones within the step. Where there are none that are smaller, which ranks
        say when they are made to fit, there is nothing to begin again with.
        """
        may_take_less = self._config.training.memory == "auto" and self._is_fitted
        lacks_memory = isinstance(error, CallFailedError) and str(error).startswith(MemoryError.__name__)
        return len(self._ranks) > 1 and may_take_less and lacks_memory

    async def _silent(self, late: Sequence[int]) -> list[int]:
        """Of the ranks that are ``late`` those that are stopped or gone; the others only wait for them.

        All of them when every one still answers: then it cannot be told who holds up whom.
        """

        async def answers(rank: int) -> bool:
            with contextlib.suppress(StageError, TimeoutError):
                answer = asyncio.wrap_future(self._ranks[rank].call("answer", is_beside=True))
                return bool(await asyncio.wait_for(answer, _PROBE_TIMEOUT_S))
            return False

        answered = await asyncio.gather(*[answers(rank) for rank in late])
        return [rank for rank, is_alive in zip(late, answered, strict=True) if not is_alive] or list(late)

    def _name(self, rank: int) -> str:
        of = f"rank {rank} of {len(self._ranks)}, " if len(self._ranks) > 1 else ""
        return f"the trainer ({of}process {self.pids[rank]})" if self.pids else f"the trainer ({of}starting)"


def _environment(device: str, num_threads: int) -> dict[str, str]:
    # OpenMP reads it before any code of ours, and Ray sets it to 1 for actors without CPUs.
    environment = {"OMP_NUM_THREADS": str(num_threads), "TOKENIZERS_PARALLELISM": "false"}
    if device == "cuda":
        environment |= NCCL_ERRORS
        if not any(name in os.environ for name in ALLOCATOR):
            # What the user has set stays. Rows differ in length: blocks of one size would leave gaps.
            environment[ALLOCATOR[0]] = "expandable_segments:True"
    if device == "cpu":
        # The generator shares the cores: threads that spin at a barrier would take them from it.
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        # What the user has set stays.
        environment |= {name: os.environ.get(name, value) for name, value in KEEPING_ALLOCATOR.items()}
    return environment


def _path(folder: Path) -> str:
    """``folder`` for a process that may work in another one, as those of a Ray cluster do."""
    return str(folder.absolute())


def _culprit(tasks: Sequence[asyncio.Future[Any]]) -> tuple[int, BaseException]:
    """The rank whose error is the cause: one that died before one whose call failed, as others' then do."""
    errors = [
        (rank, error)
        for rank, task in enumerate(tasks)
        if task.done() and (error := task.exception()) is not None
    ]
    return min(errors, key=lambda item: isinstance(item[1], CallFailedError))
