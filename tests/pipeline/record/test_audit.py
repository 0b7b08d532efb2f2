"""Each check of the audit can fail: a ledger that adds up, with one thing in it changed."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.record.audit import audit, main
from tests.pipeline.fake_stages import FakeRun, make_config

CONFIG = make_config(acceleration={"max_staleness": 2}, training={"max_steps": 6}, output={"save_steps": 2})

# What is done to the ledger, and the rule and the draw or step that must be named.
LIES = {
    "a draw trained twice": (
        "UPDATE steps SET draw_ids = json_insert(draw_ids, '$[#]', 1) WHERE step = 4",
        "one committed step",
        "draw 1 is named by steps 1 and 4",
    ),
    "a draw trained by a lost step": (
        "UPDATE steps SET draw_ids = '[]' WHERE step = 2",
        "one committed step",
        "is trained, and no committed step names it",
    ),
    "a step that names what it did not train": (
        "UPDATE draws SET status = 'dropped', reason = 'no', step_id = NULL WHERE draw_id = 1",
        "one committed step",
        "draw 1 is named by step 1 but is dropped",
    ),
    "a draw left open": (
        "INSERT INTO draws SELECT 99, task_id, 1, 0, 0, 'scored', NULL, NULL, NULL, 0 FROM draws LIMIT 1",
        "open in a run that has not finished",
        "draw 99 is scored and the run has finished",
    ),
    "a draw ended without a word": (
        "INSERT INTO draws SELECT 99, task_id, 1, 0, 0, 'failed', '', NULL, NULL, 0 FROM draws LIMIT 1",
        "ended with a reason",
        "draw 99 is failed without a reason",
    ),
    "a step skipped": (
        "UPDATE steps SET step = 9 WHERE step = 6 AND status = 'committed'",
        "one after the other",
        "step 9 has place 6",
    ),
    "weights of another number": (
        "UPDATE steps SET policy_version = 7 WHERE step = 6 AND status = 'committed'",
        "one after the other",
        "step 6 has place 6 and version 7",
    ),
    "a step with a group less": (
        "UPDATE draws SET status = 'dropped', reason = 'no', step_id = NULL WHERE draw_id = 2",
        "full number of groups",
        "step 1 has 1 of 2 groups",
    ),
    "a group with a rollout less": (
        "DELETE FROM rollouts WHERE draw_id = 3 AND place = 0",
        "all its rollouts",
        "draw 3 has 3 of 4 rollouts",
    ),
    "a token too old": (
        "UPDATE rollouts SET min_policy_version = -9 WHERE draw_id = 4 AND place = 1",
        "older than max_staleness",
        "draw 4 has tokens of version -9, trained by step",
    ),
    "a token of weights to come": (
        "UPDATE rollouts SET max_policy_version = 6 WHERE draw_id = 1 AND place = 1",
        "newer than the weights",
        "draw 1 has tokens of version 6, which step 1 did not have yet",
    ),
    "a token of lost weights": (
        "UPDATE rollouts SET run_id = 1, max_policy_version = 5 WHERE draw_id = ("
        " SELECT MAX(draw_id) FROM draws WHERE status = 'trained')",
        "weights that were lost",
        "has tokens of version 5, written before the run went back to step 4",
    ),
    "an engine that held something else": (
        "UPDATE weights SET held = 'other' WHERE policy_version = 2",
        "weights that generated are those",
        "version 2 was published as",
    ),
    "an answer of weights that nobody published": (
        "UPDATE rollouts SET receipt = 'other' WHERE draw_id = 5 AND place = 1",
        "weights that generated are those",
        "with receipt other, published as",
    ),
    "an answer without a receipt": (
        "UPDATE rollouts SET receipt = '' WHERE draw_id = 11",
        "weights that generated are those",
        "with receipt none, published as",
    ),
    "a failure scored as a bad answer": (
        "UPDATE rollouts SET outcome = 'infra_error', reward = 0 WHERE draw_id = 1 AND place = 2",
        "no reward exactly where scoring itself failed",
        "draw 1 has a rollout with outcome infra_error and reward 0",
    ),
    "a trained answer without a reward": (
        "UPDATE rollouts SET reward = NULL WHERE draw_id = 1 AND place = 2",
        "no reward exactly where scoring itself failed",
        "draw 1 has a rollout with outcome wrong and reward NULL",
    ),
    "a conversation that went on after a pass": (
        'UPDATE rollouts SET turns = \'[{"outcome": "wrong", "num_tokens": 0},'
        ' {"outcome": "pass", "num_tokens": 0}]\' WHERE draw_id = 6 AND place = 1',
        "went on after answers that failed",
        "draw 6 went on after an answer with outcome pass",
    ),
    "a conversation of more tokens than its rollout": (
        'UPDATE rollouts SET num_tokens = 7, turns = \'[{"outcome": "wrong", "num_tokens": 5},'
        ' {"outcome": "wrong", "num_tokens": 3}]\' WHERE draw_id = 6 AND place = 1',
        "its tokens are those of all answers",
        "draw 6 has 8 tokens in earlier answers, and 7 in all",
    ),
    "a replaced draw that had signal": (
        "INSERT INTO gated VALUES (1, 1, 8, 0)",
        "replaced for want of signal had none",
        "draw 1 has 2 different rewards",
    ),
    "a replaced draw that was trained on": (
        "INSERT INTO gated VALUES (1, 1, 8, 0)",
        "replaced for want of signal had none",
        "draw 1 is trained",
    ),
    "more replaced than the budget": (
        "INSERT INTO gated VALUES (1, 1, 8, 0)",
        "than its budget allows",
        "step 1 replaced 1 draws, allowed 0",
    ),
    "a group without statistics": (
        "UPDATE rollouts SET outcome = 'infra_error', reward = NULL WHERE draw_id = 1 AND place > 0",
        "no reward exactly where scoring itself failed",
        "draw 1 has 1 rewards: no statistics",
    ),
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of a run that died in step 6, went back to step 4 and reached its end."""
    folder = tmp_path_factory.mktemp("audit")
    FakeRun(folder, CONFIG).die_in(6)
    assert audit(folder / "run").violations == (), "open draws are no fault in a run that was interrupted"
    resumed = FakeRun(folder, CONFIG, done_steps=4).train()
    return resumed.folder.db


def test_a_run_that_died_and_was_resumed_adds_up(honest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(honest).violations == audit(honest.parent).violations == ()
    assert main([str(honest.parent)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(audit(honest).checks) and all(line.startswith("ok ") for line in lines)
    assert "1 times that the run went back" in lines[5]
    assert "48 trained rollouts" in lines[4]


def copy_with(lie: str, honest: Path, folder: Path) -> Path:
    """The honest ledger with one thing in it changed."""
    path = folder / "run.db"
    shutil.copy(honest, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        assert database.execute(lie).rowcount > 0
    return path


@pytest.mark.parametrize("name", LIES)
def test_a_ledger_that_does_not_add_up_is_found_out(name: str, honest: Path, tmp_path: Path) -> None:
    lie, rule, text = LIES[name]
    path = copy_with(lie, honest, tmp_path)
    found = [violation for violation in audit(path).violations if rule in violation and text in violation]
    assert found, audit(path).violations
    assert main([str(path)]) == 1


def test_many_violations_are_counted_and_some_are_shown(
    honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy_with("UPDATE rollouts SET reward = NULL", honest, tmp_path)
    assert main([str(path)]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if "scoring itself" in line)
    assert line.startswith("VIOLATION") and line.endswith("more")
    assert len(audit(path).violations) > 20
