from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from curriculum.task import Task
from pipeline.messages import Completion, Rollout, RolloutGroup, StepResult, VersionRun
from pipeline.record.draw_states import DrawStateError
from pipeline.record.ledger import Ledger
from pipeline.record.ledger_tables import SCHEMA_VERSION, LedgerError
from rewards.result import RewardResult
from sandbox.result import Outcome
from tests.pipeline.record.test_run_folder import started

BASIS = "what the rollouts rest on"


def group(
    draw_id: int, task_id: str = "t", reward: float = 1.0, versions: tuple[int, int] = (0, 0)
) -> RolloutGroup:
    completion = Completion(
        index=0,
        token_ids=(1, 49_000),
        logprobs=(-0.125, -20.5),
        text="code",
        finish_reason="stop",
        min_policy_version=versions[0],
        max_policy_version=versions[1],
        num_cached_tokens=None,
    )
    result = RewardResult(
        reward=reward,
        breakdown={"tests": reward},
        outcome=Outcome.INFRA_ERROR if math.isnan(reward) else Outcome.PASS,
        passed=not math.isnan(reward),
        detail="why",
        cached=False,
        seconds=0.1,
    )
    rollout = Rollout(prompt_ids=(1,), completion=completion, result=result)
    task = Task(task_id=task_id, prompt="p", entry_point="f", check_source="def check(f): pass")
    return RolloutGroup(draw_id=draw_id, task=task, rollouts=(rollout,))


def step(number: int, metrics: Mapping[str, float] | None = None) -> StepResult:
    return StepResult(step=number, metrics=metrics or {}, seconds=1.0, num_tokens=2)


def score(ledger: Ledger, *versions: tuple[int, int]) -> list[int]:
    """A scored draw for each pair of oldest and newest version; their numbers."""
    draw_ids = [ledger.record_draw("t", 1, oldest) for oldest, _ in versions]
    for draw_id, pair in zip(draw_ids, versions, strict=True):
        ledger.record_group(group(draw_id, versions=pair), BASIS)
    return draw_ids


def train(ledger: Ledger, number: int, *draw_ids: int, is_saved: bool = True) -> None:
    """Commit a step, after scoring what was not scored yet."""
    for draw in ledger.unfinished_draws():
        if draw.draw_id in draw_ids and draw.state == "issued":
            ledger.record_group(group(draw.draw_id), BASIS)
    checkpoint = f"step-{number:06d}" if is_saved else None
    ledger.commit_step(step(number), draw_ids, {"sampler": number}, checkpoint)


def kept(path: Path) -> list[int]:
    """The draws whose tokens are in the file."""
    return [draw_id for (draw_id,) in rows(path, "SELECT DISTINCT draw_id FROM tokens")]  # type: ignore[misc]


def states(ledger: Ledger) -> list[tuple[int, int, str]]:
    return [(draw.draw_id, draw.attempt, draw.state) for draw in ledger.unfinished_draws()]


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger(path)


def test_a_draw_is_followed_from_issue_to_training(path: Path, ledger: Ledger) -> None:
    draw_id = ledger.record_draw("t", 1, 0)
    assert [draw.state for draw in ledger.unfinished_draws()] == ["issued"]
    ledger.record_group(group(draw_id, reward=0.5))
    assert [draw.state for draw in ledger.unfinished_draws()] == ["scored"]
    ledger.commit_step(step(1, {"train/loss": math.nan}), [draw_id], {"sampler": [1, 2]})
    assert ledger.unfinished_draws() == []
    assert ledger.last_step() == 1
    assert ledger.load_state(1) == {"sampler": [1, 2]}
    ledger.close()
    assert rows(path, "SELECT status, step_issued, policy_version_issued FROM draws") == [("trained", 1, 0)]
    assert rows(path, "SELECT rollout_id, completion, reward, outcome, num_tokens FROM rollouts") == [
        ("1/0", "code", 0.5, "pass", 2)
    ]
    assert rows(path, "SELECT metrics FROM steps") == [('{"train/loss": null}',)]


