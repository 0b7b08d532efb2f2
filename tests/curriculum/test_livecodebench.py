from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path

import pytest

from configs.schema import DatasetConfig
from curriculum.packed_tests import unpack_tests
from curriculum.record import Record
from curriculum.sources import load_tasks
from pipeline.models.prompts import prompt_messages
from rewards.digest import task_digest
from rewards.fast import score_fast
from rewards.lint import Linter
from sandbox.pool import SandboxPool
from tests.curriculum.answers import passes, task_of


def _test(given: str, wanted: str, kind: str = "stdin") -> dict[str, str]:
    return {"input": given, "output": wanted, "testtype": kind}


_SUM = {
    "question_title": "Sum",
    "question_content": "Read n numbers and print their sum.",
    "platform": "atcoder",
    "question_id": "abc1_a",
    "contest_id": "abc1",
    "contest_date": "2023-08-21T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([_test("2\n1 2\n", "3\n")]),
    "private_test_cases": json.dumps([_test("1\n5\n", "5.0\n"), _test("0\n\n", "0\n")]),
    "metadata": "{}",
}
_TWO_SUM = {
    **_SUM,
    "question_id": "1",
    "question_content": "Give the indices of two numbers that add up to target.",
    "starter_code": "class Solution:\n    def twoSum(self, nums: List[int], target: int):\n        ",
    "difficulty": "hard",
    "public_test_cases": json.dumps([_test("[2, 7]\n9", "[0, 1]", "functional")]),
    "private_test_cases": json.dumps([_test("[3, 2, 4]\n6", "[1, 2]", "functional")]),
    "metadata": json.dumps({"func_name": "twoSum"}),
}


