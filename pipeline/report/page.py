"""The page of a run, the template with data, script and style inside it; ``python -m pipeline report RUN``.

The page draws from ``run_data`` alone, what it shows as JSON's types, whether it is a file (all of it inside)
or live (the parts that grow are asked for again, from a step on). The command writes that one file, and the
run's timeline as a Chrome trace. Exit status 2 for what is no run folder, or where the file cannot be
written. Reads; trains nothing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from configs.command_line import make_parser, run_command
from configs.schema import Config
from pipeline.host.files import write_text_atomically
from pipeline.host.spans import STAGES
from pipeline.report.reader import RunReader, SpanRow, StepRow
from pipeline.report.samples import examples, spread_of_samples
from pipeline.report.waits import StepTimes, busy_shares, chrome_trace, step_times

_DIGITS = 5
_MAX_SAMPLES = 5000
# In the order in which the page needs them.
_SCRIPTS = ("uplot.min.js", "base.js", "charts.js", "timeline.js", "samples.js", "runs.js", "page.js")
_STYLES = ("uplot.min.css", "page.css")


def run_data(reader: RunReader, *, num_samples: int) -> dict[str, Any]:
    """All that the page of a run needs, with about ``num_samples`` rollouts. Raises as RunReader does."""
    shown_samples = spread_of_samples(reader, num_samples)
    pairs = examples(reader)
    task_ids = {sample["task_id"] for sample in shown_samples} | {pair["task_id"] for pair in pairs}
    growing = growing_data(reader)
    summary = reader.json_file("summary.json") or {}
    hardware = reader.newest_event("hardware")
    return {
        **growing,
        "examples": pairs,
        "samples": shown_samples,
        "tasks": reader.tasks(sorted(task_ids)[:500]),
        # What does not change while the run trains.
        "name": reader.name,
        "settings": flat_settings(reader.settings()),
        "hardware": summary.get("hardware") or ({"hardware": hardware} if hardware else {}),
        "versions": summary.get("versions", {}),
        "commit": summary.get("commit"),
        "isolation_level": summary.get("isolation_level"),
        "seconds": summary.get("seconds", {}),
        "evaluation": _evaluation(reader),
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
        "edition": reader.edition(),
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
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.{_DIGITS}g}")
        for value in values
    ]


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
        # What stands in a mapping has no default of its own.
        [name, _text(value), defaults.get(name) != value]
        for name, value in _leaves(values)
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


def _evaluation(reader: RunReader) -> dict[str, Any]:
    """The summary's account of it; of a run that has not ended, what was measured before training."""
    whens = ("before", "after")
    told: Mapping[str, Any] = reader.evaluation() or {
        when: reader.json_file(f"evaluation_{when}.json") for when in whens
    }
    measured = {when: told.get(when) and {"pass_at_1": told[when].get("pass_at_1")} for when in whens}
    return {**measured, "difference": told.get("difference")}


def main(argv: Sequence[str] | None = None) -> int:
    """Write report and trace; returns the exit status."""
    parser = make_parser("python -m pipeline report", "Write a run's report.")
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a run, finished or not")
    parser.add_argument("--output", metavar="FILE", type=Path, help="default: RUN/report.html")
    parser.add_argument("--trace", metavar="FILE", type=Path, help="default: RUN/trace.json")
    parser.add_argument(
        "--samples", metavar="N", type=int, default=400, help="completions in the report; default: 400"
    )
    return run_command(parser, argv, _write)


def _write(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.samples <= _MAX_SAMPLES:
        raise ValueError(f"--samples: {arguments.samples} is not allowed; allowed: 0 to {_MAX_SAMPLES}")
    reader = RunReader(arguments.run)
    report = arguments.output or reader.path / "report.html"
    trace = arguments.trace or reader.path / "trace.json"
    for file in (report, trace):
        if file.is_dir() or not file.parent.is_dir():
            raise ValueError(f"{str(file)!r} cannot be written: give a file in a folder that exists")
    write_text_atomically(report, render_page(run_data(reader, num_samples=arguments.samples)))
    spans = reader.spans()
    if spans:
        write_text_atomically(trace, json.dumps(chrome_trace(spans, reader.name), separators=(",", ":")))
    print(f"report: {report}")
    print(f"trace:  {trace} (open it in ui.perfetto.dev)" if spans else "no trace: the run kept no timeline")
    return 0


def render_page(data: dict[str, Any] | None, *, live: dict[str, Any] | None = None) -> str:
    """The HTML of a run's page with ``data``; ``live`` (token, address) makes it ask for what is new.

    Without ``data`` it is the live page that lists and compares runs.
    """
    return _template().render(
        title=data["name"] if data else "runs",
        kind="run" if data else "runs",
        style=Markup(_assets(*_STYLES)),
        script=Markup(_assets(*_SCRIPTS)),
        data=data,
        live=live,
    )


@lru_cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    # Its filter tojson makes what may stand in a script element, whatever a model wrote into it.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.from_string(_assets("page.html"))


@lru_cache
def _assets(*names: str) -> str:
    folder = files("pipeline.report").joinpath("assets")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
