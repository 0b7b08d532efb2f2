"""Many runs leave nothing behind, faults of the machinery are never verdicts, and time is honest."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Limits, Outcome, StdioTest
from tests.processes import all_gone, descendants, num_descriptors, wait_until
from tests.sandbox.programs import ENDLESS

_ROOT = Path(__file__).parents[2]
_ROOMY = Limits(cpu_s=20.0, wall_s=120.0, wall_cap_s=240.0)
_MODES = ("call", "judge", "stdio")

# Bodies of ``f(x)``, which ought to be x + 1; in stdio mode its value is printed.
_KINDS = {
    Outcome.PASS: "return x + 1",
    Outcome.WRONG: "return x",
    Outcome.EXCEPTION: "raise KeyError(x)",
    Outcome.CRASH: "import ctypes; return ctypes.string_at(0)",
    Outcome.OOM: "return len(bytearray(1 << 40))",
    Outcome.TIMEOUT_CPU: "\n    while True: pass",
    Outcome.TIMEOUT_WALL: "import time; time.sleep(60)",
}
_TIGHT = {
    Outcome.TIMEOUT_CPU: Limits(cpu_s=0.1, wall_s=60.0, wall_cap_s=240.0),
    Outcome.TIMEOUT_WALL: Limits(cpu_s=20.0, wall_s=0.1, wall_cap_s=240.0),
}


def _request(body: str, mode: str, limits: Limits = _ROOMY, head: str = "") -> ExecutionRequest:
    source = f"{head}\ndef f(x):\n    {body}\n"
    if mode == "call":
        tests = (CallTest(args=(1,), expected=2), CallTest(args=(5,), expected=6))
        return ExecutionRequest(solution=source, entry_point="f", call_tests=tests, limits=limits)
    if mode == "judge":
        check = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"
        return ExecutionRequest(solution=source, entry_point="f", check_source=check, limits=limits)
    tests_io = (StdioTest(stdin="1\n", expected_stdout="2\n"),)
    return ExecutionRequest(
        solution=f"{source}print(f(int(input())))\n", entry_point="", stdio_tests=tests_io, limits=limits
    )


def _mixture(num_runs: int) -> list[tuple[str, Outcome]]:
    """Mostly quick kinds in all modes, few that take their time; in one fixed random order."""
    slow = [(mode, kind) for mode in _MODES for kind in _TIGHT for _ in range(max(num_runs // 1000, 1))]
    quick = [kind for kind in _KINDS if kind not in _TIGHT]
    # A quarter is as common as most: passing and wrong programs are what training makes.
    weights = [12, 6, 4, 1, 1]
    generator = random.Random(0)
    rest = [
        (generator.choice(_MODES), generator.choices(quick, weights)[0]) for _ in range(num_runs - len(slow))
    ]
    mixture = slow + rest
    generator.shuffle(mixture)
    return mixture


def _children_at_work(pool: SandboxPool) -> list[int]:
    """Process ids of candidates and judges in the order of their start, over all zygotes."""
    return sorted(
        pid for launcher in pool.worker_pids for pid in descendants(launcher) - descendants(launcher, 1)
    )


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def _run_all(pool: SandboxPool, mixture: list[tuple[str, Outcome]]) -> Counter[tuple[str, Outcome, Outcome]]:
    """Run on as many threads as workers; count (mode, expected, what came)."""

    def run(case: tuple[str, Outcome]) -> tuple[str, Outcome, Outcome]:
        mode, kind = case
        return mode, kind, pool.run(_request(_KINDS[kind], mode, _TIGHT.get(kind, _ROOMY))).outcome

    with ThreadPoolExecutor(len(pool.worker_pids)) as threads:
        return Counter(threads.map(run, mixture))


@pytest.mark.slow
def test_ten_thousand_mixed_runs_give_the_right_verdicts_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    processes_before = descendants(os.getpid())
    # No zygote is replaced here, or its growth would not show.
    with SandboxPool(num_workers=2, recycle_after=1_000_000) as pool:
        _run_all(pool, _mixture(300))
        zygotes = [pid for launcher in pool.worker_pids for pid in descendants(launcher, 1)]
        # Others that this process has are left by tests before this one, and may end meanwhile.
        family = descendants(os.getpid()) - processes_before
        num_fds = num_descriptors()
        sizes = {pid: _resident_bytes(pid) for pid in (os.getpid(), *zygotes)}
        counts = _run_all(pool, _mixture(10_000))
        assert {key: number for key, number in counts.items() if key[1] is not key[2]} == {}
        assert sum(counts.values()) == 10_000
        assert descendants(os.getpid()) - processes_before == family
        assert num_descriptors() == num_fds
        assert len(list(tmp_path.iterdir())) <= 2
        for pid, size in sizes.items():
            assert _resident_bytes(pid) - size < 16 * 1024**2
    assert list(tmp_path.iterdir()) == []
    assert descendants(os.getpid()) <= processes_before


@pytest.mark.slow
def test_replacing_zygotes_leaves_no_process_descriptor_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    processes_before = descendants(os.getpid())
    num_fds = num_descriptors()
    with SandboxPool(num_workers=2, recycle_after=20) as pool:
        first = set(pool.worker_pids)
        counts = _run_all(pool, _mixture(300))
        assert {key: number for key, number in counts.items() if key[1] is not key[2]} == {}
        assert not first & set(pool.worker_pids)
        assert len(descendants(os.getpid()) - processes_before) == 4
        assert len(list(tmp_path.iterdir())) <= 2
    assert list(tmp_path.iterdir()) == []
    assert descendants(os.getpid()) <= processes_before
    assert num_descriptors() == num_fds


_VICTIMS: dict[str, Callable[[SandboxPool], int]] = {
    "launcher": lambda pool: pool.worker_pids[0],
    "zygote": lambda pool: min(descendants(pool.worker_pids[0], 1)),
    # The candidate is started before the judge.
    "candidate": lambda pool: _children_at_work(pool)[0],
    "judge": lambda pool: _children_at_work(pool)[1],
}
# Of ``f``, which sleeps in its first call alone: that is when it is killed.
_SLEEP, _SLEEP_HEAD = "time.sleep(naps.pop() if naps else 0.0)", "import time; naps = [2.0]"
_CASES = [(victim, mode) for mode in _MODES for victim in _VICTIMS if mode == "judge" or victim != "judge"]


@contextlib.contextmanager
def _killer(pool: SandboxPool, victim: str, mode: str, num_kills: int) -> Iterator[list[int]]:
    """Kill the victim in the middle of each of the next runs; yields who was killed."""
    killed: list[int] = []
    over = threading.Event()
    num_children = 2 if mode == "judge" else 1

    def kill() -> None:
        while len(killed) < num_kills and not over.wait(0.02):
            at_work = _children_at_work(pool)
            if len(at_work) != num_children or at_work[0] in seen:
                continue
            seen.add(at_work[0])
            # For the program to have begun.
            time.sleep(0.15)
            try:
                pid = _VICTIMS[victim](pool)
            except IndexError:
                # This thread was late, and the run over.
                continue
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    seen: set[int] = set()
    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(("victim", "mode"), _CASES)
def test_a_killed_process_means_a_retry_and_the_right_verdict(victim: str, mode: str) -> None:
    def run(body: str) -> tuple[int, ExecutionResult]:
        with SandboxPool() as pool, _killer(pool, victim, mode, num_kills=1) as killed:
            result = pool.run(_request(f"{_SLEEP}; {body}", mode, head=_SLEEP_HEAD))
        return len(killed), result

    # At once: nearly all of it is sleep.
    with ThreadPoolExecutor(2) as threads:
        (right_kills, right), (wrong_kills, wrong) = threads.map(run, ("return x + 1", "return x"))
    assert right_kills == wrong_kills == 1
    assert (right.outcome, wrong.outcome) == (Outcome.PASS, Outcome.WRONG), (right, wrong)


@pytest.mark.parametrize(("victim", "mode"), _CASES)
def test_kills_without_end_are_an_infra_error_and_the_pool_recovers(victim: str, mode: str) -> None:
    with SandboxPool(max_infra_retries=1) as pool:
        with _killer(pool, victim, mode, num_kills=2) as killed:
            result = pool.run(_request(f"{_SLEEP}; return x", mode, head=_SLEEP_HEAD))
        assert len(killed) == 2
        assert (result.outcome, result.num_passed) == (Outcome.INFRA_ERROR, 0), result
        assert pool.run(_request("return x + 1", mode)).outcome is Outcome.PASS


# The first two turn chance into the verdict, which must then be the same each time: the generator's
# seed and the order of hashes are fixed. The others use what cannot be fixed, and do not depend on it.
_CHANCES = {
    "random decides": ("import random", "return x + (random.random() < 0.5)"),
    "hash order decides": ("", "return x + (next(iter({'a', 'b', 'c', 'd'})) in 'ab')"),
    "random used": ("import random", "y = [x, x, x]; random.shuffle(y); return random.choice(y) + 1"),
    "set order used": ("", "s = {str(i) for i in range(50)}; return len(sorted(s, key=hash)) + x - 49"),
    "id used": ("", "o = [object() for _ in range(50)]; return len({id(v) for v in o}) + x - 49"),
    "time used": ("import time", "s = time.time(); time.sleep(0.001); return x + (time.time() > s)"),
    "uuid used": ("import uuid", "return x + (uuid.uuid4() != uuid.uuid1())"),
    "urandom used": ("import os, secrets", "return x + (len(os.urandom(8)) + secrets.randbelow(1)) // 8"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _CHANCES)
def test_a_verdict_is_the_same_a_hundred_times(name: str) -> None:
    head, body = _CHANCES[name]
    with SandboxPool(recycle_after=20) as pool:
        results = [
            pool.run(_request(body, mode, head=head)) for mode, num in zip(_MODES, (60, 20, 20), strict=True)
            for _ in range(num)
        ]  # fmt: skip
    by_mode = [{(r.outcome, r.num_passed, r.detail) for r in part} for part in _split(results, 60, 80)]
    assert [len(verdicts) for verdicts in by_mode] == [1, 1, 1], by_mode
    if not name.endswith("decides"):
        assert {result.outcome for result in results} == {Outcome.PASS}


def _split(results: list[ExecutionResult], first: int, second: int) -> list[list[ExecutionResult]]:
    return [results[:first], results[first:second], results[second:]]


@contextlib.contextmanager
def _one_busy_core(num_loops: int) -> Iterator[None]:
    """All that this thread starts shares one core with so many endless loops."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    loops: list[subprocess.Popen[bytes]] = []
    try:
        # Sessions of their own, as each zygote has: the scheduler may share time between sessions first.
        command = [sys.executable, "-S", "-c", ENDLESS]
        loops += [subprocess.Popen(command, start_new_session=True) for _ in range(num_loops)]
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait(20)
        os.sched_setaffinity(0, allowed)


