"""Mutants differ from the program in one place, compile, are new, and are the same every time."""

from __future__ import annotations

import ast

import pytest

from curriculum.audit.mutants import mutants_of

# What one operator makes of a small program.
CASES = {
    "a + b": {"a - b", None},
    "a < b": {"a > b", "a <= b", None},
    "a == b": {"a != b", None},
    "a in b": {"a not in b", None},
    "not a": {"a", None},
    "a and b": {"a or b", None},
    "3": {"4", "2", None},
    "'x'": {"''", None},
    "True": {"False", None},
    "max(a, b)": {"min(a, b)", None},
    "a[b:]": {"a[:]", None},
    "a if b else 0": {"a if True else 0", "a if False else 0", "a if b else 1", "a if b else -1", None},
    "-a": {"a", None},
}


@pytest.mark.parametrize("expression", CASES)
def test_each_operator_makes_what_it_says(expression: str) -> None:
    mutants = mutants_of(f"def f(a, b):\n    return {expression}\n", 100)
    made = {mutant.source.partition("return ")[2].strip() for mutant in mutants}
    assert made == {"None" if one is None else one for one in CASES[expression]}
    assert all(mutant.line == 2 for mutant in mutants)


def test_statements_loops_and_branches_are_changed_and_documentation_is_not() -> None:
    source = '''
def f(items: "list[int]") -> int:
    """Say what it does."""
    total = 0
    for item in items:
        if item > 5:
            break
        total += item
    return total
'''
    mutants = mutants_of(source, 100)
    assert {mutant.operator for mutant in mutants} == {
        "statement", "constant", "branch", "comparison", "boundary", "loop", "arithmetic", "return",
    }  # fmt: skip
    assert len({mutant.source for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        assert "Say what it does." in mutant.source and "list[int]" in mutant.source
        compile(mutant.source, "", "exec")


def test_a_mutant_that_compiles_to_the_same_is_none() -> None:
    # That the branch always holds is no change, and that it never does is one, however it is made.
    mutants = mutants_of("def f(x):\n    if True:\n        return x\n", 100)
    assert [mutant.operator for mutant in mutants] == ["branch", "return"]


def test_few_of_many_are_spread_over_the_program_and_always_the_same() -> None:
    source = "def f(x):\n" + "".join(f"    x = x + {number}\n" for number in range(1, 60)) + "    return x\n"
    few = mutants_of(source, 10)
    assert few == mutants_of(source, 10) and len(few) == 10
    lines = [mutant.line for mutant in few]
    assert lines[0] < 8 and lines[-1] > 50 and lines == sorted(lines)


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        mutants_of("def f(:", 10)
    assert ast.parse(mutants_of("x = 1", 10)[0].source)


def test_a_program_that_is_nested_deeper_than_it_can_be_copied_has_fewer_mutants() -> None:
    branches = "".join(f"    elif x == {number}:\n        return {number}\n" for number in range(1, 400))
    assert mutants_of(f"def f(x):\n    if x == 0:\n        return 0\n{branches}", 4) == []


def test_a_number_too_long_to_be_written_is_left_out_of_mutants() -> None:
    source = f"def f(a):\n    return a + 0x{'f' * 4000}\n"
    assert [mutant.text for mutant in mutants_of(source, 10)] == ["return None"]
