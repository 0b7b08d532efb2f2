"""Extraction: the program that was written, unchanged.

data/extraction.jsonl holds answers of the built-in model as they were sampled, with the program that a reader
finds in each: with and without a prefilled fence, to prompts in words and to HumanEval's function heads.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rewards.extract import extract_code

_DATA = Path(__file__).parent / "data" / "extraction.jsonl"
ANSWERS: list[dict[str, str]] = [json.loads(line) for line in _DATA.read_text(encoding="utf-8").splitlines()]

HEAD = (
    "from typing import List\n\n\ndef f(xs: List[int]) -> int:\n"
    '    """Sum them.\n    >>> f([1])\n    1\n    """\n'
)
CODE = "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    "text",
    [
        "```python\ndef f(x):\n    return x\n```",
        "```python\ndef f(x):\n    return x\n```\n\nThis returns x. ```def f(): pass```",
        "```py\ndef f(x):\n    return x\n```\n",
        "```\ndef f(x):\n    return x\n```\n",
        "Here it is:\n\n```python\ndef f(x):\n    return x\n```\n",
        "```python\ndef f(x):\n    return x\n",
        "```python\ndef f(x):\n    return x",
        "```python\n```python\ndef f(x):\n    return x\n```",
        "```python\ndef f(x):\n    return x\n```python\nprint(1)\n```",
        "```bash\npip install x\n```\nand\n```python\ndef f(x):\n    return x\n```",
        "```\n\n```\n```python\ndef f(x):\n    return x\n```",
        "<think>\n```python\ndef f(x): pass\n```\n</think>\n\n```python\ndef f(x):\n    return x\n```",
        "\n<think> </think>\ndef f(x):\n    return x",
        # Its beginning was written by the chat template.
        "One way:\n```\ndef f(x): pass\n```\nNo. </think> \n\nHere:\n```\ndef f(x):\n    return x\n```",
        "def f(x):\n    return x",
        "Sure, this function does it.\n\ndef f(x):\n    return x\n",
    ],
)
def test_every_usual_way_of_answering_gives_the_same_program(text: str) -> None:
    assert extract_code(text, "f") == CODE


@pytest.mark.parametrize(
    "text",
    [
        "MOD = 7\n\ndef f(x):\n    return x % MOD\n",
        "n = int(input())\ndef g(x):\n    return x\nprint(g(n))\n",
        "# Sums.\n\nlimit, names = 7, [str(i) for i in range(3)]\nimport math\n",
        "try:\n    import os.path\nexcept ImportError as error:\n    print(error, os)\nclass F: ...\n",
        'TEXT = """\nimport this\n"""\nprint(TEXT)\n',
        "print('begin')\n\ndef f(x):\n    return x\n",
    ],
)
def test_a_bare_program_keeps_the_lines_before_its_first_definition(text: str) -> None:
    assert extract_code(text, "f") == extract_code(f"```python\n{text}```", "f") == text


def test_a_bare_program_that_a_fence_closes_keeps_them_too() -> None:
    assert extract_code(f"MOD = 7\n\n{CODE}```\n\nIt works.\n", "f") == f"MOD = 7\n\n{CODE}"


@pytest.mark.parametrize(
    "prose",
    [
        "Sure",
        "Answer: python",
        "Sure, here",
        "Solution - Python",
        "f(1)",
        "assert f(1) == 1",
        "Here it is:\nMOD = 7",
        "# Solution",
    ],
)
def test_prose_before_a_bare_function_is_left_out_even_if_it_parses(prose: str) -> None:
    assert extract_code(f"{prose}\n\n{CODE}", "f") == CODE


def test_a_text_too_long_to_compile_is_not_parsed() -> None:
    text = f"MOD = 7\n{CODE}{'#' * 70_000}\n"
    assert extract_code(text, "f") == text.removeprefix("MOD = 7\n")


def test_the_first_block_is_taken_even_if_a_later_one_defines_the_entry_point() -> None:
    text = "```python\nimport math\n```\n```python\ndef f(x):\n    return x\n```"
    assert extract_code(text, "f") == "import math\n"


def test_reasoning_that_did_not_end_holds_no_answer() -> None:
    assert extract_code("\n<think>\n```python\ndef f(x):\n    return x\n```\n", "f") == ""


def test_an_answer_that_opens_with_its_block_has_no_reasoning() -> None:
    program = 'def f(x):\n    """Up to\n    </think>\n    """\n    return x.split("</think>")\n'
    assert extract_code(f"\n```python\n{program}```\n", "f") == program
    assert extract_code('def f(x):\n    return x.split("</think>")\n', "f").count("</think>") == 1


def test_indentation_and_blank_lines_stay_as_written() -> None:
    body = "\n\n    def f(x):\n\treturn x  \n\n"
    assert extract_code(f"```python\n{body}```", "f") == body


def test_a_fence_inside_a_string_or_deeper_indented_does_not_close_the_block() -> None:
    body = 'def f():\n    """Use it.\n    ```\n    f()\n    """\n    return "```"\n'
    assert extract_code(f"```python\n{body}```\nprose", "f") == body


def test_a_stop_at_the_closing_fence_changes_nothing() -> None:
    whole = "```python\ndef f(x):\n    return x\n```python\ngarbage (\n```\n"
    stopped = whole[: whole.index("\n```", 3) + 4]
    assert extract_code(whole, "f") == extract_code(stopped, "f") == CODE


