"""Uploads a model folder to the Hugging Face hub, or says in time why it cannot.

``refuse_push`` is asked before a run begins; ``push`` is called when it is over. Writes no files. Called by
pipeline.hand_over and by the two trainers' ends.
"""

from __future__ import annotations

from pathlib import Path

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.constants import is_offline_mode
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id

from configs.errors import ConfigError, Problem
from pipeline.errors import StageError

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
            f"kept, try again with: python -m pipeline.hand_over RUN_DIR --push-to-hub {name}"
        ) from error
    return str(done.repo_url)
