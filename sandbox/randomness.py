"""What programs draw at random without a seed of their own: the same in each run.

And never the same for a candidate as for its judge, whose test program may draw what it expects: the judge
draws from its test source, which no candidate sees. What the system gives (``secrets``,
``random.SystemRandom()``, generators made without a seed) is as random as ever.
"""

from __future__ import annotations

import importlib
import random
import sys

_NUMPY = "numpy.random"


def load() -> None:
    """Load what is seeded, where programs may import it; at its first use it would seed itself."""
    if "numpy" in sys.modules:
        importlib.import_module(_NUMPY)


def seed(text: str) -> None:
    """Seed the generators that all of a process shares."""
    random.seed(text.encode("utf-8", "surrogatepass"))
    if _NUMPY in sys.modules:
        sys.modules[_NUMPY].seed(random.getrandbits(32))
