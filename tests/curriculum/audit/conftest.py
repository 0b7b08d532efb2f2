from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.pool import SandboxPool


@pytest.fixture(scope="session")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1) as pool:
        yield pool