def test_dropped_and_failed_draws_keep_their_reason(path: Path, ledger: Ledger) -> None:
    first, second = ledger.record_draw("a", 1, 0), ledger.record_draw("b", 1, 0)
    ledger.drop_draw(first, "too stale")
    ledger.fail_group(group(second, "b", reward=math.nan), "engine died")
    assert ledger.unfinished_draws() == []
    expected = [("dropped", "too stale"), ("failed", "engine died")]
    assert rows(path, "SELECT status, reason FROM draws ORDER BY draw_id") == expected


def test_no_draw_is_trained_twice_and_a_refused_step_leaves_nothing(ledger: Ledger) -> None:
    first, second = ledger.record_draw("t", 1, 0), ledger.record_draw("t", 1, 0)
    train(ledger, 1, first)
    ledger.record_group(group(second))
    with pytest.raises(DrawStateError, match="cannot become trained: it is trained"):
        ledger.commit_step(step(2), [second, first], {})
    assert ledger.last_step() == 1
    assert [draw.draw_id for draw in ledger.unfinished_draws()] == [second]
    with pytest.raises(AssertionError, match="does not follow"):
        ledger.commit_step(step(3), [second], {})
    with pytest.raises(DrawStateError, match="cannot become scored"):
        ledger.record_group(group(first))
    with pytest.raises(DrawStateError, match="cannot become dropped"):
        ledger.drop_draw(first, "late")
    with pytest.raises(ValueError, match="no such draw"):
        ledger.record_group(group(99))


def test_a_rewind_opens_all_that_no_step_up_to_the_checkpoint_trained_on(path: Path, ledger: Ledger) -> None:
    one, two, three = (ledger.record_draw("t", 1, 0) for _ in range(3))
    train(ledger, 1, one)
    ledger.record_group(group(two))
    four = ledger.record_draw("t", 2, 1)
    train(ledger, 2, four, is_saved=False)
    train(ledger, 3, two, is_saved=False)
    five = ledger.record_draw("t", 4, 3)
    ended = ledger.record_draw("t", 4, 3)
    ledger.drop_draw(ended, "not wanted")
    ledger.close()

    ledger = Ledger(path)
    assert ledger.checkpoints() == {"step-000001"}
    ledger.rewind(1)
    assert ledger.last_step() == 1
    # Four was scored by version 0, which is too old for step 2 with max_staleness 0.
    assert states(ledger) == [(draw_id, 1, "issued") for draw_id in (two, three, four, five)]
    statuses = rows(path, "SELECT step, status FROM steps ORDER BY step_id")
    assert statuses == [(1, "committed"), (2, "rewound"), (3, "rewound")]
    train(ledger, 2, two)
    assert ledger.load_state(2) == {"sampler": 2}
    assert rows(path, "SELECT draw_id, attempt FROM rollouts WHERE draw_id = 2 ORDER BY attempt") == [
        (two, 0),
        (two, 1),
    ]
    assert rows(path, "SELECT status, reason FROM draws WHERE draw_id = 6") == [("dropped", "not wanted")]


def test_a_rewind_to_the_start_and_one_to_an_unknown_step(ledger: Ledger) -> None:
    train(ledger, 1, ledger.record_draw("t", 1, 0))
    with pytest.raises(ValueError, match="no committed step 7"):
        ledger.rewind(7)
    assert ledger.last_step() == 1, "a refused rewind changes nothing"
    ledger.rewind(0)
    assert (ledger.last_step(), states(ledger), ledger.load_state(0)) == (0, [(1, 1, "issued")], {})


