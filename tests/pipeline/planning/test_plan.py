from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configs.finished import load_finished
from configs.load import render
from configs.schema import Config
from pipeline import cli
from pipeline.planning.measured_run import MeasuredRun, read_run
from pipeline.planning.plan import in_turn, plan, plans, step_time

OVERLAP = Path(__file__).parents[3] / "benchmarks" / "results" / "async_overlap_cpu.json"
# A device writes a step in 2 s, trains it in 4 s, and a core scores it in 1.6 s.
RUN = MeasuredRun(
    origin="a test",
    device="one device",
    is_gpu=True,
    num_devices=1,
    num_generator_gpus=1,
    num_ranks=1,
    num_reward_workers=1,
    num_completions=32,
    max_staleness=1,
    generation_s=2.0,
    rewards_s=1.6,
    training_s=4.0,
    update_s=0.5,
    pause_s=0.2,
    step_s=5.0,
    num_steps=4,
)


def config_of(**acceleration: object) -> Config:
    return Config.model_validate({"acceleration": {"max_staleness": 1, **acceleration}})


def measured_cells(order: str, *, recorded: bool = False) -> list[dict[str, Any]]:
    """The stored cells of ``order``: of mixes, or with the costs of a run."""
    rows = json.loads(OVERLAP.read_text(encoding="utf-8"))["rows"]
    return [
        row for row in rows if row["order"] == order and row["slowest"].startswith("recorded") == recorded
    ]


@pytest.mark.parametrize("order", ["asynchronous", "two steps ahead"])
def test_with_staleness_the_closed_form_tells_what_was_measured(order: str) -> None:
    mixes, recorded = measured_cells(order), measured_cells(order, recorded=True)
    assert (len(mixes), len(recorded)) == (3, 2)
    for cell in (*mixes, *recorded):
        told_s = step_time(cell["own_s"], 0.0, cell["longest_s"])
        assert told_s == pytest.approx(cell["step_s"], rel=0.05)


@pytest.mark.parametrize("order", ["synchronous", "on-policy overlap"])
def test_on_policy_each_measured_mix_of_stages_tells_the_others(order: str) -> None:
    mixes, recorded = measured_cells(order), measured_cells(order, recorded=True)
    assert (len(mixes), len(recorded)) == (3, 2)
    for known in mixes:
        share = known["step_s"] / in_turn(known["own_s"], known["longest_s"])
        # The coder's stages, with one generator and with four, are told by the mix whose slowest is theirs.
        for cell in (*mixes, *recorded) if known["slowest"] == "generation" else mixes:
            told_s = step_time(cell["own_s"], share, cell["longest_s"])
            assert told_s == pytest.approx(cell["step_s"], rel=0.10)


def test_on_policy_no_step_is_shorter_than_training_after_its_longest_answer() -> None:
    own_s = {"generation": 0.5, "training": 1.0, "rewards": 0.1}
    assert step_time(own_s, 0.5, longest_s=2.0) == 3.0
    assert step_time(own_s, 0.9, longest_s=2.0) == pytest.approx(0.9 * 3.6)
    assert step_time(own_s, 0.0, longest_s=2.0) == 1.0


def test_eight_gpus_are_split_so_that_generators_and_ranks_take_equally_long() -> None:
    """A device writes a step in 2 s and trains it in 4 s: a third of the GPUs for the one, the rest."""
    best = plan(RUN, config_of(), 8)
    assert best.num_generators + best.num_ranks == 8
    assert best.num_generators in (2, 3)
    assert best.num_completions == 8 * RUN.num_completions
    assert best.own_s["rewards"] * 1.2 < max(best.own_s["generation"], best.own_s["training"])


