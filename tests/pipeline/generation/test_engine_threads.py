"""An engine on a CPU keeps to its threads, each on a core of its own, and they take none from the trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from configs.schema import Config
from pipeline.generation.settings import engine_cores, engine_environment
from pipeline.generation.transformers_engine import TransformersEngine
from tests.pipeline.tiny_model import save_model

PROGRAM = """
import os, torch
from pathlib import Path
from pipeline.generation.settings import bind_threads
cores = {cores}
fault = bind_threads(cores)
values = torch.ones(1_000_000)
assert float((values * 2).sum()) == 2e6
masks = [os.sched_getaffinity(int(path.name)) for path in Path("/proc/self/task").iterdir()]
print(fault or sorted(next(iter(mask)) for mask in masks if len(mask) == 1))
"""


def run(program: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_each_thread_has_its_core() -> None:
    cores = tuple(sorted(os.sched_getaffinity(0)))
    assert run(PROGRAM.format(cores=cores), engine_environment(Config(), "cpu")) == str(list(cores))


def test_without_openmp_nothing_is_bound_and_the_reason_is_given() -> None:
    program = "from pipeline.generation.settings import bind_threads; print(bind_threads((0,)))"
    assert run(program, {"LD_PRELOAD": ""}) == "torch's GNU OpenMP was not preloaded"


def test_engines_share_the_cores_out_and_none_is_bound_where_cores_are_left() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert engine_cores(Config(), 0) == tuple(cores)
    halves = Config.model_validate({"generation": {"num_engines": 2}})
    if len(cores) % 2 == 0:
        half = len(cores) // 2
        assert engine_cores(halves, 0) == tuple(cores[:half])
        assert engine_cores(halves, 1) == tuple(cores[half:])
    one = Config.model_validate({"runtime": {"generator_threads": 1}})
    assert engine_cores(one, 0) == (() if len(cores) > 1 else (cores[0],))


def test_the_portable_engine_keeps_to_its_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    config = Config.model_validate(
        {
            "generation": {"engine": "transformers", "dtype": "float32"},
            "runtime": {"generator_threads": 1},
        }
    )
    try:
        torch.set_num_threads(2)
        TransformersEngine(config, str(save_model(tmp_path)), "cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("of_the_user", "expected"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")]
)
def test_threads_of_the_driver_do_not_spin_unless_the_user_says_so(
    of_the_user: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    program = (
        "import os, sys; from configs.schema import Config; from pipeline.run.early_start import launched\n"
        "config = Config.model_validate({'generation': {'engine': 'transformers'}})\n"
        "with launched(config): print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    )
    # OpenMP reads it when torch is loaded.
    assert run(program, of_the_user) == f"{expected} False"
