"""Why a process ended, found in what it printed; the logs are cut from real ones of vLLM 0.31."""

from __future__ import annotations

import pytest

from pipeline.processes.local import last_words

LEAKS = """ - leaked function "create_store"
 - ... skipped remainder
nanobind: this is likely caused by a reference counting issue in the binding code.
See https://nanobind.readthedocs.io/en/latest/refleaks.html
"""
CORE = "(EngineCore pid=847) ERROR 11-23 18:33:38 [core.py:1433]"
IN_THE_CORE = f"""Triton is installed, but `triton.backends` could not be imported. Disabling Triton.
{CORE} Traceback (most recent call last):
{CORE}   File "vllm/model_executor/model_loader/default_loader.py", line 341, in load_weights
{CORE}     raise ValueError(
{CORE} ValueError: Following weights were not initialized: {{'model.layers.30.norm.weight'}}
Traceback (most recent call last):
  File "vllm/model_executor/model_loader/default_loader.py", line 341, in load_weights
    raise ValueError(
ValueError: Following weights were not initialized: {{'model.layers.30.norm.weight'}}
Traceback (most recent call last):
  File "vllm/v1/engine/utils.py", line 1348, in wait_for_engine_startup
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
{LEAKS}"""
IN_THE_HOST = f"""Traceback (most recent call last):
  File "pydantic/_internal/_dataclasses.py", line 121, in __init__
    s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, Model architectures ['FooForCausalLM'] are not supported for now.
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
{LEAKS}"""
CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in f
ValueError: no x
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            IN_THE_CORE,
            "ValueError: Following weights were not initialized: {'model.layers.30.norm.weight'}",
        ),
        (
            IN_THE_HOST,
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, Model architectures ['FooForCausalLM'] are not supported for now.",
        ),
        (CHAINED, "ValueError: no x"),
        (f"loading\nno room left\n{LEAKS}", "loading\nno room left"),
        ("", ""),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
    ],
)
def test_the_exception_that_ended_it_is_found(log: str, cause: str) -> None:
    assert last_words(log) == cause


def test_of_a_process_that_was_killed_the_last_lines_are_shown() -> None:
    assert last_words(f"{CHAINED}step 3", is_failure=False).splitlines()[-2:] == [
        "ValueError: no x",
        "step 3",
    ]


def test_an_exception_of_a_thousand_names_is_cut_off() -> None:
    said = last_words(f"Traceback (most recent call last):\n  File x\nValueError: {'name ' * 1000}")
    assert said.startswith("ValueError: name") and said.endswith(" ...") and len(said) <= 800