@pytest.mark.parametrize(
    "sections",
    [
        {"lora": {"enabled": True, "load_in_4bit": True}},
        {"training": {"optim": "adamw_8bit"}},
        {"model": {"loader": "unsloth"}, "lora": {"enabled": True}},
    ],
)
def test_what_trains_on_one_card_alone_is_given_no_more(sections: dict[str, object]) -> None:
    config = Config.model_validate({"acceleration": {"max_staleness": 1}, **sections})
    assert {one.num_ranks for one in plans(RUN, config, 8)} == {1}


@pytest.mark.parametrize("num_gpus", [8, 64, 1024])
@pytest.mark.parametrize("max_staleness", [0, 1])
def test_no_other_split_is_faster_than_the_plan(num_gpus: int, max_staleness: int) -> None:
    run, config = replace(RUN, max_staleness=max_staleness), config_of(max_staleness=max_staleness)
    best = plan(run, config, num_gpus)
    others = list(plans(run, config, num_gpus))
    assert len(others) == num_gpus - 1
    assert all(best.step_s <= other.step_s for other in others)
    assert best.step_s >= max(best.own_s.values())


def test_a_batch_that_grows_with_the_gpus_takes_as_long_on_many_as_on_few() -> None:
    few, many = (plan(RUN, config_of(), num_gpus) for num_gpus in (64, 1024))
    assert many.step_s == pytest.approx(few.step_s, rel=0.1)
    assert many.completions_per_s == pytest.approx(16 * few.completions_per_s, rel=0.1)


def test_slow_rewards_get_the_workers_that_keep_them_from_being_waited_for() -> None:
    best = plan(replace(RUN, rewards_s=32.0), config_of(), 8)
    assert best.slowest != "rewards"
    # 256 completions of a second each.
    assert best.num_reward_workers == pytest.approx(1.25 * 256 / max(best.own_s.values()), abs=1)


def test_a_generator_split_over_gpus_takes_them_all() -> None:
    config = Config.model_validate({"generation": {"tensor_parallel_size": 2}})
    best = plan(RUN, config, 9)
    assert 2 * best.num_generators + best.num_ranks == 9
    assert best.num_ranks % 2 == 1


