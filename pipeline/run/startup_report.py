"""A measured start as a table, a chart and JSON; pure, from spans to text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from pipeline.host.spans import FIRST_SCORE, FIRST_TOKEN, Span

_WIDTH, _ROW, _LEFT, _TOP = 1100, 20, 300, 48
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948")


def moment(spans: Sequence[Span], name: str) -> float | None:
    """When the first span called ``name`` ended (seconds since 1970), or None."""
    return min((span.ended_s for span in spans if span.name == name), default=None)


def overlap_s(span: Span, others: Sequence[Span]) -> float:
    """The seconds of ``span`` during which at least one span of another process ran."""
    pieces = sorted(
        (max(span.started_s, other.started_s), min(span.ended_s, other.ended_s))
        for other in others
        if other.process != span.process
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
                "process": span.process,
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
        beside = sorted({other.process for other in spans if _do_overlap(span, other)})
        names = f" ({', '.join(beside)})" if beside else ""
        start_s, end_s = span.started_s - origin_s, span.ended_s - origin_s
        cpu = "" if span.cpu_s is None else f"{span.cpu_s:.2f}"
        lines.append(
            f"{start_s:7.2f} {end_s:7.2f} {span.seconds:7.2f} {cpu:>7} {overlap_s(span, spans):7.2f}  "
            f"{span.process}: {span.name}{names}"
        )
    return "\n".join(lines)


def as_svg(spans: Sequence[Span], origin_s: float, title: str) -> str:
    """A chart of the start, one row a span, grouped by process; needs nothing but the file itself."""
    processes = list(dict.fromkeys(span.process for span in spans))
    rows = [span for process in processes for span in spans if span.process == process]
    total_s = max((span.ended_s - origin_s for span in rows), default=1.0) or 1.0
    scale = (_WIDTH - _LEFT - 80) / total_s
    height = _TOP + _ROW * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="18" font-size="14">{escape(title)}</text>',
    ]
    step_s = next(step for step in (0.5, 1, 2, 5, 10, 20, 60, 300, 3600, total_s) if total_s / step <= 16)
    for number in range(int(total_s / step_s) + 1):
        x = _LEFT + number * step_s * scale
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{_TOP - 12}" fill="#666">{number * step_s:g} s</text>')
    for index, span in enumerate(rows):
        parts += _bar(span, origin_s, scale, _TOP + index * _ROW, _COLOURS[processes.index(span.process) % 8])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(span: Span, origin_s: float, scale: float, y: float, colour: str) -> list[str]:
    x, width = _LEFT + (span.started_s - origin_s) * scale, max(2.0, span.seconds * scale)
    label = escape(f"{span.process}: {span.name}")
    return [
        f'<text x="8" y="{y + 14:.0f}">{label}</text>',
        f'<rect x="{x:.1f}" y="{y + 3:.0f}" width="{width:.1f}" height="{_ROW - 6}" fill="{colour}">'
        f"<title>{label}: {span.seconds:.2f} s, process {span.pid}</title></rect>",
        f'<text x="{x + width + 4:.1f}" y="{y + 14:.0f}" fill="#444">{span.seconds:.2f}</text>',
    ]


def _do_overlap(span: Span, other: Span) -> bool:
    return (
        other.process != span.process
        and span.seconds > 0
        and other.seconds > 0
        and min(span.ended_s, other.ended_s) > max(span.started_s, other.started_s)
    )
