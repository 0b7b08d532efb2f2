"""Test programs of every form, copied-back arguments, methods, and what no test program can excuse."""

from __future__ import annotations

import pytest

from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Limits, Outcome

_LIMITS = Limits(cpu_s=10.0, wall_s=60.0)
_GOOD = "def f(x):\n    return x + 1\n"
_UNITTEST = """
import unittest
from solution import f

class TestF(unittest.TestCase):
    def setUp(self):
        self.start = 1

    def test_one(self):
        self.assertEqual(f(self.start), 2)

    def test_subtests(self):
        for x in range(3):
            with self.subTest(x=x):
                self.assertEqual(f(x), x + 1)

    def test_zero(self):
        self.assertEqual(f(-1), 0)

if __name__ == "__main__":
    unittest.main()
"""


def _judge(
    pool: SandboxPool,
    solution: str,
    check: str,
    *,
    entry_point: str = "f",
    copy_back: bool = False,
    prelude: str = "",
) -> ExecutionResult:
    return pool.run(
        ExecutionRequest(
            solution=solution,
            entry_point=entry_point,
            check_source=check,
            copy_back=copy_back,
            prelude=prelude,
            limits=_LIMITS,
        )
    )


def _counts(result: ExecutionResult) -> tuple[Outcome, int, int]:
    return result.outcome, result.num_passed, result.num_tests


@pytest.mark.parametrize("in_judge", [False, True])
def test_a_candidate_may_print_more_than_the_limit_on_output(pool: SandboxPool, in_judge: bool) -> None:
    solution = "def f(x):\n    for _ in range(3000): print('a' * 1000)\n    return x + 1\n"
    if in_judge:
        assert _judge(pool, solution, _UNITTEST).outcome is Outcome.PASS
        return
    limits = Limits(cpu_s=10.0, wall_s=60.0, output_bytes=100_000)
    tests = tuple(CallTest(args=(x,), expected=x + 1) for x in range(3))
    request = ExecutionRequest(solution=solution, entry_point="f", call_tests=tests, limits=limits)
    result = pool.run(request)
    assert result.outcome is Outcome.PASS and result.clean


def test_unittest_methods_are_counted_one_by_one(pool: SandboxPool) -> None:
    assert _counts(_judge(pool, _GOOD, _UNITTEST)) == (Outcome.PASS, 3, 3)
    result = _judge(pool, "def f(x): return x + 1 if x < 2 else 0\n", _UNITTEST)
    assert _counts(result) == (Outcome.WRONG, 2, 3)
    assert result.detail == "TestF.test_subtests: AssertionError"
    result = _judge(pool, "def f(x): return 1 // x and x + 1\n", _UNITTEST)
    assert _counts(result) == (Outcome.EXCEPTION, 2, 3)
    assert result.detail == "TestF.test_subtests: ZeroDivisionError, line 1"


def test_a_candidates_death_keeps_the_tests_passed_before_and_cannot_be_caught(pool: SandboxPool) -> None:
    solution = "import os\ndef f(x):\n    if x == 0: os._exit(0)\n    return x + 1\n"
    assert _counts(_judge(pool, solution, _UNITTEST)) == (Outcome.CRASH, 1, 3)
    check = "def check(candidate):\n    try:\n        candidate(0)\n    except BaseException:\n        pass\n"
    assert _counts(_judge(pool, solution, check)) == (Outcome.CRASH, 0, 1)


def test_fixtures_of_classes_and_modules_run_and_their_calls_count_for_the_tests(pool: SandboxPool) -> None:
    check = """
import unittest
log = []
def setUpModule(): log.append("module")
class T(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.value = f(1)
    def tearDown(self): log.append("down")
    def test_a(self): self.assertEqual((self.value, log), (2, ["module"]))
    def test_b(self): self.assertEqual((self.value, log), (2, ["module", "down"]))
"""
    assert _counts(_judge(pool, _GOOD, check)) == (Outcome.PASS, 2, 2)
    result = _judge(pool, "def f(x): raise KeyError(x)\n", check)
    assert _counts(result) == (Outcome.EXCEPTION, 0, 2)
    assert result.detail == "setUpClass (check.T): KeyError, line 1"
    assert _counts(_judge(pool, "def f(x): raise SystemExit\n", check)) == (Outcome.EXCEPTION, 0, 2)


