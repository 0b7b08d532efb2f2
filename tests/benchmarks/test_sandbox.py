"""The sandbox benchmark runs, counts what it should, and says so in its table; no figure is judged."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.sandbox.__main__ import measure, table
from benchmarks.sandbox.contenders import tree_cpu_s
from benchmarks.sandbox.programs import literal_calls, literal_programs
from sandbox.result import CallTest


def test_only_literal_asserts_become_calls() -> None:
    head = "def check(candidate):\n"
    literal = head + "    assert candidate([1], 'a') == {'b': -1.5}, 'message'\n    assert True\n"
    assert literal_calls(literal) == (CallTest(args=([1], "a"), expected={"b": -1.5}),)
    assert literal_calls(f"{head}    for n in (1, 2):\n        assert candidate(n) == n\n") is None
    assert literal_calls(f"{head}    assert True\n") is None


def test_every_contender_passes_what_it_runs_and_has_a_row() -> None:
    programs = literal_programs()
    assert len(programs) == 142
    result = measure(programs[:3], seconds=0.3, num_rounds=1, num_workers=1)
    assert {"call", "judge", "stdio", "harness", "python"} <= result["contenders"].keys()
    for name, row in result["contenders"].items():
        assert row["failed"] == [], name
        assert row["num_runs"] > 0, name
        assert f"| {name} | " in table(result)
    assert all(row["max"] >= row["median"] for row in result["kill_latency_ms"].values())


def test_the_cpu_time_of_children_alive_and_ended_is_counted() -> None:
    spin = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
    before_s = tree_cpu_s(os.getpid())
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    alive_s = tree_cpu_s(os.getpid()) - before_s
    process.communicate("\n", timeout=60)
    ended_s = tree_cpu_s(os.getpid()) - before_s
    # The kernel tells a live process's time in ticks of 10 ms.
    assert alive_s >= 0.35
    assert ended_s >= 0.35
