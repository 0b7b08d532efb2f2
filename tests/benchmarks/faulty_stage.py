"""A stage of the battery for a GPU of which nearly everything goes wrong. Light: it starts at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from benchmarks.gpu.stage import Figures, Stage


class Faulty(Stage):
    """Its second part fails, the third takes too long, the last is never begun."""

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        return {"good": lambda: {"one": 1.0}, "bad": self._fail, "slow": self._sleep, "never": dict}

    def measure(self, part: str) -> Figures:
        """As a stage's, which imports torch to empty the card."""
        return self.all_parts()[part]()

    def _fail(self) -> Figures:
        raise ValueError("the card | is gone")

    def _sleep(self) -> Figures:
        time.sleep(60)
        return {}
