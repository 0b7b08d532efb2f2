"""A small real run that loses its parts and its driver, and is interrupted: what is left of it."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from benchmarks.chaos.__main__ import arguments_for
from benchmarks.chaos.run import TERMINAL, Case, Kill, run_case
from configs.command_line import FAILED
from tests.pipeline.tiny_model import save_byte_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("turns", [1, 2])
def test_a_run_goes_on_after_losing_its_parts_and_is_resumed_after_losing_its_driver(
    turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    case = Case(
        folder=tmp_path,
        name="run",
        num_steps=60,
        arguments=arguments_for("transformers", str(save_byte_model(tmp_path / "model")), turns),
        deadline_s=240.0,
        orphan_deadline_s=30.0,
    )
    kills = (
        Kill(victim="trainer", after_step=2, after_s=0.0),
        Kill(victim=TERMINAL, after_step=6, after_s=0.0, number=signal.SIGINT),
        # Steps are so short here that some are finished before the signal ends the run, and some before the
        # death of a worker is noticed.
        Kill(victim="reward worker", after_step=12, after_s=0.0, after_resumes=1),
        Kill(victim="driver", after_step=14, after_s=0.0, after_restarts=2),
    )
    report = run_case(case, kills, Random(0))
    printed = case.log.read_text()
    assert report.faults == [], printed[-4000:]
    # On a machine too busy for Ray to start, a start fails with its error, and is made again.
    assert [status for status in report.statuses if status != FAILED] == [130, -signal.SIGKILL, 0]
    assert report.num_restarts >= 2, "the trainer and the reward worker"
    assert "restart: the trainer (1 of 3)" in printed
    assert f"go on with: train_accelerated --resume {case.run}" in printed
