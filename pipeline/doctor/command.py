"""Is this machine fit for a run, and what limited a run that is over?

    python -m pipeline doctor                  every check of the machine, with a verdict and a mend
    python -m pipeline doctor runs/NAME        the bottleneck report of a run
    python -m pipeline doctor --json           either, for programs

Exit status: 0 where nothing fails (warnings are no failures), 1 where something does, 2 for a command line
or a run that cannot be read. Changes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from configs.command_line import make_parser, run_command
from configs.schema import OutputConfig
from pipeline.doctor.checks import Finding, examine, worst
from pipeline.doctor.machine import Machine, gather
from pipeline.planning.measured_run import as_text, find_bottleneck

_COLOURS = {"ok": "green", "warning": "yellow", "failure": "red"}
_WIDTH = 15


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = make_parser("python -m pipeline doctor", str(__doc__).partition("\n")[0])
    parser.add_argument("run", nargs="?", metavar="RUN_DIR", help="report on that run instead of the machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--output-dir", metavar="DIR", help="folder of run folders, to look for room there")
    return run_command(parser, argv, _examine)


def _examine(arguments: argparse.Namespace) -> int:
    if arguments.run is not None:
        found = find_bottleneck(Path(arguments.run).expanduser())
        print(json.dumps(asdict(found)) if arguments.json else as_text(found))
        return 0
    print("importing every library and starting a sandbox: some 20 seconds", file=sys.stderr)
    machine = gather(Path(arguments.output_dir or OutputConfig().dir).expanduser())
    return report_machine(machine, is_json=arguments.json)


def report_machine(machine: Machine, *, is_json: bool) -> int:
    """Print every finding about ``machine``; returns the exit status."""
    findings = examine(machine)
    verdict = worst(findings)
    if is_json:
        facts = asdict(machine) | {"flags": sorted(machine.flags)}
        found = [asdict(finding) for finding in findings]
        print(json.dumps({"verdict": verdict, "findings": found, "machine": facts}))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for finding in findings:
            _show(console, finding)
        console.print(_conclusion(findings))
    return 1 if verdict == "failure" else 0


def _show(console: Console, finding: Finding) -> None:
    line = Text(f"{finding.verdict:<9}", style=_COLOURS[finding.verdict])
    console.print(line.append(f"{finding.subject:<{_WIDTH}}{finding.said}", style="default"))
    if finding.mend:
        console.print(Text(f"{'':<9}{'':<{_WIDTH}}-> {finding.mend}"))


def _conclusion(findings: Sequence[Finding]) -> str:
    counts = [sum(finding.verdict == verdict for finding in findings) for verdict in ("failure", "warning")]
    if not any(counts):
        return "Everything is as a run wants it."
    said = f"failures: {counts[0]}, warnings: {counts[1]}"
    return said if counts[0] else f"{said}; a run works here"
