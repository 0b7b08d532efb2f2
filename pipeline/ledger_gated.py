"""Draws that were replaced because their groups had no signal, as run.db keeps them.

Writes and reads the table ``gated``; decides nothing (pipeline.gate does). Called by pipeline.ledger and
pipeline.ledger_rewind inside their transactions.
"""

from __future__ import annotations

import sqlite3

from pipeline.gate import Gated, gated_of
from pipeline.messages import RolloutGroup


def note_gated(database: sqlite3.Connection, group: RolloutGroup, step: int) -> str:
    """Enter a group that is replaced in ``step``; returns the reason, in words."""
    gated = gated_of(group)
    database.execute(
        "INSERT INTO gated VALUES (?, ?, ?, ?)", (group.draw_id, step, gated.num_tokens, gated.num_solved)
    )
    rewards = [rollout.result.reward for rollout in group.rollouts if not rollout.result.is_infra_error]
    return f"no signal: all {len(rewards)} rewards are {rewards[0]:g}"


def gated_by_step(database: sqlite3.Connection) -> dict[int, Gated]:
    """What was replaced in each step that had any."""
    rows = database.execute("SELECT step, COUNT(*), SUM(is_solved), SUM(num_tokens) FROM gated GROUP BY step")
    return {
        step: Gated(num_groups=num_groups, num_solved=num_solved, num_tokens=num_tokens)
        for step, num_groups, num_solved, num_tokens in rows
    }


def reopen(database: sqlite3.Connection, step: int) -> None:
    """Open the draws again whose groups weights newer than ``step`` wrote: a resume has lost them."""
    database.execute(
        "UPDATE draws SET status = 'issued', reason = NULL, basis = NULL, attempt = attempt + 1"
        " WHERE draw_id IN ("
        "  SELECT draw_id FROM gated JOIN draws USING (draw_id) JOIN rollouts USING (draw_id, attempt)"
        "  GROUP BY draw_id HAVING MAX(max_policy_version) > ?)",
        (step,),
    )
    database.execute("DELETE FROM gated WHERE draw_id IN (SELECT draw_id FROM draws WHERE status = 'issued')")
