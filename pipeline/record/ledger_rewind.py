"""What a resume does to the account, and which tokens are kept for it.

The run goes back to its last checkpoint, of step k, whose weights are version k. Steps after k, and the
weights k + 1, k + 2, … that they made, are lost. Versions up to k are those of the restored weights and of
the steps before, in every process of the run. So of the draws that no step up to k trained on

- a scored group is used again if every token of it was written by a version up to k, and none by one older
  than k - max_staleness: it is what the restored run could have generated itself, it carries the
  log-probabilities of the policy that wrote it, and step k + 1 can train on it in time;
- all others are issued again, under their number and with the next attempt. Groups of lost weights are among
  them: their version numbers will be given once more, to other weights, so that their age could not be told
  and the bound on staleness would be broken unseen.

That every version in the file is one of the restored history holds by induction: the tokens of all others
are deleted here, before any are written. Draws that had ended as dropped or failed stay so, but for those
that were dropped for want of signal in what lost weights had written: they are issued again as well, for with
other weights their groups may have signal, and the sampler has to hear of them again. No draw is made
by the sampler a second time: see Ledger.sampler_calls. These are the moves ``RESUMED`` of
pipeline.record.draw_states.

The table ``gated`` holds the draws that were replaced for want of signal (pipeline.rollouts.draws decides
which); it is here since a resume alone must undo it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pipeline.messages import Gated, RolloutGroup, gated_of


def step_row(database: sqlite3.Connection, path: Path, step: int) -> tuple[str, int]:
    """State and last sampler call of a committed step; raises ValueError for any other."""
    query = "SELECT state, last_call_id FROM steps WHERE step = ? AND status = 'committed'"
    row = database.execute(query, (step,)).fetchone()
    if row is None:
        query = "SELECT COALESCE(MAX(step), 0) FROM steps WHERE status = 'committed'"
        (last,) = database.execute(query).fetchone()
        raise ValueError(
            f"{path} has no committed step {step}; its last one is {last}, "
            "so a checkpoint of that step belongs to another run"
        )
    return str(row[0]), int(row[1])


def rewind(database: sqlite3.Connection, path: Path, step: int, max_staleness: int) -> None:
    """Go back to ``step``: mark later steps as rewound, open their draws and those in flight again."""
    if step:
        step_row(database, path, step)
    database.execute("UPDATE steps SET status = 'rewound' WHERE step > ? AND status = 'committed'", (step,))
    database.execute(
        "UPDATE draws SET status = 'scored', step_id = NULL"
        " WHERE step_id IN (SELECT step_id FROM steps WHERE status = 'rewound')"
    )
    database.execute(
        "UPDATE draws SET status = 'issued', basis = NULL, attempt = attempt + 1"
        " WHERE status IN ('issued', 'scored') AND draw_id NOT IN ("
        "  SELECT draw_id FROM draws JOIN tokens USING (draw_id)"
        "  JOIN rollouts USING (draw_id, attempt, place)"
        "  GROUP BY draw_id HAVING MIN(min_policy_version) >= ? AND MAX(max_policy_version) <= ?)",
        (step - max_staleness, step),
    )
    reopen(database, step)
    database.execute(
        "DELETE FROM tokens WHERE draw_id NOT IN (SELECT draw_id FROM draws WHERE status = 'scored')"
    )


def forget_tokens(database: sqlite3.Connection) -> None:
    """After a step: delete the tokens of trained draws that no resume would use.

    Those are draws that the last checkpoint's step or an earlier one trained on, and those that weights wrote
    which that checkpoint does not have.
    """
    query = "SELECT COALESCE(MAX(step), 0) FROM steps WHERE status = 'committed' AND checkpoint IS NOT NULL"
    (saved,) = database.execute(query).fetchone()
    database.execute(
        "DELETE FROM tokens WHERE draw_id IN ("
        "  SELECT draw_id FROM tokens JOIN draws USING (draw_id) JOIN steps USING (step_id)"
        "  JOIN rollouts USING (draw_id, attempt, place) WHERE draws.status = 'trained'"
        "  GROUP BY draw_id HAVING MIN(step) <= ? OR MAX(max_policy_version) > ?)",
        (saved, saved),
    )


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
