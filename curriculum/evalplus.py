"""HumanEval+ and MBPP+ (Liu et al. 2023, arXiv:2305.01210): tasks whose expected values are computed.

A record of EvalPlus's files has inputs and a canonical solution, and no expected values. Each becomes one
test program that holds both: it runs the canonical solution on the original and then on the added inputs, and
compares the answer as EvalPlus 0.3.1 does (``atol``, sets, the tasks with a rule of their own). That program
runs where every check runs, in the sandbox's judge; nothing is executed here. ``contract`` is checked to be
text and not used, as in EvalPlus's own evaluation.
"""

from __future__ import annotations

import ast
import math
import string

from curriculum.evalplus_inputs import restore_types
from curriculum.humaneval import last_head, prelude_before
from curriculum.record import Record
from curriculum.task import Task
from sandbox.job import parse_quietly

_MAX_PROGRAM_CHARS = 4_000_000  # a frame of the sandbox
_PARTS = ("base inputs", "base and plus inputs")
_PREFIXES = {"HumanEval": "humaneval", "Mbpp": "mbpp"}
# The rules of single MBPP tasks, by entry point.
_AS_SETS = (
    "similar_elements find_char_long common_in_nested_lists extract_singly larg_nnum intersection_array "
    "find_dissimilar Diff"
)
_NOT_NONE = "check_str text_match_three text_starta_endb"
_CHECK = string.Template("""
import copy
import math


def load_reference():
    namespace = {}
    exec($reference, namespace)
    return namespace[$entry_point]


def is_floats(value):
    if isinstance(value, (list, tuple)) and value:
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def is_close(answer, expected, atol):
    if isinstance(expected, (list, tuple)):
        if not isinstance(answer, (list, tuple)) or len(answer) != len(expected):
            return False
        return all(is_close(*pair, atol) for pair in zip(answer, expected))
    if not isinstance(answer, (int, float, complex)) or not isinstance(expected, (int, float, complex)):
        return False
    return answer == expected or abs(answer - expected) <= atol + 1e-7 * abs(expected) < math.inf


def is_near(answer, expected, atol):
    if answer == expected:
        return True
    if atol == 0 and is_floats(expected):
        atol = 1e-6
    return atol != 0 and type(answer) is type(expected) and is_close(answer, expected, atol)

$rule

def run(inputs):
    reference = load_reference()
    for arguments in inputs:
        expected = reference(*copy.deepcopy(arguments))
        assert is_right(candidate(*arguments), expected, arguments, $atol)


has_passed_base = []


def test_base_inputs():
    inf, nan = float("inf"), float("nan")
    run($base_input)
    has_passed_base.append(True)
""")
_PLUS = string.Template("""

def test_plus_inputs():
    inf, nan = float("inf"), float("nan")
    assert has_passed_base
    run($plus_input)
""")
_PLAIN_RULE = """
def is_right(answer, expected, arguments, atol):
    return is_near(answer, expected, atol)
"""
_SET_RULE = """
def is_right(answer, expected, arguments, atol):
    return set(answer) == set(expected)
"""
_NOT_NONE_RULE = """
def is_right(answer, expected, arguments, atol):
    found = expected is not None
    return answer == found if isinstance(answer, bool) else found == (answer is not None)
"""
_SPECIAL_RULES = {
    # Any x with a polynomial's value near 0 is a zero of it.
    ("humaneval", "find_zero"): """
def is_right(answer, expected, arguments, atol):
    (coefficients,) = arguments
    return abs(sum(c * math.pow(answer, power) for power, c in enumerate(coefficients))) <= atol
""",
    # The task's text leaves open what is asked: EvalPlus takes any answer.
    ("mbpp", "are_equivalent"): """
def is_right(answer, expected, arguments, atol):
    return True
""",
    ("mbpp", "sum_div"): """
def is_right(answer, expected, arguments, atol):
    return answer == 0 or is_near(answer, expected, atol)
""",
    # The height may be meant from the base to the apex.
    ("mbpp", "surface_Area"): """
def is_right(answer, expected, arguments, atol):
    edge, height = arguments
    other = round(edge * edge + 2 * edge * math.sqrt(edge * edge / 4 + height * height))
    return is_near(answer, expected, atol) or abs(answer - other) <= atol
""",
    # Numbers of different length may be filled up with zeros.
    ("mbpp", "digit_distance_nums"): """
def is_right(answer, expected, arguments, atol):
    left, right = map(str, arguments)
    size = max(len(left), len(right))
    pairs = zip(left.zfill(size), right.zfill(size))
    return is_near(answer, expected, atol) or answer == sum(abs(int(a) - int(b)) for a, b in pairs)
""",
}


