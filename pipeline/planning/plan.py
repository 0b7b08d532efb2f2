"""``train_accelerated --plan``: how many generators, trainer ranks and reward workers to take, and why.

    measured run ─► costs on n GPUs (pipeline.planning.scaling) ─► every split of n, by each stage's own time
                         ─► the best few, simulated (pipeline.planning.pipeline_model) ─► a table

The batch grows with the GPUs: a step has as many groups for each GPU as the configuration has for each device
of the measured run. Prints where its numbers come from, and how well the model tells the measured run itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from configs.errors import ConfigError, Problem
from configs.schema import Config
from pipeline.planning.measured_run import MeasuredRun, is_streamed, read_record, read_run
from pipeline.planning.pipeline_model import STAGES, PipelineShape, Prediction, StageCosts, own_times, predict
from pipeline.planning.scaling import Layout, ScalingAssumptions, assumptions, scaled

NUM_GPUS = (8, 64, 1024)
_NUM_SIMULATED = 3
_MAX_GROUPS = 64  # of a simulated step; a larger pipeline is simulated as one of its equal parts
_NUM_STEPS, _NUM_FILLING = 10, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to take of ``num_gpus`` GPUs, and what comes of it."""

    num_gpus: int
    layout: Layout
    shape: PipelineShape
    prediction: Prediction

    @property
    def completions_per_s(self) -> float:
        """Trained completions over predicted time."""
        return self.shape.groups_per_step * self.shape.num_generations / self.prediction.step_s


def run_plan(config: Config, folder: str | None, num_gpus: Sequence[str], assumed: Sequence[str]) -> int:
    """Print the plan; returns the exit status.

    ``folder`` is a run's, None for the recorded costs; ``num_gpus`` and ``assumed`` are the flags' texts.
    Raises ValueError where one of them is of no use.
    """
    known = assumptions(assumed)
    sizes = [_checked_size(text, config) for text in num_gpus] or list(NUM_GPUS)
    measured = read_run(Path(folder)) if folder is not None else read_record()
    print_plans(measured, [plan(measured, config, size, known) for size in sizes], config, known)
    return 0


def plan(run: MeasuredRun, config: Config, num_gpus: int, assumed: ScalingAssumptions) -> Plan:
    """The best split of ``num_gpus``, at least one GPU to train and one generator to write."""
    shape = _shape(run, config, num_gpus)
    micro_batch = config.training.per_device_train_batch_size
    candidates = sorted(
        (_with_workers(run, layout, shape, assumed, micro_batch) for layout in _layouts(config, num_gpus)),
        key=lambda layout: (_slowest_s(run, layout, shape, assumed, micro_batch), layout.num_ranks),
    )
    simulated = [
        (_simulate(*scaled(run, layout, shape, assumed, micro_batch)), layout)
        for layout in candidates[:_NUM_SIMULATED]
    ]
    prediction, layout = min(simulated, key=lambda pair: pair[0].step_s)
    return Plan(num_gpus=num_gpus, layout=layout, shape=shape, prediction=prediction)


def _shape(run: MeasuredRun, config: Config, num_gpus: int) -> PipelineShape:
    return PipelineShape(
        groups_per_step=max(1, round(config.prompts_per_step * num_gpus / run.num_devices)),
        num_generations=config.grpo.num_generations,
        max_staleness=config.acceleration.max_staleness,
        num_generating=1,
        num_reward_workers=1,
        is_streamed=is_streamed(config),
        is_update_beside=True,
    )


def _layouts(config: Config, num_gpus: int) -> list[Layout]:
    """Every split into trainer ranks and whole generators."""
    size = config.generation.tensor_parallel_size
    return [
        Layout(
            num_generators=(num_gpus - num_ranks) // size,
            tensor_parallel_size=size,
            num_ranks=num_ranks,
            num_reward_workers=1,
        )
        for num_ranks in range(1, num_gpus - size + 1)
        if (num_gpus - num_ranks) % size == 0
    ]


def _with_workers(
    run: MeasuredRun, layout: Layout, shape: PipelineShape, assumed: ScalingAssumptions, micro_batch: int
) -> Layout:
    """``layout`` with the workers that keep scoring from being what a step waits for, if there are cores."""
    own_s = own_times(*scaled(run, layout, shape, assumed, micro_batch))
    busiest_s = max(own_s["generation"], own_s["training"])
    wanted = math.ceil(assumed.reward_headroom * own_s["rewards"] / busiest_s)
    num_cores = int(assumed.cores_per_gpu * layout.num_gpus)
    return replace(layout, num_reward_workers=max(1, min(wanted, num_cores)))


def _slowest_s(
    run: MeasuredRun, layout: Layout, shape: PipelineShape, assumed: ScalingAssumptions, micro_batch: int
) -> float:
    own_s = own_times(*scaled(run, layout, shape, assumed, micro_batch))
    # Strictly on-policy nothing of two steps overlaps: a group is written, scored and trained on in turn.
    return max(own_s.values()) if shape.max_staleness else own_s["generation"] + own_s["training"]


