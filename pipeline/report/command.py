"""python -m pipeline report RUN: one HTML file of a run, and its timeline as a Chrome trace.

Exit status 2 for what is no run folder, or where the file cannot be written. Reads; trains nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pipeline.command_line import USER_ERROR, make_parser, parse, print_error
from pipeline.host.files import write_text_atomically
from pipeline.report.data import run_data
from pipeline.report.page import render_page
from pipeline.report.reader import RunReader
from pipeline.report.trace import chrome_trace

_MAX_SAMPLES = 5000


def main(argv: Sequence[str] | None = None) -> int:
    """Write report and trace; returns the exit status."""
    parser = make_parser("python -m pipeline report", "Write a run's report.")
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a run, finished or not")
    parser.add_argument("--output", metavar="FILE", type=Path, help="default: RUN/report.html")
    parser.add_argument("--trace", metavar="FILE", type=Path, help="default: RUN/trace.json")
    parser.add_argument(
        "--samples", metavar="N", type=int, default=400, help="completions in the report; default: 400"
    )
    arguments = parse(parser, argv)
    try:
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
    except (ValueError, OSError) as error:
        print_error(error)
        return USER_ERROR
    print(f"report: {report}")
    print(f"trace:  {trace} (open it in ui.perfetto.dev)" if spans else "no trace: the run kept no timeline")
    return 0


def _refuse_folder(file: Path) -> None:
    if file.is_dir() or not file.parent.is_dir():
        raise ValueError(f"{str(file)!r} cannot be written: give a file in a folder that exists")
