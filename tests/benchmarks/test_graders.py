"""The graders' benchmark: real graders on a few programs, one that ends in the middle, and the table."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.graders.__main__ import (
    Program,
    _watch,
    attacks,
    grade,
    grade_ourselves,
    references,
    summary,
    table,
)
from curriculum.sources import load_named_tasks
from sandbox.result import CallTest
from tests.sandbox.attacks.targets import Targets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
CALLS = (CallTest(args=(1,), expected=2), CallTest(args=(5,), expected=6))
RIGHT = Program(id="right", source="def f(x): return x + 1", entry_point="f", calls=CALLS, is_right=True)
WRONG = Program(id="wrong", source="def f(x): return x", entry_point="f", calls=CALLS, is_right=False)
EQUAL = Program(
    id="equal to all",
    source="class Any(int):\n    def __eq__(self, other): return True\ndef f(x): return Any()",
    entry_point="f",
    calls=CALLS,
    is_right=False,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graders")


@pytest.mark.parametrize("name", ["openai", "evalplus", "skyrl"])
def test_a_grader_from_its_package_judges_a_right_and_a_wrong_program(name: str, folder: Path) -> None:
    verdicts = grade(name, [RIGHT, WRONG], folder)
    assert [(one["id"], one["passed"]) for one in verdicts] == [("right", True), ("wrong", False)]
    assert all(one["seconds"] > 0 for one in verdicts)


def test_what_openais_passes_ours_does_not(folder: Path) -> None:
    programs = [EQUAL, RIGHT]
    theirs = summary(grade("openai", programs, folder), programs)
    ours = summary(grade_ourselves(programs, frozenset()), programs)
    assert theirs["attacks_passed"] == ["equal to all"] and ours["attacks_passed"] == []
    assert theirs["honest_failed"] == ours["honest_failed"] == []
    names = {"openai": "OpenAI", "L3": "ours"}
    lines = table({"names": names, "graders": {"openai": theirs, "L3": ours}}).splitlines()
    assert "| OpenAI | 1 of 1 | 0 | 0 of 1 |" in lines[2] and "| ours | 0 of 1 | 0 | 0 of 1 |" in lines[3]


def test_a_grader_that_raises_has_given_no_verdict_and_the_next_program_is_judged(folder: Path) -> None:
    # No JSON holds its value, which is how this grader is told what is right.
    odd = (CallTest(args=(1,), expected={1, 2}),)
    foreign = Program(id="a set", source="def f(x): return {1, 2}", entry_point="f", calls=odd, is_right=True)
    verdicts = grade("skyrl", [foreign, RIGHT], folder)
    assert [(one["id"], one["passed"]) for one in verdicts] == [("a set", None), ("right", True)]
    assert verdicts[0]["fault"].startswith("TypeError")
    found = summary(verdicts, [foreign, RIGHT])
    assert found["honest_failed"] == ["a set"]
    # What gave no verdict took no time for one.
    assert found["verdicts_per_s"] == 1 / verdicts[1]["seconds"]
    assert summary(verdicts[:1], [foreign])["verdicts_per_s"] == 0.0


def test_what_programs_have_left_of_their_processes_is_ended_with_the_grader(tmp_path: Path) -> None:
    found, left = tmp_path / "found", tmp_path / "left"
    found.touch()
    command = ["sh", "-c", f"sleep 100 & echo $! > {left}"]
    process = subprocess.Popen(command, start_new_session=True)
    _watch(process, found)
    pid = int(left.read_text())
    deadline = time.monotonic() + 10
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(pid)
    # Nothing is left of a session any more.
    _watch(subprocess.Popen(["true"], start_new_session=True), found)


def _is_alive(pid: int) -> bool:
    """Whether it runs; one that nobody has collected yet does not."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_programs_are_many_and_the_references_are_those_with_literal_calls() -> None:
    with Targets() as targets:
        programs = list(attacks(targets))
    assert len(programs) >= 100 and not any(program.is_right for program in programs)
    assert len({program.id for program in programs}) == len(programs)
    right = list(references(load_named_tasks("humaneval"), 200))
    assert len(right) >= 80 and all(program.is_right and program.calls for program in right)
    assert len(list(references(load_named_tasks("ladder"), 7))) == 7
