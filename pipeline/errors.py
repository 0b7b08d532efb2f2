"""The error of a stage: a process or a loop of the run failed, and the message says which and why.

Users see the message without a traceback, and exit status 1. Raised by generators, the trainer's handle,
the rollout buffer and the producer.
"""

from __future__ import annotations


class StageError(RuntimeError):
    """A stage of a run failed for good, or did not answer in time."""
