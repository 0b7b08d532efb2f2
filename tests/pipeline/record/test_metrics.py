from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.record.metric_names import METRICS
from pipeline.record.metrics import MetricsWriter, StageTimer, StepRate, read_metrics


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_line_carries_step_time_and_values_and_nan_becomes_null(tmp_path: Path) -> None:
    clock = Clock()
    writer = MetricsWriter(tmp_path, clock=clock)
    clock.now_s += 2.5
    writer.log(3, {"train/loss": 0.25, "rollout/reward_mean": math.nan, "train/grad_norm": math.inf})
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line == {
        "step": 3,
        "time_s": 2.5,
        "train/loss": 0.25,
        "rollout/reward_mean": None,
        "train/grad_norm": None,
    }


@pytest.mark.parametrize(
    "name",
    [
        *("loss", "Train/loss", "train/Loss", "a/b/c", "train/", "train/loss ", "step"),
        *("reward_part/1x", "reward_part/", "reward_part/a/b", "Reward_part/x", "train/kürze"),
    ],
)
def test_a_name_not_stage_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="stage/name"):
        MetricsWriter(tmp_path).log(1, {name: 1.0})


def test_a_reward_may_have_any_name_that_a_function_has(tmp_path: Path) -> None:
    MetricsWriter(tmp_path).log(1, {"reward_part/kürze": 0.5, "reward_part/_IsShort2": 1.0})
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert line["reward_part/kürze"] == 0.5 and line["reward_part/_IsShort2"] == 1.0


def test_known_metrics_are_named_once_and_validly(tmp_path: Path) -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    MetricsWriter(tmp_path).log(1, dict.fromkeys(names, 1.0))
    assert all(metric.meaning for metric in METRICS)


def test_a_resume_cuts_a_torn_line_and_goes_on_with_the_time(tmp_path: Path) -> None:
    clock = Clock()
    writer = MetricsWriter(tmp_path, clock=clock)
    clock.now_s += 10
    writer.log(1, {"train/loss": 1.0})
    writer.close()
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 2, "time')
    clock.now_s += 1000
    writer = MetricsWriter(tmp_path, clock=clock)
    clock.now_s += 5
    writer.log(2, {"train/loss": 2.0})
    assert [line["time_s"] for line in read_metrics(path)] == [10.0, 15.0]


def test_reading_merges_lines_of_a_step_and_leaves_rewound_steps_out(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    for step, loss in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.9)):
        writer.log(step, {"train/loss": loss})
    writer.log(2, {"eval/pass_at_1": 0.5})
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [(line["step"], line["train/loss"]) for line in lines] == [(1, 0.1), (2, 0.9)]
    assert lines[1]["eval/pass_at_1"] == 0.5


def test_a_step_that_is_done_again_keeps_nothing_of_the_lost_one(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path)
    writer.log(1, {"step/seconds": 1.0, "train/loss": 0.1})
    writer.log(2, {"step/seconds": 1.0, "train/loss": 0.2, "eval/pass_at_1": 0.5})
    writer.log(2, {"step/seconds": 3.0, "train/loss": 0.9})
    writer.log(2, {"eval/num_tasks": 6.0})
    first, again = read_metrics(tmp_path / "metrics.jsonl")
    assert first["train/loss"] == 0.1
    values = {name: value for name, value in again.items() if name != "time_s"}
    assert values == {"step": 2, "step/seconds": 3.0, "train/loss": 0.9, "eval/num_tasks": 6.0}


def test_the_recent_step_rate_forgets_a_slow_start_and_the_overall_one_does_not() -> None:
    clock = Clock()
    rate = StepRate(clock=clock)
    clock.now_s += 30
    assert rate.step() == {"step/per_s": 1 / 30, "step/per_s_recent": 1 / 30}
    for _ in range(6):
        clock.now_s += 2
        last = rate.step()
    assert last == {"step/per_s": 7 / 42, "step/per_s_recent": 0.5}


def test_overlapping_busy_intervals_count_once() -> None:
    clock = Clock()
    timer = StageTimer(clock=clock)
    with timer.busy():
        clock.now_s += 1
        with timer.busy():
            clock.now_s += 2
        clock.now_s += 1
        assert timer.total().seconds == 4.0
    clock.now_s += 100
    timer.add(50)
    usage = timer.drain()
    assert (usage.seconds, usage.num_tokens, usage.tokens_per_s) == (4.0, 50, 12.5)
    assert timer.drain().seconds == 0.0
    assert timer.drain().tokens_per_s == 0.0


def test_a_stage_that_fails_is_not_left_busy() -> None:
    clock = Clock()
    timer = StageTimer(clock=clock)
    with pytest.raises(RuntimeError), timer.busy():
        clock.now_s += 1
        raise RuntimeError
    clock.now_s += 10
    assert timer.total().seconds == 1.0