_SKIPS = """
import unittest
class T(unittest.TestCase):
    @unittest.skip("not here")
    def test_a(self): self.assertEqual(f(1), 2)
    @unittest.expectedFailure
    def test_b(self): self.assertEqual(f(1), 3)
    def test_c(self): self.skipTest("later")
"""


def test_skipped_tests_and_expected_failures_are_not_passed_tests(pool: SandboxPool) -> None:
    more = "    def test_d(self): self.assertEqual(f(1), 2)\n"
    assert _counts(_judge(pool, _GOOD, _SKIPS + more)) == (Outcome.PASS, 1, 1)
    assert _counts(_judge(pool, _GOOD, _SKIPS)) == (Outcome.WRONG, 0, 0)
    only_skips = (
        "import unittest\n@unittest.skip('')\nclass T(unittest.TestCase):\n    def test(self): f(1)\n"
    )
    with pytest.raises(ValueError, match="no test ran"):
        _judge(pool, _GOOD, only_skips)


def test_a_candidate_cannot_bring_about_a_skip_an_expected_failure_or_a_missing_call(
    pool: SandboxPool,
) -> None:
    check = (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
        "        if f(1) != 2: self.skipTest('')\n"
        "    def test_right(self): self.assertEqual(f(2), 3)\n"
    )
    assert _counts(_judge(pool, _GOOD, check)) == (Outcome.PASS, 2, 2)
    assert _counts(_judge(pool, "def f(x): return 3\n", check)) == (Outcome.WRONG, 1, 2)
    skipper = "import unittest\ndef f(x): raise unittest.SkipTest\n"
    assert _counts(_judge(pool, skipper, check)) == (Outcome.EXCEPTION, 0, 2)
    expected = (
        "import unittest\nclass T(unittest.TestCase):\n    @unittest.expectedFailure\n"
        "    def test(self): self.assertEqual(f(1), 3)\n    def test_right(self): self.assertEqual(f(2), 3)\n"
    )
    quits_once = "def f(x):\n    if x == 1: raise SystemExit\n    return x + 1\n"
    assert _counts(_judge(pool, quits_once, expected)) == (Outcome.EXCEPTION, 0, 1)


def test_a_method_that_makes_no_call_is_not_a_passed_test(pool: SandboxPool) -> None:
    check = "def test_a(): assert f(1) == 2\ndef test_b(): pass\n"
    result = _judge(pool, _GOOD, check)
    assert _counts(result) == (Outcome.WRONG, 1, 2)
    assert result.detail == "test_b: the check program made no call"


def test_test_functions_without_parameters_are_counted_one_by_one(pool: SandboxPool) -> None:
    check = (
        "from solution import f\ndef test_case(x, y): assert f(x) == y\n"
        "def test_a(): test_case(1, 2)\ndef test_b(again=True): test_case(-1, 0)\n"
    )
    assert _counts(_judge(pool, _GOOD, check)) == (Outcome.PASS, 2, 2)
    result = _judge(pool, "def f(x): return 2\n", check)
    assert _counts(result) == (Outcome.WRONG, 1, 2)
    assert result.detail == "test_b: AssertionError"


def test_an_entry_point_named_like_a_test_or_like_check_is_not_taken_for_one(pool: SandboxPool) -> None:
    for name in ("test_f", "check"):
        check = f"assert {name}(1) == 2\n"
        assert _counts(_judge(pool, f"def {name}(x): return x + 1", check, entry_point=name)) == (
            Outcome.PASS, 1, 1,
        )  # fmt: skip


def test_bare_asserts_pass_when_all_hold_and_a_call_was_made(pool: SandboxPool) -> None:
    check = "assert f(1) == 2\nassert f(-1) == 0\n"
    assert _counts(_judge(pool, _GOOD, check)) == (Outcome.PASS, 1, 1)
    result = _judge(pool, "def f(x): return 2\n", check)
    assert (*_counts(result), result.detail) == (Outcome.WRONG, 0, 1, "call 1: AssertionError")
    with pytest.raises(ValueError, match="no call"):
        _judge(pool, _GOOD, "assert True\n")


