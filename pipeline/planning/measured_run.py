"""What a run that is over took of each stage, and what limited it: read from its folder, all of it measured.

Where stages shared cores or a GPU, each one's seconds contain its waiting for the others. Predicts nothing.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.finished import load_finished
from configs.schema import Config
from pipeline.host.files import no_folder, read_object
from pipeline.host.shares import is_shared
from pipeline.record.ledger_tables import reading
from pipeline.record.metrics import read_metrics
from pipeline.record.run_folder import BASELINE_MARK

# The first steps wait for the first compilations and an empty pipeline.
_NUM_SKIPPED = 1
# No stage that is busy for less of a step can be what limits it.
_LIMITING_SHARE = 0.6
# Metrics that a run may log of work that gained nothing, and the words for them.
_WASTE = {
    "train/padding_share": "of the tokens in the trainer's rows were padding",
    "train/skipped_share": "of the samples had nothing to learn from and were left out of the forward",
    "rollout/zero_signal_share": "of the groups had no signal (in a warm start: no answer that passed)",
    "rollout/truncated_share": "of the answers hit generation.max_completion_length",
    "rollout/infra_error_share": "of the rollouts could not be scored",
    "rewards/cache_hit_rate": "of the verdicts came from the cache",
}
# Of a GPU, and what is said of their mean.
_CARD = {
    "train/gpu_memory_gb": "the trainer held up to {:.1f} GB of its GPU in a step",
    "train/mfu": "the trainer's steps are {:.3f} of its GPU's bf16 peak (MFU)",
    "generation/asleep_s": "the engine slept {:.2f} s a step",
    "generation/sleep_wake_s": "to fall asleep and to wake took {:.2f} s a step",
}
# What to look at where that stage is the limit.
SETTINGS = {
    "generation": ("generation.num_engines", "generation.max_num_seqs", "generation.max_completion_length"),
    "rewards": ("acceleration.async_rewards.workers", "execution.timeout"),
    "training": ("runtime.trainer_ranks", "acceleration.token_packing", "training.gradient_checkpointing"),
    "weight updates": ("training.gradient_accumulation_steps",),
    "none": ("acceleration.max_staleness", "acceleration.stream_steps"),
}

Rows = Sequence[Mapping[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run in numbers: means of the ``num_steps`` steps that tell what stages cost.

    ``rewards_s`` are seconds of all ``num_reward_workers`` together, the other stages' those in which they
    were at work. ``num_devices`` are the GPUs of the run, 1 on a CPU and where its stages shared one.
    """

    origin: str
    device: str
    is_gpu: bool
    num_devices: int
    num_generator_gpus: int
    num_ranks: int
    num_reward_workers: int
    num_completions: int
    max_staleness: int
    generation_s: float
    rewards_s: float
    training_s: float
    update_s: float
    pause_s: float
    step_s: float
    num_steps: int

    @property
    def is_shared(self) -> bool:
        """Whether the stages were on one device, or on the cores of one machine."""
        return self.num_devices < self.num_ranks + self.num_generator_gpus

    @property
    def longest_s(self) -> float:
        """Seconds of the longest answer: on-policy all answers of a step begin together, and end with it."""
        return self.generation_s

    @property
    def own_s(self) -> dict[str, float]:
        """Seconds of a step that each stage takes by itself; a generator stands still for a pause."""
        return {
            "generation": self.generation_s + self.pause_s,
            "training": self.training_s,
            "rewards": self.rewards_s / self.num_reward_workers,
        }


