"""Tests may be coroutines; and one vLLM for all of them: its start costs more than they ask of it."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from configs.schema import Config
from pipeline.generation.vllm_generator import VllmGenerator, start_vllm_generator
from pipeline.models.find import resolve_model

_LIMIT_S = 120.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine in an event loop of its own; other tests are left to pytest."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    mark = pyfuncitem.get_closest_marker("timeout")
    asyncio.run(asyncio.wait_for(test(**arguments), _LIMIT_S if mark is None else mark.args[0]))
    return True


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of the test's own, in a short path: engines' sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="cache-") as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        yield Path(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEngine:
    """A started vLLM, the folder of its model, and the loop that talks to it."""

    generator: VllmGenerator
    model_path: Path
    loop: asyncio.AbstractEventLoop


@pytest.fixture(scope="module")
def vllm_engine() -> Iterator[RunningEngine]:
    """Of the built-in model, in fp32."""
    config = Config.model_validate(
        {"generation": {"dtype": "float32", "max_completion_length": 128, "max_num_seqs": 16}}
    )
    with running_engine(config, resolve_model(config.model)) as engine:
        yield engine


@contextmanager
def running_engine(config: Config, model_path: Path) -> Iterator[RunningEngine]:
    """A vLLM for a block."""
    loop = asyncio.new_event_loop()
    generator = loop.run_until_complete(start_vllm_generator(config, str(model_path), "cpu"))
    yield RunningEngine(generator=generator, model_path=model_path, loop=loop)
    loop.run_until_complete(generator.close())
    loop.close()
