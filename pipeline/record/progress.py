"""What the user sees while a run works: one calm panel on a terminal, plain lines elsewhere.

It only shows: numbers come from the step's metrics (see metric_names.METRICS), a missing one is shown as a
dash.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pipeline.record.metrics import StepRate

_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 24
_QUIET_S = 30.0
_MAX_WIDTH = 100
# Three digits that count: a step may take minutes or milliseconds.
_THREE_DIGITS = ".3g"


class Progress(ABC):
    """A display of one run, with its clock. Every method returns at once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._start_s = self._last_s = clock()
        self._recent: deque[float] = deque(maxlen=StepRate.RECENT_STEPS)
        self._total_steps = self._done_steps = 0  # both 0 until the start

    def start(self, total_steps: int, done_steps: int = 0) -> None:
        """Begin; ``done_steps`` are those of the run before a resume."""
        self._start_s = self._last_s = self._now()
        self._total_steps, self._done_steps = total_steps, done_steps
        self._recent.clear()

    @abstractmethod
    def activity(self, text: str) -> None:
        """Show what is going on: "generating 23/64"."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the end of optimiser step ``step``, counted from 1."""
        now_s = self._now()
        self._recent.append(now_s - self._last_s)
        self._last_s = now_s
        self._done_steps = step

    @abstractmethod
    def message(self, text: str) -> None:
        """Show a line that stays."""

    @abstractmethod
    def close(self) -> None:
        """End the display; what it showed last stays."""

    def _left_s(self) -> float | None:
        """Seconds left, or None before the first step; one slow step among the recent ones does not scare."""
        if not self._recent:
            return None
        since_last_s = self._now() - self._last_s
        recent = sorted(self._recent)
        inner = recent[1:-1] or recent
        return max(0.0, statistics.fmean(inner) * (self._total_steps - self._done_steps) - since_last_s)


def make_progress(
    kind: Literal["auto", "rich", "plain"], *, title: str, stream: TextIO | None = None
) -> Progress:
    """The display for ``kind``: "rich", "plain", or "auto" (rich when ``stream`` is a terminal).

    ``stream`` is stdout unless given.
    """
    stream = stream or sys.stdout
    if kind == "plain" or (kind == "auto" and not stream.isatty()):
        return PlainProgress(stream)
    # A stream that is no terminal got "rich" by the user's word: draw there all the same.
    return RichProgress(Console(file=stream, force_terminal=True), title=title)


class PlainProgress(Progress):
    """One line a step, flushed, and an activity now and then where nothing else was printed."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._printed_s = clock()
        self._last_activity = ""

    def activity(self, text: str) -> None:
        """See Progress; printed while all starts, where its kind changes, or after half a minute."""
        kind = text.split(" ")[0]
        is_new = self._total_steps == 0 and kind != self._last_activity
        self._last_activity = kind
        if is_new or self._now() - self._printed_s >= _QUIET_S:
            self._print(f"  ... {text}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See Progress."""
        super().step(step, metrics)
        width = len(str(self._total_steps))
        self._print(
            f"step {step:>{width}}/{self._total_steps}"
            f"  reward {_shown(metrics.get('rollout/reward_mean'), '.3f'):>6}"
            f"  pass {_shown(metrics.get('rollout/pass_rate'), '.1%'):>6}"
            f"  generation {_rate(metrics.get('generation/tokens_per_s')):>9}"
            f"  training {_rate(metrics.get('train/tokens_per_s')):>9}"
            f"  staleness {_staleness(metrics)}"
            f"  {_shown(metrics.get('step/seconds'), '.1f', ' s'):>7}"
            f"  {_shown(metrics.get('step/per_s_recent'), _THREE_DIGITS)} steps/s"
            f" (overall {_shown(metrics.get('step/per_s'), _THREE_DIGITS)})"
            f"  left {_duration(self._left_s())}"
        )

    def message(self, text: str) -> None:
        """See Progress."""
        self._print(text)

    def close(self) -> None:
        """See Progress."""
        self._stream.flush()

    def _print(self, text: str) -> None:
        self._printed_s = self._now()
        print(text, file=self._stream, flush=True)