def read_run(folder: Path, *, last: int | None = None) -> MeasuredRun:
    """The run in ``folder``, or its ``last`` steps of those that tell what stages cost.

    Raises ValueError where it holds none, one of the baseline, or one with too few steps.
    """
    file = folder / "config.yaml"
    if not file.is_file():
        what = "holds no config.yaml" if folder.is_dir() else no_folder(folder)
        raise ValueError(f"{folder} {what}; allowed: the folder of an earlier run")
    if (folder / BASELINE_MARK).exists():
        raise ValueError(f"{folder} is a run of train_code_grpo, whose stages take turns: nothing to compare")
    config, rows = load_finished(file), _steady_rows(folder)
    rows = rows if last is None else rows[-last:]
    hardware = _hardware_of(folder)
    is_gpu = hardware.get("device", config.runtime.device) == "cuda"
    num_devices = _num_gpus_used(config, hardware.get("num_gpus")) if is_gpu else 1
    # Several that shared a device were as fast as one.
    num_generator_gpus = config.generation.num_engines * config.generation.tensor_parallel_size
    num_generator_gpus = min(num_generator_gpus, num_devices)
    num_ranks = min(config.runtime.trainer_ranks, num_devices)
    return MeasuredRun(
        origin=f"run {folder}",
        device=str(hardware.get("cpu") or config.runtime.device),
        is_gpu=is_gpu,
        num_devices=num_devices,
        num_generator_gpus=num_generator_gpus,
        num_ranks=num_ranks,
        num_reward_workers=config.acceleration.async_rewards.workers,
        num_completions=config.completions_per_step,
        max_staleness=config.acceleration.max_staleness,
        generation_s=_mean(rows, "generation/seconds") or 0.0,
        rewards_s=_mean(rows, "rewards/seconds") or 0.0,
        training_s=_mean(rows, "train/seconds") or 0.0,
        update_s=_mean(rows, "weights/update_s") or 0.0,
        pause_s=_mean(rows, "weights/pause_s") or 0.0,
        step_s=_mean(rows, "step/seconds") or 0.0,
        num_steps=len(rows),
    )


def _num_gpus_used(config: Config, num_there: object) -> int:
    """The GPUs that a run was on. Earlier ones do not say ``num_there``: one there, where one is enough."""
    num_generator_gpus = config.generation.num_engines * config.generation.tensor_parallel_size
    num_ranks = config.runtime.trainer_ranks
    most = num_generator_gpus + num_ranks
    num_gpus = 1 if most == 2 else most
    if isinstance(num_there, int) and num_there > 0:
        num_gpus = num_there
    if not is_shared(config, "cuda", num_gpus):
        return most
    return min(num_gpus, max(num_ranks, num_generator_gpus))


def _hardware_of(folder: Path) -> Mapping[str, object]:
    """The "device", the "cpu" and the "num_gpus" of the run, as far as they are known."""
    summary, ledger = folder / "summary.json", folder / "run.db"
    if summary.is_file():
        hardware = read_object(summary).get("hardware", {})
        if not isinstance(hardware, dict):
            raise ValueError(f"{summary}: field 'hardware': value {hardware!r}: must be an object")
        return hardware
    if not ledger.is_file():
        return {}
    # A run that did not end has no summary, but noted at its start what "auto" came to.
    query = "SELECT text FROM events WHERE kind = 'hardware' ORDER BY event_id DESC LIMIT 1"
    with reading(ledger) as database:
        (said,) = database.execute(query).fetchone() or ("",)
    # Earlier versions did not say how many GPUs.
    found = re.fullmatch(r"(\w+), (.*), \S+ cores(?:, (\d+) GPUs)?", said)
    if found is None:
        return {}
    device, cpu, num_there = found.groups()
    return {"device": device, "cpu": cpu, "num_gpus": None if num_there is None else int(num_there)}


