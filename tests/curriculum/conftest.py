"""The sandbox that judges the answers of a test file, started once for the file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.pool import SandboxPool


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool() as pool:
        yield pool
