"""The page of a run, the template with data, script and style inside it; ``python -m pipeline report RUN``.

The command writes that one file, and the run's timeline as a Chrome trace. Exit status 2 for what is no run
folder, or where the file cannot be written. Reads; trains nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from configs.command_line import make_parser, run_command
from pipeline.host.files import write_text_atomically
from pipeline.report.data import run_data
from pipeline.report.reader import RunReader
from pipeline.report.trace import chrome_trace

_MAX_SAMPLES = 5000
# In the order in which the page needs them.
_SCRIPTS = ("uplot.min.js", "base.js", "charts.js", "timeline.js", "samples.js", "runs.js", "page.js")
_STYLES = ("uplot.min.css", "page.css")


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
        _refuse_folder(file)
    write_text_atomically(report, render_page(run_data(reader, num_samples=arguments.samples)))
    spans = reader.spans()
    if spans:
        write_text_atomically(trace, json.dumps(chrome_trace(spans, reader.name), separators=(",", ":")))
    print(f"report: {report}")
    print(f"trace:  {trace} (open it in ui.perfetto.dev)" if spans else "no trace: the run kept no timeline")
    return 0


def _refuse_folder(file: Path) -> None:
    if file.is_dir() or not file.parent.is_dir():
        raise ValueError(f"{str(file)!r} cannot be written: give a file in a folder that exists")


def render_page(data: dict[str, Any] | None, *, live: dict[str, Any] | None = None) -> str:
    """The HTML of a run's page with ``data``; ``live`` (token, address) makes it ask for what is new.

    Without ``data`` it is the live page that lists and compares runs.
    """
    return _template().render(
        title=data["name"] if data else "runs",
        kind="run" if data else "runs",
        style=Markup(_joined(_STYLES)),
        script=Markup(_joined(_SCRIPTS)),
        data=data,
        live=live,
    )


@lru_cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    # Its filter tojson makes what may stand in a script element, whatever a model wrote into it.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.from_string(_asset("page.html"))


@lru_cache
def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(_asset(name) for name in names)


def _asset(name: str) -> str:
    return files("pipeline.report").joinpath("assets", name).read_text(encoding="utf-8")
