"""What stands between two answers of one conversation, as tokens.

    prompt  answer  ─► end of the answer, feedback as the user's message, beginning of the next answer

Tokens in, tokens out: the next prompt is the tokens of the last one, those that were sampled, and these. What
was sampled is never encoded again, for the same text may have other tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from curriculum.task import Task
from pipeline.models.prompts import prompt_messages, render_prompt, what_to_write

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Stands for an answer in a rendered conversation; no template changes it.
_MARK = "THE-ANSWER-STANDS-HERE"


class TurnTokens:
    """Encodes feedback in the form of the model's chat template, in at most ``max_length`` tokens.

    ``task`` is any, to try the template on; ``prefill`` opens each answer. Raises ValueError for a template
    that cannot go on after an answer, and for a bound that the template's own words do not fit into.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prefill: str, max_length: int, task: Task) -> None:
        self._tokenizer = tokenizer
        self._prefill = prefill
        self._max_length = max_length
        if (least := len(self._encode(task, ""))) > max_length:
            raise ValueError(
                f"feedback of {max_length} tokens at most: the chat template takes {least} of them"
            )

    def feedback_ids(self, task: Task, answer_ids: tuple[int, ...], feedback: str) -> tuple[int, ...]:
        """The tokens between ``answer_ids`` and the next answer; ``feedback`` is cut where it is too long."""
        ids = self._encode(task, feedback)
        # A task whose own words are longer than the first one's may be above the bound with none.
        while len(ids) > self._max_length and feedback:
            num_kept = min(len(feedback) - 8, len(feedback) * self._max_length // len(ids))
            feedback = f"{feedback[: max(0, num_kept)].rstrip()}..." if num_kept > 0 else ""
            ids = self._encode(task, feedback)
        # An answer that the model ended itself has the token that ends it.
        return ids[1:] if answer_ids[-1:] == ids[:1] else ids

    def _encode(self, task: Task, feedback: str) -> tuple[int, ...]:
        encoded = self._tokenizer(self._between(task, feedback) + self._prefill, add_special_tokens=False)
        return tuple(int(token_id) for token_id in encoded["input_ids"])

    def _between(self, task: Task, feedback: str) -> str:
        """The text between an answer and the opening of the next one."""
        # Without space around it: many templates trim a message.
        message = f"{feedback.strip()}\nCorrect it. {what_to_write(task)}".lstrip()
        tokenizer = self._tokenizer
        if tokenizer.chat_template is None:
            return f"\n\n{message}\n\n"
        prompt = render_prompt(tokenizer, task, "")
        messages = [
            *prompt_messages(task),
            {"role": "assistant", "content": _MARK},
            {"role": "user", "content": message},
        ]
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        # A template is a program.
        except Exception as error:
            raise self._unfit(f"{type(error).__name__}: {error}") from error
        assert isinstance(text, str)
        before, _, after = text.partition(_MARK)
        if before != prompt or not after or message not in after:
            raise self._unfit("a prompt is not the beginning of the conversation that goes on from it")
        return after

    def _unfit(self, reason: str) -> ValueError:
        return ValueError(
            f"model.name: the chat template of {self._tokenizer.name_or_path!r} cannot go on after an answer "
            f"({reason}); ask for one turn"
        )
