"""The user's cache folder of this project. Called by whatever keeps something there from run to run."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """``$XDG_CACHE_HOME`` or ``~/.cache``, then code-grpo; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "code-grpo"
