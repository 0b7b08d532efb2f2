"""Where MBPP's file lies, for the tests that read it; they are skipped where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared" / "data" / "mbpp.jsonl"
MBPP = Path(os.environ.get("CODE_GRPO_MBPP", _BESIDE_THE_CHECKOUT))
without_mbpp = pytest.mark.skipif(
    not MBPP.is_file(), reason=f"MBPP file {MBPP} is absent: set CODE_GRPO_MBPP to its path"
)
