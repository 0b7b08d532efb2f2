"""The engine sleeps through the trainer's turn where the two share a card and run in turn, and only there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.generation.generator import GeneratorError
from pipeline.host import shares
from pipeline.record.metrics import read_metrics
from pipeline.run import overlap_trial
from pipeline.run.overlap_trial import OverlapTrial, Verdict
from tests.pipeline.fake_stages import (
    GROUPS_PER_STEP,
    TASKS,
    FakeRun,
    FakeTrainer,
    is_documented,
    make_config,
)

METRICS = ("generation/asleep_s", "generation/sleep_wake_s")
FOREVER = {"generation": {"sleep_while_training": True}}


@pytest.fixture
def _card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fakes share a card."""
    monkeypatch.setattr(
        overlap_trial, "sleeps", lambda config, *_: config.generation.sleep_while_training is not False
    )


def of(log: Sequence[str], *kinds: str) -> list[str]:
    return [line for line in log if line.split()[0] in kinds]


def assert_no_overlap(log: Sequence[str]) -> None:
    """Asleep while the trainer works, and awake while anything is written or loaded."""
    is_asleep = False
    for line in log:
        kind = line.split()[0]
        is_asleep = kind == "asleep" or (is_asleep and kind != "awake")
        assert not is_asleep or kind not in ("completion", "weights"), log
        assert is_asleep or kind not in ("train", "trained"), log


TURN = ["asleep", "trained", "released", "awake", "weights"]


@pytest.mark.usefixtures("_card")
@pytest.mark.parametrize(
    "sections",
    [FOREVER, {"acceleration": {"stream_steps": False}}],
    ids=["asked for", "nothing could run beside"],
)
def test_an_engine_sleeps_through_every_step_of_a_run_in_turn(
    tmp_path: Path, sections: dict[str, Any]
) -> None:
    run = FakeRun(tmp_path, make_config(0, **sections)).train()
    order = [line.split()[0] for line in of(run.log, *TURN)]
    assert order == 3 * TURN
    assert_no_overlap(run.log)
    assert run.log.index("asleep") < run.log.index("fitted"), "the trainer may count on what is given back"
    assert not run.generator.is_asleep, "awake for what comes after training"
    for line in read_metrics(run.folder.metrics):
        assert {name for name in line if "sleep" in name} == set(METRICS)
        assert all((line[name] or 0.0) > 0 for name in METRICS)
    assert all(is_documented(name) for name in METRICS)


@pytest.mark.usefixtures("_card")
def test_within_a_block_the_engine_sleeps_on_and_only_the_newest_weights_are_loaded(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(1, **FOREVER, training={"max_steps": 8})).train()
    order = of(run.log, "asleep", "trained", "awake", "weights")
    assert order == [
        line
        for last in (2, 4, 6, 8)
        for line in ("asleep", f"trained {last - 1}", f"trained {last}", "awake", f"weights {last}")
    ]
    assert_no_overlap(run.log)
    assert max(run.trainer.staleness) <= 1
    versions = [line["weights/update_s"] for line in read_metrics(run.folder.metrics)]
    assert all(seconds is not None and seconds >= 0 for seconds in versions)
    assert run.rows("SELECT COUNT(*) FROM draws WHERE status = 'trained'") == [(16,)]


class Timed(OverlapTrial):
    """The real rule; ``beside`` says whether running beside each other looks better."""

    beside = False

    def record(self, step_s: float, num_tokens: int) -> Verdict | None:
        is_better = self.overlaps is self.beside
        return super().record(1.0, 100_000 if is_better else 1000)


class TimedBeside(Timed):
    beside = True


@pytest.mark.usefixtures("_card")
@pytest.mark.parametrize("trial", [Timed, TimedBeside])
@pytest.mark.parametrize("max_staleness", [0, 1])
def test_what_runs_beside_each_other_does_not_sleep_and_the_trial_turns_it_on_and_off(
    tmp_path: Path, max_staleness: int, trial: type[Timed]
) -> None:
    config = make_config(max_staleness, training={"max_steps": 16})
    run = FakeRun(
        tmp_path, config, trial=trial(num_settling=1, num_measured=1, block=max_staleness + 1)
    ).train()
    first = run.log.index("asleep")
    assert run.log[:first].count("trained 1") == 1, "beside each other at first"
    assert run.log.count("asleep") == run.log.count("awake")
    last = len(run.log) - run.log[::-1].index("awake")
    assert ("trained 16" in run.log[:last]) is not trial.beside
    assert "fitted" in run.log[:first], "both hold memory at once: the trainer fits into what is left"
    assert not run.generator.is_asleep
    assert run.rows("SELECT COUNT(*) FROM steps") == [(16,)]
    assert max(run.trainer.staleness) <= max_staleness


