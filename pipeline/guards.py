"""What a run has found out about its own techniques: which it measured, and which it has turned off.

Decisions are made where the measurements are (pipeline.placement, pipeline.layout_trial,
pipeline.abort_balance) and noted in the ledger as events of these kinds; drafting decides at every token, so
its account is made here from the metrics. Called by pipeline.orchestrator for the summary, and by those who
note; decides nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from configs.schema import Config
from pipeline.metrics import read_metrics

GUARD: Final = "guard"
PLACEMENT_GUARD: Final = "placement"


def guards_of(database: Path, metrics: Path, config: Config) -> tuple[str, ...]:
    """What the run with these files decided, in the order in which it did; drafting last."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as ledger:
        query = "SELECT text FROM events WHERE kind IN (?, ?) ORDER BY event_id"
        rows = ledger.execute(query, (GUARD, PLACEMENT_GUARD)).fetchall()
    drafting = _drafting(read_metrics(metrics)) if config.acceleration.speculative.enabled else None
    return (*(str(text) for (text,) in rows), *([drafting] if drafting else []))


def _drafting(rows: Sequence[Mapping[str, float | None]]) -> str | None:
    """How much was drafted and accepted; None where nothing was logged."""
    drafted = sum(row.get("generation/drafted_tokens") or 0.0 for row in rows)
    written = sum(row.get("generation/tokens") or 0.0 for row in rows)
    if not rows:
        return None
    if not drafted:
        return "speculative decoding drafted nothing: it was off, or no draft was expected to pay"
    accepted = sum(
        (row.get("generation/drafted_tokens") or 0.0) * (row.get("generation/draft_acceptance") or 0.0)
        for row in rows
    )
    return (
        f"speculative decoding drafted {drafted:.0f} tokens for {written:.0f} that were written; "
        f"{100 * accepted / drafted:.0f} % of the drafted ones were accepted"
    )
