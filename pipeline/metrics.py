"""Numbers of a run: metrics.jsonl, rates, and how busy each stage was.

A metric is named ``stage/name`` and is reduced once a step. Nothing here decides anything, and
nothing here is a stage. Called by the orchestrator, the baseline, the evaluation and the report.
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
from typing import NamedTuple

_NAME = re.compile(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*")


class Metric(NamedTuple):
    """A metric's name, its unit ("" for a share or a plain number) and what it says."""

    name: str
    unit: str
    meaning: str


METRICS = (
    Metric("rollout/reward_mean", "", "mean reward of the step's rollouts, infrastructure errors left out"),
    Metric("rollout/reward_std", "", "standard deviation of those rewards"),
    Metric("rollout/pass_rate", "", "share of rollouts that passed all tests"),
    Metric("rollout/completion_length", "tokens", "mean completion length"),
    Metric("rollout/truncated_share", "", "share of completions that hit the length limit"),
    Metric("rollout/zero_signal_share", "", "share of groups whose rewards are all equal"),
    Metric("rollout/syntax_failure_share", "", "share of completions that do not compile"),
    Metric("rollout/infra_error_share", "", "share of rollouts that could not be scored"),
    Metric("rollout/dropped_groups", "groups", "groups dropped for staleness since the last step"),
    Metric("rollout/cancelled_groups", "groups", "groups started in excess and given up (over_issue)"),
    Metric("rollout/wait_s", "s", "how long the trainer waited for the step's rollouts"),
    Metric("generation/tokens_per_s", "tokens/s", "completion tokens over the seconds generation was busy"),
    Metric("generation/seconds", "s", "seconds generation was busy"),
    Metric("generation/tokens", "tokens", "completion tokens generated since the last step"),
    Metric("generation/aborted", "completions", "completions ended because they could no longer compile"),
    Metric("generation/tokens_saved", "tokens", "estimate: what those would have written on average"),
    Metric("rewards/seconds_mean", "s", "mean cost of scoring one completion"),
    Metric("rewards/seconds", "s", "seconds the reward workers were busy"),
    Metric("rewards/cache_hit_rate", "", "share of verdicts found in the cache or in flight"),
    Metric("rewards/cache_hits", "verdicts", "verdicts found in the cache since the last step"),
    Metric("rewards/cache_misses", "verdicts", "verdicts that had to be made since the last step"),
    Metric("rewards/cache_joins", "verdicts", "verdicts shared with an identical program in flight"),
    Metric("rewards/cache_evictions", "verdicts", "verdicts that left the cache for newer ones"),
    Metric("rewards/cache_saved_s", "s", "what the verdicts found had cost when they were made"),
    Metric("rewards/in_flight", "completions", "completions in reward workers at the end of the step"),
    Metric("rewards/waiting", "completions", "completions waiting for a reward worker then"),
    Metric("rewards/infra_errors", "completions", "completions without a verdict since the last step"),
    Metric("rewards/worker_restarts", "workers", "reward workers replaced since the last step"),
    Metric("train/loss", "", "GRPO loss"),
    Metric("train/grad_norm", "", "gradient norm before clipping"),
    Metric("train/learning_rate", "", "learning rate of the step"),
    Metric("train/tokens_per_s", "tokens/s", "trained tokens over the seconds training was busy"),
    Metric("train/seconds", "s", "seconds of forward, backward and optimiser"),
    Metric("train/tokens", "tokens", "tokens the loss was computed on"),
    Metric("train/clipped_share", "", "share of tokens whose ratio was clipped"),
    Metric("train/capped_share", "", "share of tokens whose importance weight was cut or masked"),
    Metric("train/ratio_mean", "", "mean ratio of trained to behaviour policy"),
    Metric("train/ratio_max", "", "largest of those ratios"),
    Metric("train/ratio_p01", "", "1 % of the tokens have a smaller ratio"),
    Metric("train/ratio_p50", "", "median of those ratios"),
    Metric("train/ratio_p99", "", "1 % of the tokens have a larger ratio"),
    Metric("train/kl", "", "mean KL from the behaviour policy (k3 estimate)"),
    Metric("train/on_policy_share", "", "share of trained tokens that the version in training wrote itself"),
    Metric("train/mismatch_kl", "", "KL of generator to trainer on those tokens (k3): engines that differ"),
    Metric("train/mismatch_kl_k1", "", "the same, estimated without bias by the mean log-ratio (k1)"),
    Metric("train/parts", "parts", "parts in which the step was trained on, as its groups came"),
    Metric("train/micro_batches", "micro-batches", "forward and backward passes of the step"),
    Metric("train/pack_ratio", "", "share of token_packing.max_tokens that the rows hold; 0: padded"),
    Metric("train/staleness_mean", "steps", "mean age of a sample's oldest token"),
    Metric("train/staleness_max", "steps", "age of the oldest token of the step"),
    Metric("train/token_staleness_mean", "steps", "mean age of a token"),
    Metric("rollout/mixed_version_share", "", "share of completions that more than one version wrote"),
    Metric("draft/loss", "nats", "cross-entropy of a sampled token under the draft model that is learning"),
    Metric("weights/update_s", "s", "from the end of the step to new weights in the generator"),
    Metric("weights/pause_s", "s", "of that, how long the engines were told to stand still"),
    Metric("step/seconds", "s", "wall time of the step"),
    Metric("step/samples_per_s", "samples/s", "trained completions over that time"),
    Metric("step/per_s", "steps/s", "steps since the run began or was resumed, over that time"),
    Metric("step/per_s_recent", "steps/s", "the same over the last five steps"),
    Metric("eval/pass_at_1", "", "pass@1 on the held-out tasks"),
)


