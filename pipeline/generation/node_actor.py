"""A generator where Ray gives it a place: a share of a GPU of this machine, or another node of a cluster.

    VllmGenerator ─► NodeEnd ─► NodeActor (Ray, in that place) ─► the generator, as it would run there alone
                       └── weights: read once here ─► object store ─► /dev/shm of another node

The actor owns the generator's processes: they die with it, and it dies with its node or with the driver. That
its generator is lost it answers to whoever asks, with the reason. What shall be resident is never Ray's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

import ray

from configs.schema import Config
from pipeline.cluster import Files, ObjectStoreWeights, write_files
from pipeline.errors import StageError
from pipeline.generation.generator import GeneratorError, GeneratorLostError
from pipeline.generation.vllm_generator import VllmGenerator, start_vllm_generator
from pipeline.messages import WeightUpdate
from pipeline.models.find import path_on_this_node
from pipeline.processes.connection import CallFailedError, ProcessGoneError
from pipeline.processes.ray_remote import RayProcess
from pipeline.weights.files import shared_folder

_CLOSE_TIMEOUT_S = 15.0


class Arrival(NamedTuple):
    """Where an actor came up, and what its engine has to say; "" for nothing."""

    pid: int
    node_id: str
    address: str
    note: str = ""


class NodeActor:
    """One generator on the actor's node."""

    def __init__(self, config: Config, model_path: str, device: str, index: int) -> None:
        self._config = config
        self._model_path = model_path
        self._device = device
        self._index = index
        self._generator: Any = None

    async def start(self) -> Arrival:
        """Find the model on this node and start the generator."""
        path = await asyncio.to_thread(path_on_this_node, self._config.model, self._model_path)
        if self._config.generation.engine == "vllm":
            self._generator = await start_vllm_generator(self._config, path, self._device, index=self._index)
        else:
            # Imported here: the vLLM path never needs it.
            from pipeline.generation.transformers_engine import TransformersEngine

            self._generator = await asyncio.to_thread(TransformersEngine, self._config, path, self._device)
        node_id = ray.get_runtime_context().get_node_id()
        note = getattr(self._generator, "note", "")
        return Arrival(os.getpid(), node_id, ray.util.get_node_ip_address(), note)

    def __getattr__(self, name: str) -> Any:
        """All else is the generator's: see pipeline.generation.generator.Generator."""
        return getattr(self._generator, name)

    async def update_weights(self, update: WeightUpdate, reference: Any) -> Any:
        """Load ``update``: from its path, or on another node from the Files of ``reference``."""
        if reference is None:
            return await self._generator.update_weights(update)
        files: Files = await reference
        with shared_folder(f"generator-{self._index}") as folder:
            copy = await asyncio.to_thread(write_files, files, update, folder)
            return await self._generator.update_weights(copy)


class NodeEnd:
    """See pipeline.generation.client.EngineEnd. Weights travel with an update to another node."""

    def __init__(self, actor: RayProcess, arrival: Arrival, store: ObjectStoreWeights) -> None:
        self.pid = arrival.pid
        self._actor = actor
        self._store = store
        self._is_here = arrival.node_id == ray.get_runtime_context().get_node_id()

    async def call(self, method: str, *arguments: Any) -> Any:
        """See EngineEnd."""
        try:
            if method == "update_weights":
                arguments = (*arguments, await self._files(*arguments))
            return await asyncio.wrap_future(self._actor.call(method, *arguments))
        except CallFailedError as error:
            raise _as_said(error) from error
        except (OSError, ray.exceptions.RayError) as error:
            raise StageError(f"weights could not be put into Ray's object store: {error}") from error

    async def stream(self, method: str, *arguments: object) -> AsyncIterator[Any]:
        """See EngineEnd."""
        try:
            async with aclosing(self._actor.stream(method, *arguments)) as items:  # type: ignore[type-var]
                async for item in items:
                    yield item
        except CallFailedError as error:
            raise _as_said(error) from error

    async def close(self) -> None:
        """End the generator, then the actor."""
        with contextlib.suppress(TimeoutError, StageError):
            await asyncio.wait_for(self.call("close"), _CLOSE_TIMEOUT_S)
        await self.kill()

    async def kill(self) -> None:
        """See EngineEnd; the generator's processes die with the actor."""
        self._actor.kill()

    async def _files(self, update: WeightUpdate) -> Any:
        if self._is_here or update.kind == "offer":
            return None
        return await asyncio.to_thread(self._store.reference, update)


async def start_node_generator(
    config: Config,
    model_path: str,
    device: str,
    *,
    index: int,
    options: Mapping[str, Any],
    store: ObjectStoreWeights,
) -> VllmGenerator:
    """Generator ``index`` in the place that Ray's ``options`` give; ``store`` takes weights there.

    Raises GeneratorError when it is not up within ``runtime.startup_timeout_s``, or fails, GeneratorLostError
    where it or its place died.
    """
    target = f"{__name__}:{NodeActor.__name__}"
    actor = RayProcess(target, config, model_path, device, index, options=options)
    timeout_s = config.runtime.startup_timeout_s
    try:
        arrival: Arrival = await asyncio.wait_for(asyncio.wrap_future(actor.call("start")), timeout_s)
    except TimeoutError as error:
        actor.kill()
        raise GeneratorError(
            f"generator {index} was not up after {timeout_s:g} s (runtime.startup_timeout_s): no node has "
            "the place it needs, or its model takes longer to load"
        ) from error
    except StageError as error:
        actor.kill()
        said = _as_said(error) if isinstance(error, CallFailedError) else error
        kind = GeneratorLostError if isinstance(said, ProcessGoneError) else GeneratorError
        raise kind(f"generator {index} failed to start: {said}") from error
    except BaseException:
        actor.kill()
        raise
    name = f"generator {index} on node {arrival.address}"
    if arrival.note:
        print(f"note: {name}: {arrival.note}", file=sys.stderr)
    return VllmGenerator(NodeEnd(actor, arrival, store), config, name=name)


def _as_said(error: CallFailedError) -> StageError:
    """What the actor's answer tells: that its generator is lost, or that the call failed."""
    kind, _, reason = str(error).partition(": ")
    return ProcessGoneError(reason) if kind == GeneratorLostError.__name__ else error
