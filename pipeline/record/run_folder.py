"""One run: its folder, where only one process writes, and what all parts of it are given.

    runs/<name>/config.yaml  run.db  metrics.jsonl  samples.jsonl  summary.json  reward_cache.jsonl
                evaluation_before.json  evaluation_after.json  evaluation_step-000010.json
                checkpoints/step-000010/

It names the files and writes the small ones whole; what is in run.db, metrics.jsonl and the
checkpoints belongs to ledger, metrics and checkpoint. ``Context`` is what is made of a run beside it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from filelock import BaseFileLock
from pydantic import TypeAdapter

from configs.errors import CommandEnd
from configs.schema import Config, OutputConfig
from pipeline.errors import RunStoppedError
from pipeline.host.files import locked, no_folder, write_text_atomically
from pipeline.host.spans import Stopwatch, Timeline
from pipeline.host.stopping import StopRequest
from pipeline.record.ledger import Ledger
from pipeline.record.progress import Progress
from pipeline.record.tracking import Tracking

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


# In the folder of a run of the baseline, which leaves the same files but cannot be resumed.
BASELINE_MARK = "baseline.txt"
_BASELINE_TEXT = "made by train_code_grpo, whose checkpoints hold weights only; it cannot be resumed\n"
# A page that looks who holds the lock (pipeline.report.reader) has it for less than a millisecond.
_LOCK_WAIT_S = 0.2


class RunPaths:
    """What lies where in the run folder ``path``; takes no lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Of "." and of a link it is that of the folder itself.
        self.name = path.resolve().name
        self.config = path / "config.yaml"
        self.db = path / "run.db"
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.jsonl"
        self.reward_cache = path / "reward_cache.jsonl"
        self.summary = path / "summary.json"
        self.checkpoints = path / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """Where the checkpoint of ``step`` lies, or will lie."""
        return self.checkpoints / f"step-{step:06d}"

    def evaluation(self, when: str) -> Path:
        """The file of the measurement "before" or "after" training."""
        return self.path / f"evaluation_{when}.json"


class RunFolder(RunPaths):
    """One run's folder, locked for this process until ``close()`` or the process's end.

    Make one with ``create`` (a new run) or ``open`` (resume); the constructor takes the lock of a
    folder that exists.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._is_new = False
        self._lock = _lock(path)

    @classmethod
    def create(cls, output: OutputConfig, config_yaml: str, *, is_baseline: bool = False) -> RunFolder:
        """Make ``<output.dir>/<output.name>`` and write the resolved configuration into it.

        Without a name the run is named by date and time. The folder of a baseline is marked as that. Raises
        ValueError when the name is taken.
        """
        runs = Path(output.dir).expanduser()
        try:
            runs.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ValueError(f"output.dir: {str(runs)!r} is not a folder and cannot become one") from error
        except OSError as error:
            raise ValueError(f"output.dir: {str(runs)!r} cannot be made: {error.strerror}") from error
        path = _make_dated(runs) if output.name is None else _make_named(runs, output.name)
        folder = None
        try:
            folder = cls(path)
            folder._is_new = True
            folder.checkpoints.mkdir()
            if is_baseline:
                (path / BASELINE_MARK).write_text(_BASELINE_TEXT, encoding="utf-8")
            write_text_atomically(folder.config, config_yaml)
        except BaseException as error:
            if folder is not None:
                folder.close()
            # A half-made folder would block the name for the next try.
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                error.filename = error.filename or str(path)
            raise
        return folder

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Take up the run folder at ``path`` again.

        Raises ValueError when there is none, or it is in use.
        """
        path = Path(path).expanduser()
        if not path.is_dir():
            raise ValueError(f"run folder {str(path)!r} {no_folder(path)}; give the folder of an earlier run")
        if not (path / "config.yaml").is_file():
            raise ValueError(f"{str(path)!r} is not a run folder: it has no config.yaml")
        if (path / BASELINE_MARK).exists():
            raise ValueError(f"run folder {str(path)!r} was {_BASELINE_TEXT.strip()}")
        folder = cls(path)
        folder.checkpoints.mkdir(exist_ok=True)
        return folder

    def write_config(self, config_yaml: str) -> None:
        """Write the configuration that a resumed run goes on with, whole."""
        write_text_atomically(self.config, config_yaml)

    def write_evaluation(self, when: str, report: DataclassInstance) -> None:
        """Write a report of the evaluation to evaluation_<when>.json, whole."""
        _write(self.evaluation(when), report)

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Write summary.json whole. NaN becomes null."""
        _write(self.summary, summary)

    def remove_end(self) -> None:
        """Remove what the run wrote at its end: it goes on, and the numbers are of an earlier step."""
        self.summary.unlink(missing_ok=True)
        self.evaluation("after").unlink(missing_ok=True)

    def close(self) -> None:
        """Give the lock back; calling it again does nothing."""
        self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_failure = isinstance(error, ValueError | CommandEnd | TimeoutError)
        if is_failure and not isinstance(error, RunStoppedError) and not self.is_kept():
            # The corrected command shall find the name free.
            shutil.rmtree(self.path, ignore_errors=True)
        self.close()

    def is_kept(self) -> bool:
        """Whether the folder outlives a failure: it was there before, or has draws or results."""
        if not self._is_new or any(self.path.glob("evaluation_*")) or any(self.checkpoints.iterdir()):
            return True
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.db)) as database:
            return database.execute("SELECT 1 FROM draws LIMIT 1").fetchone() is not None
        return False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every part of a run is given: its settings, where it writes, whom it tells, when it is to end.

    The orchestrator makes one and hands it on. A stage, a queue or a task is not in it: what a part works
    with is a parameter of that part. ``folder``, ``ledger``, ``progress`` and ``tracking`` are closed by
    whoever made them.
    """

    config: Config
    folder: RunFolder
    ledger: Ledger
    progress: Progress
    timeline: Timeline = dataclasses.field(default_factory=lambda: Timeline(enabled=False))
    tracking: Tracking = dataclasses.field(default_factory=lambda: Tracking(()))
    stop: StopRequest = dataclasses.field(default_factory=StopRequest)
    stopwatch: Stopwatch = dataclasses.field(default_factory=Stopwatch)

    def note(self, kind: str, text: str) -> None:
        """Keep an event in the ledger, and tell the user of it."""
        self.ledger.event(kind, text)
        self.progress.message(text)


