from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from configs.schema import ExecutionConfig
from curriculum.evalplus_inputs import restore_types
from curriculum.humaneval import load_humaneval
from curriculum.jsonl import load_jsonl
from curriculum.judging import execution_request, has_passed
from curriculum.task import Task
from sandbox.pool import SandboxPool
from tests.curriculum.answers import task_of

_ADD = {
    "task_id": "HumanEval/53",
    "prompt": 'def add(x: int, y: int):\n    """Add two numbers x and y"""\n',
    "entry_point": "add",
    "canonical_solution": "    return x + y\n",
    "contract": "\n    assert isinstance(x, int)\n",
    "base_input": [[0, 1], [2, 3]],
    "plus_input": [[-5, 5], [10**30, 1]],
    "atol": 0,
}


def _mbpp(number: int, entry_point: str, solution: str, **fields: object) -> dict[str, object]:
    return {
        "task_id": f"Mbpp/{number}",
        "prompt": f'"""\nWrite a function.\nassert {entry_point}(1) == 1\n"""\n',
        "entry_point": entry_point,
        "canonical_solution": solution,
        "contract": "",
        "atol": 0,
        "plus_input": [],
        **fields,
    }


def _verdict(sandbox: SandboxPool, task: Task, program: str) -> tuple[bool, str]:
    result = sandbox.run(execution_request(task, program, ExecutionConfig()))
    # The first of two tests is that of the original inputs.
    return has_passed(result), f"{result.num_passed} of {result.num_tests}"


def test_an_answer_is_compared_with_the_canonical_one_on_original_and_on_added_inputs(
    sandbox: SandboxPool, tmp_path: Path
) -> None:
    task = task_of(tmp_path, _ADD)
    assert (task.source, task.entry_point) == ("humaneval", "add")
    assert _verdict(sandbox, task, task.reference) == (True, "2 of 2")
    wrong = "def add(x, y):\n    return x - y\n"
    assert _verdict(sandbox, task, wrong) == (False, "0 of 2")
    picky = "def add(x, y):\n    return x + y if x < 0 else None\n"
    assert _verdict(sandbox, task, picky) == (False, "0 of 2")
    forgetful = "def add(x, y):\n    return x + y if x >= 0 else None\n"
    assert _verdict(sandbox, task, forgetful) == (False, "1 of 2")


def test_a_task_of_humaneval_keeps_its_helpers(sandbox: SandboxPool, tmp_path: Path) -> None:
    original = load_humaneval()[32]
    record = {
        "task_id": "HumanEval/32",
        "prompt": original.prompt,
        "entry_point": "find_zero",
        "canonical_solution": original.reference.removeprefix(original.prompt),
        "contract": "",
        "base_input": [[[1, 2]]],
        "plus_input": [[[-6, 11, -6, 1]]],
        "atol": 1e-4,
    }
    task = task_of(tmp_path, record)
    assert _verdict(sandbox, task, task.reference)[0]
    # Another zero than the canonical solution's is right as well, what is no zero is not.
    program = "def find_zero(xs):\n    return {}\n"
    assert _verdict(sandbox, task, program.format("-0.5 if len(xs) == 2 else 3.0"))[0]
    assert not _verdict(sandbox, task, program.format("-0.5"))[0]


@pytest.mark.parametrize(
    ("solution", "answer", "atol", "is_right"),
    [
        ("def f(x):\n    return x / 3\n", "def f(x):\n    return x / 3 + 1e-9\n", 0, True),
        ("def f(x):\n    return x / 3\n", "def f(x):\n    return x / 3 + 1e-5\n", 0, False),
        ("def f(x):\n    return x / 3\n", "def f(x):\n    return x / 3 + 1e-5\n", 1e-4, True),
        ("def f(x):\n    return [x / 3, x]\n", "def f(x):\n    return [x / 3 + 1e-9, x]\n", 0, False),
        ("def f(x):\n    return [x / 3]\n", "def f(x):\n    return [x / 3 + 1e-9]\n", 0, True),
        ("def f(x):\n    return [x / 3]\n", "def f(x):\n    return (x / 3 + 1e-9,)\n", 0, False),
        ("def f(x):\n    return float(x)\n", "def f(x):\n    return x\n", 0, True),
        ("def f(x):\n    return (x,)\n", "def f(x):\n    return [x]\n", 0, False),
        ("def f(x):\n    return float('inf')\n", "def f(x):\n    return float('inf')\n", 0, True),
        ("def f(x):\n    return float('inf')\n", "def f(x):\n    return 1e308\n", 0.5, False),
        ("def f(x):\n    return 'a'\n", "def f(x):\n    return 'b'\n", 0.5, False),
    ],
)
def test_floats_are_compared_with_a_tolerance_and_everything_else_exactly(
    sandbox: SandboxPool, tmp_path: Path, solution: str, answer: str, atol: float, is_right: bool
) -> None:
    task = task_of(tmp_path, _mbpp(9999, "f", solution, base_input=[[1], [2]], atol=atol))
    assert _verdict(sandbox, task, solution)[0]
    assert _verdict(sandbox, task, answer)[0] is is_right


