"""The owner's side where the host, the clock or the task is at fault: never the program's verdict."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sandbox.__main__ import main
from sandbox.codec import CodecError, decode, encode
from sandbox.execution import CallRun, CheckRun
from sandbox.launcher import _ANSWER, _QUESTION, Launcher
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Limits, Outcome, StdioTest
from sandbox.run import Failure
from sandbox.worker import SandboxError, Worker
from tests.processes import descendants, num_descriptors

_CALLS = (CallTest(args=(1,), expected=2),)
_SHORT = Limits(cpu_s=10.0, wall_s=0.4)
_WEAKER = frozenset({"namespaces", "landlock"})


def _request(
    solution: str = "def f(x): return x + 1\n", check: str | None = None, limits: Limits = _SHORT
) -> ExecutionRequest:
    return ExecutionRequest(
        solution=solution,
        entry_point="f",
        call_tests=() if check else _CALLS,
        check_source=check,
        limits=limits,
    )


def test_no_later_process_runs_below_the_level_that_the_pool_began_with() -> None:
    with SandboxPool(recycle_after=1, max_infra_retries=1) as pool:
        assert pool.run(_request()).outcome is Outcome.PASS
        pool._without = _WEAKER  # as on a host that refuses walls which it gave before
        result = pool.run(_request())
        assert result.outcome is Outcome.INFRA_ERROR
        assert result.detail == f"a new sandbox process has level L1 only, this pool began with {pool.level}"
        pool._without = frozenset()
        assert pool.run(_request()).outcome is Outcome.PASS


def test_the_level_of_a_pool_is_that_of_its_weakest_process(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = iter((frozenset[str](), _WEAKER))
    monkeypatch.setattr("sandbox.pool.Worker", lambda _, modules: Worker(next(starts), modules))
    with pytest.raises(SandboxError, match="level L1 on this host"):
        SandboxPool(2)


def test_an_answer_that_came_in_time_counts_although_its_owner_reads_it_late(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, verdict = CallRun._compare, CheckRun._verdict

    def late_comparison(run: CallRun, *given: object) -> Failure | None:
        time.sleep(1.0)
        return compare(run, *given)  # type: ignore[arg-type]

    def late_verdict(run: CheckRun) -> Failure:
        time.sleep(1.0)
        return verdict(run)

    monkeypatch.setattr(CallRun, "_compare", late_comparison)
    monkeypatch.setattr(CheckRun, "_verdict", late_verdict)
    check = "def check(candidate):\n    assert candidate(1) == 2\n"
    for request in (_request(), _request(check=check)):
        assert pool.run(request).outcome is Outcome.PASS
    wrong = "def f(x): return x\n"
    for request in (_request(wrong), _request(wrong, check)):
        assert pool.run(request).outcome is Outcome.WRONG


@pytest.mark.parametrize("endless", ["while True: pass", "time.sleep(60)"])
def test_a_check_that_times_out_before_its_first_call_is_the_tasks_fault(
    pool: SandboxPool, endless: str
) -> None:
    limits = Limits(cpu_s=0.3, wall_s=0.4)
    before = f"import time\ndef check(candidate):\n    {endless}\n    assert candidate(1) == 2\n"
    with pytest.raises(
        ValueError, match=r"check program of 'f' cannot run: it took more than .* before it made"
    ):
        pool.run(_request(check=before, limits=limits))
    after = f"import time\ndef check(candidate):\n    assert candidate(1) == 2\n    {endless}\n"
    assert pool.run(_request(check=after, limits=limits)).outcome in (
        Outcome.TIMEOUT_CPU,
        Outcome.TIMEOUT_WALL,
    )


def test_a_program_that_leaves_the_check_no_time_has_timed_out_itself(pool: SandboxPool) -> None:
    limits = Limits(cpu_s=1.0, wall_s=2.5)
    check = "import time\ntime.sleep(1.5)\ndef check(candidate):\n    assert candidate(1) == 2\n"
    lazy = "import time\ntime.sleep(2.2)\ndef f(x): return x\n"
    assert pool.run(_request(lazy, check, limits=limits)).outcome is Outcome.TIMEOUT_WALL
    assert pool.run(_request(check=check, limits=limits)).outcome is Outcome.PASS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_child_that_the_host_ends_is_no_crash_of_its_program(number: signal.Signals) -> None:
    solution = "import time\ntime.sleep(2)\ndef f(x): return x + 1\n"
    with SandboxPool(max_infra_retries=0) as pool:
        processes = descendants(pool.worker_pids[0])

        def end_the_child() -> None:
            deadline = time.monotonic() + 20.0
            while not (children := descendants(pool.worker_pids[0]) - processes):
                assert time.monotonic() < deadline
            time.sleep(0.3)  # for the program to have begun
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)

        killer = threading.Thread(target=end_the_child)
        killer.start()
        result = pool.run(_request(solution, limits=Limits()))
        killer.join()
    assert result.outcome is Outcome.INFRA_ERROR
    assert result.detail == f"a child was killed from outside ({signal.strsignal(number)})"


def test_a_program_that_could_not_be_confined_has_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("print(int(input()) + 1)", encoding="utf-8")
    (tmp_path / "tests.json").write_text('[{"stdin": "1", "expected_stdout": "2"}]', encoding="utf-8")
    command = [sys.executable, "-m", "sandbox", "run", "--solution", str(tmp_path / "solution.py")]

    def run(prefix: str) -> subprocess.CompletedProcess[str]:
        words = shlex.join([*command, "--tests", str(tmp_path / "tests.json")])
        return subprocess.run(
            ["/bin/sh", "-c", f"{prefix}exec {words}"], capture_output=True, text=True, timeout=60
        )

    assert run("").stdout.startswith("pass\n")
    # Files of 64 KiB at most, where a program may write 1 MiB: no child may raise its own limit to that.
    low = run("ulimit -f 64; ")
    assert low.stdout.startswith("infra_error (a child ended before it could read the program)\n")
    assert low.returncode == 3


def test_what_a_paused_container_stood_still_is_no_time_of_its_programs() -> None:
    test = StdioTest(stdin="", expected_stdout="1")
    request = ExecutionRequest(
        solution="import time\ntime.sleep(1)\nprint(1)",
        entry_point="",
        stdio_tests=(test,),
        limits=Limits(cpu_s=1.0, wall_s=2.0, wall_cap_s=2.0),
    )
    with SandboxPool(max_infra_retries=0) as pool:
        processes = {pool.worker_pids[0], *descendants(pool.worker_pids[0])}
        results: list[ExecutionResult] = []
        runner = threading.Thread(target=lambda: results.append(pool.run(request)))
        runner.start()
        deadline = time.monotonic() + 20.0
        while not (children := descendants(pool.worker_pids[0]) - processes):
            assert time.monotonic() < deadline
        stopped = [*processes, *children]
        for one in stopped:
            os.kill(one, signal.SIGSTOP)
        time.sleep(3.0)
        for one in stopped:
            os.kill(one, signal.SIGCONT)
        runner.join()
    assert results[0].outcome is Outcome.PASS


def test_an_answer_to_an_earlier_question_is_not_taken_for_this_ones() -> None:
    zygote, launcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with zygote, launcher:
        line = Launcher(zygote)
        launcher.send(_ANSWER.pack(1, 0.5))
        assert line.run_queue_delay([]) == 0.5
        launcher.send(_ANSWER.pack(1, 7.0))
        launcher.send(_ANSWER.pack(2, 0.25))
        assert line.run_queue_delay([]) == 0.25
        asked = [_QUESTION.unpack(launcher.recv(_QUESTION.size))[0] for _ in range(2)]
    assert asked == [1, 2]


def test_a_refused_request_costs_no_process(pool: SandboxPool) -> None:
    before = pool.worker_pids
    bad = ExecutionRequest(solution="", entry_point="f", call_tests=(CallTest(args=(object(),), expected=1),))
    with pytest.raises(ValueError, match="may not cross"):
        pool.run(bad)
    assert pool.run(_request()).outcome is Outcome.PASS
    assert pool.worker_pids == before


def test_a_range_of_huge_numbers_is_refused_before_it_is_divided() -> None:
    wide = 1 << 5000
    data = bytearray(encode(range(1, 2, 3)))
    assert decode(bytes(data)) == range(1, 2, 3)
    forged = b"r" + encode(0)[:] + encode(wide) + encode(3)
    with pytest.raises(CodecError, match="4096 bits"):
        decode(forged)
    with pytest.raises(CodecError, match="4096 bits"):
        encode(range(wide))


@pytest.mark.parametrize("max_infra_retries", [0, 2])
def test_a_pool_that_is_closed_in_the_middle_of_a_run_ends_its_process_in_order(
    max_infra_retries: int,
) -> None:
    pool = SandboxPool(max_infra_retries=max_infra_retries)
    (worker,) = pool._workers
    tests = (StdioTest(stdin="", expected_stdout=""),)
    request = ExecutionRequest(
        solution="import time\ntime.sleep(60)\n",
        entry_point="",
        stdio_tests=tests,
        limits=Limits(wall_s=90.0),
    )
    ended: list[BaseException] = []

    def run() -> None:
        try:
            pool.run(request)
        except RuntimeError as error:
            ended.append(error)

    processes = descendants(worker.pid)
    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 20.0
    while not descendants(worker.pid) - processes:
        assert time.monotonic() < deadline
    time.sleep(0.2)  # for the thread to wait for the run's end
    pool.close()
    thread.join(20.0)
    assert len(ended) == 1
    # Told by its socket; one that had to be killed has minus the signal's number.
    assert worker._process.returncode == 0


def test_a_file_in_memory_that_cannot_be_had_leaves_none_behind(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.memfd_create

    def refuse(name: str) -> int:
        if name == "stdout":
            raise OSError(errno.EMFILE, "too many open files")
        return make(name)

    tests = (StdioTest(stdin="", expected_stdout=""),)
    request = ExecutionRequest(solution="", entry_point="", stdio_tests=tests)
    assert pool.run(request).outcome is Outcome.PASS
    num_fds = num_descriptors()
    with monkeypatch.context() as host:
        host.setattr(os, "memfd_create", refuse)
        assert pool.run(request).outcome is Outcome.INFRA_ERROR
    assert pool.run(request).outcome is Outcome.PASS
    assert num_descriptors() <= num_fds


def test_a_host_without_descriptors_is_no_mistake_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    source = tmp_path / "in.jsonl"
    source.write_text(
        '{"id": 1, "prompt": "", "solution": "print(1)", "stdin": [""], "expected_stdout": ["1"]}\n'
    )
    monkeypatch.setattr("sandbox.__main__.SandboxPool", refuse)
    assert main(["score", str(source), str(tmp_path / "out.jsonl"), "--workers", "3"]) == 3
    said = capsys.readouterr().err
    assert "the sandbox could not start 3 processes: " in said and "out.jsonl" not in said


def test_the_clock_follows_the_cpu_time_that_is_allowed() -> None:
    assert Limits.around(2.0, 1 << 29) == Limits()
    assert Limits.around(30.0, 1 << 29) == Limits(cpu_s=30.0, wall_s=150.0, wall_cap_s=300.0)
    assert Limits.around(1.0, 1 << 29, wall_s=3.0) == Limits(cpu_s=1.0, wall_s=3.0)
