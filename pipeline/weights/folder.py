"""Where published weights lie while they travel: a folder of the run in shared memory. Needs no torch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pipeline.messages import WeightUpdate

SHARED_MEMORY = Path("/dev/shm")


def remove_weights(update: WeightUpdate) -> None:
    """Remove the files of ``update``; they may be gone already."""
    if update.kind == "adapter":
        shutil.rmtree(update.path, ignore_errors=True)
    elif update.kind == "full":
        Path(update.path).unlink(missing_ok=True)
    if update.draft_path is not None:
        Path(update.draft_path).unlink(missing_ok=True)


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