@pytest.mark.parametrize(
    "check",
    ["import solution\nassert solution.f(1) == 2\n", "from solution import *\nassert f(1) == 2\n",
     "assert candidate(1) == 2\n", "def test(): assert f(1) == 2\ntest()\n",
     "def check(candidate): assert candidate(1) == 2\ncheck(f)\n",
     "import sys\nassert f(1) == 2\nsys.exit(0)\n",
     "import unittest\nclass T(unittest.TestCase):\n    def test(self): assert f(1) == 2\nunittest.main()\n",
     "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
     "def check(candidate): assert candidate(P(1).x) == 2\n",
     "import threading, concurrent.futures as c\n"
     "with c.ThreadPoolExecutor(4) as t: assert list(t.map(f, range(50))) == list(range(1, 51))\n"],
)  # fmt: skip
def test_usual_forms_of_test_programs_work(pool: SandboxPool, check: str) -> None:
    assert _judge(pool, _GOOD, check).outcome is Outcome.PASS
    assert _judge(pool, "def f(x): return 7\n", check).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    "check",
    ["assert undefined_name\n", "def check(candidate): undefined_name\n", "from solution import g\nf(1)\n",
     "def check(candidate:\n", "x = 1\n", "import nothing_of_this_name\n",
     "import sys\nsys.exit(1)\n", "def check(candidate): candidate(object())\n",
     "import unittest\nclass T(unittest.TestCase):\n    def setUp(self): 1 / 0\n"
     "    def test(self): f(1)\n"],
)  # fmt: skip
def test_a_program_that_fails_before_any_call_is_the_users_error(pool: SandboxPool, check: str) -> None:
    with pytest.raises(ValueError, match="check program of 'f'"):
        _judge(pool, _GOOD, check)


def test_unittest_main_leaves_each_case_its_own_verdict(pool: SandboxPool) -> None:
    check = _UNITTEST.replace('if __name__ == "__main__":\n    unittest.main()', "unittest.main()")
    assert check != _UNITTEST
    assert _counts(_judge(pool, _GOOD, check)) == (Outcome.PASS, 3, 3)
    partly = "def f(x):\n    return x + 1 if x > 0 else 0\n"
    for text in (check, check.replace("unittest.main()", "from unittest import main\nmain(argv=['x'])")):
        assert _counts(_judge(pool, partly, text)) == (Outcome.WRONG, 2, 3)
    # One that wants its result runs it.
    own = check.replace("unittest.main()", "assert unittest.main(exit=False).result.wasSuccessful()")
    assert _counts(_judge(pool, _GOOD, own)) == (Outcome.PASS, 3, 3)
    assert _judge(pool, partly, own).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    ("watchdog", "how"),
    [
        ("import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.2)\n", "Alarm clock"),
        ("import faulthandler\nfaulthandler.dump_traceback_later(0.2, exit=True)\n", "exit code 1"),
        ("import os, threading\nthreading.Timer(0.2, lambda: os._exit(3)).start()\n", "exit code 3"),
    ],
)
def test_a_watchdog_of_the_test_program_is_a_verdict_on_who_was_too_slow(
    pool: SandboxPool, watchdog: str, how: str
) -> None:
    check = watchdog + "assert f(1) == 2\n"
    result = _judge(pool, "import time\ndef f(x):\n    time.sleep(1)\n    return x + 1\n", check)
    assert (*_counts(result), result.detail) == (
        Outcome.WRONG,
        0,
        1,
        f"the check program ended itself: {how}",
    )
    with pytest.raises(ValueError, match=f"it ended itself .{how}. before it made a call"):
        _judge(pool, _GOOD, watchdog + "import time\ntime.sleep(1)\nassert f(1) == 2\n")


