"""Tests marked ``gpu`` run only where torch sees a CUDA device; no run writes to the user's trackio."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest
import torch

from sandbox.pool import SandboxPool

# Read when trackio is imported, in whatever process.
_TRACKIO = tempfile.TemporaryDirectory(prefix="code-grpo-trackio-")
os.environ["TRACKIO_DIR"] = _TRACKIO.name
# Likewise: without a network the hub's library tries for 23 seconds, each time that it is asked.
os.environ["HF_HUB_OFFLINE"] = "1"
# Of two processes on two cores, one whose threads spin at a barrier takes the other's core.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
# How long an example takes says something of the machine only.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
# Two files of tests run at once (make test): each has its share of the cores.
torch.set_num_threads(
    max(1, torch.get_num_threads() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Files that take long go first: what stands last, one worker runs alone (make test).
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


@pytest.fixture(scope="module", autouse=True)
def ray_is_gone() -> Iterator[None]:
    """A Ray that a test file leaves behind would answer the next one."""
    yield
    ray = sys.modules.get("ray")
    assert ray is None or not ray.is_initialized()


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a network: for a hub of the test's own, or a library that asks if there is one."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    """Judges the answers of a test file, started once for the file."""
    with SandboxPool() as pool:
        yield pool
