from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from configs.load import render
from configs.schema import Config
from pipeline import cli
from pipeline.planning.measured_run import MeasuredRun, read_record, read_run, write_record
from pipeline.planning.pipeline_model import own_times, predict
from pipeline.planning.plan import plan
from pipeline.planning.scaling import Layout, ScalingAssumptions, assumptions, scaled

RUN = MeasuredRun(
    origin="a test",
    device="one device",
    num_devices=1,
    num_engines=1,
    groups_per_step=4,
    num_generations=8,
    max_staleness=1,
    num_generating=32,
    num_reward_workers=1,
    is_streamed=True,
    is_gpu=True,
    is_shared=True,
    lengths=(50, 100, 150),
    token_s=0.02,
    reward_s=0.05,
    train_s=0.125,
    update_s=0.5,
    pause_s=0.2,
    step_s=5.0,
    num_steps=4,
    weights_bytes=0,
)
ALONE = ScalingAssumptions(fsdp_hidden=1.0)


def config_of(**acceleration: object) -> Config:
    return Config.model_validate({"acceleration": {"max_staleness": 1, **acceleration}})


def test_eight_gpus_are_split_so_that_generators_and_ranks_take_equally_long() -> None:
    """A device writes a step in 2 s and trains it in 4 s: a third of the GPUs for the one, the rest."""
    best = plan(RUN, config_of(), 8, ALONE)
    assert best.layout.num_gpus == 8
    assert best.layout.num_generators in (2, 3)
    assert best.shape.groups_per_step == 8 * RUN.groups_per_step
    own_s = best.prediction.own_s
    assert own_s["rewards"] * 1.2 < max(own_s["generation"], own_s["training"])


@pytest.mark.parametrize("num_gpus", [8, 64, 1024])
def test_no_other_split_is_much_faster_than_the_plan(num_gpus: int) -> None:
    best = plan(RUN, config_of(), num_gpus, ALONE)
    for num_ranks in (num_gpus // 4, num_gpus // 2, num_gpus - num_gpus // 4):
        other = replace(best.layout, num_generators=num_gpus - num_ranks, num_ranks=num_ranks)
        own_s = own_times(*scaled(RUN, other, best.shape, ALONE, 8))
        assert max(best.prediction.own_s.values()) <= 1.01 * max(own_s.values())
    assert best.prediction.step_s >= 0.999 * max(best.prediction.own_s.values())


def test_a_batch_that_grows_with_the_gpus_takes_as_long_on_many_as_on_few() -> None:
    few, many = (plan(RUN, config_of(), num_gpus, ALONE) for num_gpus in (64, 1024))
    assert many.prediction.step_s == pytest.approx(few.prediction.step_s, rel=0.1)
    assert many.completions_per_s == pytest.approx(16 * few.completions_per_s, rel=0.1)


def test_slow_rewards_get_workers_until_the_cores_are_gone() -> None:
    slow = replace(RUN, reward_s=1.0)
    assert plan(slow, config_of(), 8, ALONE).prediction.bottleneck != "rewards"
    short = plan(slow, config_of(), 8, replace(ALONE, cores_per_gpu=1.0))
    assert short.layout.num_reward_workers == 8
    assert short.prediction.bottleneck == "rewards"


def test_a_generator_split_over_gpus_takes_them_all() -> None:
    config = Config.model_validate({"generation": {"tensor_parallel_size": 2}})
    best = plan(RUN, config, 9, ALONE)
    assert best.layout.tensor_parallel_size == 2
    assert best.layout.num_gpus == 9
    assert best.layout.num_ranks % 2 == 1


def test_what_is_assumed_changes_the_costs_as_it_says() -> None:
    layout = Layout(num_generators=8, tensor_parallel_size=1, num_ranks=16, num_reward_workers=2)
    shape = replace(RUN.shape(), groups_per_step=96)
    plain, plain_shape = scaled(RUN, layout, shape, ALONE, 8)
    assert plain_shape.num_generating == 8 * RUN.num_generating
    assert plain.train_group_s * 96 == pytest.approx(RUN.train_s * 96 * 8 / 16)
    fast, _ = scaled(RUN, layout, shape, replace(ALONE, gpu_speed=10.0), 8)
    assert fast.completion_s[0] == pytest.approx(plain.completion_s[0] / 10)
    assert fast.train_group_s == pytest.approx(plain.train_group_s / 10)
    assert fast.reward_s == plain.reward_s
    heavy = replace(RUN, weights_bytes=10**10)
    # 768 completions, 16 ranks, 8 a forward: 6 micro-batches; three passes of 15/16 of 10 GB, half hidden.
    sent, _ = scaled(heavy, layout, shape, replace(ALONE, fsdp_hidden=0.5), 8)
    assert 96 * (sent.train_group_s - plain.train_group_s) == pytest.approx(6 * 3 * 10 * 15 / 16 / 25 * 0.5)
    # 24 GPUs are three nodes, one of generators: one hop.
    assert sent.update_s - RUN.update_s == pytest.approx(10 / 25)
    split = replace(layout, num_generators=4, tensor_parallel_size=2)
    quick, _ = scaled(RUN, split, shape, ALONE, 8)
    assert quick.completion_s[0] == pytest.approx(plain.completion_s[0] / 1.6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("gpu_sped=2", "is no assumption; allowed: one of gpu_speed"),
        ("gpu_speed=fast", "has no number"),
        ("gpu_speed=0", "is out of range; allowed: a number above 0"),
        ("fsdp_hidden=1.5", "allowed: a share, up to 1"),
        ("network_gb_per_s=nan", "is out of range"),
    ],
)
def test_an_assumption_that_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        assumptions([text])


