"""Numbers of a run: metrics.jsonl, steps per second, how busy each stage was; and samples.jsonl.

A metric is named ``stage/name`` and is reduced once a step. samples.jsonl holds a few rollouts of each step,
for people to read. Nothing here decides anything, and nothing here is a stage.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.messages import RolloutGroup

# A line of metrics.jsonl that has this is of a step that was just committed.
_OF_A_STEP = "step/seconds"
_NAME = re.compile(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*")


def finite_or_none(value: float) -> float | None:
    """``value``, or None (JSON's null) where it is NaN or infinite."""
    return value if math.isfinite(value) else None


class MetricsWriter:
    """Appends to ``folder/metrics.jsonl``; a line is out of this process when ``log`` returns.

    ``time_s`` is the run's time: on a resume it goes on from the last line. A line torn by a crash is
    cut off when the file is opened.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        path = folder / "metrics.jsonl"
        earlier_s = _repair(path)
        self._file = path.open("a", encoding="utf-8")
        self._clock = clock
        self._start_s = clock() - earlier_s

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one line. NaN and infinity become null; ValueError for a name not 'stage/name'."""
        for name in metrics:
            # A reward is named as its function is.
            is_reward = name.startswith("reward_part/") and name.partition("/")[2].isidentifier()
            if not is_reward and not _NAME.fullmatch(name):
                raise ValueError(f"metric {name!r}: a name is 'stage/name' in lower_snake_case")
        values = {name: finite_or_none(value) for name, value in metrics.items()}
        line = {"step": step, "time_s": round(self._clock() - self._start_s, 3), **values}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _repair(path: Path) -> float:
    """Cut a torn last line off; return the last whole line's time_s, or 0."""
    if not path.exists():
        return 0.0
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        os.truncate(path, end)
    lines = data[:end].splitlines()
    return _parsed(path, len(lines), lines[-1]).get("time_s") or 0.0 if lines else 0.0


def read_metrics(path: Path) -> list[dict[str, float | None]]:
    """The lines of metrics.jsonl, one a step: lines of the same step are merged, in order of steps.

    Steps that a resume went back behind are left out: a line of an earlier step cancels what was
    logged for later ones before it. A torn last line is ignored. Raises ValueError, as 'FILE:LINE: ...', for
    another line that is none of a run's.
    """
    by_step: dict[int, dict[str, float | None]] = {}
    newest = 0
    *lines, _torn = path.read_bytes().split(b"\n")
    for number, text in enumerate(lines, start=1):
        line = _parsed(path, number, text)
        step = int(line["step"] or 0)
        # A line without it is of what was measured later, and belongs to the one before.
        if step < newest or (step == newest and _OF_A_STEP in line):
            by_step = {earlier: row for earlier, row in by_step.items() if earlier < step}
        newest = step
        by_step.setdefault(step, {}).update(line)
    return list(by_step.values())


def _parsed(path: Path, number: int, text: bytes) -> dict[str, float | None]:
    """A line of metrics.jsonl: numbers and nulls by name, with a step that is a whole number."""
    where = f"{path}:{number}"
    try:
        line = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: is not a line of JSON ({error})") from None
    if not isinstance(line, dict):
        raise ValueError(f"{where}: must be a JSON object, is {type(line).__name__}")
    for name, value in line.items():
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise ValueError(f"{where}: field {name!r}: value {value!r}: must be a number or null")
    if type(line.get("step")) is not int or line["step"] < 0:
        raise ValueError(f"{where}: field 'step': value {line.get('step')!r}: must be a whole number >= 0")
    return line


class StepRate:
    """Optimiser steps per second: over the last ``RECENT_STEPS`` and since the start.

    Both are of the wall clock, so what lies between two steps (a checkpoint) counts.
    """

    # Holds whole blocks of two and of three steps: in turn, only the first of a block is slow.
    RECENT_STEPS = 6

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start_s = clock()
        self._num_steps = 0
        self._ends_s: deque[float] = deque([self._start_s], maxlen=self.RECENT_STEPS + 1)

    def step(self) -> dict[str, float]:
        """Count a step that ended now; returns its metrics."""
        now_s = self._clock()
        self._num_steps += 1
        self._ends_s.append(now_s)
        return {
            "step/per_s": self._num_steps / (now_s - self._start_s),
            "step/per_s_recent": (len(self._ends_s) - 1) / (now_s - self._ends_s[0]),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StageUsage:
    """What a stage did: seconds it was busy, tokens it handled."""

    seconds: float
    num_tokens: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens over busy seconds; 0 for a stage that did nothing."""
        return self.num_tokens / self.seconds if self.seconds > 0 else 0.0


class StageTimer:
    """Busy seconds and tokens of one stage.

    Intervals that overlap (many requests in one engine) count once: the stage is busy while at least
    one is open. For one thread or one event loop.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._num_open = 0
        self._since_s = 0.0
        self._seconds = 0.0
        self._num_tokens = 0
        self._drained = StageUsage(seconds=0.0, num_tokens=0)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count the time inside the block as busy."""
        if self._num_open == 0:
            self._since_s = self._clock()
        self._num_open += 1
        try:
            yield
        finally:
            self._num_open -= 1
            if self._num_open == 0:
                self._seconds += self._clock() - self._since_s

    def add(self, num_tokens: int) -> None:
        """Count tokens of the stage."""
        self._num_tokens += num_tokens

    def total(self) -> StageUsage:
        """Since the start, open intervals included."""
        running_s = self._clock() - self._since_s if self._num_open else 0.0
        return StageUsage(seconds=self._seconds + running_s, num_tokens=self._num_tokens)

    def drain(self) -> StageUsage:
        """Since the last ``drain()``: what one step adds."""
        total, last = self.total(), self._drained
        self._drained = total
        return StageUsage(seconds=total.seconds - last.seconds, num_tokens=total.num_tokens - last.num_tokens)


NUM_SAMPLED_ROLLOUTS = 2


def log_samples(path: Path, step: int, group: RolloutGroup) -> None:
    """Append the first rollouts of ``group``, one line each; the reward of one not scored is null."""
    with path.open("a", encoding="utf-8") as file:
        for rollout in group.rollouts[:NUM_SAMPLED_ROLLOUTS]:
            result = rollout.result
            line = {
                "step": step,
                "task_id": group.task.task_id,
                "prompt": group.task.prompt,
                "completion": rollout.completion.text,
                "reward": None if result.is_infra_error else result.reward,
                "outcome": str(result.outcome),
                "detail": result.detail,
                "breakdown": dict(result.breakdown),
            }
            file.write(json.dumps(line) + "\n")
