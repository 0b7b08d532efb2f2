"""The complexity reward: short, flat programs with few branches score 1.

Reads the syntax tree of a program; runs nothing. The whole program counts, so that
moving code between functions changes nothing; neither does another
way of writing the same branches.
"""

from __future__ import annotations

import ast

MAX_NESTING = 4
MAX_BRANCHES = 10
MAX_LINES = 50
MAX_COLUMNS = 110
MAX_OPERATIONS = 12
_PENALTY_PER_LEVEL = 0.2
_PENALTY_PER_BRANCH = 0.05
_PENALTY_PER_LINE = 0.02

_BLOCKS = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.IfExp,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
_OPERATIONS = (
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.IfExp,
    ast.Lambda,
    ast.NamedExpr,
    ast.Subscript,
    ast.UnaryOp,
)
_BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.match_case,
    ast.comprehension,
)


# Loops by another name: a call of one of these is a comprehension's worth of branches.
_LOOPING_CALLS = frozenset({"map", "filter", "reduce", "suppress", "starmap", "accumulate"})
# What makes code out of text or out of code objects, unseen by this reward, or leads to what does. Not
# ``__dict__``, which honest classes use; a program that is out to hide can spell all of these otherwise.
_HIDING_NAMES = frozenset(
    {
        *("exec", "eval", "__builtins__", "FunctionType", "CodeType"),
        *("__self__", "__globals__", "__subclasses__", "f_builtins", "f_globals"),
    }
)
_HIDING_MODULES = frozenset(
    {
        *("builtins", "code", "codeop", "runpy", "importlib", "pkgutil", "pydoc"),
        *("timeit", "bdb", "pdb", "cProfile", "profile", "trace"),
    }
)
_HIDING_TEXTS = _HIDING_NAMES | {"builtins"}
# What finds something by a text.
_LOOK_UPS = frozenset(
    {"getattr", "attrgetter", "itemgetter", "get", "pop", "__getattribute__", "__getitem__"}
)


def complexity_score(code: str, tree: ast.Module) -> float | None:
    """A score in [0, 1] for ``code``, whose syntax tree is ``tree``; None where part of it cannot be seen.

    Each level of nesting above 4 costs 0.2, each branch above 10 costs 0.05, each line above 50 costs
    0.02. The outermost function is level 0; an ``elif`` is no deeper than its ``if``. However it is
    written, what does the work of a branch counts as one: ``and``/``or``, comprehensions and their
    filters, ``map`` and its kin, choosing from a list, tuple or dict that is written out in place, and
    multiplying by a comparison. Statements joined by semicolons, ``:=``, every further 110 columns of a
    line and every operation of a statement after its twelfth count as lines. What cannot be seen, by no
    reward that reads programs, is code made of text (``exec`` and its kin).
    """
    nesting, num_branches, num_statements, hides_code = _measure(tree)
    if hides_code:
        return None
    num_lines = max(
        num_statements, sum(1 + (len(line) - 1) // MAX_COLUMNS for line in code.split("\n") if line.strip())
    )
    penalty = (
        _PENALTY_PER_LEVEL * max(0, nesting - MAX_NESTING)
        + _PENALTY_PER_BRANCH * max(0, num_branches - MAX_BRANCHES)
        + _PENALTY_PER_LINE * max(0, num_lines - MAX_LINES)
    )
    return max(0.0, 1.0 - penalty)


def _measure(tree: ast.Module) -> tuple[int, int, int, bool]:
    """Deepest nesting, branches, statements, and whether code is hidden.

    Walks with an explicit stack: deep trees must not exhaust the interpreter's.
    """
    nesting = num_branches = num_statements = 0
    hides_code = False
    # A node's depth is the number of blocks around it, less the outermost; the third is how many
    # operations its statement has had so far.
    stack: list[tuple[ast.AST, int, list[int]]] = [(tree, -1, [0])]
    while stack:
        node, depth, operations = stack.pop()
        if isinstance(node, _BLOCKS):
            depth += 1
            nesting = max(nesting, depth)
        if isinstance(node, ast.stmt):
            operations = [0]
            num_statements += 1
        elif isinstance(node, _OPERATIONS):
            operations[0] += 1
            num_statements += isinstance(node, ast.NamedExpr) or operations[0] > MAX_OPERATIONS
        num_branches += _num_branches(node)
        hides_code = hides_code or _hides_code(node)
        for child in ast.iter_child_nodes(node):
            stack.append((child, depth - 1 if _is_elif(node, child) else depth, operations))
    return nesting, num_branches, num_statements, hides_code


def _num_branches(node: ast.AST) -> int:
    if isinstance(node, ast.Name | ast.Constant | ast.expr_context):
        return 0
    if isinstance(node, _BRANCHES):
        return 1 + (len(node.ifs) if isinstance(node, ast.comprehension) else 0)
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.Call):
        return _called_name(node) in _LOOPING_CALLS or _num_choices(node)
    if isinstance(node, ast.Subscript):
        return _num_choices(node)
    if isinstance(node, ast.BinOp):
        return isinstance(node.left, ast.Compare) + isinstance(node.right, ast.Compare)
    return 0


def _num_choices(node: ast.Call | ast.Subscript) -> int:
    """Branches in ``[a, b][i]``, ``{k: a}[i]`` and ``{k: a}.get(i)``: one less than there are elements."""
    chosen_from: ast.expr = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Call) and isinstance(chosen_from, ast.Attribute):
        chosen_from = chosen_from.value
    if isinstance(chosen_from, ast.Dict):
        return max(0, len(chosen_from.values) - 1)
    if isinstance(chosen_from, ast.List | ast.Tuple) and isinstance(node, ast.Subscript):
        return 0 if isinstance(node.slice, ast.Slice) else max(0, len(chosen_from.elts) - 1)
    return 0


def _called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _hides_code(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _HIDING_NAMES
    if isinstance(node, ast.Attribute):
        is_modules = node.attr == "modules" and isinstance(node.value, ast.Name) and node.value.id == "sys"
        return is_modules or node.attr in _HIDING_NAMES
    if isinstance(node, ast.Import):
        return any(_is_hiding_module(alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return _hides_in_import(node.module or "", {alias.name for alias in node.names})
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in _HIDING_TEXTS
    return isinstance(node, ast.Call) and _hides_in_call(node)


def _hides_in_import(module: str, names: set[str]) -> bool:
    if module == "timeit" and names == {"default_timer"}:
        return False
    is_modules = module == "sys" and "modules" in names
    return is_modules or _is_hiding_module(module) or not names.isdisjoint(_HIDING_NAMES)


def _hides_in_call(call: ast.Call) -> bool:
    name = _called_name(call)
    texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    if name == "__import__":
        # Of a number no text can be made where it has too many digits.
        return not texts or not isinstance(texts[0], str) or _is_hiding_module(texts[0])
    if name in _LOOK_UPS:
        return any(text in _HIDING_TEXTS for text in texts)
    # compile(...), never re.compile(...).
    return name == "compile" and isinstance(call.func, ast.Name)


def _is_hiding_module(name: str) -> bool:
    return name.partition(".")[0] in _HIDING_MODULES


def _is_elif(parent: ast.AST, child: ast.AST) -> bool:
    return (
        isinstance(parent, ast.If)
        and isinstance(child, ast.If)
        and len(parent.orelse) == 1
        and child is parent.orelse[0]
    )
