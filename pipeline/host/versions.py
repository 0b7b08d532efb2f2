"""What is running here: commit of this project, versions of packages, processor."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipeline.host.device import processor_field

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 10.0


def source_commit(root: Path = _ROOT) -> str | None:
    """The commit that ``root`` is a checkout of, "+changes" where files differ from it; None without git.

    A package that was installed without its checkout has none. Results that a benchmark adds to are no code.
    """
    if not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(root, "diff", "--name-only", "HEAD", "--", ".", ":(exclude)benchmarks/results")
    return f"{commit}+changes" if changed else commit


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            # Without locks: looking must not write, and must not be in anybody's way.
            ["git", "--no-optional-locks", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def package_version(name: str) -> str:
    """The version of an installed package; empty where there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def processor_name(device: str) -> str:
    """The name of the GPU that computes, or the processor's where ``device`` is "cpu"."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name(0)
    return processor_field("model name") or platform.processor()
