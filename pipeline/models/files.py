"""The safetensors files of a model folder, and the weights in them, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.host.files import read_object

if TYPE_CHECKING:
    from torch import Tensor

_INDEX = "model.safetensors.index.json"
# Larger ones safetensors itself refuses.
_MAX_HEADER_BYTES = 100_000_000


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


def check_safetensors(path: Path) -> frozenset[str]:
    """The names of its tensors; ValueError, as 'FILE: what is wrong', unless ``path`` is whole by its header.

    The format: 8 bytes of length, a JSON header with the offsets of each tensor, then their bytes.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(size - 8, _MAX_HEADER_BYTES):
                raise ValueError(f"{path}: is no safetensors file, or is cut off ({size} bytes)")
            header = json.loads(file.read(length).decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError(f"{path}: is damaged: its header is no JSON object")
        ends = {name: entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"}
        if not ends:
            raise ValueError(f"{path}: holds no tensor")
        if 8 + length + max(ends.values()) != size:
            raise ValueError(f"{path}: has {size} bytes, its header says {8 + length + max(ends.values())}")
        return frozenset(ends)
    except FileNotFoundError:
        raise ValueError(f"{path}: is missing") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged: its header is no JSON ({error})") from None
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path}: is damaged: its header has no offsets ({error!r})") from None


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
