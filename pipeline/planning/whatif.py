"""Changes of one setting each, and what a measured run's stage costs would be with them.

Only changes whose effect follows from what the run measured: work that is left out, stages that there are
more of, waits that go. Judges none: pipeline.planning.bottleneck, the caller, simulates them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from configs.conditions import why_not_streamed
from configs.schema import Config
from pipeline.planning.measured_run import MeasuredRun

_MAX_STALENESS = 8
# A share of the completions may be cut by a shorter limit.
_CUT_SHARE = 0.02
_LENGTH_STEP = 16
# Recomputing activations is a forward more; forward and backward cost about 1 and 2.
_RECOMPUTED_SHARE = 1 / 4

Rows = Sequence[Mapping[str, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``setting`` as a user would write it; ``run`` is the measured run with the costs that follow.

    ``saved_s`` are seconds of a step besides, which lie outside of the stages; ``num_steps`` is how many of
    the run's steps one step with the change stands for. ``note`` says what the prediction rests on, and what
    else the change does.
    """

    setting: str
    run: MeasuredRun
    note: str
    saved_s: float = 0.0
    num_steps: int = 1


def changes(run: MeasuredRun, config: Config, rows: Rows) -> Iterator[Change]:
    """Every change that could pay for this run."""
    yield from _less_training(run, config, rows)
    yield from _shorter_answers(run, config)
    yield from _more_workers(run)
    yield from _fewer_checkpoints(run, config, rows)
    yield from _larger_steps(run, config)
    if run.is_shared:
        yield from _fewer_gaps(run, rows)
    else:
        yield from _more_overlap(run, config)
        yield from _more_devices(run, config)


def _less_training(run: MeasuredRun, config: Config, rows: Rows) -> Iterator[Change]:
    acceleration = config.acceleration
    padding = _mean(rows, "train/padding_share")
    if not acceleration.token_packing.enabled and padding:
        yield Change(
            setting="acceleration.token_packing.enabled=true",
            run=replace(run, train_s=run.train_s * (1.0 - padding)),
            note=f"exact; leaves out the padding, measured at {100 * padding:.0f} % of the trainer's tokens",
        )
    silent = _mean(rows, "rollout/zero_signal_share")
    if not acceleration.skip_zero_advantages and config.grpo.beta == 0 and silent:
        yield Change(
            setting="acceleration.skip_zero_advantages=true",
            run=replace(run, train_s=run.train_s * (1.0 - silent)),
            note=f"exact; leaves out the groups without signal, measured at {100 * silent:.0f} %",
        )
    if config.training.gradient_checkpointing:
        yield Change(
            setting="training.gradient_checkpointing=false",
            run=replace(run, train_s=run.train_s * (1.0 - _RECOMPUTED_SHARE)),
            note="exact; assumes that recomputing is a quarter of the step; takes more memory",
        )


def _shorter_answers(run: MeasuredRun, config: Config) -> Iterator[Change]:
    """A lower length limit, where hardly any completion is as long as the present one."""
    lengths = sorted(run.lengths)
    kept = lengths[min(len(lengths) - 1, math.ceil((1.0 - _CUT_SHARE) * len(lengths)) - 1)]
    limit = _LENGTH_STEP * math.ceil(kept / _LENGTH_STEP)
    if limit >= config.generation.max_completion_length:
        return
    cut = sum(length > limit for length in lengths) / len(lengths)
    shortened = tuple(min(length, limit) for length in run.lengths)
    share = sum(shortened) / sum(run.lengths)
    yield Change(
        setting=f"generation.max_completion_length={limit}",
        run=replace(run, lengths=shortened, train_s=run.train_s * share),
        note=f"another objective: would have cut {100 * cut:.1f} % of this run's completions",
    )


def _more_workers(run: MeasuredRun) -> Iterator[Change]:
    number = 2 * run.num_reward_workers
    yield Change(
        setting=f"acceleration.async_rewards.workers={number}",
        run=replace(run, num_reward_workers=number),
        note="exact; assumes a free core for each further worker",
    )


def _fewer_checkpoints(run: MeasuredRun, config: Config, rows: Rows) -> Iterator[Change]:
    """Seconds of a checkpoint: how much longer the steps took that saved one."""
    every = config.output.save_steps
    saving: list[float] = []
    plain: list[float] = []
    for row in rows:
        step, seconds = row.get("step"), row.get("step/seconds")
        if step is not None and seconds is not None:
            (saving if step % every == 0 else plain).append(seconds)
    if len(saving) < 2 or len(plain) < 2:
        return
    checkpoint_s = statistics.median(saving) - statistics.median(plain)
    if checkpoint_s > 0:
        yield Change(
            setting=f"output.save_steps={4 * every}",
            run=run,
            saved_s=0.75 * checkpoint_s / every,
            note=f"steps that saved took {checkpoint_s:.2f} s longer (medians); a crash loses more steps",
        )


def _larger_steps(run: MeasuredRun, config: Config) -> Iterator[Change]:
    yield Change(
        setting=f"training.gradient_accumulation_steps={2 * config.training.gradient_accumulation_steps}",
        run=replace(run, groups_per_step=2 * run.groups_per_step),
        num_steps=2,
        note="another schedule: half as many updates for the same samples; fewer stragglers to wait for",
    )


def _fewer_gaps(run: MeasuredRun, rows: Rows) -> Iterator[Change]:
    """On one device: time in which neither generator nor trainer was at work can at best be filled."""
    at_work_s = _mean(rows, "generation/seconds") + _mean(rows, "train/seconds")
    scoring_s = _mean(rows, "rewards/seconds") / run.num_reward_workers
    gap_s = run.step_s - max(at_work_s, scoring_s)
    staleness = run.max_staleness + 1
    if gap_s > 0 and staleness <= _MAX_STALENESS:
        yield Change(
            setting=f"acceleration.max_staleness={staleness}",
            run=run,
            saved_s=gap_s,
            note=f"corrected, not exact; at best: fills the {gap_s:.2f} s of a step in which neither "
            "generator nor trainer was at work",
        )


def _more_overlap(run: MeasuredRun, config: Config) -> Iterator[Change]:
    staleness = run.max_staleness + 1
    if staleness <= _MAX_STALENESS:
        yield Change(
            setting=f"acceleration.max_staleness={staleness}",
            run=replace(run, max_staleness=staleness),
            note="corrected, not exact: trains on tokens that are one step older",
        )
    if not run.is_streamed and why_not_streamed(config) is None:
        yield Change(
            setting="acceleration.stream_steps=true",
            run=replace(run, is_streamed=True),
            note="exact; groups are trained on as they come",
        )


def _more_devices(run: MeasuredRun, config: Config) -> Iterator[Change]:
    engines, ranks = run.num_engines + 1, 2 * config.runtime.trainer_ranks
    yield Change(
        setting=f"generation.num_engines={engines}",
        run=replace(
            run, num_engines=engines, num_generating=round(run.num_generating * engines / run.num_engines)
        ),
        note="exact; assumes GPUs of its own for the further engine",
    )
    yield Change(
        setting=f"runtime.trainer_ranks={ranks}",
        run=replace(run, train_s=run.train_s / 2),
        note="exact; assumes a GPU for each further rank, and that their traffic is hidden",
    )


def _mean(rows: Rows, name: str) -> float:
    values = [value for row in rows if (value := row.get(name)) is not None]
    return statistics.fmean(values) if values else 0.0
