"""A run that is asked to end: what it gives up, what it saves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.host.stopping import StoppedError, StopRequest, stop_on_signals
from tests.pipeline.fake_stages import FakeRun, make_config

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
    before = signal.getsignal(signal.SIGTERM)

    async def scenario() -> list[str]:
        stop, log = StopRequest(), []
        with stop_on_signals(stop, lambda: log.append("asked")):
            os.kill(os.getpid(), signal.SIGTERM)
            await stop.guard(asyncio.sleep(0.01))
        return log

    with pytest.raises(StoppedError):
        asyncio.run(scenario())
    assert signal.getsignal(signal.SIGTERM) is before


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


def test_a_stopped_run_saves_its_last_finished_step_and_goes_on_from_there(tmp_path: Path) -> None:
    config = make_config(training={"max_steps": 50}, output={"save_steps": 50})
    run = FakeRun(tmp_path, config)

    async def stop_in_a_step() -> int:
        producing = asyncio.create_task(run.producer.run())
        training = asyncio.create_task(run.attempt.train())
        while "train 3 0" not in run.log:
            await asyncio.sleep(0)
        run.stop.ask(signal.SIGINT)
        with pytest.raises(StoppedError):
            await training
        saved = await run.attempt.save_last()
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)
        return saved

    saved = asyncio.run(asyncio.wait_for(stop_in_a_step(), 30))
    run.close()
    assert saved == 2 and run.trainer.saved == [2], "step 3 was under way"
    assert run.rows("SELECT MAX(step) FROM steps WHERE status = 'committed'") == [(2,)]
