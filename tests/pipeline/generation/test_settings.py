"""What an engine is told of speculation, whether it is compiled, and where it keeps compiled kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.schema import Config
from pipeline.generation.resident import engine_identity
from pipeline.generation.settings import (
    compile_cache,
    engine_environment,
    engine_settings,
    speculation_settings,
)
from tests.pipeline.tiny_model import save_model


def config_with(**speculative: object) -> Config:
    return Config.model_validate({"acceleration": {"speculative": {"enabled": True, **speculative}}})


def test_without_speculation_the_engine_hears_nothing_of_it() -> None:
    assert speculation_settings(Config()) is None


def test_every_setting_reaches_the_engine() -> None:
    settings = speculation_settings(config_with(method="ngram", num_tokens=5, dynamic=False, history_mb=0.5))
    assert settings is not None
    assert (settings.method, settings.num_tokens, settings.dynamic) == ("ngram", 5, False)
    assert settings.history_mb == 0.5
    assert settings.draft_model is None


@pytest.mark.parametrize("trust", [False, True])
def test_code_that_comes_with_a_model_is_trusted_by_the_engine_as_by_the_trainer(trust: bool) -> None:
    config = Config.model_validate({"model": {"trust_remote_code": trust}})
    settings = engine_settings(config, "model", "cpu")
    assert settings.arguments["trust_remote_code"] is trust
    assert engine_identity(settings, {})["engine.trust_remote_code"] == repr(trust)


def test_a_draft_model_is_found_on_disk_before_the_engine_starts(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "draft")
    settings = speculation_settings(config_with(method="draft_model", dynamic=False, draft_model=str(folder)))
    assert settings is not None
    assert settings.draft_model == str(folder)


def test_a_draft_model_that_is_not_there_is_named_by_its_setting() -> None:
    config = config_with(method="draft_model", dynamic=False, draft_model="./nowhere")
    with pytest.raises(ValueError, match=r"acceleration\.speculative\.draft_model: no such folder"):
        speculation_settings(config)


@pytest.mark.parametrize(
    ("speculative", "complaint"),
    [
        ({"method": "draft_model", "dynamic": False}, "draft_model"),
        ({"method": "history", "draft_model": "some/model"}, "draft_model"),
        ({"method": "draft_model", "draft_model": "some/model", "dynamic": True}, "dynamic"),
    ],
)
def test_what_does_not_go_together_is_refused(speculative: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=rf"speculative\s+Value error, {complaint}: "):
        config_with(**speculative)


def test_compiled_kernels_are_kept_with_the_projects_cache_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/elsewhere")
    assert compile_cache() == {
        "VLLM_CACHE_ROOT": "/elsewhere",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "code-grpo" / "compiled" / "inductor"),
    }


@pytest.mark.parametrize(
    ("device", "enforce_eager", "is_eager"),
    [("cpu", None, True), ("cpu", False, False), ("cuda", None, False), ("cuda", True, True)],
)
def test_an_engine_is_compiled_on_a_gpu_and_not_on_a_cpu_unless_the_user_says_otherwise(
    device: str, enforce_eager: bool | None, is_eager: bool
) -> None:
    config = Config.model_validate({"generation": {"enforce_eager": enforce_eager, "dtype": "bfloat16"}})
    assert engine_settings(config, "model", device).arguments["enforce_eager"] is is_eager
    assert ("VLLM_CACHE_ROOT" in engine_environment(config, device)) is not is_eager
