"""Wrong configurations: each ends with status 2 and a line naming file, field, value, what is allowed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import evaluate_humaneval, train_accelerated, train_code_grpo
from tests.configs.conftest import Stages


@pytest.fixture(autouse=True)
def nothing_runs(stages: Stages) -> Iterator[None]:
    """A configuration that is not refused must fail its test, not train for an hour."""
    yield
    assert stages.calls == [], "this configuration was accepted"


# (field, value, what the one line must hold besides the file's name, the field and the value)
WRONG_VALUES: list[tuple[Any, ...]] = [
    ("acceleration.refill.max_draws", 1, "a number > 1"),
    ("generation.engine_kwargs", 5, "a mapping from text to any value"),
    ("generation.engine_kwargs", None, "a mapping from text to any value"),
    ("generation.chat_template_kwargs", "brief", "a mapping from text to any value"),
    ("generation.chat_template_kwargs.tokenize", True, "variables of the chat template's own"),
    ("generation.system_prompt", 5, "text (put digits in quotes", "or null"),
    ("grpo.num_generations", 1, "a whole number >= 2"),
    ("grpo.num_generations", 7, "a divisor of", "= 32"),
    ("grpo.num_generation", 8, "value 8", "did you mean grpo.num_generations?", "scale_rewards"),
    ("training.beta", 0.1, "did you mean grpo.beta?"),
    ("training.max_steps", "8", "a whole number > 0"),
    ("generation.sleep_while_training", "always", "auto or true or false"),
    ("training.max_steps", 2.5, "a whole number"),
    ("training.seed", True, "a whole number >= 0"),
    ("training.bf16", 1, "true or false"),
    ("training.learning_rate", "fast", "a number > 0"),
    ("training.learning_rate", 0, "> 0"),
    ("grpo.beta", -0.1, "a number >= 0"),
    ("grpo.epsilon_high", -1, "a number > 0 or null"),
    ("grpo.loss_type", "ppo", "grpo, dr_grpo, dapo, bnpo"),
    ("grpo.loss_type", "gspo", "GSPO is grpo.importance_sampling_level: sequence"),
    ("grpo.delta", 1.2, "> 1 + epsilon = 1.2"),
    ("generation.top_p", 1.1, "<= 1"),
    ("generation.temperature", 0, "a number > 0"),
    ("generation.dtype", "int8", "auto, bfloat16, float32, float16"),
    ("generation.max_prompt_length", 0, "> 0"),
    ("execution.allow_network", True, "the sandbox has no network"),
    ("execution.allow_unsafe", "sometimes", "true or false"),
    ("execution.modules", "numpy", "a list of text"),
    ("execution.timeout", 0, "a number > 0"),
    ("execution.max_memory", "512MB", "a whole number"),
    ("execution.max_memory", 1, "a whole number >= 16"),
    ("grpo.epsilon_high", 0.1, "a number >= epsilon = 0.2"),
    ("rewards.preset", "strict", "tests_only, shaped"),
    ("rewards.per_source.mbpp", "all", "keys of: weights, tests, syntax_failure_reward"),
    ("rewards.per_source.mbpp.weights.lint", -1, "a number >= 0"),
    ("rewards.per_source.mbpp.weights", 1, "a mapping from text to a number >= 0"),
    ("dataset.name", "humaneval", "an evaluation set", "allow_evaluation_sets: [humaneval]"),
    ("dataset.name", "openai/openai_humaneval", "an evaluation set"),
    ("dataset.name", "lader", "did you mean ladder?", "OWNER/NAME"),
    ("dataset.split", "test", "train or heldout or all"),
    ("dataset.columns", ["q"], "a mapping from text"),
    ("dataset.columns.prompt", 3, "text"),
    ("dataset.allow_evaluation_sets", "mbpp", "a list of text"),
    ("acceleration.mode", "fast", "conservative, balanced"),
    ("acceleration.max_staleness", 9, ">= 0 and <= 8"),
    ("acceleration.async_rewards.workers", 0, "a whole number > 0"),
    ("acceleration.reward_cache.max_size", -1, "> 0"),
    ("acceleration.curriculum.strategy", "random", "length, complexity, success_rate"),
    ("evaluation.tasks", "codex", "mbpp"),
    ("runtime.device", "tpu", "auto, cpu, cuda"),
    ("output.name", "a/b", "no '/'"),
    ("output.name", 2026, "in quotes"),
    ("model.name", "", "text, not empty"),
]

# (YAML text, what the one line must hold besides the file's name)
WRONG_FILES = {
    "stages that do not follow each other": (
        "acceleration: {curriculum: {stages: [{until_step: 9}, {until_step: 9, max_difficulty: 2}]}}",
        ["acceleration.curriculum.stages.1.until_step", "9 is not allowed", "a whole number > 9"],
    ),
    "a stage with an unknown key": (
        "acceleration: {curriculum: {stages: [{until: 9}]}}",
        ["acceleration.curriculum.stages.0.until", "unknown key", "until_step"],
    ),
    "a stage of a level that is none": (
        "acceleration: {curriculum: {stages: [{max_difficulty: 6}]}}",
        ["acceleration.curriculum.stages.0.max_difficulty", "6", "a whole number >= 1 and <= 5"],
    ),
    "stages that are no list": (
        "acceleration: {curriculum: {stages: {until_step: 9}}}",
        ["acceleration.curriculum.stages", "a list of"],
    ),
    "batch that groups do not divide": (
        "training: {per_device_train_batch_size: 3, gradient_accumulation_steps: 1}",
        ["grpo.num_generations", "8", "training.per_device_train_batch_size", "= 3"],
    ),
    "unknown section": ("traning: {max_steps: 1}", ["traning", "unknown key", "did you mean training?"]),
    "field without its section": (
        "learning_rate: 1e-5",
        ["learning_rate", "1e-05", "did you mean training.learning_rate?"],
    ),
    "not a number": ("training: {learning_rate: .nan}", ["training.learning_rate", "NaN", "a number > 0"]),
    "infinite": ("grpo: {epsilon: .inf}", ["grpo.epsilon", "Infinity", "a number > 0"]),
    "cispo without its largest weight": (
        "grpo: {loss_type: cispo}",
        ["grpo.epsilon_high", "null", "a number >= 1"],
    ),
    "cispo with a range for its largest weight": (
        "grpo: {loss_type: cispo, epsilon_high: 0.28}",
        ["grpo.epsilon_high", "0.28", "a number >= 1"],
    ),
    "cispo by sequence": (
        "grpo: {loss_type: cispo, epsilon_high: 5, importance_sampling_level: sequence}",
        ["grpo.importance_sampling_level", '"sequence"', "token"],
    ),
    "cispo with a second bound": (
        "grpo: {loss_type: cispo, epsilon_high: 5, delta: 6}",
        ["grpo.delta", "6", "null", "cispo"],
    ),
    "second bound below the first": (
        "grpo: {epsilon_high: 0.28, delta: 1.25}",
        ["grpo.delta", "1.25", "a number > 1 + epsilon_high = 1.28"],
    ),
    "second bound where nothing is clipped": (
        "grpo: {delta: 2, importance_sampling_mode: token_mask}",
        ["grpo.delta", "2", "null"],
    ),
    "largest importance weight below one": (
        "grpo: {importance_sampling_mode: token_truncate, importance_sampling_cap: 0.5}",
        ["grpo.importance_sampling_cap", "0.5", "a number >= 1"],
    ),
    "module that is no name": (
        "execution: {modules: [numpy, import os]}",
        ["execution.modules", '"import os"', "names of Python modules"],
    ),
    "weights all zero": (
        "rewards: {weights: {tests: 0, execution: 0, syntax: 0, lint: 0, complexity: 0}}",
        ["rewards.weights", '"tests": 0.0', "at least one weight > 0"],
    ),
    "unknown source": (
        "rewards: {per_source: {humanevil: {tests: all}}}",
        ["rewards.per_source.humanevil", "did you mean humaneval?", "ladder, codeio, humaneval, mbpp, jsonl"],
    ),
    "unknown weight of a source": (
        "rewards: {per_source: {mbpp: {weights: {lynt: 1}}}}",
        ["rewards.per_source.mbpp.weights.lynt", "did you mean lint?", "type_safety"],
    ),
    "nothing left to reward": (
        "execution: {enabled: false}\nrewards: {weights: {syntax: 0, lint: 0, complexity: 0}}",
        ["execution.enabled", "false", "rewards.weights"],
    ),
    "nothing left to reward of a source": (
        "execution: {enabled: false}\n"
        "rewards: {per_source: {mbpp: {weights: {syntax: 0, lint: 0, complexity: 0}}}}",
        ["execution.enabled", "false", "rewards.per_source.mbpp.weights"],
    ),
    "training on the held-out split": (
        "dataset: {split: heldout}",
        ["dataset.name", '"ladder"', "ladder-heldout"],
    ),
    "allowing an unknown set": (
        "dataset: {allow_evaluation_sets: [apps]}",
        ["dataset.allow_evaluation_sets", '"apps"', "humaneval, mbpp, ladder-heldout"],
    ),
    "no such data file": (
        "dataset: {name: none.jsonl}",
        ["dataset.name", "none.jsonl", "an existing .jsonl file"],
    ),
    "columns of no hub set": (
        "dataset: {columns: {prompt: q}}",
        ["dataset.columns", '"q"', "only hub data sets"],
    ),
    "section that is a number": ("training: 5", ["training", "5", "a mapping with keys of: learning_rate"]),
    "section that is a list": ("grpo: [8]", ["grpo", "[8]", "a mapping with keys of: num_generations"]),
    "bad syntax": ("grpo: {beta: [", ["line 1", "not valid YAML", "valid YAML"]),
    "a tab": ("grpo:\n\tbeta: 0", ["line 2", "not valid YAML"]),
    "key given twice": ("grpo: {beta: 0, beta: 1}", ["key 'beta' is given twice", "each key once"]),
    "key that is no text": ("1: 2", ["a key that is not text"]),
    "a Python object": ("model: !!python/object/apply:os.getcwd []", ["not valid YAML", "python/object"]),
    "a loop": ("model: &m {name: *m}", ["not valid YAML", "ircular"]),
    "a list": ("- 1", ["not a mapping", "[1]", "a mapping of sections"]),
    "a word": ("hello", ["not a mapping", '"hello"', "a mapping of sections"]),
    "an empty file": ("", ["empty", "a mapping of sections"]),
    "comments only": ("# nothing\n", ["empty", "a mapping of sections"]),
}


def _error_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines and all(line.startswith("error: ") for line in lines)
    return lines


def _one_clear_line(capsys: pytest.CaptureFixture[str], where: object, parts: Iterable[str]) -> None:
    (line,) = _error_lines(capsys)
    assert line.startswith(f"error: {where}") and "; allowed: " in line
    for part in parts:
        assert part in line


@pytest.mark.parametrize(("field", "value", "parts"), [(*one[:2], one[2:]) for one in WRONG_VALUES])
def test_a_wrong_value_in_a_file_is_refused_in_one_clear_line(
    field: str, value: object, parts: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = value
    for name in reversed(field.split(".")):
        values = {name: values}
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")
    assert train_accelerated(["--config", str(file)]) == 2
    _one_clear_line(capsys, f"{file}: ", [field, json.dumps(value), *parts])


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_wrong_file_is_refused_in_one_clear_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, expected = WRONG_FILES[name]
    file = tmp_path / "run.yaml"
    file.write_text(text, encoding="utf-8")
    assert train_accelerated(["--config", str(file)]) == 2
    _one_clear_line(capsys, f"{file}: ", expected)


# (arguments, what the one line must hold)
WRONG_ARGUMENTS = {
    "set: a section before its field": (
        "--set training=3 --set training.seed=4",
        ["--set training", "training", "a mapping with keys of: learning_rate"],
    ),
    "set: epochs": (
        "--set training.num_train_epochs=3",
        [
            "training.num_train_epochs",
            "unknown key",
            "did you mean training.max_steps, for there are no epochs?",
        ],
    ),
    "file: a pipe": ("--config /dev/zero", ["/dev/zero", "not a regular file", "a readable YAML file"]),
    "set: wrong value": (
        "--set grpo.beta=abc",
        ["--set grpo.beta=abc", "grpo.beta", '"abc"', "a number >= 0"],
    ),
    "set: unknown key": (
        "--set grpo.betta=0",
        ["--set grpo.betta=0", "grpo.betta", "0", "did you mean grpo.beta?"],
    ),
    "set: no value": ("--set grpo.beta", ["--set", '"grpo.beta"', "SECTION.FIELD=VALUE"]),
    "set: no key": ("--set =3", ["--set", '"=3"', "SECTION.FIELD=VALUE"]),
    "set: empty value": ("--set grpo.beta=", ["grpo.beta", '""', "a number >= 0"]),
    "set: a field of a field": (
        "--set training.seed.x=1",
        ["--set training.seed.x=1", "training.seed", "a whole number"],
    ),
    "set: a section": ("--set training=3", ["--set training=3", "training", "3", "a mapping with keys"]),
    "set: half of a conflict": (
        "--set training.gradient_accumulation_steps=3 --set grpo.num_generations=16",
        ["--set grpo.num_generations=16", "16", "= 24"],
    ),
    "flag: workers": (
        "--async-workers 0",
        ["command line", "acceleration.async_rewards.workers", "0", "> 0"],
    ),
    "flag: steps": ("--max-steps many", ["command line", "training.max_steps", '"many"', "a whole number"]),
    "flag: samples": ("--max_samples 1.5", ["command line", "dataset.max_samples", "1.5", "a whole number"]),
    "flag: seed": ("--seed -1", ["command line", "training.seed", "-1", ">= 0"]),
    "flag: data set": (
        "--dataset humaneval",
        ["command line", "dataset.name", '"humaneval"', "an evaluation set"],
    ),
    "flag: data file": ("--dataset no.jsonl", ["command line", "dataset.name", "no.jsonl", "existing"]),
    "flag: run name": ("--run-name ..", ["command line", "output.name", '".."', "one folder"]),
    "flag: useless warm-up": (
        "--speedup-mode conservative --curriculum-warmup 5",
        ["command line", "--curriculum-warmup", "5", "acceleration.curriculum.enabled is false"],
    ),
    "flag: no such file": ("--config none.yaml", ["none.yaml", "no such file", "a readable YAML file"]),
    "flag: a folder": ("--config .", ["not a file", "a readable YAML file"]),
    "flag: no such run": (
        "--resume none",
        ["command line", "--resume", "no such folder: none", "earlier run"],
    ),
    "flag: no run at all": ("--resume --output_dir none", ["command line", "--resume", "no run in none"]),
}


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("--num_train_epochs 3", "training.max_steps, for there are no epochs"),
        ("--learning-rate 1e-5", "--set training.learning_rate=VALUE"),
        ("--max-step 3", "--max-steps"),
        ("--num-generations 8", "--set grpo.num_generations=VALUE"),
        ("--save_steps=5", "--set output.save_steps=VALUE"),
        ("training.max_steps=5", "--set training.max_steps=5"),
        ("--set grpo.beta=0 grpo.delta=2", "--set grpo.delta=2"),
    ],
)
def test_a_flag_that_is_none_is_refused_with_what_was_meant(
    arguments: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        train_accelerated(shlex.split(arguments))
    assert f"did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_a_wrong_argument_is_refused_in_one_clear_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, expected = WRONG_ARGUMENTS[name]
    assert train_accelerated(shlex.split(arguments)) == 2
    _one_clear_line(capsys, "", expected)


UNKNOWN_TO_PARSER = [["--speedup-mode", "fast"], ["--no-such-flag"], ["--model"], ["stray"], ["--max", "3"]]


@pytest.mark.parametrize("arguments", UNKNOWN_TO_PARSER)
def test_a_command_line_that_cannot_be_parsed_is_refused_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        train_accelerated(arguments)
    assert stop.value.code == 2
    (line,) = _error_lines(capsys)
    assert line.startswith("error: command line: ") and arguments[0] in line


def test_a_file_that_is_not_utf_8_is_refused_with_the_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(b"output: {name: caf\xe9}")
    assert train_accelerated(["--config", str(file)]) == 2
    (line,) = _error_lines(capsys)
    assert str(file) in line and "byte 18 is 0xe9" in line and "UTF-8" in line


def test_a_path_that_cannot_be_a_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 300
    assert train_accelerated(["--config", name]) == 2
    assert train_accelerated(["--dataset", f"{name}.jsonl"]) == 2
    assert train_accelerated(["--resume", name]) == 2
    assert evaluate_humaneval(["--samples", name]) == 2
    lines = _error_lines(capsys)
    assert len(lines) == 4 and all("; allowed: " in line for line in lines)


def test_all_problems_are_listed_each_with_its_own_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("lora: {r: 0}\ngrpo: {bata: 1}\nacceleration: {mode: fast}", encoding="utf-8")
    status = train_accelerated(["--config", str(file), "--set", "training.bf16=3", "--max-steps", "0"])
    assert status == 2
    lines = _error_lines(capsys)
    assert len(lines) == 5
    for where, field in (
        (file, "lora.r"),
        (file, "grpo.bata"),
        (file, "acceleration.mode"),
        ("--set training.bf16=3", "training.bf16"),
        ("command line", "training.max_steps"),
    ):
        assert any(line.startswith(f"error: {where}: {field}: ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--speedup-mode", "balanced"], "--speedup-mode"),
        (["--async_workers", "2"], "--async-workers"),
        (["--curriculum-warmup", "3"], "--curriculum-warmup"),
        (["--no-cache"], "--no-cache"),
        (["--resume"], "--resume"),
        (["--set", "acceleration.max_staleness=1"], "--set acceleration.max_staleness=1"),
    ],
)
def test_the_baseline_refuses_acceleration(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_code_grpo(arguments) == 2
    (line,) = _error_lines(capsys)
    assert f"command line: {named}: " in line and "train_accelerated" in line


WRONG_EVALUATIONS = {
    "nothing to evaluate": ("", ["--model", "--samples", "exactly one of"]),
    "model and samples": ("--model m --samples s.jsonl", ["exactly one of"]),
    "unknown tasks": ("--model m --tasks humanevil", ["--tasks", "humanevil", "did you mean humaneval?"]),
    "no such tasks": ("--model m --tasks no.jsonl", ["--tasks", "no.jsonl", "existing"]),
    "no such samples": ("--samples no.jsonl", ["--samples", "no.jsonl", "existing"]),
    "no completions": ("--model m -n 0", ["-n", "0", "a whole number > 0"]),
    "k above n": ("--model m -n 4 -k 10", ["-k", "10", "at most -n, which is 4"]),
    "k of zero": ("--model m -k 0", ["-k", "0", "a whole number > 0"]),
    "k of no number": ("--model m -k one", ["-k", '"one"', "a whole number > 0"]),
    "negative temperature": ("--model m --temperature -1", ["--temperature", "-1", ">= 0"]),
    "temperature of no number": ("--model m --temperature hot", ["--temperature", '"hot"', "a number"]),
    "greedy, many": ("--model m --temperature 0 -n 2", ["-n", "2", "1 with --temperature 0"]),
    "top_p of zero": ("--model m --top_p 0", ["--top-p", "0", "> 0 and <= 1"]),
    "no length": ("--model m --max_completion_length 0", ["--max-completion-length", "0", "> 0"]),
    "module that is no name": (
        "--model m --module 'num py'",
        ["--module", '"num py"', "names of Python modules"],
    ),
    "no limit": ("--model m --limit null", ["--limit", '"null"', "a number"]),
    "unknown engine": ("--model m --engine tgi", ["--engine", '"tgi"', "vllm, transformers"]),
    "negative seed": ("--model m --seed -3", ["--seed", "-3", ">= 0"]),
    "no such folder": ("--model m --output no/s.jsonl", ["--output", "no such folder: no"]),
    "sampling flag with samples": ("--samples s.jsonl -n 4", ["-n", "nothing is sampled"]),
}


@pytest.mark.parametrize("name", WRONG_EVALUATIONS)
def test_a_wrong_evaluation_is_refused_in_one_clear_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.jsonl").touch()
    arguments, expected = WRONG_EVALUATIONS[name]
    assert evaluate_humaneval(shlex.split(arguments)) == 2
    _one_clear_line(capsys, "command line: ", expected)
