"""What every part of a run is given: its settings, where it writes, whom it tells, and when it is to end.

The orchestrator makes one and hands it on. A stage, a queue or a task is not in it: what a part works with is
a parameter of that part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from configs.schema import Config
from pipeline.host.spans import Stopwatch, Timeline
from pipeline.host.stopping import StopRequest
from pipeline.record.ledger import Ledger
from pipeline.record.progress import Progress
from pipeline.record.run_folder import RunFolder
from pipeline.record.tracking import Tracking


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One run. ``folder``, ``ledger``, ``progress`` and ``tracking`` are closed by whoever made them."""

    config: Config
    folder: RunFolder
    ledger: Ledger
    progress: Progress
    timeline: Timeline = field(default_factory=lambda: Timeline(enabled=False))
    tracking: Tracking = field(default_factory=lambda: Tracking(()))
    stop: StopRequest = field(default_factory=StopRequest)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def note(self, kind: str, text: str) -> None:
        """Keep an event in the ledger, and tell the user of it."""
        self.ledger.event(kind, text)
        self.progress.message(text)
