"""Syntax, lint and complexity: honest code scores well, and no trick gains."""

from __future__ import annotations

import gc
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rewards.lint
import rewards.lint_server
from rewards.complexity import complexity_score
from rewards.fast import score_fast
from rewards.lint import Linter, LintError, count_by_process
from rewards.lint_rules import ISSUES_FOR_ZERO, lint_score, neutralise_suppressions
from rewards.lint_server import RuffServer, UnreadableError
from rewards.syntax import MAX_SOURCE_BYTES, check_syntax, find_misplaced
from sandbox.job import parse
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


# Each takes the compiler of CPython 3.11 seconds, or its analysis of names gigabytes.
BOMBS = {
    "finally": "def f(x):\n"
    + "".join(" " * (i + 1) + "try: pass\n" + " " * (i + 1) + "finally:\n" for i in range(16))
    + (" " * 17 + "x += 1\n") * 20,
    "returns": "def f(x):\n"
    + "".join(
        " " * i + "try:\n" + (" " * i + " if x: return\n") * 16 + " " * i + "finally:\n" for i in range(1, 5)
    )
    + " " * 5
    + "x += 1\n",
    "closures": "def f(x):\n "
    + ";".join(f"_{i}=x" for i in range(700))
    + "\n "
    + "lambda:" * 700
    + "+".join(f"_{i}" for i in range(700))
    + "\n",
    "names": "def f():\n " + "=".join(f"_{i}" for i in range(9000)) + "=0\n " + "lambda:" * 600 + "0\n",
}


@pytest.mark.parametrize("name", BOMBS)
def test_no_program_takes_the_fast_tier_long(name: str) -> None:
    # What other tests have left is neither collected within it, nor are their threads counted.
    gc.collect()
    started = time.thread_time()
    verdict = score_fast(BOMBS[name], "f", None)
    assert time.thread_time() - started < 0.8
    assert (verdict.syntax, verdict.is_answer) == (1.0, True)


SIMPLE = st.sampled_from(
    [
        *("pass", "return", "return 1", "break", "continue", "x = (yield)", "yield 1", "lambda: (yield)"),
        *(
            "x = [i for i in (yield from y)]",
            "x: int = (yield)",
            "assert f'{(yield)}'",
            "lambda a=(yield): 0",
        ),
    ]
)
HEADS = st.sampled_from(
    [
        *("if x:", "while 0:", "for i in x:", "with x:", "def g(a=1):", "async def g():", "class A:"),
        *("while x:\n pass\nelse:", "try:\n pass\nfinally:", "try:\n pass\nexcept E as e:"),
        *("match x:\n case [a] if a:", "@(yield)\ndef g():", "def g(a=(yield)):", "class A((yield)):"),
        *("for i in (yield):", "if (yield):", "if 0:"),
    ]
)


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


@settings(max_examples=500)
@given(
    st.recursive(
        SIMPLE.map("{}\n".format),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.tuples(HEADS, inner).map(lambda one: f"{one[0]}\n{indented(one[1])}"),
        ),
        max_leaves=6,
    )
)
def test_what_is_misplaced_is_what_the_compiler_says(code: str) -> None:
    said = ""
    try:
        compile(code, "program", "exec", dont_inherit=True)
    except SyntaxError as error:
        said = error.msg
    misplaced = find_misplaced(parse(code))
    assert not misplaced or said, code
    kinds = ("'return' outside", "'yield", "'break' outside", "'continue' not properly")
    # Inside a comprehension a yield is a fault of its own.
    if said.startswith(kinds) and said.endswith(("outside function", "loop")):
        assert misplaced, code


@pytest.mark.parametrize(
    "code",
    [
        "x = 1\nreturn x",
        "class A:\n    x = 1\n    return",
        "(yield)",
        "pass\nx = yield",
        "def f():\n    break",
        "for i in x:\n    pass\nelse:\n    break",
        "\n\ncontinue",
        "while x:\n    class A:\n        continue",
    ],
)
def test_a_fault_is_named_with_its_line_in_the_compilers_words(code: str) -> None:
    with pytest.raises(SyntaxError) as caught:
        compile(code, "program", "exec", dont_inherit=True)
    assert find_misplaced(parse(code)) == f"{caught.value.msg} (line {caught.value.lineno})"