def test_rollouts_come_back_as_they_were(path: Path, ledger: Ledger) -> None:
    train(ledger, 1, *score(ledger, (0, 0)))
    plain = group(ledger.record_draw("t", 2, 0))
    (first,) = plain.rollouts
    runs = (VersionRun(policy_version=0, num_tokens=1), VersionRun(policy_version=1, num_tokens=1))
    mixed = replace(first.completion, index=1, max_policy_version=1, version_runs=runs)
    failed = replace(first.result, reward=math.nan, outcome=Outcome.INFRA_ERROR, passed=False)
    second = replace(first, completion=mixed, result=failed)
    ledger.record_group(replace(plain, rollouts=(first, second)), BASIS)
    ledger.close()
    ledger = Ledger(path)
    ledger.rewind(1, max_staleness=1)
    (draw,) = ledger.unfinished_draws()
    assert (draw.state, draw.basis, draw.attempt) == ("scored", BASIS, 0)
    again = ledger.load_rollouts(draw, prompt_ids=(1,))
    assert repr(again) == repr((first, second)), "NaN is not equal to itself, but looks the same"
    ledger.requeue_draw(draw.draw_id, "too old")
    ledger.record_group(plain, BASIS)
    (draw,) = ledger.unfinished_draws()
    assert ledger.load_rollouts(draw, prompt_ids=(1,)) == (first,), "those of the latest attempt"


def test_scored_groups_are_used_again_if_weights_that_still_exist_wrote_them_of_late(
    path: Path, ledger: Ledger
) -> None:
    train(ledger, 1, *score(ledger, (0, 0)))
    old, fresh, edge, across, lost = score(ledger, (0, 1), (2, 3), (1, 3), (3, 4), (4, 4))
    for number in (2, 3):
        train(ledger, number, *score(ledger, (number - 1, number - 1)), is_saved=number == 3)
    trained, by_lost = score(ledger, (3, 3), (4, 4))
    train(ledger, 4, trained, is_saved=False)
    train(ledger, 5, by_lost, is_saved=False)
    in_flight = ledger.record_draw("t", 6, 5)
    ledger.close()

    ledger = Ledger(path)
    ledger.rewind(3, max_staleness=2)
    again = [(draw_id, 1, "issued") for draw_id in (old, across, lost, by_lost, in_flight)]
    used = [(draw_id, 0, "scored") for draw_id in (fresh, edge, trained)]
    assert states(ledger) == sorted(again + used)
    assert kept(path) == sorted([fresh, edge, trained])


def test_numbers_of_lost_weights_that_come_again_are_not_taken_for_each_other(
    path: Path, ledger: Ledger
) -> None:
    """Version 2 of the first life is lost when it goes back to 1; the second life makes another 2."""
    train(ledger, 1, *score(ledger, (0, 0)))
    train(ledger, 2, *score(ledger, (1, 1)), is_saved=False)
    first_life = score(ledger, (2, 2))[0]
    ledger.rewind(1, max_staleness=1)
    for draw in ledger.unfinished_draws():
        ledger.drop_draw(draw.draw_id, "out of the way") if draw.draw_id != first_life else None
    train(ledger, 2, *score(ledger, (1, 1)))
    second_life = score(ledger, (2, 2))[0]
    ledger.close()
    ledger = Ledger(path)
    ledger.rewind(2, max_staleness=1)
    assert states(ledger) == [(first_life, 2, "issued"), (second_life, 0, "scored")]


def test_tokens_are_kept_no_longer_than_a_resume_could_use_them(path: Path, ledger: Ledger) -> None:
    dropped, again, first, second, third = score(ledger, *[(0, 0)] * 5)
    failed = ledger.record_draw("t", 1, 0)
    ledger.fail_group(group(failed, reward=math.nan), "broken")
    ledger.drop_draw(dropped, "not wanted")
    ledger.requeue_draw(again, "too old")
    assert kept(path) == [first, second, third]
    train(ledger, 1, first, is_saved=False)
    assert kept(path) == [first, second, third], "a resume goes back to the start and trains on it"
    newer = score(ledger, (1, 1))[0]
    train(ledger, 2, newer, is_saved=False)
    assert kept(path) == [first, second, third], "version 1 would be lost"
    train(ledger, 3, second)
    assert kept(path) == [third]
    train(ledger, 4, *score(ledger, (3, 3)), is_saved=False)
    assert kept(path) == [third, 8]
    ledger.note_checkpoint(4, "step-000004")
    assert kept(path) == [third] and ledger.checkpoints() == {"step-000003", "step-000004"}


