"""reasoning-gym's code I/O data as function-writing tasks (code I/O: Li et al. 2025, arXiv:2502.07316).

Each entry has a description, a reference solution and an input generator, all written by a language
model. They become one test program: it draws inputs with the entry's generator and a fixed seed, and
compares the answer with the reference's, floats to a relative 1e-6. That program runs where every
check runs, in the sandbox's judge; nothing is executed here, and the package is not imported.

Left out, by reading the syntax only: entries that import more than a list of pure standard modules,
draw random numbers outside the generator's own source, touch files, processes or the interpreter, or
whose generator does not plainly return the solution's parameters; and a list of lines that proved
useless.
"""

from __future__ import annotations

import ast
import gzip
import json
import string

from curriculum.difficulty import complexity
from curriculum.humaneval import package_folder
from curriculum.record import Record
from curriculum.task import Task
from sandbox.job import parse_quietly

ENTRY_POINT = "main_solution"
_GENERATOR = "generate_inputs"
_NUM_LEVELS = 5
# Not dataclasses: they look their module up in sys.modules, where no test program is.
_ALLOWED_MODULES = (
    "__future__ bisect cmath collections copy decimal enum fractions functools heapq "
    "itertools json math numbers operator random re statistics string typing"
)
_REFUSED_NAMES = (
    "random candidate check input open print exec eval compile globals locals vars id hash __import__ "
    "exit quit breakpoint getattr setattr delattr"
)
# Found by running all: one answer to every input, or an answer that changes with the hash seed.
_USELESS_LINES = (
    "20 53 61 120 218 226 285 297 313 328 407 409 436 456 458 584 597 617 652 684 792 822 827 862 868 957 "
    "997 1000 1045 1048 1056 1120 1156 1193 1249 1254 1257 1285 1303 1324 1380 1389 1396 1417 1434 1480 "
    "1483 1506 1515 1559 1580 1674 1692 1705 1709 1740 1776 1814 1827 1867 1875 1920 1930 1938 1955 1963 "
    "1980 1996 2123 2128 2142 2162 2302 2303 2401 2464 2490 2494"
)
_CHECK = string.Template('''
import copy as _check_copy
import math as _check_math
from random import Random

$reference

_check_reference = main_solution

$generator


def _check_same(left, right):
    """Equal, floats to a relative 1e-6; lists and tuples of the same items are the same."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if left == right or (left != left and right != right):
            return True
        return _check_math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_check_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_check_same(left[key], right[key]) for key in left)
    return type(left) is type(right) and left == right


def check(candidate):
    rng = Random($seed)
    num_compared = 0
    answers = set()
    for _ in range(60):
        inputs = generate_inputs(rng)
        try:
            expected = _check_reference(**_check_copy.deepcopy(inputs))
        except Exception:
            continue
        assert _check_same(candidate(*[inputs[name] for name in $parameters]), expected), inputs
        num_compared += 1
        answers.add(repr(expected))
        if num_compared >= 8 and len(answers) > 1:
            break
    assert len(answers) > 1, "the reference has one answer to everything"
''')


def load_codeio() -> tuple[Task, ...]:
    """The usable tasks, in the order of the file; ``difficulty`` is the fifth of the set by complexity.

    Raises ValueError when reasoning-gym is not installed.
    """
    path = package_folder("reasoning_gym", "reasoning-gym") / "data" / "codeio.jsonl.gz"
    useless = {int(number) for number in _USELESS_LINES.split()}
    usable = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            record = Record(where=f"{path.name}:{number}", fields=json.loads(line))
            parameters = _parameters_if_usable(record.text("code_sample"), record.text("input_generator"))
            if parameters and number not in useless:
                usable.append((number, record, parameters))
    sizes = [complexity(record.text("code_sample")) or 0 for _, record, _ in usable]
    rank_of = {index: rank for rank, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__))}
    return tuple(
        _task(number, record, parameters, level=1 + _NUM_LEVELS * rank_of[index] // len(usable))
        for index, (number, record, parameters) in enumerate(usable)
    )


def _task(number: int, record: Record, parameters: tuple[str, ...], level: int) -> Task:
    reference = record.text("code_sample")
    check_source = _CHECK.substitute(
        reference=reference,
        generator=record.text("input_generator"),
        seed=number,
        parameters=repr(parameters),
    )
    return Task(
        task_id=f"codeio/{number}",
        prompt=(
            f"{record.text('task_description').strip()}\n\n{record.text('input_output_spec').strip()}\n\n"
            f"Write this as a Python function {ENTRY_POINT}({', '.join(parameters)})."
        ),
        entry_point=ENTRY_POINT,
        check_source=check_source,
        reference=reference,
        difficulty=level,
        family=f"codeio/{number}",
        source="codeio",
    )


def _parameters_if_usable(reference: str, generator: str) -> tuple[str, ...]:
    """The solution's parameters, in order; empty when the entry is to be left out."""
    reference_module, generator_module = parse_quietly(reference), parse_quietly(generator)
    if reference_module is None or generator_module is None:
        return ()
    for node in (*ast.walk(reference_module), *ast.walk(generator_module)):
        if not _is_harmless(node):
            return ()
    solution = _function(reference_module, ENTRY_POINT)
    inputs = _function(generator_module, _GENERATOR)
    if solution is None or inputs is None or [argument.arg for argument in inputs.args.args] != ["rng"]:
        return ()
    arguments = solution.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        return ()
    parameters = tuple(argument.arg for argument in arguments.args)
    returns = [node for node in ast.walk(inputs) if isinstance(node, ast.Return)]
    if not all(_returns_exactly(node, parameters) for node in returns):
        return ()
    return parameters if returns else ()


def _is_harmless(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return all(alias.name.split(".")[0] in _ALLOWED_MODULES.split() for alias in names)
        case ast.ImportFrom(module=module, names=names):
            if module == "random":
                return [alias.name for alias in names] == ["Random"]
            return module is not None and module.split(".")[0] in _ALLOWED_MODULES.split()
        case ast.Name(id=name) | ast.FunctionDef(name=name):
            return name not in _REFUSED_NAMES.split()
        case ast.Attribute(attr=name):
            return not (name.startswith("__") and name != "__init__")
    return True


def _function(module: ast.Module, name: str) -> ast.FunctionDef | None:
    return next(
        (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name), None
    )


def _returns_exactly(node: ast.Return, parameters: tuple[str, ...]) -> bool:
    match node.value:
        case ast.Dict(keys=keys):
            names = [key.value for key in keys if isinstance(key, ast.Constant)]
            return len(names) == len(keys) and sorted(map(str, names)) == sorted(parameters)
    return False
