from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from configs.schema import Config, GenerationConfig
from curriculum.humaneval import load_humaneval
from curriculum.ladder.index import ladder_tasks
from pipeline.models.loading import load_tokenizer
from pipeline.models.prompts import (
    CLOSING_FENCE,
    encode_prompt,
    evaluation_sampling,
    is_function_head,
    prompt_messages,
    render_prompt,
    stop_strings,
    training_sampling,
)
from tests.pipeline.tiny_model import save_byte_model

_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _tokenizer(chat_template: str | None) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that adds a BOS by itself, as Llama's does."""
    specials = ["<s>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: i for i, token in enumerate([*specials, *alphabet])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>")  # type: ignore[no-untyped-call]
    tokenizer.add_special_tokens({"additional_special_tokens": specials[1:]})
    tokenizer.chat_template = chat_template
    return tokenizer


def test_a_function_head_is_shown_in_a_code_block_and_to_be_completed() -> None:
    task = load_humaneval()[0]
    (message,) = prompt_messages(task)
    assert message["role"] == "user"
    assert f"```python\n{task.prompt.strip()}\n```" in message["content"]
    assert "Complete" in message["content"]


def test_a_prompt_in_words_is_followed_by_the_wish_for_a_code_block() -> None:
    task = ladder_tasks("train")[0]
    (message,) = prompt_messages(task)
    assert message["content"].startswith(task.prompt.strip())
    assert "Python code block" in message["content"]
    assert "```" not in message["content"].removeprefix(task.prompt.strip())


def test_every_humaneval_prompt_is_a_function_head_and_no_ladder_prompt_is() -> None:
    assert all(is_function_head(task.prompt, task.entry_point) for task in load_humaneval())
    assert not any(is_function_head(task.prompt, task.entry_point) for task in ladder_tasks("train"))


@pytest.mark.parametrize(
    ("prompt", "is_head"),
    [
        ("# Twice\n\nComplete it:\n\n```python\ndef f(x):\n```", False),
        ("from a number make its double.\ndef f(x):\n", False),
        ("# Twice the number.\ndef f(x):\n", True),
        ("import math\n\n@cache\ndef f(x):\n", True),
        ("def f(x):\nIts double.\ndef f(x) as a sum\n", True),
    ],
)
def test_words_that_show_a_head_are_no_function_head(prompt: str, is_head: bool) -> None:
    assert is_function_head(prompt, "f") == is_head


@pytest.mark.parametrize("prefill", ["", "```python\n"])
@pytest.mark.parametrize("template", [None, _TEMPLATE])
def test_the_prompt_ends_in_the_prefill_and_has_one_bos(template: str | None, prefill: str) -> None:
    tokenizer = _tokenizer(template)
    task, generation = load_humaneval()[0], GenerationConfig(assistant_prefill=prefill)
    token_ids = encode_prompt(tokenizer, task, generation)
    assert token_ids.count(0) == 1
    assert token_ids[0] == 0
    text = tokenizer.decode(list(token_ids))
    assert isinstance(text, str)
    assert text.removeprefix("<s>") == render_prompt(tokenizer, task, generation).removeprefix("<s>")
    assert text.endswith(f"<|im_start|>assistant\n{prefill}" if template else f"\n\n{prefill}")


@pytest.mark.parametrize("system", [None, "", "Be terse."])
def test_a_system_prompt_stands_before_the_prompt(system: str | None) -> None:
    task, generation = ladder_tasks("train")[0], GenerationConfig(system_prompt=system)
    user = prompt_messages(task)[0]["content"]
    written = "" if system is None else f"<|im_start|>system\n{system}<|im_end|>\n"
    assert render_prompt(_tokenizer(_TEMPLATE), task, generation) == (
        f"<s>{written}<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n```python\n"
    )
    plain = f"{user}\n\n```python\n"
    assert render_prompt(_tokenizer(None), task, generation) == (f"Be terse.\n\n{plain}" if system else plain)


def test_a_template_that_leaves_the_system_prompt_out_is_refused() -> None:
    tokenizer = _tokenizer(
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    task = ladder_tasks("train")[0]
    assert render_prompt(tokenizer, task, GenerationConfig())
    with pytest.raises(ValueError, match=r"generation\.system_prompt: the chat template of .* leaves it out"):
        render_prompt(tokenizer, task, GenerationConfig(system_prompt="Be terse."))


def test_the_template_gets_its_variables_and_one_that_it_does_not_read_is_refused() -> None:
    tokenizer = _tokenizer(_TEMPLATE + "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}")
    task = ladder_tasks("train")[0]

    def prompt(**variables: object) -> str:
        return render_prompt(tokenizer, task, GenerationConfig(chat_template_kwargs=variables))

    assert prompt(enable_thinking=True) == prompt()
    assert prompt().endswith("<|im_start|>assistant\n```python\n")
    assert prompt(enable_thinking=False).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n```python\n")
    with pytest.raises(ValueError, match=r"chat_template_kwargs\.thinking: the chat template of .* no such"):
        prompt(thinking=False)
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match=r"chat_template_kwargs\.enable_thinking: .* no such variable"):
        prompt(enable_thinking=False)


@pytest.mark.parametrize(
    ("stop", "prefill", "expected"),
    [
        (True, "```python\n", (CLOSING_FENCE,)),
        (True, "```\n", (CLOSING_FENCE,)),
        (True, "<think>\n\n</think>\n\n```python\n", (CLOSING_FENCE,)),
        (True, "<think>\n```python\n", ()),
        (True, "", ()),
        (True, "Here is the code:\n", ()),
        (False, "```python\n", ()),
    ],
)
def test_only_an_answer_that_opens_with_a_fence_ends_at_one(
    stop: bool, prefill: str, expected: tuple[str, ...]
) -> None:
    generation = GenerationConfig(stop_at_code_fence=stop, assistant_prefill=prefill)
    assert stop_strings(generation) == expected


def test_a_fence_within_a_line_is_no_closing_fence() -> None:
    assert CLOSING_FENCE not in 'def f():\n    return "```"'
    assert CLOSING_FENCE in "def f():\n    return 1\n```\n"


def test_training_samples_as_generation_says_and_evaluation_as_evaluation_says() -> None:
    config = Config.model_validate(
        {
            "generation": {"temperature": 0.7, "top_p": 0.8, "top_k": 5, "max_completion_length": 33},
            "evaluation": {"temperature": 0.2, "top_p": 0.9, "max_completion_length": 44},
        }
    )
    training, evaluation = training_sampling(config), evaluation_sampling(config)
    assert (training.temperature, training.top_p, training.top_k) == (0.7, 0.8, 5)
    assert training.max_completion_length == 33
    assert (evaluation.temperature, evaluation.top_p, evaluation.top_k) == (0.2, 0.9, 0)
    assert evaluation.max_completion_length == 44
    assert training.stop == evaluation.stop == (CLOSING_FENCE,), "both answer in the same form"


def test_a_tokenizer_that_is_none_and_a_template_that_is_no_program_are_named(tmp_path: Path) -> None:
    folder = save_byte_model(tmp_path / "model")
    tokenizer = load_tokenizer(folder)
    tokenizer.chat_template = "{{ broken"
    with pytest.raises(ValueError, match=r"model\.name: the chat template of .* cannot be used \(Template"):
        render_prompt(tokenizer, ladder_tasks("train")[0], GenerationConfig())
    (folder / "tokenizer.json").write_text('{"model": {}}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"model\.name: the tokenizer in .*model' cannot be loaded"):
        load_tokenizer(folder)