def _pack(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_a_program_is_run_once_a_test_with_its_standard_input(sandbox: SandboxPool, tmp_path: Path) -> None:
    task = task_of(tmp_path, _SUM)
    assert (task.task_id, task.source, task.difficulty) == ("LiveCodeBench/abc1_a", "livecodebench", 2)
    assert len(task.stdio_tests) == 3
    assert "reads standard input" in prompt_messages(task)[0]["content"]
    assert passes(sandbox, task, "input()\nprint(sum(map(int, input().split())))\n")
    # A library may be used without being imported, as LiveCodeBench's harness allows.
    assert passes(sandbox, task, "n = input()\nprint(reduce(add, map(int, sys.stdin.read().split()), 0))\n")
    assert passes(sandbox, task, "input()\nprint('  %.3f\\n' % math.fsum(map(int, input().split())))\n")
    assert not passes(sandbox, task, "print(3)\n")
    assert not passes(sandbox, task, "input()\nprint('sNaN')\n")


def test_a_whole_program_is_an_answer_to_the_fast_rewards_and_its_tests_are_in_the_cache_key(
    tmp_path: Path,
) -> None:
    task = task_of(tmp_path, _SUM)
    with Linter() as linter:
        assert score_fast("print(sum(map(int, input().split())))\n", task.entry_point, linter).is_answer
        method = task_of(tmp_path, _TWO_SUM).entry_point
        assert score_fast("class Solution:\n    pass\n", method, linter).is_answer
        assert not score_fast("def twoSum():\n    pass\n", method, linter).is_answer
    other = task_of(tmp_path, {**_SUM, "public_test_cases": json.dumps([_test("2\n1 2\n", "4\n")])})
    assert task_digest(task) != task_digest(other)
    assert task_digest(task) == task_digest(task_of(tmp_path, _SUM))


def test_a_method_is_called_with_arguments_a_line_each(sandbox: SandboxPool, tmp_path: Path) -> None:
    task = task_of(tmp_path, _TWO_SUM)
    assert (task.entry_point, task.difficulty) == ("Solution.twoSum", 5)
    asked = prompt_messages(task)[0]["content"]
    assert "def twoSum(self" in asked and "the whole class" in asked
    program = (
        "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n"
        "        pairs = itertools.combinations(range(len(nums)), 2)\n"
        "        return {}\n"
    )
    found = "next({} for i, j in pairs if nums[i] + nums[j] == target)"
    assert passes(sandbox, task, program.format(found.format("[i, j]")))
    assert passes(sandbox, task, program.format(found.format("(i, j)")))
    assert not passes(sandbox, task, program.format(found.format("[j, i]")))
    assert not passes(sandbox, task, "def twoSum(nums, target):\n    return [0, 1]\n")


def test_hidden_tests_that_are_packed_are_unpacked(tmp_path: Path) -> None:
    hidden = [_test(f"1\n{number}\n", f"{number}\n") for number in range(500)]
    packed = {**_SUM, "private_test_cases": _pack(json.dumps(hidden))}
    task = task_of(tmp_path, packed)
    assert [test.stdin for test in task.stdio_tests] == ["2\n1 2\n", *(test["input"] for test in hidden)]


class _Runs:
    """A pickle of it runs a command when it is read."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self._file}",)


def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ran"
    packed = {**_SUM, "private_test_cases": _pack(_Runs(file))}
    with pytest.raises(ValueError, match=r"record.jsonl:1: field 'private_test_cases'.*which is no text"):
        task_of(tmp_path, packed)
    assert not file.exists()
    # The data was dangerous indeed.
    pickle.loads(zlib.decompress(base64.b64decode(packed["private_test_cases"])))
    assert file.exists()


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (_pack(["a list"]), "which is no text"),
        (_pack(17), "which is no text"),
        (_pack("no JSON"), "must be JSON"),
        (base64.b64encode(zlib.compress(b"no pickle")).decode(), "must be JSON"),
        (base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-4]).decode(), "ends too early"),
        (base64.b64encode(b"not packed").decode(), "must be JSON"),
        ("%%%", "must be JSON"),
    ],
)
def test_what_is_not_one_packed_text_is_refused(packed: str, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"here:3: field 'x': value .*{reason}"):
        unpack_tests(Record(where="here:3", fields={"x": packed}), "x")


def test_a_pack_that_grows_beyond_all_bounds_is_refused() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(129 * 1024**2), 9)).decode()
    with pytest.raises(ValueError, match="more than 128 MiB unpacked"):
        unpack_tests(Record(where="here:3", fields={"x": bomb}), "x")


@pytest.mark.parametrize(
    ("base", "field", "value", "reason"),
    [
        (_SUM, "question_id", "", "must be a string that is not empty"),
        (_SUM, "difficulty", "extreme", "must be one of easy, medium, hard"),
        (_SUM, "public_test_cases", "{}", "must be a list of tests"),
        (_SUM, "public_test_cases", "[1]", "item 0 must be an object"),
        (_SUM, "public_test_cases", json.dumps([_test("", "", "file")]), "item 0: testtype must be"),
        (_SUM, "public_test_cases", '[{"testtype": "stdin", "input": 3, "output": ""}]', "must be strings"),
        (_TWO_SUM, "private_test_cases", _SUM["private_test_cases"], "must all be of one testtype"),
        (_TWO_SUM, "metadata", "{}", "must hold func_name"),
        (_TWO_SUM, "metadata", "no JSON", "must hold func_name"),
        (
            _TWO_SUM,
            "private_test_cases",
            json.dumps([_test("[1", "2", "functional")]),
            "item 0: .* of functional tests must be JSON",
        ),
        (
            _TWO_SUM,
            "public_test_cases",
            json.dumps([_test("1", "2", "functional"), _test("[1", "2", "functional")]),
            "item 1: .* of functional tests must be JSON",
        ),
    ],
)
def test_a_malformed_record_is_named_with_its_line_and_field(
    tmp_path: Path, base: dict[str, str], field: str, value: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=rf"record.jsonl:1: field '{field}': value .*{reason}"):
        task_of(tmp_path, {**base, field: value})


def test_a_record_without_any_test_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there must be at least one test"):
        task_of(tmp_path, {**_SUM, "public_test_cases": "[]", "private_test_cases": "[]"})


def test_training_on_it_is_refused_unless_it_is_allowed_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(_SUM), encoding="utf-8")
    with pytest.raises(ValueError, match="livecodebench is an evaluation set"):
        load_tasks(DatasetConfig(name=str(file)))
    assert load_tasks(DatasetConfig(name=str(file), allow_evaluation_sets=["livecodebench"]))
