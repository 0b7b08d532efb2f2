from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.tiny_model import save_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy, as saved; no test writes here."""
    return save_model(tmp_path_factory.mktemp("policy"))
