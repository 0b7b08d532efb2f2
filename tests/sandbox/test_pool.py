"""Verdicts, partial credit, faults of the machinery, and the ends of processes."""

from __future__ import annotations

import ast
import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Limits, Outcome, StdioTest
from sandbox.worker import Worker
from tests.processes import all_gone, descendants, num_descriptors

_LIMITS = Limits(cpu_s=10.0, wall_s=60.0)
_CHECK = "def check(candidate):\n    assert candidate(1) == 2\n"


def _calls(pool: SandboxPool, solution: str, *pairs: tuple[object, object]) -> ExecutionResult:
    tests = tuple(CallTest(args=(arg,), expected=expected) for arg, expected in pairs)
    return pool.run(ExecutionRequest(solution=solution, entry_point="f", call_tests=tests, limits=_LIMITS))


def _check(pool: SandboxPool, solution: str, check: str = _CHECK, prelude: str = "") -> ExecutionResult:
    return pool.run(
        ExecutionRequest(
            solution=solution, entry_point="f", check_source=check, prelude=prelude, limits=_LIMITS
        )
    )


def test_partial_credit_goes_on_after_wrong_values_and_exceptions(pool: SandboxPool) -> None:
    solution = "def f(x):\n    if x == 1: return 0\n    if x == 2: raise KeyError\n    return x\n"
    result = _calls(pool, solution, (0, 0), (1, 1), (2, 2), (3, 3))
    assert (result.outcome, result.num_passed, result.num_tests) == (Outcome.WRONG, 2, 4)
    assert result.detail == "test 1: wrong value"
    result = _calls(pool, solution, (2, 2), (1, 1), (3, 3))
    assert (result.outcome, result.num_passed, result.detail) == (
        Outcome.EXCEPTION,
        1,
        "test 0: KeyError, line 3",
    )


def test_a_death_ends_the_run_and_keeps_the_tests_passed_before(pool: SandboxPool) -> None:
    solution = "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return x\n"
    result = _calls(pool, solution, (0, 0), (1, 1), (2, 2), (3, 3))
    assert (result.outcome, result.num_passed) == (Outcome.CRASH, 2)
    assert result.detail == "test 2: exited with code 0"


def test_what_calls_return_is_kept_where_it_is_asked_for(pool: SandboxPool) -> None:
    request = ExecutionRequest(
        solution="import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return [x, 1 / x]\n",
        entry_point="f",
        call_tests=tuple(CallTest(args=(arg,), expected=None) for arg in (1, 0, 4, 2, 5)),
        keep_values=True,
        limits=_LIMITS,
    )
    assert pool.run(request).values == (([1, 1.0],), None, ([4, 0.25],))
    assert _calls(pool, "def f(x): return x", (1, 1)).values == ()


def test_values_are_equal_as_python_says(pool: SandboxPool) -> None:
    assert _calls(pool, "def f(x): return x", (1, True), (1.0, 1), ({1}, frozenset({1}))).num_passed == 3
    assert _calls(pool, "def f(x): return x", ([1], (1,)), ("a", b"a"), ("1", 1)).num_passed == 0


def test_each_call_gets_fresh_arguments(pool: SandboxPool) -> None:
    shared = [1, 2]
    assert (
        _calls(pool, "def f(x):\n    x.append(3)\n    return len(x)\n", (shared, 3), (shared, 3)).num_passed
        == 2
    )


@pytest.mark.parametrize(
    ("solution", "detail"),
    [
        ("def f(x:\n", "SyntaxError"),
        ("import nothing_of_this_name\n", "load: ModuleNotFoundError, line 1"),
        ("def g(x): pass\n", "load: f is not defined"),
    ],
)
def test_a_program_that_does_not_load_is_an_exception(pool: SandboxPool, solution: str, detail: str) -> None:
    for result in (_calls(pool, solution, (1, 1)), _check(pool, solution)):
        assert (result.outcome, result.detail, result.num_passed) == (Outcome.EXCEPTION, detail, 0)


def test_stderr_makes_a_run_unclean_and_stdout_does_not(pool: SandboxPool) -> None:
    assert _calls(pool, "def f(x):\n    print(x)\n    return x\n", (1, 1)).clean
    result = _calls(pool, "import sys\ndef f(x):\n    print(x, file=sys.stderr)\n    return x\n", (1, 1))
    assert (result.outcome, result.clean) == (Outcome.PASS, False)


def test_the_prelude_serves_solution_and_check(pool: SandboxPool) -> None:
    prelude = "import math\ndef helper(x): return math.floor(x) + 1\n"
    check = "def check(candidate):\n    assert candidate(1) == helper(1)\n"
    assert _check(pool, "def f(x): return helper(x)\n", check, prelude).outcome is Outcome.PASS


def test_a_check_that_makes_no_call_does_not_pass(pool: SandboxPool) -> None:
    assert _check(pool, "def f(x): return 2\n", "def check(candidate): pass\n").outcome is Outcome.WRONG


