"""A setting that nothing reads is a lie: every field of the schema is read by some stage, or refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from configs.schema import Config, RewardWeights

ROOT = Path(__file__).parent.parent
STAGES = ("sandbox", "curriculum", "rewards", "pipeline")

# Single settings that the schema holds at their default.
REFUSED_FIELDS = ("execution.allow_network",)
# Read by a property of Config, which stages call: field -> property.
READ_BY_PROPERTY = {
    "training.per_device_train_batch_size": "completions_per_step",
    "training.gradient_accumulation_steps": "completions_per_step",
}
# Stands for the values of other fields, which are read.
EXPANDED_BY_THE_SCHEMA = ("rewards.preset",)
# Sections that a stage reads under another local name: section -> names.
OTHER_NAMES = {"execution": {"config"}}
# Read whole, through model_dump(), by the name that the breakdown uses.
DUMPED_SECTIONS = ("rewards.weights",)


def leaf_fields(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields that are no section."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from leaf_fields(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def reads_in(source: str) -> set[tuple[str, str]]:
    """``(owner, name)`` of every attribute read: ``self._config.grpo.beta`` gives ("grpo", "beta")."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            value = node.value
            if isinstance(value, ast.Attribute):
                found.add((value.attr.lstrip("_"), node.attr))
            elif isinstance(value, ast.Name):
                found.add((value.id.lstrip("_"), node.attr))
    return found


def is_read(field: str, reads: set[tuple[str, str]]) -> bool:
    """Whether ``reads`` has the field, as an attribute of something named as its section."""
    *sections, name = field.split(".")
    owners = {sections[-1], *OTHER_NAMES.get(sections[-1], ())}
    return any((owner, name) in reads for owner in owners)


def stage_reads() -> set[tuple[str, str]]:
    files = [path for stage in STAGES for path in (ROOT / stage).rglob("*.py")]
    return {read for path in files for read in reads_in(path.read_text())}


def test_every_setting_is_read_by_a_stage_or_refused() -> None:
    reads = stage_reads()
    excused = (*REFUSED_FIELDS, *READ_BY_PROPERTY, *EXPANDED_BY_THE_SCHEMA)
    unread = [
        field
        for field in leaf_fields()
        if field not in excused
        and not field.startswith(tuple(f"{section}." for section in DUMPED_SECTIONS))
        and not is_read(field, reads)
    ]
    assert unread == [], "nothing reads these settings: build them or take them out"


def test_every_excuse_names_a_field_that_exists() -> None:
    fields = set(leaf_fields())
    assert fields.issuperset({*REFUSED_FIELDS, *READ_BY_PROPERTY, *EXPANDED_BY_THE_SCHEMA})
    for section in DUMPED_SECTIONS:
        assert any(field.startswith(f"{section}.") for field in fields)


@pytest.mark.parametrize("field", REFUSED_FIELDS)
def test_a_setting_that_nothing_reads_cannot_be_switched_on(field: str) -> None:
    *sections, name = field.split(".")
    values: dict[str, object] = {name: True}
    for section in reversed(sections):
        values = {section: values}
    with pytest.raises(ValueError, match="true is not allowed; allowed: false"):
        Config.model_validate(values)


@pytest.mark.parametrize(("field", "property_name"), READ_BY_PROPERTY.items())
def test_a_setting_behind_a_property_changes_it_and_stages_read_the_property(
    field: str, property_name: str
) -> None:
    section, name = field.split(".")
    changed = Config.model_validate({section: {name: 16}})
    assert getattr(changed, property_name) != getattr(Config(), property_name)
    assert ("config", property_name) in stage_reads()


def test_a_preset_changes_fields_that_are_read() -> None:
    plain = Config().rewards.model_dump()
    changed = Config.model_validate({"rewards": {"preset": "tests_only"}}).rewards.model_dump()
    different = {f"rewards.{name}" for name in plain if plain[name] != changed[name]}
    assert different == {
        *EXPANDED_BY_THE_SCHEMA,
        *DUMPED_SECTIONS,
        "rewards.tests",
        "rewards.syntax_failure_reward",
    }


def test_reward_weights_are_read_as_a_whole() -> None:
    """rewards.rubric multiplies each part of the breakdown by the weight of the same name."""
    source = (ROOT / "rewards" / "rubric.py").read_text()
    assert ("weights", "model_dump") in reads_in(source)
    strings = {
        node.value
        for path in (ROOT / "rewards").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert strings.issuperset(RewardWeights.model_fields)


def test_a_setting_that_nothing_reads_is_found() -> None:
    reads = reads_in("beta = self._config.grpo.beta\ntext.split('x')\nconfig.dataset.name = 1")
    assert is_read("grpo.beta", reads)
    assert not is_read("grpo.epsilon", reads)
    assert not is_read("dataset.split", reads), "str.split is not the setting"
    assert not is_read("dataset.name", reads), "an assignment is not a read"
