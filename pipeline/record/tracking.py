"""Where else a run's metrics go while it trains: trackio, wandb, TensorBoard (``output.report_to``).

A tracker starts and writes in a thread of its own, so that neither its import nor a slow disk holds the run
up. One that fails is left out from then on, with one line to the user: a run does not end because a chart
could not be drawn. metrics.jsonl and run.db are written in any case, and not from here.
"""

from __future__ import annotations

import math
import queue
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO, cast

from configs.errors import ConfigError, Problem
from configs.schema import Config

_CLOSE_TIMEOUT_S = 15.0

# Writes the finite metrics of a step.
Log = Callable[[int, Mapping[str, float]], object]
# One destination: gives a Log, and at its end writes what is left. All is done in one thread, and may block
# or raise.
Tracker = AbstractContextManager[Log]


class Tracking:
    """All trackers of one run, each behind a thread; ``log`` and ``close`` are the caller's."""

    def __init__(
        self,
        trackers: Sequence[tuple[str, Callable[[], Tracker]]],
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``trackers`` are names with what starts each; ``tell`` hears of one that failed."""
        self._notes: deque[str] = deque()
        self._tell = tell
        self._writers = [_Writer(name, start, self._notes.append) for name, start in trackers]

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand a step's metrics on; returns at once. What is not finite is left out."""
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for writer in self._writers:
            writer.put((step, finite))
        self._tell_all()

    def close(self) -> None:
        """Wait for what is written, each tracker at most some seconds."""
        for writer in self._writers:
            writer.close()
        self._writers = []
        self._tell_all()

    def _tell_all(self) -> None:
        while self._notes:
            self._tell(self._notes.popleft())


class _Writer:
    """One tracker and its thread."""

    def __init__(self, name: str, start: Callable[[], Tracker], note: Callable[[str], object]) -> None:
        self._name = name
        self._start = start
        self._note = note
        self._lines: queue.SimpleQueue[tuple[int, Mapping[str, float]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def put(self, line: tuple[int, Mapping[str, float]]) -> None:
        # A tracker that failed has ended its thread.
        if self._thread.is_alive():
            self._lines.put(line)

    def close(self) -> None:
        self._lines.put(None)
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            self._note(f"{self._name} did not finish writing within {_CLOSE_TIMEOUT_S:.0f} s")

    def _run(self) -> None:
        try:
            with self._start() as log:
                while (line := self._lines.get()) is not None:
                    log(*line)
        # A tracker is a guest: whatever it raises, the run goes on.
        except Exception as error:
            self._note(f"{self._name} gets no more metrics: {type(error).__name__}: {error}")


@contextmanager
def _trackio(config: Config, name: str, first_step: int) -> Iterator[Log]:
    """Metrics in its local store, which ``trackio show`` draws while the run trains."""
    import trackio

    settings = config.model_dump(mode="json")
    # A new run in a folder elsewhere may have the name of an old one.
    resume = "allow" if first_step else "never"
    # It greets the user in colours, where a run prints what it has to say itself.
    with redirect_stdout(cast(TextIO, _OfOtherThreads(sys.stdout))):
        run = trackio.init(
            project=config.output.project, name=name, config=settings, resume=resume, embed=False
        )
    yield lambda step, metrics: run.log(dict(metrics), step=step)
    with redirect_stdout(cast(TextIO, _OfOtherThreads(sys.stdout))):
        run.finish()


class _OfOtherThreads:
    """``stream`` for all threads but the one that made this."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _wandb(config: Config, name: str, folder: Path, first_step: int) -> Iterator[Log]:
    """wandb's own variables (WANDB_MODE, ...) say where they go."""
    import wandb

    project, settings = config.output.project, config.model_dump(mode="json")
    run = wandb.init(
        project=project,
        name=name,
        # A new run in a folder elsewhere may have the name of an old one, so a name is no id.
        id=_last_wandb_id(folder) if first_step else None,
        dir=folder,
        config=settings,
        resume="allow",
    )
    # As Transformers does: wandb takes no line for a step below its own count, and a resume goes back.
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    yield lambda step, metrics: run.log({**metrics, "train/global_step": step})
    run.finish()


def _last_wandb_id(folder: Path) -> str | None:
    """The id in the name of the latest folder that wandb made in ``folder``; None where there is none."""
    found = [re.fullmatch(r"(?:offline-)?run-(\d+_\d+)-(.+)", path.name) for path in folder.glob("wandb/*")]
    return max((match.groups() for match in found if match), default=(None, None))[1]


@contextmanager
def _tensorboard(folder: Path, first_step: int) -> Iterator[Log]:
    """Event files in the run folder: ``tensorboard --logdir RUN/tensorboard``."""
    from torch.utils.tensorboard import SummaryWriter

    # Steps that a resume does again are taken off the curves.
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step + 1)

    def log(step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    yield log
    writer.close()


def tracker_names(config: Config) -> tuple[str, ...]:
    """The trackers that a run of ``config`` writes to; "auto" is trackio where it is installed.

    Raises ValueError for one that was asked for by name and is not installed; before any model is loaded.
    """
    asked = config.output.report_to
    if asked == ["none"]:
        return ()
    if asked == ["auto"]:
        return ("trackio",) if find_spec("trackio") else ()
    missing = [name for name in asked if find_spec(name) is None]
    if missing:
        raise ConfigError(
            [
                Problem(
                    where="output",
                    field="report_to",
                    fault=f"{name} is not installed",
                    allowed=f"{name} after: pip install {name}; or none",
                )
                for name in missing
            ]
        )
    return tuple(asked)


def start_tracking(
    config: Config, name: str, folder: Path, first_step: int, tell: Callable[[str], None]
) -> Tracking:
    """The trackers of a run, starting in threads of their own. Raises as ``tracker_names`` does.

    ``first_step`` is the last step done before, 0 for none.
    """
    names = tracker_names(config)
    if config.output.report_to == ["auto"] and not names:
        tell("note: trackio is not installed (pip install trackio): metrics are in the run folder only")
    known = {
        "trackio": partial(_trackio, config, name, first_step),
        "wandb": partial(_wandb, config, name, folder, first_step),
        "tensorboard": partial(_tensorboard, folder, first_step),
    }
    return Tracking([(one, known[one]) for one in names], tell)
