"""What a killed driver leaves behind is ended, whoever its parent has become; nothing else is."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from pipeline.orphan_guard import Family, guarded
from tests.pipeline.test_engine_host import ROOT, is_alive, wait_until_gone

DRIVER = """
import os, subprocess, sys, time
from pipeline.orphan_guard import guarded
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
    assert is_alive(child) and is_alive(grandchild) and is_alive(renamed)
    driver.kill()
    driver.wait()
    try:
        wait_until_gone(child, grandchild, renamed)
        assert is_alive(before), "it was not started under guard"
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
        mark = next(
            line.partition("=")[2]
            for line in Path(f"/proc/{sleeper.pid}/environ").read_text().split("\0")
            if line.startswith("CODE_GRPO_RUN=")
        )
        assert Family(mark).look() == [sleeper.pid]
    assert is_alive(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    wait_until_gone(*(int(pid) for pid in found))