def test_a_step_ends_with_its_fullest_rank_and_counts_the_ranks_that_were_measured() -> None:
    config = Config.model_validate(
        {"acceleration": {"max_staleness": 1}, "training": {"gradient_accumulation_steps": 1}}
    )
    # 8 GPUs measured with 4 ranks: a step of 32 completions on 5 ranks ends with the one that has 7.
    run = replace(RUN, num_devices=8, num_generator_gpus=4, num_ranks=4)
    wanted = round(config.prompts_per_step) * config.grpo.num_generations
    (split,) = (one for one in plans(run, config, 8) if one.num_ranks == 5)
    assert split.num_completions == wanted
    fullest = -(-wanted // 5)
    assert split.own_s["training"] == pytest.approx(4.0 * 4 * fullest / 32)


def test_ranks_and_engines_that_shared_a_device_were_as_fast_as_one(tmp_path: Path) -> None:
    alone = read_run(write_run(tmp_path / "one", 4))
    folder = write_run(tmp_path / "several", 4)
    config = load_finished(folder / "config.yaml").model_dump()
    config["runtime"]["trainer_ranks"], config["generation"]["num_engines"] = 2, 3
    (folder / "config.yaml").write_text(render(Config.model_validate(config)), encoding="utf-8")
    several = read_run(folder)
    assert (several.num_devices, several.num_ranks, several.num_generator_gpus) == (1, 1, 1)
    assert several.is_shared
    assert plan(several, config_of(), 8) == plan(alone, config_of(), 8)


def test_a_plan_without_staleness_needs_a_run_without_any() -> None:
    with pytest.raises(ValueError, match=r"max_staleness.*as in a test"):
        plan(RUN, config_of(max_staleness=0), 8)


def write_run(folder: Path, num_steps: int) -> Path:
    """What a run leaves behind: 32 completions a step, 4 s of generation, 2 of training."""
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
    return folder


def test_the_costs_of_a_run_are_those_of_its_metrics(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 5)
    run = read_run(folder)
    assert run.num_steps == 3 and read_run(folder, last=2).num_steps == 2
    assert run.num_completions == 32
    assert run.own_s == pytest.approx({"generation": 4.0 + 0.1, "training": 2.0, "rewards": 1.6})
    assert (run.update_s, run.pause_s) == pytest.approx((0.3, 0.1))
    assert run.is_shared and not run.is_gpu


def test_the_costs_of_stages_in_turn_are_those_of_whole_blocks(tmp_path: Path) -> None:
    """Every second step generates for two, and the trainer waits; the last block has lost its second step."""
    folder = write_run(tmp_path / "run", 8)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for number, row in enumerate(rows):
        is_writing = number in (0, 1, 3, 5, 7)
        row |= {"train/seconds": 4.0, "generation/tokens": 6400.0 * is_writing}
        row |= {"generation/seconds": 4.0 * is_writing, "step/seconds": 4.0 + 4.0 * is_writing}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run = read_run(folder)
    assert run.num_steps == 6
    assert (run.generation_s, run.training_s, run.step_s) == pytest.approx((2.0, 4.0, 6.0))


def plan_by_command(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, str]:
    status = cli.train_accelerated(list(flags))
    output = capsys.readouterr()
    return status, output.out, output.err


def test_the_command_prints_a_plan_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", 5)
    status, out, _ = plan_by_command(capsys, "--plan", str(folder), "--gpus", "16")
    assert status == 0
    assert f"Measured in run {folder}" in out
    assert "16" in out and "1,024" not in out
    assert "Taken for granted, not measured" in out
    assert "took 4.50 s" in out and "takes 4.10 s (-9 %)" in out
    assert "warning: measured on a CPU" in out and "shared one device" in out


def test_without_a_number_the_plan_is_for_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = plan_by_command(capsys, "--plan", str(write_run(tmp_path / "run", 5)))
    assert status == 0
    for heading in ("8", "64", "1,024", "generators", "trainer ranks", "reward workers", "slowest stage"):
        assert heading in out


@pytest.mark.parametrize(
    ("size", "headings"), [(7, ["8", "64", "1,024"]), (8, ["9", "64", "1,024"]), (64, ["65", "1,024"])]
)
def test_without_a_number_every_plan_has_a_gpu_to_train(
    size: int, headings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(write_run(tmp_path / "run", 5))
    setting = f"generation.tensor_parallel_size={size}"
    status, out, err = plan_by_command(capsys, "--plan", folder, "--set", setting)
    assert status == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("┃ GPUs")]
    assert [cell.strip() for cell in line.strip("┃").split("┃")[1:]] == headings


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--plan", "/nowhere"), "/nowhere does not exist"),
        (
            ("--plan", "/nowhere", "--gpus", "1"),
            "--gpus: 1 is not allowed; allowed: a whole number from 2 on",
        ),
        (("--gpus", "8"), "--gpus: used by --plan only"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(
    flags: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = plan_by_command(capsys, *flags)
    assert status == 2
    assert complaint in err


def test_a_plan_needs_the_folder_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.train_accelerated(["--plan"])
    assert ended.value.code == 2
    assert "--plan: expected one argument" in capsys.readouterr().err


def test_a_run_of_one_step_says_too_little(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 1)
    with pytest.raises(ValueError, match="no step after the first that generated as well as trained"):
        read_run(folder)


def test_what_a_plan_does_not_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_run(tmp_path / "run", 5))
    for flags, reason in (
        (("--speedup-mode", "conservative"), "the run has its own config.yaml"),
        (("--resume", folder), "it trains nothing"),
        (("--dry-run",), "it trains nothing"),
    ):
        status, _, err = plan_by_command(capsys, "--plan", folder, *flags)
        assert status == 2 and f"{flags[0]}: not used with --plan: {reason}" in err
