"""A wrong input to a command: what has to come of it, whatever the command and the input.

Exit status 2; a short message on standard error that names file, field and value; no traceback; nothing on
the disk changed, not a byte, and nothing left behind.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.left_behind import nothing_left

_LONGEST = 1500
# The progress of reading a data set.
_NO_MESSAGES = ("note: ", "Generating ")
_TRAINING = ("train_accelerated", "resume")
# Locks say who runs; they are no data.
_LOCKS = frozenset({".lock", "merged.lock"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``command`` with ``arguments``, run in a folder that holds ``files``; the message has all ``says``."""

    command: Callable[[Sequence[str]], int]
    arguments: tuple[str, ...]
    says: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    # A dry run does not ask it.
    needs_hub: bool = False


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """``files`` below ``folder``; a name that ends with a slash is an empty folder."""
    for name, data in files.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below ``folder`` with its bytes, and every folder; Python's own bytecode is nobody's."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.name not in _LOCKS and "__pycache__" not in path.parts
    }


def refuse(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run ``case`` in ``folder``, where other files may be, and hold what comes of it against the rules.

    Returns what was said.

    What training refuses its dry run refuses in the same words.
    """
    write_files(folder, case.files)
    before = tree(folder)
    said = _refuse_once(case, folder, capsys)
    if case.command.__name__ in _TRAINING and not case.needs_hub:
        _refuse_once(replace(case, arguments=(*case.arguments, "--dry-run")), folder, capsys)
    assert tree(folder) == before
    return said


def _refuse_once(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.MonkeyPatch.context() as patch, nothing_left() as temporary:
        patch.chdir(folder)
        patch.setenv("TMPDIR", temporary)
        patch.setattr(tempfile, "tempdir", None)
        patch.setattr(sys, "path", [*sys.path])
        try:
            status = case.command(case.arguments)
        except SystemExit as stop:
            assert isinstance(stop.code, int), f"no exit status but {stop.code!r}"
            status = stop.code
        finally:
            # Modules of this folder: the next case has others of these names.
            for name, module in [*sys.modules.items()]:
                if str(getattr(module, "__file__", None)).startswith(f"{folder}/"):
                    del sys.modules[name]
    said = capsys.readouterr().err
    assert status == 2, f"exit status {status}: {said}"
    lines = [line for line in said.splitlines() if line and not line.startswith(_NO_MESSAGES)]
    assert lines and all(line.startswith("error: ") for line in lines), said
    assert "Traceback" not in said and len(said) < _LONGEST, said
    for part in case.says:
        assert part in said, f"{part!r} is not in: {said}"
    return said
