"""Mutants: a program with one small fault each, of which good tests fail every one.

The operators are those of mutation testing (DeMillo, Lipton and Sayward, 1978; Offutt et al., 1996), written
here over ``ast``: mutmut's are private to its runner, cosmic-ray's come with a database and a web client. A
mutant that compiles to the same code as the program is none (trivial equivalence: Papadakis et al., 2015);
others that only look different are counted, since nobody can tell.
"""

from __future__ import annotations

import ast
import copy
import marshal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sandbox.job import parse

_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
}  # fmt: skip
_COMPARISON: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE,
}  # fmt: skip
_BOUNDARY: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_MAX_TEXT: Final = 80
_Fault = tuple[int, int, str, ast.expr | ast.stmt]
_BUILTINS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """``source`` is the program with one fault, made by ``operator`` in ``line``, which reads ``text``."""

    operator: str
    line: int
    text: str
    source: str


def mutants_of(source: str, most: int) -> list[Mutant]:
    """At most ``most`` mutants of a program, spread evenly over all that there are; the same every time.

    Raises SyntaxError for what is no Python.
    """
    tree = parse(source)
    try:
        seen = {_code(tree)}
    except RecursionError:
        return []
    places = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]
    texts = _docstrings(tree)
    faults = [
        (node.lineno, index, operator, changed)
        for index, node in enumerate(places)
        if id(node) not in texts
        for operator, changed in _changes(node)
    ]
    faults.sort(key=lambda fault: fault[0])
    found: list[Mutant] = []
    for line, index, operator, changed in _spread(faults, most):
        try:
            mutant = _with(tree, index, changed)
            code = _code(mutant)
            text, source = ast.unparse(changed).splitlines()[0][:_MAX_TEXT], ast.unparse(mutant)
        except (RecursionError, ValueError):
            continue  # Nested deeper than can be copied, or with a number longer than can be written.
        if code is not None and code not in seen:
            seen.add(code)
            found.append(Mutant(operator=operator, line=line, text=text, source=source))
    return found


def _spread(faults: list[_Fault], most: int) -> list[_Fault]:
    step = max(1.0, len(faults) / most)
    return [faults[int(place * step)] for place in range(min(most, len(faults)))]


def _changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """What ``node`` can be changed into, with the operator's name; it stays as it is."""

    def changed(operator: str, **fields: object) -> tuple[str, ast.expr | ast.stmt]:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return operator, other

    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            yield changed("arithmetic", op=_ARITHMETIC[type(op)]())
        case ast.Compare(ops=ops):
            for place, one in enumerate(ops):
                for operator, table in (("comparison", _COMPARISON), ("boundary", _BOUNDARY)):
                    if type(one) in table:
                        yield changed(operator, ops=[*ops[:place], table[type(one)](), *ops[place + 1 :]])
        case ast.Constant(value=bool() as value):
            yield changed("constant", value=not value)
        case ast.Constant(value=int() | float() as value):
            yield changed("constant", value=value + 1)
            yield changed("constant", value=value - 1)
        case ast.Constant(value=str() as value):
            yield changed("constant", value="" if value else "mutant")
        case ast.BoolOp(op=op):
            yield changed("logic", op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "logic", operand
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "arithmetic", operand
        case ast.If() | ast.IfExp():
            yield changed("branch", test=ast.Constant(value=True))
            yield changed("branch", test=ast.Constant(value=False))
        case ast.Break():
            yield "loop", ast.copy_location(ast.Continue(), node)
        case ast.Continue():
            yield "loop", ast.copy_location(ast.Break(), node)
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield changed("return", value=ast.Constant(value=None))
        case ast.Call(func=ast.Name(id=name)) if name in _BUILTINS:
            yield changed("builtin", func=ast.Name(id=_BUILTINS[name], ctx=ast.Load()))
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield changed("slice", lower=None)
            if upper is not None:
                yield changed("slice", upper=None)
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
        yield "statement", ast.copy_location(ast.Pass(), node)


def _with(tree: ast.Module, index: int, changed: ast.expr | ast.stmt) -> ast.Module:
    """``tree`` with ``changed`` in place of its node of that ``index``; shares nothing with it."""
    whole = copy.deepcopy(tree)
    target = [node for node in ast.walk(whole) if isinstance(node, ast.expr | ast.stmt)][index]
    replaced = _Replacing(target, copy.deepcopy(changed)).visit(whole)
    assert isinstance(replaced, ast.Module)
    return ast.fix_missing_locations(replaced)


class _Replacing(ast.NodeTransformer):
    """Puts one node in the place of another, found by identity."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """See ast.NodeTransformer."""
        return self._new if node is self._old else self.generic_visit(node)


def _code(tree: ast.Module) -> bytes | None:
    """What ``tree`` compiles to, without its lines; None where it does not."""
    try:
        # Written and read again, so that equal programs have equal lines.
        return marshal.dumps(compile(ast.unparse(tree), "", "exec", dont_inherit=True))
    except (SyntaxError, ValueError):
        return None


def _docstrings(tree: ast.Module) -> set[int]:
    """The identities of nodes that are documentation only, and of annotations."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found |= {id(first), id(first.value)}
        for name in ("annotation", "returns"):
            if isinstance(part := getattr(node, name, None), ast.AST):
                found |= {id(each) for each in ast.walk(part)}
        if isinstance(node, ast.JoinedStr):
            found |= {id(each) for each in node.values if isinstance(each, ast.Constant)}
    return found


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
