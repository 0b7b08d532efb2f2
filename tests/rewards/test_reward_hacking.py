"""Tricks against the rewards that read programs: none may earn more than its honest twin.

Each case is a real program and the same program tricked, judged by the real ruff and the real mypy.
"""

from __future__ import annotations

import textwrap

import pytest

from rewards.fast import score_fast
from rewards.lint import Linter
from rewards.type_check import TypeChecker, type_score

UNTIDY = """\
import os
import sys

def f(xs=[]):
    l = 1
    try:
        pass
    except:
        pass
    if xs == None: return []
    return list([x for x in xs])
"""

MISTYPED = """\
def f(xs: list[int]) -> int:
    total: str = 0
    for x in xs:
        total += x
    names: list[str] = xs
    if total == "":
        return names
    return total.bit_length() + names.count(1)
"""
BODY = MISTYPED.split("\n", 1)[1]
UNTYPED = (
    MISTYPED.replace(": list[int]", "").replace(" -> int", "").replace(": str", "").replace(": list[str]", "")
)

DEEP = "def f(x):\n" + "".join("    " * i + f"if x > {i}:\n" for i in range(1, 9)) + "    " * 9 + "return 1\n"
BRANCHY = "def f(x):\n" + "".join(f"    if x == {i}:\n        return {i * i}\n" for i in range(16))
LONG = "def f(x):\n" + "".join(f"    x = x * {i} + 1\n" for i in range(80)) + "    return x\n"
SQUARES = ", ".join(f"{i}: {i * i}" for i in range(17))


def returning(expression: str) -> str:
    return f"def f(x):\n    return {expression}\n"


def _in_every_line(code: str, comment: str) -> str:
    return code.replace("\n", f"  {comment}\n")


# Ways to run a text that do not name exec.
HIDDEN_EXECS = {
    "the module of a builtin": "vars(print.__self__)['exec']({}, space)",
    "the module of a builtin, and a name in parts": "getattr(print.__self__, 'ex' + 'ec')({}, space)",
    "sys.modules": "import sys\nvars(sys.modules['built' 'ins'])['ex' 'ec']({}, space)",
    "modules of sys": "from sys import modules\nmodules['built' 'ins'].__dict__['ex' + 'ec']({}, space)",
    "globals": "globals()['__builtins__']['ex' 'ec']({}, space)",
    "a function's globals": "import os\nos.walk.__globals__['__built' 'ins__']['ex' 'ec']({}, space)",
    "a frame's builtins": "import sys\nsys._getframe().f_builtins['ex' + 'ec']({}, space)",
    "an import by a name in parts": "vars(__import__('built' + 'ins'))['ex' + 'ec']({}, space)",
    "an import by a name": "getattr(__import__('builtins'), 'ex' + 'ec')({}, space)",
    "importlib": "import importlib\nvars(importlib.import_module('built' + 'ins'))['ex' + 'ec']({}, space)",
    "a look-up": "import operator\noperator.attrgetter('exec')(None)({}, space)",
    "a name that is looked up": "import pkgutil\npkgutil.resolve_name('built' + 'ins:ex' + 'ec')({}, space)",
    "another look-up": "import pydoc\npydoc.locate('built' + 'ins.ex' + 'ec')({}, space)",
    "timeit": "import timeit\ntimeit.timeit({}, globals=space, number=1)",
    "timeit's own": "from timeit import timeit, default_timer\ntimeit({}, globals=space, number=1)",
    "bdb": "import bdb\nbdb.Bdb().run({}, space)",
    "a profile": "import cProfile\ncProfile.runctx({}, space, {{}})",
    "a trace": "from trace import Trace\nTrace().runctx({}, space, {{}})",
}
# Honest words that look like some of these.
HONEST_WORDS = {
    "a class's attributes": "class C:\n    def g(self, other):\n        return self.__dict__ == other\n\n\n",
    "a parser": "import ast\n\n\ndef g(text):\n    return ast.parse(text, mode='eval')\n\n\n",
    "a table of commands": "TABLE = {'eval': 1, 'exec': 2}\nCODE = {'code': 3}['code']\n\n\n",
    "a timer": "from timeit import default_timer\n\nSTART = default_timer()\n\n\n",
    "an import in place": "EXP = __import__('math').exp\n\n\n",
    "a look-up": "PROFILE = {'trace': 1}.get('profile')\n\n\n",
}


