from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from configs.schema import DatasetConfig
from curriculum.jsonl import load_jsonl
from curriculum.sources import load_named_tasks, load_tasks
from curriculum.task import Task
from curriculum.word_problems.index import word_problems
from sandbox.pool import SandboxPool
from tests.curriculum.answers import passes


def _gsm8k(tmp_path: Path, answer: str) -> Task:
    file = tmp_path / "gsm8k.jsonl"
    line = {"question": "Natalia sold 48 clips in April and half as many in May. How many?", "answer": answer}
    file.write_text("\n" + json.dumps(line) + "\n", encoding="utf-8")
    (task,) = load_jsonl(file)
    return task


def test_every_built_in_problem_is_solved_by_its_program() -> None:
    for task in word_problems("all"):
        names: dict[str, Any] = {}
        exec(f"{task.reference}\n{task.check_source}\ncheck(solution)", names)
        wrong = names["solution"]() + 1
        with pytest.raises(AssertionError):
            names["check"](lambda wrong=wrong: wrong)


def test_in_the_sandbox_the_programs_pass_and_no_other_number_does(sandbox: SandboxPool) -> None:
    for task in word_problems("all")[::24]:
        assert passes(sandbox, task, task.reference), task.task_id
        wrong = re.sub(r"return (.*)", r"return 1 + (\1)", task.reference)
        assert not passes(sandbox, task, wrong), task.task_id


def test_the_problems_are_many_and_always_the_same() -> None:
    tasks = word_problems("all")
    assert len(tasks) == len({task.prompt for task in tasks}) == len({task.task_id for task in tasks}) == 360
    assert tasks == word_problems("all")
    assert {task.difficulty for task in tasks} == {1, 2, 3, 4}
    assert word_problems("train")[0].prompt.startswith(
        "A shop sells lamps for $4 each and notebooks for $13 each. Mateo buys 5 lamps and 6 notebooks."
    )


def test_a_third_of_the_kinds_is_held_out() -> None:
    train, heldout = word_problems("train"), word_problems("heldout")
    kinds = [Counter(task.family for task in tasks) for tasks in (train, heldout)]
    assert kinds[0].keys().isdisjoint(kinds[1])
    assert [len(found) for found in kinds] == [20, 10]
    assert set(kinds[0].values()) == set(kinds[1].values()) == {12}


def test_they_are_found_by_name_and_the_held_out_ones_are_not_trained_on() -> None:
    assert load_named_tasks("word-problems-heldout") == word_problems("heldout")
    assert load_named_tasks("word-problems") == load_tasks(DatasetConfig(name="word-problems"))
    for settings in ({"name": "word-problems-heldout"}, {"name": "word-problems", "split": "all"}):
        with pytest.raises(ValueError, match="word-problems-heldout is an evaluation set"):
            DatasetConfig.model_validate(settings)
        allowed = DatasetConfig.model_validate(
            {**settings, "allow_evaluation_sets": ["word-problems-heldout"]}
        )
        assert set(word_problems("heldout")) <= set(load_tasks(allowed))
    with pytest.raises(ValueError, match="is unknown"):
        word_problems("test")


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("48/2 = <<48/2=24>>24\n48+24 = <<48+24=72>>72\n#### 72", "72", "71"),
        ("#### 1,080", "1080.0", "1"),
        ("#### $1,234.50 ", "1234.5", "1234"),
        ("#### -5", "-5", "5"),
        ("#### 007", "7", "0"),
        ("#### 1", "1", "True"),
        ("#### 2", "2", "'2'"),
    ],
)
def test_a_line_of_gsm8k_is_answered_by_a_function_that_returns_the_number(
    sandbox: SandboxPool, tmp_path: Path, answer: str, right: str, wrong: str
) -> None:
    task = _gsm8k(tmp_path, answer)
    assert (task.task_id, task.source) == ("gsm8k/2", "gsm8k")
    assert "Write a Python function solution()" in task.prompt
    assert passes(sandbox, task, f"def solution():\n    return {right}\n")
    assert not passes(sandbox, task, f"def solution():\n    return {wrong}\n")


@pytest.mark.parametrize("answer", ["72", "#### many", "#### ", "#### 1e5", ""])
def test_an_answer_without_a_number_is_named_with_its_line(tmp_path: Path, answer: str) -> None:
    with pytest.raises(ValueError, match=r"gsm8k.jsonl:2: field 'answer'"):
        _gsm8k(tmp_path, answer)
