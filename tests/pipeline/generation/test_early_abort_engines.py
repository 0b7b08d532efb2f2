"""A generator ends what can no longer compile, and nothing else (vLLM: test_vllm_engine)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from pipeline.generation.transformers_engine import TransformersEngine
from pipeline.messages import Completion
from pipeline.models.loading import load_tokenizer
from rewards.extract import extract_code
from rewards.syntax import check_syntax
from tests.pipeline.generation.asking import ask, collect
from tests.pipeline.tiny_model import make_config, save_byte_model

PREFILL = "```python\n"


def compiles(completion: Completion) -> bool:
    return check_syntax(extract_code(PREFILL + completion.text, "f")).score == 1.0


def check_aborted(completions: list[Completion]) -> None:
    aborted = [completion for completion in completions if completion.finish_reason == "abort"]
    assert aborted
    for completion in aborted:
        assert not compiles(completion)
        assert "\n" in completion.text
        assert len(completion.token_ids) == len(completion.logprobs)
        assert all(logprob <= 0 for logprob in completion.logprobs)


def test_transformers_ends_hopeless_rows_and_writes_the_others_as_before(tmp_path: Path) -> None:
    engine = TransformersEngine(make_config(), str(save_byte_model(tmp_path)), "cpu")
    prompt_ids = tuple(load_tokenizer(tmp_path)(PREFILL)["input_ids"])
    # A random model that writes bytes ends a line now and then.
    request = ask("r", 24, prompt_ids=prompt_ids, seed=3, max_completion_length=200)
    plain = asyncio.run(collect(engine, request))
    watched = asyncio.run(collect(engine, replace(request, abort_prefill=PREFILL)))
    check_aborted(watched)
    for one, other in zip(plain, watched, strict=True):
        length = len(other.token_ids)
        assert one.token_ids[:length] == other.token_ids
        assert one.logprobs[:length] == other.logprobs
        if other.finish_reason != "abort":
            assert one.token_ids == other.token_ids
            assert one.finish_reason == other.finish_reason
        else:
            assert not compiles(one), "it would have failed whole as well"
    asyncio.run(engine.close())
