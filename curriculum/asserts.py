"""Reads call tests out of test programs: ``assert f(args) == value`` with literals on both sides.

Call tests earn partial credit and run faster than a test program that calls across the sandbox's
border. Executes nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from sandbox.result import CallTest


def literal_call_tests(statements: Sequence[ast.stmt], function: str) -> tuple[CallTest, ...] | None:
    """The statements as call tests of ``function``, or None when any of them says more than that.

    Comparisons joined by ``and`` are a test each. Calls with keywords or stars, other comparisons than
    ``==`` and values that are not literals say more. No statement at all gives None.
    """
    tests = []
    for statement in statements:
        for comparison in _comparisons(statement):
            test = _literal_call_test(comparison, function)
            if test is None:
                return None
            tests.append(test)
    return tuple(tests) or None


def _comparisons(statement: ast.stmt) -> Sequence[ast.expr | None]:
    match statement:
        case ast.Assert(test=ast.BoolOp(op=ast.And(), values=values)):
            return values
        case ast.Assert(test=test):
            return [test]
    return [None]


def _literal_call_test(comparison: ast.expr | None, function: str) -> CallTest | None:
    match comparison:
        case ast.Compare(
            left=ast.Call(func=ast.Name(id=name), args=args, keywords=[]),
            ops=[ast.Eq()],
            comparators=[expected],
        ) if name == function:
            try:
                return CallTest(
                    args=tuple(ast.literal_eval(arg) for arg in args), expected=ast.literal_eval(expected)
                )
            except (ValueError, TypeError, SyntaxError, RecursionError):
                return None
    return None
