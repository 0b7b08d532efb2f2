"""The table of techniques says what is there: settings, tests, and modes that keep their promise."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from configs.explanation import beyond_mode, explain_run, states
from configs.load import MODES, resolve
from configs.techniques import BY_KEY, PROMISES, TECHNIQUES, value_at
from configs.yaml_text import dump_value

ROOT = Path(__file__).parents[2]
KEYS = list(BY_KEY)


def assignments(values: object) -> list[str]:
    assert isinstance(values, dict)
    return [f"{path}={dump_value(value)}" for path, value in values.items()]


@pytest.mark.parametrize("key", KEYS)
def test_each_technique_is_switched_on_and_off_by_its_settings(key: str) -> None:
    technique = BY_KEY[key]
    off = assignments(technique.off)
    assert not technique.is_on(resolve(overrides=off).config)
    on = resolve(overrides=[*off, *assignments(technique.on)]).config
    assert technique.is_on(on)
    assert value_at(on, technique.deciding_setting(on)) != technique.off[technique.deciding_setting(on)]


@pytest.mark.parametrize("key", KEYS)
def test_each_technique_names_a_test_that_exists(key: str) -> None:
    file, _, function = BY_KEY[key].proof.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert function in names and function.startswith("test_")


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_switches_on_no_more_than_it_promises(mode: str) -> None:
    beyond = [state.technique.name for state in states(resolve(mode=mode)) if state.is_beyond_mode]
    assert beyond == []
    assert set(PROMISES) == set(MODES)


def test_no_two_techniques_have_one_key_or_the_same_switch() -> None:
    assert len(BY_KEY) == len(TECHNIQUES)
    switches = [tuple(technique.off) for technique in TECHNIQUES]
    assert len(set(switches)) == len(switches)


def test_a_technique_that_does_nothing_says_why() -> None:
    overrides = ["grpo.beta=0.1", "generation.engine=transformers", "acceleration.speculative.enabled=true"]
    found = {state.technique.key: state for state in states(resolve(overrides=overrides))}
    assert "grpo.beta" in (found["zero_skip"].idle or "")
    assert "transformers" in (found["speculative"].idle or "")
    assert found["packing"].idle is None
    assert found["early_abort"].idle is None, "what is off is not idle"


def test_an_explanation_names_settings_origins_classes_and_tests() -> None:
    resolved = resolve(
        mode="conservative",
        overrides=["acceleration.early_abort.enabled=true"],
        profile="quick",
        flags={"training.max_steps": 9},
    )
    text = explain_run(resolved)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for expected in (
        "max_steps: 9 # command line",
        "warmup_steps: 1 # profile quick",
        "max_staleness: 0 # mode conservative",
        "top_p: 1.0 # default",
        "on approximate early abort",
        "note: beyond what the mode promises",
        "why: acceleration.early_abort.enabled: true (--set acceleration.early_abort.enabled=true)",
        "off corrected asynchrony (bounded staleness)",
        "why: acceleration.max_staleness: 0 (mode conservative)",
    ):
        assert expected in lines, expected
    for technique in TECHNIQUES:
        assert f"test: {technique.proof}" in lines


def test_what_is_on_comes_first() -> None:
    lines = explain_run(resolve()).splitlines()
    heads = [line.split()[0] for line in lines if line.startswith(("on  ", "off "))]
    assert heads == sorted(heads, reverse=True)
    assert heads.count("on") + heads.count("off") == len(TECHNIQUES)


def test_what_goes_beyond_the_mode_is_said_with_who_set_it() -> None:
    assert beyond_mode(resolve(mode="conservative")) == []
    said, *_ = beyond_mode(resolve(mode="conservative", overrides=["acceleration.max_staleness=2"]))
    assert said.startswith("acceleration.max_staleness: 2 (--set acceleration.max_staleness=2) switches on ")
    assert "which is corrected: mode conservative alone promises exact, rounds" in said
