"""Commands that write, onto a disk that takes nothing: a message with the path, and nothing left there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from curriculum.audit.command import main as audit
from pipeline.cli import evaluate_humaneval, train_accelerated, train_code_grpo
from pipeline.handover.command import main as hand_over
from pipeline.record.checkpoints import save_checkpoint
from pipeline.report.page import main as report
from sandbox.__main__ import main as sandbox
from tests.bad_input.harness import tree
from tests.bad_input.test_samples import SAMPLE, TASKS
from tests.pipeline.fake_stages import FakeRun, make_config
from tests.pipeline.tiny_model import make_model, make_tokenizer

Command = Callable[[Sequence[str]], int]
TINY = "--max-steps 1 --set evaluation.enabled=false --set generation.engine=transformers"
# What is written to, as TARGET.
COMMANDS: dict[str, tuple[Command, str]] = {
    "train": (train_accelerated, f"{TINY} --output-dir TARGET"),
    "train by name": (train_accelerated, f"{TINY} --output-dir TARGET --run-name mine"),
    "baseline": (train_code_grpo, f"{TINY} --output-dir TARGET"),
    "evaluate": (evaluate_humaneval, "--tasks tasks.jsonl --samples samples.jsonl --output TARGET/s.jsonl"),
    "report": (report, "run --output TARGET/report.html"),
    "trace": (report, "run --trace TARGET/trace.json"),
    "hand over": (hand_over, "run TARGET/model"),
    "audit": (audit, "tasks.jsonl --output TARGET"),
    "score": (sandbox, "score pairs.jsonl TARGET/verdicts.jsonl"),
}
# Training makes the folders that it needs, and so does the hand-over.
MAKE_FOLDERS = ("train", "train by name", "baseline", "hand over", "audit")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("place")
    FakeRun(folder, make_config(training={"max_steps": 2})).train()
    for path in (folder / "run" / "checkpoints").iterdir():
        path.rmdir()
    state = {"step": 2, "policy_version": 2}
    checkpoint = folder / "run" / "checkpoints" / "step-000002"
    save_checkpoint(checkpoint, make_model(), make_tokenizer(), {"optimizer": {}}, state)
    (folder / "run" / "config.yaml").write_text("training: {max_steps: 2}\n", encoding="utf-8")
    (folder / "tasks.jsonl").write_bytes(TASKS)
    (folder / "samples.jsonl").write_text(json.dumps(SAMPLE), encoding="utf-8")
    pair = {
        "id": "a",
        "solution": "def f(x): return x",
        "entry_point": "f",
        "tests": [{"args": [1], "expected": 1}],
    }
    (folder / "pairs.jsonl").write_text(json.dumps(pair), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=["read-only", "full"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system that takes no byte, or only names."""
    folder = tmp_path_factory.mktemp(request.param)
    options = "size=4k,ro" if request.param == "read-only" else "size=4k"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no file system may be mounted here")
    try:
        if request.param == "full":
            (folder / "all there is").write_bytes(b"x" * 4096)
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def run_on(
    name: str, target: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    command, line = COMMANDS[name]
    monkeypatch.chdir(place)
    status = command([word.replace("TARGET", str(target)) for word in line.split()])
    said = capsys.readouterr().err
    assert "Traceback" not in said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert errors and any(str(target) in line for line in errors), said
    return status, said


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_takes_nothing_is_named(
    name: str,
    target: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = tree(target)
    status, said = run_on(name, target, place, monkeypatch, capsys)
    # The sandbox's own command has 1 for programs that fail.
    assert status == (1 if list(before) and name != "score" else 2), said
    assert tree(target) == before


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in MAKE_FOLDERS])
def test_a_folder_that_is_not_there_is_named_and_not_made(
    name: str,
    tmp_path: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, _ = run_on(name, tmp_path / "none", place, monkeypatch, capsys)
    assert status == 2
    assert not (tmp_path / "none").exists()
