"""Where compiled kernels are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.generation.settings import compile_cache


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
