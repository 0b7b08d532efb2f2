"""The safetensors files of a model folder, and the weights in them, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.host.files import read_object

if TYPE_CHECKING:
    from torch import Tensor

_INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a model folder: those of its index, or all there are; ValueError for a bad index."""
    index = folder / _INDEX
    if not index.is_file():
        return sorted(folder.glob("model*.safetensors"))
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(one, str) for one in names.values()):
        raise ValueError(f"{index}: field 'weight_map': must be an object of weight names and their files")
    return sorted(folder / name for name in set(names.values()))


def stored_files(folder: Path) -> list[Path]:
    """As ``weight_files``; ValueError where there are none."""
    found = weight_files(folder)
    if not found:
        raise ValueError(f"adapter: the base model {folder} is no folder with safetensors in it")
    return found


def base_weights(folder: Path | str) -> Iterator[tuple[str, Tensor]]:
    """Name and value of every weight in a model folder, one at a time, as stored.

    Raises ValueError when the folder holds no safetensors.
    """
    for path in stored_files(Path(folder)):
        yield from file_weights(path)


def file_weights(path: Path | str, device: str = "cpu") -> Iterator[tuple[str, Tensor]]:
    """Name and value of every weight in a safetensors file, one at a time on ``device``, as stored."""
    # Imported here: who asks for the files alone does without.
    from safetensors import safe_open

    with safe_open(path, framework="pt", device=device) as file:
        for name in file.keys():  # noqa: SIM118 (a safetensors file is no mapping)
            yield name, file.get_tensor(name)
