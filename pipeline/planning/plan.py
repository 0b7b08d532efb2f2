"""``train_accelerated --plan RUN_DIR``: how many generators, trainer ranks and reward workers to take.

In closed form, from what that run measured: n GPUs do n times the work of one, and the batch grows with them.
With staleness a step takes as long as its slowest stage by itself; on-policy the same share as in the run of
all stages in turn, and its longest answer no GPU shortens: within a tenth of what benchmarks.async_overlap
measured. Knows no traffic between GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from configs.errors import ConfigError, Problem, wrong_value
from configs.schema import Config
from pipeline.planning.measured_run import MeasuredRun, read_run

NUM_GPUS = (8, 64, 1024)
# Reward workers for so many times what the step needs: scores come in bursts, when groups end.
_REWARD_HEADROOM = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A split of ``num_gpus`` GPUs, and what a step takes with it: of each stage by itself, and in all."""

    num_gpus: int
    num_generators: int
    num_ranks: int
    num_reward_workers: int
    groups_per_step: int
    num_completions: int
    own_s: Mapping[str, float]
    step_s: float

    @property
    def slowest(self) -> str:
        """The stage whose own time is longest."""
        return max(self.own_s, key=lambda stage: self.own_s[stage])

    @property
    def completions_per_s(self) -> float:
        """Trained completions over time."""
        return self.num_completions / self.step_s


def run_plan(config: Config, folder: str, num_gpus: Sequence[str]) -> int:
    """Print plans from the run in ``folder``, for ``num_gpus`` as typed; returns the exit status.

    Raises ValueError where one of them is of no use.
    """
    least = config.generation.tensor_parallel_size + 1
    sizes = [_checked_size(text, config) for text in num_gpus] or sorted(
        {max(size, least) for size in NUM_GPUS}
    )
    run = read_run(Path(folder))
    print_plans(run, [plan(run, config, size) for size in sizes], config)
    return 0


def plan(run: MeasuredRun, config: Config, num_gpus: int) -> Plan:
    """The fastest split of ``num_gpus``: whole generators, and at least one GPU to train."""
    return min(plans(run, config, num_gpus), key=lambda one: (one.step_s, one.num_ranks))


