"""What limited a run that is over: how busy each stage was, and what was computed for nothing.

All of it is measured: read from the run's metrics. Predicts nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.planning.measured_run import MeasuredRun, mean, read_run, steady_rows
from pipeline.record.run_folder import BASELINE_MARK

# No stage that is busy for less of a step can be what limits it.
_LIMITING_SHARE = 0.6
# Metrics that a run may log of work that gained nothing, and the words for them.
_WASTE = {
    "train/padding_share": "of the tokens in the trainer's rows were padding",
    "train/skipped_share": "of the samples had no signal and were left out of the forward",
    "rollout/zero_signal_share": "of the groups had rewards that are all equal",
    "rollout/truncated_share": "of the completions hit generation.max_completion_length",
    "rollout/infra_error_share": "of the rollouts could not be scored",
    "rewards/cache_hit_rate": "of the verdicts came from the cache",
}
# What to look at where that stage is the limit.
SETTINGS = {
    "generation": ("generation.num_engines", "generation.max_num_seqs", "generation.max_completion_length"),
    "rewards": ("acceleration.async_rewards.workers", "execution.timeout"),
    "training": ("runtime.trainer_ranks", "acceleration.token_packing", "training.gradient_checkpointing"),
    "weight updates": ("training.gradient_accumulation_steps",),
    "none": ("acceleration.max_staleness", "acceleration.stream_steps"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The report on one run, see the module.

    ``limited_by`` is a stage, or "none" where each waited for the others in turn; ``settings`` bear on that.
    ``busy_s`` and ``idle_share`` of each stage are those of a mean step. ``waited_s`` is how long the trainer
    waited for rollouts in it, None where no step says so. ``wasted`` has the measured share of each text.
    """

    run: MeasuredRun
    limited_by: str
    settings: tuple[str, ...]
    busy_s: Mapping[str, float]
    idle_share: Mapping[str, float]
    waited_s: float | None
    wasted: Mapping[str, float]


def find_bottleneck(folder: Path) -> Bottleneck:
    """Read the run in ``folder``.

    Raises ValueError, naming the file, for a folder without a run, for one of the baseline (whose stages take
    turns in one process), and for one with too few steps to say anything.
    """
    if (folder / BASELINE_MARK).exists():
        raise ValueError(f"{folder} is a run of train_code_grpo, whose stages take turns: nothing to compare")
    run, rows = read_run(folder), steady_rows(folder)
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
        waited_s=mean(rows, "rollout/wait_s"),
        wasted={text: share for name, text in _WASTE.items() if (share := mean(rows, name)) is not None},
    )


def as_text(found: Bottleneck) -> str:
    """The report for people."""
    run, limit = found.run, found.limited_by
    lines = [
        f"{run.origin}: {run.num_steps} steps of {run.step_s:.2f} s (mean; without the first)",
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
    return "\n".join([*lines, "", *(f"{100 * share:.1f} % {text}" for text, share in found.wasted.items())])