def test_a_time_limit_of_the_test_program_leaves_no_answer_to_the_next_call(pool: SandboxPool) -> None:
    limit = (
        "import signal\n"
        "def late(*_): raise TimeoutError\n"
        "signal.signal(signal.SIGALRM, late)\n"
        "def limited(x):\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.2)\n"
        "    try: return f(x)\n"
        "    finally: signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    check = limit + "".join(f"def test_{x}(): assert limited({x}) == {x} + 1\n" for x in range(4))
    slow = "import time\ndef f(x):\n    time.sleep(0.5 if x == 0 else 0)\n    return x + 1\n"
    assert _counts(_judge(pool, slow, check)) == (Outcome.WRONG, 3, 4)
    assert _counts(_judge(pool, _GOOD, check)) == (Outcome.PASS, 4, 4)


def test_exit_and_quit_are_there_as_under_python(pool: SandboxPool) -> None:
    assert _judge(pool, _GOOD, "assert f(1) == 2\nexit(0)\n").outcome is Outcome.PASS
    result = _judge(pool, "def f(x): quit()\n", "assert f(1) == 2\n")
    assert (result.outcome, result.detail) == (Outcome.EXCEPTION, "call 0: SystemExit, line 1")


def test_a_preludes_future_imports_hold_for_what_follows_it(pool: SandboxPool) -> None:
    prelude = "from __future__ import annotations\n"
    solution = "def f(x: Later): return x + 1\nclass Later: pass\n"
    check = "def g(x: Later): pass\nassert g.__annotations__ == {'x': 'Later'}\nassert f(1) == 2\n"
    assert _judge(pool, solution, check, prelude=prelude).outcome is Outcome.PASS
    assert _judge(pool, solution, "assert f(1) == 2\n").detail == "load: NameError, line 1"
    call = (CallTest(args=(1,), expected=2),)
    request = ExecutionRequest(solution=solution, entry_point="f", call_tests=call, prelude=prelude)
    assert pool.run(request).outcome is Outcome.PASS


def test_neither_solution_nor_check_inherits_the_sandboxs_future_imports(pool: SandboxPool) -> None:
    check = "def g(x: int): pass\nassert g.__annotations__ == {'x': int}\nassert f(1) == 2\n"
    assert _judge(pool, _GOOD, check).outcome is Outcome.PASS
    result = _judge(pool, "def f(x: List[int]): return x + 1\n", check)
    assert (result.outcome, result.detail) == (Outcome.EXCEPTION, "load: NameError, line 1")


def test_types_and_ranges_may_be_arguments_and_results(pool: SandboxPool) -> None:
    solution = "def f(xs, kind): return [type(x) for x in xs if type(x) is kind]\n"
    check = "assert f([1, 'a', 2.0], int) == [int]\nassert f(range(2), type(None)) == []\n"
    assert _judge(pool, solution, check).outcome is Outcome.PASS
    liar = (
        "class M(type):\n    def __eq__(c, o): return True\n    __hash__ = type.__hash__\n"
        "class int(metaclass=M): pass\ndef f(xs, kind): return [int]\n"
    )
    assert _judge(pool, liar, check).outcome is Outcome.WRONG
    assert _judge(pool, "def f(xs, kind): return [float]\n", check).outcome is Outcome.WRONG


_COUNTER = """
class Counter:
    def __init__(self): self.n = 0
    def add(self, n):
        self.n += n
        return self.n
"""


def test_a_method_is_called_on_a_fresh_instance_each_time(pool: SandboxPool) -> None:
    tests = tuple(CallTest(args=(n,), expected=n) for n in (1, 2))
    request = ExecutionRequest(solution=_COUNTER, entry_point="Counter.add", call_tests=tests, limits=_LIMITS)
    assert _counts(pool.run(request)) == (Outcome.PASS, 2, 2)
    check = (
        "from solution import Counter\ndef check(candidate):\n    assert candidate(n=3) == 3\n"
        "    assert Counter().add(4) == 4\n"
    )
    assert _judge(pool, _COUNTER, check, entry_point="Counter.add").outcome is Outcome.PASS
    for entry_point in ("Counter.sub", "Other.add"):
        result = _judge(pool, _COUNTER, check, entry_point=entry_point)
        assert (result.outcome, result.detail) == (
            Outcome.EXCEPTION,
            f"load: {entry_point} is not defined",
        )


def _sort_tests(pool: SandboxPool, solution: str, *, args_too: bool) -> ExecutionResult:
    tests = tuple(
        CallTest(args=(xs,), expected=None, expected_args=(sorted(xs),) if args_too else None)
        for xs in ([3, 1, 2], [], [5, 5, 4])
    )
    return pool.run(ExecutionRequest(solution=solution, entry_point="f", call_tests=tests, limits=_LIMITS))


def test_arguments_are_compared_with_saved_copies_where_a_test_asks_for_it(pool: SandboxPool) -> None:
    in_place = "def f(xs): xs.sort()\n"
    assert _counts(_sort_tests(pool, in_place, args_too=True)) == (Outcome.PASS, 3, 3)
    result = _sort_tests(pool, "def f(xs): xs.clear()\n", args_too=True)
    assert (*_counts(result), result.detail) == (
        Outcome.WRONG, 1, 3, "test 0: wrong arguments after the call",
    )  # fmt: skip
    result = _sort_tests(pool, "def f(xs):\n    xs.sort()\n    return xs\n", args_too=True)
    assert (*_counts(result), result.detail) == (Outcome.WRONG, 0, 3, "test 0: wrong value")
    result = _sort_tests(pool, "def f(xs): xs[:] = [object()]\n", args_too=True)
    assert _counts(result) == (Outcome.WRONG, 0, 3)
    assert _counts(_sort_tests(pool, "def f(xs): xs.clear()\n", args_too=False)) == (Outcome.PASS, 3, 3)


def test_expected_arguments_of_another_number_are_the_users_error(pool: SandboxPool) -> None:
    tests = (CallTest(args=([1],), expected=None, expected_args=([1], [2])),)
    with pytest.raises(ValueError, match=r"call_tests\[0\]\.expected_args"):
        pool.run(ExecutionRequest(solution="def f(xs): pass", entry_point="f", call_tests=tests))


_OWN_COPY = """
def check(candidate):
    for xs in ([3, 1, 2], [5, 4]):
        want = sorted(xs)
        assert candidate(xs) is None
        assert xs == want
"""


def test_copy_back_shows_a_check_what_became_of_its_arguments(pool: SandboxPool) -> None:
    in_place = "def f(xs): xs.sort()\n"
    assert _judge(pool, in_place, _OWN_COPY, copy_back=True).outcome is Outcome.PASS
    assert _judge(pool, in_place, _OWN_COPY).outcome is Outcome.WRONG
    assert _judge(pool, "def f(xs): xs.clear()\n", _OWN_COPY, copy_back=True).outcome is Outcome.WRONG


def test_clearing_the_input_fools_no_oracle_that_has_its_own_copy(pool: SandboxPool) -> None:
    cheat = "def f(xs):\n    xs.clear()\n    return []\n"
    honest = "def f(xs): return sorted(xs)\n"
    careless = "def check(candidate):\n    xs = [2, 1]\n    assert candidate(xs) == sorted(xs)\n"
    careful = (
        "def check(candidate):\n    xs = [2, 1]\n    want = sorted(xs)\n    assert candidate(xs) == want\n"
    )
    assert _judge(pool, cheat, careful, copy_back=True).outcome is Outcome.WRONG
    assert _judge(pool, honest, careful, copy_back=True).outcome is Outcome.PASS
    # Without the opt-in nothing comes back, so even the careless oracle holds. With it, it does not:
    # that is the warning in the docstring of copy_back.
    assert _judge(pool, cheat, careless).outcome is Outcome.WRONG
    assert _judge(pool, honest, careless).outcome is Outcome.PASS
    assert _judge(pool, cheat, careless, copy_back=True).outcome is Outcome.PASS


def test_copy_back_reaches_nested_containers_in_place(pool: SandboxPool) -> None:
    solution = (
        "def f(grid, *, seen):\n    grid[0][0] = 9\n    grid.append([7])\n    grid[1][0].add(3)\n"
        "    del seen['a']\n    seen['b'].append(1)\n    seen['c'] = (1, [2])\n"
    )
    check = """
from collections import Counter, OrderedDict
def check(candidate):
    row, inner, b = [1, 2], ({1, 2}, 5), []
    grid, seen = [row, inner], OrderedDict(a=1, b=b)
    assert candidate(grid, seen=seen) is None
    assert grid == [[9, 2], ({1, 2, 3}, 5), [7]]
    assert grid[0] is row and inner[0] == {1, 2, 3}
    assert list(seen.items()) == [("b", [1]), ("c", (1, [2]))] and seen["b"] is b
"""
    assert _judge(pool, solution, check, copy_back=True).outcome is Outcome.PASS
    assert _judge(pool, solution, check).outcome is Outcome.WRONG


_EXPECTS = """
import unittest
class T(unittest.TestCase):
    def test(self):
        with self.assertRaises({kind}):
            f(-1)
"""


@pytest.mark.parametrize(
    ("raised", "kind"),
    [("ValueError('no')", "ValueError"), ("type('MyErr', (ValueError,), {})()", "ValueError"),
     ("type('MyErr', (KeyError,), {})('x')", "LookupError"), ("type('MyErr', (Exception,), {})", "Exception"),
     ("b'\\xff'.decode()", "UnicodeDecodeError"), ("ExceptionGroup('g', [KeyError()])", "ExceptionGroup"),
     ("__import__('json').JSONDecodeError('m', 'd', 0)", "ValueError"), ("OSError(2, 'x')", "OSError"),
     ("SyntaxError('bad')", "SyntaxError")],
)  # fmt: skip
def test_a_check_may_expect_the_nearest_built_in_exception(pool: SandboxPool, raised: str, kind: str) -> None:
    solution = f"def f(x): raise {raised}\n"
    assert _judge(pool, solution, _EXPECTS.format(kind=kind)).outcome is Outcome.PASS
    result = _judge(pool, solution, _EXPECTS.format(kind="ImportError"))
    assert result.outcome is Outcome.EXCEPTION


_PRELUDE = """
from json import JSONDecodeError
class InvalidInput(Exception):
    pass
class Coded(Exception):
    def __init__(self, code, text): self.code = code
class Stop(StopIteration):
    pass
"""


@pytest.mark.parametrize(
    ("raised", "kind"),
    [("InvalidInput('why')", "InvalidInput"), ("InvalidInput('why')", "Exception"),
     ("type('Mine', (InvalidInput,), {})('why')", "InvalidInput"), ("Coded(1, 'b')", "Coded"),
     ("JSONDecodeError('m', 'd', 0)", "JSONDecodeError"), ("JSONDecodeError('m', 'd', 0)", "ValueError")],
)  # fmt: skip
def test_a_check_may_expect_an_exception_of_the_prelude(pool: SandboxPool, raised: str, kind: str) -> None:
    solution = f"def f(x): raise {raised}\n"
    assert _judge(pool, solution, _EXPECTS.format(kind=kind), prelude=_PRELUDE).outcome is Outcome.PASS
    result = _judge(pool, solution, _EXPECTS.format(kind="KeyError"), prelude=_PRELUDE)
    assert result.outcome is Outcome.EXCEPTION


def test_the_text_of_an_exception_of_the_prelude_arrives(pool: SandboxPool) -> None:
    solution = "def f(x): raise InvalidInput('why')\n"
    check = "try: f(1)\nexcept InvalidInput as error: assert str(error) == 'why', str(error)\n"
    assert _judge(pool, solution, check, prelude=_PRELUDE).outcome is Outcome.PASS


@pytest.mark.parametrize("names", ["('Stop',)", "('Stop', 'Exception')", "('StopIteration',)"])
def test_no_name_of_an_exception_ends_a_loop_over_calls(pool: SandboxPool, names: str) -> None:
    solution = (
        "import os, struct, sys\n"
        "def f(x):\n"
        f"    body = sys.modules['sandbox.codec'].encode(('error', ({names}, (), 0)))\n"
        "    os.write(3, struct.pack('<I', len(body)) + body)\n"
        "    os.read(3, 1)\n"
    )
    check = "assert all(map(f, [1, 5]))\n"
    assert _judge(pool, solution, check, prelude=_PRELUDE).outcome not in (Outcome.PASS, Outcome.INFRA_ERROR)


@pytest.mark.parametrize(
    ("solution", "call"),
    [("def f(d):\n    d['z'] += 1\n    return dict(d)", "f(defaultdict(int, a=1)) == {'a': 1, 'z': 1}"),
     ("def f(d): return d.popitem(last=False)", "f(OrderedDict(a=1, b=2)) == ('a', 1)"),
     ("def f(d): return d.most_common(1)", "f(Counter('aab')) == [('a', 2)]"),
     ("def f(d): return d[0][1]['x']", "f([{1: defaultdict(list)}]) == []"),
     ("def f(d): return type(d).__name__", "f({'a': 1}) == 'dict'"),
     ("def f(d): return d", "f(Counter('aab')) == Counter('aab')")],
)  # fmt: skip
def test_arguments_stay_the_kind_of_dict_that_they_are(pool: SandboxPool, solution: str, call: str) -> None:
    check = f"from collections import Counter, OrderedDict, defaultdict\nassert {call}\n"
    assert _judge(pool, solution, check).outcome is Outcome.PASS


def test_a_defaultdict_whose_factory_cannot_cross_is_the_tasks_fault(pool: SandboxPool) -> None:
    check = "from collections import defaultdict\nassert f(defaultdict(lambda: 1)) == 1\n"
    with pytest.raises(ValueError, match="an argument: type function may not cross"):
        _judge(pool, "def f(d): return d['z']", check)


def test_what_a_check_draws_is_the_same_each_time_and_differs_from_check_to_check() -> None:
    def drawn(check: str) -> str:
        with SandboxPool() as fresh, pytest.raises(ValueError, match="cannot run: LookupError") as refused:
            _judge(fresh, _GOOD, check)
        return str(refused.value)

    check = "import random\nraise LookupError(random.random())\n"
    assert drawn(check) == drawn(check) != drawn("# another\n" + check)


def test_a_check_that_is_no_text_is_the_tasks_fault(pool: SandboxPool) -> None:
    with pytest.raises(ValueError, match="cannot run: UnicodeEncodeError"):
        _judge(pool, _GOOD, "x = '\ud800'\nassert f(1) == 2\n")


def test_an_exceptions_text_and_arguments_arrive(pool: SandboxPool) -> None:
    check = (
        "try: f(1)\nexcept ValueError as error:\n    assert str(error) == 'no: 1', str(error)\n"
        "try: f(2)\nexcept KeyError as error:\n    assert error.args == ('key', 2)\n"
    )
    solution = (
        "class MyErr(ValueError):\n    def __str__(self): return 'no: 1'\n"
        "def f(x):\n    if x == 1: raise MyErr\n    raise KeyError('key', x)\n"
    )
    assert _judge(pool, solution, check).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "body",
    ["raise SystemExit(0)", "raise KeyboardInterrupt", "raise GeneratorExit", "exit()",
     "raise type('Own', (BaseException,), {})", "raise BaseExceptionGroup('g', [SystemExit()])",
     "return object()", "return (y for y in [2])", "yield 2"],
)  # fmt: skip
@pytest.mark.parametrize(
    "kind", ["BaseException", "Exception", "TypeError", "RuntimeError", "SystemExit", "KeyboardInterrupt"]
)
def test_exits_and_foreign_values_are_never_what_a_test_expects(
    pool: SandboxPool, body: str, kind: str
) -> None:
    solution = f"import builtins\nfrom sys import exit\ndef f(x):\n    {body}\n"
    for check in (_EXPECTS.format(kind=kind), f"try: f(1)\nexcept {kind}: pass\n"):
        result = _judge(pool, solution, check)
        assert result.outcome in (Outcome.WRONG, Outcome.EXCEPTION)
        assert result.num_passed == 0


