from __future__ import annotations

import io
import math
from collections import deque

import pytest
from rich.console import Console

from pipeline.record.progress import PlainProgress, RichProgress, make_progress, sparkline
from tests.pipeline.record.test_metrics import Clock

METRICS = {
    "rollout/reward_mean": 0.5123,
    "rollout/pass_rate": 0.41,
    "rollout/completion_length": 87.2,
    "generation/tokens_per_s": 412.4,
    "train/tokens_per_s": 231.0,
    "train/staleness_mean": 0.4,
    "train/staleness_max": 1.0,
    "step/seconds": 38.2,
    "step/samples_per_s": 1.68,
    "step/per_s_recent": 0.02618,
    "step/per_s": 0.0251,
}


def plain(total_steps: int, done_steps: int = 0) -> tuple[io.StringIO, Clock, PlainProgress]:
    """What it writes to, its clock, and the display of a run that has begun."""
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, clock=clock)
    progress.start(total_steps, done_steps)
    return stream, clock, progress


def rendered(width: int = 100, total_steps: int = 20, steps: int = 7) -> str:
    clock = Clock()
    live = Console(width=width, file=io.StringIO(), force_terminal=True)
    progress = RichProgress(live, title="train · balanced · smollm2-135m-instruct", clock=clock)
    progress.start(total_steps)
    for number in range(1, steps + 1):
        clock.now_s += 38.0
        progress.step(number, {**METRICS, "rollout/reward_mean": 0.3 + 0.03 * number})
    progress.activity("generating 23/64")
    progress.close()
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(progress.render())
    return console.export_text()


def test_the_panel_shows_step_numbers_time_left_and_activity() -> None:
    text = rendered()
    for part in (
        "step 7/20",
        "35%",
        "0.510",
        "41.0%",
        "412 tok/s",
        "231 tok/s",
        "0.4/1",
        "0.0262",
        "0.0251",
        "generating 23/64",
    ):
        assert part in text
    assert "4:26 elapsed" in text and "8:14 left" in text
    assert "▁" in text and "█" in text


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_panel_keeps_its_shape_at_any_width(width: int) -> None:
    lines = rendered(width).rstrip("\n").splitlines()
    assert {len(line.rstrip()) for line in lines} == {min(100, width - 1)}
    for whole in ("pass rate", "staleness", "412 tok/s", "1.68/s"):
        assert any(whole in line for line in lines)
    assert len(lines) == 13


def test_a_panel_before_the_first_step_shows_dashes() -> None:
    text = rendered(steps=0)
    assert "step 0/20" in text and "-:-- left" in text and "nan" not in text


def test_the_live_panel_starts_and_ends_and_keeps_messages() -> None:
    stream = io.StringIO()
    progress = make_progress("rich", title="t", stream=stream)
    progress.start(3)
    progress.message("weights [loaded]")
    progress.step(1, METRICS)
    progress.close()
    progress.close()
    assert "weights [loaded]" in stream.getvalue() and "step 1/3" in stream.getvalue()


def test_plain_lines_have_one_format_and_one_line_a_step() -> None:
    stream, clock, progress = plain(20)
    clock.now_s = 40.0
    progress.step(1, METRICS)
    # Nothing was written: its groups were there before. That is no speed of 0.
    progress.step(2, {"rollout/reward_mean": math.nan, "generation/tokens_per_s": 0.0})
    assert stream.getvalue().splitlines() == [
        "step  1/20  reward  0.512  pass  41.0%  generation 412 tok/s  training 231 tok/s  staleness 0.4/1"
        "   38.2 s  0.0262 steps/s (overall 0.0251)  left 12:40",
        "step  2/20  reward      -  pass      -  generation         -  training         -  staleness -/-"
        "        -  - steps/s (overall -)  left 6:00",
    ]


def test_plain_activity_is_printed_only_after_silence() -> None:
    stream, clock, progress = plain(20)
    progress.activity("generating 1/64")
    clock.now_s = 31.0
    progress.activity("generating 2/64")
    progress.activity("generating 3/64")
    assert stream.getvalue() == "  ... generating 2/64\n"


def test_the_start_up_is_shown_before_the_number_of_steps_is_known() -> None:
    stream = io.StringIO()
    progress = make_progress("rich", title="t", stream=stream)
    progress.activity("loading the model")
    progress.close()
    progress.activity("too late")
    assert "loading the model" in stream.getvalue()
    assert "step" not in stream.getvalue() and "too late" not in stream.getvalue()

    stream = io.StringIO()
    progress = PlainProgress(stream)
    for text in ("loading the model", "evaluating 1/400", "evaluating 2/400"):
        progress.activity(text)
    assert stream.getvalue() == "  ... loading the model\n  ... evaluating 1/400\n"


def test_auto_is_plain_without_a_terminal() -> None:
    assert isinstance(make_progress("auto", title="t", stream=io.StringIO()), PlainProgress)
    assert isinstance(make_progress("rich", title="t", stream=io.StringIO()), RichProgress)


def test_time_left_counts_only_the_steps_after_a_resume() -> None:
    stream, clock, progress = plain(20, done_steps=18)
    clock.now_s = 10.0
    progress.step(19, METRICS)
    assert stream.getvalue().endswith("left 0:10\n")


@pytest.mark.parametrize("block", [(19.0, 5.0), (19.0, 5.0, 5.0)])
def test_time_left_is_steady_and_right_where_every_block_of_steps_begins_with_a_slow_one(
    block: tuple[float, ...],
) -> None:
    stream, clock, progress = plain(100)
    left_s = []
    for step in range(1, 25):
        clock.now_s += block[step % len(block)]
        progress.step(step, METRICS)
        minutes, seconds = stream.getvalue().split("left ")[-1].split(":")
        left_s.append((60 * int(minutes) + int(seconds)) / (100 - step))
    assert max(left_s[6:]) - min(left_s[6:]) < 0.1
    assert left_s[-1] == pytest.approx(sum(block) / len(block), rel=0.15)


def test_one_slow_step_does_not_scare() -> None:
    stream, clock, progress = plain(20)
    for step, seconds in enumerate((10.0, 10.0, 300.0, 10.0), start=1):
        clock.now_s += seconds
        progress.step(step, METRICS)
    assert stream.getvalue().endswith("left 2:40\n")


def test_a_sparkline_spans_its_values_and_leaves_gaps() -> None:
    assert sparkline(deque([0.0, 0.5, math.nan, 1.0])) == "▁▅ █"
    assert sparkline(deque([2.0, 2.0])) == "▁▁"
    assert sparkline(deque([math.nan])) == ""
