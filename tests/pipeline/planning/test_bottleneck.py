"""What limited a run, from runs whose metrics are made to be limited by each stage in turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from configs.load import load_config, render
from configs.schema import Config
from pipeline.doctor import command as doctor
from pipeline.planning.bottleneck import Bottleneck, find_bottleneck
from tests.pipeline.planning.test_plan import write_run

NUM_STEPS = 24


def run_of(
    tmp_path: Path,
    *,
    metrics: Mapping[str, float] | None = None,
    is_gpu: bool = False,
    save_s: float = 0.0,
    **sections: Mapping[str, object],
) -> Path:
    """The folder of a run whose every step logged ``metrics``, and that took ``save_s`` more to save."""
    tmp_path.mkdir(exist_ok=True)
    folder = write_run(tmp_path / "run", NUM_STEPS)
    config = Config.model_validate({"acceleration": {"max_staleness": 1}, **sections})
    (folder / "config.yaml").write_text(render(config), encoding="utf-8")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.update(metrics or {})
        if row["step"] % config.output.save_steps == 0:
            row["step/seconds"] += save_s
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if is_gpu:
        summary = {"hardware": {"device": "cuda", "cpu": "a GPU"}}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def settings_of(found: Bottleneck) -> list[str]:
    return [advice.change.setting for advice in found.advice]


@pytest.mark.parametrize(
    ("seconds", "limit"),
    [
        ({"generation/seconds": 4.0}, "generation"),
        ({"generation/seconds": 1.0, "train/seconds": 4.3}, "training"),
        ({"generation/seconds": 1.0, "rewards/seconds": 4.4}, "rewards"),
        ({"generation/seconds": 2.2, "train/seconds": 2.1}, "none"),
    ],
)
def test_the_stage_that_is_busy_for_most_of_the_step_is_the_limit(
    seconds: dict[str, float], limit: str, tmp_path: Path
) -> None:
    found = find_bottleneck(run_of(tmp_path, metrics=seconds))
    assert found.limited_by == limit
    assert found.step_s == pytest.approx(4.5)
    idle = {stage.stage: stage.idle_share for stage in found.stages}
    busy = {"generation": 4.0, "rewards": 1.6, "training": 2.0} | {
        {"train": "training"}.get(name.split("/")[0], name.split("/")[0]): value
        for name, value in seconds.items()
    }
    for stage, value in busy.items():
        assert idle[stage] == pytest.approx(1 - value / 4.5)


def test_scoring_that_limits_a_run_wants_workers_and_the_model_says_what_they_gain(tmp_path: Path) -> None:
    slow = {"generation/seconds": 1.0, "rewards/seconds": 4.4, "train/seconds": 1.0}
    found = find_bottleneck(run_of(tmp_path, metrics=slow))
    assert settings_of(found)[0] == "acceleration.async_rewards.workers=2"
    assert found.advice[0].gain == pytest.approx(0.5, abs=0.15)
    assert found.advice[0].step_s == pytest.approx(found.step_s * (1 - found.advice[0].gain))


def test_work_for_nothing_is_told_and_its_removal_predicted(tmp_path: Path) -> None:
    logged = {"generation/seconds": 1.0, "train/seconds": 4.3, "train/padding_share": 0.4}
    logged |= {"rollout/zero_signal_share": 0.25, "rollout/wait_s": 0.125}
    switches = {"token_packing": {"enabled": False}, "skip_zero_advantages": False, "max_staleness": 1}
    found = find_bottleneck(run_of(tmp_path, metrics=logged, acceleration=switches))
    assert settings_of(found)[:2] == [
        "acceleration.token_packing.enabled=true",
        "acceleration.skip_zero_advantages=true",
    ]
    assert [round(advice.gain, 1) for advice in found.advice[:2]] == pytest.approx([0.4, 0.25], abs=0.06)
    assert found.wasted["of the tokens in the trainer's rows were padding"] == pytest.approx(0.4)
    assert found.waited_s == pytest.approx(0.125)


def test_checkpoints_that_hold_steps_up_are_seen(tmp_path: Path) -> None:
    found = find_bottleneck(run_of(tmp_path, save_s=8.0, output={"save_steps": 4}))
    (advice,) = (one for one in found.advice if one.change.setting == "output.save_steps=16")
    assert advice.gain == pytest.approx(0.75 * 8.0 / 4 / found.predicted_s, rel=0.01)


def test_overlap_is_advised_by_the_model_and_on_one_device_by_its_gaps_only(tmp_path: Path) -> None:
    even = {"generation/seconds": 2.2, "train/seconds": 2.2, "rewards/seconds": 0.1}
    on_policy = {"max_staleness": 0, "stream_steps": False}
    split = {"placement": "split", "trainer_ranks": 2}
    folder = run_of(tmp_path, metrics=even, is_gpu=True, acceleration=on_policy, runtime=split)
    found = find_bottleneck(folder)
    assert not found.is_shared
    assert "acceleration.max_staleness=1" in settings_of(found)
    assert "not recorded by runs" in found.host_device_syncs
    (folder / "summary.json").unlink()
    shared = find_bottleneck(folder)
    assert shared.is_shared and shared.host_device_syncs.startswith("none: a CPU")
    gains = {advice.change.setting: advice.gain for advice in shared.advice}
    # Both were at work for 4.4 of the 4.5 s.
    assert gains["acceleration.max_staleness=1"] == pytest.approx(0.1 / shared.predicted_s, abs=0.001)
    assert "acceleration.stream_steps=true" not in gains


def test_larger_steps_are_compared_by_the_same_number_of_samples(tmp_path: Path) -> None:
    slow_updates = {"weights/update_s": 3.0, "weights/pause_s": 3.0, "generation/seconds": 1.5}
    found = find_bottleneck(run_of(tmp_path, metrics=slow_updates))
    (advice,) = (one for one in found.advice if one.change.num_steps == 2)
    assert advice.change.setting == "training.gradient_accumulation_steps=8"
    assert 0.1 < advice.gain < 0.5


def test_every_advised_setting_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    logged = {"train/padding_share": 0.5, "rollout/zero_signal_share": 0.5, "rewards/seconds": 4.0}
    switches = {"token_packing": {"enabled": False}, "skip_zero_advantages": False, "max_staleness": 0}
    for number, metrics in enumerate((logged, logged | {"generation/seconds": 0.5})):
        folder = run_of(tmp_path / str(number), metrics=metrics, acceleration=switches, is_gpu=bool(number))
        found = find_bottleneck(folder)
        assert len(found.advice) == 3
        for setting in settings_of(found):
            load_config(folder / "config.yaml", overrides=[setting])


def test_the_command_prints_a_report_and_the_same_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(tmp_path, metrics={"rewards/seconds": 4.4, "generation/seconds": 1.0})
    assert doctor.main([str(folder)]) == 0
    text = capsys.readouterr().out
    for part in ("limited by: rewards", "PREDICTED", "workers=2", "host-device syncs", "one device"):
        assert part in text
    assert doctor.main([str(folder), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert fields["limited_by"] == "rewards"
    assert fields["advice"][0]["setting"] == "acceleration.async_rewards.workers=2"
    assert fields["step_s"] == pytest.approx(4.5)


def test_a_run_of_the_baseline_has_no_stages_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(tmp_path)
    (folder / "baseline.txt").touch()
    assert doctor.main([str(folder)]) == 2
    assert "is a run of train_code_grpo" in capsys.readouterr().err
