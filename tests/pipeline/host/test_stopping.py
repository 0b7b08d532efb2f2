"""A run that is asked to end: what it gives up, what it saves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from pipeline.host.stopping import StoppedError, StopRequest, stop_on_signals
from pipeline.messages import StepResult, TrainBatch
from tests.pipeline.fake_stages import FakeRun, let_others_run, make_config, until

ROOT = Path(__file__).parents[3]


async def test_a_guarded_wait_is_given_up_when_the_run_shall_end_and_done_work_is_done() -> None:
    stop = StopRequest()
    assert await stop.guard(asyncio.sleep(0, "done")) == "done"
    endless = asyncio.ensure_future(asyncio.sleep(1000))
    asyncio.get_running_loop().call_later(0.01, stop.ask, signal.SIGTERM)
    with pytest.raises(StoppedError):
        await stop.guard(endless)
    assert endless.cancelled() and stop.signal is signal.SIGTERM
    with pytest.raises(StoppedError):
        await stop.guard(asyncio.sleep(1000))


def test_the_first_signal_asks_and_handlers_are_put_back() -> None:
    def own(number: int, frame: FrameType | None) -> None:
        """Of whoever was there first."""

    log: list[str] = []

    async def scenario() -> None:
        stop = StopRequest()
        with stop_on_signals(stop, lambda: log.append("asked")):
            os.kill(os.getpid(), signal.SIGTERM)
            await stop.guard(asyncio.sleep(1000))

    before = signal.signal(signal.SIGTERM, own)
    try:
        with pytest.raises(StoppedError):
            asyncio.run(scenario())
        assert signal.getsignal(signal.SIGTERM) is own and log == ["asked"]
    finally:
        signal.signal(signal.SIGTERM, before)


TWICE = """
import asyncio, os, signal
from pipeline.host.stopping import StopRequest, stop_on_signals

async def main():
    with stop_on_signals(StopRequest(), lambda: os.kill(os.getpid(), signal.SIGINT)):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_second_signal_ends_the_process_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 130
    assert "ended at once" in done.stderr


# The second signal comes when the thread is what is waited for.
IN_A_THREAD = """
import asyncio, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from pipeline.host.stopping import StopRequest
from pipeline.run.orchestrator import _Run

is_waited_for = threading.Event()

class Executor(ThreadPoolExecutor):
    def shutdown(self, *arguments, **named):
        is_waited_for.set()
        super().shutdown(*arguments, **named)

def download():
    os.kill(os.getpid(), signal.SIGINT)
    assert is_waited_for.wait(20)
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)

class Run(_Run):
    def __init__(self):
        ledger = SimpleNamespace(event=lambda kind, text: None)
        self._context, self._attempt = SimpleNamespace(stop=StopRequest(), ledger=ledger), None

    async def _run(self, *, is_resumed):
        asyncio.get_running_loop().set_default_executor(Executor())
        await asyncio.to_thread(download)

    def _resume_hint(self):
        return "stopped"

asyncio.run(Run()._run_until_stopped(is_resumed=False))
"""


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_is_obeyed_also_where_a_thread_is_waited_for(second: signal.Signals) -> None:
    command = [sys.executable, "-c", IN_A_THREAD, str(int(second))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 128 + second, done.stderr
    assert "ended at once" in done.stderr


def stop_at(run: FakeRun, line: str) -> int:
    """Ask ``run`` to end when ``line`` is in its log; returns the step that it saves."""

    async def scenario() -> int:
        producing = asyncio.create_task(run.producer.run())
        training = asyncio.create_task(run.attempt.train())
        await until(lambda: line in run.log)
        run.stop.ask(signal.SIGINT)
        with pytest.raises(StoppedError):
            await training
        saved = await run.attempt.save_last()
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)
        return saved

    saved = asyncio.run(asyncio.wait_for(scenario(), 30))
    run.close()
    return saved


def test_several_ranks_whose_groups_are_all_there_end_no_later(tmp_path: Path) -> None:
    """They finish the part that they have begun, and begin no other."""
    config = make_config(training={"max_steps": 50}, output={"save_steps": 50}, runtime={"trainer_ranks": 2})
    run = FakeRun(tmp_path, config)
    accumulate, step = run.trainer.accumulate, run.trainer.step
    trained: list[int] = []

    async def ask_in_step_3(batch: TrainBatch) -> None:
        await accumulate(batch)
        if batch.step == 3:
            run.stop.ask(signal.SIGINT)

    async def note(batch: TrainBatch) -> StepResult:
        trained.append(batch.step)
        return await step(batch)

    run.trainer.accumulate, run.trainer.step = ask_in_step_3, note  # type: ignore[method-assign]

    async def scenario() -> None:
        producing = asyncio.create_task(run.producer.run())
        with pytest.raises(StoppedError):
            await run.attempt.train()
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), 30))
    run.close()
    assert trained == [1, 2]


def long_run(path: Path) -> FakeRun:
    return FakeRun(path, make_config(training={"max_steps": 50}, output={"save_steps": 50}))


def test_a_stopped_run_saves_its_last_finished_step_and_goes_on_from_there(tmp_path: Path) -> None:
    run = long_run(tmp_path)
    saved = stop_at(run, "train 3 0")
    assert saved == 2 and run.trainer.saved == [2], "step 3 was under way"
    assert run.rows("SELECT MAX(step) FROM steps WHERE status = 'committed'") == [(2,)]


def test_a_step_whose_weights_have_changed_is_finished_and_saved(tmp_path: Path) -> None:
    run = long_run(tmp_path)
    step = run.trainer.step

    async def answer_late(batch: TrainBatch) -> StepResult:
        result = await step(batch)
        await let_others_run()
        return result

    run.trainer.step = answer_late  # type: ignore[method-assign]
    saved = stop_at(run, "trained 3")
    assert saved == 3 and run.trainer.saved == [3], "weights 2 are gone"
    assert run.rows("SELECT MAX(step) FROM steps WHERE status = 'committed'") == [(3,)]
