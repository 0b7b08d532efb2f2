"""The linter and the type checker of a test file, started once for the file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rewards.lint import Linter
from rewards.type_check import TypeChecker


@pytest.fixture(scope="module")
def linter() -> Iterator[Linter]:
    with Linter() as instance:
        yield instance


@pytest.fixture(scope="module")
def checker() -> Iterator[TypeChecker]:
    with TypeChecker(timeout_s=60.0) as instance:
        yield instance