def test_lint_loses_a_twentieth_for_each_issue_and_ends_at_zero(linter: Linter) -> None:
    assert linter.count_issues(HONEST) == 0
    assert linter.count_issues("import os\n" + HONEST) == 1
    assert lint_score(1) == pytest.approx(0.95)
    assert lint_score(21) == 0.0


@pytest.mark.parametrize(
    ("prelude", "given", "num_issues"),
    [
        ("", (), 3),
        ("from typing import List\n", ("List",), 2),
        (
            "from typing import List\n\ndef helper(x):\n    return x\n\nLIMIT = 3\n",
            ("List", "helper", "LIMIT"),
            0,
        ),
        ("from everywhere import *\n", ("*",), 0),
        # Names within a function are not the module's.
        ("def g():\n    List = helper = LIMIT = 1\n", ("g",), 3),
    ],
)
def test_names_that_the_prelude_binds_are_no_findings(
    prelude: str, given: tuple[str, ...], num_issues: int, linter: Linter
) -> None:
    code = "def f(x: List[int]) -> int:\n    return helper(x) + LIMIT\n"
    found = score_fast(code, "f", linter, prelude).lint
    assert found == lint_score(num_issues)
    assert count_by_process(code, given=given) == num_issues


def test_neutralising_moves_no_column_and_touches_no_code() -> None:
    code = "import ruff  # noqa: F401\nnoqa = 1\n"
    neutral = neutralise_suppressions(code)
    assert neutral == "import ruff  # xxxx: F401\nnoqa = 1\n"


def test_a_process_counts_as_the_server_does(linter: Linter) -> None:
    codes = [HONEST, SLOPPY, "def f(:\n", "", SLOPPY + "x=1;y=2\n", "# noqa\nimport os # noqa\n"]
    counts = [count_by_process(code) for code in codes]
    assert counts == [linter.count_issues(code) for code in codes]
    assert counts[0] == 0 < counts[1] < counts[4]


def test_project_configuration_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A command line's --select goes before select and ignore, and not before this.
    (tmp_path / "ruff.toml").write_text('[lint.per-file-ignores]\n"*" = ["ALL"]\n')
    monkeypatch.chdir(tmp_path)
    # Where the process works.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert count_by_process(SLOPPY) >= 5
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

    monkeypatch.setattr(rewards.lint, "RuffServer", broken)
    with Linter() as linter:
        for _ in range(3):
            num_starts.append(0)
            assert linter.count_issues("import os\n" + HONEST) == 1
        monkeypatch.setattr(rewards.lint, "RuffServer", RuffServer)
        linter._no_server_until = time.monotonic()
        assert linter.count_issues("import os\n" + HONEST) == 1
        assert linter._server is not None, "it is tried again later"
    assert num_starts == [2, 2, 0]