def test_requests_that_cannot_be_run_are_refused(pool: SandboxPool) -> None:
    with pytest.raises(ValueError, match=r"call_tests\[0\]\.args"):
        _calls(pool, "def f(x): return x\n", (object(), 1))
    with pytest.raises(ValueError, match=r"call_tests\[1\]\.expected: type object may not"):
        _calls(pool, "def f(x): return x\n", (1, 1), (1, object()))
    with pytest.raises(ValueError, match="exactly one"):
        pool.run(ExecutionRequest(solution="", entry_point="f"))
    with pytest.raises(ValueError, match="prelude"):
        _check(pool, "def f(x): return 2\n", prelude="1 / 0\n")
    with pytest.raises(ValueError, match="num_workers"):
        SandboxPool(num_workers=0)
    with pytest.raises(ValueError, match="recycle_after=0 must be at least 1"):
        SandboxPool(recycle_after=0)
    with pytest.raises(ValueError, match="max_infra_retries=-1 must be at least 0"):
        SandboxPool(max_infra_retries=-1)


@pytest.mark.parametrize("name", ["expected", "expected_args"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "no value is equal to it"),
        ([{1: (float("nan"),)}], "no value is equal to it"),
        (list(range(300_000)), "value is too large"),
        (ast.literal_eval("[" * 99 + "(1,)," + "]" * 99), "value is too deep"),
    ],
)
def test_expected_values_that_no_answer_can_equal_are_refused(
    pool: SandboxPool, name: str, value: object, reason: str
) -> None:
    test = CallTest(args=(1,), expected=value)
    if name == "expected_args":
        test = CallTest(args=(1,), expected=None, expected_args=(value,))
    request = ExecutionRequest(solution="def f(x): pass", entry_point="f", call_tests=(test,), limits=_LIMITS)
    with pytest.raises(ValueError, match=rf"call_tests\[0\]\.expected: {reason}"):
        pool.run(request)


def test_runs_do_not_see_each_other(pool: SandboxPool) -> None:
    poison = "import math, builtins\nmath.floor = builtins.sorted = None\ndef f(x): return x\n"
    assert _calls(pool, poison, (1, 1)).outcome is Outcome.PASS
    clean = "import math\ndef f(x): return math.floor(x) + len(sorted(''))\n"
    assert _calls(pool, clean, (1.5, 1)).outcome is Outcome.PASS


def test_random_and_hash_order_do_not_change_between_zygotes() -> None:
    # One bit a test: the same number passes every time only if all bits are the same.
    bits = "import random\nn = hash((random.random(), *{'a', 'b', 'c'}))\ndef f(i): return n >> i & 1\n"
    pairs = [(i, 1) for i in range(60)]
    with SandboxPool(recycle_after=1) as pool:
        assert len({_calls(pool, bits, *pairs).num_passed for _ in range(3)}) == 1


@pytest.mark.parametrize("judge", [False, True], ids=["call", "judge"])
def test_killing_the_zygote_in_the_middle_gives_the_right_verdict_after_a_retry(judge: bool) -> None:
    with SandboxPool() as pool:
        victim = pool.worker_pids[0]
        killer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
        killer.start()
        solution = "import time\ndef f(x):\n    time.sleep(0.8)\n    return x + 1\n"
        result = _check(pool, solution) if judge else _calls(pool, solution, (1, 2))
        killer.join()
        assert result.outcome is Outcome.PASS
        assert pool.worker_pids != [victim]


@pytest.mark.parametrize(
    "tests", [(CallTest(args=(1,), expected=1),), (StdioTest(stdin="1\n", expected_stdout="1\n"),) * 2]
)
def test_killing_every_child_from_outside_ends_as_infra_error_and_never_as_wrong(
    tests: tuple[CallTest, ...] | tuple[StdioTest, ...],
) -> None:
    program = "import time\ntime.sleep(3)\ndef f(x):\n    return x\n"
    request = ExecutionRequest(solution=program, entry_point="f", limits=_LIMITS)
    field = "call_tests" if isinstance(tests[0], CallTest) else "stdio_tests"
    with SandboxPool(max_infra_retries=1) as pool:
        stop = threading.Event()

        def kill_zygotes() -> None:
            while not stop.wait(0.05):
                for pid in pool.worker_pids:
                    # The pool may have reaped it since.
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_zygotes)
        killer.start()
        try:
            result = pool.run(replace(request, **{field: tests}))  # type: ignore[arg-type]
        finally:
            stop.set()
            killer.join()
        assert result.outcome is Outcome.INFRA_ERROR
        assert (result.num_passed, result.num_tests) == (0, len(tests))
        assert _calls(pool, "def f(x): return x\n", (1, 1)).outcome is Outcome.PASS


def test_the_kernels_own_count_of_cpu_time_is_a_late_backup(pool: SandboxPool) -> None:
    """It counts by ticks, too much on a busy core: at one second above the limit it killed programs, as
    if the host had, that were still below it."""
    solution = "import resource\ndef f(x): return resource.getrlimit(resource.RLIMIT_CPU)\n"
    assert _calls(pool, solution, (0, (21, 22))).outcome is Outcome.PASS


