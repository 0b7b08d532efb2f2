"""Places on a Ray cluster: which node each trainer rank and each generator gets, reserved before any starts.

One placement group holds a bundle for each rank and each generator, so a run gets all of its places or none.
The first rank is on the driver's node, where checkpoints and published weights are written; all else may be
anywhere. A generator that is split over GPUs is one bundle, hence on one node. When a node dies Ray finds
its bundles places elsewhere, if there are any. Starts no stage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from configs.schema import Config
from pipeline.cluster.courier import Courier
from pipeline.errors import StageError

# Ray gives every node this label.
_NODE = "ray.io/node-id"


class ClusterPlaces:
    """The reserved places of one run, as options for Ray's actors; ``courier`` takes weights to them."""

    def __init__(self, group: PlacementGroup, config: Config, device: str) -> None:
        self._group = group
        self._num_ranks = config.runtime.trainer_ranks
        self._is_gpu = device == "cuda"
        self._generator_gpus = config.generation.tensor_parallel_size
        self.courier = Courier()

    def rank_options(self, rank: int) -> dict[str, Any]:
        """For trainer rank ``rank``, which has a GPU to itself."""
        return self._options(rank, 1)

    def generator_options(self, index: int) -> dict[str, Any]:
        """For generator ``index``, with all its GPUs."""
        return self._options(self._num_ranks + index, self._generator_gpus)

    def release(self) -> None:
        """Give the places back; whatever still runs in them is ended."""
        remove_placement_group(self._group)

    def _options(self, bundle: int, num_gpus: int) -> dict[str, Any]:
        strategy = PlacementGroupSchedulingStrategy(
            placement_group=self._group, placement_group_bundle_index=bundle
        )
        return {"scheduling_strategy": strategy, "num_gpus": num_gpus if self._is_gpu else 0}


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
    first_rank = {_NODE: ray.get_runtime_context().get_node_id()}
    anywhere: list[dict[str, str]] = [{} for _ in bundles[1:]]
    group = placement_group(bundles, strategy="PACK", bundle_label_selector=[first_rank, *anywhere])
    timeout_s = config.runtime.startup_timeout_s
    if not await asyncio.to_thread(group.wait, timeout_s):
        remove_placement_group(group)
        raise StageError(_explain(bundles, config, timeout_s))
    return ClusterPlaces(group, config, device)


def _explain(bundles: list[dict[str, float]], config: Config, timeout_s: float) -> str:
    available = ray.available_resources()
    wanted: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            wanted[name] = wanted.get(name, 0.0) + amount
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