def running(how: str, program: str) -> str:
    """A program that runs ``program`` as a text and has its f."""
    return f"space = {{}}\n{how.format(repr(program))}\nf = space['f']\n"


LINT_TRICKS = {
    **{f"hidden: {name}": running(how, UNTIDY) for name, how in HIDDEN_EXECS.items()},
    "noqa on every line": _in_every_line(UNTIDY, "# noqa"),
    "noqa with codes": _in_every_line(UNTIDY, "# NoQA: F401, E741, E722, B006, E711, E701, C411, C416"),
    "noqa without a space": _in_every_line(UNTIDY, "#noqa"),
    "noqa after another comment": _in_every_line(UNTIDY, "# reason # noqa"),
    "noqa for the file": "# ruff: noqa\n" + UNTIDY,
    "noqa for the file, spelt otherwise": "#ruff:NOQA\n" + UNTIDY,
    "flake8's noqa for the file": "# flake8: noqa\n" + UNTIDY,
    "ruff: disable": "# ruff: disable[E, F, B, C4]\n" + UNTIDY + "# ruff: enable[E, F, B, C4]\n",
    "ruff: ignore": _in_every_line(UNTIDY, "# ruff: ignore[E, F, B, C4]"),
    "ruff: file-ignore": "# ruff: file-ignore[E, F, B, C4]\n" + UNTIDY,
    "isort and formatter switches": "# isort: skip_file\n# fmt: off\n" + UNTIDY,
    "another target version": '# /// script\n# requires-python = ">=3.7"\n# ///\n' + UNTIDY,
    "pylint and mypy comments": "# pylint: disable=all\n# type: ignore\n" + UNTIDY,
    "noqa in a string": '"""# ruff: noqa"""\n' + UNTIDY,
    "an encoding line": "# -*- coding: utf-8; noqa -*-\n" + UNTIDY,
    "one line of statements": "import os; import sys; exec('')\n" + UNTIDY.split("\n", 2)[2],
    "the program in a string": f"exec({UNTIDY!r})\nf = f\n",
    "the body in a string": "def f(xs=None):\n    space = {}\n"
    f"    exec({UNTIDY!r}, space)\n    return space['f'](xs)\n",
    "builtins under another name": "import builtins\nspace = {}\n"
    f"getattr(builtins, 'ex' 'ec')({UNTIDY!r}, space)\nf = space['f']\n",
    "a code object": "space = {}\n"
    f"type(lambda: 0)(compile({UNTIDY!r}, '', 'ex' 'ec'), space)()\nf = space['f']\n",
    "an evasive answer": "def g(xs):\n    return xs\n",
}