@pytest.mark.parametrize("text", ["", "\n\n", "```python\n", "```python\n```", "```python\n\n   \n```\n"])
def test_an_answer_without_code_is_empty(text: str) -> None:
    assert extract_code(text, "f") == ""


@pytest.mark.parametrize(
    "text",
    [
        "    return sum(xs)\n",
        "```python\n    return sum(xs)\n```",
        "    return sum(xs)\n\n\nprint(f([1]))\n",
        "    return sum(xs)\n\ndef main():\n    pass\n",
    ],
)
def test_a_continuation_of_a_head_is_joined_to_it_and_cut_at_the_next_statement(text: str) -> None:
    code = extract_code(text, "f", HEAD)
    assert code.strip() == (HEAD + "    return sum(xs)").strip()
    namespace: dict[str, object] = {}
    exec(code, namespace)
    function = namespace["f"]
    assert callable(function) and function([1, 2]) == 3


def test_a_continuation_that_lost_its_indentation_is_not_repaired() -> None:
    assert extract_code("return sum(xs)\n", "f", HEAD) == "return sum(xs)\n"


def test_a_whole_function_is_not_joined_to_the_head() -> None:
    assert extract_code(f"```python\n{CODE}```", "f", HEAD) == CODE


def test_a_prompt_in_words_is_never_joined() -> None:
    assert extract_code("    return 1\n", "f", "Write a function f.") == "    return 1\n"


def test_a_helper_after_the_head_means_that_the_prompt_does_not_end_in_it() -> None:
    prompt = HEAD + "    return 0\n\n\ndef g():\n    pass\n"
    assert extract_code("    return 1\n", "f", prompt) == "    return 1\n"


def test_a_bare_function_closed_by_a_fence_is_the_program_and_the_prose_after_it_is_not() -> None:
    for after in ("", "\n", "\nThis returns x.\n", "This returns x.", "\n```\nf(1)\n```\n"):
        assert extract_code(f"Here it is.\n\n{CODE}```\n{after}", "f") == CODE


def test_a_class_or_a_whole_program_closed_by_a_fence_is_the_program_too() -> None:
    solution = "class Solution:\n    def f(self, x):\n        return x\n"
    assert extract_code(f"{solution}```\nIt works.\n", "Solution.f") == solution
    program = "n = int(input())\nprint(n)\n"
    assert extract_code(f"{program}```\n", "") == program
    assert extract_code(f"1.\n```\n{program}```\n", "") == program
    assert extract_code("class of its own:\n```\ndef f(x):\n    return x\n```", "f") == CODE


def test_a_blank_line_may_follow_the_fence_that_opens_a_function() -> None:
    assert extract_code(f"Here it is:\n```\n\n{CODE}```\n", "f") == f"\n{CODE}"


def test_a_block_of_a_list_loses_the_indentation_of_its_fence() -> None:
    text = "1. Answer:\n\n   ```python\n   def f(x):\n\n       return x\n   ```\n"
    assert extract_code(text, "f") == "def f(x):\n\n    return x\n"
    assert extract_code("  ```\ndef f(x):\n    return x\n  ```\n", "f") == "def f(x):\n  return x\n"


def test_a_fence_that_nobody_opened_hides_no_block_after_it() -> None:
    assert extract_code(f"```\n\nA function:\n\n```python\n{CODE}```\n", "f") == CODE
    assert extract_code("```\n\nNo function, just prose.\n", "f") == ""


def test_a_continuation_ends_at_its_fence_or_at_any_line_at_column_0() -> None:
    body = "    return sum(xs)\n"
    for after in ("```\n\nprose\n", "assert f([1]) == 1\n", "This sums them.\n", "```python\nf([1])\n```\n"):
        code = extract_code(f"{body}{after}", "f", HEAD)
        assert code == (HEAD + body if not after.startswith("```python") else "f([1])\n")


@pytest.mark.parametrize(
    "body",
    [
        "    x = [\n        1,\n]\n    return sum(xs)\n",
        '    text = """\nat column 0\n"""\n    return sum(xs)\n',
        "    text = '''\n\"\"\"\n'''\n    return sum(xs)\n",
        '    """One line."""\n    return sum(xs)\n',
        "\n\n    return sum(xs)\n",
        "\treturn sum(xs)\n",
    ],
)
def test_strings_and_brackets_of_a_continuation_may_stand_at_column_0(body: str) -> None:
    assert extract_code(f"{body}print(f([1]))\n", "f", HEAD) == HEAD + body


@pytest.mark.parametrize(
    "answer", ANSWERS, ids=[f"{answer['rule']}: {answer['task_id']}" for answer in ANSWERS]
)
def test_real_answers_give_the_program_that_was_written(answer: dict[str, str]) -> None:
    assert extract_code(answer["text"], answer["entry_point"], answer["prompt"]) == answer["expected"]


def test_no_real_answer_is_repaired() -> None:
    """Every line of the program stands in the answer or in the prompt, white space included."""
    for answer in ANSWERS:
        written = {*answer["text"].split("\n"), *answer["prompt"].split("\n")}
        assert written.issuperset(answer["expected"].split("\n")), answer["task_id"]