@pytest.mark.parametrize(
    "solution",
    [
        "class M(type):\n    def mro(c): raise SystemExit(0)\ndef f(x): M('E', (Exception,), {})\n",
        "class M(type):\n    __name__ = property(lambda c: 1 / 0)\n"
        "class E(Exception, metaclass=M): pass\ndef f(x): raise E\n",
        "class E(Exception):\n    def __str__(self): raise SystemExit(0)\ndef f(x): raise E\n",
        "class S(str):\n    def __getitem__(self, i): return self\n"
        "class E(Exception): pass\nE.__name__ = S('E')\ndef f(x): raise E\n",
        "def f(x): raise ValueError(object(), f)\n",
    ],
)
def test_strange_exception_classes_are_exceptions_like_any_other(pool: SandboxPool, solution: str) -> None:
    result = _judge(pool, solution, "assert f(1) == 2\n")
    assert result.outcome is Outcome.EXCEPTION


def test_a_result_is_what_it_was_when_it_was_returned(pool: SandboxPool) -> None:
    solution = (
        "import threading, time\nkept = []\n"
        "def later():\n    time.sleep(0.05)\n    kept[:] = [x + 1 for x in range(3)]\n"
        "def f(x):\n    kept[:] = [0]\n    threading.Thread(target=later, daemon=True).start()\n"
        "    return kept\n"
    )
    check = "import time\ngot = f(3)\ntime.sleep(0.3)\nassert got == [1, 2, 3]\n"
    assert _judge(pool, solution, check).outcome is Outcome.WRONG
    first = "seen = []\ndef f(x):\n    seen.append(x)\n    return seen\n"
    assert _judge(pool, first, "a = f(1)\nb = f(2)\nassert (a, b) == ([1], [1, 2])\n").outcome is Outcome.PASS


