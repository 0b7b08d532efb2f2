from __future__ import annotations

from collections import Counter

import pytest

from configs.curriculum_schema import CurriculumConfig, SkipAheadConfig
from curriculum.sampler import Sampler
from curriculum.skip_ahead import SkipAhead
from curriculum.task import Task

TASKS = tuple(
    Task(task_id=f"t{index}", prompt="x" * (index + 1), entry_point="f", check_source="def check(f): pass")
    for index in range(8)
)
SETTINGS = SkipAheadConfig(enabled=True, base=0.5, floor=0.1)


def shares(strategy: str, *, is_on: bool, num_steps: int = 1200) -> dict[str, float]:
    """How often each task is drawn, one a step, where t0 never has signal and all others always do."""
    curriculum = CurriculumConfig.model_validate(
        {"enabled": True, "strategy": strategy, "skip_ahead": SETTINGS.model_dump() | {"enabled": is_on}}
    )
    sampler = Sampler(TASKS, curriculum, 0)
    times: Counter[str] = Counter()
    for step in range(num_steps):
        task_id = sampler.draw(step).task_id
        times[task_id] += 1
        # Half of each group passes, so that pass rates alone tell no task from another.
        sampler.record(task_id, 4, 8, has_signal=task_id != "t0", step=step)
    return {task_id: number / num_steps for task_id, number in times.items()}


def test_the_chance_falls_geometrically_to_the_floor_and_one_signal_restores_it() -> None:
    skips = SkipAhead(SETTINGS)
    chances = [skips.chance("t")]
    for _ in range(5):
        skips.record("t", has_signal=False)
        chances.append(skips.chance("t"))
    assert chances == [1.0, 0.5, 0.25, 0.125, 0.1, 0.1]
    assert skips.chance("other") == 1.0
    skips.record("t", has_signal=True)
    assert skips.chance("t") == 1.0
    assert skips.state_dict() == {}


@pytest.mark.parametrize("strategy", ["length", "success_rate"])
def test_a_task_without_signal_becomes_rare_and_comes_back_at_the_floor(strategy: str) -> None:
    plain, skipping = shares(strategy, is_on=False), shares(strategy, is_on=True)
    assert plain["t0"] == pytest.approx(1 / 8, abs=0.04)
    # One in ten of the times that it comes up.
    assert 0.2 / 80 < skipping["t0"] < 3 / 80
    others = [skipping[task.task_id] for task in TASKS[1:]]
    assert max(others) < 1.5 * min(others), "what it leaves goes to all others alike"


def test_the_draw_after_a_signal_is_as_if_there_had_been_none_without() -> None:
    curriculum = CurriculumConfig(enabled=True, strategy="length", skip_ahead=SETTINGS)
    sampler = Sampler(TASKS, curriculum, 0)
    for step in range(8):
        sampler.record(sampler.draw(step).task_id, 0, 8, step=step)
    for step in range(8, 200):
        sampler.record(sampler.draw(step).task_id, 4, 8, step=step)
    times: Counter[str] = Counter()
    for step in range(200, 280):
        times[sampler.draw(step).task_id] += 1
        assert sampler.last_skipped == ()
    assert set(times.values()) <= {9, 10, 11}, "ten epochs of eight tasks, begun in the middle of one"


def test_where_every_task_is_without_signal_one_is_drawn_all_the_same() -> None:
    settings = SkipAheadConfig(enabled=True, base=1e-9, floor=1e-9)
    sampler = Sampler(TASKS, CurriculumConfig(enabled=True, strategy="length", skip_ahead=settings), 0)
    for step in range(40):
        sampler.record(sampler.draw(step).task_id, 8, 8, step=step)
    sampler.draw(40)
    assert len(sampler.last_skipped) == len(TASKS), "at most an epoch's worth is passed over"
