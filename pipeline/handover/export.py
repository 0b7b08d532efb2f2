"""A trained model for others: a folder with weights, tokenizer and card, and the same on the hub.

``export`` writes the folder, with nothing of the optimiser in it. ``refuse_push`` says before a run begins
why nothing can be uploaded; ``push`` uploads. Imports torch only to convert weights: the driver of a run,
which asks for the rest, does without it.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.constants import is_offline_mode
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id

from configs.errors import ConfigError, Problem
from pipeline.errors import StageError
from pipeline.handover.card import TrainedModel, write_card
from pipeline.host.files import read_object

DTYPES = ("bfloat16", "float32")


def export(folder: Path, out: Path, model: TrainedModel, *, dtype: str = "bfloat16") -> Path:
    """Write the model in ``folder``, a checkpoint, to ``out`` with its card; returns ``out``.

    ``dtype`` is one of DTYPES. The folder is complete or not there at all.

    Raises ValueError when ``out`` exists, or an adapter's base cannot be had.
    """
    from pipeline.models.check import is_adapter_folder
    from pipeline.models.find import adapter_base
    from pipeline.models.merging import merge_adapter

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
        _convert(partial, dtype)
        write_card(partial, model)
        os.replace(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return out


def _convert(folder: Path, name: str) -> None:
    """Bring the weights in ``folder`` to the type called ``name``, one file at a time."""
    import torch
    from safetensors.torch import load_file, save_file

    dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        if any(value.is_floating_point() and value.dtype != dtype for value in tensors.values()):
            converted = {
                key: value.to(dtype) if value.is_floating_point() else value for key, value in tensors.items()
            }
            save_file(converted, path, metadata={"format": "pt"})
        # The library makes it readable by its owner alone.
        path.chmod(0o644)
    config = read_object(folder / "config.json")
    config["dtype"] = name
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


# What a run keeps beside a model, and nobody needs who only uses it.
PRIVATE_FILES = ("trainer.pt", "state.json", "merged/*", "merged.lock", ".*")


def refuse_push(name: str, field: str = "output.push_to_hub") -> None:
    """Raise ConfigError where nothing can be uploaded as ``name``: no OWNER/NAME, no token, or offline."""
    fault = allowed = ""
    try:
        validate_repo_id(name)
        if name.count("/") != 1:
            fault, allowed = f"{name!r} is no hub id", "OWNER/NAME, such as jane/my-coder"
    except HFValidationError as error:
        fault, allowed = f"{name!r} is no hub id ({error})", "OWNER/NAME, such as jane/my-coder"
    if not fault and is_offline_mode():
        fault, allowed = f"{name!r}, but HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE, or leave this out"
    if not fault and get_token() is None:
        fault = f"{name!r}, but there is no token for the hub"
        allowed = "with a token that may write: hf auth login, or HF_TOKEN in the environment"
    if fault:
        raise ConfigError([Problem(field=field, fault=fault, allowed=allowed)])


def push(folder: Path, name: str, *, is_private: bool = True, endpoint: str | None = None) -> str:
    """Upload ``folder`` as one commit to the model repository ``name``, made where there is none; its URL.

    Raises StageError, naming the repository, when the hub refuses or cannot be reached.
    """
    api = HfApi(endpoint=endpoint)
    try:
        api.create_repo(name, private=is_private, exist_ok=True)
        done = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message="Trained with code-grpo",
            ignore_patterns=list(PRIVATE_FILES),
        )
    except (httpx.HTTPError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines() or [""]
        raise StageError(
            f"--push-to-hub: {name!r} was not uploaded ({type(error).__name__}: {reason[0]}); the model is "
            f"kept, try again with: python -m pipeline hand-over RUN_DIR --push-to-hub {name}"
        ) from error
    return str(done.repo_url)
