from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pipeline.baseline import training
from pipeline.baseline.baseline import run_baseline
from pipeline.baseline.sampling import TrainingJob
from pipeline.record.run_folder import RunPaths
from tests.pipeline.baseline.test_baseline import runnable_config
from tests.pipeline.tiny_model import make_tokenizer
from tests.rewards.test_trl import TASKS


def test_a_tokenizer_without_a_fence_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = runnable_config(tmp_path)
    make_tokenizer().save_pretrained(config.model.name)
    measure = "pipeline.baseline.baseline._Baseline._evaluate"
    monkeypatch.setattr(measure, lambda *unused: pytest.fail("measured"))
    with pytest.raises(ValueError, match=r"generation\.stop_at_code_fence: .* has no token for a code fence"):
        run_baseline(config, verbose=False)


class FullDisk:
    """A trainer whose model does not fit."""

    def train(self) -> None: ...

    def save_model(self, folder: str) -> None:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "config.json").write_text("{}", encoding="utf-8")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_final_model_that_could_not_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = runnable_config(tmp_path)
    folder = RunPaths(tmp_path / "run")
    folder.path.mkdir()
    job = TrainingJob(
        config=config,
        folder=folder,
        model=Path(config.model.name),
        tasks=TASKS,
        device="cpu",
        is_verbose=False,
    )
    monkeypatch.setattr(training, "_trainer", lambda *unused: FullDisk())
    with pytest.raises(OSError, match="No space left") as caught:
        training.train(job)
    assert caught.value.filename == str(job.final)
    assert list(folder.checkpoints.iterdir()) == []
