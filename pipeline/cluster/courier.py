"""Weights between the nodes of a cluster: from files into Ray's object store, and into files again.

The driver's node reads an update once, however many nodes take it; Ray copies the object from node to node.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from pipeline.messages import WeightUpdate

# The files of an update by name; "" for an update that is a single file.
Files = Mapping[str, NDArray[np.uint8]]


class Courier:
    """Holds the newest update in the object store."""

    def __init__(self) -> None:
        self._version = -1
        self._reference: Any = None

    def reference(self, update: WeightUpdate) -> Any:
        """The object with the Files of ``update``. Raises OSError where they cannot be read."""
        if self._version != update.policy_version:
            self._reference = ray.put(read_files(Path(update.path)))
            self._version = update.policy_version
        return self._reference


def read_files(path: Path) -> Files:
    """What is at ``path``, a file or a folder of files."""
    if path.is_dir():
        return {file.name: np.fromfile(file, np.uint8) for file in path.iterdir()}
    return {"": np.fromfile(path, np.uint8)}


def write_files(files: Files, update: WeightUpdate, folder: Path) -> WeightUpdate:
    """Write ``files`` into ``folder``, as the copy of ``update`` that is returned.

    Raises OSError, and leaves nothing, where there is no room.
    """
    copy = replace(update, path=str(folder / Path(update.path).name))
    path = Path(copy.path)
    try:
        if set(files) != {""}:
            path.mkdir(exist_ok=True)
        for name, content in files.items():
            (path / name if name else path).write_bytes(content.data)
    except OSError:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        raise
    return copy
