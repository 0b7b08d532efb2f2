"""A stage of the battery for a GPU of which nearly everything goes wrong. Light: it starts at once."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.gpu.stage import Figures, Stage


class Faulty(Stage):
    """Its second part fails, the third takes too long, the last is never begun."""

    def all_parts(self) -> dict[str, Any]:
        return {"good": lambda: {"one": 1.0}, "bad": self._fail, "slow": self._sleep, "never": dict}

    def _fail(self) -> Figures:
        raise ValueError("the card | is gone")

    def _sleep(self) -> Figures:
        time.sleep(60)
        return {}