def _simulate(costs: StageCosts, shape: PipelineShape) -> Prediction:
    """Simulate one of the equal parts that a large pipeline falls into."""
    num_places = min(shape.num_generating, shape.num_reward_workers)
    num_parts = max(1, min(shape.groups_per_step // _MAX_GROUPS, num_places))
    part = replace(
        shape,
        groups_per_step=math.ceil(shape.groups_per_step / num_parts),
        num_generating=max(1, round(shape.num_generating / num_parts)),
        num_reward_workers=max(1, round(shape.num_reward_workers / num_parts)),
    )
    ratio = shape.groups_per_step / part.groups_per_step
    costs = replace(costs, train_group_s=costs.train_group_s * ratio)
    further = part.max_staleness + 1
    return predict(costs, part, num_steps=_NUM_STEPS, num_filling=_NUM_FILLING, num_further=further)


def print_plans(run: MeasuredRun, plans: Sequence[Plan], config: Config, assumed: ScalingAssumptions) -> None:
    """Print the table, the origin of its numbers, and what is assumed."""
    console = Console(highlight=False, soft_wrap=True)
    costs = run.costs(assumed.spare_speed)
    own_s = own_times(costs, run.shape())
    console.print(f"Costs measured in {run.origin}, on {run.device}; {run.num_steps} steps:")
    console.print(
        f"  a step of {run.groups_per_step * run.num_generations} completions costs generation "
        f"{own_s['generation']:.2f} s, rewards {own_s['rewards']:.2f} s ({_count(run.num_reward_workers)} "
        f"of a core each), training {own_s['training']:.2f} s with {run.update_s:.2f} s of weight update"
    )
    predicted_s = predict(costs, run.shape()).step_s
    console.print(
        f"  the model says {predicted_s:.2f} s a step for that run, which took {run.step_s:.2f} s "
        f"({100 * (predicted_s / run.step_s - 1):+.0f} %)"
    )
    if run.is_shared:
        console.print("  its stages shared one device: their seconds contain waiting for each other")
    console.print(_table(plans))
    for one in plans:
        if one.prediction.bottleneck == "rewards":
            console.print(
                f"warning: {one.num_gpus} GPUs: scoring is the slowest stage, since cores_per_gpu gives "
                f"{one.layout.num_reward_workers} cores; take reward workers on further nodes"
            )
    console.print("Assumptions, not measurements (change one with --assume NAME=VALUE):")
    for name, value, meaning in _stated(assumed):
        console.print(f"  {name}={value:g}: {meaning}")
    console.print(
        f"  the batch grows with the GPUs ({config.prompts_per_step} groups of "
        f"{config.grpo.num_generations} for every {_devices(run.num_devices)}): the learning rate is yours"
    )
    if not run.is_gpu and assumed.gpu_speed == 1.0:
        console.print(
            "warning: the costs are of a CPU, and gpu_speed=1 takes a GPU to be as fast: the table shows how "
            "the stages relate, not how fast GPUs are; measure a run on one, or set gpu_speed"
        )
    if not run.weights_bytes:
        console.print("warning: the run kept no checkpoint: the traffic of weights counts as nothing")


def _table(plans: Sequence[Plan]) -> Table:
    """A column a number of GPUs."""
    table = Table()
    table.add_column("GPUs")
    for one in plans:
        table.add_column(f"{one.num_gpus:,}", justify="right")
    rows = {
        "groups a step": [f"{one.shape.groups_per_step:,}" for one in plans],
        "generators": [_generators(one.layout) for one in plans],
        "trainer ranks (a GPU each)": [f"{one.layout.num_ranks:,}" for one in plans],
        "reward workers (a core each)": [f"{one.layout.num_reward_workers:,}" for one in plans],
        "step, predicted": [f"{one.prediction.step_s:.2f} s" for one in plans],
        "completions/s": [f"{one.completions_per_s:,.1f}" for one in plans],
        "slowest stage": [one.prediction.bottleneck for one in plans],
        "its own time of a step": [f"{max(one.prediction.own_s.values()):.2f} s" for one in plans],
    }
    for stage in STAGES:
        rows[f"{stage} busy"] = [f"{100 * one.prediction.utilisation[stage]:.0f} %" for one in plans]
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _generators(layout: Layout) -> str:
    size = layout.tensor_parallel_size
    return f"{layout.num_generators:,}" + (f" of {size} GPUs" if size > 1 else "")


def _stated(assumed: ScalingAssumptions) -> list[tuple[str, float, str]]:
    return [(one.name, float(getattr(assumed, one.name)), one.metadata["meaning"]) for one in fields(assumed)]


def _checked_size(text: str, config: Config) -> int:
    least = config.generation.tensor_parallel_size + 1
    if not text.isascii() or not text.isdigit() or int(text) < least:
        allowed = f"a whole number from {least} on: one GPU to train, the others to generate"
        fault = f"{text} is not allowed"
        raise ConfigError([Problem(where="command line", field="--gpus", fault=fault, allowed=allowed)])
    return int(text)


def _count(num_workers: int) -> str:
    return f"{num_workers} worker" + ("s" if num_workers > 1 else "")


def _devices(num_devices: int) -> str:
    return "device" if num_devices == 1 else f"{num_devices} devices"
