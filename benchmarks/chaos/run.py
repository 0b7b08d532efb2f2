"""One run under fire: start it, kill a part of it at a given moment, resume it if needed, judge what is left.

    start ─► wait ─► SIGKILL ─► it goes on, or its driver is gone: --resume ─► audit of run.db, orphans

The run is the command that users type, in processes of its own. Every process of it stays below the caller's
(``processes.orphans_adopted``), so none can get away unseen.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.processes import (
    by_kind,
    descendants,
    kill,
    last_words,
    orphans_adopted,
    start,
    told,
    wait_until_gone,
)
from benchmarks.report import rows_of
from pipeline.record.audit import audit

TREE = "whole tree"
TERMINAL = "terminal"
ENGINE_KINDS = ("generator", "engine child")  # only where vLLM writes
KINDS = ("trainer", "reward worker", "zygote", "driver", TREE, *ENGINE_KINDS)
_POLL_S = 0.05
_MAX_RESUMES = 3
_STEP = re.compile(r"^step +(\d+)/", re.MULTILINE)
_RESTART = re.compile(r"^restart: ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run of ``num_steps`` steps in ``folder``/``name``; ``arguments`` are those of the command."""

    folder: Path
    name: str
    num_steps: int
    arguments: tuple[str, ...]
    deadline_s: float
    orphan_deadline_s: float

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.folder / self.name

    @property
    def log(self) -> Path:
        """What the command printed, all starts together."""
        return self.folder / f"{self.name}.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL to a ``victim`` (one of KINDS), ``after_s`` seconds after ``after_step`` steps were finished.

    Steps are counted over all starts of the command; 0 is its start. A victim that is not there yet is waited
    for, and so is what earlier kills lead to: the command must have been resumed ``after_resumes`` times and
    have said ``after_restarts`` times that it replaced a part. ``number`` is another signal than SIGKILL;
    with TERMINAL as the victim it goes where a Ctrl-C goes, to all processes of the driver's group.
    """

    victim: str
    after_step: int
    after_s: float
    after_resumes: int = 0
    after_restarts: int = 0
    number: signal.Signals = signal.SIGKILL


@dataclass(slots=True, kw_only=True)
class Report:
    """What became of a case. ``faults`` is empty when all is as it must be.

    ``step_times_s`` are the moments since the start at which steps were finished.
    """

    num_kills: int = 0
    num_resumes: int = 0
    num_restarts: int = 0
    statuses: list[int] = field(default_factory=list)
    seconds: float = 0.0
    step_times_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@orphans_adopted()
def run_case(case: Case, kills: Sequence[Kill], random: Random) -> Report:
    """Run ``case`` to its end through ``kills``, in their order, and judge it."""
    report, left, started = Report(), list(kills), time.monotonic()
    report.statuses.append(status := _start(case, left, random, report, started))
    while status != 0 and not report.faults:
        if report.num_resumes >= _MAX_RESUMES + len(kills):
            report.faults.append(f"still fails after {report.num_resumes} resumes: {last_words(case.log)}")
            break
        report.num_resumes += 1
        report.statuses.append(status := _start(case, left, random, report, started))
    report.seconds = time.monotonic() - started
    _judge(case, report)
    return report


def _start(case: Case, kills: list[Kill], random: Random, report: Report, started: float) -> int:
    """Start the command, or resume; kill what the first of ``kills`` says; returns the exit status."""
    others = {process.pid for process in descendants(os.getpid())}
    is_resume = (case.run / "config.yaml").is_file()
    first = ("--run-name", case.name, "--output-dir", str(case.folder), *case.arguments)
    arguments = ("--resume", str(case.run)) if is_resume else first
    begun = time.monotonic()
    process = start("train_accelerated", (*arguments, "--max-steps", str(case.num_steps)), log=case.log)
    with process:
        while process.poll() is None:
            if time.monotonic() - begun > case.deadline_s:
                report.faults.append(f"not done after {case.deadline_s:.0f} s: {last_words(case.log)}")
                _strike(process.pid, TREE, random)
                break
            _note_progress(case, report, started)
            is_due = kills and _is_due(kills[0], report, time.monotonic() - started)
            if is_due and _strike(process.pid, kills[0].victim, random, kills[0].number):
                report.num_kills += 1
                del kills[0]
            time.sleep(_POLL_S)
    # Every process that the command has started must go by itself.
    if stayed := wait_until_gone(process, others, case.orphan_deadline_s):
        report.faults.append(f"{len(stayed)} orphans after {case.orphan_deadline_s:.0f} s: {told(stayed)}")
    return process.returncode


def _note_progress(case: Case, report: Report, started: float) -> None:
    """Note when a step line was first seen, and how many parts were replaced."""
    printed = case.log.read_text(errors="replace")
    report.num_restarts = len(_RESTART.findall(printed))
    steps = [int(number) for number in _STEP.findall(printed)]
    while len(report.step_times_s) < max(steps, default=0):
        report.step_times_s.append(time.monotonic() - started)


def _is_due(kill: Kill, report: Report, elapsed_s: float) -> bool:
    if len(report.step_times_s) < kill.after_step:
        return False
    if report.num_resumes < kill.after_resumes or report.num_restarts < kill.after_restarts:
        return False
    reached_s = report.step_times_s[kill.after_step - 1] if kill.after_step else 0.0
    return elapsed_s >= reached_s + kill.after_s


def _strike(driver: int, victim: str, random: Random, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send ``number`` to one process of the kind ``victim``, or to all; False where there is none yet."""
    if victim == TERMINAL:
        os.killpg(driver, number)
        return True
    if victim == TREE:
        targets = [driver, *(process.pid for process in descendants(driver))]
    else:
        targets = [random.choice(pids)] if (pids := by_kind(driver).get(victim)) else []
    kill(targets, number)
    return bool(targets)


def _judge(case: Case, report: Report) -> None:
    try:
        found = audit(case.run)
    except ValueError as error:
        report.faults.append(str(error))
        return
    report.faults += found.violations
    steps = "SELECT COUNT(*), MAX(step) FROM steps WHERE status = 'committed'"
    ((num_steps, last_step),) = rows_of(case.run, steps)
    ((report.num_restarts,),) = rows_of(case.run, "SELECT COUNT(*) FROM events WHERE kind = 'restart'")
    if (num_steps, last_step) != (case.num_steps, case.num_steps):
        report.faults.append(f"{num_steps} committed steps, the last {last_step}: {last_words(case.log)}")
