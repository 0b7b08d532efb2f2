"""A command line that cannot be run is refused before anything starts, with status 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks import ablation, coder, curriculum, generation, modes, quality, turns
from benchmarks.async_overlap import __main__ as async_overlap
from benchmarks.gpu import __main__ as gpu
from benchmarks.report import command_line
from benchmarks.train_step import __main__ as train_step

REFUSED = [
    (generation.parse_arguments, "--contenders plain magic", "invalid choice: 'magic'"),
    (generation.parse_arguments, "--threads 1 --contenders draft", "draft needs --draft-model"),
    (generation.parse_arguments, "--threads 1 --batch 0", "at least 1"),
    (generation.parse_arguments, "--threads 4096", "this process may use"),
    (train_step.parse, "--rows none", "--rows"),
    (train_step.parse, "--repeats 2 --rounds 3", "--repeats: value 2"),
    (train_step.parse, "--threads 0", "--threads"),
    (train_step.parse, "--threads 4096", "--threads: value 4096"),
    (train_step.parse, "--trl-micro-batch 7", "--trl-micro-batch: value 7: a divisor of 64"),
    (train_step.parse, "--flat-groups 8", "--flat-groups: value 8"),
    (train_step.parse, "--profile --device cuda", "--profile"),
    (train_step.parse, "--profile --rows all plain", "--profile"),
    (async_overlap.parse_arguments, "--steps 3", "--steps: value 3"),
    (gpu.parse, "nonsense", "STAGE: value 'nonsense': one of kernels, train_step"),
    (gpu.parse, "--device cpu", "--device: value 'cpu': with --tiny only"),
    (gpu.parse, "--threads 4096", "--threads: value 4096"),
    (gpu.parse, "--limit 0", "at least 1"),
    (modes.parse, "--cores 4096", "--cores: value 4096: this process may use"),
    *(
        (turns.parse, words, f"unrecognized arguments: {words}")
        for words in ("--set model.name=m", "--config recipe.yaml", "--model m", "--task-set mbpp", "--keep")
    ),
    (coder.parse, "--seed 1", "unrecognized arguments: --seed 1"),
    *((one.parse, "--steps 0", "--steps: value 0") for one in (modes, quality, ablation, curriculum)),
]


@pytest.mark.parametrize(("parse", "arguments", "complaint"), REFUSED)
def test_a_command_line_that_cannot_be_run_is_refused(
    parse: Callable[[Sequence[str]], object],
    arguments: str,
    complaint: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments.split())
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_result_names_no_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path.parent / "tasks.jsonl"
    words = [
        "-m",
        "benchmarks.coder",
        "--work",
        f"{tmp_path}/runs",
        "--set",
        f"dataset.name={elsewhere}",
        "-n",
        "1/2",
    ]
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *words])
    assert command_line() == "python -m benchmarks.coder --work runs --set dataset.name=tasks.jsonl -n 1/2"