def test_a_program_that_the_kernel_ends_for_its_cpu_time_is_a_timeout() -> None:
    # Only without the system-call filter can a program send the kernel's signal to itself.
    die = "import os, signal\ndef die(): os.kill(os.getpid(), signal.SIGXCPU)\n"
    with SandboxPool(without=frozenset({"seccomp"}), allow_unsafe=True) as open_pool:
        for verdict in (
            _calls(open_pool, f"{die}def f(x): die()", (1, 2)),
            _check(open_pool, f"{die}def f(x): die()"),
            open_pool.run(
                ExecutionRequest(
                    solution=f"{die}die()",
                    entry_point="",
                    stdio_tests=(StdioTest(stdin="", expected_stdout="1"),),
                    limits=_LIMITS,
                )
            ),
        ):
            assert verdict.outcome is Outcome.TIMEOUT_CPU
            assert verdict.detail.endswith("more than 10.0 s of CPU")


def test_zygotes_are_recycled_and_many_threads_may_share_a_pool() -> None:
    with SandboxPool(num_workers=2, recycle_after=5) as pool:
        before = set(pool.worker_pids)
        with ThreadPoolExecutor(6) as threads:
            results = list(
                threads.map(lambda i: _calls(pool, f"def f(x): return x + {i}\n", (1, 1 + i)), range(30))
            )
        assert {result.outcome for result in results} == {Outcome.PASS}
        assert not before & set(pool.worker_pids)
        assert len(pool.worker_pids) == 2


def test_close_leaves_no_process_descriptor_or_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    num_fds = num_descriptors()
    pool = SandboxPool(num_workers=2)
    children = set().union(*(descendants(pid) | {pid} for pid in pool.worker_pids))
    # Nothing to be found of those that can write nothing, even if their owner is killed.
    assert len(children) >= 4 and list(tmp_path.iterdir()) == []
    os.kill(pool.worker_pids[0], signal.SIGKILL)
    for index in range(10):
        assert _calls(pool, "def f(x): return x\n", (index, index)).outcome is Outcome.PASS
    pool.close()
    assert all_gone(children, 20.0)
    assert list(tmp_path.iterdir()) == []
    assert num_descriptors() == num_fds
    with pytest.raises(RuntimeError, match="close"):
        _calls(pool, "def f(x): return x\n", (1, 1))


@pytest.mark.parametrize("source", ["subprocess.Popen", "socket.socketpair"])
def test_without_a_process_or_a_descriptor_to_be_had_there_is_no_verdict_and_nothing_is_left(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **named: object) -> None:
        raise OSError(errno.EAGAIN, "not now")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with SandboxPool(max_infra_retries=1) as pool:
        os.kill(pool.worker_pids[0], signal.SIGKILL)
        num_fds = num_descriptors()
        with monkeypatch.context() as host:
            host.setattr(f"sandbox.worker.{source}", refuse)
            result = _calls(pool, "def f(x): return x\n", (1, 1))
            with pytest.raises(OSError, match="not now"):
                SandboxPool()
        assert (result.outcome, result.detail) == (Outcome.INFRA_ERROR, f"[Errno {errno.EAGAIN}] not now")
        assert list(tmp_path.iterdir()) == [] and num_descriptors() < num_fds
        assert _calls(pool, "def f(x): return x\n", (1, 1)).outcome is Outcome.PASS


def test_a_place_is_free_again_although_its_worker_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(worker: Worker) -> None:
        raise RuntimeError("it does not end")

    monkeypatch.setattr("sandbox.pool._FREE_WORKER_TIMEOUT_S", 1.0)
    with SandboxPool() as pool:
        (worker,) = pool._workers
        os.kill(worker.pid, signal.SIGKILL)
        with monkeypatch.context() as host, pytest.raises(RuntimeError, match="it does not end"):
            host.setattr(Worker, "close", stuck)
            _calls(pool, "def f(x): return x\n", (1, 1))
        assert _calls(pool, "def f(x): return x\n", (1, 1)).outcome is Outcome.PASS
        worker.close()


def test_a_zygote_that_the_kernel_does_not_end_in_time_is_no_error_of_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(process: subprocess.Popen[bytes], timeout: float) -> int:
        raise subprocess.TimeoutExpired("zygote", timeout)

    worker = Worker()
    worker.wait_ready()
    with monkeypatch.context() as host:
        host.setattr("sandbox.worker.subprocess.Popen.wait", late)
        worker.close()
    worker.close()
    assert all_gone([worker.pid], 20.0)


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.002, 0.01, 0.1])
def test_a_zygote_dies_with_its_launcher_even_while_the_jail_is_built(delay_s: float) -> None:
    worker = Worker()
    # Quicker to read than all of /proc: the jail is built in a few milliseconds.
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
    deadline = time.monotonic() + 30.0
    try:
        # Not while is_alive(): the jail may be built, and say so, between two looks.
        while not (family := {int(pid) for pid in children.read_text().split()}):
            assert time.monotonic() < deadline
        time.sleep(delay_s)
        os.kill(worker.pid, signal.SIGKILL)
        assert all_gone(family, 5.0)
    finally:
        worker.close()
