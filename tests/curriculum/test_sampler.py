from __future__ import annotations

import json
from collections import Counter

import pytest

from configs.curriculum_schema import CurriculumConfig, CurriculumStageConfig, SkipAheadConfig
from curriculum.difficulty import cold_start_order, complexity
from curriculum.pass_rates import PassRates
from curriculum.sampler import Sampler
from curriculum.task import Task
from sandbox.result import CallTest

_UNIFORM = CurriculumConfig(enabled=False)
_LENGTH = CurriculumConfig(enabled=True, strategy="length", warmup_steps=10)
_PASS_RATE = CurriculumConfig(enabled=True, strategy="success_rate")
_SKIPS = SkipAheadConfig(enabled=True, base=0.4, floor=0.1)
_SKIPPING_EPOCHS = CurriculumConfig(enabled=True, strategy="length", skip_ahead=_SKIPS)
_STAGED = CurriculumConfig(
    enabled=True,
    strategy="success_rate",
    skip_ahead=_SKIPS,
    stages=[
        CurriculumStageConfig(until_step=4, max_difficulty=1),
        CurriculumStageConfig(until_step=9, max_difficulty=3),
        CurriculumStageConfig(min_difficulty=2),
    ],
)
_ALL = [_UNIFORM, _LENGTH, _PASS_RATE, _SKIPPING_EPOCHS, _STAGED]


def _task(index: int, *, level: int = 1, reference: str = "") -> Task:
    return Task(
        task_id=f"t{index:02}",
        prompt="x" * (index + 1),
        entry_point="f",
        call_tests=(CallTest(args=(), expected=0),),
        reference=reference,
        difficulty=level,
    )