def _steady_rows(folder: Path) -> Rows:
    """Metrics of the steps that tell what stages cost: not the first, nor those after the last generation.

    Where stages work in turn, a step that generates is a block with those behind it; whole blocks count.
    Raises ValueError where there are none.
    """
    metrics = folder / "metrics.jsonl"
    rows = read_metrics(metrics) if metrics.is_file() else []
    # With output.logging_steps there are lines of an evaluation alone between those of steps.
    rows = [row for row in rows if "step/seconds" in row]
    # The last steps train what earlier ones generated: nothing shares their device any more.
    counted = ("train/seconds", "generation/tokens", "generation/seconds")
    writing = [number for number, row in enumerate(rows) if all(row.get(name) for name in counted)]
    writing = writing[_NUM_SKIPPED:]
    if not writing:
        raise ValueError(
            f"{metrics}: has no step after the first that generated as well as trained (the last steps train "
            "what was written before); let a run train more steps"
        )
    first, last = writing[0], writing[-1]
    # The last block may not be whole.
    is_in_turn = len(writing) > 1 and len(writing) < last - first + 1
    return rows[first : last if is_in_turn else last + 1]


def _mean(rows: Rows, name: str) -> float | None:
    """The mean over the steps that logged ``name``; None where none did."""
    values = [value for row in rows if (value := row.get(name)) is not None]
    return statistics.fmean(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """What limited one run.

    ``limited_by`` is a stage, or "none" where each waited for the others in turn; ``settings`` bear on that.
    ``busy_s`` and ``idle_share`` of each stage are those of a mean step. ``waited_s`` is how long the trainer
    waited for rollouts in it, None where no step says so. ``wasted`` has the measured share of each text,
    ``card`` the value for each text of what was measured on a GPU.
    """

    run: MeasuredRun
    limited_by: str
    settings: tuple[str, ...]
    busy_s: Mapping[str, float]
    idle_share: Mapping[str, float]
    waited_s: float | None
    wasted: Mapping[str, float]
    card: Mapping[str, float]


def find_bottleneck(folder: Path) -> Bottleneck:
    """Read the run in ``folder``.

    Raises ValueError, naming the file, for a folder without a run, for one of the baseline (whose stages take
    turns in one process), and for one with too few steps to say anything.
    """
    run, rows = read_run(folder), _steady_rows(folder)
    busy_s = {
        "generation": run.generation_s,
        # Of the pool: a share of all its workers.
        "rewards": run.rewards_s / run.num_reward_workers,
        "training": run.training_s,
        "weight updates": run.update_s,
    }
    busiest = max(busy_s, key=lambda stage: busy_s[stage])
    limit = busiest if busy_s[busiest] >= _LIMITING_SHARE * run.step_s else "none"
    return Bottleneck(
        run=run,
        limited_by=limit,
        settings=SETTINGS[limit],
        busy_s=busy_s,
        idle_share={stage: max(0.0, 1.0 - seconds / run.step_s) for stage, seconds in busy_s.items()},
        waited_s=_mean(rows, "rollout/wait_s"),
        card={text: value for name, text in _CARD.items() if (value := _mean(rows, name)) is not None},
        wasted={text: share for name, text in _WASTE.items() if (share := _mean(rows, name)) is not None},
    )


def as_text(found: Bottleneck) -> str:
    """The report for people."""
    run, limit = found.run, found.limited_by
    lines = [
        f"{run.origin}: {run.num_steps} steps of {run.step_s:.2f} s (mean; after the first, that generated)",
        "",
        f"limited by: {'no single stage: each waited for the others in turn' if limit == 'none' else limit}",
        f"settings that bear on it: {', '.join(found.settings)}",
        "",
        f"  {'stage':<16}{'busy a step':>12}{'idle':>8}",
    ]
    for stage, seconds in found.busy_s.items():
        lines.append(f"  {stage:<16}{seconds:>10.2f} s{100 * found.idle_share[stage]:>6.0f} %")
    if found.waited_s is not None:
        lines.append(f"  the trainer waited {found.waited_s:.2f} s a step for rollouts")
    if run.is_shared:
        lines.append("  the stages shared one device: their seconds contain waiting for each other")
    lines += [f"  {text.format(value)}" for text, value in found.card.items()]
    return "\n".join([*lines, "", *(f"{100 * share:.1f} % {text}" for text, share in found.wasted.items())])
