"""Looked-up prompts are those of the real tokenizer, and are looked up without its libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from configs.schema import GenerationConfig, ModelConfig
from curriculum.ladder.index import ladder_tasks
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_tokenizer
from pipeline.models.prompts import PromptTokenizer, encode_prompt
from tests.pipeline.tiny_model import save_byte_model

ROOT = Path(__file__).parents[3]
ASKED = GenerationConfig(assistant_prefill="```python\n")
TASKS = ladder_tasks("train")[:20]

SECOND_RUN = """
import sys
from configs.schema import GenerationConfig, ModelConfig
from curriculum.ladder.index import ladder_tasks
from pipeline.models.find import resolve_model
from pipeline.models.prompts import PromptTokenizer, encode_prompt
tokenizer = PromptTokenizer(resolve_model(ModelConfig(name=sys.argv[1])))
print([encode_prompt(tokenizer, task, GenerationConfig()) for task in ladder_tasks("train")[:20]])
print("transformers" in sys.modules)
"""


def test_the_second_run_gets_the_same_ids_without_importing_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = resolve_model(ModelConfig())
    real = load_tokenizer(model)
    expected = [encode_prompt(real, task, ASKED) for task in TASKS]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = PromptTokenizer(model)
    assert [encode_prompt(first, task, ASKED) for task in TASKS] == expected
    first.save()
    done = subprocess.run(
        [sys.executable, "-c", SECOND_RUN, str(model)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{expected}\nFalse\n"


def test_a_prompt_is_looked_up_by_all_that_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = save_byte_model(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}<{{ m.content }}>{% endfor %}{{ 'briefly' if brief }}"
    )
    tokenizer, real = PromptTokenizer(folder), load_tokenizer(folder)
    forms = [
        GenerationConfig.model_validate(fields)
        for fields in (
            {},
            {"assistant_prefill": ""},
            {"system_prompt": "Be terse."},
            {"system_prompt": ""},
            {"chat_template_kwargs": {"brief": True}},
        )
    ]
    found = [encode_prompt(tokenizer, TASKS[0], form) for form in forms]
    assert found == [encode_prompt(real, TASKS[0], form) for form in forms]
    assert len(set(found)) == len(forms)


def test_another_tokenizer_file_makes_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = resolve_model(ModelConfig())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = tmp_path / "model"
    copy.mkdir()
    for path in model.iterdir():
        (copy / path.name).symlink_to(path)
    paths = [PromptTokenizer(copy)._path]
    (copy / "tokenizer_config.json").unlink()
    (copy / "tokenizer_config.json").write_text((model / "tokenizer_config.json").read_text() + "\n")
    paths.append(PromptTokenizer(copy)._path)
    assert len(set(paths)) == 2


def test_a_damaged_cache_is_encoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = resolve_model(ModelConfig())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tokenizer = PromptTokenizer(model)
    ids = encode_prompt(tokenizer, TASKS[0], ASKED)
    tokenizer.save()
    tokenizer._path.write_text("{")
    assert encode_prompt(PromptTokenizer(model), TASKS[0], ASKED) == ids
