"""The stages and the processes that run them: generate, score, train, publish."""

import os
import sys

# With ``python -m pipeline`` the working directory comes first, where a user's rewards.py may lie.
if sys.argv[:1] == ["-m"] and sys.path[:1] == [os.getcwd()]:
    sys.path.append(sys.path.pop(0))
