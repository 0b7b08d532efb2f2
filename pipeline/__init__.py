"""The stages and the processes that run them: generate, score, train, publish."""

import os
import sys

_HOME = os.path.dirname(os.path.dirname(__file__))
# ``python -m pipeline`` looks into the working directory first, where a user's rewards.py may lie.
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and sys.path[0] != _HOME:
    del sys.path[0]