@pytest.mark.parametrize(
    ("number", "name", "solution", "given", "right", "wrong"),
    [
        (7, "find_char_long", "return list(s)", [["ab"]], "return ['b', 'a', 'a']", "return ['a']"),
        (794, "text_starta_endb", "return True", [["x"]], "return 'yes'", "return None"),
        (164, "are_equivalent", "return True", [[4]], "return False", "raise ValueError"),
        (295, "sum_div", "return s + 1", [[4]], "return 0", "return 4"),
        (581, "surface_Area", "return round(2 * s + s * s)", [[3, 4]], "return 35", "return 34"),
        (558, "digit_distance_nums", "return 7", [[7, 12]], "return 6", "return 5"),
    ],
)
def test_tasks_with_a_rule_of_their_own_are_judged_by_it(
    sandbox: SandboxPool,
    tmp_path: Path,
    number: int,
    name: str,
    solution: str,
    given: list[list[object]],
    right: str,
    wrong: str,
) -> None:
    head = f"def {name}({', '.join(['s', 't'][: len(given[0])])}):\n    "
    task = task_of(tmp_path, _mbpp(number, name, f"{head}{solution}\n", base_input=given))
    for answer, is_right in ((solution, True), (right, True), (wrong, False)):
        assert _verdict(sandbox, task, f"{head}{answer}\n")[0] is is_right


def test_a_prompt_that_is_a_docstring_is_asked_in_words(tmp_path: Path) -> None:
    task = task_of(
        tmp_path, _mbpp(19, "test_duplicate", "def test_duplicate(x):\n    return x\n", base_input=[[1]])
    )
    assert task.prompt == "Write a function.\nassert test_duplicate(1) == 1"
    assert (task.source, task.prelude) == ("mbpp", "")


@pytest.mark.parametrize("name", ["check", "test_duplicate", "inf"])
def test_an_entry_point_may_be_called_as_a_part_of_the_test_program_is(
    sandbox: SandboxPool, tmp_path: Path, name: str
) -> None:
    solution = f"def {name}(x):\n    return x * 2\n"
    task = task_of(tmp_path, _mbpp(56, name, solution, base_input=[[1], [float("inf")]]))
    assert _verdict(sandbox, task, solution)[0]
    assert not _verdict(sandbox, task, f"def {name}(x):\n    return x * 3\n")[0]


@pytest.mark.parametrize(
    ("task_id", "stored", "restored"),
    [
        ("Mbpp/2", [[3, 4], [5]], [(3, 4), (5,)]),
        ("Mbpp/63", [[[1, 2], [3, 4]]], [[(1, 2), (3, 4)]]),
        ("Mbpp/75", [[[6, 24]], 6], [[(6, 24)], 6]),
        ("Mbpp/106", [[5, 6], [9, 10]], [[5, 6], (9, 10)]),
        ("Mbpp/307", [["HELLO", 5], 2, 50], [("HELLO", 5), 2, 50]),
        ("Mbpp/259", [[[1, 3], [4, 5]], [[6, 7]]], [((1, 3), (4, 5)), ((6, 7),)]),
        ("Mbpp/580", [[4, [6, [8]]]], [(4, (6, (8,)))]),
        ("Mbpp/115", [[[1, 2], []]], [[{1, 2}, {}]]),
        ("Mbpp/124", ["0.5", "1j"], [0.5, 1j]),
        ("Mbpp/252", ["(1+2j)"], [1 + 2j]),
        ("Mbpp/278", [[1, [2], 3]], [(1, (2,), 3)]),
        ("Mbpp/722", [{"a": [1, 2]}, 3], [{"a": (1, 2)}, 3]),
        ("Mbpp/8", [[1, 2]], [[1, 2]]),
        ("HumanEval/2", [[1, 2]], [[1, 2]]),
    ],
)
def test_mbpps_inputs_get_the_types_that_json_cannot_hold(
    task_id: str, stored: list[object], restored: list[object]
) -> None:
    assert restore_types(task_id, [stored]) == [restored]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("task_id", "Other/1", "must begin with HumanEval/ or Mbpp/"),
        ("prompt", "Add two numbers.", "must hold the head of the function, or be one docstring"),
        ("canonical_solution", "  return (", "must be Python source"),
        ("canonical_solution", None, "must be a string that is not empty"),
        ("base_input", [], "must hold at least one call"),
        ("base_input", [1], "must be a list with a list of arguments for each call"),
        ("plus_input", None, "must be a list with a list of arguments for each call"),
        ("plus_input", [["x" * 4_100_000]], "must be less: .* characters of test program"),
        ("atol", "small", "must be a number >= 0"),
        ("atol", -1, "must be a number >= 0"),
        ("contract", 3, "must be a string"),
        ("entry_point", "not a name", "must be the name of a Python function"),
    ],
)
def test_a_malformed_record_is_named_with_its_line_and_field(
    tmp_path: Path, field: str, value: object, reason: str
) -> None:
    with pytest.raises(ValueError, match=rf"record.jsonl:1: field '{field}': value .*: {reason}"):
        task_of(tmp_path, {**_ADD, field: value})


def test_arguments_of_another_shape_than_the_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must hold arguments of Mbpp/722's types"):
        task_of(tmp_path, _mbpp(722, "f", "def f(x):\n    return x\n", base_input=[[3]]))


def test_a_packed_file_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    file = tmp_path / "plus.jsonl.gz"
    whole = gzip.compress(json.dumps(_ADD).encode())
    file.write_bytes(whole)
    assert [task.task_id for task in load_jsonl(file)] == ["HumanEval/53"]
    for damaged in (whole[:-9], b"{}", whole[:20] + b"xxxx" + whole[24:]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"plus\.jsonl\.gz"):
            load_jsonl(file)
