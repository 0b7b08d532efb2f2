"""Spans as a Chrome trace: of a run, or of a start; which ui.perfetto.dev and chrome://tracing open.

The format: "Trace Event Format", complete events ("ph": "X") with microseconds; one process a stage, and
in it as many threads as it had spans at once. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pipeline.host.spans import STAGES, Span

# What is told of a span beside its times, and under which name.
_DETAILS = {"step": "step", "draw_id": "draw", "num_tokens": "tokens", "pid": "process", "cpu_s": "cpu_s"}


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
