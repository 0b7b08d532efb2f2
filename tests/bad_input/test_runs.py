"""Run folders and checkpoints that cannot be read: audit, report, doctor, plan, hand-over and resume."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from configs.load import load_config, render
from configs.schema import Config
from pipeline.cli import train_accelerated
from pipeline.doctor.command import main as doctor
from pipeline.handover.command import main as hand_over
from pipeline.record.audit import main as audit
from pipeline.report.page import main as report
from pipeline.run.replay import main as replay
from pipeline.run.resume import refuse_resume
from tests.bad_input.harness import Case, refuse, write_files
from tests.pipeline.fake_stages import FakeRun, make_config

pytestmark = pytest.mark.slow

Command = Callable[[Sequence[str]], int]
# ``None`` in place of the new content of a file takes the file away.
Changes = dict[str, bytes | None]

CONFIG = make_config(acceleration={"max_staleness": 1}, training={"max_steps": 4}, output={"save_steps": 2})
WEIGHTS = b"weights"


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended after four steps, with a real ledger and checkpoints that are whole."""
    folder = tmp_path_factory.mktemp("good")
    FakeRun(folder, CONFIG).train()
    run = folder / "run"
    with sqlite3.connect(run / "run.db") as database:
        database.execute("PRAGMA journal_mode = DELETE")
    database.close()
    config = {"generation": {"engine": "transformers"}, "training": {"max_steps": 4}}
    (run / "config.yaml").write_text(render(Config.model_validate(config)), encoding="utf-8")
    shutil.rmtree(run / "checkpoints")
    for step in (2, 4):
        state = {"step": step, "policy_version": step, "files": {"model.safetensors": len(WEIGHTS)}}
        write_files(
            run / "checkpoints" / f"step-{step:06d}",
            {"state.json": json.dumps(state).encode(), "model.safetensors": WEIGHTS},
        )
    return run


@pytest.fixture
def run(good_run: Path, tmp_path: Path) -> Path:
    """A copy of the good run, for a test to damage."""
    return Path(shutil.copytree(good_run, tmp_path / "run"))


def plan(arguments: Sequence[str]) -> int:
    return train_accelerated(["--plan", *arguments])


def resume(arguments: Sequence[str]) -> int:
    return train_accelerated(["--resume", *arguments])