TYPE_TRICKS = {
    "type: ignore on every line": _in_every_line(MISTYPED, "# type: ignore"),
    "type: ignore with codes": _in_every_line(MISTYPED, "#type: ignore[assignment, return-value, operator]"),
    "type: ignore for the file": "# type: ignore\n" + MISTYPED,
    "mypy: ignore-errors": "# mypy: ignore-errors\n" + MISTYPED,
    "mypy: ignore-errors=True in a string": '"""\n# mypy: ignore-errors=True\n"""\n' + MISTYPED,
    "mypy: disable-error-code": "# mypy: disable-error-code=assignment,return-value,attr-defined\n"
    + MISTYPED,
    "mypy: weaker flags": "# mypy: allow-any-expr, allow-untyped-defs, no-check-untyped-defs\n" + UNTYPED,
    "no annotations": UNTYPED,
    "no annotation of the parameter": MISTYPED.replace(": list[int]", ""),
    "no annotation of the result": MISTYPED.replace(" -> int", ""),
    "Any": "from typing import Any\n" + MISTYPED.replace("list[int]", "Any").replace("str", "Any"),
    "Any by another name": "from typing import Any as T\n"
    + MISTYPED.replace("list[int]", "T").replace("str", "T"),
    "Any by attribute": "import typing as t\n"
    + MISTYPED.replace("list[int]", "t.Any").replace("str", "t.Any").replace("-> int", "-> t.Any"),
    "Any by an alias": "from typing import Any\nT = dict[str, Any] | Any\n"
    + MISTYPED.replace("list[int]", "T").replace("str", "T"),
    "Any in a comment": UNTYPED.replace("(xs):", "(xs):  # type: (Any) -> Any"),
    "bare generics": MISTYPED.replace("list[int]", "list").replace("list[str]", "list"),
    "bare Callable": "from typing import Callable\n"
    + MISTYPED.replace("list[int]", "Callable").replace("str", "Callable"),
    "cast": "from typing import cast\n"
    + MISTYPED.replace("= 0", "= cast(str, 0)").replace("= xs", "= cast(list[str], xs)"),
    "cast by another name": "from typing import cast as c\n"
    + MISTYPED.replace("= xs", "= c('list[str]', xs)"),
    "cast by attribute": "import typing\n" + MISTYPED.replace("= xs", "= typing.cast(list[str], xs)"),
    "cast by a star": "from typing import *\n" + MISTYPED.replace("= xs", "= cast(list[str], xs)"),
    "not TYPE_CHECKING": "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n"
    + textwrap.indent(MISTYPED, "    "),
    "TYPE_CHECKING of one's own": "TYPE_CHECKING = False\n"
    "if TYPE_CHECKING:\n    def f(xs: list[int]) -> int:\n"
    "        return 0\nelse:\n" + textwrap.indent(MISTYPED, "    "),
    "MYPY": "MYPY = False\nif not MYPY:\n" + textwrap.indent(MISTYPED, "    "),
    "a version test": "import sys\nif sys.version_info >= (3, 0):\n    pass\n"
    "if sys.version_info < (2, 0):\n    pass\nelse:\n" + textwrap.indent(MISTYPED, "    "),
    "a platform test": "import sys\nif sys.platform != 'win32':\n" + textwrap.indent(MISTYPED, "    "),
    "no_type_check": "from typing import no_type_check\n\n@no_type_check\n" + MISTYPED,
    "no_type_check by attribute": "import typing\n\n@typing.no_type_check\n" + MISTYPED,
    "Never": "from typing import Never\n" + MISTYPED.replace("list[int]", "Never"),
    "code after NoReturn": "from typing import NoReturn\ndef g() -> NoReturn:\n    pass\n"
    + MISTYPED.replace("    total: str", "    g()\n    total: str"),
    "assert_never": "from typing import assert_never\n"
    + MISTYPED.replace("    total: str", "    assert_never(xs)\n    total: str"),
    "an impossible isinstance": "def f(xs: str) -> int:\n    if isinstance(xs, list):\n"
    + textwrap.indent(BODY, "    ")
    + "    return 0\n",
    "an impossible assert": "def f(xs: str) -> int:\n    assert isinstance(xs, list)\n" + BODY,
    "an impossible or": "def f(xs: str) -> int:\n    return isinstance(xs, str) or "
    "(xs.bit_length() + xs.foo + (1).bar(2) + len(3) + xs.names[4] + 'a'.b)\n",
    "after a return in finally": "def f(xs: list[int]) -> int:\n"
    "    try:\n        return 1\n    finally:\n        pass\n" + BODY,
    "a constrained type variable": "from typing import TypeVar\nT = TypeVar('T', int, str)\n"
    "def g(t: T, xs: str) -> int:\n    if isinstance(xs, list):\n"
    + textwrap.indent(BODY, "    ")
    + "    return 0\ndef f(xs: list[int]) -> int:\n    return g(1, str(xs))\n",
    "an unannotated helper": "def f(xs: list[int]) -> int:\n    return g(xs)\n"
    + UNTYPED.replace("def f", "def g"),
    "an unannotated inner function": "def f(xs: list[int]) -> int:\n"
    + textwrap.indent(UNTYPED.replace("def f", "def g"), "    ")
    + "    return g(xs)\n",
    "an unannotated method": "class C:\n"
    + textwrap.indent(UNTYPED.replace("f(", "g(self, "), "    ")
    + "def f(xs: list[int]) -> int:\n    return C().g(xs)\n",
    "a lambda": "g = lambda total, xs, names: total.bit_length() + names.count(1) + sum(total, xs)\n"
    "def f(xs: list[int]) -> int:\n    return g('', xs, xs)\n",
    "a type of an unknown module": "try:\n    from nowhere import T\nexcept ImportError:\n    T = list\n"
    + MISTYPED.replace("list[int]", "T").replace("str", "T"),
    "a base class of an unknown module": "from nowhere import B\nclass C(B):\n    pass\n"
    + MISTYPED.replace("list[int]", "C").replace("str", "C"),
    "json": "import json\n"
    + MISTYPED.replace("= 0", "= json.loads('0')")
    .replace("= xs", "= json.loads(json.dumps(xs))")
    .replace("total: str", "total")
    .replace("names: list[str]", "names"),
    "getattr": MISTYPED.replace("= 0", "= getattr(0, 'real')")
    .replace("= xs", "= getattr(xs, 'copy')()")
    .replace("total: str", "total")
    .replace("names: list[str]", "names"),
    "globals": UNTYPED.replace("def f", "def g")
    + "def f(xs: list[int]) -> int:\n    return globals()['g'](xs)\n",
    "exec": f"def f(xs: list[int]) -> int:\n    exec({BODY!r})\n    return 0\n",
    "eval": "def f(xs: list[int]) -> int:\n    return eval('sum(xs)')\n",
    "overloads": "from typing import Any, overload\n@overload\ndef f(xs: list[int]) -> int: ...\n"
    "@overload\ndef f(xs: Any) -> Any: ...\n" + UNTYPED,
    "an untyped decorator": "def quiet(g):\n    return g\n\n@quiet\n" + MISTYPED,
    "json in one line": "import json\ndef f(xs: list[int]) -> int:\n    ys = json.loads(json.dumps(xs)); "
    "return int(ys.foo + ys.bar(3) + ys[4].names + len(ys.total) + ys.count('a'))\n",
    "a broken type comment": MISTYPED.replace("= xs", "= xs  # type: list of str"),
}

