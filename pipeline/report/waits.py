"""Who waited for whom: what the spans of a run say about each step and stage; and spans as a Chrome trace.

Pure. A stage is busy while at least one of its spans is open. What the trainer waited for is told by what was
at work meanwhile: a generator (then it waited for that), or else the reward workers, or else neither (weights
on their way, nothing issued).

A trace, of a run or of a start, opens in ui.perfetto.dev and chrome://tracing. The format: "Trace Event
Format", complete events ("ph": "X") with microseconds; one process a stage, and in it as many threads as it
had spans at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.host.spans import GENERATION, GIVEN_UP, REWARDS, STAGES, TRAINER, WAITING, Interval, Span, union
from pipeline.report.reader import SpanRow

# What is told of a span beside its times, and under which name.
_DETAILS = {"step": "step", "draw_id": "draw", "num_tokens": "tokens", "pid": "process", "cpu_s": "cpu_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """One step in seconds: from its start to its end, what the trainer did meanwhile, and what it waited for.

    ``other_s`` is neither: writing weights, accounting.
    """

    step: int
    started_s: float
    ended_s: float
    trained_s: float
    for_generation_s: float
    for_rewards_s: float
    for_nothing_s: float
    other_s: float


def step_times(spans: Sequence[SpanRow]) -> list[StepTimes]:
    """The steps that the trainer finished, in order; one that was done again counts once, as it was last."""
    by_step: dict[int, list[SpanRow]] = defaultdict(list)
    for span in spans:
        if span.stage in (TRAINER, WAITING):
            by_step[_step_of(span)].append(span)
    generating = union((span.started_s, span.ended_s) for span in spans if span.stage == GENERATION)
    scoring = union((span.started_s, span.ended_s) for span in spans if span.stage == REWARDS)
    at_work = union([*generating, *scoring])
    finished = {step: _latest_attempt(own) for step, own in sorted(by_step.items())}
    return [_times(step, own, generating, at_work) for step, own in finished.items() if own]


def _step_of(span: SpanRow) -> int:
    """The step in the span's name, "step N ...": the one it was for; ``span.step`` was closed next."""
    words = span.name.split()
    return int(words[1].rstrip(":")) if len(words) > 1 and words[0] == "step" else span.step


def _times(
    step: int,
    spans: Sequence[SpanRow],
    generating: Sequence[Interval],
    at_work: Sequence[Interval],
) -> StepTimes:
    first, last = min(span.started_s for span in spans), max(span.ended_s for span in spans)
    trained = union((span.started_s, span.ended_s) for span in spans if span.stage == TRAINER)
    waited = union((span.started_s, span.ended_s) for span in spans if span.stage == WAITING)
    for_generation, for_either = overlap(waited, generating), overlap(waited, at_work)
    waited_s, trained_s = _length(waited), _length(trained)
    return StepTimes(
        step=step,
        started_s=first,
        ended_s=last,
        trained_s=trained_s,
        for_generation_s=for_generation,
        for_rewards_s=max(0.0, for_either - for_generation),
        for_nothing_s=max(0.0, waited_s - for_either),
        other_s=max(0.0, last - first - waited_s - trained_s),
    )


def _latest_attempt(spans: Sequence[SpanRow]) -> list[SpanRow]:
    """The spans from which the step's last update was made; none where it was never finished.

    A resume does steps again: an attempt ends with an update, or with what was given up.
    """
    attempts: list[list[SpanRow]] = [[]]
    for span in sorted(spans, key=lambda span: span.started_s):
        attempts[-1].append(span)
        if span.name.endswith(("update", GIVEN_UP)):
            attempts.append([])
    done = [attempt for attempt in attempts if attempt and attempt[-1].name.endswith("update")]
    return done[-1] if done else []


def busy_shares(spans: Sequence[SpanRow]) -> dict[str, tuple[float, float]]:
    """For each stage with spans: seconds busy, and their share of the time in which any stage was.

    Between two parts of a run that was resumed later none is.
    """
    total_s = _length(union((span.started_s, span.ended_s) for span in spans))
    shares = {}
    for stage in STAGES:
        busy_s = _length(union((one.started_s, one.ended_s) for one in spans if one.stage == stage))
        if busy_s:
            shares[stage] = (busy_s, busy_s / total_s)
    return shares


def overlap(left: Sequence[Interval], right: Sequence[Interval]) -> float:
    """Seconds in both; each is disjoint and in order."""
    seconds = 0.0
    for start, end in left:
        for index in range(bisect_left(right, start, key=lambda piece: piece[1]), len(right)):
            if right[index][0] >= end:
                break
            seconds += min(end, right[index][1]) - max(start, right[index][0])
    return seconds


def _length(intervals: Sequence[Interval]) -> float:
    """The seconds of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def chrome_trace(spans: Sequence[Span], run: str) -> dict[str, Any]:
    """The trace as JSON's types; times count from the first span."""
    origin_s = min((span.started_s for span in spans), default=0.0)
    events: list[dict[str, Any]] = []
    stages = dict.fromkeys((*STAGES, *(span.stage for span in spans)))
    for number, stage in enumerate(stages, start=1):
        own = sorted((span for span in spans if span.stage == stage), key=lambda span: span.started_s)
        if own:
            events += _names(number, stage)
        for span, lane in zip(own, lanes(own), strict=True):
            fields = asdict(span)
            events.append(
                {
                    "ph": "X",
                    "name": span.name,
                    "cat": stage,
                    "pid": number,
                    "tid": lane,
                    "ts": round(1e6 * (span.started_s - origin_s)),
                    "dur": round(1e6 * span.seconds),
                    "args": {
                        name: fields[field]
                        for field, name in _DETAILS.items()
                        if fields.get(field) is not None
                    },
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"run": run}}


def _names(number: int, stage: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": stage}},
        {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}},
    ]


def lanes(spans: Sequence[Span]) -> list[int]:
    """For spans in the order of their starts: the lowest lane, from 0, that is free when each begins."""
    ends: list[float] = []
    found = []
    for span in spans:
        lane = next((i for i, end in enumerate(ends) if end <= span.started_s), len(ends))
        if lane == len(ends):
            ends.append(span.ended_s)
        else:
            ends[lane] = span.ended_s
        found.append(lane)
    return found
