"""What a prompt shows of its tests, and what is left of it where it shows them all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from configs.load import load_config
from curriculum.audit.cheats import look_up_program
from curriculum.judging import execution_request, has_passed
from curriculum.shown import hide_tests, shown_examples
from curriculum.sources import load_named_tasks, load_tasks
from curriculum.task import Task
from sandbox.pool import SandboxPool
from sandbox.result import CallTest


def task_of(prompt: str, *tests: tuple[tuple[object, ...], object]) -> Task:
    return Task(
        task_id="t",
        prompt=prompt,
        entry_point="f",
        call_tests=tuple(CallTest(args=arguments, expected=expected) for arguments, expected in tests),
    )


@pytest.mark.parametrize(
    ("prompt", "examples"),
    [
        (">>> f(1, 'a)')\n[2, 3]\n", [("(1, 'a)')", "[2, 3]")]),
        ("assert f([1, 2]) == (3, 4)", [("([1, 2],)", "(3, 4)")]),
        ("assert f(2) == 3, 'no'\nassert f(4) == (5, 6), f(4)", [("(2,)", "3"), ("(4,)", "(5, 6)")]),
        (
            "f(2) ==> True, f(3) => false. And `f(4)` returns 5.",
            [("(2,)", "True"), ("(3,)", "False"), ("(4,)", "5")],
        ),
        ("For example f('x') should return 'y'.", [("('x',)", "'y'")]),
        ("f() -> 7", [("()", "7")]),
        ("def f(x):\n    '''Return f of x.'''\n", []),
        ("Write f(x) so that f(x) == 2 * x. It is called g.f(1) == 2 too.", []),
        ("f(1\n) == 2", []),
        # The call is all of the left side, and a sign, a word or the end of a doctest's line follows it.
        ("round(f([1, 2]), 2)\n-0.5\n", []),
        (">>> sorted(f([3, 1]))\n[1, 3]\n", []),
        ("len(f('ab')) == 2", []),
        ("f(3)[0] == 3", []),
        (">>> f(3) [0]\n3\n", []),
        ("f(2) + 1 == 5 and 1 + f(2) == 5", []),
        ("not f(2) == True", []),
        ("f(2)\n5\n", []),
        ("f(2) > 5", []),
        ("f(2) == 5 + x", []),
        ("- f(2) == 4\n* `f(3)` -> 6\n", [("(2,)", "4"), ("(3,)", "6")]),
        ("(for example f(2) == 4)", [("(2,)", "4")]),
        ("f('(') == 1, f('b') == 2", [("('(',)", "1"), ("('b',)", "2")]),
        (">>> f(2)  # 2 * 2\n4\n>>> f(3) [3, 9]\n", [("(2,)", "4"), ("(3,)", "[3, 9]")]),
        ("f('5 apples', 19) ->19 - 5 - 6 = 8", [("('5 apples', 19)", "8")]),
        ("f(2) = (3) = 3, f(3) == 4  # x = 5", [("(2,)", "3"), ("(3,)", "4")]),
        ("f([1, 3]) == 1 + 9 + 0 = 10", [("([1, 3],)", "10")]),
    ],
)
def test_examples_of_a_prompt_are_found(prompt: str, examples: list[tuple[str, str]]) -> None:
    assert list(shown_examples(task_of(prompt, ((1,), 1)))) == examples


DOUBLED = (((1,), 2), ((3,), 6), ((5,), 10))
DOCTESTS = '''def f(x):
    """Twice x.
    >>> f(1)
    2
    >>> f(3)
    6
    >>> f(5)
    10
    """
'''
ONE_DOCTEST = '''def f(x):
    """Twice x.
    >>> f(1)
    2
    """
'''


@pytest.mark.parametrize(
    ("prompt", "left"),
    [
        (DOCTESTS, ONE_DOCTEST),
        (
            DOCTESTS.replace('    """\n', '\n    Be quick.\n    """\n'),
            ONE_DOCTEST.replace('    """\n', '\n    Be quick.\n    """\n'),
        ),
        (
            "Twice x.\nassert f(1) == 2\nassert f(3) == 6\nassert f(5) == 10\nBe quick.",
            "Twice x.\nassert f(1) == 2\nBe quick.",
        ),
        (
            'def f(x):\n    """Twice x.\n    >>> f(1) == 2\n    >>> f(3) == 6\n    >>> f(5) == 10 """\n',
            'def f(x):\n    """Twice x.\n    >>> f(1) == 2\n    """\n',
        ),
    ],
)
def test_of_tests_that_are_all_shown_the_first_is_left(prompt: str, left: str) -> None:
    hidden = hide_tests(task_of(prompt, *DOUBLED))
    assert hidden.hides_tests and len(list(shown_examples(hidden))) == 1
    assert hidden.prompt == left and hidden.call_tests == task_of(prompt, *DOUBLED).call_tests


@pytest.mark.parametrize(
    ("prompt", "tests"),
    [
        # One test is hidden already.
        (DOCTESTS, (*DOUBLED, ((7,), 14))),
        ("Twice x.", DOUBLED),
        (ONE_DOCTEST, DOUBLED[:1]),
        # Not in lines of their own.
        ("f(1) returns 2, f(3) returns 6 and f(5) returns 10.", DOUBLED),
    ],
)
def test_other_prompts_stay_as_they_are(
    prompt: str, tests: tuple[tuple[tuple[object, ...], object], ...]
) -> None:
    task = task_of(prompt, *tests)
    assert hide_tests(task) is task


def test_a_look_up_earns_nothing_in_training_and_an_evaluation_asks_as_ever(
    tmp_path: Path, sandbox: SandboxPool
) -> None:
    record = {
        "task_id": "MBPP/700",
        "prompt": DOCTESTS,
        "canonical_solution": "    return 2 * x\n",
        "entry_point": "f",
        "test": "def check(candidate):\n"
        + "".join(f"    assert candidate({argument}) == {value}\n" for (argument,), value in DOUBLED),
    }
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(record), encoding="utf-8")

    def does_look_up_pass(task: Task) -> bool:
        program = look_up_program(task)
        assert program is not None
        return has_passed(sandbox.run(execution_request(task, program, load_config().execution)))

    (asked,) = load_named_tasks(str(path))
    (trained,) = load_tasks(load_config(overrides=[f"dataset.name={path}"]).dataset)
    assert does_look_up_pass(asked) and not does_look_up_pass(trained)
    kept = load_config(overrides=[f"dataset.name={path}", "dataset.shown_tests=all"])
    assert load_tasks(kept.dataset) == (asked,)