@pytest.mark.usefixtures("_card")
@pytest.mark.parametrize(
    "sections",
    [{}, {"generation": {"sleep_while_training": False}, "acceleration": {"stream_steps": False}}],
    ids=["beside each other", "switched off"],
)
def test_otherwise_nobody_sleeps_and_there_are_no_metrics_of_it(
    tmp_path: Path, sections: dict[str, Any]
) -> None:
    run = FakeRun(tmp_path, make_config(0, **sections)).train()
    assert of(run.log, "asleep", "awake", "released") == []
    assert not any("sleep" in name for line in read_metrics(run.folder.metrics) for name in line)


def test_on_a_cpu_nobody_sleeps(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(0, acceleration={"stream_steps": False})).train()
    assert of(run.log, "asleep", "awake", "released") == []
    assert not any("sleep" in name for line in read_metrics(run.folder.metrics) for name in line)


@pytest.mark.usefixtures("_card")
def test_a_measurement_on_the_way_ends_before_the_engine_sleeps(tmp_path: Path) -> None:
    config = make_config(
        1,
        **FOREVER,
        training={"max_steps": 6},
        evaluation={"every_steps": 1, "inloop_tasks": 2, "inloop_samples": 2},
    )
    run = FakeRun(tmp_path, config, heldout=TASKS[:2]).train()
    assert_no_overlap(run.log)
    measured = [name for name in run.notes if "pass@1" in name]
    assert len(measured) == 5, run.notes


@pytest.mark.usefixtures("_card")
def test_an_engine_that_cannot_have_its_memory_again_ends_the_run_with_that_reason(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(0, **FOREVER))

    async def wake() -> None:
        raise GeneratorError("the generator failed to take its share of the card again: out of memory")

    run.generator.wake = wake  # type: ignore[method-assign]
    with pytest.raises(StageError, match="failed to take its share of the card again"):
        run.train()


def test_a_step_is_committed_with_the_layout_that_it_was_trained_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second step's rows are fitted into the memory before the first step is committed."""
    layout = property(lambda trainer: {"limit": trainer._log.count("fitted"), "threads": 1})
    monkeypatch.setattr(FakeTrainer, "layout", layout)
    run = FakeRun(tmp_path, make_config(1))
    run.generator.update_held = lambda: "train 2 0" in run.log
    run.train()
    layouts = [json.loads(said) for (said,) in run.rows("SELECT layout FROM steps ORDER BY step")]
    assert [layout["limit"] for layout in layouts] == [1, 2, 3]
    assert all(layout["threads"] == 1 and sum(layout["parts"]) == GROUPS_PER_STEP for layout in layouts)


def config_of(**sections: Any) -> Config:
    return Config.model_validate({"training": {"max_steps": 100}, **sections})


@pytest.mark.parametrize(
    ("sections", "device", "num_gpus", "expected"),
    [
        ({}, "cuda", 1, True),
        ({"generation": {"sleep_while_training": True}}, "cuda", 1, True),
        ({"generation": {"sleep_while_training": False}}, "cuda", 1, False),
        ({"generation": {"engine": "transformers"}}, "cuda", 1, False),
        ({}, "cuda", 2, False),
        ({}, "cpu", 0, False),
        ({"runtime": {"placement": "colocated"}}, "cuda", 2, True),
    ],
)
def test_only_vllm_on_a_card_that_both_use_sleeps(
    sections: dict[str, Any], device: str, num_gpus: int, expected: bool
) -> None:
    assert shares.sleeps(config_of(**sections), device, num_gpus) is expected


@pytest.mark.parametrize(
    ("sections", "device", "num_gpus", "reason"),
    [
        ({}, "cpu", 0, "there is no GPU to share"),
        ({}, "cuda", 2, "generator and trainer share no GPU here"),
        ({"generation": {"engine": "transformers"}}, "cuda", 1, "generation.engine 'transformers' cannot"),
        ({}, "cuda", 1, None),
        ({"generation": {"sleep_while_training": "auto"}}, "cpu", 0, None),
    ],
)
def test_to_sleep_where_nothing_can_be_given_back_is_refused(
    sections: dict[str, Any],
    device: str,
    num_gpus: int,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shares, "num_gpus", lambda device: num_gpus)
    generation = {"sleep_while_training": True, **sections.get("generation", {})}
    config = config_of(generation=generation)
    if reason is None:
        shares.check_sleep(config, device)
        return
    with pytest.raises(
        ValueError, match=f"sleep_while_training: value true: must be auto or false: {reason}"
    ):
        shares.check_sleep(config, device)


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="sleep_while_training"):
        config_of(generation={"sleep_while_training": value})


def test_a_run_that_always_takes_turns_needs_no_trial() -> None:
    config = config_of(generation={"sleep_while_training": True})
    assert OverlapTrial.of_run(config, "cuda", 1) is None
    assert OverlapTrial.of_run(config, "cpu", 0) is not None
