"""What a killed driver leaves behind is ended, whoever its parent has become; nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from pipeline.host.orphan_guard import MARK, Family, guarded
from tests.pipeline.generation.test_host import ROOT
from tests.processes import is_running, none_runs

DRIVER = """
import os, subprocess, sys, time
from pipeline.host.orphan_guard import guarded
before = subprocess.Popen(["sleep", "60"])
with guarded():
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    command = ["bash", "-c", "sleep 60 & echo $!; wait"]
    grandchild = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    # It has lost its mark, and its parent is gone before the driver is: known while the parent was there.
    renamed = ["bash", "-c", "env -i sleep 60 & echo $!; sleep 3"]
    renamed = subprocess.Popen(renamed, stdout=subprocess.PIPE, text=True)
    pids = before.pid, child.pid, int(grandchild.stdout.readline()), int(renamed.stdout.readline())
    renamed.wait()
    print(*pids, flush=True)
    time.sleep(60)
"""


def test_processes_of_a_killed_driver_are_ended() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    before, child, grandchild, renamed = (int(word) for word in driver.stdout.readline().split())
    assert is_running(child) and is_running(grandchild) and is_running(renamed)
    driver.kill()
    driver.wait()
    try:
        assert none_runs([child, grandchild, renamed])
        assert is_running(before), "it was not started under guard"
    finally:
        subprocess.run(["kill", str(before)], check=True)


def test_at_the_end_of_the_block_guard_and_mark_are_gone() -> None:
    children = Path(f"/proc/self/task/{Path('/proc/self').resolve().name}/children")
    before = children.read_text().split()
    with guarded():
        started = time.monotonic()
        while (found := set(children.read_text().split()) - set(before)) == set():
            assert time.monotonic() - started < 5
        sleeper = subprocess.Popen(["sleep", "60"])
        mark = os.environ[MARK]
        wait_for_mark(sleeper.pid, mark)
        assert Family(mark).look() == [sleeper.pid]
    assert MARK not in os.environ
    assert none_runs([int(pid) for pid in found])
    assert is_running(sleeper.pid)
    sleeper.kill()
    sleeper.wait()


def test_a_process_that_was_seen_before_it_had_its_mark_is_known_when_it_has() -> None:
    # As between fork and exec: what it shows is not yet its own.
    program = f"read; {MARK}=mine exec sleep 60"
    process = subprocess.Popen(["bash", "-c", program], stdin=subprocess.PIPE)
    assert process.stdin is not None
    family = Family("mine")
    try:
        assert family.look() == []
        process.stdin.write(b"\n")
        process.stdin.close()
        wait_for_mark(process.pid, "mine")
        assert family.look() == [process.pid]
    finally:
        process.kill()
        process.wait()


def wait_for_mark(pid: int, mark: str) -> None:
    """Until the program of ``pid`` runs: before, it shows its parent's environment or none."""
    deadline = time.monotonic() + 10
    while f"{MARK}={mark}" not in Path(f"/proc/{pid}/environ").read_text().split("\0"):
        assert time.monotonic() < deadline, f"process {pid} has no mark"
        time.sleep(0.01)
