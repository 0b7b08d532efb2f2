"""How a model is asked: a task as chat messages, their text and token ids, and how answers are sampled.

Training, evaluation and the baseline all ask through here, so that they ask alike. What was encoded before is
looked up without any library: ``from transformers import AutoTokenizer`` takes seconds of processor time, in
which an attached run has its first scored rollout, and its prompts are those of the run before. Samples
nothing and does not read answers back (rewards.extract does).

Between two answers of one conversation (``TurnTokens``):

    prompt  answer  ─► end of the answer, feedback as the user's message, beginning of the next answer

Tokens in, tokens out: the next prompt is the tokens of the last one, those that were sampled, and these. What
was sampled is never encoded again, for the same text may have other tokens.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from configs.schema import Config, GenerationConfig
from curriculum.task import Task
from pipeline.host.files import cache_root, files_digest, read_object, write_text_atomically
from pipeline.messages import SamplingSettings
from rewards.extract import without_reasoning
from sandbox.job import parse, prelude_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_MAX_ENTRIES = 20_000
_LIBRARIES = ("transformers", "tokenizers", "jinja2")
_COMPLETE_FUNCTION = (
    "Complete this Python function. Answer with the whole function only, in one Python code block."
)
_WRITE_FUNCTION = "Answer with the function only, in one Python code block."
_WRITE_CLASS = "Answer with the whole class only, in one Python code block."
_WRITE_PROGRAM = (
    "Answer with a whole Python program that reads standard input and prints its answer, in one code block."
)
# Three backticks at the start of a line end the code block that the answer opened.
CLOSING_FENCE = "\n```"
# Stands for an answer in a rendered conversation; no template changes it.
_MARK = "THE-ANSWER-STANDS-HERE"
_ENDED_REASONING = re.compile(r"\s*<think>.*</think>\s*", re.DOTALL)


def prompt_messages(task: Task, system_prompt: str | None = None) -> list[dict[str, str]]:
    """The chat that asks for ``task``: the system message, where there is one, and one user message.

    A prompt that is a function head with a docstring (HumanEval's form) is shown in a code block and
    to be completed; a prompt in plain words is followed by a line that asks for the function (or the class,
    or the program).
    """
    if is_function_head(task.prompt, task.entry_point):
        content = f"{_COMPLETE_FUNCTION}\n\n```python\n{task.prompt.strip()}\n```"
    else:
        content = f"{task.prompt.strip()}\n{what_to_write(task)}"
    system = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return [*system, {"role": "user", "content": content}]


def what_to_write(task: Task) -> str:
    """The sentence that asks for the form of the answer."""
    if task.stdio_tests:
        return _WRITE_PROGRAM
    return _WRITE_CLASS if "." in task.entry_point else _WRITE_FUNCTION


def is_function_head(prompt: str, entry_point: str) -> bool:
    """Whether ``prompt`` is source from its first line on, with the head of ``entry_point`` in it.

    A head whose docstring is not indented, as in some of MBPP's, is one all the same.
    """
    head = re.search(rf"^(async )?def\s+{re.escape(entry_point)}\s*\(", prompt, re.MULTILINE)
    if head is None:
        return False
    begins_as_source = re.match(r"(async def|def|import|from|class)\s|[@#]", prompt.lstrip())
    if begins_as_source and prelude_of(prompt[: head.start()]) is not None:
        return True
    try:
        parse(prompt)
    except (SyntaxError, ValueError):
        return False
    return True


def render_prompt(tokenizer: PreTrainedTokenizerBase, task: Task, generation: GenerationConfig) -> str:
    """The text the model continues: the chat template's, or plain text without one, then the prefill.

    ``assistant_prefill`` opens the answer as if the model had written it; it may be empty. Raises ValueError
    for a template that cannot be used, that leaves ``system_prompt`` out, or that reads no variable of a
    name in ``chat_template_kwargs``.
    """
    messages = prompt_messages(task, generation.system_prompt)
    _refuse_unread_kwargs(tokenizer, generation)
    if tokenizer.chat_template is None:
        contents = (message["content"] for message in messages)
        return "\n\n".join([*filter(None, contents), generation.assistant_prefill])
    name = tokenizer.name_or_path
    try:
        text = _apply_template(tokenizer, messages, generation)
    # A template is a program.
    except Exception as error:
        raise ValueError(
            f"model.name: the chat template of {name!r} cannot be used ({type(error).__name__}: {error})"
        ) from error
    if (generation.system_prompt or "").strip() not in text:
        raise ValueError(f"generation.system_prompt: the chat template of {name!r} leaves it out; set null")
    return text + generation.assistant_prefill


def _refuse_unread_kwargs(tokenizer: PreTrainedTokenizerBase, generation: GenerationConfig) -> None:
    """Raise ValueError for a name in ``chat_template_kwargs`` that does not occur in the template.

    Jinja leaves out without a word what a template does not read.
    """
    template = "" if tokenizer.chat_template is None else str(tokenizer.chat_template)
    for name in generation.chat_template_kwargs:
        if re.search(rf"\b{re.escape(name)}\b", template) is None:
            raise ValueError(
                f"generation.chat_template_kwargs.{name}: the chat template of {tokenizer.name_or_path!r} "
                "reads no such variable; leave it out"
            )


def _apply_template(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], generation: GenerationConfig
) -> str:
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **generation.chat_template_kwargs
    )
    assert isinstance(text, str)
    return text


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase | PromptTokenizer, task: Task, generation: GenerationConfig
) -> tuple[int, ...]:
    """The token ids, length P, of ``render_prompt``, tokenised once as one string.

    A chat template writes its special tokens itself, so none are added to it; plain text gets the
    tokenizer's own (a BOS, where it has one).
    """
    if isinstance(tokenizer, PromptTokenizer):
        return tokenizer.encode(task, generation)
    text = render_prompt(tokenizer, task, generation)
    encoded = tokenizer(text, add_special_tokens=tokenizer.chat_template is None)
    return tuple(int(token_id) for token_id in encoded["input_ids"])


class PromptTokenizer:
    """A tokenizer of prompts; ``save`` keeps what was encoded for the next run.

    Looked-up ids are those that the real tokenizer gave: the file is named by the model's own files and the
    versions of the libraries. A miss loads the real one.
    """

    def __init__(self, folder: Path, *, trust_remote_code: bool = False) -> None:
        self._folder = folder
        self._trust_remote_code = trust_remote_code
        self._real: PreTrainedTokenizerBase | None = None
        self._path = cache_root() / "prompts" / f"{_identity(folder)}.json"
        self._num_new = 0
        try:
            self._known: dict[str, list[int]] = read_object(self._path)
        except ValueError:
            self._known = {}  # None yet, or a damaged one: the real tokenizer fills it again.

    def encode(self, task: Task, generation: GenerationConfig) -> tuple[int, ...]:
        """See ``encode_prompt``."""
        form = (generation.assistant_prefill, generation.chat_template_kwargs)
        key = f"prompt {json.dumps([prompt_messages(task, generation.system_prompt), *form], default=str)}"
        if key not in self._known:
            self._known[key] = list(encode_prompt(self.real(), task, generation))
            self._num_new += 1
        return tuple(self._known[key])

    def real(self) -> PreTrainedTokenizerBase:
        """The tokenizer itself, for what is not a prompt."""
        if self._real is None:
            # Imported here: see above.
            from pipeline.models.loading import load_tokenizer

            self._real = load_tokenizer(self._folder, trust_remote_code=self._trust_remote_code)
        return self._real

    def save(self) -> None:
        """Write what is not in the file yet; where that cannot be done the next run encodes again."""
        if self._num_new == 0 or len(self._known) > _MAX_ENTRIES:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(self._path, json.dumps(self._known))
        except OSError:
            return
        self._num_new = 0


def _identity(folder: Path) -> str:
    """Changes with the folder's files (name, size, time) and with the libraries that read them."""
    lines = [str(folder), files_digest(folder), *(f"{name} {version(name)}" for name in _LIBRARIES)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]


def stop_strings(generation: GenerationConfig) -> tuple[str, ...]:
    """What ends a completion besides the end-of-text token.

    An answer that opens with a fenced block (``assistant_prefill``, behind reasoning that it ends) ends at
    the closing fence; without that prefill the first fence met would be the opening one, so nothing is
    stopped at.
    """
    opening = without_reasoning(generation.assistant_prefill).lstrip()
    if generation.stop_at_code_fence and opening.startswith("```"):
        return (CLOSING_FENCE,)
    return ()


def request_seed(seed: int, name: str) -> int:
    """The seed of the request ``name``, below 2**31: the same in every process, whenever it is made."""
    # Far apart for neighbouring seeds and names: engines seed sample i of a request with seed + i.
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4]) >> 1


