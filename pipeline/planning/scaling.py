"""From what a run measured to what it would cost on other numbers of GPUs, and what is assumed for it.

Nothing of this was measured on a cluster: ScalingAssumptions are assumptions with plain defaults, and whoever
knows better sets them (``--assume NAME=VALUE``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from configs.errors import ConfigError, Problem
from pipeline.planning.measured_run import MeasuredRun
from pipeline.planning.pipeline_model import PipelineShape, StageCosts


def _assumed(default: float, meaning: str) -> float:
    value: float = field(default=default, metadata={"meaning": meaning})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingAssumptions:
    """What the plan takes for granted; ``meaning`` of each field is printed with it."""

    gpu_speed: float = _assumed(1.0, "speed of one GPU against the device measured (generation, training)")
    core_speed: float = _assumed(1.0, "speed of one core against those that scored")
    cores_per_gpu: float = _assumed(12.0, "cores beside each GPU that may score")
    gpus_per_node: float = _assumed(8.0, "GPUs of one node")
    tensor_parallel_efficiency: float = _assumed(
        0.8, "speed-up of a generator split over n GPUs, as a share of n"
    )
    node_gb_per_s: float = _assumed(150.0, "GB/s between two GPUs of a node")
    spare_speed: float = _assumed(
        0.5, "a completion is (places / taken)^spare_speed as fast where an engine is not full"
    )
    network_gb_per_s: float = _assumed(25.0, "GB/s between two nodes")
    fsdp_passes: float = _assumed(3.0, "times that the weights cross the ranks in a micro-batch (FSDP2)")
    fsdp_hidden: float = _assumed(0.5, "share of that traffic hidden behind computing")
    reward_headroom: float = _assumed(1.25, "reward workers for so many times what the step needs")

    def __post_init__(self) -> None:
        problems = [
            _problem(f"{one.name}={value:g}", "is out of range", allowed)
            for one in fields(self)
            if not _is_fine(one.name, value := float(getattr(self, one.name)))
            for allowed in [_allowed(one.name)]
        ]
        if problems:
            raise ConfigError(problems)


_SHARES = ("tensor_parallel_efficiency", "fsdp_hidden", "spare_speed")


def _is_fine(name: str, value: float) -> bool:
    if name in ("fsdp_hidden", "spare_speed"):
        return 0.0 <= value <= 1.0
    return 0.0 < value <= 1.0 if name in _SHARES else 0.0 < value < math.inf


def _allowed(name: str) -> str:
    return "a share, up to 1" if name in _SHARES else "a number above 0"


def _problem(value: str, fault: str, allowed: str) -> Problem:
    return Problem(where="command line", field="--assume", fault=f"{value} {fault}", allowed=allowed)


def assumptions(given: Sequence[str]) -> ScalingAssumptions:
    """The defaults with ``given`` texts NAME=VALUE laid over. Raises ConfigError for each that is no such."""
    names = [one.name for one in fields(ScalingAssumptions)]
    values: dict[str, float] = {}
    problems = []
    for text in given:
        name, _, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if name not in names:
            problems.append(_problem(text, "is no assumption", f"one of {', '.join(names)}"))
            continue
        try:
            values[name] = float(value)
        except ValueError:
            problems.append(_problem(text, "has no number", f"{name}=NUMBER"))
    if problems:
        raise ConfigError(problems)
    return replace(ScalingAssumptions(), **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Generators of ``tensor_parallel_size`` GPUs each, trainer ranks of one, reward workers of a core."""

    num_generators: int
    tensor_parallel_size: int
    num_ranks: int
    num_reward_workers: int

    @property
    def num_gpus(self) -> int:
        """GPUs in use."""
        return self.num_generators * self.tensor_parallel_size + self.num_ranks


def scaled(
    run: MeasuredRun, layout: Layout, shape: PipelineShape, assumed: ScalingAssumptions, micro_batch: int
) -> tuple[StageCosts, PipelineShape]:
    """Costs and shape of ``layout`` for steps as in ``shape``; ``micro_batch`` is completions a forward.

    Generators: their number times as many completions at once, each token faster by ``gpu_speed`` and what
    splitting a generator gives. Training: divided by the ranks, which cannot be more than completions, plus
    the traffic of FSDP2 that is not hidden. Weights: the update measured, plus one hop of the network for
    each doubling of the nodes that take them.
    """
    size = layout.tensor_parallel_size
    speed_up = assumed.gpu_speed * (size * assumed.tensor_parallel_efficiency if size > 1 else 1.0)
    num_completions = shape.groups_per_step * shape.num_generations
    num_ranks = min(layout.num_ranks, num_completions)
    # A step ends with its fullest rank.
    share = math.ceil(num_completions / num_ranks) / num_completions
    compute_s = run.train_s * num_completions * share / assumed.gpu_speed
    num_micro_batches = max(1, math.ceil(num_completions / (num_ranks * micro_batch)))
    train_s = compute_s + num_micro_batches * _exchange_s(run.weights_bytes, num_ranks, assumed)
    costs = StageCosts(
        completion_s=tuple(run.token_s * length / speed_up for length in run.lengths),
        reward_s=(run.reward_s / assumed.core_speed,),
        train_group_s=train_s / shape.groups_per_step,
        update_s=run.update_s + _broadcast_s(run.weights_bytes, layout, assumed),
        pause_s=min(run.pause_s, run.update_s),
        spare_speed=assumed.spare_speed,
    )
    places_per_generator = run.num_generating / run.num_engines
    num_generating = max(1, round(places_per_generator * layout.num_generators))
    return costs, replace(shape, num_generating=num_generating, num_reward_workers=layout.num_reward_workers)


def _exchange_s(num_bytes: int, num_ranks: int, assumed: ScalingAssumptions) -> float:
    """Seconds that a micro-batch waits for the weights and gradients of other ranks."""
    is_one_node = num_ranks <= assumed.gpus_per_node
    bytes_per_s = 1e9 * (assumed.node_gb_per_s if is_one_node else assumed.network_gb_per_s)
    traffic = assumed.fsdp_passes * num_bytes * (num_ranks - 1) / num_ranks
    return (1.0 - assumed.fsdp_hidden) * traffic / bytes_per_s


def _broadcast_s(num_bytes: int, layout: Layout, assumed: ScalingAssumptions) -> float:
    num_nodes = math.ceil(layout.num_generators * layout.tensor_parallel_size / assumed.gpus_per_node)
    if layout.num_gpus <= assumed.gpus_per_node:
        return 0.0
    return math.ceil(math.log2(num_nodes + 1)) * num_bytes / (1e9 * assumed.network_gb_per_s)
