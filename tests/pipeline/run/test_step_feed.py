"""What overlaps within a step and across steps, and what does not; only the stages are fakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.generation.generator import GeneratorError
from pipeline.messages import TrainBatch, WeightsLoaded, WeightUpdate
from pipeline.record.metrics import read_metrics
from tests.pipeline.fake_stages import GROUPS_PER_STEP, NUM_GENERATIONS, FakeRun, make_config


def parts(run: FakeRun) -> list[float | None]:
    return [line["train/parts"] for line in read_metrics(run.folder.metrics)]


def config_of(max_staleness: int, **sections: dict[str, object]) -> Any:
    acceleration = {"max_staleness": max_staleness, **sections.pop("acceleration", {})}
    return make_config(acceleration=acceleration, **sections)


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_groups_are_trained_on_while_later_ones_are_written(tmp_path: Path, max_staleness: int) -> None:
    run = FakeRun(tmp_path, config_of(max_staleness))
    # All but draw 2 wait until the trainer has begun with it.
    for draw_id in (1, 3, 4):
        run.generator.held[f"draw-{draw_id}"] = lambda: "train 1 0" in run.log
    run.train()
    assert parts(run)[0] == 2
    sizes = [len(batch.samples) for batch in run.trainer.batches]
    assert sizes == [GROUPS_PER_STEP * NUM_GENERATIONS] * 3
    assert max(run.trainer.staleness) <= max_staleness


@pytest.mark.parametrize(
    "settings",
    [
        {"acceleration": {"stream_steps": False}},
        {"grpo": {"scale_rewards": "batch"}},
        {"grpo": {"loss_type": "bnpo"}},
    ],
    ids=["switched off", "scaled by the batch", "bnpo"],
)
def test_a_step_that_cannot_be_streamed_is_trained_on_at_once(
    tmp_path: Path, settings: dict[str, dict[str, object]]
) -> None:
    run = FakeRun(tmp_path, config_of(0, **settings))
    run.generator.held["draw-1"] = lambda: "completion draw-2 3" in run.log
    run.train()
    assert parts(run) == [1, 1, 1]
    (name,) = settings["acceleration" if "acceleration" in settings else "grpo"]
    reason = f"a step is trained on when all its groups are there: grpo.{name}"
    assert (reason in run.output.getvalue()) == (name != "stream_steps")


def test_the_weights_of_a_step_are_loaded_while_the_next_one_is_trained(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, config_of(1))
    run.generator.update_held = lambda: "train 2 0" in run.log
    run.train()
    assert run.log.index("train 2 0") < run.log.index("weights 1") < run.log.index("trained 2")


def test_a_checkpoint_stops_neither_generation_nor_the_next_steps_backward(tmp_path: Path) -> None:
    config = config_of(1, training={"max_steps": 4}, output={"save_steps": 1})
    run = FakeRun(tmp_path, config)
    # Draws 5 and 6 are of the third step: their slots come free with the first one's weights.
    run.generator.held["draw-4"] = lambda: "train 2 0" in run.log
    run.trainer.save_held = lambda: {"train 2 0", "generate draw-5", "generate draw-6"} <= set(run.log)
    run.train()
    assert run.trainer.saved == [1, 2, 3, 4]
    assert run.log.index("saved 1") < run.log.index("trained 2"), "the weights wait for their checkpoint"
    assert run.rows("SELECT step FROM steps ORDER BY step") == [(1,), (2,), (3,), (4,)]


def test_weights_that_cannot_be_loaded_end_the_run_at_once_and_with_their_own_error(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, config_of(1))

    async def fail(update: WeightUpdate) -> WeightsLoaded:
        raise GeneratorError("generator 0: no answer within 120 s")

    run.generator.update_weights = fail  # type: ignore[method-assign]
    # The next step's groups never come; who waits for them must hear of it.
    run.generator.held["draw-3"] = lambda: False
    with pytest.raises(GeneratorError, match="generator 0: no answer"):
        run.train()
    assert run.rows("SELECT step FROM steps") == []


def test_a_part_that_fails_ends_the_run_and_its_step_is_not_committed(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, config_of(0))
    run.generator.held["draw-3"] = lambda: "train 2 0" in run.log

    async def fail(batch: TrainBatch) -> None:
        run.log.append(f"train {batch.step} {batch.part}")
        if batch.step == 2:
            raise MemoryError("one sequence of 16 tokens does not fit into memory")

    accumulate = run.trainer.accumulate

    async def add(batch: TrainBatch) -> None:
        await (fail if batch.step == 2 else accumulate)(batch)

    run.trainer.accumulate = add  # type: ignore[method-assign]
    with pytest.raises(MemoryError, match="one sequence"):
        run.train()
    assert run.rows("SELECT step FROM steps") == [(1,)]
    trained = run.rows("SELECT draw_id FROM draws WHERE status = 'trained' ORDER BY draw_id")
    assert trained == [(1,), (2,)]
