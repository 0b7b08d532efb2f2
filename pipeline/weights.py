"""Publish weights: a safetensors file in shared memory that generators load between two tokens.

The trainer calls ``write_weights``; the vLLM side (pipeline.vllm_weights) and the Transformers engine
read the file. Names are Hugging Face's, so that a receiver needs nothing but its own loader. Does not
decide when to publish or when to load.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from pipeline.messages import WeightUpdate

SHARED_MEMORY = Path("/dev/shm")


def write_weights(
    named_tensors: Iterable[tuple[str, torch.Tensor]],
    path: str,
    policy_version: int,
    dtype: torch.dtype = torch.bfloat16,
) -> WeightUpdate:
    """Write the tensors in ``dtype`` to ``path``, atomically.

    Tensors that share storage with an earlier one (a tied output head) are left out: the receiver ties
    them itself.

    Raises:
        OSError: the file cannot be written (the file system is full); the message names the folder and
            the bytes needed.
    """
    tensors: dict[str, torch.Tensor] = {}
    # Holding the sources keeps the address of one that was made for us from being given to another.
    seen: dict[int, torch.Tensor] = {}
    for name, tensor in named_tensors:
        if tensor.data_ptr() in seen:
            continue
        seen[tensor.data_ptr()] = tensor
        tensors[name] = tensor.detach().to(device="cpu", dtype=dtype).contiguous()
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        save_file(tensors, temporary)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        # safetensors reports a full file system as its own error.
        if isinstance(error, OSError | SafetensorError):
            raise OSError(
                f"cannot write {num_bytes} bytes of weights to {Path(path).parent}: {error}"
            ) from error
        raise
    return WeightUpdate(policy_version=policy_version, path=path, num_bytes=num_bytes)


def shared_folder(run_name: str) -> Path:
    """A folder for weight files of one run: in shared memory where there is some, else in /tmp.

    Folders that killed runs left behind are removed first.
    """
    base = SHARED_MEMORY if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK) else Path("/tmp")
    prefix = f"code-grpo-{os.getuid()}-"
    for left_over in base.glob(f"{prefix}*"):
        pid = left_over.name.rpartition("-")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left_over, ignore_errors=True)
    folder = base / f"{prefix}{run_name}-{os.getpid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