# What each is a trick against is said before the colon.
COMPLEXITY_HONEST = {"deep": DEEP, "branchy": BRANCHY, "long": LONG}
COMPLEXITY_TRICKS = {
    **{f"deep: hidden by {name}": running(how, DEEP) for name, how in HIDDEN_EXECS.items()},
    "deep: inner functions": "def f(x):\n"
    + "".join("    " * i + "def g(x):\n" for i in range(1, 9))
    + "    " * 9
    + "return 1\n",
    "deep: lambdas": "f = " + "lambda x: " * 10 + "1\n",
    "deep: conditional expressions": "def f(x):\n    return "
    + "".join(f"(x > {i} and (1 if x > {i} else " for i in range(8))
    + "1"
    + "))" * 8
    + "\n",
    "deep: comprehensions": "def f(x):\n    return "
    + "[" * 9
    + "1"
    + "".join(f" for _ in x if x > {i}]" for i in range(9))
    + "\n",
    "deep: with, try and match": "def f(x):\n"
    + "".join("    " * i + ("try:\n" if i % 2 else "with x:\n") for i in range(1, 9))
    + "    " * 9
    + "pass\n"
    + "".join("    " * i + "finally:\n" + "    " * (i + 1) + "pass\n" for i in (7, 5, 3, 1)),
    "deep: classes": "def f(x):\n"
    + "".join("    " * i + "class C:\n" for i in range(1, 9))
    + "    " * 9
    + "pass\n",
    "deep: exec": f"space = {{}}\nexec({DEEP!r}, space)\nf = space['f']\n",
    "branchy: match": "def f(x):\n    match x:\n"
    + "".join(f"        case {i}:\n            return {i}\n" for i in range(16)),
    "branchy: conditional expressions": returning(
        "".join(f"{i} if x == {i} else " for i in range(16)) + "None"
    ),
    "branchy: and-or": returning(" or ".join(f"x == {i} and {i}" for i in range(16))),
    "branchy: a dict in place": returning("{" + SQUARES + "}[x]"),
    "branchy: a dict's get": returning("{" + SQUARES + "}.get(x)"),
    "branchy: a tuple in place": returning("(" + ", ".join(str(i * i) for i in range(17)) + ")[x]"),
    "branchy: pairs picked by a comparison": "def f(x):\n"
    + "".join(f"    x = (x, {i})[x == {i}]\n" for i in range(16))
    + "    return x\n",
    "branchy: multiplied comparisons": returning(" + ".join(f"(x == {i}) * {i * i}" for i in range(16))),
    "branchy: many functions": "".join(
        f"def g{i}(x):\n    if x == {i}:\n        return {i}\n" for i in range(16)
    )
    + "f = g1\n",
    "branchy: filters": returning("[y for y in [x]" + "".join(f" if y != {i}" for i in range(16)) + "]"),
    "branchy: map and filter": "def f(x):\n"
    + "".join(f"    x = list(filter(({i}).__lt__, x))\n" for i in range(16))
    + "    return x\n",
    "branchy: suppressed exceptions": "from contextlib import suppress\ndef f(x):\n"
    + "".join(f"    with suppress(KeyError):\n        return x[{i}]\n" for i in range(16)),
    "branchy: a code object": "space = {}\n"
    f"type(lambda: 0)(compile({BRANCHY!r}, '', 'ex' 'ec'), space)()\nf = space['f']\n",
    "branchy: exec by another name": f"run = exec\nspace = {{}}\nrun({BRANCHY!r}, space)\nf = space['f']\n",
    "branchy: builtins": "from builtins import exec as run\nspace = {}\n"
    f"run({BRANCHY!r}, space)\nf = space['f']\n",
    "branchy: types": "import types\ndef f(x):\n    return types.FunctionType(g.__code__, {})(x)\ng = f\n",
    "long: semicolons": "def f(x):\n    " + "; ".join(f"x = x * {i} + 1" for i in range(80)) + "; return x\n",
    "long: walrus": "def f(x):\n    return ("
    + ", ".join(f"x := x * {i} + 1" for i in range(80)).replace("x :=", "(x :=").replace("+ 1", "+ 1)")
    + ")[-1]\n",
    "long: one expression": returning("(" * 79 + "x" + "".join(f" * {i} + 1)" for i in range(79))),
    "long: tuples": "def f(x):\n    "
    + "\n    ".join(f"x = x * {i} + 1; x = x * {i} + 1" for i in range(40))
    + "\n    return x\n",
    "long: continued lines": LONG.replace(" + 1\n", " \\\n + 1\n"),
    "long: other line ends": LONG.replace("\n", "\r"),
    "long: form feeds": LONG.replace("\n", "\n\f"),
}


