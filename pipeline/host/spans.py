"""Who did what from when to when: the form of a span, those of a run's stages and of a start, a stopwatch.

A run's spans are kept in memory until the step that they belong to is closed, then in run.db
(Ledger.note_spans). Of a start each process notes its own in the file that ``CODE_GRPO_STARTUP_LOG`` names,
one JSON line each; child processes inherit the variable, so the lines of all of them come together there.
Without the variable nothing is written. Imports only the standard library: the first thing that a process
does. Decides and draws nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

GENERATION = "generation"
REWARDS = "rewards"
TRAINER = "trainer"
WAITING = "trainer waits"
WEIGHTS = "weights"
CHECKPOINT = "checkpoint"
EVALUATION = "evaluation"
GIVEN_UP = " (given up)"
# In the order in which work passes through them.
STAGES = (GENERATION, REWARDS, WAITING, TRAINER, WEIGHTS, CHECKPOINT, EVALUATION)

Interval = tuple[float, float]

# A run that closes no step (its trainer is gone, say) keeps no more than this in memory.
_MAX_OPEN = 20_000
LOG_VARIABLE = "CODE_GRPO_STARTUP_LOG"
FIRST_TOKEN = "first completion"
FIRST_SCORE = "first score"
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """``stage`` did ``name`` from ``started_s`` to ``ended_s`` (seconds since 1970); a moment has both equal.

    ``stage`` is one of STAGES or, of a start, a process. ``draw_id`` is set where it was for one draw,
    ``num_tokens`` where tokens were written or trained on, ``pid`` and ``cpu_s`` (seconds of processor time
    of that process meanwhile, in all threads) where they are known.
    """

    stage: str
    name: str
    started_s: float
    ended_s: float
    draw_id: int | None = None
    num_tokens: int | None = None
    pid: int | None = None
    cpu_s: float | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended_s - self.started_s


class Timeline:
    """Collects spans; with ``enabled`` false it keeps none."""

    def __init__(self, *, enabled: bool = True, clock: Callable[[], float] = time.time) -> None:
        self._enabled = enabled
        self._clock = clock
        self._spans: deque[Span] = deque(maxlen=_MAX_OPEN)

    @contextmanager
    def span(self, stage: str, name: str, *, num_tokens: int | None = None) -> Iterator[None]:
        """Note the block; one that fails or is cancelled is noted as GIVEN_UP, up to its end."""
        started_s, mark = self._clock(), GIVEN_UP
        try:
            yield
            mark = ""
        finally:
            self.note(stage, name + mark, started_s, num_tokens=num_tokens)

    def now(self) -> float:
        """The clock of the spans, seconds since 1970."""
        return self._clock()

    def note(
        self,
        stage: str,
        name: str,
        started_s: float,
        *,
        ended_s: float | None = None,
        draw_id: int | None = None,
        num_tokens: int | None = None,
    ) -> None:
        """Note what began at ``started_s`` and ended at ``ended_s``, or just now."""
        assert stage in STAGES
        if self._enabled:
            self._spans.append(
                Span(
                    stage=stage,
                    name=name,
                    started_s=started_s,
                    ended_s=self._clock() if ended_s is None else ended_s,
                    draw_id=draw_id,
                    num_tokens=num_tokens,
                )
            )

    def drain(self) -> tuple[Span, ...]:
        """What was noted since the last call, in the order of the ends."""
        spans = tuple(self._spans)
        self._spans.clear()
        return spans


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals, in order, that cover the same time."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


class Stopwatch:
    """Runs from when it is made; ``seconds`` holds what was noted, by name."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Note the seconds of the block as ``name``; not of a block that fails."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started

    def note(self, name: str) -> None:
        """Note the seconds since the start as ``name``."""
        self.seconds[name] = time.perf_counter() - self._started


def process_started_s(pid: int | None = None) -> float:
    """When the process (this one if None) was started, in seconds since 1970, to a hundredth.

    From /proc/PID/stat, which counts from the machine's boot. Raises OSError where there is no such process.
    """
    stat = Path(f"/proc/{os.getpid() if pid is None else pid}/stat").read_text(encoding="utf-8")
    # The name in brackets may hold spaces; the start is field 22, the 20th after it.
    ticks = int(stat.rpartition(")")[2].split()[19])
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_s + ticks / _CLOCK_TICKS


def note(
    process: str,
    name: str,
    started_s: float,
    ended_s: float,
    *,
    pid: int | None = None,
    cpu_s: float | None = None,
) -> None:
    """Write what ``process`` did, if a start is being measured; ``pid`` is this process's if None."""
    path = os.environ.get(LOG_VARIABLE)
    if path is None:
        return
    span = Span(
        stage=process,
        name=name,
        started_s=started_s,
        ended_s=ended_s,
        pid=os.getpid() if pid is None else pid,
        cpu_s=cpu_s,
    )
    # One short write in append mode: lines of several processes do not mix.
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(span)) + "\n")


@contextmanager
def span(process: str, name: str) -> Iterator[None]:
    """Note the block as ``name``; one that fails is noted too."""
    started_s, used_s = time.time(), time.process_time()
    try:
        yield
    finally:
        note(process, name, started_s, time.time(), cpu_s=time.process_time() - used_s)


def mark(process: str, name: str) -> None:
    """Note a moment."""
    now_s = time.time()
    note(process, name, now_s, now_s)


def read_spans(path: Path) -> tuple[Span, ...]:
    """The spans in a file, earliest first; a last line that was cut off is left out."""
    spans = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            spans.append(Span(**json.loads(line)))
    return tuple(sorted(spans, key=lambda span: (span.started_s, -span.ended_s)))
