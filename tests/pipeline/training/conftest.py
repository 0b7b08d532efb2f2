from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.tiny_model import save_model
from tests.pipeline.two_ranks import TwoRanks, two_ranks


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy, as saved; no test writes here."""
    return save_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRanks]:
    with two_ranks(tmp_path_factory.mktemp("ranks")) as started:
        yield started
