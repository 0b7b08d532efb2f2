"""Ctrl-C at any moment of a start, and a reader that has seen enough: the command ends, soon, and says so."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from configs.command_line import INTERRUPTED, make_parser, raise_if_interrupted, run_async, run_command
from tests.pipeline.tiny_model import save_byte_model

pytestmark = pytest.mark.slow

ARGUMENTS = "--max-steps 40 --set evaluation.enabled=false --set generation.engine=transformers"
# Seconds after its first line; all of them, every 20 ms up to 3 s, take four minutes and were tried by hand.
MOMENTS = (0.0, 0.3, 0.6, 0.9, 1.2, 1.6, 2.0, 2.5, 3.0)
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_byte_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """As in a terminal: what a shell starts in the background ignores the signal, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(*arguments: str, stdout: int | None = None, begin: str = "") -> subprocess.Popen[str]:
    """``train_accelerated`` with these arguments, and ``begin`` as its first line."""
    script = "import sys; from pipeline.cli import train_accelerated; sys.exit(train_accelerated())"
    return subprocess.Popen(
        [sys.executable, "-c", f"{begin}\n{script}", *arguments],
        process_group=0,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


@pytest.mark.parametrize("moment_s", MOMENTS)
def test_an_interrupt_during_the_start_ends_the_run(moment_s: float, model: str, tmp_path: Path) -> None:
    named = ("--model", model, "--output-dir", str(tmp_path))
    process = start(*ARGUMENTS.split(), *named, stdout=subprocess.PIPE, begin="print('begun', flush=True)")
    try:
        # A signal that comes while the interpreter starts is the interpreter's to answer.
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(moment_s)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    # While our modules are imported, the interpreter ends it.
    assert process.returncode in (INTERRUPTED, -signal.SIGINT), said
    assert not list(tmp_path.glob("*/checkpoints/step-*"))


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--set", "cluster.address=local", "--set", "runtime.trainer_ranks=2"),
    ],
    ids=["processes", "ray"],
)
def test_a_signal_to_all_while_it_trains_saves_the_last_step_and_is_noted(
    model: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    named = ("--model", model, "--output-dir", str(tmp_path), "--run-name", "r")
    process = start(*ARGUMENTS.split(), *named, *more)
    try:
        until = time.monotonic() + 8 * DEADLINE_S
        while not query(tmp_path / "r" / "run.db", "SELECT * FROM steps"):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.2)
        # As a scheduler does, or a time limit.
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=4 * DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert list(tmp_path.glob("r/checkpoints/step-*"))
    # The live page asks nobody twice: see pipeline.report.live_control.
    (noted_s,) = query(tmp_path / "r" / "run.db", "SELECT time FROM events WHERE kind = 'stop'")[0]
    assert noted_s > query(tmp_path / "r" / "run.db", "SELECT MAX(started_at) FROM runs")[0][0]


def query(file: Path, sql: str) -> list[tuple[float, ...]]:
    """Its rows; none while there is no such table yet."""
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as database, suppress(sqlite3.OperationalError):
        return database.execute(sql).fetchall()
    return []


def test_an_interrupt_that_a_library_catches_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    later = []

    def command(_: Namespace) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.0)
        except BaseException:
            later.append("caught")
        raise_if_interrupted()
        later.append("trained to its end")
        return 0

    assert threading.current_thread() is threading.main_thread()
    assert run_command(make_parser("x", "x"), [], command) == INTERRUPTED
    assert later == ["caught"] and "interrupted" in capsys.readouterr().err
    raise_if_interrupted()
    # What was there before is there again.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("swallows", [False, True])
def test_an_interrupt_of_an_event_loop_cancels_where_it_waits(
    swallows: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    later = []

    async def main() -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            # Nothing is raised here: what the loop is about to do would be lost.
            later.append("went on")
            await asyncio.sleep(DEADLINE_S)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            later.append("tidied up")
            if not swallows:
                raise
        return 0

    assert run_command(make_parser("x", "x"), [], lambda _: run_async(main())) == INTERRUPTED
    assert later == ["went on", "tidied up"] and "interrupted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_reader_that_leaves_ends_the_output_without_a_word() -> None:
    process = start("--dry-run", "--model", "none/none", stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(DEADLINE_S) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_whatever_was_left_to_write_no_reader_is_no_error(size: int) -> None:
    code = (
        "import sys\nfrom configs.command_line import make_parser, run_command\n"
        f"sys.exit(run_command(make_parser('x', 'x'), [], lambda _: print('x' * {size}) or 0))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(DEADLINE_S) == 128 + signal.SIGPIPE
