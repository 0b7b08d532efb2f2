"""Where compiled kernels of an engine are kept, so that a later start finds them.

An engine with ``generation.enforce_eager`` off compiles the model at its first start, for a minute or more.
vLLM and torch name what they compile by all that it depends on, so the folder may serve every model and
version; it is the user's to delete. Called by pipeline.engine_environment.
"""

from __future__ import annotations

import os

from pipeline.user_cache import cache_root

_FOLDERS = {"VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor"}


def compile_cache() -> dict[str, str]:
    """The variables that say so; what the user has set for himself stays."""
    root = cache_root() / "compiled"
    return {name: os.environ.get(name, str(root / folder)) for name, folder in _FOLDERS.items()}
