"""Each thread of a process's OpenMP team stands on a core of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from configs.schema import Config
from pipeline.generation.settings import engine_cores, engine_environment

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
