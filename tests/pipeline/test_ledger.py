from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from curriculum.task import Task
from pipeline.ledger import Ledger
from pipeline.messages import Completion, Rollout, RolloutGroup, StepResult
from rewards.result import RewardResult
from sandbox.result import Outcome


def group(draw_id: int, task_id: str = "t", reward: float = 1.0) -> RolloutGroup:
    completion = Completion(
        index=0,
        token_ids=(1, 2),
        logprobs=(-0.1, -0.2),
        text="code",
        finish_reason="stop",
        min_policy_version=0,
        max_policy_version=1,
    )
    result = RewardResult(
        reward=reward,
        breakdown={"tests": reward},
        outcome=Outcome.INFRA_ERROR if math.isnan(reward) else Outcome.PASS,
        passed=not math.isnan(reward),
        detail="",
        cached=False,
        seconds=0.1,
    )
    rollout = Rollout(rollout_id=f"{draw_id}-0", prompt_ids=(1,), completion=completion, result=result)
    task = Task(task_id=task_id, prompt="p", entry_point="f", check_source="def check(f): pass")
    return RolloutGroup(group_id=f"g{draw_id}", draw_id=draw_id, task=task, rollouts=(rollout,))


def step(number: int, metrics: Mapping[str, float] | None = None) -> StepResult:
    return StepResult(step=number, policy_version=number, metrics=metrics or {}, seconds=1.0, num_tokens=2)


def train(ledger: Ledger, number: int, *draw_ids: int) -> None:
    for draw_id in draw_ids:
        ledger.record_group(group(draw_id))
    ledger.commit_step(step(number), draw_ids, {"sampler": number})


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as database:
        return database.execute(query).fetchall()


