"""The pinned versions can be installed with every Python that the project is for, one device at a time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).parents[1]
REQUIREMENTS = ("cpu", "gpu", "overrides", "overrides-cpu")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


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


def test_what_is_installed_for_one_device_is_installed_anew_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    for name in ("Makefile", "pyproject.toml", *(f"requirements/{one}.txt" for one in REQUIREMENTS)):
        shutil.copy2(_ROOT / name, tmp_path / name)
    programs, log = tmp_path / "env" / "bin", tmp_path / "log"
    programs.mkdir(parents=True)
    for name, script in (("python", "exit 0"), ("uv", f'echo "$@" >> {log}')):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (programs / name).chmod(0o755)

    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    def extras_installed(device: str) -> list[str]:
        log.write_text("", encoding="utf-8")
        words = ("make", "install", f"DEVICE={device}", "VENV=env", f"PYTHON={sys.executable}")
        subprocess.run(words, cwd=tmp_path, env=outside, check=True, capture_output=True)
        return re.findall(r"\.\[(\w+),dev\]$", log.read_text(encoding="utf-8"), re.MULTILINE)

    assert [extras_installed(device) for device in ("cpu", "gpu", "gpu", "cpu")] == [
        ["cpu"], ["gpu"], [], ["cpu"],
    ]  # fmt: skip
    assert "--override requirements/overrides-cpu.txt" in log.read_text(encoding="utf-8")
    later = (programs.parent / ".installed-cpu").stat().st_mtime + 10
    os.utime(tmp_path / "requirements" / "overrides-cpu.txt", (later, later))
    assert extras_installed("cpu") == ["cpu"]
    # An installation that was cut off begins again, as does one whose Python is gone.
    (programs / "uv").write_text(f'#!/bin/sh\necho "$@" >> {log}\ncase "$@" in *editable*) exit 1;; esac\n')
    with pytest.raises(subprocess.CalledProcessError):
        extras_installed("gpu")
    assert "pip uninstall" in log.read_text(encoding="utf-8")
    (programs / "uv").write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    assert extras_installed("gpu") == ["gpu"]
