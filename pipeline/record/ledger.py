"""run.db: the account of every draw, every rollout and every optimiser step of a run (SQLite, WAL).

A draw (one task drawn by the sampler) is stored as issued, scored, trained, dropped or failed, the last two
with the reason: pipeline.record.draw_states says which may follow which. A requeued one (too old, or in
flight when the process died) is issued with the next attempt. Steps are numbered from 1; a step, the version
it made, the checkpoint that holds its weights and optimiser (where one was saved), its draws and the
sampler's state are committed in one transaction, so a ``kill -9`` at any moment leaves every draw trained
exactly once, open, or ended with a reason. What is committed survives the process; after a power cut the last
moments may be missing (``synchronous = NORMAL``), but what is there is consistent.

Token ids and log-probabilities are kept in ``tokens`` while a resume could use them: until their draw has
ended, or a step has trained on it that no resume goes back before. What was trained on stays in
``trained_tokens`` for a replay, as long as texts do (``output.text_steps``). Scores of all rollouts stay.

It decides nothing and holds no weights. One process writes (see run_folder); others may read meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

from curriculum.task import Task
from pipeline.host.spans import Span
from pipeline.messages import Gated, Rollout, RolloutGroup, StepResult, WeightsLoaded, WeightUpdate
from pipeline.record import draw_states, ledger_rows
from pipeline.record.draw_states import FOLLOWING_STORED, DrawState, check_move
from pipeline.record.ledger_rows import (
    ROLLOUT_COLUMNS,
    Draw,
    SamplerCall,
    calls_after,
    note_call,
    note_event,
    note_gated,
    note_record,
    note_weights,
    rollout_of,
    rollout_row,
    tokens_row,
)
from pipeline.record.ledger_tables import end_run, note_process, open_ledger, transaction
from pipeline.record.metrics import finite_or_none

# Kinds of events: what a guard found of a technique, and of the order in which stages run; what is wrong.
GUARD: Final = "guard"
PLACEMENT_GUARD: Final = "placement"
ALARM: Final = "alarm"
# A signal asked the run to end.
STOP: Final = "stop"
REWIND: Final = "rewind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a run promises of each step; pipeline.record.audit holds it to that."""

    groups_per_step: int
    num_generations: int
    max_staleness: int
    max_gated: int = 0


