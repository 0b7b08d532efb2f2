"""What the card and its driver are, as nvidia-smi tells it: no context is made on the card for that."""

from __future__ import annotations

import subprocess
from typing import Any

from benchmarks.report import circumstances

_PACKAGES = ("torch", "transformers", "vllm", "trl", "ray", "peft", "pydantic", "triton")


def gpu_circumstances() -> dict[str, Any]:
    """``hardware`` and ``versions`` of benchmarks.report, with the cards, their memory and CUDA's version."""
    # Imported here: it takes seconds.
    import torch

    found = circumstances(*_PACKAGES)
    cards = [
        dict(zip(("name", "driver", "memory_mb"), line.split(", "), strict=True))
        for line in _ask("name,driver_version,memory.total")
    ]
    found["hardware"]["gpus"] = cards
    found["versions"] |= {"torch": torch.__version__, "cuda": torch.version.cuda or "none"}
    return found


def used_mb() -> int:
    """Memory of all cards that is in use."""
    return sum(int(line) for line in _ask("memory.used"))


def _ask(fields: str) -> list[str]:
    try:
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except OSError:
        return []
    return [line.strip() for line in said.stdout.splitlines() if line.strip()] if said.returncode == 0 else []