def test_nan_equals_nothing(pool: SandboxPool) -> None:
    solution = "nan = float('nan')\ndef f(x): return nan\n"
    tests = (CallTest(args=(1,), expected=1.0),)
    request = ExecutionRequest(solution=solution, entry_point="f", call_tests=tests, limits=_LIMITS)
    assert pool.run(request).outcome is Outcome.WRONG
    assert _judge(pool, solution, "a = f(1)\nassert a == f(1)\n").outcome is Outcome.WRONG
    assert _judge(pool, solution, "import math\nassert math.isnan(f(1))\n").outcome is Outcome.PASS


def test_memory_errors_in_a_check_program_are_the_candidates_oom(pool: SandboxPool) -> None:
    result = _judge(pool, "def f(x): return [0] * 10**12\n", "assert f(1) == 2\n")
    assert (result.outcome, result.detail) == (Outcome.OOM, "call 0: MemoryError, line 1")


def test_a_check_program_that_never_ends_is_a_timeout(pool: SandboxPool) -> None:
    request = ExecutionRequest(
        solution=_GOOD,
        entry_point="f",
        check_source="def test_a(): assert f(1) == 2\ndef test_b():\n    while True: pass\n",
        limits=Limits(cpu_s=0.5, wall_s=60.0),
    )
    assert _counts(pool.run(request)) == (Outcome.TIMEOUT_CPU, 1, 2)


