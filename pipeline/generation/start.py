"""Start the generator that the configuration names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from configs.schema import Config
from pipeline.generation.generator import Generator, GeneratorLostError
from pipeline.generation.supervised import Dispatcher, Engine, SupervisedGenerator
from pipeline.generation.vllm_generator import start_vllm_generator
from pipeline.host.device import num_gpus
from pipeline.host.restarts import RestartLimit
from pipeline.host.shares import check_tensor_parallel, is_shared, uses_ray
from pipeline.processes.local import ChildProcess

if TYPE_CHECKING:
    from pipeline.cluster import ClusterPlaces


_UPDATES_IN_A_ROW = 3


@asynccontextmanager
async def running_generator(
    config: Config,
    model_path: str,
    device: str,
    launched: ChildProcess | None = None,
    restarts: RestartLimit | None = None,
    places: ClusterPlaces | None = None,
) -> AsyncIterator[Generator]:
    """A started generator, closed on the way out; ``launched`` is a host that may be used for it.

    Several engines (``generation.num_engines``) start at once and stand behind a Dispatcher. An engine in a
    process of its own that dies later is started again, as often as ``restarts`` allows; without it never.
    With ``places`` the engines run there, on the nodes of a cluster.

    Raises:
        ValueError: ``generation.tensor_parallel_size`` does not suit the device or the engine.
        GeneratorError: an engine did not start within ``runtime.startup_timeout_s``.
    """
    if places is None:
        check_tensor_parallel(config, device)
    with _ray(config, device):
        generators = await _start_all(config, model_path, device, launched, restarts, places)
        generator: Generator = generators[0]
        if len(generators) > 1:
            # Each has its own deadline, and one that is being started again loads its earlier weights first.
            runtime, is_drained = config.runtime, config.generation.weight_update_mode == "drain"
            update_s = runtime.weight_update_timeout_s + is_drained * runtime.generation_timeout_s
            timeout_s = _UPDATES_IN_A_ROW * update_s
            generator = Dispatcher(generators, update_timeout_s=timeout_s)
        try:
            yield generator
        finally:
            await generator.close()


def _ray(config: Config, device: str) -> AbstractContextManager[None]:
    """Ray, where the engines run in its actors."""
    if config.generation.engine != "vllm" or not uses_ray(config, device):
        return nullcontext()
    # Imported here: most runs do without Ray.
    from pipeline.cluster import running_ray

    return running_ray(config.cluster.address)


async def _start_all(
    config: Config,
    model_path: str,
    device: str,
    launched: ChildProcess | None,
    restarts: RestartLimit | None,
    places: ClusterPlaces | None,
) -> list[Generator]:
    """All engines or none: if one does not start, the others are closed and its error is raised."""
    starting = [
        asyncio.create_task(
            _start_one(config, model_path, device, index, launched if index == 0 else None, restarts, places)
        )
        for index in range(config.generation.num_engines)
    ]
    try:
        # Each to its end, whatever becomes of the others.
        await asyncio.gather(*starting, return_exceptions=True)
        return [start.result() for start in starting]
    except BaseException:
        ended = await asyncio.gather(*starting, return_exceptions=True)
        up = [one for one in ended if not isinstance(one, BaseException)]
        await asyncio.gather(*(generator.close() for generator in up), return_exceptions=True)
        raise


def _as_placed(config: Config, device: str) -> Config:
    """``config`` for a process that sees its own GPUs alone, and could not tell who else is there."""
    if device == "cpu" or config.cluster.is_joined:
        return config
    placement = "colocated" if is_shared(config, device, num_gpus(device)) else "split"
    runtime = config.runtime.model_copy(update={"placement": placement, "trainer_ranks": 1})
    generation = config.generation.model_copy(update={"num_engines": 1})
    return config.model_copy(update={"runtime": runtime, "generation": generation})


async def _start_one(
    config: Config,
    model_path: str,
    device: str,
    index: int,
    launched: ChildProcess | None,
    restarts: RestartLimit | None,
    places: ClusterPlaces | None,
) -> Generator:
    if config.generation.engine != "vllm" and places is None:
        # Imported here: the vLLM path never needs it.
        from pipeline.generation.transformers_engine import TransformersEngine

        return TransformersEngine(config, model_path, device)

    is_resident = config.runtime.keep_alive or config.runtime.attach

    async def start(launched: ChildProcess | None = None) -> Engine:
        if places is None and (is_resident or not uses_ray(config, device)):
            return await start_vllm_generator(config, model_path, device, index=index, launched=launched)
        # Imported here: most runs do without Ray.
        from pipeline.cluster import CardPlaces
        from pipeline.generation.node_actor import start_node_generator

        at = CardPlaces(config, device) if places is None else places
        placed, options = _as_placed(config, device), at.generator_options(index)
        return await start_node_generator(
            placed, model_path, device, index=index, options=options, store=at.store
        )

    if restarts is None:
        return await start(launched)
    name = f"generator {index}"
    while True:
        try:
            return SupervisedGenerator(await start(launched), start, limit=restarts, name=name)
        except GeneratorLostError as error:
            restarts.admit(name, str(error), has_worked=False)
            launched = None
