"""What a benchmark's command leaves in the process of the tests is taken back."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def handler_of_sigterm() -> Iterator[None]:
    """Commands end on SIGTERM by an exception, which would come up in another test."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