@pytest.mark.parametrize(
    "frame",
    ["5", "('ok',)", "('ready', None)", "('odd', 1)", "('foreign', 5)", "('error', 5)",
     "('error', (('E',), ()))", "('error', ((), (), 0))", "('error', ((10**5000,), (), 0))",
     "('error', (('E', 10**5000), (), 0))", "('error', (('E',), 5, 0))",
     "('error', (('E',) * 17, (), 0))", "('error', (('E',), (), True))",
     "('error', (('E',), (), -1))", "('error', (('E',), (), 10**5000))", "('error', (('E',), (), '1'))"],
)  # fmt: skip
def test_answers_of_no_known_form_are_violations(pool: SandboxPool, frame: str) -> None:
    solution = (
        "import os, struct, sys\n"
        "def f(x):\n"
        f"    body = sys.modules['sandbox.codec'].encode({frame})\n"
        "    os.write(3, struct.pack('<I', len(body)) + body)\n"
        "    return x + 1\n"
    )
    assert _judge(pool, solution, _EXPECTS.format(kind="ValueError")).outcome is Outcome.VIOLATION
    tests = (CallTest(args=(1,), expected=2),)
    request = ExecutionRequest(solution=solution, entry_point="f", call_tests=tests, limits=_LIMITS)
    assert pool.run(request).outcome is Outcome.VIOLATION