def other_database(version: int) -> bytes:
    """A SQLite file of somebody else's, with that user_version."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE theirs (x)")
    database.execute(f"PRAGMA user_version = {version}")
    data: bytes = database.serialize()
    database.close()
    return data


ALL: dict[str, Command] = {
    "audit": audit,
    "report": report,
    "doctor": doctor,
    "plan": plan,
    "hand over": hand_over,
    "replay": replay,
    "resume": resume,
}


def of(*names: str) -> dict[str, Command]:
    return {name: ALL[name] for name in names}


READ_THE_CONFIG = of("doctor", "plan", "hand over", "resume")
READ_THE_LEDGER = of("audit", "report", "replay", "resume")
READ_THE_METRICS = of("doctor", "plan", "resume")
LINE = {"step": 1, "time_s": 1.0, "train/seconds": 1.0, "generation/tokens": 5.0}


def line(**fields: object) -> bytes:
    return json.dumps({**LINE, **fields}).encode() + b"\n"


# What takes the place of files of a good run, whom it concerns, what is said.
RUNS: dict[str, tuple[Changes, dict[str, Command], tuple[str, ...]]] = {
    "empty config.yaml": ({"config.yaml": b""}, READ_THE_CONFIG, ("config.yaml", "empty")),
    "config.yaml with an unknown key": (
        {"config.yaml": b"training: {max_step: 3}"},
        READ_THE_CONFIG,
        ("config.yaml", "training.max_step", "training.max_steps"),
    ),
    "config.yaml with a wrong value": (
        {"config.yaml": b"grpo: {num_generations: one}"},
        READ_THE_CONFIG,
        ("config.yaml", "grpo.num_generations", '"one"'),
    ),
    "config.yaml of bytes": ({"config.yaml": b"\xff\xfe\x00"}, READ_THE_CONFIG, ("config.yaml", "UTF-8")),
    "cut config.yaml": ({"config.yaml": b"training: {"}, READ_THE_CONFIG, ("config.yaml", "not valid YAML")),
    "run.db of text": ({"run.db": b"no database, and long enough " * 50}, READ_THE_LEDGER, ("run.db",)),
    "cut run.db": ({"run.db": b"SQLite format 3\0" + bytes(60)}, READ_THE_LEDGER, ("run.db",)),
    "somebody's run.db": ({"run.db": other_database(0)}, READ_THE_LEDGER, ("run.db",)),
    "a run.db to come": ({"run.db": other_database(99)}, READ_THE_LEDGER, ("run.db", "99")),
    "no run.db": ({"run.db": None}, of("audit", "report", "replay"), ("run.db",)),
    "metrics that are no JSON": (
        {"metrics.jsonl": line() + b"step 2\n"},
        READ_THE_METRICS,
        ("metrics.jsonl:2", "not a line of JSON"),
    ),
    "metrics of lists": ({"metrics.jsonl": b"[1]\n"}, READ_THE_METRICS, ("metrics.jsonl:1", "list")),
    "metrics without a step": ({"metrics.jsonl": b"{}\n"}, READ_THE_METRICS, ("metrics.jsonl:1", "'step'")),
    "metrics with a step in words": (
        {"metrics.jsonl": line(step="two")},
        READ_THE_METRICS,
        ("metrics.jsonl:1", "'step'", "'two'"),
    ),
    "metrics with half a step": (
        {"metrics.jsonl": line(step=1.5)},
        READ_THE_METRICS,
        ("metrics.jsonl:1", "'step'", "1.5"),
    ),
    "metrics with a text": (
        {"metrics.jsonl": line(**{"train/loss": "low"})},
        READ_THE_METRICS,
        ("metrics.jsonl:1", "'train/loss'", "'low'"),
    ),
    "metrics of bytes": ({"metrics.jsonl": b"\xff\xff\n"}, READ_THE_METRICS, ("metrics.jsonl:1",)),
    "no metrics": (
        {"metrics.jsonl": None},
        of("doctor", "plan"),
        ("metrics.jsonl", "no step after the first"),
    ),
    "metrics of one step": (
        {"metrics.jsonl": line()},
        of("doctor", "plan"),
        ("no step after the first that generated",),
    ),
    "a damaged summary": ({"summary.json": b"{"}, of("doctor", "plan", "hand over"), ("summary.json",)),
    "a summary that is a list": (
        {"summary.json": b"[]"},
        of("doctor", "plan", "hand over"),
        ("summary.json", "JSON object"),
    ),
    "a summary with a list of hardware": (
        {"summary.json": b'{"hardware": []}'},
        of("doctor", "plan"),
        ("summary.json", "'hardware'", "[]"),
    ),
    "a damaged measurement": (
        {"evaluation_before.json": b'{"samples": ['},
        of("resume"),
        ("evaluation_before.json is damaged", "delete it to measure again"),
    ),
    "a measurement without samples": (
        {"evaluation_before.json": b"{}"},
        of("resume"),
        ("evaluation_before.json is damaged", "samples"),
    ),
    "a measurement with a list of numbers": (
        {"evaluation_before.json": b'{"samples": [1]}'},
        of("resume"),
        ("evaluation_before.json is damaged",),
    ),
    "a measurement with other fields": (
        {"evaluation_before.json": b'{"samples": [], "outcomes": 3}'},
        of("resume"),
        ("evaluation_before.json is damaged", "outcomes"),
    ),
    "a run of the baseline": ({"baseline.txt": b""}, of("doctor", "resume"), ("train_code_grpo",)),
}

# How a good run cannot be resumed, and what is said.
MEASURED = json.dumps(
    {
        "counts": [],
        "pass_at_1": {"mean": 0.5, "low": 0.4, "high": 0.6, "num_tasks": 1},
        "outcomes": {},
        "samples": [],
    }
).encode()
RESUMES: dict[str, tuple[Changes, tuple[str, ...], tuple[str, ...]]] = {
    "a run that has ended": ({"summary.json": b"{}"}, (), ("run has ended", "4 steps", "--max-steps")),
    "fewer steps than are done": ({}, ("--max-steps", "3"), ("training.max_steps", "3", "at least the 4")),
    "another name": ({}, ("--run-name", "other"), ("--run-name", "the run keeps its folder")),
    "another name by --set": ({}, ("--set", "output.name=x"), ("output.name", '"x"', "its folder run")),
    "another folder": ({}, ("--output-dir", "x"), ("--output-dir", "the run keeps its folder")),
    "another data set": ({}, ("--dataset", "codeio"), ("dataset.name", '"codeio"', '"ladder"')),
    "another model": (
        {},
        ("--model", "qwen2.5-coder-0.5b-instruct"),
        ("model.name", '"smollm2-135m-instruct"'),
    ),
    "another temperature than it was measured with before": (
        {"evaluation_before.json": MEASURED},
        ("--set", "evaluation.temperature=0.2"),
        ("evaluation.temperature", "0.2", "1.0, as the run was measured before training"),
    ),
    "another beginning of answers than it was measured with before": (
        {"evaluation_before.json": MEASURED},
        ("--set", "generation.assistant_prefill="),
        ("generation.assistant_prefill", "as the run was measured before training"),
    ),
    "another system prompt than it was measured with before": (
        {"evaluation_before.json": MEASURED},
        ("--set", "generation.system_prompt=Be terse."),
        ("generation.system_prompt", "Be terse.", "null, as the run was measured before training"),
    ),
    "another seed": ({}, ("--set", "training.seed=7"), ("training.seed", "7", "0, as in run/config.yaml")),
    "another curriculum": (
        {},
        ("--set", "acceleration.curriculum.warmup_steps=9"),
        ("acceleration.curriculum.warmup_steps", "9", "0, as in run/config.yaml"),
    ),
    "with adapters": ({}, ("--set", "lora.enabled=true"), ("lora.enabled", "true", "false")),
    "a lost ledger": ({"run.db": None}, (), ("run.db is lost", "--model", "step-000004")),
    "an empty ledger": ({"run.db": b""}, (), ("run.db is lost",)),
}

# What takes the place of state.json or other files of the newest checkpoint.
STATE = {"step": 4, "policy_version": 4, "files": {"model.safetensors": len(WEIGHTS)}}


def state(**fields: object) -> Changes:
    return {"state.json": json.dumps({**STATE, **fields}).encode()}


CHECKPOINTS: dict[str, tuple[Changes, tuple[str, ...]]] = {
    "no state.json": ({"state.json": None}, ("state.json is missing",)),
    "empty state.json": ({"state.json": b""}, ("state.json is damaged", "not valid JSON")),
    "cut state.json": ({"state.json": b'{"step": 4, "fil'}, ("state.json is damaged", "not valid JSON")),
    "state.json of bytes": ({"state.json": b"\xff\xfe"}, ("state.json is damaged", "not UTF-8")),
    "state.json a list": ({"state.json": b"[4]"}, ("state.json is damaged", "JSON object")),
    "state.json a folder": ({"state.json": None, "state.json/": b""}, ("state.json is damaged",)),
    "no step": (state(step=None), ("'step' is None",)),
    "a step in words": (state(step="four"), ("'step' is 'four'",)),
    "half a step": (state(step=4.5), ("'step' is 4.5",)),
    "a step that is true": (state(step=True), ("'step' is True",)),
    "a step below zero": (state(step=-1), ("'step' is -1",)),
    "a version in words": (state(policy_version="new"), ("'policy_version' is 'new'",)),
    "files that are a list": (state(files=["model.safetensors"]), ("'files'",)),
    "no files": (state(files={}), ("'files'",)),
    "files that are null": (state(files=None), ("'files'",)),
    "a lost file": ({"model.safetensors": None}, ("model.safetensors is missing",)),
    "a cut file": ({"model.safetensors": WEIGHTS[:3]}, ("model.safetensors has 3 bytes, expected 7",)),
    "a longer file": ({"model.safetensors": WEIGHTS * 2}, ("model.safetensors has 14 bytes",)),
    "a size in words": (state(files={"model.safetensors": "7"}), ("model.safetensors has 7 bytes",)),
    "a file of another name": (state(files={"weights.bin": 7}), ("weights.bin is missing",)),
}

# Folders that are no runs at all.
# One of which a command says of what is no run.
NO_RUN_SAYS = ("does not exist", "no such folder", "is no folder", "no config.yaml", "a run nor", "not a run")
NO_RUNS: dict[str, tuple[dict[str, bytes], dict[str, Command]]] = {
    "nothing": ({}, ALL),
    "an empty folder": ({"run/": b""}, ALL),
    "a file": ({"run": b"run"}, ALL),
    "a folder of other things": ({"run/notes.txt": b"x"}, ALL),
}

RESUME_CASES = [*RESUMES, "a checkpoint"]
RUN_CASES = [(fault, name) for fault, (_, commands, _) in RUNS.items() for name in commands]
CHECKPOINT_CASES = [(fault, name) for fault in CHECKPOINTS for name in ("hand over", "resume")]
NO_RUN_CASES = [(fault, name) for fault, (_, commands) in NO_RUNS.items() for name in commands]
CASES = [*RUN_CASES, *RESUME_CASES, *CHECKPOINT_CASES, *NO_RUN_CASES]


def arguments_of(command: str, run: str) -> tuple[str, ...]:
    return (run, "out") if command == "hand over" else (run,)


def change(folder: Path, changes: Changes) -> None:
    for name, data in changes.items():
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        elif not name.endswith("/"):
            path.unlink(missing_ok=True)
        if data is not None:
            write_files(folder, {name: data})


@pytest.mark.parametrize(("fault", "command"), RUN_CASES)
def test_a_damaged_run_is_refused(
    fault: str, command: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, commands, says = RUNS[fault]
    change(run, changes)
    case = Case(command=commands[command], arguments=arguments_of(command, "run"), says=says)
    refuse(case, tmp_path, capsys)


@pytest.mark.parametrize("fault", RESUMES)
def test_what_cannot_be_resumed_is_refused(
    fault: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, flags, says = RESUMES[fault]
    change(run, changes)
    refuse(Case(command=resume, arguments=("run", *flags), says=says), tmp_path, capsys)


def test_a_checkpoint_is_no_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("run/checkpoints/step-000002",)
    refuse(
        Case(command=resume, arguments=arguments, says=("is a checkpoint", "--resume run")), tmp_path, capsys
    )


def test_settings_other_than_the_runs_are_named(run: Path, tmp_path: Path) -> None:
    path = run / "config.yaml"
    config = load_config(path, overrides=["grpo.num_generations=2", "training.max_steps=9"])
    changed = ["training.max_steps 4 -> 9", "grpo.num_generations 4 -> 2"]
    assert refuse_resume(run, config) == changed
    # A file of --config names no run, or this one.
    for name in ("output.name=null", "output.name=run"):
        assert refuse_resume(run, load_config(path, overrides=[name])) == ["grpo.num_generations 4 -> 8"]
    # By hand in the file: the ledger knows better.
    path.write_text(render(config), encoding="utf-8")
    assert refuse_resume(run, load_config(path)) == ["grpo.num_generations 4 -> 2"]


@pytest.mark.parametrize(("fault", "command"), CHECKPOINT_CASES)
def test_a_damaged_checkpoint_is_refused(
    fault: str, command: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, says = CHECKPOINTS[fault]
    # Resume and hand-over take an earlier one that is whole: there is none.
    shutil.rmtree(run / "checkpoints" / "step-000002")
    change(run / "checkpoints" / "step-000004", changes)
    place = "run/checkpoints/step-000004" if command == "hand over" else "run"
    case = Case(command=ALL[command], arguments=arguments_of(command, place), says=("step-000004", *says))
    refuse(case, tmp_path, capsys)


@pytest.mark.parametrize(("fault", "command"), NO_RUN_CASES)
def test_what_is_no_run_is_refused(
    fault: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, commands = NO_RUNS[fault]
    case = Case(command=commands[command], arguments=arguments_of(command, "run"), files=files, says=("run",))
    said = refuse(case, tmp_path, capsys)
    assert any(words in said for words in NO_RUN_SAYS), said


def test_a_good_run_is_what_the_commands_take(run: Path, tmp_path: Path) -> None:
    """Otherwise all of the above would be refused for another reason."""
    assert audit([str(run)]) == 0
    assert report([str(run)]) == 0
    seconds = {"step/seconds": 1.0, "generation/seconds": 0.8, "rewards/seconds": 0.2}
    rows = b"".join(line(step=step, **seconds) for step in range(1, 5))
    (run / "metrics.jsonl").write_bytes(rows)
    assert doctor([str(run)]) == 0
    assert plan([str(run), "--gpus", "2"]) == 0