def test_what_the_sampler_was_asked_and_told_since_a_step_is_known(ledger: Ledger) -> None:
    train(ledger, 1, *score(ledger, (0, 0)))
    first, second = ledger.record_draw("a", 2, 1), ledger.record_draw("b", 2, 1)
    ledger.record_group(group(first, "a", versions=(1, 1)), BASIS)
    ledger.drop_draw(second, "not wanted", is_released=True)
    ledger.drop_draw(ledger.record_draw("c", 2, 1), "its task is gone")
    calls = [(call.kind, call.task_id, call.num_passed, call.num_samples) for call in ledger.sampler_calls(1)]
    assert calls == [
        ("draw", "a", 0, 0),
        ("draw", "b", 0, 0),
        ("record", "a", 1, 1),
        ("release", "b", 0, 0),
        ("draw", "c", 0, 0),
    ]
    assert len(ledger.sampler_calls(0)) == 2 + len(calls)


def test_what_was_committed_survives_a_kill(path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from pipeline.record.ledger import Ledger;"
        "ledger = Ledger(Path(sys.argv[1]));"
        "[ledger.record_draw('t', 1, 0) for _ in range(5)];"
        "ledger._db.execute('BEGIN IMMEDIATE');"
        "ledger._db.execute('UPDATE draws SET task_id = 0'); print('ready', flush=True); time.sleep(60)"
    )
    with started(program, str(path)) as (_, line):
        assert line == "ready\n"
    ledger = Ledger(path)
    ledger.event("resume", "after a kill")
    assert [draw.task_id for draw in ledger.unfinished_draws()] == ["t"] * 5
    ledger.close()
    assert rows(path, "SELECT COUNT(*), COUNT(ended_at) FROM runs") == [(2, 1)]


def test_a_reader_does_not_stop_the_writer(path: Path, ledger: Ledger) -> None:
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
    other.executescript("CREATE TABLE x (y); PRAGMA user_version = 1;")
    other.close()
    with pytest.raises(
        ValueError, match=f"schema version 1, this program reads {SCHEMA_VERSION}; resume with"
    ):
        Ledger(tmp_path / "other.db")


def test_a_damaged_file_is_refused_and_says_what_to_do(path: Path, ledger: Ledger) -> None:
    for _ in range(300):
        ledger.record_draw("task" * 20, 1, 0)
    ledger.close()
    data = bytearray(path.read_bytes())
    data[8192:20000] = b"x" * (20000 - 8192)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"run\.db is (damaged|not a run database, or is damaged)"):
        Ledger(path)


def test_a_full_disk_is_named_and_what_was_committed_stays(ledger: Ledger) -> None:
    draw_ids = score(ledger, (0, 0), (0, 0))
    train(ledger, 1, draw_ids[0])
    (num_pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
    ledger._db.execute(f"PRAGMA max_page_count = {num_pages}")
    big = {"sampler": "x" * 100_000}
    with pytest.raises(
        LedgerError, match=r"run\.db: database or disk is full; what was committed .*--resume"
    ):
        ledger.commit_step(step(2), [draw_ids[1]], big)
    assert (ledger.last_step(), states(ledger)) == (1, [(draw_ids[1], 0, "scored")])
    ledger._db.execute(f"PRAGMA max_page_count = {num_pages + 100}")
    ledger.commit_step(step(2), [draw_ids[1]], big)
    assert ledger.load_state(2) == big


def test_a_disk_that_fills_up_under_a_process_loses_nothing_committed(path: Path) -> None:
    program = (
        "import resource, signal, sys; from pathlib import Path; from pipeline.record.ledger import Ledger;"
        "ledger = Ledger(Path(sys.argv[1])); ledger.record_draw('t', 1, 0);"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"
        "print('ready', flush=True);"
        "[print(ledger.record_draw('t' * 2000, 1, 0), flush=True) for _ in range(1000)]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60
    )
    assert "LedgerError: ledger" in done.stderr and "run.db: " in done.stderr
    num_written = len(done.stdout.splitlines())
    assert num_written > 3
    assert len(Ledger(path).unfinished_draws()) == num_written
