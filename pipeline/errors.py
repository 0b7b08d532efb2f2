"""The error of a stage (a process or a loop of the run failed, and the message says which and why), and the
end of a run by a signal; and what a message takes over of another error.

Users see the message without a traceback, and exit status 1.
"""

from __future__ import annotations

from typing import Final

from configs.errors import CommandEnd

_MAX_SAID: Final = 300


class StageError(CommandEnd, RuntimeError):
    """A stage of a run failed for good, or did not answer in time."""


class TrainerError(StageError):
    """The trainer failed or did not answer in time; the message says in which call, and which rank."""


class TrainerLostError(TrainerError):
    """A rank's process is gone, or silent past its deadline: only new ranks can go on."""


class TrainerDiedError(TrainerLostError):
    """A rank's process died under a call."""


class RunStoppedError(CommandEnd):
    """The run was asked to end by a signal, and has; the message says what is saved."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.status = 128 + signal_number


def in_short(error: Exception) -> str:
    """What ``error`` says, in one line for a message: a validation error has a paragraph for each field."""
    return " ".join(str(error).split())[:_MAX_SAID]


class OtherEvaluationError(ValueError):
    """What a journal holds is of another evaluation."""
