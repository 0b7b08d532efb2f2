"""A measured start as a table and as JSON; pure, from spans to text. pipeline.report.trace draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.host.spans import Span
from pipeline.host.startup import FIRST_SCORE, FIRST_TOKEN


def moment(spans: Sequence[Span], name: str) -> float | None:
    """When the first span called ``name`` ended (seconds since 1970), or None."""
    return min((span.ended_s for span in spans if span.name == name), default=None)


def overlap_s(span: Span, others: Sequence[Span]) -> float:
    """The seconds of ``span`` during which at least one span of another process ran."""
    pieces = sorted(
        (max(span.started_s, other.started_s), min(span.ended_s, other.ended_s))
        for other in others
        if other.stage != span.stage
    )
    covered_s, reached_s = 0.0, span.started_s
    for started_s, ended_s in pieces:
        covered_s += max(0.0, ended_s - max(started_s, reached_s))
        reached_s = max(reached_s, ended_s)
    return covered_s


def as_record(spans: Sequence[Span], origin_s: float) -> dict[str, Any]:
    """The start as JSON: seconds after ``origin_s``, the start of the first process (itself absolute)."""
    score_s, token_s = moment(spans, FIRST_SCORE), moment(spans, FIRST_TOKEN)
    return {
        "process_started_unix_s": origin_s,
        "first_completion_s": None if token_s is None else round(token_s - origin_s, 3),
        "first_scored_rollout_s": None if score_s is None else round(score_s - origin_s, 3),
        "spans": [
            {
                "process": span.stage,
                "name": span.name,
                "pid": span.pid,
                "start_s": round(span.started_s - origin_s, 3),
                "end_s": round(span.ended_s - origin_s, 3),
                "cpu_s": None if span.cpu_s is None else round(span.cpu_s, 3),
                "overlapped_s": round(overlap_s(span, spans), 3),
            }
            for span in spans
        ],
    }


def as_table(spans: Sequence[Span], origin_s: float) -> str:
    """One line a span: when, how long, processor time, how much other processes worked beside."""
    lines = [f"{'start':>7} {'end':>7} {'took':>7} {'cpu':>7} {'beside':>7}  process: phase (beside whom)"]
    for span in spans:
        beside = sorted({other.stage for other in spans if _do_overlap(span, other)})
        names = f" ({', '.join(beside)})" if beside else ""
        start_s, end_s = span.started_s - origin_s, span.ended_s - origin_s
        cpu = "" if span.cpu_s is None else f"{span.cpu_s:.2f}"
        lines.append(
            f"{start_s:7.2f} {end_s:7.2f} {span.seconds:7.2f} {cpu:>7} {overlap_s(span, spans):7.2f}  "
            f"{span.stage}: {span.name}{names}"
        )
    return "\n".join(lines)


def _do_overlap(span: Span, other: Span) -> bool:
    return (
        other.stage != span.stage
        and span.seconds > 0
        and other.seconds > 0
        and min(span.ended_s, other.ended_s) > max(span.started_s, other.started_s)
    )
