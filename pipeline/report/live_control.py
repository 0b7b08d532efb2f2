"""Starts, stops and resumes runs for the live page, as a user would at the terminal.

A run that is started here is a process of its own session: it goes on when the server ends. Stopping one is a
SIGTERM to the process that holds the run folder's lock: it saves its last step, then ends
(pipeline.host.stopping). Who was asked before is not asked again. Settings are checked before anything is
started.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.load import resolve
from configs.yaml_text import parse_value
from pipeline.processes.local import search_path
from pipeline.record.ledger import STOP
from pipeline.record.run_folder import BASELINE_MARK
from pipeline.report.reader import RunReader, lock_owner

_LOGS = ".watch"
_TAIL_BYTES = 6000
_RUN = "import sys; from pipeline.cli import train_accelerated; sys.exit(train_accelerated())"
# What the page's form may set, besides lines KEY=VALUE for --set.
_FIELDS = {
    "model": "model.name",
    "dataset": "dataset.name",
    "max_steps": "training.max_steps",
    "run_name": "output.name",
}


def is_measuring(path: Path) -> bool:
    """Whether a baseline runs in the folder ``path`` and does not train yet: till then it has no run.db."""
    is_baseline, has_begun = (path / BASELINE_MARK).exists(), (path / "run.db").exists()
    return is_baseline and not has_begun and lock_owner(path) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run that was started from here: what was asked for, its process and what it printed."""

    title: str
    process: subprocess.Popen[bytes]
    log: Path

    def as_json(self) -> dict[str, Any]:
        """For the page: the exit status is None while it runs; the end of its output."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            tail = file.read().decode("utf-8", "replace")
        return {
            "title": self.title,
            "pid": self.process.pid,
            "exit_status": self.process.poll(),
            "tail": tail,
        }


class RunControl:
    """Acts on the run folders in ``root``; ``command`` starts a run, with the flags after it."""

    def __init__(self, root: Path, command: Sequence[str] = (sys.executable, "-P", "-c", _RUN)) -> None:
        self._root = root
        self._command = tuple(command)
        self.jobs: list[Job] = []

    def stop(self, path: Path) -> str:
        """Ask a run to end after its last finished step is saved. Raises ValueError where none is running."""
        pid = lock_owner(path)
        # Before anything is read: a baseline that measures has no run.db yet.
        if pid is not None and (path / BASELINE_MARK).exists():
            raise ValueError(
                f"{path.name} is a run of train_code_grpo, which saves nothing when it is stopped and "
                "cannot be resumed: end it where it was started"
            )
        reader = RunReader(path)
        if pid is None:
            raise ValueError(f"{reader.name} is not running")
        (row,) = reader.query("SELECT host FROM runs ORDER BY run_id DESC LIMIT 1")
        if row["host"] != socket.gethostname():
            # Its process number would mean another process here.
            raise ValueError(f"{reader.name} runs on {row['host']}: stop it there")
        query = "SELECT 1 FROM events WHERE kind = ? AND time > (SELECT MAX(started_at) FROM runs)"
        if reader.query(query, (STOP,)):
            # A second signal would end it before anything is saved.
            return f"{reader.name} was asked to stop before: it saves its last finished step and ends"
        os.kill(pid, signal.SIGTERM)
        return f"{reader.name} was asked to stop: it saves its last finished step and ends"

    def resume(self, reader: RunReader) -> str:
        """Go on with a run that was stopped. Raises ValueError where it runs, ended or cannot go on."""
        state = reader.state()
        if state.status == "running":
            raise ValueError(f"{reader.name} is running")
        if state.status == "finished":
            raise ValueError(f"{reader.name} has done all of its {state.max_steps} steps")
        if (reader.path / BASELINE_MARK).exists():
            raise ValueError(f"{reader.name} is a run of train_code_grpo, which cannot be resumed")
        self._launch(f"resume {reader.name}", ["--resume", str(reader.path)])
        return f"{reader.name} is being resumed"

    def start(self, wanted: Mapping[str, Any]) -> str:
        """Start a run. ``wanted``: mode, the names of _FIELDS, and "set", a list of KEY=VALUE.

        Raises ValueError for settings that cannot be used, as train_accelerated does.
        """
        unknown = sorted(set(wanted) - {"mode", "set", *_FIELDS})
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: not known here; use KEY=VALUE lines")
        mode = str(wanted.get("mode") or "balanced")
        lines = wanted.get("set") or []
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise ValueError("set: give a list of KEY=VALUE texts")
        lines = [line.strip() for line in lines if line.strip()]
        given = {name: str(wanted[name]).strip() for name in _FIELDS if str(wanted.get(name) or "").strip()}
        keys = {line.partition("=")[0].strip() for line in lines}
        if "output.dir" in keys:
            raise ValueError("output.dir: runs that are started here go to the folder that is shown here")
        if twice := sorted(keys & {"acceleration.mode", *(_FIELDS[name] for name in given)}):
            raise ValueError(
                f"{', '.join(twice)}: has a field of its own, which would win; leave the line out"
            )
        flags: dict[str, object] = {_FIELDS[name]: text for name, text in given.items()}
        if "max_steps" in given:
            flags["training.max_steps"] = parse_value(given["max_steps"])
        flags["output.dir"] = str(self._root)
        resolve(None, mode, lines, flags)
        arguments = ["--speedup-mode", mode, "--output-dir", str(self._root)]
        # One word each: a value that begins with a hyphen is no flag.
        arguments += [f"--{name.replace('_', '-')}={text}" for name, text in given.items()]
        arguments += [f"--set={line}" for line in lines]
        self._launch(f"start {given.get('run_name', 'a run')}", arguments)
        return "the run is starting; it is listed when its folder is there"

    def _launch(self, title: str, arguments: Sequence[str]) -> None:
        folder = self._root / _LOGS
        folder.mkdir(exist_ok=True)
        log = folder / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{len(self.jobs) + 1}.log"
        with log.open("xb") as file:
            process = subprocess.Popen(
                [*self._command, *arguments],
                env=os.environ | search_path(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.jobs.append(Job(title=title, process=process, log=log))