def finite_or_none(value: float) -> float | None:
    """``value``, or None (JSON's null) where it is NaN or infinite."""
    return value if math.isfinite(value) else None


def _checked(metrics: Mapping[str, float]) -> dict[str, float | None]:
    for name in metrics:
        if not _NAME.fullmatch(name):
            raise ValueError(f"metric {name!r}: a name is 'stage/name' in lower_snake_case")
    return {name: finite_or_none(value) for name, value in metrics.items()}


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
        line = {
            "step": step,
            "time_s": round(self._clock() - self._start_s, 3),
            **_checked(metrics),
        }
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
    return float(json.loads(lines[-1])["time_s"]) if lines else 0.0


def read_metrics(path: Path) -> list[dict[str, float | None]]:
    """The lines of metrics.jsonl, one a step: lines of the same step are merged, in order of steps.

    Steps that a resume went back behind are left out: a line of an earlier step cancels what was
    logged for later ones before it. A torn last line is ignored.
    """
    by_step: dict[int, dict[str, float | None]] = {}
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not text.endswith("\n"):
            break
        line = json.loads(text)
        step = int(line["step"])
        by_step = {number: row for number, row in by_step.items() if number <= step}
        by_step.setdefault(step, {}).update(line)
    return list(by_step.values())


class Rate:
    """Events per second: over the last ``window_s`` seconds, and since the start."""

    def __init__(self, window_s: float = 60.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        assert window_s > 0
        self._window_s = window_s
        self._clock = clock
        self._start_s = clock()
        self._total = 0.0
        self._events: deque[tuple[float, float]] = deque()

    def add(self, count: float) -> None:
        """Count ``count`` events that happened now."""
        now_s = self._clock()
        self._total += count
        self._events.append((now_s, count))
        self._forget(now_s)

    def recent(self) -> float:
        """Events per second over the window, or since the start where that is shorter; 0 at the start."""
        now_s = self._clock()
        self._forget(now_s)
        span_s = min(self._window_s, now_s - self._start_s)
        return sum(count for _, count in self._events) / span_s if span_s > 0 else 0.0

    def overall(self) -> float:
        """Events per second since the start; 0 at the start."""
        span_s = self._clock() - self._start_s
        return self._total / span_s if span_s > 0 else 0.0

    def _forget(self, now_s: float) -> None:
        while self._events and self._events[0][0] <= now_s - self._window_s:
            self._events.popleft()


class StepRate:
    """Optimiser steps per second: over the last ``RECENT_STEPS`` and since the start.

    Both are of the wall clock, so what lies between two steps (a checkpoint) counts.
    """

    RECENT_STEPS = 5

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

    def add(self, *, seconds: float = 0.0, num_tokens: int = 0) -> None:
        """Add what was measured elsewhere (a trainer reports its own seconds)."""
        self._seconds += seconds
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
