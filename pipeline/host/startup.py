"""Spans of a start: what each process did between which moments, on one clock.

A process notes its spans in the file that ``CODE_GRPO_STARTUP_LOG`` names, one JSON line each; child
processes inherit the variable, so the lines of all of them come together there. Without the variable
nothing is written. Imports only the standard library: the first thing that a process does.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from pipeline.host.spans import Span

LOG_VARIABLE = "CODE_GRPO_STARTUP_LOG"
FIRST_TOKEN = "first completion"
FIRST_SCORE = "first score"
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


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
