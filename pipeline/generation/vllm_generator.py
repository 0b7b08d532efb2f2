"""The handle to a vLLM engine, with its deadlines, and how an engine of this machine starts.

The engine is a process that this one starts (pipeline.generation.host). It dies with this one, unless
``runtime.keep_alive``. Where Ray gives an engine its place, an actor of Ray's is what starts it there
(pipeline.generation.node_actor).
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any

from configs.conditions import held_up_s
from configs.schema import Config
from pipeline.errors import StageError
from pipeline.generation import resident
from pipeline.generation.client import EngineClient, EngineEnd, Start, launch
from pipeline.generation.generator import GeneratorError, GeneratorLostError, require_version
from pipeline.generation.settings import (
    IDLE_DEADLINE_S,
    EngineSettings,
    engine_environment,
    engine_settings,
)
from pipeline.host import spans
from pipeline.messages import Completion, GenerationRequest, WeightsLoaded, WeightUpdate
from pipeline.processes.connection import ProcessGoneError, ProcessKilledError
from pipeline.processes.local import ChildProcess


class VllmGenerator:
    """This side of an engine, a Generator. ``name`` is for messages."""

    def __init__(self, end: EngineEnd, config: Config, name: str = "the vLLM generator") -> None:
        self._end = end
        self._name = f"{name} (process {end.pid})"
        self._generation_timeout_s = config.runtime.generation_timeout_s
        self._max_num_seqs = config.generation.max_num_seqs
        # As the Transformers engine does, on a node of a cluster.
        self._runs_one_by_one = config.generation.engine == "transformers"
        self._num_in_flight = 0  # sequences
        self._update_timeout_s = config.runtime.weight_update_timeout_s
        self._held_up_s = held_up_s(config)
        self.pid = end.pid
        self.note = ""  # What the engine had to say when it started.
        self._turning = asyncio.Lock()  # one way or the other
        self._is_awake, self._is_idle = asyncio.Event(), asyncio.Event()
        self._is_awake.set()
        self._is_idle.set()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield completions as they finish; to leave the loop early ends the rest.

        vLLM begins sequences in the order they came: a request waits for ``generation.max_num_seqs`` of those
        before it at a time, ``runtime.generation_timeout_s`` for each; where that is so, also for an update.
        The Transformers engine runs one request after the other, the last sequences of each by themselves.

        Raises:
            GeneratorLostError: no completion within that time, or the engine died.
            GeneratorError: the engine refused the request.
        """
        await self._is_awake.wait()
        num_left = request.num_generations
        num_places_left_free = -num_left % self._max_num_seqs if self._runs_one_by_one else 0
        self._num_in_flight += num_left + num_places_left_free
        self._is_idle.clear()
        num_turns = math.ceil(self._num_in_flight / self._max_num_seqs)
        timeout_s = num_turns * self._generation_timeout_s + self._held_up_s
        stream = self._end.stream("generate", request)
        try:
            while num_left:
                try:
                    # Not wait_for, which in Python 3.11 loses a cancellation that comes beside a completion.
                    async with asyncio.timeout(timeout_s):
                        completion = await anext(stream)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    times = "" if num_turns == 1 else f", {num_turns} times: others were before it"
                    times += f"; {self._held_up_s:.0f} s of it for an update" if self._held_up_s else ""
                    raise GeneratorLostError(
                        f"{self._name} sent {request.num_generations - num_left} of "
                        f"{request.num_generations} completions of {request.request_id} and then nothing for "
                        f"{timeout_s:.0f} s (runtime.generation_timeout_s{times})"
                    ) from error
                except StageError as error:
                    raise self._fault("failed", error) from error
                num_left -= 1
                self._has_ended(1)
                yield completion
        finally:
            self._has_ended(num_left + num_places_left_free)
            await stream.aclose()  # type: ignore[attr-defined]

    def _has_ended(self, num_sequences: int) -> None:
        self._num_in_flight -= num_sequences
        if self._num_in_flight == 0:
            self._is_idle.set()

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        """See pipeline.generation.generator.Generator.

        Raises:
            GeneratorLostError: the update took longer than ``runtime.weight_update_timeout_s``, or the engine
                died.
            GeneratorError: the engine could not load these weights, or holds others afterwards.
        """
        await self.wake()
        # What is drained has its own time. It runs all at once: what waits begins under the new weights.
        drain_s = self._generation_timeout_s if update.mode == "drain" and self._num_in_flight else 0.0
        change, what = self._end.call("update_weights", update), f"load weights {update.policy_version}"
        loaded: WeightsLoaded = await self._change(change, what, after_s=drain_s)
        return require_version(loaded, update, self._name)

    async def reset(self) -> None:
        """See pipeline.generation.generator.Generator. Raises as ``update_weights``."""
        await self.wake()
        await self._change(self._end.call("reset"), "load its base weights again")

    async def sleep(self) -> None:
        """See pipeline.generation.generator.Generator. Raises as ``update_weights``."""
        async with self._turning:
            self._is_awake.clear()
            await self._ended()
            await self._change(self._end.call("sleep"), "give its memory back")

    async def wake(self) -> None:
        """See pipeline.generation.generator.Generator. Raises as ``update_weights``."""
        async with self._turning:
            if self._is_awake.is_set():
                return
            what = "take its share of the card again (generation.gpu_memory_utilization)"
            await self._change(self._end.call("wake"), what)
            self._is_awake.set()

    async def _ended(self) -> None:
        """Wait for the requests that run; they have deadlines, and who takes their answers has one here."""
        while num_left := self._num_in_flight:
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * self._generation_timeout_s):
                    await self._is_idle.wait()
            if self._num_in_flight == num_left:
                raise GeneratorLostError(
                    f"{self._name} cannot sleep: {num_left} completions are being written, and none was "
                    f"taken for {2 * self._generation_timeout_s:.0f} s (twice runtime.generation_timeout_s)"
                )

    async def _change(self, change: Awaitable[Any], what: str, *, after_s: float = 0.0) -> Any:
        """The result of ``change``, which may begin ``after_s`` seconds from now."""
        timeout_s = after_s + self._update_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await change
        except TimeoutError as error:
            drained = ", after runtime.generation_timeout_s" if after_s else ""
            raise GeneratorLostError(
                f"{self._name} did not {what} "
                f"within {timeout_s:.0f} s (runtime.weight_update_timeout_s{drained})"
            ) from error
        except StageError as error:
            raise self._fault(f"failed to {what}", error) from error

    async def stats(self) -> dict[str, float]:
        """Drafting since the engine's start, see VllmEngine.stats; empty without speculation.

        Raises:
            GeneratorError: the engine failed or is gone.
        """
        return dict(await self._change(self._end.call("stats"), "say what it drafted"))

    async def close(self) -> None:
        """End the engine, or leave it to a later run (``runtime.keep_alive``)."""
        await self._end.close()

    async def kill(self) -> None:
        """End every process of the engine at once, whatever they are doing."""
        await self._end.kill()
        # What waits for a sleeping engine is to learn that it is gone.
        self._is_awake.set()

    def _fault(self, what: str, error: StageError) -> GeneratorError:
        kind = GeneratorLostError if isinstance(error, ProcessGoneError) else GeneratorError
        return kind(f"{self._name} {what}: {error}")


