"""In which form a task is put to a model for an evaluation: as a chat, or as text to be continued.

A form makes the prompt and says where an answer ends; it neither samples nor scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from configs.schema import GenerationConfig
from curriculum.task import Task
from pipeline.models.prompts import encode_prompt, is_function_head, stop_strings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pipeline.models.prompts import PromptTokenizer


# What follows a finished function at column 0 (Chen et al. 2021, arXiv:2107.03374, section 3.1, and what
# base models write besides).
_AFTER_FUNCTION = ("\nclass", "\ndef", "\n#", "\nif", "\nprint", "\n@", "\nassert", "\n```")
# After a description the answer may hold several functions, and comments between them.
_AFTER_PROGRAM = ("\nif __name__", "\nprint", "\nassert", '\n"""', "\n```")
_AFTER_SCRIPT = ('\n"""', "\n```")


class AnswerForm(Protocol):
    """How an evaluation asks."""

    def prompt_ids(self, task: Task) -> tuple[int, ...]:
        """The token ids, length P, that the model continues."""
        ...

    def stop(self, task: Task) -> tuple[str, ...]:
        """What ends an answer besides the end-of-text token."""
        ...

    def answer(self, task: Task, completion: str) -> str:
        """The answer to be scored, from the text that was written."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatForm:
    """The chat template, and ``assistant_prefill`` as the beginning of the answer: as training asks."""

    tokenizer: PreTrainedTokenizerBase | PromptTokenizer
    generation: GenerationConfig

    def prompt_ids(self, task: Task) -> tuple[int, ...]:
        """See AnswerForm."""
        return encode_prompt(self.tokenizer, task, self.generation)

    def stop(self, task: Task) -> tuple[str, ...]:
        """See AnswerForm."""
        return stop_strings(self.generation)

    def answer(self, task: Task, completion: str) -> str:
        """Prefill and completion together."""
        return self.generation.assistant_prefill + completion


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionForm:
    """Plain text, for models that were never taught to chat.

    A function head is continued as it stands; words stand in a docstring, after which the program follows.
    """

    tokenizer: PreTrainedTokenizerBase

    def prompt_ids(self, task: Task) -> tuple[int, ...]:
        """See AnswerForm."""
        encoded = self.tokenizer(self.text(task), add_special_tokens=True)
        return tuple(int(token_id) for token_id in encoded["input_ids"])

    def text(self, task: Task) -> str:
        """What is continued. A head loses its last line break, which models write with what follows."""
        if is_function_head(task.prompt, task.entry_point):
            return task.prompt.rstrip()
        return f'"""\n{task.prompt.strip()}\n"""\n'

    def stop(self, task: Task) -> tuple[str, ...]:
        """See AnswerForm."""
        if is_function_head(task.prompt, task.entry_point):
            return _AFTER_FUNCTION
        return _AFTER_SCRIPT if task.stdio_tests else _AFTER_PROGRAM

    def answer(self, task: Task, completion: str) -> str:
        """The completion without the stop string that ended it."""
        for ending in self.stop(task):
            if completion.endswith(ending):
                return completion.removesuffix(ending) + "\n"
        return completion
