"""Writes a trained model as a folder that others load: weights, tokenizer, card, nothing of the optimiser.

Called by pipeline.hand_over.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pipeline.hub_upload import PRIVATE_FILES
from pipeline.json_file import read_object
from pipeline.merging import is_adapter_folder, merge_adapter
from pipeline.model_card import TrainedModel, write_card
from pipeline.models import adapter_base

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def export(folder: Path, out: Path, model: TrainedModel, *, dtype: str = "bfloat16") -> Path:
    """Write the model in ``folder``, a checkpoint, to ``out`` with its card; returns ``out``.

    ``dtype`` is one of DTYPES. The folder is complete or not there at all.

    Raises ValueError when ``out`` exists, or an adapter's base cannot be had.
    """
    if out.exists():
        raise ValueError(f"{out}: exists already; give a folder that does not")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    partial = out.absolute().parent / f".{out.name}-{uuid.uuid4().hex[:8]}"
    try:
        if is_adapter_folder(folder):
            merge_adapter(folder, adapter_base(folder), partial)
        else:
            ignored = shutil.ignore_patterns(*(name.partition("/")[0] for name in PRIVATE_FILES))
            shutil.copytree(folder, partial, ignore=ignored)
        _convert(partial, DTYPES[dtype])
        write_card(partial, model)
        os.replace(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return out


def _convert(folder: Path, dtype: torch.dtype) -> None:
    """Bring the weights in ``folder`` to ``dtype``, one file at a time."""
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        if any(value.is_floating_point() and value.dtype != dtype for value in tensors.values()):
            converted = {
                name: value.to(dtype) if value.is_floating_point() else value
                for name, value in tensors.items()
            }
            save_file(converted, path, metadata={"format": "pt"})
        # The library makes it readable by its owner alone.
        path.chmod(0o644)
    config = read_object(folder / "config.json")
    config["dtype"] = str(dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
