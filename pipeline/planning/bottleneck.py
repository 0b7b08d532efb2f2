"""What limited a run that is over: how busy each stage was, what was computed for nothing, what to change.

All but the gains is measured: read from the run's metrics. The gains are predictions: the run's own stage
costs, with one setting changed, through pipeline.planning.pipeline_model. Changes nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Config
from pipeline.planning.measured_run import MeasuredRun, config_of, read_run, steady_rows
from pipeline.planning.pipeline_model import predict
from pipeline.planning.scaling import ScalingAssumptions
from pipeline.planning.whatif import Change, changes
from pipeline.record.run_folder import BASELINE_MARK

# Gains below this are within the noise of any measurement.
_LEAST_GAIN = 0.01
_NUM_SHOWN = 3
# No stage that is busy for less of a step can be what limits it.
_LIMITING_SHARE = 0.6
_NUM_STEPS, _NUM_FILLING = 12, 3
# Metrics that a run may log of work that gained nothing, and the words for them.
_WASTE = {
    "train/padding_share": "of the tokens in the trainer's rows were padding",
    "train/skipped_share": "of the samples had no signal and were left out of the forward",
    "rollout/zero_signal_share": "of the groups had rewards that are all equal",
    "rollout/truncated_share": "of the completions hit generation.max_completion_length",
    "rollout/infra_error_share": "of the rollouts could not be scored",
    "rewards/cache_hit_rate": "of the verdicts came from the cache",
}
_NO_SYNCS_ON_CPU = "none: a CPU is no device that a host could wait for"
_SYNCS_UNKNOWN = (
    "not recorded by runs; tests/pipeline/training/test_step_waits_for_nothing.py holds the step to one "
    "wait at its end, and python -m benchmarks.train_step --profile shows a step's on this machine"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShare:
    """Seconds that a stage was busy in a mean step, and the share of the step in which it was idle."""

    stage: str
    busy_s: float
    idle_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change of a setting; ``gain`` is the share of the step that it saves by the model.

    ``step_s`` is the measured step less that; where steps are larger with the change, of as many samples as
    before.
    """

    change: Change
    step_s: float
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The report on one run, see the module.

    ``limited_by`` is a stage, or "none" where each waited for the others in turn. ``predicted_s`` is what the
    model says of the run as it was, to be held against ``step_s``, which was measured. ``waited_s`` is how
    long the trainer waited for rollouts in a mean step, None where no step says so. ``wasted`` has the
    measured share of each text; ``advice`` at most three changes, the largest gain first.
    """

    run: str
    num_steps: int
    step_s: float
    predicted_s: float
    limited_by: str
    stages: tuple[StageShare, ...]
    waited_s: float | None
    wasted: Mapping[str, float]
    host_device_syncs: str
    is_shared: bool
    advice: tuple[Advice, ...]


def find_bottleneck(folder: Path) -> Bottleneck:
    """Read the run in ``folder``.

    Raises ValueError, naming the file, for a folder without a run, for one of the baseline (whose stages take
    turns in one process), and for one with too few steps to say anything.
    """
    if (folder / BASELINE_MARK).exists():
        raise ValueError(f"{folder} is a run of train_code_grpo, whose stages take turns: nothing to compare")
    config, rows, run = config_of(folder), steady_rows(folder), read_run(folder)
    stages = _stages(rows, run)
    busiest = min(stages, key=lambda stage: stage.idle_share)
    predicted_s = _step_s(run)
    return Bottleneck(
        run=str(folder),
        num_steps=len(rows),
        step_s=run.step_s,
        predicted_s=predicted_s,
        limited_by=busiest.stage if 1.0 - busiest.idle_share >= _LIMITING_SHARE else "none",
        stages=stages,
        waited_s=_mean(rows, "rollout/wait_s"),
        wasted={text: share for name, text in _WASTE.items() if (share := _mean(rows, name)) is not None},
        host_device_syncs=_SYNCS_UNKNOWN if run.is_gpu else _NO_SYNCS_ON_CPU,
        is_shared=run.is_shared,
        advice=_advice(run, config, rows, predicted_s),
    )


def _stages(rows: Sequence[Mapping[str, float | None]], run: MeasuredRun) -> tuple[StageShare, ...]:
    busy_s = {
        "generation": _mean(rows, "generation/seconds") or 0.0,
        # Of the pool: a share of all its workers.
        "rewards": (_mean(rows, "rewards/seconds") or 0.0) / run.num_reward_workers,
        "training": _mean(rows, "train/seconds") or 0.0,
        "weight updates": _mean(rows, "weights/update_s") or 0.0,
    }
    return tuple(
        StageShare(stage=stage, busy_s=seconds, idle_share=max(0.0, 1.0 - seconds / run.step_s))
        for stage, seconds in busy_s.items()
    )


def _advice(
    run: MeasuredRun, config: Config, rows: Sequence[Mapping[str, float | None]], now_s: float
) -> tuple[Advice, ...]:
    found = []
    for change in changes(run, config, rows):
        gain = 1.0 - (_step_s(change.run) / change.num_steps - change.saved_s) / now_s
        if gain >= _LEAST_GAIN:
            found.append(Advice(change=change, step_s=run.step_s * (1.0 - gain), gain=gain))
    return tuple(sorted(found, key=lambda advice: -advice.gain)[:_NUM_SHOWN])


def _step_s(run: MeasuredRun) -> float:
    """The step that the model predicts for a run with these costs and of this shape, with work to follow."""
    costs, shape = run.costs(ScalingAssumptions().spare_speed), run.shape()
    further = shape.max_staleness + 1
    return predict(costs, shape, num_steps=_NUM_STEPS, num_filling=_NUM_FILLING, num_further=further).step_s


def _mean(rows: Sequence[Mapping[str, float | None]], name: str) -> float | None:
    """The mean over the steps that logged ``name``; None where none did."""
    values = [value for row in rows if (value := row.get(name)) is not None]
    return statistics.fmean(values) if values else None


def as_text(found: Bottleneck) -> str:
    """The report for people."""
    lines = [f"{found.run}: {found.num_steps} steps of {found.step_s:.2f} s (mean; without the first)", ""]
    if found.limited_by == "none":
        lines.append("limited by: no single stage: each waited for the others in turn")
    else:
        lines.append(f"limited by: {found.limited_by}")
    lines += ["", f"  {'stage':<16}{'busy a step':>12}{'idle':>8}"]
    lines += [f"  {one.stage:<16}{one.busy_s:>10.2f} s{100 * one.idle_share:>6.0f} %" for one in found.stages]
    if found.waited_s is not None:
        lines.append(f"  the trainer waited {found.waited_s:.2f} s a step for rollouts")
    if found.is_shared:
        lines.append("  the stages shared one device: their seconds contain waiting for each other")
    lines += ["", f"host-device syncs: {found.host_device_syncs}", ""]
    lines += [f"{100 * share:.1f} % {text}" for text, share in found.wasted.items()]
    lines += ["", *_advice_lines(found)]
    return "\n".join(lines)


def _advice_lines(found: Bottleneck) -> list[str]:
    lines = [
        f"settings most worth changing: PREDICTED from this run's stage costs (the model says "
        f"{found.predicted_s:.2f} s for the run as it was, {found.step_s:.2f} s were measured)"
    ]
    for number, one in enumerate(found.advice, start=1):
        lines.append(
            f"  {number}. {one.change.setting}: {one.step_s:.2f} s a step, {100 * one.gain:.0f} % less; "
            f"{one.change.note}"
        )
    if not found.advice:
        lines.append("  no change of a setting that the model knows saves 1 % of the step")
    if found.is_shared:
        lines.append(
            "  on one device what one stage saves the others gain as well, which the model does not know"
        )
    return lines