def fake_ruff(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A ruff that has a version and does ``body``; ``$1`` is "check", or "--isolated" for the server."""
    fake = folder / "ruff"
    fake.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'ruff 0' && exit 0\n{body}\n")
    fake.chmod(0o755)
    for module in (rewards.lint, rewards.lint_server):
        monkeypatch.setattr(module, "find_ruff_bin", lambda: str(fake))


# Ruff's server has no stack for it.
SIGNS = "x = 0\n\n\ndef f(x):\n    return 1 + " + "-" * 2400 + "x\n"
# Each finding quotes the line.
COMPARISONS = "x = 0\ny = x" + " == None" * 3000 + "\n"


def test_programs_that_end_the_server_cost_no_other_program_its_server() -> None:
    with Linter() as linter:
        for _ in range(5):
            assert check_syntax(SIGNS).score == 1.0
            assert linter.count_issues(SIGNS) >= ISSUES_FOR_ZERO
            assert linter.count_issues(HONEST) == 0
            assert linter._server is not None


def test_a_program_of_which_ruff_has_far_too_much_to_say_scores_zero(linter: Linter) -> None:
    gc.collect()
    started = time.thread_time()
    assert linter.count_issues(COMPARISONS) == ISSUES_FOR_ZERO
    assert time.thread_time() - started < 0.5
    assert linter.count_issues(HONEST) == 0
    with pytest.raises(UnreadableError, match="bytes to say"):
        count_by_process(COMPARISONS)


@pytest.mark.parametrize("end", ["kill -SEGV $$", "kill -ABRT $$", "while :; do :; done"])
def test_a_program_that_ruff_dies_of_scores_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    fake_ruff(tmp_path, monkeypatch, f'[ "$1" = check ] || exit 1\n{end}')
    monkeypatch.setattr(rewards.lint, "_CPU_SHARE", 0.01)
    with Linter(timeout_s=60.0) as linter:
        assert linter.count_issues(HONEST) == ISSUES_FOR_ZERO


@pytest.mark.parametrize("end", ["kill -KILL $$", "exit 2", "echo '{'", "sleep 30"])
def test_a_ruff_that_is_killed_or_does_not_work_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    fake_ruff(tmp_path, monkeypatch, f'[ "$1" = check ] || exit 1\n{end}')
    with Linter(timeout_s=2.0) as linter, pytest.raises(LintError, match="no verdict"):
        linter.count_issues(HONEST)


def test_a_server_that_talks_on_and_on_has_a_deadline_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = '{"method": "window/logMessage"}'
    talk = f"printf 'Content-Length: {len(message)}\\r\\n\\r\\n%s' '{message}'"
    fake_ruff(tmp_path, monkeypatch, f"while :; do {talk}; done")
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        RuffServer(0.5)
    assert time.monotonic() - started < 5.0


def test_a_server_that_reads_nothing_has_a_deadline_too() -> None:
    with Linter() as linter:
        assert linter.count_issues(HONEST) == 0
        assert linter._server is not None
        linter._server._timeout_s = 0.5
        process = linter._server._process
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            linter._server.count_issues("# " + "x" * (1 << 20))
        assert process.poll() is None


def test_a_silent_server_ends_in_the_command_line_and_no_ruff_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ruff(tmp_path, monkeypatch, "exec sleep 30")
    linter = Linter()
    linter._timeout_s = 0.3
    with linter, pytest.raises(LintError, match="no verdict"):
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
    assert complexity_score(code, parse(code)) == pytest.approx(expected), name


def test_a_deeply_nested_expression_is_measured_without_a_crash() -> None:
    for code in ("x = " + "-" * 500 + "1\n", "def f(x):\n    return x" + ".a" * 2000 + "\n"):
        score = complexity_score(code, parse(code))
        assert score is not None and 0.0 <= score <= 1.0
    assert check_syntax("def f(x):\n    return x" + ".a" * 9000 + "\n").score == 0.0


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


@pytest.mark.parametrize(
    ("code", "is_bound"),
    [
        *(
            (code, True)
            for code in ("f: int = 1", "f = g = 1", "(f, *g), h = x", "for f in x: pass", "import f")
        ),
        *((code, True) for code in ("import f.g", "import g as f", "class f: pass", "async def f(): pass")),
        *((code, True) for code in ("with x as (f, g): pass", "try: pass\nexcept E as f: pass", "(f := 1)")),
        *((code, True) for code in ("match x:\n case [1, *f]: pass", "match x:\n case {1: 2, **f}: pass")),
        *((code, True) for code in ("match x:\n case A(b=(1 | 2) as f): pass", "while 1:\n if x: f = 1")),
        *(
            (code, False)
            for code in ("f", "f()", "del f", "f.x = 1", "f[0] = 1", "import g.f", "import f as g")
        ),
        *(
            (code, False)
            for code in ("[f for f in x]", "{f: 1 for f in x}", "lambda f: f", "from f import g")
        ),
        *((code, False) for code in ("def g(f): f = 1", "class A:\n f = 1", "def g():\n def f(): pass")),
    ],
)
def test_only_what_the_module_binds_is_an_answer(code: str, is_bound: bool) -> None:
    assert score_fast(code, "f", None).is_answer == is_bound


def test_without_a_linter_all_but_lint_is_scored(linter: Linter) -> None:
    for code in (HONEST, "def f(:", "x = 1\n"):
        with_lint, without = score_fast(code, "f", linter), score_fast(code, "f", None)
        assert without == replace(with_lint, lint=None)