# Makes null of NaN. In JSON's types, not as text: pydantic's JSON has no lone surrogates, which a model may
# write.
_ANY: Final = TypeAdapter(Any)


def _write(path: Path, value: object) -> None:
    plain = _ANY.dump_python(value, mode="json")
    write_text_atomically(path, json.dumps(plain, indent=2, allow_nan=False) + "\n")


def refuse_unusable_output(output: OutputConfig) -> None:
    """Raise ValueError where ``RunFolder.create`` would, or could not write; nothing is made."""
    runs = Path(output.dir).expanduser()
    there = next(folder for folder in (runs, *runs.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise ValueError(f"output.dir: {str(runs)!r} is not a folder and cannot become one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"output.dir: {str(runs)!r}: {there} cannot be written to")
    if output.name is not None and (runs / output.name).exists():
        raise ValueError(_taken(runs / output.name))


def _taken(path: Path) -> str:
    if (path / BASELINE_MARK).exists():
        return (
            f"output.name: {path.name!r} is taken: {path} exists, and is a run of train_code_grpo, which "
            "cannot be resumed: give another name, or remove it"
        )
    return (
        f"output.name: {path.name!r} is taken: {path} exists; resume it with --resume {path}, or give "
        "another name"
    )


def _make_named(runs: Path, name: str) -> Path:
    path = runs / name
    try:
        path.mkdir()
    except FileExistsError:
        raise ValueError(_taken(path)) from None
    return path


def _make_dated(runs: Path) -> Path:
    base = time.strftime("%Y-%m-%d_%H-%M-%S")
    for number in range(1, 1000):
        path = runs / (base if number == 1 else f"{base}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise ValueError(f"output.dir: {str(runs)!r} has too many runs of {base}; give output.name")


def _lock(path: Path) -> BaseFileLock:
    try:
        return locked(path / ".lock", timeout_s=_LOCK_WAIT_S).lock
    except TimeoutError as error:
        owner = (path / ".lock").read_text(encoding="utf-8").strip() or "unknown"
        raise ValueError(f"run folder {str(path)!r} is in use by process {owner}; stop it first") from error
