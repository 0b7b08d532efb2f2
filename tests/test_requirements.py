"""The pinned versions can be installed with every Python that the project is for."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")


def pins(device: str) -> dict[str, str]:
    """Name and version of each line."""
    lines = (_ROOT / "requirements" / f"{device}.txt").read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([\w.-]+)==([\w.!+-]+)", line) for line in lines)
    return {canonicalize_name(match[1]): match[2] for match in found if match}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_no_pin_is_refused_by_what_is_installed_for_another_python(device: str, python: str) -> None:
    """What an installed package asks for only from some Python on, vLLM's limit of setuptools for one."""
    pinned, refused, num_seen = pins(device), [], 0
    for distribution in distributions():
        for text in distribution.requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or "python_version" not in str(wanted.marker):
                continue
            version = pinned.get(canonicalize_name(wanted.name))
            environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
            if version is None or not wanted.marker.evaluate(environment):
                continue
            num_seen += 1
            if not wanted.specifier.contains(version, prereleases=True):
                refused.append(f"{distribution.name} wants {text}, pinned is {version}")
    assert num_seen > 3
    assert refused == []