def plans(run: MeasuredRun, config: Config, num_gpus: int) -> Iterator[Plan]:
    """Every split of ``num_gpus``, with reward workers for it."""
    size = config.generation.tensor_parallel_size
    groups = max(1, round(config.prompts_per_step * num_gpus / run.num_devices))
    number = groups * config.grpo.num_generations
    scale = number / run.num_completions
    writing_s, scoring_s = scale * run.generation_s, scale * run.rewards_s
    share = _share(run, config.acceleration.max_staleness)
    for num_generators in range(1, (num_gpus - 1) // size + 1):
        num_ranks = num_gpus - size * num_generators
        # What a configuration with these settings refuses more of: see configs.schema, pipeline.host.device.
        num_ranks = 1 if _trains_alone(config) else num_ranks
        # A step ends with its fullest rank.
        fullest = math.ceil(number / min(num_ranks, number))
        own_s = {
            "generation": writing_s * run.num_generator_gpus / (size * num_generators) + run.pause_s,
            "training": run.training_s * run.num_ranks * fullest / run.num_completions,
        }
        num_workers = max(1, math.ceil(_REWARD_HEADROOM * scoring_s / max(own_s.values())))
        own_s["rewards"] = scoring_s / num_workers
        yield Plan(
            num_gpus=num_gpus,
            num_generators=num_generators,
            num_ranks=num_ranks,
            num_reward_workers=num_workers,
            groups_per_step=groups,
            num_completions=number,
            own_s=own_s,
            step_s=step_time(own_s, share, run.longest_s),
        )


def _trains_alone(config: Config) -> bool:
    is_eight_bit = config.training.optim == "adamw_8bit"
    return config.lora.load_in_4bit or config.model.loader == "unsloth" or is_eight_bit


def step_time(own_s: Mapping[str, float], share: float, longest_s: float) -> float:
    """The slowest stage by itself; on-policy ``share`` of all stages in turn, where that is more.

    ``share`` is 0 with staleness. Without it nothing is faster than training after the longest answer, which
    takes ``longest_s``.
    """
    slowest_s = max(own_s.values())
    if share == 0.0:
        return slowest_s
    return max(slowest_s, share * in_turn(own_s, longest_s), longest_s + own_s["training"])


def in_turn(own_s: Mapping[str, float], longest_s: float) -> float:
    """All stages after each other, and the longest answer once more: it ends when other places are empty."""
    return sum(own_s.values()) + longest_s


def _share(run: MeasuredRun, max_staleness: int) -> float:
    if max_staleness > 0:
        return 0.0
    # How far stages overlap on-policy only a run on-policy tells.
    if run.max_staleness > 0:
        allowed = f"{run.max_staleness}, as in {run.origin}; or the folder of a run with 0"
        raise ConfigError([wrong_value("acceleration.max_staleness", 0, allowed)])
    return run.step_s / in_turn(run.own_s, run.longest_s)


def print_plans(run: MeasuredRun, found: Sequence[Plan], config: Config) -> None:
    """Print the table, the origin of its numbers, and what is taken for granted."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    own = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in run.own_s.items())
    closed_s = step_time(run.own_s, _share(run, run.max_staleness), run.longest_s)
    console.print(
        f"Measured in {run.origin}, on {run.device}; {run.num_steps} steps:\n"
        f"  a step of {run.num_completions} completions took {run.step_s:.2f} s; by themselves {own}\n"
        f"  in closed form such a step takes {closed_s:.2f} s ({100 * (closed_s / run.step_s - 1):+.0f} %)"
    )
    console.print(_table(found, config.generation.tensor_parallel_size))
    devices = "device" if run.num_devices == 1 else f"{run.num_devices} devices"
    console.print(
        "Taken for granted, not measured: n GPUs do n times the work of one, and traffic between them takes "
        "no time, so real steps are longer;\n"
        f"  the batch grows with the GPUs ({config.prompts_per_step} groups of {config.grpo.num_generations} "
        f"for every {devices}): the learning rate is yours"
    )
    if run.is_shared:
        console.print("warning: its stages shared one device: their seconds contain waiting for each other")
    if not run.is_gpu:
        console.print(
            "warning: measured on a CPU: the table shows how the stages relate, not how fast GPUs are; "
            "give a run on a GPU"
        )


def _table(found: Sequence[Plan], tensor_parallel_size: int) -> Table:
    """A column a number of GPUs."""
    table = Table()
    table.add_column("GPUs")
    for one in found:
        table.add_column(f"{one.num_gpus:,}", justify="right")
    split = f" ({tensor_parallel_size} GPUs each)" if tensor_parallel_size > 1 else ""
    table.add_row("groups a step", *(f"{one.groups_per_step:,}" for one in found))
    table.add_row(f"generators{split}", *(f"{one.num_generators:,}" for one in found))
    table.add_row("trainer ranks (a GPU each)", *(f"{one.num_ranks:,}" for one in found))
    table.add_row("reward workers (a core each)", *(f"{one.num_reward_workers:,}" for one in found))
    table.add_row("step", *(f"{one.step_s:.2f} s" for one in found))
    table.add_row("completions/s", *(f"{one.completions_per_s:,.1f}" for one in found))
    table.add_row("slowest stage", *(one.slowest for one in found))
    for stage in found[0].own_s:
        table.add_row(f"{stage} busy", *(f"{100 * one.own_s[stage] / one.step_s:.0f} %" for one in found))
    return table


def _checked_size(text: str, config: Config) -> int:
    least = config.generation.tensor_parallel_size + 1
    if not text.isascii() or not text.isdigit() or int(text) < least:
        allowed = f"a whole number from {least} on: one GPU to train, the others to generate"
        fault = f"{text} is not allowed"
        raise ConfigError([Problem(where="command line", field="--gpus", fault=fault, allowed=allowed)])
    return int(text)
