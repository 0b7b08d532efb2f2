"""One pool for the tests that do not kill it, and one of several workers for those that run much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.pool import SandboxPool
from tests.sandbox.programs import NUM_WORKERS


@pytest.fixture(scope="session")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool() as shared:
        yield shared


@pytest.fixture(scope="module")
def workers() -> Iterator[SandboxPool]:
    with SandboxPool(NUM_WORKERS) as made:
        yield made
