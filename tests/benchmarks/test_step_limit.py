"""The limit of a step counts what the step has to do, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.step_limit import least_s, main, measure_run, needed, table
from benchmarks.train_step.inputs import random_batch
from configs.schema import Config
from pipeline.record.metrics import read_metrics
from pipeline.training.memory import needed_flops, shape_of
from tests.benchmarks.test_train_step import BATCH
from tests.pipeline.run.test_replay import trained
from tests.pipeline.tiny_model import VOCABULARY, make_model, save_model


def test_groups_without_signal_are_written_and_need_no_training(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path))
    batch = random_batch(BATCH, VOCABULARY)
    found = needed(folder, batch, is_lora=False)
    # A forward is a third of it all; of two groups one has signal.
    every = sum(needed_flops(shape_of(make_model(), ""), batch.samples).values())
    assert found["generation"] == pytest.approx(every / 3)
    assert 0.2 * every < found["training"] < 0.8 * every
    assert needed(folder, batch, is_lora=True)["training"] < found["training"]


def test_beside_a_reference_every_sample_is_trained_and_goes_through_that_too(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path))
    batch = random_batch(BATCH, VOCABULARY)
    every = needed(folder, batch, is_lora=False)["generation"]
    found = needed(folder, batch, is_lora=False, has_kl=True)
    # Forward and backward are three forwards, the reference's is one.
    assert found == pytest.approx({"generation": every, "training": 4 * every})
    adapters = needed(folder, batch, is_lora=True, has_kl=True)["training"]
    assert every < adapters < found["training"]


def test_the_limit_of_quantised_rollouts_is_left_out(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path))
    flops, rates = {"training": 4e9, "generation": 1e9}, {"flops_per_s": 1e9, "bytes_per_s": 1e12}

    def found(**generation: str) -> dict[str, float]:
        return least_s(Config.model_validate({"generation": generation}), folder, flops, 1.0, rates)

    assert found(dtype="bfloat16") == {"training": 4.0, "generation": 1.0}
    assert found(dtype="bfloat16", quantization="int8") == {"training": 4.0}
    run = {
        "num_steps": 2,
        "step_s": 8.0,
        "stages_s": {"generation": 3.0, "training": 5.0},
        "least_s": {"training": 4.0},
        "of_limit": None,
    }
    text = table({"runs": {"r": run}, "rates": rates, "hardware": {"cpu": "some", "cores": 1}})
    assert text.splitlines()[-3:] == [
        "| `r` | generation | 3.0 |  |  |",
        "| `r` | training | 5.0 | 4.0 | 80 % |",
        "| `r` | step (mean of 2) | 8.0 |  |  |",
    ]


def test_two_runs_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "before" / "run"), str(tmp_path / "after" / "run")]) == 2
    assert "two folders have one name" in capsys.readouterr().err


@pytest.mark.slow
def test_a_finished_run_is_measured_by_whole_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, "small", 6)
    rates = {"flops_per_s": 1e9, "bytes_per_s": 1e12}
    found = measure_run(run, 3, 32, rates)
    # One step ahead: two are written at once, and nothing follows the last two.
    times = [row["time_s"] or 0.0 for row in read_metrics(run / "metrics.jsonl")]
    assert found["num_steps"] == 2 and found["step_s"] == pytest.approx((times[3] - times[1]) / 2)
    assert set(found["least_s"]) <= set(found["stages_s"])
    assert found["of_limit"] == pytest.approx(sum(found["least_s"].values()) / found["step_s"])
    slow = measure_run(run, 2, 32, {**rates, "bytes_per_s": 1e3})
    assert slow["least_s"]["generation"] > found["least_s"]["generation"]
    text = table({"runs": {"small": found}, "rates": rates, "hardware": {"cpu": "some", "cores": 1}})
    assert "| `small` | step (mean of 2) |" in text
    assert main([str(run), "--steps", "1"]) == 2
    assert main([str(run / "nothing")]) == 2
    assert "error: " in capsys.readouterr().err
    assert main([str(run), "--steps", "2"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["runs"]["small"]["num_steps"] == 2
