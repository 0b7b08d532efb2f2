from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path

import pytest

from configs.schema import CurriculumConfig
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.messages import GenerationRequest
from pipeline.rollouts.producer import MAX_FAILED_GROUPS
from rewards.result import RewardResult
from tests.pipeline.fake_stages import GROUPS_PER_STEP, TASKS, FakeRun, make_config, scored


def infra_at(*indices: int) -> dict[int, RewardResult]:
    return {index: scored(math.nan, detail=f"worker died at {index}") for index in indices}


def test_a_group_holds_a_score_for_each_completion_in_its_place(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config())
    taken = run.take()
    assert len(taken) == GROUPS_PER_STEP
    for group in taken:
        assert [rollout.completion.index for rollout in group.rollouts] == [0, 1, 2, 3]
        assert [rollout.result.reward for rollout in group.rollouts] == [0.0, 1.0, 0.0, 1.0]


def test_the_scorer_sees_prefill_and_completion(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config())
    run.take()
    assert set(run.scorer.texts) == {f"prefill answer {index}" for index in range(4)}


@pytest.mark.parametrize("score_each", [True, False])
def test_a_completion_is_scored_before_its_group_is_finished_only_with_score_each(
    tmp_path: Path, score_each: bool
) -> None:
    acceleration = {"max_staleness": 0, "async_rewards": {"enabled": score_each}}
    run = FakeRun(tmp_path, make_config(acceleration=acceleration))
    first = run.take()[0]
    last_completion = run.log.index(f"completion draw-{first.draw_id} 3")
    first_score = run.log.index(f"score {first.task.task_id} 0")
    assert (first_score < last_completion) == score_each


def test_an_infrastructure_error_leaves_the_statistics_of_its_group(tmp_path: Path) -> None:
    errors = infra_at(1)
    run = FakeRun(tmp_path, make_config(), score_of=lambda task, i: errors.get(i) or scored(float(i % 2)))
    group = run.take()[0]
    outcomes = run.sampler.state_dict()["outcomes"]
    assert isinstance(outcomes, list)
    assert [0, group.task.task_id, 1, 3, True] in outcomes, "one passed, two failed, one is not known"
    assert math.isnan(group.rollouts[1].result.reward)
    query = f"SELECT reward FROM rollouts WHERE draw_id = {group.draw_id} ORDER BY rollout_id"
    assert run.rows(query) == [(0.0,), (None,), (0.0,), (1.0,)]


def test_a_group_with_one_score_is_failed_and_its_slot_is_given_to_another(tmp_path: Path) -> None:
    first_task = Sampler(TASKS, CurriculumConfig(), 0).draw(0).task_id
    errors = infra_at(1, 2, 3)

    def score_of(task: Task, index: int) -> RewardResult:
        is_lost = task.task_id == first_task and index in errors
        return errors[index] if is_lost else scored(float(index % 2))

    run = FakeRun(tmp_path, make_config(), score_of=score_of)
    assert [group.draw_id for group in run.take()] == [2, 3]
    assert run.rows("SELECT status, reason FROM draws WHERE draw_id = 1") == [
        ("failed", "scoring failed: worker died at 1")
    ]
    outcomes = run.sampler.state_dict()["outcomes"]
    assert isinstance(outcomes, list) and first_task not in {task_id for _, task_id, *_ in outcomes}


def test_many_groups_in_a_row_without_scores_end_the_run(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(), score_of=lambda task, i: scored(math.nan, detail="no sandbox"))
    message = f"{MAX_FAILED_GROUPS} groups in a row could not be scored; the last reason: no sandbox"
    with pytest.raises(StageError, match=message):
        run.take()
    assert run.rows("SELECT COUNT(*) FROM draws WHERE status = 'failed'") == [(MAX_FAILED_GROUPS,)]


def test_a_scored_group_between_them_starts_the_count_again(tmp_path: Path) -> None:
    num_groups = 0

    def score_of(task: Task, index: int) -> RewardResult:
        nonlocal num_groups
        num_groups += index == 0
        is_good = num_groups % MAX_FAILED_GROUPS == 0
        return scored(float(index % 2) if is_good else math.nan, detail="no sandbox")

    # One slot: groups come one after another.
    config = make_config(training={"gradient_accumulation_steps": 1})
    run = FakeRun(tmp_path, config, score_of=score_of)

    async def body() -> None:
        producing = asyncio.create_task(run.producer.run())
        for version in range(2):
            assert len(await run.buffer.take(1, 20)) == 1
            run.generator.policy_version = version + 1
            run.buffer.trained(version + 1)
            run.buffer.weights_loaded(version + 1)
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)

    asyncio.run(asyncio.wait_for(body(), 30))
    run.close()
    num_failed = run.rows("SELECT COUNT(*) FROM draws WHERE status = 'failed'")
    assert num_failed == [(2 * (MAX_FAILED_GROUPS - 1),)], (
        "more in all than end a run, never as many in a row"
    )


@pytest.mark.parametrize(
    ("error", "said"), [(ValueError("no such engine"), "no such engine"), (TimeoutError(), "TimeoutError")]
)
def test_a_generator_that_raises_ends_the_run_and_its_draw_is_named(
    tmp_path: Path, error: Exception, said: str
) -> None:
    def fault(request: GenerationRequest) -> None:
        raise error

    with pytest.raises(StageError, match=rf"draw [12]: {said}"):
        FakeRun(tmp_path, make_config(), fault=fault).take()


def test_who_waits_for_a_slot_gives_groups_as_long_as_their_own_deadlines_do(tmp_path: Path) -> None:
    """Generation takes longer here than a step, its weights and the start of an engine may together."""
    short = {f"{name}_timeout_s": 0.1 for name in ("train_step", "weight_update", "startup")}
    run = FakeRun(tmp_path, make_config(runtime=short))
    until_s = time.monotonic() + 1.0
    run.generator.held["draw-1"] = lambda: time.monotonic() > until_s
    run.train()
    assert run.rows("SELECT COUNT(*) FROM steps") == [(3,)]


def test_a_generator_that_stops_early_ends_the_run(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config())
    run.generator.num_missing = 4
    with pytest.raises(StageError, match=r"draw [12]: the generator gave 0 of 4 completions of t\d"):
        run.take()


def test_a_fault_in_issuing_draws_reaches_the_trainer_at_once(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config())

    async def body() -> None:
        producing = asyncio.create_task(run.producer.run())
        with pytest.raises(StageError, match="closed database"):
            await run.buffer.take(GROUPS_PER_STEP, 20)
        await asyncio.gather(producing, return_exceptions=True)

    run.close()
    asyncio.run(asyncio.wait_for(body(), 10))


def test_draws_that_were_open_are_issued_first_under_their_number(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(), open_tasks=("t4", "t2"))
    taken = run.take()
    assert [(group.draw_id, group.task.task_id) for group in taken] == [(1, "t4"), (2, "t2")]
    assert run.sampler.state_dict()["num_draws"] == 0, "the sampler drew them before"


def test_new_draws_follow_the_open_ones(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(), open_tasks=("t4",))
    taken = run.take()
    assert [group.draw_id for group in taken] == [1, 2]
    assert run.sampler.state_dict()["num_draws"] == 1


def test_an_open_draw_whose_task_is_gone_is_dropped_with_the_reason(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(), tasks=TASKS[:3], open_tasks=("t4", "t2"))
    assert [group.draw_id for group in run.take()] == [2, 3]
    assert run.rows("SELECT status, reason FROM draws WHERE draw_id = 1") == [
        ("dropped", "its task is no longer in the data set")
    ]