def test_under_load_an_honest_program_passes_and_a_sleeper_still_ends() -> None:
    work = "t = time.process_time()\n    while time.process_time() < t + 0.3 / N: pass\n    return x + 1"
    with _one_busy_core(8), SandboxPool() as pool:
        longest_s = 0.0
        for mode in _MODES:
            # The calls of a run share its limits.
            head = f"import time\nN = {1 if mode == 'stdio' else 2}"
            result = pool.run(_request(work, mode, Limits(cpu_s=2.0, wall_s=1.0, wall_cap_s=60.0), head))
            assert result.outcome is Outcome.PASS, (mode, result)
            longest_s = max(longest_s, result.wall_s)
        assert longest_s > 1.0, "the machine was not busy: nothing was shown"
        for mode in _MODES:
            limits = Limits(cpu_s=2.0, wall_s=0.5, wall_cap_s=60.0)
            result = pool.run(_request("time.sleep(50)", mode, limits, "import time"))
            assert result.outcome is Outcome.TIMEOUT_WALL, (mode, result)
            assert result.wall_s < 20.0


def test_nothing_outlives_an_owner_that_is_killed_in_the_middle_of_runs() -> None:
    code = (
        "import os, threading, time\n"
        "from sandbox.pool import SandboxPool\n"
        "from tests.sandbox.test_endurance import _request\n"
        "pool = SandboxPool(num_workers=4)\n"
        "for mode in ('call', 'judge', 'stdio'):\n"
        "    request = _request('time.sleep(100)', mode, head='import time')\n"
        "    threading.Thread(target=pool.run, args=(request,), daemon=True).start()\n"
        "print(*pool.worker_pids, flush=True)\n"
        "time.sleep(100)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=_ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        launchers = [int(word) for word in owner.stdout.readline().split()]
        # Four launchers, four zygotes, one of them idle, and four children.
        assert wait_until(lambda: len(descendants(owner.pid)) == 12)
        family = descendants(owner.pid)
        assert set(launchers) < family
        owner.kill()
        owner.wait(20)
        assert all_gone(family)
