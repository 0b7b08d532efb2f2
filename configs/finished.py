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
from configs.schema import Config
from configs.yaml_text import read_mapping

# Fields that may name a file, and a name that stands for it while the rest is checked.
_FILES = (("dataset", "name", "ladder"), ("evaluation", "tasks", "ladder-heldout"))


def load_finished(file: Path, before: Mapping[str, object] = MappingProxyType({})) -> Config:
    """The configuration in ``file``, or as it was ``before``, which has values by their dotted paths.

    Raises ConfigError as ``load_config``, but for files of tasks.
    """
    values = read_mapping(file)
    lost = [
        (section, field, stand_in, name)
        for section, field, stand_in in _FILES
        if _is_lost(name := before.get(f"{section}.{field}", _value(values, section, field)))
    ]
    stand_ins = {f"{section}.{field}": name for section, field, name, _ in lost}
    config = load_config(file, flags={**before, **stand_ins})
    for section, field, _, name in lost:
        changed = getattr(config, section).model_copy(update={field: name})
        config = config.model_copy(update={section: changed})
    return config


def _value(values: dict[str, Any], section: str, field: str) -> object:
    found = values.get(section)
    return found.get(field) if isinstance(found, dict) else None


def _is_lost(name: object) -> bool:
    return isinstance(name, str) and name.endswith((".jsonl", ".jsonl.gz")) and not Path(name).is_file()
