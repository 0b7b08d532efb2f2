"""Results of a benchmark that takes hours: each is on disk when it is there, none is measured twice.

A store is the benchmark's result file itself. Results under other settings are not mixed with these. Called
by benchmarks.modes, benchmarks.quality and benchmarks.ablation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import hardware
from pipeline.host.files import write_text_atomically

_PACKAGES = ("torch", "transformers", "trl", "ray")


class ResultStore:
    """The runs in the file ``path``, by key; ``settings`` are those that make runs comparable."""

    def __init__(self, path: Path, settings: Mapping[str, Any], command: str) -> None:
        """Go on with what the file holds. Raises ValueError where it is of other settings, or is damaged."""
        self.path = path
        # As JSON gives it back: a tuple is a list.
        self._settings = json.loads(json.dumps(settings))
        self._command = command
        self._runs: dict[str, Any] = {}
        if path.exists():
            self._runs = self._read()["runs"]

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            earlier, runs = found["settings"], found["runs"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.path}: is no result of this benchmark ({error}); move it away"
            ) from error
        differ = sorted(
            name for name in {*earlier, *self._settings} if earlier.get(name) != self._settings.get(name)
        )
        if differ and runs:
            told = ", ".join(
                f"{name} was {earlier.get(name)!r}, is {self._settings.get(name)!r}" for name in differ
            )
            raise ValueError(f"{self.path}: holds runs of other settings ({told}); give another --output")
        result: dict[str, Any] = found
        return result

    def __contains__(self, key: str) -> bool:
        return key in self._runs

    def add(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep ``record``; it is on disk when this returns."""
        self._runs[key] = dict(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self.path, json.dumps(self.result(), indent=1) + "\n")

    def result(self) -> dict[str, Any]:
        """All of it."""
        return {
            "command": self._command,
            "settings": self._settings,
            "hardware": hardware(),
            "versions": {name: version(name) for name in _PACKAGES},
            "runs": dict(self._runs),
        }