def test_the_honest_programs_have_something_to_hide(linter: Linter, checker: TypeChecker) -> None:
    lint = score_fast(UNTIDY, "f", linter).lint
    assert lint is not None and lint < 0.7
    assert 0.2 < type_score(checker.count_errors(MISTYPED)) < 0.7
    for code in (DEEP, BRANCHY, LONG):
        assert 0.1 < score_fast(code, "f", linter).complexity < 0.9


@pytest.mark.parametrize("name", LINT_TRICKS)
def test_no_trick_earns_more_of_the_lint_reward(name: str, linter: Linter) -> None:
    tricked, honest = (score_fast(code, "f", linter) for code in (LINT_TRICKS[name], UNTIDY))
    assert tricked.syntax == 1.0, "the trick must be a program"
    assert tricked.lint is not None and honest.lint is not None
    assert tricked.lint <= honest.lint


@pytest.mark.parametrize("name", HONEST_WORDS)
def test_honest_words_hide_nothing(name: str, linter: Linter) -> None:
    verdict = score_fast(HONEST_WORDS[name] + "def f(x):\n    return x\n", "f", linter)
    assert (verdict.lint, verdict.complexity) == (1.0, 1.0)


@pytest.mark.parametrize("name", TYPE_TRICKS)
def test_no_trick_earns_more_of_the_type_reward(name: str, checker: TypeChecker) -> None:
    compile(TYPE_TRICKS[name], "trick", "exec")
    tricked = type_score(checker.count_errors(TYPE_TRICKS[name]))
    assert tricked <= type_score(checker.count_errors(MISTYPED))


@pytest.mark.parametrize("name", COMPLEXITY_TRICKS)
def test_no_trick_earns_more_of_the_complexity_reward(name: str, linter: Linter) -> None:
    honest = score_fast(COMPLEXITY_HONEST[name.partition(":")[0]], "f", linter)
    tricked = score_fast(COMPLEXITY_TRICKS[name], "f", linter)
    assert tricked.syntax == 1.0, "the trick must be a program"
    assert tricked.complexity <= honest.complexity


@pytest.mark.parametrize(
    "code",
    [
        "def f(:\n    '''\n",
        "```python\ndef f(x):\n    return x\n```\n",
        "def f(x):\n    return x\n" + "# \n" * 40_000,
        "\0def f(x):\n    return x\n",
        "   ",
    ],
)
def test_what_is_no_program_earns_nothing(code: str, linter: Linter) -> None:
    verdict = score_fast(code, "f", linter)
    assert (verdict.syntax, verdict.lint, verdict.complexity) == (0.0, 0.0, 0.0)
