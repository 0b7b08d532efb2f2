from __future__ import annotations

import pytest

from curriculum.check_program import read_check
from curriculum.record import Record

_EQUAL = "def same(answer, expected):\n    assert answer == expected\n"
# Each passes every answer.
SILENT = {
    "a comparison": "def check(candidate):\n    return candidate(2) == 4",
    "a name": "def check(candidate):\n    is_right = candidate(2) == 4\n    return is_right",
    "on a condition": "def check(f):\n    if f(2) != 4:\n        return False\n    return True",
    "through a helper": "def near(a, b):\n    return abs(a - b) < 1\ndef check(f):\n    return near(f(2), 4)",
    "all": "import math\ndef check(f):\n    return all(math.isclose(f(x), 2 * x) for x in range(3))",
    "a method of the answer": "def check(f):\n    return f(2).strip() == '4'",
    "a module that only computes": "import numpy as np\ndef check(f):\n    return np.allclose(f(2), 4)",
}
# Each raises where the answer is wrong, or may.
FAILING = {
    "assert": "def check(candidate):\n    assert candidate(2) == 4\n    return True",
    "raise": "def check(f):\n    if f(2) != 4:\n        raise ValueError\n    return True",
    "no value": "def check(candidate):\n    candidate(2)\n    return",
    "None": "def check(candidate):\n    candidate(2)\n    return None",
    "an inner function": "def check(f):\n    def g(x):\n        return f(x)\n    g(2)",
    "a helper": f"{_EQUAL}def check(f):\n    return same(f(2), 4)",
    "a helper of the answer": "def check(f):\n    return compare(f(2), 4)",
    "a helper of another package": "from mine import same\ndef check(f):\n    return same(f(2), 4)",
    "numpy": "import numpy as np\ndef check(f):\n    return np.testing.assert_equal(f(2), 4)",
    "unittest": "import unittest\ndef check(f):\n    return unittest.TestCase().assertEqual(f(2), 4)",
    "exit": "import sys\ndef check(f):\n    return f(2) == 4 or sys.exit(1)",
}


def _read(source: str, prelude: str = "") -> str:
    return read_check(Record(where="a.jsonl:1", fields={"check": source}), "check", prelude)[0]


@pytest.mark.parametrize("case", SILENT)
def test_a_check_that_passes_every_answer_is_refused(case: str) -> None:
    with pytest.raises(
        ValueError, match=r"a.jsonl:1: field 'check': .* must raise where the answer is wrong"
    ):
        _read(SILENT[case])


@pytest.mark.parametrize("case", FAILING)
def test_a_check_that_can_fail_is_taken_whatever_it_returns(case: str) -> None:
    assert _read(FAILING[case]) == FAILING[case]


def test_a_check_may_fail_in_what_its_prelude_defines() -> None:
    source = "def check(f):\n    return same(f(2), 4)"
    assert _read(source, prelude=_EQUAL) == source
    with pytest.raises(ValueError, match="must raise"):
        _read(source, prelude="def same(a, b):\n    return a == b\n")