class RichProgress(Progress):
    """The panel. Other output of the process scrolls by above it."""

    def __init__(self, console: Console, *, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._title = title
        self._activity = "starting"
        self._metrics: Mapping[str, float] = {}
        self._rewards: deque[float] = deque(maxlen=_SPARK_WIDTH)
        self._pass_rates: deque[float] = deque(maxlen=_SPARK_WIDTH)
        self._console = console
        self._live: Live | None = None
        self._is_closed = False

    def start(self, total_steps: int, done_steps: int = 0) -> None:
        """See Progress."""
        super().start(total_steps, done_steps)
        self._show()

    def _show(self) -> None:
        if self._live is None and not self._is_closed:
            # Drawn four times a second by rich's own thread, which reads whole values only.
            self._live = Live(console=self._console, get_renderable=self.render, refresh_per_second=4)
            self._live.start()

    def activity(self, text: str) -> None:
        """See Progress."""
        self._activity = text
        self._show()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See Progress."""
        super().step(step, metrics)
        self._metrics = dict(metrics)
        self._rewards.append(metrics.get("rollout/reward_mean", math.nan))
        self._pass_rates.append(metrics.get("rollout/pass_rate", math.nan))

    def message(self, text: str) -> None:
        """See Progress."""
        self._console.print(Text(text))

    def close(self) -> None:
        """See Progress."""
        self._is_closed = True
        if self._live is not None:
            self._live.stop()
            self._live = None

    def render(self) -> RenderableType:
        """The panel as it is now."""
        # The last column stays free: a line that fills the terminal wraps in some of them.
        width = min(_MAX_WIDTH, self._console.width - 1)
        body: RenderableType = Text.assemble(
            ("● ", "green"), self._activity, no_wrap=True, overflow="ellipsis"
        )
        subtitle: Text | None = None
        if self._total_steps > 0:
            body = Group(self._bar(), Text(), self._numbers(width), Text(), body)
            subtitle = Text(f" step {self._done_steps}/{self._total_steps} ")
        title = Text(f" {self._title} ", style="bold")
        return Panel(
            body, title=title, subtitle=subtitle, title_align="left", subtitle_align="right",
            border_style="bright_black", padding=(1, 2), width=width,
        )  # fmt: skip

    def _bar(self) -> RenderableType:
        done, total = self._done_steps, self._total_steps
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(ratio=1)
        for _ in range(3):
            row.add_column(justify="right", no_wrap=True)
        bar = ProgressBar(total=total, completed=done, complete_style="cyan", finished_style="green")
        share = Text(f"{done / total:.0%}", style="bold")
        elapsed = Text(f"{_duration(self._now() - self._start_s)} elapsed", style="dim")
        row.add_row(bar, share, elapsed, Text(f"{_duration(self._left_s())} left"))
        return row

    def _numbers(self, width: int) -> RenderableType:
        get = self._metrics.get
        # What the other columns leave: 41 of text, 10 between them, 6 of the frame.
        marks = max(0, min(_SPARK_WIDTH, width - 57))
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True, min_width=6, style="bold")
        grid.add_column(no_wrap=True, style="cyan", min_width=marks)
        grid.add_column(ratio=1)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        reward, passed = _shown(get("rollout/reward_mean"), ".3f"), _shown(get("rollout/pass_rate"), ".1%")
        tokens = _shown(get("rollout/completion_length"), ".0f")
        samples, overall = _rate(get("step/samples_per_s"), "/s"), _shown(get("step/per_s"), _THREE_DIGITS)
        rows = (
            ("reward", reward, sparkline(self._rewards), "generation", _rate(get("generation/tokens_per_s"))),
            ("pass rate", passed, sparkline(self._pass_rates), "training", _rate(get("train/tokens_per_s"))),
            ("length", tokens, "tokens", "step", _shown(get("step/seconds"), ".1f", " s")),
            ("staleness", _staleness(self._metrics), "mean/max", "samples", samples),
            ("steps/s", _shown(get("step/per_s_recent"), _THREE_DIGITS), "recent", "overall", overall),
        )  # fmt: skip
        for left, value, mark, right, rate in rows:
            mark = mark[-marks:] if marks >= len("mean/max") else ""
            grid.add_row(left, value, Text(mark, style="dim" if mark.isascii() else ""), "", right, rate)
        return grid


def sparkline(values: deque[float]) -> str:
    """One block a value, from the smallest to the largest of them; a gap for NaN."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low, span = min(finite), max(finite) - min(finite)
    top = len(_SPARKS) - 1
    return "".join(
        " " if not math.isfinite(value) else _SPARKS[round((value - low) / span * top) if span > 0 else 0]
        for value in values
    )


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:{form}}{unit}"


def _rate(value: float | None, unit: str = " tok/s") -> str:
    if value == 0:
        return "-"  # What was needed was there before.
    return _shown(value, f".{0 if value is None or value >= 100 else 2 if value < 10 else 1}f", unit)


def _staleness(metrics: Mapping[str, float]) -> str:
    mean, largest = metrics.get("train/staleness_mean"), metrics.get("train/staleness_max")
    return f"{_shown(mean, '.1f')}/{_shown(largest, '.0f')}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
