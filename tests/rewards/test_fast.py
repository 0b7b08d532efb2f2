"""Syntax, lint and complexity: honest code scores well, and no trick gains."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import rewards.lint
from rewards.complexity import judge_complexity
from rewards.fast import score_fast
from rewards.lint import Linter, LintError, count_issues_many, lint_score, neutralise_suppressions
from rewards.syntax import MAX_SOURCE_BYTES, check_syntax
from tests.processes import left_by_killed_owner, none_runs

HONEST = "def f(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total\n"
SLOPPY = (
    "import os\nimport sys\n\n\ndef f(xs=[]):\n    l = 1\n"
    "    try:\n        pass\n    except:\n        pass\n    return xs == None\n"
)


@pytest.mark.parametrize(
    "code",
    ["", "   \n", "def f(:\n", "return 1\n", "x = '\ud800'\n", "x = 1\0\n", "(" * 500 + ")" * 500, "break\n"],
)
def test_what_does_not_compile_scores_zero_with_a_reason(code: str) -> None:
    verdict = check_syntax(code)
    assert verdict.score == 0.0
    assert 0 < len(verdict.message) <= 200


def test_code_that_compiles_with_a_warning_scores_one() -> None:
    assert check_syntax("def f(x):\n    return x is 'a' or '\\d'\n").score == 1.0


def test_the_size_cap_comes_before_the_compiler() -> None:
    line = "x = 1\n"
    just_within = line * (MAX_SOURCE_BYTES // len(line))
    assert check_syntax(just_within).score == 1.0
    assert "bytes" in check_syntax(just_within + line).message


def test_lint_loses_a_twentieth_for_each_issue_and_ends_at_zero(linter: Linter) -> None:
    assert linter.count_issues(HONEST) == 0
    assert linter.count_issues("import os\n" + HONEST) == 1
    assert lint_score(1) == pytest.approx(0.95)
    assert lint_score(21) == 0.0


def test_neutralising_moves_no_column_and_touches_no_code() -> None:
    code = "import ruff  # noqa: F401\nnoqa = 1\n"
    neutral = neutralise_suppressions(code)
    assert neutral == "import ruff  # xxxx: F401\nnoqa = 1\n"


def test_a_batch_counts_each_program_for_itself(linter: Linter) -> None:
    codes = [HONEST, SLOPPY, "def f(:\n", "", SLOPPY + "x=1;y=2\n", "# noqa\nimport os # noqa\n"]
    counts = count_issues_many(codes)
    assert counts == [linter.count_issues(code) for code in codes]
    assert counts[0] == 0 < counts[1] < counts[4]
    assert count_issues_many([]) == []


def test_project_configuration_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ruff.toml").write_text('[lint]\nselect = []\nignore = ["ALL"]\n')
    monkeypatch.chdir(tmp_path)
    with Linter() as linter:
        assert linter.count_issues(SLOPPY) >= 5


def test_a_killed_server_is_replaced_however_often() -> None:
    with Linter() as linter:
        expected = linter.count_issues(SLOPPY)
        for _ in range(5):
            assert linter._server is not None, "it counts no failures that were mended"
            os.kill(linter._server._process.pid, signal.SIGKILL)
            linter._server._process.wait(timeout=10)
            assert linter.count_issues(SLOPPY) == expected


def test_a_server_that_never_answers_is_tried_twice_a_program_and_soon_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_starts: list[int] = []

    def broken(timeout_s: float) -> None:
        num_starts[-1] += 1
        raise OSError("broken")

    monkeypatch.setattr(rewards.lint, "_RuffServer", broken)
    with Linter() as linter:
        for _ in range(3):
            num_starts.append(0)
            assert linter.count_issues("import os\n" + HONEST) == 1
    assert num_starts == [2, 2, 0]


def test_a_silent_server_ends_in_the_command_line_and_no_ruff_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "ruff"
    fake.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'ruff 0' && exit 0\nexec sleep 30\n")
    fake.chmod(0o755)
    monkeypatch.setattr(rewards.lint, "find_ruff_bin", lambda: str(fake))
    with Linter(timeout_s=0.3) as linter, pytest.raises(LintError, match="no verdict"):
        linter.count_issues(HONEST)


def test_the_server_dies_with_a_killed_owner() -> None:
    program = (
        "import time\nfrom rewards.lint import Linter\n"
        "linter = Linter()\nlinter.count_issues('x = 1\\n')\n"
        "print(linter._server._process.pid, flush=True)\ntime.sleep(60)\n"
    )
    family = left_by_killed_owner(program)
    assert none_runs(family, 10.0), f"of {family} some outlived their owner"


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("honest", HONEST, 1.0),
        (
            "an elif chain is flat",
            "def f(x):\n    if x == 0:\n        return 0\n"
            + "".join(f"    elif x == {i}:\n        return {i}\n" for i in range(1, 10)),
            1.0,
        ),
        (
            "one level too deep",
            "def f(x):\n" + "".join("    " * i + "if x:\n" for i in range(1, 6)) + "    " * 6 + "pass\n",
            0.8,
        ),
        ("two branches too many", "def f(x):\n" + "    if x:\n        x += 1\n" * 12, 0.9),
        ("five lines too long", "def f(x):\n" + "    x += 1\n" * 54, 0.9),
    ],
)
def test_complexity_by_example(name: str, code: str, expected: float) -> None:
    assert judge_complexity(code).score == pytest.approx(expected), name


def test_a_deeply_nested_expression_is_measured_without_a_crash() -> None:
    assert 0.0 <= judge_complexity("x = " + "-" * 500 + "1\n").score <= 1.0
    assert 0.0 <= judge_complexity("def f(x):\n    return x" + ".a" * 3000 + "\n").score <= 1.0


@pytest.mark.parametrize(
    "code",
    ["pass\n", "# f\n", "x = 1\n", "def g():\n    return 1\n", "class C:\n    def f(self):\n        pass\n"],
)
def test_a_program_without_the_entry_point_has_no_quality(code: str, linter: Linter) -> None:
    verdict = score_fast(code, "f", linter)
    assert (verdict.syntax, verdict.lint, verdict.complexity) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "code",
    [HONEST, "f = sum\n", "from math import sqrt as f\n", "if True:\n    def f(x):\n        return x\n"],
)
def test_every_way_of_defining_the_entry_point_counts(code: str, linter: Linter) -> None:
    assert score_fast(code, "f", linter).complexity == 1.0