class Ledger:
    """The run's account at ``path``; made when it is not there.

    Every method that writes is one bounded transaction on the calling thread (milliseconds; at most
    ``BUSY_TIMEOUT_S`` when a reader blocks a checkpoint of the log). Where SQLite fails (full disk, lock)
    it raises LedgerError, and then nothing of that call was written.
    """

    def __init__(self, path: Path, terms: Terms | None = None) -> None:
        """Raises ValueError for a file that is no ledger, is damaged or of another schema version."""
        self._path = path
        self._db, self._is_closed = open_ledger(path), False
        self._terms = astuple(terms) if terms else ()
        try:
            with self._transaction():
                self._run_id = note_process(self._db, self._terms)
        except BaseException:
            self._db.close()
            raise

    def _transaction(self, *, is_durable: bool = False) -> AbstractContextManager[None]:
        return transaction(self._db, self._path, is_durable=is_durable)

    def record_draw(self, task_id: str, step: int, policy_version: int, skipped: Sequence[str] = ()) -> int:
        """Account for a task drawn for ``step`` while generators had ``policy_version``; its draw_id.

        ``skipped`` are the tasks that the sampler passed over for it.
        """
        with self._transaction():
            cursor = self._db.execute(
                "INSERT INTO draws (task_id, step_issued, policy_version_issued, status, issued_at)"
                " VALUES (?, ?, ?, 'issued', ?)",
                (task_id, step, policy_version, time.time()),
            )
            assert cursor.lastrowid is not None
            note_call(self._db, "draw", cursor.lastrowid, skipped)
        return cursor.lastrowid

    def record_group(
        self, group: RolloutGroup, basis: str | None = None, gate_step: int | None = None
    ) -> None:
        """Store a group's rollouts; its draw goes from issued to scored.

        With ``basis`` the group may be trained on: its tokens are kept, and the sampler has been told its
        counts. With ``gate_step`` too it had no signal and is replaced in that step: its draw is dropped.
        """
        with self._transaction():
            if gate_step is None:
                self._move(group.draw_id, DrawState.SCORED)
            else:
                self._move(group.draw_id, DrawState.DROPPED, note_gated(self._db, group, gate_step))
            self._insert_rollouts(group)
            if basis is not None:
                self._db.execute("UPDATE draws SET basis = ? WHERE draw_id = ?", (basis, group.draw_id))
                note_record(self._db, group)
            if basis is not None and gate_step is None:
                tokens = [tokens_row(rollout, group.draw_id) for rollout in group.rollouts]
                self._db.executemany("INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", tokens)

    def fail_group(self, group: RolloutGroup, reason: str) -> None:
        """Store the rollouts of a group that has no usable scores; its draw goes from issued to failed."""
        with self._transaction():
            self._move(group.draw_id, DrawState.FAILED, reason)
            self._insert_rollouts(group)

    def _insert_rollouts(self, group: RolloutGroup) -> None:
        query = "SELECT task_id, attempt FROM draws WHERE draw_id = ?"
        task_id, attempt = self._db.execute(query, (group.draw_id,)).fetchone()
        assert task_id == group.task.task_id, (
            f"draw {group.draw_id} is of {task_id}, not of {group.task.task_id}"
        )
        rows = [rollout_row(rollout, group.draw_id, attempt, self._run_id) for rollout in group.rollouts]
        self._db.executemany(f"INSERT INTO rollouts VALUES ({', '.join('?' * 19)})", rows)

    def drop_draw(self, draw_id: int, reason: str, *, is_released: bool = False) -> str:
        """End an open draw that will not be trained on by decision; its task's id.

        ``is_released`` notes that the sampler is told: it may draw the task again.
        """
        with self._transaction():
            self._move(draw_id, DrawState.DROPPED, reason)
            if is_released:
                note_call(self._db, "release", draw_id)
            query = "SELECT task_id FROM draws WHERE draw_id = ?"
            return str(self._db.execute(query, (draw_id,)).fetchone()[0])

    def requeue_draw(self, draw_id: int, reason: str) -> Draw:
        """Open a scored draw again whose rollouts cannot be trained on (too old, say), for a next attempt."""
        with self._transaction():
            self._move(draw_id, DrawState.ISSUED)
            self._db.execute(
                "UPDATE draws SET attempt = attempt + 1, basis = NULL WHERE draw_id = ?", (draw_id,)
            )
            note_event(self._db, "requeued", f"draw {draw_id}: {reason}")
        (draw,) = [draw for draw in self.unfinished_draws() if draw.draw_id == draw_id]
        return draw

    def _move(
        self, draw_id: int, state: DrawState, reason: str | None = None, step_id: int | None = None
    ) -> None:
        """Change what is stored of a draw; only a scored one, and a trained one for a while, has tokens."""
        row = self._db.execute("SELECT status FROM draws WHERE draw_id = ?", (draw_id,)).fetchone()
        if row is None:
            raise ValueError(f"draw {draw_id} cannot become {state}: {self._path} has no such draw")
        check_move(draw_id, DrawState(row[0]), state, FOLLOWING_STORED)
        self._db.execute(
            "UPDATE draws SET status = ?, reason = ?, step_id = ? WHERE draw_id = ?",
            (state, reason, step_id, draw_id),
        )
        if state is not DrawState.TRAINED:
            self._db.execute("DELETE FROM tokens WHERE draw_id = ?", (draw_id,))

    def commit_step(
        self,
        result: StepResult,
        draw_ids: Sequence[int],
        extra_state: Mapping[str, Any],
        checkpoint: str | None = None,
        layout: Mapping[str, Any] | None = None,
    ) -> None:
        """Account for one optimiser step, all or nothing: its row, its draws (trained), the state.

        ``layout`` is what a replay has to do alike (pipeline.run.replay). ``checkpoint`` names the folder of
        this step's weights and optimiser, whole by now, if one was saved. ``extra_state`` is JSON: the state
        of the sampler and of whatever else ``load_state`` must give back. Take it with no await between it
        and this call: what the sampler was asked and told up to here is in it, and what comes later is not
        (see ``sampler_calls``).
        """
        # Older checkpoints are removed next: that there is this one has to outlast a loss of power.
        with self._transaction(is_durable=checkpoint is not None):
            last = self.last_step()
            assert result.step == last + 1, f"step {result.step} does not follow step {last}"
            metrics = {name: finite_or_none(value) for name, value in result.metrics.items()}
            cursor = self._db.execute(
                "INSERT INTO steps (run_id, step, status, policy_version, checkpoint, metrics, state,"
                " draw_ids, layout, last_call_id, seconds, num_tokens, committed_at)"
                " VALUES (?, ?, 'committed', ?, ?, ?, ?, ?, ?,"
                " (SELECT COALESCE(MAX(call_id), 0) FROM sampler_calls), ?, ?, ?)",
                (
                    self._run_id,
                    result.step,
                    result.step,
                    checkpoint,
                    json.dumps(metrics),
                    json.dumps(extra_state, allow_nan=False),
                    json.dumps(list(draw_ids)),
                    json.dumps(layout or {}),
                    result.seconds,
                    result.num_tokens,
                    time.time(),
                ),
            )
            for draw_id in draw_ids:
                self._move(draw_id, DrawState.TRAINED, step_id=cursor.lastrowid)
                self._db.execute(
                    "INSERT OR REPLACE INTO trained_tokens SELECT * FROM tokens WHERE draw_id = ?", (draw_id,)
                )
            draw_states.forget(self._db)

    def note_checkpoint(self, step: int, checkpoint: str) -> None:
        """Enter a checkpoint of the last committed step that was saved after its commit."""
        with self._transaction(is_durable=True):
            query = "UPDATE steps SET checkpoint = ? WHERE step = ? AND status = 'committed'"
            changed = self._db.execute(query, (checkpoint, step)).rowcount
            assert changed == 1 and step == self.last_step(), f"step {step} is not the last committed one"
            draw_states.forget(self._db)

    def last_step(self) -> int:
        """The last committed step, 0 before the first."""
        query = "SELECT COALESCE(MAX(step), 0) FROM steps WHERE status = 'committed'"
        return int(self._db.execute(query).fetchone()[0])

    def metrics(self) -> list[dict[str, float | None]]:
        """The metrics of the committed steps, oldest first."""
        query = "SELECT metrics FROM steps WHERE status = 'committed' ORDER BY step"
        return [json.loads(text) for (text,) in self._db.execute(query)]

    def gated(self) -> dict[int, Gated]:
        """What was replaced for want of signal, by step."""
        query = "SELECT step, COUNT(*), SUM(is_solved), SUM(num_tokens) FROM gated GROUP BY step"
        return {
            step: Gated(num_groups=num_groups, num_solved=num_solved, num_tokens=num_tokens)
            for step, num_groups, num_solved, num_tokens in self._db.execute(query)
        }

    def checkpoints(self) -> frozenset[str]:
        """The names of the checkpoints that committed steps refer to."""
        query = "SELECT checkpoint FROM steps WHERE status = 'committed' AND checkpoint IS NOT NULL"
        return frozenset(name for (name,) in self._db.execute(query))

    def load_state(self, step: int) -> dict[str, Any]:
        """The ``extra_state`` of a committed step; {} for step 0. Raises ValueError for any other step."""
        return dict(json.loads(draw_states.step_row(self._db, self._path, step)[0]))

    def sampler_calls(self, step: int) -> list[SamplerCall]:
        """What the sampler was asked and told since the state of ``step``, in order, by whatever process."""
        return calls_after(self._db, draw_states.step_row(self._db, self._path, step)[1])

    def unfinished_draws(self) -> list[Draw]:
        """Draws issued or scored but not trained, oldest first."""
        rows = self._db.execute(
            "SELECT draw_id, task_id, step_issued, attempt, status, basis FROM draws"
            " WHERE status IN ('issued', 'scored') ORDER BY draw_id"
        )
        return [
            Draw(
                draw_id=draw_id,
                task_id=task_id,
                step=step,
                attempt=attempt,
                state=DrawState(status),
                basis=basis,
            )
            for draw_id, task_id, step, attempt, status, basis in rows
        ]

    def load_rollouts(self, draw: Draw, prompt_ids: tuple[int, ...]) -> tuple[Rollout, ...]:
        """The rollouts of a scored draw whose tokens are kept; ``prompt_ids`` is the task's prompt."""
        rows = self._db.execute(
            f"SELECT {ROLLOUT_COLUMNS} FROM rollouts JOIN tokens USING (draw_id, place)"
            " WHERE draw_id = ? AND attempt = ? ORDER BY place",
            (draw.draw_id, draw.attempt),
        )
        rollouts = tuple(rollout_of(row, prompt_ids) for row in rows)
        assert rollouts, f"the tokens of draw {draw.draw_id} are not kept"
        return rollouts

    def rewind(self, step: int, max_staleness: int = 0) -> None:
        """Go back to the checkpoint of ``step`` (0: the start). Call it on every resume.

        What becomes of draws: pipeline.record.draw_states. Raises ValueError for a step never committed.
        """
        with self._transaction():
            draw_states.rewind(self._db, self._path, step, max_staleness)
            end_run(self._db, self._run_id)
            self._run_id = note_process(self._db, self._terms, rewound_to=step)
            note_event(self._db, REWIND, f"to step {step}")

    def note_weights(self, update: WeightUpdate, loaded: WeightsLoaded | None = None) -> None:
        """Enter a weight update and, when it is there, the answer; one without a receipt is left out."""
        if update.receipt:
            with self._transaction():
                note_weights(self._db, self._run_id, update, loaded)

    def add_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add what was found of a committed step after it was committed."""
        query = "UPDATE steps SET metrics = json_patch(metrics, ?) WHERE step = ? AND status = 'committed'"
        # Null adds nothing; NaN is no JSON.
        values = {name: finite_or_none(value) for name, value in metrics.items()}
        with self._transaction():
            self._db.execute(query, (json.dumps(values), step))

    def note_tasks(self, tasks: Iterable[Task]) -> None:
        """Keep what a report shows of the run's tasks."""
        with self._transaction():
            ledger_rows.note_tasks(self._db, tasks)

    def forget_texts(self, step: int, num_steps: int) -> None:
        """After the checkpoint of ``step``: drop completions that older steps than the last ones wrote."""
        with self._transaction():
            ledger_rows.forget_texts(self._db, step, num_steps)

    def note_spans(self, step: int, spans: Sequence[Span], num_steps: int) -> None:
        """Keep what stages did up to the end of ``step``, for the last ``num_steps`` steps."""
        with self._transaction():
            ledger_rows.note_spans(self._db, step, spans, num_steps)

    def event(self, kind: str, text: str) -> None:
        """Note something worth keeping (a restart, a retry, a resume)."""
        with self._transaction():
            note_event(self._db, kind, text)

    def close(self) -> None:
        """Note the end of this process's work and close the file. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            with self._transaction():
                end_run(self._db, self._run_id)
        finally:
            self._db.close()