def refuse_useless_seeds(config: Config, device: str) -> None:
    """Raise ValueError where generation.seed_requests would do nothing on ``device``."""
    if not config.generation.seed_requests or config.generation.engine != "vllm":
        return
    if device == "cpu":
        raise ValueError(
            "generation.seed_requests: value True: vLLM on a CPU takes no seed for a request; set it to "
            "false, or generation.engine to transformers"
        )
    if config.acceleration.speculative.enabled:
        raise ValueError(
            "generation.seed_requests: value True: with drafts a request draws as many numbers as were "
            "drafted, which its seed does not say; set acceleration.speculative.enabled to false"
        )


def training_sampling(config: Config) -> SamplingSettings:
    """How rollouts are sampled."""
    generation = config.generation
    return SamplingSettings(
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        max_completion_length=generation.max_completion_length,
        stop=stop_strings(generation),
    )


def evaluation_sampling(config: Config) -> SamplingSettings:
    """How the held-out measurement is sampled."""
    evaluation = config.evaluation
    return SamplingSettings(
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        max_completion_length=evaluation.max_completion_length,
        stop=stop_strings(config.generation),
    )


def decoded(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    """The text of a completion's ``token_ids``, as they are: no special tokens, no space cleaned up."""
    text = tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


class TurnTokens:
    """Encodes feedback in the form of the model's chat template, in at most ``max_length`` tokens.

    ``task`` is any, to try the template on; ``generation`` says how it is asked, and what opens each answer.
    Raises ValueError for a template that cannot go on after an answer, and for a bound that the template's
    own words do not fit into.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        generation: GenerationConfig,
        max_length: int,
        task: Task,
    ) -> None:
        self._tokenizer = tokenizer
        self._generation = generation
        self._max_length = max_length
        if (least := len(self._encode(task, ""))) > max_length:
            raise ValueError(
                f"feedback of {max_length} tokens at most: the chat template takes {least} of them"
            )

    def encode(self, task: Task, answer_ids: tuple[int, ...], feedback: str) -> tuple[str, tuple[int, ...]]:
        """``feedback``, cut where it is too long; the tokens between ``answer_ids`` and the next answer."""
        ids = self._encode(task, feedback)
        # A task whose own words are longer than the first one's may be above the bound with none.
        while len(ids) > self._max_length and feedback:
            num_kept = min(len(feedback) - 8, len(feedback) * self._max_length // len(ids))
            feedback = f"{feedback[: max(0, num_kept)].rstrip()}..." if num_kept > 0 else ""
            ids = self._encode(task, feedback)
        # An answer that the model ended itself has the token that ends it.
        return feedback, ids[1:] if answer_ids[-1:] == ids[:1] else ids

    def _encode(self, task: Task, feedback: str) -> tuple[int, ...]:
        text = self._between(task, feedback) + self._generation.assistant_prefill
        encoded = self._tokenizer(text, add_special_tokens=False)
        return tuple(int(token_id) for token_id in encoded["input_ids"])

    def _between(self, task: Task, feedback: str) -> str:
        """The text between an answer and the opening of the next one."""
        # Without space around it: many templates trim a message. The form is asked for again: without these
        # twelve tokens a second answer repeats the docstring, which has more.
        message = f"{feedback.strip()}\nCorrect it. {what_to_write(task)}".lstrip()
        tokenizer = self._tokenizer
        if tokenizer.chat_template is None:
            return f"\n\n{message}\n\n"
        generation = self._generation
        prompt = render_prompt(tokenizer, task, generation).removesuffix(generation.assistant_prefill)
        messages = [
            *prompt_messages(task, generation.system_prompt),
            {"role": "assistant", "content": _MARK},
            {"role": "user", "content": message},
        ]
        try:
            text = _apply_template(tokenizer, messages, generation)
        # A template is a program.
        except Exception as error:
            raise self._unfit(f"{type(error).__name__}: {error}") from error
        before, _, after = text.partition(_MARK)
        # Reasoning that the template itself begins and ends (enable_thinking=False) it may leave out of what
        # lies behind; the model goes on from the tokens that it had.
        opened = prompt.removeprefix(before)
        is_same = prompt.startswith(before) and (not opened or _ENDED_REASONING.fullmatch(opened))
        if not is_same or not after or message not in after:
            raise self._unfit("a prompt is not the beginning of the conversation that goes on from it")
        return after

    def _unfit(self, reason: str) -> ValueError:
        return ValueError(
            f"model.name: the chat template of {self._tokenizer.name_or_path!r} cannot go on after an answer "
            f"({reason}); ask for one turn"
        )
