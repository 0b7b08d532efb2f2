"""Ray: start it or connect to it, reserve places on its nodes, carry weights between them.

On a cluster two placement groups hold a bundle for each trainer rank and each generator, so a run gets all of
its places or none, before any stage starts. One has the first rank, which is on the driver's node, where
checkpoints and published weights are written; all else may be anywhere. A generator that is split over GPUs
is one bundle, hence on one node. When a node dies Ray finds its bundles places elsewhere, if there are any.
Weights travel from files into Ray's object store and into files again: the driver's node reads an update
once, however many nodes take it. On one machine whose GPUs ranks and generators share, each GPU is a bundle
(``CardPlaces``). Starts no stage.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.host.device import num_gpus
from pipeline.host.shares import GpuShares, gpu_shares
from pipeline.messages import WeightUpdate

_CONNECT_TIMEOUT_S = 10.0
# Of a wait for places, as long as an exit may be held up.
_LOOK_S = 2.0
# So long the first rank's place is held while the others are waited for.
_PATIENCE_S = 60.0
# Ray gives its own servers 30 s, which no setting changes and a busy machine may not keep.
_MAX_STARTS = 3
_OF_A_JOB = ("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "RAY_JOB_CONFIG_JSON_ENV_VAR")
# Ray gives every node this label.
_NODE = "ray.io/node-id"
_CARDS = "code-grpo cards"

_PACKAGES = ("pipeline", "rewards", "curriculum", "sandbox", "configs")

# The files of an update by name; "" for an update that is a single file.
Files = Mapping[str, NDArray[np.uint8]]


def start_ray(address: str | None = None) -> None:
    """Start a private Ray on this machine, unless this process is already connected to one.

    With ``address`` (HOST:PORT, or "auto") connect to the cluster there instead. RAY_ADDRESS, which every job
    of a cluster has, is no reason to: without ``address`` a run counts on this machine's cards alone. Raises
    StageError where none answers, and where its workers would take the working directory's modules for ours.
    """
    if ray.is_initialized():
        return
    _refuse_namesakes()
    # Ray's note that the thread which starts it is not the main one is for programs without a handler.
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Left to itself Ray counts the machine's cores, and starts that many idle workers; ours claim none. Of a
    # cluster that runs already it may not be told.
    if address not in (None, "local"):
        _refuse_silence(address)
        try:
            _init(address, None)
        except (ConnectionError, RuntimeError, ValueError) as error:
            # Also of other versions than the cluster's, and of a port that is not its GCS's.
            raise StageError(f"cannot join the Ray at {address} (cluster.address): {error}") from error
        return
    fault: Exception | None = None
    for _ in range(_MAX_STARTS):
        try:
            # Without an address Ray would take a cluster of somebody else's on this machine.
            _init("local", len(os.sched_getaffinity(0)))
            return
        except Exception as error:
            # Ray has no error type for it.
            fault = error
            ray.shutdown()
    raise StageError(f"Ray did not start on this machine, {_MAX_STARTS} times: {fault}") from fault


def _init(address: str, num_cpus: int | None) -> None:
    if address == "local":
        # A run keeps to what is free by itself; Ray would end its processes at 95 % of the machine.
        os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
        # Those of a Ray job that this process is: its own workers are to have cards of their own.
        for name in _OF_A_JOB:
            os.environ.pop(name, None)
    # What ends a whole process group (a scheduler, a time limit) would end Ray's servers before the last step
    # is saved. They inherit what is blocked, as their workers do; Ray itself blocks SIGINT so.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        ray.init(
            address=address,
            num_cpus=num_cpus,
            include_dashboard=False,
            logging_level="ERROR",
            log_to_driver=False,
            configure_logging=False,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _refuse_namesakes() -> None:
    """Ray's workers look into the working directory first; processes of this machine do not."""
    root, here = Path(__file__).parents[1], Path.cwd()
    for name in _PACKAGES if here != root else ():
        if (here / f"{name}.py").is_file() or (here / name / "__init__.py").is_file():
            raise StageError(
                f"{here} has a Python module {name!r}, which Ray's workers would take for this project's: "
                "rename it, or start the run in another folder (cluster.address)"
            )