_TASKS = tuple(_task(index, level=1 + index // 8) for index in range(40))


def _play(sampler: Sampler, steps: range, draws_per_step: int = 4) -> list[str]:
    """Draw and record; a task's passes depend on its id only."""
    drawn = []
    for step in steps:
        for _ in range(draws_per_step):
            task = sampler.draw(step)
            drawn.append(task.task_id)
            sampler.record(task.task_id, int(task.task_id[1:]) % 9, 8)
    return drawn


@pytest.mark.parametrize("curriculum", _ALL)
def test_one_seed_gives_one_sequence_and_another_seed_another(curriculum: CurriculumConfig) -> None:
    first, again, other = (_play(Sampler(_TASKS, curriculum, seed), range(20)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize("curriculum", _ALL)
@pytest.mark.parametrize("stop", [1, 7, 13])
def test_a_resumed_sampler_goes_on_as_if_it_had_never_stopped(
    curriculum: CurriculumConfig, stop: int
) -> None:
    whole = _play(Sampler(_TASKS, curriculum, 0), range(20))
    before = Sampler(_TASKS, curriculum, 0)
    head = _play(before, range(stop))
    after = Sampler(_TASKS, curriculum, 0)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert head + _play(after, range(stop, 20)) == whole


@pytest.mark.parametrize("curriculum", _ALL)
def test_a_sampler_that_is_told_of_its_draws_is_as_the_one_that_made_them(
    curriculum: CurriculumConfig,
) -> None:
    """From any earlier state, over the end of epochs and with draws put back."""
    first = Sampler(_TASKS[::4], curriculum, 0)
    _play(first, range(3))
    second = Sampler(_TASKS[::4], curriculum, 0)
    second.load_state_dict(first.state_dict())
    for step in range(3, 12):
        drawn = []
        for _ in range(4):
            drawn.append(first.draw(step).task_id)
            second.repeat(drawn[-1], step, first.last_skipped)
        for sampler in (first, second):
            sampler.release(drawn[0])
            sampler.record(drawn[1], 1, 2)
            sampler.record(drawn[2], 2, 2)
            sampler.record(drawn[3], 0, 2)
        assert second.state_dict() == first.state_dict()
    assert second.draw(12) == first.draw(12)


def test_a_sampler_stopped_within_a_step_does_not_draw_that_steps_tasks_again() -> None:
    before = Sampler(_TASKS[:6], _PASS_RATE, 0)
    head = [before.draw(5).task_id for _ in range(3)]
    after = Sampler(_TASKS[:6], _PASS_RATE, 0)
    after.load_state_dict(before.state_dict())
    tail = [after.draw(5).task_id for _ in range(3)]
    assert sorted(head + tail) == [task.task_id for task in _TASKS[:6]]


def test_state_of_other_tasks_seeds_or_settings_is_refused() -> None:
    state = Sampler(_TASKS, _UNIFORM, 0).state_dict()
    for other in (
        Sampler(_TASKS[1:], _UNIFORM, 0),
        Sampler(_TASKS, _UNIFORM, 1),
        Sampler(_TASKS, _LENGTH, 0),
    ):
        with pytest.raises(ValueError, match="other tasks"):
            other.load_state_dict(state)


def test_uniform_epochs_draw_each_task_once_in_a_new_order() -> None:
    drawn = _play(Sampler(_TASKS, _UNIFORM, 0), range(20))
    first, second = drawn[:40], drawn[40:]
    assert sorted(first) == sorted(second) == [task.task_id for task in _TASKS]
    assert first != second


@pytest.mark.parametrize("curriculum", [_UNIFORM, _LENGTH, _PASS_RATE])
def test_no_task_comes_twice_in_a_step_until_all_have_come(curriculum: CurriculumConfig) -> None:
    sampler = Sampler(_TASKS[:10], curriculum, 0)
    for step in range(20, 40):
        drawn = [sampler.draw(step).task_id for _ in range(7)]
        assert len(set(drawn)) == 7
    assert len({sampler.draw(99).task_id for _ in range(10)}) == 10
    assert sampler.draw(99).task_id in {task.task_id for task in _TASKS[:10]}


def test_a_draw_that_is_meant_for_an_earlier_step_repeats_no_task_of_the_last_one() -> None:
    sampler = Sampler(_TASKS[:10], _PASS_RATE, 0)
    steps = [2, 2, 3, 3, 2, 3, 2, 3, 2, 3]
    first, *rest = ([sampler.draw(step).task_id for step in part] for part in (steps[:2], steps[2:]))
    assert len(set(first)) == 2 and len(set(rest[0])) == 8


@pytest.mark.parametrize("strategy", ["length", "complexity", "success_rate"])
def test_the_pool_opens_from_the_easiest_quarter_to_all(strategy: str) -> None:
    curriculum = CurriculumConfig.model_validate({"enabled": True, "strategy": strategy, "warmup_steps": 10})
    sampler = Sampler(_TASKS, curriculum, 0)
    easiest = {task.task_id for task in _TASKS[:10]}
    assert {sampler.draw(0).task_id for _ in range(10)} == easiest
    half_open = {task.task_id for task in _TASKS[:25]}
    assert {sampler.draw(5).task_id for _ in range(25)} == half_open
    late = {sampler.draw(step).task_id for step in range(10, 410)}
    assert late == {task.task_id for task in _TASKS}


def test_tasks_of_middling_pass_rate_are_drawn_more_than_solved_or_hopeless_ones() -> None:
    rates = PassRates(_TASKS[:3])
    for task_id, num_passed in (("t00", 32), ("t01", 16), ("t02", 0)):
        rates.record(task_id, num_passed, 32, step=0)
    weights = rates.variances(0)
    assert weights["t01"] > 5 * weights["t00"]
    assert weights["t01"] > 5 * weights["t02"]


def test_draw_frequencies_follow_the_weights_and_leave_no_task_out() -> None:
    sampler = Sampler(_TASKS[:3], _PASS_RATE, 0)
    times: Counter[str] = Counter()
    for step in range(1500):
        sampler.record("t00", 8, 8)
        sampler.record("t01", 4, 8)
        sampler.record("t02", 0, 8)
        times[sampler.draw(step).task_id] += 1
    assert times["t01"] > 1200
    # Chance alone, without the share that is drawn uniformly, gives each of them about 26 of these draws.
    assert times["t00"] > 45
    assert times["t02"] > 45


def test_unseen_tasks_borrow_the_pass_rate_of_their_level() -> None:
    tasks = [_task(0, level=1), _task(1, level=1), _task(2, level=5), _task(3, level=5)]
    rates = PassRates(tasks)
    rates.record("t00", 20, 40, step=0)
    rates.record("t02", 0, 40, step=0)
    weights = rates.variances(0)
    assert weights["t01"] > 3 * weights["t03"]


def test_old_counts_fade_so_that_weights_follow_the_policy() -> None:
    rates = PassRates(_TASKS[:2])
    rates.record("t00", 0, 16, step=0)
    hopeless = rates.variances(0)["t00"]
    assert rates.variances(100)["t00"] > 2 * hopeless
    rates.record("t00", 4, 8, step=100)
    assert rates.variances(100)["t00"] > 0.15


def test_record_refuses_a_task_that_is_not_there_and_ignores_empty_groups() -> None:
    sampler = Sampler(_TASKS[:2], _PASS_RATE, 0)
    with pytest.raises(ValueError, match="'nope'"):
        sampler.record("nope", 1, 8)
    before = sampler.state_dict()
    sampler.record("t00", 0, 0)
    assert sampler.state_dict() == before


def test_a_sampler_needs_tasks_with_ids_of_their_own() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Sampler([], _UNIFORM, 0)
    with pytest.raises(ValueError, match="unique"):
        Sampler([_TASKS[0], _TASKS[0]], _UNIFORM, 0)


def test_complexity_counts_branches_and_not_docstrings() -> None:
    plain = complexity("def f(x):\n    return x\n")
    told = complexity('def f(x):\n    """Long words about x."""\n    return x\n')
    branching = complexity("def f(x):\n    if x:\n        return x\n    return 0\n")
    assert plain is not None and branching is not None
    assert told == plain
    assert branching > plain + 10
    assert complexity("def f(:") is None
    assert complexity("  ") is None


def test_cold_start_orders_are_by_length_by_complexity_and_by_level() -> None:
    hard = _task(0, level=2, reference="def f(x):\n    while x:\n        x -= 1\n    return x\n")
    easy = _task(1, level=3, reference="def f(x):\n    return x\n")
    unknown = _task(2, level=1)
    tasks = (easy, unknown, hard)
    assert cold_start_order(tasks, "length") == (hard, easy, unknown)
    assert cold_start_order(tasks, "complexity") == (easy, hard, unknown)
    assert cold_start_order(tasks, "success_rate") == (unknown, hard, easy)


@pytest.mark.parametrize("curriculum", _ALL)
def test_the_order_in_which_groups_of_a_step_are_done_changes_no_draw(curriculum: CurriculumConfig) -> None:
    """Nor does a draw of the step itself depend on which of its groups were done before it."""
    samplers = [Sampler(_TASKS[::4], curriculum, 0) for _ in range(2)]
    for step in range(12):
        first = [sampler.draw(step).task_id for sampler in samplers]
        samplers[0].record(first[0], 8, 8, step=step)
        second = [sampler.draw(step).task_id for sampler in samplers]
        assert len(set(first)) == len(set(second)) == 1
        known = [sampler.state_dict() for sampler in samplers]
        assert all(known[0][name] == known[1][name] for name in ("counts", "flat_in_row"))
        samplers[0].record(second[0], 3, 8, step=step)
        samplers[1].record(second[0], 3, 8, step=step)
        samplers[1].record(first[0], 8, 8, step=step)
        # Two groups of one task, one of them without signal.
        for sampler, passed in zip(samplers, ((8, 3), (3, 8)), strict=True):
            for num_passed in passed:
                sampler.record(_TASKS[0].task_id, num_passed, 8, step=step)
    ends = [sampler.draw(12).task_id for sampler in samplers]
    assert ends[0] == ends[1]
    assert samplers[0].state_dict() == samplers[1].state_dict()


def test_a_group_that_is_told_late_counts_as_of_its_own_step() -> None:
    """As after a resume, which generates again what lost weights had written."""
    in_time, late = (Sampler(_TASKS[:3], _PASS_RATE, 0) for _ in range(2))
    for sampler in (in_time, late):
        sampler.draw(0)
    in_time.record("t00", 2, 8, step=0)
    for sampler in (in_time, late):
        sampler.draw(30)
        sampler.record("t00", 6, 8, step=30)
        sampler.draw(31)
    late.record("t00", 2, 8, step=0)
    for sampler in (in_time, late):
        sampler.draw(40)
    assert late.state_dict()["counts"] == in_time.state_dict()["counts"]


def test_draws_and_scored_groups_are_counted_by_level() -> None:
    sampler = Sampler(_TASKS, _STAGED, 0)
    drawn = _play(sampler, range(6))
    sampler.draw(6)
    counts = sampler.counts_by_level()
    levels = Counter(task.difficulty for task_id in drawn for task in _TASKS if task.task_id == task_id)
    assert set(counts) == {
        f"curriculum/{kind}_level_{level}" for kind in ("offered", "visited") for level in range(1, 6)
    }
    assert [counts[f"curriculum/visited_level_{level}"] for level in range(1, 6)] == [
        levels[level] for level in range(1, 6)
    ]
    assert sum(counts.values()) == 2 * len(drawn) + 1
    again = Sampler(_TASKS, _STAGED, 0)
    again.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
    assert again.counts_by_level() == counts
