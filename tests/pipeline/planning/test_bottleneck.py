"""What limited a run, from runs whose metrics are made to be limited by each stage in turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from configs.load import render
from configs.schema import Config
from pipeline.doctor import command as doctor
from pipeline.planning.measured_run import SETTINGS, as_text, find_bottleneck, read_run
from pipeline.record.ledger import Ledger
from tests.pipeline.planning.test_plan import write_run

NUM_STEPS = 24


def run_of(
    tmp_path: Path,
    *,
    metrics: Mapping[str, float] | None = None,
    is_gpu: bool = False,
    **sections: Mapping[str, object],
) -> Path:
    """The folder of a run whose every step logged ``metrics``."""
    folder = write_run(tmp_path / "run", NUM_STEPS)
    config = Config.model_validate({"acceleration": {"max_staleness": 1}, **sections})
    (folder / "config.yaml").write_text(render(config), encoding="utf-8")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.update(metrics or {})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if is_gpu:
        summary = {"hardware": {"device": "cuda", "cpu": "a GPU"}}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def test_what_was_measured_on_a_gpu_is_told_and_nothing_of_it_on_a_cpu(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    assert find_bottleneck(run_of(tmp_path / "cpu")).card == {}
    metrics = {"train/gpu_memory_gb": 12.34, "train/mfu": 0.417, "generation/asleep_s": 1.5}
    text = as_text(find_bottleneck(run_of(tmp_path, metrics=metrics, is_gpu=True)))
    assert "held up to 12.3 GB of its GPU" in text
    assert "are 0.417 of its GPU's bf16 peak (MFU)" in text
    assert "the engine slept 1.50 s a step" in text and "to wake took" not in text


@pytest.mark.parametrize(
    ("seconds", "limit"),
    [
        ({"generation/seconds": 4.0}, "generation"),
        ({"generation/seconds": 1.0, "train/seconds": 4.3}, "training"),
        ({"generation/seconds": 1.0, "rewards/seconds": 4.4}, "rewards"),
        ({"generation/seconds": 1.0, "weights/update_s": 3.0}, "weight updates"),
        ({"generation/seconds": 2.2, "train/seconds": 2.1}, "none"),
    ],
)
def test_the_stage_that_is_busy_for_most_of_the_step_is_the_limit(
    seconds: dict[str, float], limit: str, tmp_path: Path
) -> None:
    found = find_bottleneck(run_of(tmp_path, metrics=seconds))
    assert found.limited_by == limit
    assert found.run.step_s == pytest.approx(4.5)
    busy = {"generation": 4.0, "rewards": 1.6, "training": 2.0, "weight updates": 0.3} | {
        {"train": "training", "weights": "weight updates"}.get(stage := name.split("/")[0], stage): value
        for name, value in seconds.items()
    }
    assert found.busy_s == pytest.approx(busy)
    assert found.idle_share == pytest.approx({stage: 1 - value / 4.5 for stage, value in busy.items()})


def test_work_for_nothing_is_told(tmp_path: Path) -> None:
    logged = {"train/padding_share": 0.4, "rollout/zero_signal_share": 0.25, "rollout/wait_s": 0.125}
    found = find_bottleneck(run_of(tmp_path, metrics=logged))
    assert found.wasted == pytest.approx(
        {
            "of the tokens in the trainer's rows were padding": 0.4,
            "of the groups had no signal (in a warm start: no answer that passed)": 0.25,
        }
    )
    assert found.waited_s == pytest.approx(0.125)


def test_a_run_that_did_not_end_tells_its_device_by_what_it_noted_at_its_start(tmp_path: Path) -> None:
    folder = run_of(tmp_path, runtime={"trainer_ranks": 2})
    assert not read_run(folder).is_gpu
    with closing(Ledger(folder / "run.db")) as ledger:
        ledger.event("hardware", "cpu, a CPU, 4 cores")
        ledger.event("hardware", "cuda, Xeon, of 2 sockets, 16 cores")
    run = read_run(folder)
    assert run.is_gpu and run.num_devices == 3 and run.device == "Xeon, of 2 sockets"
    with closing(Ledger(folder / "run.db")) as ledger:
        ledger.event("hardware", "cuda, Xeon, of 2 sockets, 16 cores, 2 GPUs")
    run = read_run(folder)
    assert run.num_devices == 2 and run.device == "Xeon, of 2 sockets", "ranks and engine share them"
    assert run.is_shared


def test_on_several_gpus_the_stages_share_no_device(tmp_path: Path) -> None:
    split = {"placement": "split", "trainer_ranks": 2}
    folder = run_of(tmp_path, is_gpu=True, runtime=split)
    assert find_bottleneck(folder).run.num_devices == 3
    (folder / "summary.json").unlink()
    assert find_bottleneck(folder).run.is_shared


@pytest.mark.parametrize(
    ("placement", "num_gpus", "expected"),
    [("auto", None, 1), ("auto", 1, 1), ("auto", 2, 2), ("auto", 8, 2), ("colocated", 8, 1), ("split", 2, 2)],
)
def test_one_rank_and_one_engine_share_a_gpu_where_they_have_to_or_are_told_to(
    placement: str, num_gpus: int | None, expected: int, tmp_path: Path
) -> None:
    folder = run_of(tmp_path, is_gpu=True, runtime={"placement": placement})
    hardware = {"device": "cuda", "cpu": "a GPU"} | ({} if num_gpus is None else {"num_gpus": num_gpus})
    (folder / "summary.json").write_text(json.dumps({"hardware": hardware}), encoding="utf-8")
    run = read_run(folder)
    assert (run.num_devices, run.is_shared) == (expected, expected == 1)


@pytest.mark.parametrize("path", sorted({path for paths in SETTINGS.values() for path in paths}))
def test_every_setting_that_is_named_is_one(path: str) -> None:
    found: object = Config()
    for name in path.split("."):
        found = getattr(found, name)


def test_the_command_prints_a_report_and_the_same_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(tmp_path, metrics={"rewards/seconds": 4.4, "generation/seconds": 1.0})
    assert doctor.main([str(folder)]) == 0
    text = capsys.readouterr().out
    for part in ("limited by: rewards", "acceleration.async_rewards.workers", "4.50 s", "one device"):
        assert part in text
    assert doctor.main([str(folder), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert fields["limited_by"] == "rewards"
    assert fields["settings"][0] == "acceleration.async_rewards.workers"
    assert fields["run"]["step_s"] == pytest.approx(4.5)


def test_a_run_of_the_baseline_has_no_stages_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(tmp_path)
    (folder / "baseline.txt").touch()
    assert doctor.main([str(folder)]) == 2
    assert "is a run of train_code_grpo" in capsys.readouterr().err