@pytest.mark.parametrize("value", ["1", "(1, 2)", "(1, 2, {})", "(1, [], {})", "(1, (), [])"])
def test_forged_copies_of_arguments_are_violations(pool: SandboxPool, value: str) -> None:
    solution = (
        "import os, struct, sys\n"
        "def f(xs):\n"
        f"    body = sys.modules['sandbox.codec'].encode(('ok', {value}))\n"
        "    os.write(3, struct.pack('<I', len(body)) + body)\n"
    )
    assert _judge(pool, solution, _OWN_COPY, copy_back=True).outcome is Outcome.VIOLATION


def test_forged_arguments_of_another_shape_change_nothing_else_in_the_judge(pool: SandboxPool) -> None:
    solution = (
        "import os, struct, sys\n"
        "def f(xs, *, want=None):\n"
        "    forged = ('ok', (None, ((), 1, 2), {'want': [], 'xs': 5, 7: 8}))\n"
        "    body = sys.modules['sandbox.codec'].encode(forged)\n"
        "    os.write(3, struct.pack('<I', len(body)) + body)\n"
        "    os.read(3, 1)\n"
    )
    check = (
        "def check(candidate):\n    xs = [3, 1]\n    want = sorted(xs)\n    candidate(xs, want=list(want))\n"
        "    assert xs == want\n"
    )
    assert _judge(pool, solution, check, copy_back=True).outcome in (Outcome.WRONG, Outcome.VIOLATION)
