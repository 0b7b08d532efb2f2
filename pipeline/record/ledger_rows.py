"""Rows of run.db: rollouts and their tokens, calls of the sampler, groups without signal, tasks and spans.

Token ids are kept as int32 and log-probabilities as float32, which is what engines compute them in: nothing
is lost on the way. The sampler's calls, with its state at a step, let a resume make it what it was. Tasks and
spans of the stages are kept for people to look at; no resume reads them. Begins no transaction.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from curriculum.task import Task
from pipeline.host.spans import Span
from pipeline.messages import (
    Completion,
    EarlierTurn,
    Rollout,
    RolloutGroup,
    VersionRun,
    WeightsLoaded,
    WeightUpdate,
    gated_of,
    is_flat,
)
from pipeline.record.draw_states import NONE_PASSED, DrawState
from pipeline.record.metrics import finite_or_none
from pipeline.weights.receipts import code_of
from rewards.result import RewardResult
from sandbox.result import CallTest, Outcome, StdioTest

# The columns that ``rollout_of`` reads, of rollouts and tokens joined.
ROLLOUT_COLUMNS = (
    "token_ids, logprobs, version_runs, place, completion, finish_reason, min_policy_version,"
    " max_policy_version, reward, breakdown, outcome, detail, passed, cached, seconds, receipt, turns"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """An open draw, made for ``step`` (as the sampler counts them, from 0).

    ``state`` is ISSUED or SCORED; ``attempt`` counts how often it was requeued; ``basis`` is what its
    rollouts rest on, None where their tokens are not kept.
    """

    draw_id: int
    task_id: str
    step: int
    attempt: int
    state: DrawState = DrawState.ISSUED
    basis: str | None = None


def rollout_row(rollout: Rollout, draw_id: int, attempt: int, run_id: int) -> tuple[object, ...]:
    """The row of ``rollouts``, in the order of its columns."""
    completion, result = rollout.completion, rollout.result
    return (
        draw_id,
        attempt,
        completion.index,
        run_id,
        f"{draw_id}/{completion.index}",
        completion.text,
        rollout.num_sampled,
        completion.finish_reason,
        completion.min_policy_version,
        completion.max_policy_version,
        finite_or_none(result.reward),
        json.dumps({name: finite_or_none(score) for name, score in result.breakdown.items()}),
        str(result.outcome),
        result.detail,
        result.passed,
        result.cached,
        result.seconds,
        completion.receipt,
        json.dumps([asdict(turn) for turn in rollout.earlier]),
    )


def tokens_row(rollout: Rollout, draw_id: int) -> tuple[object, ...]:
    """The row of ``tokens``, in the order of its columns."""
    completion = rollout.completion
    return (
        draw_id,
        completion.index,
        array("i", completion.token_ids).tobytes(),
        array("f", completion.logprobs).tobytes(),
        json.dumps([[run.policy_version, run.num_tokens] for run in completion.version_runs]),
    )


def rollout_of(row: Sequence[Any], prompt_ids: tuple[int, ...]) -> Rollout:
    """The rollout that ROLLOUT_COLUMNS hold; ``prompt_ids`` is its prompt, which is not stored."""
    token_ids, logprobs, version_runs, place, text, finish_reason, oldest, newest = row[:8]
    reward, breakdown, outcome, detail, passed, cached, seconds, receipt, turns = row[8:]
    return Rollout(
        prompt_ids=prompt_ids,
        completion=Completion(
            index=place,
            token_ids=tuple(array("i", token_ids)),
            logprobs=tuple(array("f", logprobs)),
            text=text,
            finish_reason=finish_reason,
            min_policy_version=oldest,
            max_policy_version=newest,
            version_runs=tuple(
                VersionRun(policy_version=version, num_tokens=num)
                for version, num in json.loads(version_runs)
            ),
            num_cached_tokens=None,
            receipt=receipt,
        ),
        result=RewardResult(
            reward=_number(reward),
            breakdown={name: _number(score) for name, score in json.loads(breakdown).items()},
            outcome=Outcome(outcome),
            passed=bool(passed),
            detail=detail,
            cached=bool(cached),
            seconds=seconds,
        ),
        earlier=tuple(EarlierTurn(**turn) for turn in json.loads(turns)),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerCall:
    """One call of the sampler: "draw" of ``task_id`` for ``step``, "release" of it, or "record".

    For "draw": the tasks that were ``skipped`` before it. For "record": ``num_passed`` of ``num_samples``,
    written by weights up to ``max_policy_version``, and whether their rewards differed.
    """

    kind: str
    task_id: str
    step: int
    num_passed: int
    num_samples: int
    max_policy_version: int
    has_signal: bool | None
    skipped: tuple[str, ...]


def note_weights(
    database: sqlite3.Connection, run_id: int, update: WeightUpdate, loaded: WeightsLoaded | None
) -> None:
    """Enter an update that has a receipt, and what the generators say that they hold, if they said."""
    held = code_of(update.receipt, loaded.receipt) if loaded is not None and loaded.receipt else None
    database.execute(
        "INSERT OR REPLACE INTO weights VALUES (?, ?, ?, ?, ?, ?)",
        (run_id, update.policy_version, code_of(update.receipt), held, packed(update.receipt), time.time()),
    )


def packed(receipt: Mapping[str, int]) -> bytes:
    """The digests of ``receipt``, in the order of its names."""
    return array("Q", (receipt[name] for name in sorted(receipt))).tobytes()


def note_call(
    database: sqlite3.Connection,
    kind: str,
    draw_id: int,
    skipped: Sequence[str] = (),
    counts: tuple[int, int, int] = (0, 0, 0),
    has_signal: bool | None = None,
) -> None:
    """Enter a call: a "draw" or a "release" has no counts."""
    database.execute(
        "INSERT INTO sampler_calls (kind, draw_id, num_passed, num_samples, max_policy_version, has_signal,"
        " skipped) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (kind, draw_id, *counts, has_signal, json.dumps(skipped)),
    )


def note_record(database: sqlite3.Connection, group: RolloutGroup) -> None:
    """Enter the counts of a scored group; what could not be scored is not counted."""
    known = [rollout.result for rollout in group.rollouts if not rollout.result.is_infra_error]
    newest = max(rollout.completion.max_policy_version for rollout in group.rollouts)
    counts = (sum(result.passed for result in known), len(known), newest)
    note_call(database, "record", group.draw_id, counts=counts, has_signal=not is_flat(group))


def calls_after(database: sqlite3.Connection, call_id: int) -> list[SamplerCall]:
    """The calls after that number, in order."""
    rows = database.execute(
        "SELECT kind, task_id, step_issued, num_passed, num_samples, max_policy_version, has_signal, skipped"
        " FROM sampler_calls JOIN draws USING (draw_id) WHERE call_id > ? ORDER BY call_id",
        (call_id,),
    )
    return [
        SamplerCall(
            kind=kind,
            task_id=task_id,
            step=step,
            num_passed=num_passed,
            num_samples=num_samples,
            max_policy_version=newest,
            has_signal=None if has_signal is None else bool(has_signal),
            skipped=tuple(json.loads(skipped)),
        )
        for kind, task_id, step, num_passed, num_samples, newest, has_signal, skipped in rows
    ]


def note_gated(database: sqlite3.Connection, group: RolloutGroup, step: int) -> str:
    """Enter a group that is replaced in ``step``; returns the reason, in words."""
    gated = gated_of(group)
    database.execute(
        "INSERT INTO gated VALUES (?, ?, ?, ?)", (group.draw_id, step, gated.num_tokens, gated.num_solved)
    )
    rewards = [rollout.result.reward for rollout in group.rollouts if not rollout.result.is_infra_error]
    if len(set(rewards)) > 1:
        return NONE_PASSED
    return f"no signal: all {len(rewards)} rewards are {rewards[0]:g}"


_MAX_TESTS = 8
_MAX_TEXT = 4000


def note_event(database: sqlite3.Connection, kind: str, text: str) -> None:
    """Enter what happened just now."""
    database.execute("INSERT INTO events (time, kind, text) VALUES (?, ?, ?)", (time.time(), kind, text))


def note_tasks(database: sqlite3.Connection, tasks: Iterable[Task]) -> None:
    """Enter ``tasks``; one that is known by its id is overwritten."""
    rows = [
        (
            task.task_id,
            task.prompt,
            task.entry_point,
            task.difficulty,
            task.family,
            task.source,
            tests_text(task),
        )
        for task in tasks
    ]
    database.executemany("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def tests_text(task: Task) -> str:
    """The first tests of ``task`` as a person would write them, at most some thousand characters."""
    if task.check_source is not None:
        return _cut(task.check_source)
    tests: list[CallTest | StdioTest] = [*task.call_tests, *task.stdio_tests]
    lines = [
        _call_text(task.entry_point, test) if isinstance(test, CallTest) else _stdio_text(test)
        for test in tests[:_MAX_TESTS]
    ]
    num_more = len(tests) - len(lines)
    return "\n".join([*lines, f"... and {num_more} more"] if num_more else lines)


def _call_text(entry_point: str, test: CallTest) -> str:
    arguments = ", ".join(_cut(repr(value), 300) for value in test.args)
    return f"{entry_point}({arguments}) == {_cut(repr(test.expected), 300)}"


def _stdio_text(test: StdioTest) -> str:
    return f"input {_cut(test.stdin, 300)!r} must print {_cut(test.expected_stdout, 300)!r}"


def _cut(text: str, length: int = _MAX_TEXT) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def note_spans(database: sqlite3.Connection, step: int, spans: Sequence[Span], num_steps: int) -> None:
    """Enter ``spans`` under ``step``; those of steps further back than ``num_steps`` are deleted."""
    database.executemany(
        "INSERT INTO spans (step, stage, name, draw_id, num_tokens, started_at, ended_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (step, span.stage, span.name, span.draw_id, span.num_tokens, span.started_s, span.ended_s)
            for span in spans
        ],
    )
    database.execute("DELETE FROM spans WHERE step <= ?", (step - num_steps,))


def forget_texts(database: sqlite3.Connection, step: int, num_steps: int) -> None:
    """When ``step`` got its checkpoint: drop texts and tokens of completions of older steps.

    Those that were trained on, replaced or could not be scored; only those further back than ``num_steps``
    that no resume could use; looks at what the last checkpoint had not looked at.
    """
    query = (
        "SELECT COALESCE(MAX(step), 0) FROM steps"
        " WHERE checkpoint IS NOT NULL AND status = 'committed' AND step < ?"
    )
    (before,) = database.execute(query, (step,)).fetchone()
    trained = (
        "SELECT draw_id FROM draws JOIN steps USING (step_id)"
        " WHERE steps.status = 'committed' AND steps.step > ? AND steps.step <= ?"
    )
    ended = (
        "SELECT draw_id FROM draws WHERE status IN ('dropped', 'failed')"
        " AND step_issued >= ? AND step_issued < ?"  # which counts from 0
    )
    steps = (before - num_steps, step - num_steps)
    for draws in (trained, ended):
        database.execute(
            f"UPDATE rollouts SET completion = '', turns = '[]' WHERE draw_id IN ({draws})"
            " AND draw_id NOT IN (SELECT draw_id FROM tokens)",
            steps,
        )
    database.execute(f"DELETE FROM trained_tokens WHERE draw_id IN ({trained})", steps)
