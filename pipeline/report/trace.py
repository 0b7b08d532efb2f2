"""The spans of a run as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

The format: "Trace Event Format", complete events ("ph": "X") with microseconds; one process a stage, and
in it as many threads as it had spans at once. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.host.spans import STAGES
from pipeline.report.reader import SpanRow


def chrome_trace(spans: Sequence[SpanRow], run: str) -> dict[str, Any]:
    """The trace as JSON's types; times count from the first span."""
    origin_s = min((span.started_s for span in spans), default=0.0)
    events: list[dict[str, Any]] = []
    for number, stage in enumerate(STAGES, start=1):
        own = sorted((span for span in spans if span.stage == stage), key=lambda span: span.started_s)
        if own:
            events += _names(number, stage)
        for span, lane in zip(own, lanes(own), strict=True):
            arguments = {"step": span.step, "draw": span.draw_id, "tokens": span.num_tokens}
            events.append(
                {
                    "ph": "X",
                    "name": span.name,
                    "cat": stage,
                    "pid": number,
                    "tid": lane,
                    "ts": round(1e6 * (span.started_s - origin_s)),
                    "dur": round(1e6 * (span.ended_s - span.started_s)),
                    "args": {name: value for name, value in arguments.items() if value is not None},
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"run": run}}


def _names(number: int, stage: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": stage}},
        {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}},
    ]


def lanes(spans: Sequence[SpanRow]) -> list[int]:
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
