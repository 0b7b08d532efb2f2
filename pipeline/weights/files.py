"""Publish weights: files in shared memory that generators load between two tokens.

All weights are one safetensors file with Hugging Face's names, so that a receiver needs nothing but its own
loader; adapters are a folder in PEFT's layout. The trainer's process writes them to a folder of the run, the
engines read them. Imports torch only to write: the run's driver, which makes the folder and removes what was
loaded, does without it. Does not decide when to publish or when to load.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from pipeline.host.files import passing_folder, written_whole
from pipeline.messages import WeightUpdate
from pipeline.weights.receipts import noted

if TYPE_CHECKING:
    import torch

_SHARED_MEMORY = Path("/dev/shm")


def write_weights(
    named_tensors: Iterable[tuple[str, torch.Tensor]],
    path: str,
    policy_version: int,
    dtype: torch.dtype,
) -> WeightUpdate:
    """Write the tensors in ``dtype`` to ``path``, atomically; a tied output head is not among them.

    Raises:
        OSError: the file cannot be written (the file system is full); the message names the folder and
            the bytes needed.
    """
    # Imported here, as below: see above.
    from safetensors.torch import save_file

    tensors, receipt = _on_host(named_tensors, dtype, policy_version)
    with _reported(path, tensors) as temporary:
        save_file(tensors, temporary)
    return WeightUpdate(policy_version=policy_version, path=path, receipt=receipt)


def write_adapter(
    named_tensors: Iterable[tuple[str, torch.Tensor]],
    config: Mapping[str, Any],
    path: str,
    policy_version: int,
    dtype: torch.dtype,
) -> WeightUpdate:
    """Write adapters in ``dtype`` to the folder ``path`` in PEFT's layout, atomically.

    ``named_tensors`` have PEFT's names, ``config`` is what adapter_config.json shall hold (see
    pipeline.training.adapters). Raises OSError as ``write_weights``.
    """
    from pipeline.models.merging import adapter_scale, write_adapter_files

    tensors, receipt = _on_host(named_tensors, dtype, policy_version, scale=adapter_scale(config))
    with _reported(path, tensors) as temporary:
        temporary.mkdir()
        write_adapter_files(temporary, config, tensors)
    return WeightUpdate(policy_version=policy_version, path=path, kind="adapter", receipt=receipt)


def _on_host(
    named_tensors: Iterable[tuple[str, torch.Tensor]],
    dtype: torch.dtype,
    policy_version: int,
    *,
    scale: float = 1.0,
) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """The tensors in ``dtype`` on the host, and their receipt.

    One by one, so a GPU never holds them all; rounded and looked at there, so that half of the bytes travel.
    """
    receipt: dict[str, int] = {}
    rounded = ((name, tensor.detach().to(dtype)) for name, tensor in named_tensors)
    seen = noted(rounded, policy_version, receipt, scale=scale)
    return {name: tensor.cpu().contiguous() for name, tensor in seen}, receipt


@contextmanager
def _reported(path: str, tensors: Mapping[str, torch.Tensor]) -> Iterator[Path]:
    """As ``written_whole``; what cannot be written is an OSError with the folder and the bytes needed."""
    try:
        with written_whole(Path(path)) as temporary:
            yield temporary
    # safetensors reports a full file system as its own error.
    except (OSError, SafetensorError) as error:
        num_bytes = sum(tensor.nbytes for tensor in tensors.values())
        raise OSError(f"cannot write {num_bytes} bytes of weights to {Path(path).parent}: {error}") from error


def remove_weights(update: WeightUpdate) -> None:
    """Remove the files of ``update``; they may be gone already."""
    if update.kind == "adapter":
        shutil.rmtree(update.path, ignore_errors=True)
    elif update.kind == "full":
        Path(update.path).unlink(missing_ok=True)


def remove_all_weights(folder: Path) -> None:
    """Remove what is in ``folder``: the files of all updates, and what was left half-written."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def shared_folder(run_name: str) -> Iterator[Path]:
    """A folder for weight files of one run: in shared memory where there is some, else in /tmp.

    It is removed at the end; those that killed runs left behind are removed first. Containers may share the
    memory, so a run's life is told by its lock: they number their processes alike.
    """
    base = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK) else Path("/tmp")
    with passing_folder(base, f"code-grpo-weights-{os.getuid()}-", f"{run_name}-") as own:
        # Beside the lock: what is in it may all be removed.
        folder = own / "weights"
        folder.mkdir()
        yield folder
