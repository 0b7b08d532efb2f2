"""The configuration of a run that is over, read from its folder: what it was trained on may be gone by now.

A run that begins needs its files of tasks, so a configuration that names one which is not there is refused;
who only looks back at a run does not need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from configs.load import load_config
from configs.rewards_schema import PRESETS
from configs.schema import Config
from configs.task_sets import task_set_problems
from configs.yaml_text import read_mapping

# Fields that may name a file, and a name that stands for it while the rest is checked.
_FILES = (("dataset", "name", "lost/set"), ("evaluation", "tasks", "ladder-heldout"))


def load_finished(file: Path, before: Mapping[str, object] = MappingProxyType({})) -> Config:
    """The configuration in ``file``, or as it was ``before``, which has values by their dotted paths.

    Raises ConfigError as ``load_config``, but for files of tasks.
    """
    lost = stand_ins(file, before)
    values = read_mapping(file)
    config = load_config(file, flags={**_beside_preset(values, before), **before, **lost})
    for section, field, _ in _FILES:
        if f"{section}.{field}" in lost:
            name = _named(values, section, field, before)
            changed = getattr(config, section).model_copy(update={field: name})
            config = config.model_copy(update={section: changed})
    return config


def stand_ins(file: Path, before: Mapping[str, object] = MappingProxyType({})) -> dict[str, object]:
    """By their dotted paths, names for the files of tasks in the configuration ``file`` that are gone."""
    values = read_mapping(file)
    return {
        f"{section}.{field}": name
        for section, field, name in _FILES
        if _is_lost(_named(values, section, field, before))
    }


def _beside_preset(values: Mapping[str, Any], before: Mapping[str, object]) -> dict[str, object]:
    """By their paths, the ``values`` of all that presets set, where another preset was named ``before``."""
    rewards = values.get("rewards")
    if "rewards.preset" not in before or not isinstance(rewards, dict):
        return {}
    found: dict[str, object] = {}
    for key in {key for preset in PRESETS.values() for key in preset} & rewards.keys():
        if isinstance(value := rewards[key], dict):
            found |= {f"rewards.{key}.{name}": one for name, one in value.items()}
        else:
            found[f"rewards.{key}"] = value
    return found


def _named(values: dict[str, Any], section: str, field: str, before: Mapping[str, object]) -> object:
    return before.get(f"{section}.{field}", _value(values, section, field))


def _value(values: dict[str, Any], section: str, field: str) -> object:
    found = values.get(section)
    return found.get(field) if isinstance(found, dict) else None


def _is_lost(name: object) -> bool:
    """Whether it is none that can be had today, such as a file or a folder that is gone."""
    return isinstance(name, str) and bool(task_set_problems("", name))