def test_a_draw_is_followed_from_issue_to_training(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    ledger = Ledger(path)
    draw_id = ledger.record_draw("t", 1, 0)
    assert [draw.status for draw in ledger.unfinished_draws()] == ["issued"]
    ledger.record_group(group(draw_id, reward=0.5))
    assert [draw.status for draw in ledger.unfinished_draws()] == ["scored"]
    ledger.commit_step(step(1, {"train/loss": math.nan}), [draw_id], {"sampler": [1, 2]})
    assert ledger.unfinished_draws() == []
    assert ledger.last_step() == 1
    assert ledger.load_state(1) == {"sampler": [1, 2]}
    ledger.close()
    assert rows(path, "SELECT status, step_issued, policy_version_issued FROM draws") == [("trained", 1, 0)]
    assert rows(path, "SELECT rollout_id, completion, reward, outcome, num_tokens FROM rollouts") == [
        ("1-0", "code", 0.5, "pass", 2)
    ]
    assert rows(path, "SELECT metrics FROM steps") == [('{"train/loss": null}',)]


def test_an_infrastructure_error_is_stored_without_a_reward(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run.db")
    ledger.record_group(group(ledger.record_draw("t", 1, 0), reward=math.nan))
    assert rows(tmp_path / "run.db", "SELECT reward, outcome FROM rollouts") == [(None, "infra_error")]


def test_dropped_and_failed_draws_keep_their_reason(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run.db")
    first, second = ledger.record_draw("a", 1, 0), ledger.record_draw("b", 1, 0)
    ledger.drop_draw(first, "too stale")
    ledger.fail_draw(second, "engine died")
    assert ledger.unfinished_draws() == []
    expected = [("dropped", "too stale"), ("failed", "engine died")]
    assert rows(tmp_path / "run.db", "SELECT status, reason FROM draws ORDER BY draw_id") == expected


def test_no_draw_is_trained_twice_and_a_refused_step_leaves_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run.db")
    first, second = ledger.record_draw("t", 1, 0), ledger.record_draw("t", 1, 0)
    train(ledger, 1, first)
    ledger.record_group(group(second))
    with pytest.raises(AssertionError, match="cannot be trained"):
        ledger.commit_step(step(2), [second, first], {})
    assert ledger.last_step() == 1
    assert [draw.draw_id for draw in ledger.unfinished_draws()] == [second]
    with pytest.raises(AssertionError, match="does not follow"):
        ledger.commit_step(step(3), [second], {})
    with pytest.raises(AssertionError, match="cannot become scored"):
        ledger.record_group(group(first))
    with pytest.raises(AssertionError, match="cannot become dropped"):
        ledger.drop_draw(first, "late")
    with pytest.raises(AssertionError, match="cannot become scored"):
        ledger.record_group(group(99))


def test_a_rewind_reopens_draws_in_flight_at_the_checkpoint_and_drops_later_ones(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    ledger = Ledger(path)
    one, two, three = (ledger.record_draw("t", 1, 0) for _ in range(3))
    train(ledger, 1, one)  # two and three are in flight: the sampler's state of step 1 knows them
    ledger.record_group(group(two))
    four = ledger.record_draw("t", 2, 1)
    train(ledger, 2, four)  # four was drawn after step 1
    ledger.commit_step(step(3), [two], {"sampler": 3})
    five = ledger.record_draw("t", 4, 3)
    ledger.close()

    ledger = Ledger(path)
    ledger.rewind(1)
    assert ledger.last_step() == 1
    assert [(draw.draw_id, draw.attempt, draw.status) for draw in ledger.unfinished_draws()] == [
        (two, 1, "issued"),
        (three, 1, "issued"),
    ]
    dropped = rows(
        path, "SELECT draw_id FROM draws WHERE status = 'dropped' AND reason LIKE 'rewound to step 1%'"
    )
    assert dropped == [(four,), (five,)]
    statuses = rows(path, "SELECT step, status FROM steps ORDER BY step")
    assert statuses == [(1, "committed"), (2, "rewound"), (3, "rewound")]
    train(ledger, 2, two)
    assert ledger.load_state(2) == {"sampler": 2}
    assert rows(path, "SELECT draw_id, attempt FROM rollouts WHERE draw_id = 2 ORDER BY attempt") == [
        (two, 0),
        (two, 1),
    ]
    # Every draw is trained on by one committed step, open, or ended with a reason.
    odd = rows(
        path,
        "SELECT draw_id FROM draws LEFT JOIN steps USING (step_id) WHERE"
        " (draws.status = 'trained' AND steps.status != 'committed')"
        " OR (draws.status IN ('dropped', 'failed') AND reason IS NULL)",
    )
    assert odd == []


def test_a_rewind_to_the_start_and_one_to_an_unknown_step(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run.db")
    train(ledger, 1, ledger.record_draw("t", 1, 0))
    with pytest.raises(ValueError, match="no committed step 7"):
        ledger.rewind(7)
    ledger.rewind(0)
    assert (ledger.last_step(), ledger.unfinished_draws(), ledger.load_state(0)) == (0, [], {})


def test_what_was_committed_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    program = (
        "import sys; from pathlib import Path; from pipeline.ledger import Ledger;"
        "ledger = Ledger(Path(sys.argv[1]));"
        "[ledger.record_draw('t', 1, 0) for _ in range(5)];"
        "ledger._db.execute('BEGIN IMMEDIATE');"
        "ledger._db.execute('UPDATE draws SET task_id = 0'); print('ready', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    ledger = Ledger(path)
    ledger.event("resume", "after a kill")
    assert [draw.task_id for draw in ledger.unfinished_draws()] == ["t"] * 5
    ledger.close()
    assert rows(path, "SELECT COUNT(*), COUNT(ended_at) FROM runs") == [(2, 1)]


def test_a_reader_does_not_stop_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    ledger = Ledger(path)
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT COUNT(*) FROM draws").fetchone() == (0,)
    assert ledger.record_draw("t", 1, 0) == 1
    reader.close()


def test_a_file_that_is_no_ledger_or_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, and it is long enough to be read as one" * 20)
    with pytest.raises(ValueError, match="not a run database"):
        Ledger(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other.db")
    other.executescript("CREATE TABLE x (y); PRAGMA user_version = 9;")
    other.close()
    with pytest.raises(ValueError, match="schema version 9"):
        Ledger(tmp_path / "other.db")
