"""Which commit of this project is running, for summaries and model cards. Called by pipeline.summary."""

from __future__ import annotations

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_TIMEOUT_S = 10.0


def source_commit(root: Path = _ROOT) -> str | None:
    """The commit that ``root`` is a checkout of, "+changes" where files differ from it; None without git.

    A package that was installed without its checkout has none.
    """
    if not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    if not commit:
        return None
    return f"{commit}+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit


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
