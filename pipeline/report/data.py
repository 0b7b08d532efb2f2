"""What the page shows of one run, as JSON's types: curves, timeline, waits, examples, samples, settings.

The page draws from this alone, whether it is a file (all of it inside) or live (the parts that grow are asked
for again, from a step on).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

import numpy as np

from configs.schema import Config
from pipeline.host.spans import STAGES
from pipeline.record.metric_names import FAMILIES, METRICS
from pipeline.report.reader import RunReader, SpanRow, StepRow
from pipeline.report.samples import examples, spread_of_samples
from pipeline.report.waits import StepTimes, busy_shares, step_times

_DIGITS = 5


def run_data(reader: RunReader, *, num_samples: int) -> dict[str, Any]:
    """All that the page of a run needs, with about ``num_samples`` rollouts. Raises as RunReader does."""
    shown_samples = spread_of_samples(reader, num_samples)
    pairs = examples(reader)
    task_ids = {sample["task_id"] for sample in shown_samples} | {pair["task_id"] for pair in pairs}
    return {
        **growing_data(reader),
        **about(reader),
        "examples": pairs,
        "samples": shown_samples,
        "tasks": reader.tasks(sorted(task_ids)[:500]),
    }


def about(reader: RunReader) -> dict[str, Any]:
    """What does not change while the run trains: settings, hardware, evaluations, units."""
    summary = reader.json_file("summary.json") or {}
    return {
        "name": reader.name,
        "folder": str(reader.path),
        "started_s": reader.started_s(),
        "settings": flat_settings(reader.settings()),
        "hardware": summary.get("hardware", {}),
        "versions": summary.get("versions", {}),
        "commit": summary.get("commit"),
        "isolation_level": summary.get("isolation_level"),
        "seconds": summary.get("seconds", {}),
        "evaluation": _evaluation(reader, summary),
        "metrics": {metric.name: [metric.unit, metric.meaning] for metric in (*METRICS, *FAMILIES)},
        "stages": list(STAGES),
    }


def growing_data(reader: RunReader, after_step: int = 0, after_span: int = 0) -> dict[str, Any]:
    """What grows: steps above ``after_step``, spans above ``after_span``, events, where the run stands.

    ``waits`` are of steps from ``after_step`` on, ``busy`` is over the whole timeline; both are empty where
    no span is new.
    """
    origin_s = reader.started_s()
    spans = reader.spans(after_span)
    state = reader.state()
    # What a step waited for began, and may have been entered, with the steps before it.
    every = reader.spans() if after_span and spans else spans
    # A run that went back to a checkpoint has spans of steps that it has not done again yet.
    times = [one for one in step_times(every) if after_step <= one.step <= state.step]
    shares = busy_shares(every)
    return {
        "state": asdict(state),
        "series": series(reader.steps(after_step), origin_s),
        "spans": _packed_spans(spans, origin_s),
        "last_span": max((span.span_id for span in spans), default=after_span),
        "waits": [_packed_times(one, origin_s) for one in times],
        "busy": {stage: [round(busy_s, 2), round(share, 4)] for stage, (busy_s, share) in shares.items()},
        "events": [[round(time_s - origin_s, 1), kind, text] for time_s, kind, text in reader.events()],
    }


def series(steps: Sequence[StepRow], origin_s: float) -> dict[str, list[float | None]]:
    """One column a metric, null where a step has none; "step" and "time_s" (since ``origin_s``) as well."""
    names = sorted({name for row in steps for name in row.metrics})
    columns: dict[str, list[float | None]] = {
        "step": [row.step for row in steps],
        "time_s": [round(row.ended_s - origin_s, 2) for row in steps],
    }
    for name in names:
        columns[name] = _short([row.metrics.get(name) for row in steps])
    return columns


def _short(values: Sequence[float | None]) -> list[float | None]:
    """``values`` with as many digits as a chart can show: a long run's page stays small."""
    exact = np.array(values, dtype=float)  # None becomes NaN
    exact[~np.isfinite(exact)] = np.nan
    size = np.floor(np.log10(np.abs(exact), out=np.zeros_like(exact), where=np.abs(exact) > 0))
    # Scaled up and down by whole powers of ten, which keeps the result's decimal form short.
    up, down = 10.0 ** np.maximum(_DIGITS - 1 - size, 0), 10.0 ** np.maximum(size - _DIGITS + 1, 0)
    short: list[float] = (np.rint(exact * up / down) * down / up).tolist()
    return [None if value != value else value for value in short]


def _packed_times(times: StepTimes, origin_s: float) -> list[float]:
    """The fields of ``times`` in their order, the moments since ``origin_s``."""
    step, started_s, ended_s, *parts = astuple(times)
    return [step, *(round(value, 3) for value in (started_s - origin_s, ended_s - origin_s, *parts))]


def _packed_spans(spans: Sequence[SpanRow], origin_s: float) -> list[list[Any]]:
    """Rows of stage (its place in STAGES), name, start, end, step, draw, tokens."""
    return [
        [
            STAGES.index(span.stage),
            span.name,
            round(span.started_s - origin_s, 3),
            round(span.ended_s - origin_s, 3),
            span.step,
            span.draw_id,
            span.num_tokens,
        ]
        for span in spans
    ]


def flat_settings(values: Mapping[str, Any]) -> list[list[Any]]:
    """Dotted name, value as text, whether it differs from the default; in the file's order."""
    defaults = dict(_leaves(Config().model_dump(mode="json")))
    return [
        [name, _text(value), name in defaults and defaults[name] != value] for name, value in _leaves(values)
    ]


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found += _leaves(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _evaluation(reader: RunReader, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary's account of it; of a run that has not ended, what was measured before training."""
    whens = ("before", "after")
    told: Mapping[str, Any] = summary.get("evaluation") or {
        when: reader.json_file(f"evaluation_{when}.json") for when in whens
    }
    measured = {when: told.get(when) and {"pass_at_1": told[when].get("pass_at_1")} for when in whens}
    return {**measured, "difference": told.get("difference")}
