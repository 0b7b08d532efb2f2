"""An object in a process of this machine and one in a Ray actor keep the same terms."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.cluster import running_ray
from pipeline.processes.connection import (
    CallCancelledError,
    CallFailedError,
    ProcessGoneError,
    ProcessKilledError,
    Remote,
)
from pipeline.processes.local import LocalProcess
from pipeline.processes.ray_remote import RayProcess, RayServant
from pipeline.processes.wire import Call, Cancelled, Done
from tests.processes import is_running, none_runs

ROOT = Path(__file__).parents[3]
WORKER = "tests.pipeline.processes.subject:Worker"
ASYNC_WORKER = "tests.pipeline.processes.subject:AsyncWorker"
WAIT_S = 60.0

Start = Callable[..., Remote]


@pytest.fixture(scope="module")
def private_ray() -> Iterator[None]:
    with running_ray():
        yield


@pytest.fixture(scope="module", params=[LocalProcess, RayProcess])
def start(request: pytest.FixtureRequest) -> Start:
    if request.param is RayProcess:
        request.getfixturevalue("private_ray")
    kind: Start = request.param
    return kind


@pytest.fixture(scope="module")
def worker(start: Start) -> Iterator[Remote]:
    remote = start(WORKER, "a", environment={"SUBJECT": "here"})
    yield remote
    remote.kill()


@pytest.fixture(scope="module")
def async_worker(start: Start) -> Iterator[Remote]:
    remote = start(ASYNC_WORKER)
    yield remote
    remote.kill()


def test_plain_methods_run_one_after_another_in_another_process(worker: Remote) -> None:
    assert worker.call("pid").result(WAIT_S) != os.getpid()
    assert worker.call("environment", "SUBJECT").result(WAIT_S) == "here"
    calls = [worker.call("note", text, seconds) for text, seconds in (("slow", 0.2), ("fast", 0.0))]
    assert calls[1].result(WAIT_S) == ["a: slow", "a: fast"]
    assert calls[0].result(WAIT_S) == ["a: slow"]


def test_a_call_beside_does_not_wait_for_the_one_that_runs(worker: Remote) -> None:
    running = worker.call("hold", "x")
    assert worker.call("wait_for_hold", is_beside=True).result(WAIT_S)
    assert worker.call("answer", is_beside=True).result(WAIT_S) is True
    assert not running.done()
    worker.call("release", is_beside=True).result(WAIT_S)
    running.result(WAIT_S)


def test_what_a_method_raises_comes_with_its_type_and_traceback(worker: Remote) -> None:
    with pytest.raises(CallFailedError, match="KeyError: 'wrong'") as caught:
        worker.call("fail").result(WAIT_S)
    assert 'raise KeyError("wrong")' in caught.value.__notes__[0]
    assert worker.call("pid").result(WAIT_S) > 0


def test_what_is_cancelled_in_time_is_not_begun_and_what_runs_goes_on(worker: Remote) -> None:
    running = worker.call("hold", "runs")
    waiting = [worker.call("note", "never") for _ in range(5)]
    assert worker.call("wait_for_hold", is_beside=True).result(WAIT_S)
    for call in (running, *waiting):
        worker.cancel(call)
    for call in waiting:
        with pytest.raises(CallCancelledError):
            call.result(WAIT_S)
    worker.call("release", is_beside=True).result(WAIT_S)
    assert running.result(WAIT_S)[-1] == "a: runs"
    assert "a: never" not in worker.call("note", "end").result(WAIT_S)


async def test_ray_may_begin_calls_and_their_cancelling_in_any_order() -> None:
    servant = RayServant(WORKER, ("a",))
    calls = [Call(call_id=i, method="note", arguments=(str(i), 0.2)) for i in range(4)]
    cancelled = asyncio.create_task(servant.cancel(2))
    await asyncio.sleep(0.01)
    answers = [asyncio.create_task(servant.answer(call)) for call in reversed(calls)]
    await cancelled
    assert [await one for one in reversed(answers)] == [
        Done(call_id=0, value=["a: 0"]),
        Done(call_id=1, value=["a: 0", "a: 1"]),
        Cancelled(call_id=2),
        Done(call_id=3, value=["a: 0", "a: 1", "a: 3"]),
    ]


def test_asynchronous_methods_overlap_and_can_be_cancelled(async_worker: Remote) -> None:
    for call in [async_worker.call("sleep", 0.3) for _ in range(20)]:
        assert call.result(WAIT_S) == "slept"
    assert async_worker.call("most_running").result(WAIT_S) > 1
    endless = async_worker.call("sleep", 1000.0)
    assert async_worker.call("num_running").result(WAIT_S) == 1
    async_worker.cancel(endless)
    with pytest.raises(CallCancelledError):
        endless.result(WAIT_S)
    assert async_worker.call("num_running").result(WAIT_S) == 0


async def test_streams_overlap_and_one_that_is_left_is_cancelled_there(async_worker: Remote) -> None:
    async def numbers(delay_s: float) -> list[int]:
        return [item async for item in async_worker.stream("count", 3, delay_s)]

    assert tuple(await asyncio.gather(numbers(0.05), numbers(0.0))) == ([0, 1, 2], [0, 1, 2])
    stream = async_worker.stream("count", 100_000, 0.01)
    assert await anext(stream) == 0
    await stream.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(WAIT_S):
        while await asyncio.wrap_future(async_worker.call("num_running")):
            await asyncio.sleep(0.01)
    received = []
    with pytest.raises(CallFailedError, match="OSError: broken off"):
        async for item in async_worker.stream("break_off", 2):
            received.append(item)
    assert received == [0, 1]


def test_a_constructor_that_raises_fails_every_call(start: Start) -> None:
    remote = start(WORKER, "broken")
    for _ in range(2):
        with pytest.raises(CallFailedError, match="ValueError: no such worker"):
            remote.call("pid").result(WAIT_S)
    remote.kill()


def test_a_process_that_is_killed_fails_what_it_held_at_once(start: Start) -> None:
    remote = start(ASYNC_WORKER)
    pid = remote.call("pid").result(WAIT_S)
    held = [remote.call("sleep", 1000.0) for _ in range(2)]

    async def read() -> None:
        async for _ in remote.stream("count", 100_000, 0.01):
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(ProcessGoneError, match="of memory available"):
        asyncio.run(read())
    for call in (*held, remote.call("pid")):
        with pytest.raises(ProcessGoneError):
            call.result(WAIT_S)
    assert none_runs([pid])


def test_kill_ends_a_process_that_is_stopped(start: Start) -> None:
    remote = start(WORKER, "a")
    pid = remote.call("pid").result(WAIT_S)
    os.kill(pid, signal.SIGSTOP)
    held = remote.call("note", "x" * 10_000_000)
    remote.kill()
    with pytest.raises(ProcessGoneError):
        held.result(WAIT_S)
    assert none_runs([pid])
    remote.kill()


def test_the_obituary_names_status_or_signal_and_has_the_last_words() -> None:
    remote = LocalProcess(WORKER, "a")
    with pytest.raises(ProcessGoneError, match=rf"process {remote.pid} ended \(status 3\):\nthe last words"):
        remote.call("leave", 3).result(WAIT_S)
    remote = LocalProcess(WORKER, "a")
    remote.call("pid").result(WAIT_S)
    os.kill(remote.pid, signal.SIGUSR1)
    with pytest.raises(ProcessGoneError, match=rf"process {remote.pid} was killed by SIGUSR1"):
        remote.call("note", "x", 100.0).result(WAIT_S)
    remote = LocalProcess(WORKER, "a")
    remote.call("pid").result(WAIT_S)
    os.kill(remote.pid, signal.SIGKILL)
    with pytest.raises(ProcessKilledError, match=r"was killed by SIGKILL: .*of memory available"):
        remote.call("pid").result(WAIT_S)


def test_a_signal_to_all_processes_of_a_unit_ends_no_served_one_and_what_that_starts_obeys_it() -> None:
    remote = LocalProcess(WORKER, "a")
    pid = remote.call("pid").result(WAIT_S)
    running = remote.call("hold", "runs")
    assert remote.call("wait_for_hold", is_beside=True).result(WAIT_S)
    os.kill(pid, signal.SIGTERM)
    remote.call("release", is_beside=True).result(WAIT_S)
    assert running.result(WAIT_S) == ["a: runs"] and remote.call("pid").result(WAIT_S) == pid
    asked = "import signal; print(signal.getsignal(signal.SIGTERM).name)"
    assert remote.call("output_of", asked).result(WAIT_S) == "SIG_DFL"
    remote.kill()


def test_a_class_that_is_not_there_is_named() -> None:
    with pytest.raises(ProcessGoneError, match="no_such_module"):
        LocalProcess("no_such_module:Worker").call("pid").result(WAIT_S)


def test_a_process_that_dies_before_it_has_its_arguments_says_how_at_the_first_call() -> None:
    # More than a socket holds: it is still being sent.
    remote = LocalProcess(WORKER, "x" * 10_000_000, environment={"PYTHONHOME": "/nowhere"})
    with pytest.raises(ProcessGoneError, match=rf"process {remote.pid} ended \(status 1\)"):
        remote.call("pid").result(WAIT_S)


OWNER = """
import sys, time
from pipeline.processes.local import LocalProcess

remote = LocalProcess(sys.argv[1], "a")
pid = remote.call("pid").result()
remote.call("note", "x", 1000.0)
remote.call("answer", is_beside=True).result()
print(pid, flush=True)
time.sleep(1000)
"""


def test_a_process_dies_with_its_owner_even_at_work() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, WORKER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    assert none_runs([pid])


def test_without_a_ray_end_no_ray_is_imported() -> None:
    code = "import sys, pipeline.processes.local, pipeline.processes.serve; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_module_of_the_users_in_the_working_directory_does_not_hide_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pipeline", "rewards", "statistics"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    remote = LocalProcess(WORKER, "a")
    assert remote.call("where").result(WAIT_S) == str(tmp_path)
    remote.kill()
