"""How a task is put to the model: chat messages, their text, and the token ids.

Training, evaluation and the baseline all ask through here, so that they ask alike. Does not sample
and does not read answers back (rewards.extract does). Called by pipeline.orchestrator,
pipeline.answer_forms and pipeline.baseline.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from curriculum.task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pipeline.prompt_tokenizer import PromptTokenizer

_COMPLETE_FUNCTION = (
    "Complete this Python function. Answer with the whole function only, in one Python code block."
)
_WRITE_FUNCTION = "Answer with the function only, in one Python code block."
_WRITE_CLASS = "Answer with the whole class only, in one Python code block."
_WRITE_PROGRAM = (
    "Answer with a whole Python program that reads standard input and prints its answer, in one code block."
)


def prompt_messages(task: Task) -> list[dict[str, str]]:
    """The chat that asks for ``task``: one user message, no system message.

    A prompt that is a function head with a docstring (HumanEval's form) is shown in a code block and
    to be completed; a prompt in plain words is followed by a line that asks for the function (or the class,
    or the program).
    """
    if is_function_head(task.prompt, task.entry_point):
        content = f"{_COMPLETE_FUNCTION}\n\n```python\n{task.prompt.strip()}\n```"
    else:
        content = f"{task.prompt.strip()}\n{_what_to_write(task)}"
    return [{"role": "user", "content": content}]


def _what_to_write(task: Task) -> str:
    if task.stdio_tests:
        return _WRITE_PROGRAM
    return _WRITE_CLASS if "." in task.entry_point else _WRITE_FUNCTION


def is_function_head(prompt: str, entry_point: str) -> bool:
    """Whether ``prompt`` is source from its first line on, with the head of ``entry_point`` in it.

    A head whose docstring is not indented, as in some of MBPP's, is one all the same.
    """
    if re.search(rf"^(async )?def\s+{re.escape(entry_point)}\s*\(", prompt, re.MULTILINE) is None:
        return False
    if re.match(r"(async def|def|import|from|class)\s|[@#]", prompt.lstrip()):
        return True
    try:
        ast.parse(prompt)
    except (SyntaxError, ValueError):
        return False
    return True


def render_prompt(tokenizer: PreTrainedTokenizerBase | PromptTokenizer, task: Task, prefill: str) -> str:
    """The text the model continues: the chat template's, or plain text without one, then ``prefill``.

    ``prefill`` opens the answer as if the model had written it; it may be empty.
    """
    messages = prompt_messages(task)
    if tokenizer.chat_template is None:
        return f"{messages[0]['content']}\n\n{prefill}"
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    return text + prefill


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase | PromptTokenizer, task: Task, prefill: str
) -> tuple[int, ...]:
    """The token ids, length P, of ``render_prompt``, tokenised once as one string.

    A chat template writes its special tokens itself, so none are added to it; plain text gets the
    tokenizer's own (a BOS, where it has one).
    """
    text = render_prompt(tokenizer, task, prefill)
    encoded = tokenizer(text, add_special_tokens=tokenizer.chat_template is None)
    return tuple(int(token_id) for token_id in encoded["input_ids"])
