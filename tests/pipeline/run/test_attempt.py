"""Training steps of an attempt: what overlaps within a step and across steps, what does not, and what is left
of each; only the stages are fakes."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.generation.generator import GeneratorError
from pipeline.messages import GenerationRequest, TrainBatch, WeightsLoaded, WeightUpdate
from pipeline.record.audit import audit
from pipeline.record.metrics import read_metrics
from pipeline.report.reader import RunReader
from pipeline.run.attempt import Attempt
from rewards.breaker import RewardsBrokenError
from rewards.result import RewardResult
from tests.pipeline.fake_stages import GROUPS_PER_STEP, NUM_GENERATIONS, TASKS, FakeRun, make_config, scored


def num_while_training(log: list[str], what: str, *, until: str) -> int:
    """Lines of ``what`` between the start of a step and its end, the line ``until``."""
    is_training, count = False, 0
    for line in log:
        kind = line.split()[0]
        is_training = kind == "train" or (is_training and kind != until)
        count += is_training and kind == what
    return count


def parts(run: FakeRun) -> list[float | None]:
    return [line["train/parts"] for line in read_metrics(run.folder.metrics)]


def test_without_staleness_steps_never_overlap_and_every_sample_is_on_policy(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(0, training={"max_steps": 6})).train()
    assert len(run.trainer.staleness) == 6 * GROUPS_PER_STEP * NUM_GENERATIONS
    assert set(run.trainer.staleness) == {0}
    assert num_while_training(run.log, "generate", until="weights") == 0


def test_with_staleness_of_one_steps_overlap_and_no_sample_is_older(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(1, training={"max_steps": 6})).train()
    assert len(run.trainer.staleness) == 6 * GROUPS_PER_STEP * NUM_GENERATIONS
    assert max(run.trainer.staleness) == 1
    assert num_while_training(run.log, "completion", until="trained") > 0


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_every_draw_is_accounted_for(tmp_path: Path, max_staleness: int) -> None:
    run = FakeRun(tmp_path, make_config(max_staleness)).train()
    trained = run.rows(
        "SELECT steps.step, COUNT(*) FROM draws JOIN steps USING (step_id)"
        " WHERE draws.status = 'trained' GROUP BY steps.step"
    )
    assert trained == [(1, GROUPS_PER_STEP), (2, GROUPS_PER_STEP), (3, GROUPS_PER_STEP)]
    issued = [line for line in run.log if line.startswith("generate ")]
    # A draw whose slot came last may have been recorded without its task having had a turn.
    num_draws = run.rows("SELECT COUNT(*) FROM draws")[0][0]
    assert len(issued) == len(set(issued))
    assert isinstance(num_draws, int) and 0 <= num_draws - len(issued) <= run.buffer.num_slots
    unfinished = run.rows("SELECT status FROM draws WHERE status != 'trained'")
    assert {status for (status,) in unfinished} <= {"issued", "scored"}
    assert len(unfinished) <= run.buffer.num_slots


def test_weights_follow_each_step_and_their_files_do_not_stay(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config()).train()
    order = [line for line in run.log if line.split()[0] in ("trained", "weights")]
    assert order == [f"{kind} {step}" for step in (1, 2, 3) for kind in ("trained", "weights")]
    kept = [path.name for path in run.weights_folder.iterdir()]
    assert kept == ["3.safetensors"], "the newest stay, for a generator that is started again"


def test_an_infrastructure_error_is_never_trained_on_as_a_zero(tmp_path: Path) -> None:
    run = FakeRun(
        tmp_path,
        make_config(training={"max_steps": 1}),
        score_of=lambda task, index: scored(math.nan if index == 0 else float(index % 2)),
    ).train()
    (batch,) = run.trainer.batches
    assert len(batch.samples) == GROUPS_PER_STEP * (NUM_GENERATIONS - 1)
    assert not any(math.isnan(sample.advantage) for sample in batch.samples)
    (line,) = read_metrics(run.folder.metrics)
    assert line["rollout/reward_mean"] == pytest.approx(2 / 3)
    assert line["rollout/infra_error_share"] == 1 / NUM_GENERATIONS


def test_a_group_that_is_too_old_is_made_again_with_the_same_task(tmp_path: Path) -> None:
    """Also in the last step, where nothing else is issued that could take its place."""
    run = FakeRun(tmp_path, make_config())
    # As of a generator that went on with the weights before.
    run.generator.version_lag |= {"draw-3": 1, "draw-6": 1}
    run.train()
    assert run.rows("SELECT text FROM events WHERE kind = 'requeued' ORDER BY text") == [
        ("draw 3: its tokens are older than max_staleness allows",),
        ("draw 6: its tokens are older than max_staleness allows",),
    ]
    assert run.rows("SELECT draw_id, attempt FROM draws WHERE attempt > 0") == [(3, 1), (6, 1)]
    assert run.rows("SELECT COUNT(*) FROM draws") == [(3 * GROUPS_PER_STEP,)], "no task in their place"
    assert run.sampler.state_dict()["num_draws"] == 3 * GROUPS_PER_STEP
    assert run.rows("SELECT COUNT(DISTINCT task_id) FROM draws WHERE status = 'trained'") == [(6,)]
    assert set(run.trainer.staleness) == {0}
    assert [line["rollout/requeued_groups"] for line in read_metrics(run.folder.metrics)] == [0, 1, 1]
    assert len(run.trainer.batches[1].samples) == GROUPS_PER_STEP * NUM_GENERATIONS


def test_steps_tell_what_became_of_the_drafts_of_an_engine_that_starts_again(tmp_path: Path) -> None:
    speculative = {"enabled": True}
    run = FakeRun(tmp_path, make_config(acceleration={"speculative": speculative}))
    # Before the first step a measurement has drafted.
    answers = iter(
        [
            {"drafted": 50.0, "accepted": 20.0},
            {"drafted": 150.0, "accepted": 60.0},
            {"drafted": 350.0, "accepted": 110.0},
            {"drafted": 8.0},
        ]
    )

    async def stats() -> dict[str, float]:
        return next(answers)

    run.generator.stats = stats  # type: ignore[method-assign]
    run.train()
    lines = read_metrics(run.folder.metrics)
    assert [line["generation/drafted_tokens"] for line in lines] == [100, 200, 0]
    assert [line["generation/draft_acceptance"] for line in lines] == [0.4, 0.25, 0.0]


def test_each_step_leaves_metrics_and_samples(tmp_path: Path) -> None:
    run = FakeRun(
        tmp_path,
        make_config(),
        score_of=lambda task, index: scored(math.nan if index == 0 else float(index % 2), detail="why"),
    ).train()
    assert [line["step"] for line in read_metrics(run.folder.metrics)] == [1, 2, 3]
    lines = [json.loads(line) for line in run.folder.samples.read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == [1, 1, 2, 2, 3, 3]
    first, second = lines[:2]
    assert first["reward"] is None and first["outcome"] == "infra_error" and first["detail"] == "why"
    assert second["reward"] == 1.0 and second["outcome"] == "pass"
    assert second["completion"] == "answer 1"
    assert second["prompt"] == f"p{second['task_id'][1:]}"


@pytest.mark.parametrize(
    ("output", "saved"),
    [({"save_steps": 2}, [2, 4, 5]), ({"save_steps": 100, "save_minutes": 1e-9}, [1, 2, 3, 4, 5])],
)
def test_checkpoints_come_every_save_steps_or_so_many_minutes_and_at_the_end(
    output: dict[str, object], saved: list[int], tmp_path: Path
) -> None:
    run = FakeRun(tmp_path, make_config(training={"max_steps": 5}, output=output)).train()
    assert run.trainer.saved == saved


def test_the_minutes_to_the_next_checkpoint_count_from_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = {"save_steps": 100, "save_minutes": 1.5}
    now_s = 0.0
    save_if_due = Attempt._save_if_due

    async def after_a_minute(self: Attempt, step: int) -> str | None:
        nonlocal now_s
        now_s = 60.0 * step
        return await save_if_due(self, step)

    clock = SimpleNamespace(monotonic=lambda: now_s, perf_counter=time.perf_counter)
    monkeypatch.setattr("pipeline.run.attempt.time", clock)
    monkeypatch.setattr(Attempt, "_save_if_due", after_a_minute)
    run = FakeRun(tmp_path, make_config(training={"max_steps": 7}, output=output)).train()
    assert run.trainer.saved == [2, 4, 6, 7]


def test_a_measurement_that_ends_after_the_last_step_is_in_what_the_report_says_of_that_step(
    tmp_path: Path,
) -> None:
    config = make_config(training={"max_steps": 4}, evaluation={"every_steps": 2})
    run = FakeRun(tmp_path, config, heldout=TASKS)
    for task in TASKS:
        run.generator.held[f"evaluation/{task.task_id}"] = lambda: "saved 4" in run.log
    run.train()
    *_, committed, later = map(json.loads, run.folder.metrics.read_text(encoding="utf-8").splitlines())
    assert committed["step"] == later["step"] == 4 and "eval/pass_at_1" not in committed
    *_, step = RunReader(run.folder.path).steps()
    assert (step.step, step.metrics["eval/policy_version"], step.metrics["train/loss"]) == (4, 2.0, 0.5)
    assert step.metrics.keys() == (committed.keys() | later.keys()) - {"step", "time_s"}


def test_metrics_are_written_every_logging_steps(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(training={"max_steps": 4}, output={"logging_steps": 2})).train()
    assert [line["step"] for line in read_metrics(run.folder.metrics)] == [2, 4]
    assert run.rows("SELECT step FROM steps ORDER BY step") == [(1,), (2,), (3,), (4,)]


def test_a_broken_generator_ends_training_and_its_draw_is_named(tmp_path: Path) -> None:
    def fault(request: GenerationRequest) -> None:
        if request.request_id == "draw-4":
            raise ConnectionError("engine is gone")

    run = FakeRun(tmp_path, make_config(), fault=fault)
    with pytest.raises(StageError, match="draw 4: engine is gone"):
        run.train()
    assert run.rows("SELECT step FROM steps") == [(1,)]


def test_broken_rewards_end_training_with_the_pools_reason_and_a_resume_loses_nothing(tmp_path: Path) -> None:
    num_scored = 0

    def score_of(task: Task, index: int) -> RewardResult:
        nonlocal num_scored
        num_scored += 1
        if num_scored > 2 * GROUPS_PER_STEP * NUM_GENERATIONS:
            raise RewardsBrokenError("rewards: 32 of the last 64 completions could not be scored")
        return scored(float(index % 2))

    config = make_config(training={"max_steps": 4})
    run = FakeRun(tmp_path, config, score_of=score_of)
    with pytest.raises(
        StageError, match="draw 5: rewards: 32 of the last 64 completions could not be scored"
    ):
        run.train()
    assert run.rows("SELECT step FROM steps ORDER BY step") == [(1,), (2,)]
    resumed = FakeRun(tmp_path, config, done_steps=2).train()
    assert resumed.rows("SELECT step FROM steps ORDER BY step") == [(1,), (2,), (3,), (4,)]
    assert resumed.rows("SELECT COUNT(*) FROM draws WHERE status = 'trained'") == [(4 * GROUPS_PER_STEP,)]
    assert resumed.rows("SELECT draw_id FROM draws WHERE status != 'trained'") == []


def test_a_resume_issues_open_draws_first_and_trains_each_draw_once(tmp_path: Path) -> None:
    def fault(request: GenerationRequest) -> None:
        if request.request_id == "draw-9":
            raise ConnectionError("engine is gone")

    config = make_config(1, training={"max_steps": 5})
    broken = FakeRun(tmp_path, config, fault=fault)
    with pytest.raises(StageError):
        broken.train()
    ((last_step,),) = broken.rows("SELECT MAX(step) FROM steps")
    assert isinstance(last_step, int) and 0 < last_step < 5

    resumed = FakeRun(tmp_path, config, done_steps=last_step)
    draws = resumed.ledger.unfinished_draws()
    opened = [f"generate draw-{draw.draw_id}.1" for draw in draws if draw.state == "issued"]
    assert opened
    resumed.train()
    issued = [line for line in resumed.log if line.startswith("generate ")]
    assert issued[: len(opened)] == opened
    steps = "SELECT step, COUNT(*) FROM steps JOIN draws USING (step_id) GROUP BY step_id ORDER BY step"
    assert resumed.rows(steps) == [(step, GROUPS_PER_STEP) for step in range(1, 6)]
    attempts = "SELECT DISTINCT attempt FROM draws WHERE status = 'trained' AND draw_id IN "
    ids = ", ".join(line.removeprefix("generate draw-").removesuffix(".1") for line in opened)
    assert resumed.rows(f"{attempts}({ids})") == [(1,)]
    assert max(resumed.trainer.staleness) <= 1


def test_a_resume_after_the_last_step_leaves_no_draw_open(tmp_path: Path) -> None:
    """A run that was ended after step 3 of 5, and is made three steps long."""
    output = {"save_steps": 3}
    longer = make_config(1, training={"max_steps": 5}, output=output)
    FakeRun(tmp_path, longer).die_in(4)
    run = FakeRun(tmp_path, make_config(1, output=output), done_steps=3)
    assert run.ledger.unfinished_draws()
    run.train()
    assert run.rows("SELECT kind FROM events ORDER BY event_id DESC LIMIT 1") == [("finished",)]
    assert run.rows("SELECT COUNT(*) FROM draws WHERE status = 'trained'") == [(3 * GROUPS_PER_STEP,)]
    assert audit(run.folder.path).violations == ()


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_groups_are_trained_on_while_later_ones_are_written(tmp_path: Path, max_staleness: int) -> None:
    run = FakeRun(tmp_path, make_config(max_staleness))
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
    run = FakeRun(tmp_path, make_config(0, **settings))
    run.generator.held["draw-1"] = lambda: "completion draw-2 3" in run.log
    run.train()
    assert parts(run) == [1, 1, 1]
    (name,) = settings["acceleration" if "acceleration" in settings else "grpo"]
    reason = f"a step is trained on when all its groups are there: grpo.{name}"
    assert (reason in run.output.getvalue()) == (name != "stream_steps")


def test_the_weights_of_a_step_are_loaded_while_the_next_one_is_trained(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(1))
    run.generator.update_held = lambda: "train 2 0" in run.log
    run.train()
    assert run.log.index("train 2 0") < run.log.index("weights 1") < run.log.index("trained 2")


def test_a_checkpoint_stops_neither_generation_nor_the_next_steps_backward(tmp_path: Path) -> None:
    config = make_config(1, training={"max_steps": 4}, output={"save_steps": 1})
    run = FakeRun(tmp_path, config)
    # Draws 5 and 6 are of the third step: their slots come free with the first one's weights.
    run.generator.held["draw-4"] = lambda: "train 2 0" in run.log
    run.trainer.save_held = lambda: {"train 2 0", "generate draw-5", "generate draw-6"} <= set(run.log)
    run.train()
    assert run.trainer.saved == [1, 2, 3, 4]
    assert run.log.index("saved 1") < run.log.index("trained 2"), "the weights wait for their checkpoint"
    assert run.rows("SELECT step FROM steps ORDER BY step") == [(1,), (2,), (3,), (4,)]


def test_weights_that_cannot_be_loaded_end_the_run_at_once_and_with_their_own_error(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(1))

    async def fail(update: WeightUpdate) -> WeightsLoaded:
        raise GeneratorError("generator 0: no answer within 120 s")

    run.generator.update_weights = fail  # type: ignore[method-assign]
    # The next step's groups never come; who waits for them must hear of it.
    run.generator.held["draw-3"] = lambda: False
    with pytest.raises(GeneratorError, match="generator 0: no answer"):
        run.train()
    assert run.rows("SELECT step FROM steps") == []


def test_a_part_that_fails_ends_the_run_and_its_step_is_not_committed(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(0))
    run.generator.held["draw-3"] = lambda: "train 2 0" in run.log

    accumulate = run.trainer.accumulate

    async def add(batch: TrainBatch) -> None:
        if batch.step == 2:
            run.log.append("train 2 0")
            raise MemoryError("one sequence of 16 tokens does not fit into memory")
        await accumulate(batch)

    run.trainer.accumulate = add  # type: ignore[method-assign]
    with pytest.raises(MemoryError, match="one sequence"):
        run.train()
    assert run.rows("SELECT step FROM steps") == [(1,)]
    trained = run.rows("SELECT draw_id FROM draws WHERE status = 'trained' ORDER BY draw_id")
    assert trained == [(1,), (2,)]