def test_an_assumption_is_taken_by_name() -> None:
    assert assumptions(["gpu-speed=3", "cores_per_gpu=4"]) == ScalingAssumptions(gpu_speed=3, cores_per_gpu=4)


def write_run(folder: Path, num_steps: int) -> Path:
    """What a run leaves behind: 32 completions of 100 tokens a step, 4 s of generation, 2 of training."""
    folder.mkdir()
    (folder / "config.yaml").write_text(render(config_of()), encoding="utf-8")
    row = {
        "generation/seconds": 4.0,
        "generation/tokens": 3200.0,
        "rewards/seconds": 1.6,
        "train/seconds": 2.0,
        "weights/update_s": 0.3,
        "weights/pause_s": 0.1,
        "step/seconds": 4.5,
    }
    rows = [{"step": step, "time_s": float(step), **row} for step in range(1, num_steps + 1)]
    # Compilation in the first step; nothing left to generate in the last.
    rows[0] |= {"train/seconds": 60.0}
    rows[-1] |= {"generation/tokens": 0.0, "train/seconds": 0.5}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    with sqlite3.connect(folder / "run.db") as database:
        database.execute("CREATE TABLE rollouts (draw_id INTEGER, rollout_id TEXT, num_tokens INTEGER)")
        database.executemany("INSERT INTO rollouts VALUES (?, ?, ?)", [(1, f"1/{n}", 100) for n in range(8)])
    database.close()
    return folder


def test_the_costs_of_a_run_are_those_of_its_metrics(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", 5))
    assert run.num_steps == 3
    assert run.train_s == pytest.approx(2.0 / 32)
    assert run.reward_s == pytest.approx(1.6 / 32)
    own_s = own_times(run.costs(0.0), run.shape())
    assert own_s["generation"] == pytest.approx(4.0 + 0.1)
    assert own_s["training"] == pytest.approx(2.0)
    assert (run.update_s, run.pause_s) == pytest.approx((0.3, 0.1))
    # Completions of one length: generation alone is the step.
    assert predict(run.costs(0.0), run.shape()).step_s == pytest.approx(4.1, rel=0.1)
    write_record(run, tmp_path / "record.json.gz")
    assert read_record(tmp_path / "record.json.gz") == run


def plan_by_command(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, str]:
    status = cli.train_accelerated(list(flags))
    output = capsys.readouterr()
    return status, output.out, output.err


def test_the_command_prints_a_plan_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", 5)
    status, out, _ = plan_by_command(capsys, "--plan", str(folder), "--gpus", "16", "--assume", "gpu_speed=7")
    assert status == 0
    assert f"Costs measured in run {folder}" in out
    assert "16" in out and "1,024" not in out
    assert "Assumptions, not measurements" in out and "gpu_speed=7:" in out
    assert "which took 4.50 s" in out


def test_without_a_run_the_plan_says_that_its_costs_are_recorded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = plan_by_command(capsys, "--plan")
    assert status == 0
    assert "no run of yours was named" in out
    assert "warning: the costs are of a CPU" in out
    for heading in ("8", "64", "1,024", "generators", "trainer ranks", "reward workers", "slowest stage"):
        assert heading in out


def test_the_model_tells_the_recorded_run_within_a_tenth() -> None:
    run = read_record()
    predicted = predict(run.costs(ScalingAssumptions().spare_speed), run.shape())
    assert predicted.step_s == pytest.approx(run.step_s, rel=0.10)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--plan", "/nowhere"), "/nowhere holds no config.yaml"),
        (("--plan", "--gpus", "1"), "--gpus: 1 is not allowed; allowed: a whole number from 2 on"),
        (("--plan", "--assume", "speed=1"), "--assume: speed=1 is no assumption"),
        (("--gpus", "8"), "--gpus: used by --plan only"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(
    flags: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = plan_by_command(capsys, *flags)
    assert status == 2
    assert complaint in err


def test_a_run_of_one_step_says_too_little(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 1)
    with pytest.raises(ValueError, match="no metrics of a step after its first one"):
        read_run(folder)
