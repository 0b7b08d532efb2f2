"""One pool for the tests that do not kill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.pool import SandboxPool


@pytest.fixture(scope="session")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool() as shared:
        yield shared
