"""``train_accelerated --profile-startup``: collect the spans of a start, show and keep them.

    runs/<name>/startup.jsonl (as noted)  startup.json  startup.svg

Starts nothing itself; pipeline.launch does, between entering and leaving ``profiled``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.load import render
from configs.schema import Config
from pipeline import startup
from pipeline.run_folder import RunFolder, write_text_atomically
from pipeline.startup_report import as_record, as_svg, as_table


class StartupProfile:
    """The measurement of one start, into ``folder``."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._log = Path(os.environ[startup.LOG_VARIABLE])
        self._origin_s = startup.process_started_s()

    def publish(self) -> None:
        """Write startup.json and startup.svg, and print the table."""
        spans = startup.read_spans(self._log)
        record = as_record(spans, self._origin_s)
        title = f"from process start to first scored rollout: {record['first_scored_rollout_s']} s"
        write_text_atomically(self.folder.path / "startup.json", json.dumps(record, indent=1) + "\n")
        write_text_atomically(self.folder.path / "startup.svg", as_svg(spans, self._origin_s, title))
        print(as_table(spans, self._origin_s))
        print(f"{title}; chart: {self.folder.path / 'startup.svg'}")


@contextmanager
def profiled(config: Config) -> Iterator[StartupProfile]:
    """Make a run folder and have this process, and all that it starts inside, note their spans there.

    A file that ``CODE_GRPO_STARTUP_LOG`` names already is used instead of one in the folder.
    """
    begun_s = time.time()
    with RunFolder.create(config.output, render(config)) as folder:
        given = os.environ.get(startup.LOG_VARIABLE)
        os.environ[startup.LOG_VARIABLE] = given or str(folder.path.absolute() / "startup.jsonl")
        try:
            profile = StartupProfile(folder)
            startup.note(
                "driver",
                "interpreter, configuration",
                startup.process_started_s(),
                begun_s,
                cpu_s=time.process_time(),
            )
            yield profile
        finally:
            if given is None:
                del os.environ[startup.LOG_VARIABLE]