def _refuse_silence(address: str) -> None:
    """Ray itself waits for minutes, and then ends the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise StageError(f"no Ray cluster answers at {address} (cluster.address): {error}") from error


@contextmanager
def running_ray(address: str | None = None) -> Iterator[None]:
    """Ray for a block; what it started is gone afterwards, and what ran before goes on. See ``start_ray``."""
    was_running = ray.is_initialized()
    start_ray(address)
    try:
        yield
    finally:
        if not was_running:
            ray.shutdown()


class ClusterPlaces:
    """The reserved places of one run, as options for Ray's actors; ``store`` takes weights to them.

    ``first`` is that of the first rank, ``others`` has those of all else.
    """

    def __init__(self, first: PlacementGroup, others: PlacementGroup, config: Config, device: str) -> None:
        self._first, self._others = first, others
        self._num_ranks = config.runtime.trainer_ranks
        self._is_gpu = device == "cuda"
        self._generator_gpus = config.generation.tensor_parallel_size
        self.store = ObjectStoreWeights()

    def rank_options(self, rank: int) -> dict[str, Any]:
        """For trainer rank ``rank``, which has a GPU to itself."""
        return self._options(rank, 1)

    def generator_options(self, index: int) -> dict[str, Any]:
        """For generator ``index``, with all its GPUs."""
        return self._options(self._num_ranks + index, self._generator_gpus)

    def release(self) -> None:
        """Give the places back; whatever still runs in them is ended."""
        _remove((self._first, self._others))

    def _options(self, place: int, num_gpus: int) -> dict[str, Any]:
        group, bundle = (self._first, 0) if place == 0 else (self._others, place - 1)
        return _in_bundle(group, bundle, num_gpus if self._is_gpu else 0)


class CardPlaces:
    """The GPUs of this machine, as ``config`` shares them out, as options for Ray's actors; none on a CPU.

    Where cards are shared, rank r is on card r, and generators go round all cards from the last one, as
    ``gpu_shares`` counts them.
    """

    def __init__(self, config: Config, device: str) -> None:
        self.store = ObjectStoreWeights()
        self._num_cards = num_gpus(device)
        self._shares = gpu_shares(config, self._num_cards) if device == "cuda" else None

    def rank_options(self, rank: int) -> dict[str, Any]:
        """For trainer rank ``rank``."""
        return {} if self._shares is None else self._options(rank, self._shares, self._shares.rank)

    def generator_options(self, index: int) -> dict[str, Any]:
        """For generator ``index``, with all its GPUs."""
        if self._shares is None:
            return {}
        card = self._num_cards - 1 - index % self._num_cards
        return self._options(card, self._shares, self._shares.generator)

    def _options(self, card: int, shares: GpuShares, share: float) -> dict[str, Any]:
        if shares.rank == 1.0:
            # Whole cards, any of which will do.
            return {"num_gpus": share}
        # Of parts Ray itself would fill the fullest card first: two engines on one, and a rank on none.
        return _in_bundle(_cards(self._num_cards), card, share)


def _cards(num_cards: int) -> PlacementGroup:
    """The group of this machine's GPUs, a bundle each; it belongs to the connection to Ray, and ends with it.

    Ranks and generators that are started again find it by its name.
    """
    try:
        return get_placement_group(_CARDS)
    except ValueError:
        here = {_NODE: ray.get_runtime_context().get_node_id()}
        bundles: list[dict[str, float]] = [{"GPU": 1} for _ in range(num_cards)]
        selector = [here for _ in bundles]
        return placement_group(bundles, strategy="PACK", name=_CARDS, bundle_label_selector=selector)


def _in_bundle(group: PlacementGroup, bundle: int, num_gpus: float) -> dict[str, Any]:
    strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=bundle)
    return {"scheduling_strategy": strategy, "num_gpus": num_gpus}


def wanted_bundles(config: Config, device: str) -> list[dict[str, float]]:
    """What each rank, then each generator needs of its node. Reward workers reserve nothing."""
    is_gpu = device == "cuda"
    rank: dict[str, float] = {"GPU": 1} if is_gpu else {"CPU": 1}
    generator: dict[str, float] = (
        {"GPU": config.generation.tensor_parallel_size, "CPU": 1} if is_gpu else {"CPU": 1}
    )
    if config.cluster.generator_resource is not None:
        generator[config.cluster.generator_resource] = 1
    ranks = [dict(rank) for _ in range(config.runtime.trainer_ranks)]
    return ranks + [dict(generator) for _ in range(config.generation.num_engines)]


async def reserve(config: Config, device: str) -> ClusterPlaces:
    """Reserve the places of ``config`` on the connected cluster, within ``runtime.startup_timeout_s``.

    Raises StageError, with what is wanted and what there is, where they cannot be had.
    """
    bundles = wanted_bundles(config, device)
    here = {_NODE: ray.get_runtime_context().get_node_id()}
    timeout_s = config.runtime.startup_timeout_s
    deadline = time.monotonic() + timeout_s
    free: Mapping[str, float] = {}
    while time.monotonic() < deadline:
        # Before this run itself holds any of it.
        free = ray.available_resources()
        groups: list[PlacementGroup] = []
        try:
            # By itself: packed with the others it could find the driver's node filled with generators.
            groups.append(placement_group(bundles[:1], strategy="PACK", bundle_label_selector=[here]))
            if await _is_reserved(groups[0], deadline):
                groups.append(placement_group(bundles[1:], strategy="PACK"))
                if await _is_reserved(groups[1], min(deadline, time.monotonic() + _PATIENCE_S)):
                    return ClusterPlaces(groups[0], groups[1], config, device)
        except BaseException:
            _remove(groups)
            raise
        # Two runs that hold a part of what the other waits for would wait for ever.
        _remove(groups)
        await asyncio.sleep(min(max(0.0, deadline - time.monotonic()), random.uniform(0.0, _LOOK_S)))
    raise StageError(_explain(bundles, config, timeout_s, free))


def _remove(groups: Sequence[PlacementGroup]) -> None:
    for group in groups:
        remove_placement_group(group)


async def _is_reserved(group: PlacementGroup, deadline: float) -> bool:
    """Wait for it until then, in parts: a thread that waits cannot be ended, and would hold up an exit."""
    while (left_s := deadline - time.monotonic()) > 0:
        if await asyncio.to_thread(group.wait, min(left_s, _LOOK_S)):
            return True
    return False


def _explain(
    bundles: list[dict[str, float]], config: Config, timeout_s: float, available: Mapping[str, float]
) -> str:
    wanted: Counter[str] = Counter()
    for bundle in bundles:
        wanted.update(bundle)
    return (
        f"the Ray cluster has no places for {config.runtime.trainer_ranks} trainer ranks "
        f"(runtime.trainer_ranks) and {config.generation.num_engines} generators of "
        f"{config.generation.tensor_parallel_size} GPUs (generation.num_engines, "
        f"generation.tensor_parallel_size): waited {timeout_s:g} s (runtime.startup_timeout_s) for "
        f"{_listed(wanted)}; free are {_listed({name: available.get(name, 0.0) for name in wanted})}; the "
        "first rank has to be on the driver's node"
    )


def _listed(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in sorted(resources.items()))


class ObjectStoreWeights:
    """Holds the newest update in the object store."""

    def __init__(self) -> None:
        self._update: WeightUpdate | None = None
        self._reference: Any = None
        self._lock = threading.Lock()

    def reference(self, update: WeightUpdate) -> Any:
        """The object with the Files of ``update``. Raises OSError where they cannot be read."""
        # All generators ask at once, each in a thread of its own.
        with self._lock:
            # Not its version alone: after going back to a checkpoint another update has the same one.
            if self._update != update:
                self._reference = ray.put(read_files(Path(update.path)))
                self._update = update
            return self._reference


def read_files(path: Path) -> Files:
    """What is at ``path``, a file or a folder of files."""
    if path.is_dir():
        return {file.name: np.fromfile(file, np.uint8) for file in path.iterdir()}
    return {"": np.fromfile(path, np.uint8)}


def write_files(files: Files, update: WeightUpdate, folder: Path) -> WeightUpdate:
    """Write ``files`` into ``folder``, an empty one, as the copy of ``update`` that is returned.

    Raises OSError where there is no room.
    """
    copy = replace(update, path=str(folder / Path(update.path).name))
    path = Path(copy.path)
    if set(files) != {""}:
        path.mkdir()
    for name, content in files.items():
        (path / name if name else path).write_bytes(content.data)
    return copy
