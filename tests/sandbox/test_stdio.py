"""stdio mode: the whole program reads stdin and prints."""

from __future__ import annotations

import pytest

from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Limits, Outcome, StdioTest

# Print the sum of the numbers on each line.
_TESTS = tuple(
    StdioTest(stdin=stdin, expected_stdout=stdout)
    for stdin, stdout in (("1 2\n3\n", "3\n3\n"), ("", ""), ("5\n", "5\n"))
)
_GOOD = "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))\n"
_HONEST = {
    "plain": _GOOD,
    "exit 0 after the output": _GOOD + "sys.exit(0)\n",
    "exit None in a function": _GOOD + "def main(): sys.exit()\nmain()\n",
    "os._exit 0 with the output written": _GOOD + "import os\nsys.stdout.flush()\nos._exit(0)\n",
    "input() until the end": "try:\n    while True: print(sum(map(int, input().split())))\n"
    "except EOFError: pass",
    "file 0": "for line in open(0): print(sum(map(int, line.split())))",
    "bytes": "import sys\nfor line in sys.stdin.buffer:\n"
    "    sys.stdout.buffer.write(b'%d\\n' % sum(map(int, line.split())))",
    "os.read and os.write": "import os\ndata = os.read(0, 1 << 20).decode()\n"
    "for line in data.splitlines(): os.write(1, b'%d\\n' % sum(map(int, line.split())))",
    "main guard": "import sys\ndef main():\n    for line in sys.stdin: print(sum(map(int, line.split())))\n"
    "if __name__ == '__main__': main()",
    "a thread prints last": "import sys, threading, time\ndata = sys.stdin.read()\ndef late():\n"
    "    time.sleep(0.05)\n    for line in data.splitlines(): print(sum(map(int, line.split())))\n"
    "threading.Thread(target=late).start()",
    "atexit prints": "import atexit, sys\ndata = sys.stdin.read()\n@atexit.register\ndef late():\n"
    "    for line in data.splitlines(): print(sum(map(int, line.split())))",
    "closes other descriptors": "import os\nos.closerange(3, 64)\n" + _GOOD,
    "trailing white space": _GOOD.replace("print(", "print(end=' \\n', *[").replace("())))", "()))])"),
    "globals of a module": _GOOD + "import __main__\nassert __main__.sys is sys and __name__ == '__main__'",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n" + _GOOD,
}
_BAD = {
    "wrong output": ("print(1)", Outcome.WRONG),
    "no output": ("pass", Outcome.WRONG),
    "exit before the output": ("import sys\nsys.exit(0)\n" + _GOOD, Outcome.WRONG),
    "all candidates for an answer": ("for x in range(10): print(x)", Outcome.WRONG),
    "exception after the output": (_GOOD + "1 / 0", Outcome.EXCEPTION),
    "exit 1 after the output": (_GOOD + "sys.exit(1)", Outcome.EXCEPTION),
    "exit with a message": (_GOOD + "sys.exit('no')", Outcome.EXCEPTION),
    "syntax error": ("print(", Outcome.EXCEPTION),
    "endless loop": ("while True: pass", Outcome.TIMEOUT_CPU),
    "sleep": ("import time\ntime.sleep(60)", Outcome.TIMEOUT_WALL),
    "endless output": ("while True: print('a' * 1000)", Outcome.VIOLATION),
    "memory": ("a = 'a' * (1 << 40)", Outcome.OOM),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", Outcome.CRASH),
    "stdout closed": (_GOOD + "import os\nos.close(1)", Outcome.EXCEPTION),
}
_LIMITS = Limits(cpu_s=1.0, wall_s=3.0, memory_bytes=256 * 1024**2)


def _run(pool: SandboxPool, source: str, limits: Limits = _LIMITS) -> ExecutionResult:
    return pool.run(ExecutionRequest(solution=source, entry_point="", stdio_tests=_TESTS, limits=limits))


@pytest.mark.parametrize("name", _HONEST)
def test_honest_programs_pass(pool: SandboxPool, name: str) -> None:
    result = _run(pool, _HONEST[name], Limits(cpu_s=10.0, wall_s=60.0, wall_cap_s=120.0))
    assert (result.outcome, result.num_passed, result.num_tests) == (Outcome.PASS, 3, 3), result


@pytest.mark.parametrize("name", _BAD)
def test_programs_that_do_not_print_the_answer_fail(pool: SandboxPool, name: str) -> None:
    source, outcome = _BAD[name]
    result = _run(pool, source)
    assert result.outcome is outcome, result
    assert result.num_passed < result.num_tests


def test_the_first_failing_test_is_named_and_the_others_still_count(pool: SandboxPool) -> None:
    result = _run(pool, "print(open(0).read().strip())")
    assert (result.outcome, result.num_passed) == (Outcome.WRONG, 2)
    assert result.detail == "test 0: wrong output"


def test_what_ends_a_program_counts_more_than_the_wrong_answers_before_it(pool: SandboxPool) -> None:
    program = f"import time\nif not open(0).read() == {_TESTS[0].stdin!r}:\n    %s\nprint()"
    for action, outcome in (("time.sleep(60)", Outcome.TIMEOUT_WALL), ("a = 'a' * (1 << 40)", Outcome.OOM)):
        result = _run(pool, program % action)
        assert (result.outcome, result.num_passed) == (outcome, 0)
        assert result.detail.startswith("test 0: wrong output; test 1: ")


def test_an_exception_is_named(pool: SandboxPool) -> None:
    result = _run(pool, "print(1 / 0)")
    assert result.detail == "test 0: ZeroDivisionError, line 1"
    assert not result.clean


def test_each_test_is_a_fresh_process(pool: SandboxPool) -> None:
    source = "import builtins\nassert not hasattr(builtins, 'x')\nbuiltins.x = 1\n" + _GOOD
    assert _run(pool, source).outcome is Outcome.PASS


def test_a_request_has_one_kind_of_tests(pool: SandboxPool) -> None:
    both = ExecutionRequest(
        solution=_GOOD, entry_point="f", stdio_tests=_TESTS, call_tests=(CallTest(args=(), expected=1),)
    )
    with pytest.raises(ValueError, match="exactly one of"):
        pool.run(both)