async def start_vllm_generator(
    config: Config,
    model_path: str,
    device: str,
    *,
    index: int = 0,
    launched: ChildProcess | None = None,
) -> VllmGenerator:
    """Engine number ``index`` of this run: the resident one, the one ``launched``, or one started here.

    It runs on the GPUs that this process may use. A ``launched`` host that is of no use is ended. Raises
    GeneratorError when the engine did not start within ``runtime.startup_timeout_s``, or failed;
    GeneratorLostError when its process was killed meanwhile.
    """
    runtime = config.runtime
    settings = engine_settings(config, model_path, device, index)
    environment = engine_environment(config, device)
    if launched is not None and launched.environment != environment:
        launched.end(0.0)
        launched = None
    try:
        async with asyncio.timeout(runtime.startup_timeout_s):
            client = await _attached(settings, environment, index) if runtime.attach else None
            if client is None:
                client = await _started(settings, environment, index, runtime.keep_alive, launched)
            elif launched is not None:
                launched.end(0.0)
            try:
                note = await client.call("prepare")
            except BaseException:
                # A later run would be told of the same failure.
                await (client.kill() if client.is_kept else client.close())
                raise
            if note:
                # Of an actor this goes to its own log: see NodeActor.start.
                print(f"note: {note}", file=sys.stderr)
    except TimeoutError as error:
        raise GeneratorError(
            f"vLLM did not start within {runtime.startup_timeout_s:.0f} s (runtime.startup_timeout_s)"
        ) from error
    except ProcessKilledError as error:
        raise GeneratorLostError(f"vLLM did not start: {error}") from error
    except StageError as error:
        raise GeneratorError(f"vLLM failed to start: {error}") from error
    generator = VllmGenerator(client, config)
    generator.note = note or ""
    return generator


async def _attached(settings: EngineSettings, environment: dict[str, str], index: int) -> EngineClient | None:
    """The resident engine, if it is what this run needs and is free; otherwise None, and a note says why."""
    found = await resident.find(index)
    if found is None:
        reason = "there is none"
    else:
        wanted = resident.engine_identity(settings, environment)
        differing = resident.differences(wanted, found.identity)
        try:
            if not differing:
                with spans.span("driver", "attach to the resident engine"):
                    return await EngineClient.connect(resident.socket_path(index))
            reason = f"process {found.pid} is another engine ({'; '.join(differing)})"
        except ProcessGoneError as error:
            reason = f"process {found.pid}: {error}"
    print(f"note: no resident engine to attach to: {reason}; starting one", file=sys.stderr)
    return None


async def _started(
    settings: EngineSettings,
    environment: dict[str, str],
    index: int,
    is_kept: bool,
    launched: ChildProcess | None,
) -> EngineClient:
    """A new engine, in ``launched`` or a host of its own; one to be kept takes the place of an idle one."""
    if is_kept and (reason := await resident.stop(index)) is not None:
        print(f"note: this engine will not be kept alive: another one is {reason}", file=sys.stderr)
        is_kept = False
    host = launched or launch(environment)
    start = Start(
        settings=settings,
        identity=resident.engine_identity(settings, environment),
        socket_path=resident.socket_path(index) if is_kept else None,
        idle_s=IDLE_DEADLINE_S,
    )
    try:
        client = await EngineClient.start(host, start)
    except BaseException:
        host.end(0.0)
        raise
    if is_kept and not client.is_kept:
        print("note: this engine will not be kept alive: another one is there meanwhile", file=sys.stderr)
    return client