def evalplus_task(record: Record) -> Task:
    """The task of a record with EvalPlus's fields; others are ignored.

    Raises ValueError for a malformed record, and for one whose inputs are more than the sandbox takes.
    """
    task_id = record.text("task_id")
    source = _PREFIXES.get(task_id.partition("/")[0])
    if source is None:
        raise record.error("task_id", "must begin with HumanEval/ or Mbpp/, as EvalPlus's do")
    entry_point = record.identifier("entry_point")
    prompt = record.text("prompt")
    head = last_head(prompt, entry_point)
    prelude = "" if head is None else prelude_before(record, prompt[:head])
    asked = prompt if head is not None else _words(record, prompt)
    # As EvalPlus does: MBPP+'s prompt is a docstring, after which the whole function follows.
    reference = prompt + record.text("canonical_solution")
    record.source_defining("canonical_solution", entry_point, reference)
    record.optional_text("contract")
    return Task(
        task_id=task_id,
        prompt=asked,
        entry_point=entry_point,
        check_source=_check_source(record, source, entry_point, reference),
        check_parts=_PARTS if record.fields["plus_input"] else (),
        prelude=prelude,
        reference=reference,
        difficulty=3 if source == "humaneval" else 2,
        family=task_id,
        source=source,
    )


def _check_source(record: Record, source: str, entry_point: str, reference: str) -> str:
    program = _CHECK.substitute(
        reference=repr(reference),
        entry_point=repr(entry_point),
        base_input=repr(_inputs(record, "base_input")),
        atol=repr(_atol(record)),
        rule=_rule(source, entry_point),
    )
    if plus_input := _inputs(record, "plus_input"):
        program += _PLUS.substitute(plus_input=repr(plus_input))
    if len(program) > _MAX_PROGRAM_CHARS:
        raise record.error(
            "plus_input", f"must be less: {len(program)} characters of test program, {_MAX_PROGRAM_CHARS} fit"
        )
    return program


def _rule(source: str, entry_point: str) -> str:
    if source == "mbpp" and entry_point in _AS_SETS.split():
        return _SET_RULE
    if source == "mbpp" and entry_point in _NOT_NONE.split():
        return _NOT_NONE_RULE
    return _SPECIAL_RULES.get((source, entry_point), _PLAIN_RULE)


def _inputs(record: Record, field: str) -> list[list[object]]:
    inputs = record.fields.get(field)
    if not isinstance(inputs, list) or not all(isinstance(arguments, list) for arguments in inputs):
        raise record.error(field, "must be a list with a list of arguments for each call")
    if field == "base_input" and not inputs:
        raise record.error(field, "must hold at least one call")
    try:
        return restore_types(record.text("task_id"), inputs)
    except (TypeError, ValueError, IndexError, AttributeError):
        raise record.error(field, f"must hold arguments of {record.fields['task_id']}'s types") from None


def _atol(record: Record) -> float:
    value = record.fields.get("atol")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise record.error("atol", "must be a number >= 0")
    return value


def _words(record: Record, prompt: str) -> str:
    """A prompt that is a docstring alone, without its quotes."""
    module = parse_quietly(prompt)
    match module:
        case ast.Module(body=[ast.Expr(value=ast.Constant(value=str(text)))]):
            return text.strip()
    raise record.error("prompt", "must hold the head of the function, or be one docstring")
