"""The command line: what it imports, how flags may be written, what it hands on, and its exit status."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

from configs.evaluation_options import EvaluationOptions
from configs.load import load_config, render
from configs.schema import Config
from pipeline.__main__ import main as pipeline_main
from pipeline.cli import evaluate_humaneval, train_accelerated, train_code_grpo
from pipeline.record.run_folder import RunFolder
from tests.configs.conftest import Stages

ROOT = Path(__file__).parents[2]
# What the driver of a run imports before its engine is up; on two cores each second counts twice.
NOT_IN_A_DRIVER = ("torch", "transformers", "vllm", "datasets", "huggingface_hub")
HEAVY = ("torch", "ray", "vllm", "transformers", "trl", "datasets", "numpy")


def _config(stages: Stages) -> Config:
    config = stages.calls[-1][0]
    assert isinstance(config, Config)
    return config


def _run_in_new_process(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("script", ["train_accelerated", "train_code_grpo", "evaluate_humaneval"])
def test_help_imports_nothing_heavy(script: str) -> None:
    done = _run_in_new_process(
        f"import sys\nfrom pipeline.cli import {script}\ntry:\n    {script}(['--help'])\n"
        f"finally:\n    print([m for m in {(*HEAVY, 'pydantic', 'yaml')} if m in sys.modules])"
    )
    assert done.returncode == 0
    assert "usage:" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["--set", "grpo.beta=x"], ["--show-config"]])
def test_a_configuration_is_checked_and_shown_before_any_heavy_import(arguments: list[str]) -> None:
    done = _run_in_new_process(
        f"import sys\nfrom pipeline.cli import train_accelerated\nstatus = train_accelerated({arguments})\n"
        f"print([m for m in {HEAVY} if m in sys.modules])\nsys.exit(status)"
    )
    assert done.returncode == (2 if "--set" in arguments else 0)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Traceback" not in done.stderr


def test_a_run_imports_no_model_library_in_the_driver() -> None:
    done = _run_in_new_process(
        f"import sys\nimport pipeline.run.orchestrator, pipeline.run.startup\n"
        f"print([m for m in {NOT_IN_A_DRIVER} if m in sys.modules])"
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_a_run_ends_and_is_handed_over_without_torch_in_its_driver() -> None:
    done = _run_in_new_process(
        "import sys\nimport pipeline.run.orchestrator, pipeline.handover.command\n"
        "print([m for m in ('torch', 'transformers', 'vllm', 'datasets') if m in sys.modules])"
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


ALL_FLAGS = {
    "--speedup-mode": "aggressive",
    "--max-samples": "5",
    "--output-dir": "out",
    "--run-name": "first",
    "--async-workers": "3",
    "--curriculum-warmup": "4",
    "--max-steps": "6",
}


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("separator", ["-", "_"])
def test_flags_of_several_words_take_hyphen_and_underscore(
    separator: str, joined: bool, stages: Stages
) -> None:
    arguments = ["--model", "a_b-c", "--dataset", "codeio", "--seed", "9"]
    for flag, value in ALL_FLAGS.items():
        spelt = "--" + flag[2:].replace("-", separator)
        arguments += [f"{spelt}={value}"] if joined else [spelt, value]
    arguments += [
        f"--no{separator}cache",
        f"--no{separator}execution",
        "--set=generation.stop_at_code_fence=false",
    ]
    assert train_accelerated(arguments) == 0
    config = _config(stages)
    assert config.model.name == "a_b-c"
    assert (config.dataset.name, config.dataset.max_samples) == ("codeio", 5)
    assert (config.output.dir, config.output.name) == ("out", "first")
    assert (config.training.max_steps, config.training.seed) == (6, 9)
    assert config.acceleration.mode == "aggressive"
    assert config.acceleration.async_rewards.workers == 3
    assert config.acceleration.curriculum.warmup_steps == 4
    assert not config.acceleration.reward_cache.enabled
    assert not config.execution.enabled
    assert not config.generation.stop_at_code_fence
    assert stages.calls[-1][1] is None


@pytest.mark.parametrize("spelling", [["--keep-alive", "--attach"], ["--keep_alive", "--attach"]])
def test_the_engine_is_kept_and_attached_to_by_flags(spelling: list[str], stages: Stages) -> None:
    assert train_accelerated([]) == 0
    runtime = _config(stages).runtime
    assert (runtime.keep_alive, runtime.attach) == (False, False)
    assert train_accelerated(spelling) == 0
    runtime = _config(stages).runtime
    assert (runtime.keep_alive, runtime.attach) == (True, True)


@pytest.mark.parametrize("flag", ["--stop-resident", "--stop_resident"])
def test_stopping_the_resident_engine_needs_no_configuration(flag: str, stages: Stages) -> None:
    assert train_accelerated([flag, "--config", "none.yaml"]) == 0
    assert stages.calls == [()]


@pytest.mark.parametrize("flag", ["--watch", "--stop-resident"])
def test_what_trains_nothing_takes_no_flag_of_a_training(
    flag: str, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_accelerated(["--max-steps", "3", flag]) == 2
    assert f"--max-steps: not used with {flag}, which trains nothing" in capsys.readouterr().err
    assert stages.calls == []


@pytest.mark.parametrize("flag", ["--profile-startup", "--profile_startup"])
def test_a_start_is_profiled_with_the_whole_configuration(flag: str, stages: Stages) -> None:
    assert train_accelerated([flag, "--seed", "5"]) == 0
    assert len(stages.calls[-1]) == 1
    assert _config(stages).training.seed == 5


@pytest.mark.parametrize("flag", ["--keep-alive", "--attach", "--stop-resident", "--profile-startup"])
def test_the_baseline_has_no_engine_to_keep(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        train_code_grpo([flag])
    assert stop.value.code == 2 and flag in capsys.readouterr().err


def test_flags_win_over_set_and_set_over_the_file(tmp_path: Path, stages: Stages) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("training: {seed: 1, max_steps: 1, warmup_steps: 1}")
    sets = ["--set", "training.seed=2", "--set", "training.max_steps=2"]
    assert train_accelerated(["--config", str(file), *sets, "--seed", "3"]) == 0
    training = _config(stages).training
    assert (training.seed, training.max_steps, training.warmup_steps) == (3, 2, 1)


def test_resume_uses_the_configuration_of_the_run(tmp_path: Path, stages: Stages) -> None:
    for number, name in enumerate(("old", "new")):
        (tmp_path / name).mkdir()
        config = load_config(
            mode="conservative", overrides=[f"training.seed={number}", f"output.name={name}"]
        )
        (tmp_path / name / "config.yaml").write_text(render(config))
    assert train_accelerated(["--resume", str(tmp_path / "old"), "--verbose", "--max-steps", "99"]) == 0
    config = _config(stages)
    assert (config.training.seed, config.training.max_steps) == (0, 99)
    assert config.acceleration.mode == "conservative"
    assert stages.calls[-1][1] == str(tmp_path / "old")
    assert train_accelerated(["--resume", "--output_dir", str(tmp_path)]) == 0
    assert stages.calls[-1][1] == str(tmp_path / "new")
    assert _config(stages).training.seed == 1


def test_resume_passes_runs_of_the_baseline_over_and_refuses_them_by_name(
    tmp_path: Path, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine", "baseline"):
        output = load_config(overrides=[f"output.dir={tmp_path}", f"output.name={name}"])
        RunFolder.create(output.output, render(output), is_baseline=name == "baseline").close()
    profile = load_config(overrides=[f"output.dir={tmp_path}", "output.name=profile"])
    RunFolder.create(profile.output, render(profile)).close()
    for left in ("startup.json", "startup.jsonl"):
        (tmp_path / "profile" / left).write_text("{}")
        assert train_accelerated(["--resume", "--output-dir", str(tmp_path)]) == 0
        assert stages.calls[-1][1] == str(tmp_path / "mine")
        (tmp_path / "profile" / left).unlink()
    # What is set is for the run, whatever the defaults would say to it.
    ours = ["--set", "training.per_device_train_batch_size=2", "--set", "grpo.num_generations=2"]
    (tmp_path / "profile" / "startup.json").write_text("{}")
    one = ["--set", "training.gradient_accumulation_steps=1"]
    assert train_accelerated(["--resume", *ours, *one, "--output-dir", str(tmp_path)]) == 0
    assert stages.calls[-1][1] == str(tmp_path / "mine")
    (tmp_path / "profile" / "startup.json").unlink()
    (tmp_path / "profile" / "startup.jsonl").write_text("{}")
    assert train_accelerated(["--resume", str(tmp_path / "baseline")]) == 2
    assert "baseline is a run of train_code_grpo, which cannot be resumed" in capsys.readouterr().err
    with pytest.raises(ValueError, match="was made by train_code_grpo"):
        RunFolder.open(tmp_path / "baseline")
    (tmp_path / "mine" / "config.yaml").unlink()
    assert train_accelerated(["--resume", "--output-dir", str(tmp_path)]) == 2
    assert f"no run in {tmp_path} but those of train_code_grpo" in capsys.readouterr().err


def test_a_full_disk_is_a_message_and_status_1(stages: Stages, capsys: pytest.CaptureFixture[str]) -> None:
    stages.fault = OSError(errno.ENOSPC, "No space left on device", "runs/x/metrics.jsonl")
    assert train_accelerated([]) == 1
    written = capsys.readouterr().err
    assert "No space left on device: 'runs/x/metrics.jsonl'" in written and "free some space" in written
    stages.fault = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        train_accelerated([])


def test_a_pipe_that_breaks_is_an_error_where_it_is_not_the_output(
    stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    stages.fault = BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert train_accelerated([]) == 1
    assert capsys.readouterr().err == f"error: [Errno {errno.EPIPE}] Broken pipe\n"


def test_the_baseline_is_synchronous_and_says_which_settings_it_leaves_unused(
    tmp_path: Path, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("acceleration: {reward_cache: {max_size: 5}}\ntraining: {seed: 3}")
    assert train_code_grpo(["--config", str(file), "--no_execution"]) == 0
    config = _config(stages)
    assert (config.training.seed, config.acceleration.mode) == (3, "conservative")
    assert not config.execution.enabled
    note = capsys.readouterr().err
    assert "acceleration.reward_cache.max_size" in note and str(file) in note and "training.seed" not in note


def test_evaluation_hands_on_what_was_asked(stages: Stages) -> None:
    numbers = ["-n", "20", "-k", "1", "-k", "10", "--temperature", "1e-1", "--top_p", "0.9", "--limit", "3"]
    arguments = ["--model", "m", "--tasks", "ladder-heldout", "--engine", "transformers", "--seed", "4"]
    sandbox = ["--allow_unsafe", "--module", "numpy", "--module", "sympy"]
    assert evaluate_humaneval([*arguments, *numbers, *sandbox, "--max_completion_length", "64"]) == 0
    assert stages.calls == [
        (
            EvaluationOptions(
                model="m",
                tasks="ladder-heldout",
                num_samples=20,
                ks=(1, 10),
                temperature=0.1,
                top_p=0.9,
                max_completion_length=64,
                limit=3,
                engine="transformers",
                seed=4,
                allow_unsafe=True,
                modules=("numpy", "sympy"),
            ),
        )
    ]


def test_evaluation_without_options_has_the_defaults_of_its_options(stages: Stages) -> None:
    assert evaluate_humaneval(["--model", "m"]) == 0
    assert stages.calls == [(EvaluationOptions(model="m"),)]


@pytest.mark.parametrize("spelling", ["--keep-alive", "--keep_alive"])
def test_evaluation_keeps_an_engine_and_attaches_to_one(
    spelling: str, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate_humaneval(["--model", "m", "--attach", spelling]) == 0
    assert stages.calls == [(EvaluationOptions(model="m", attach=True, keep_alive=True),)]
    assert evaluate_humaneval(["--model", "m", "--engine", "transformers", "--attach"]) == 2
    assert "vllm with --attach or --keep-alive" in capsys.readouterr().err
    assert evaluate_humaneval(["--samples", __file__, "--attach"]) == 2
    assert "--attach: not used with --samples" in capsys.readouterr().err


def test_a_user_error_of_a_stage_is_a_message_and_status_2(
    stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    stages.fault = ValueError("model.name: no such folder: 'x'")
    assert train_accelerated([]) == 2
    assert capsys.readouterr().err == "error: model.name: no such folder: 'x'\n"
    assert train_accelerated(["--verbose"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown and shown.endswith("error: model.name: no such folder: 'x'\n")


def test_ctrl_c_ends_with_status_130(stages: Stages, capsys: pytest.CaptureFixture[str]) -> None:
    stages.fault = KeyboardInterrupt()
    assert train_accelerated([]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_another_error_is_not_hidden(stages: Stages) -> None:
    stages.fault = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        train_accelerated([])


def verbs_printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert pipeline_main([]) == 0
    return re.findall(r"^  ([\w-]+)", capsys.readouterr().out, re.MULTILINE)


def test_every_verb_has_a_command_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = verbs_printed(capsys)
    assert verbs == ["doctor", "report", "audit", "replay", "hand-over", "merge", "metrics"]
    for verb in verbs:
        with pytest.raises(SystemExit) as stop:
            pipeline_main([verb, "--help"])
        assert stop.value.code == 0
        assert f"usage: python -m pipeline {verb} " in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["hand-over", "hand_over"])
def test_a_verb_takes_hyphen_and_underscore(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline_main([verb, "none", "out"]) == 2
    assert "error: none does not exist" in capsys.readouterr().err


def test_an_unknown_verb_is_one_line_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline_main(["reprot", "runs/x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "error: 'reprot' is not a verb; allowed: doctor, report, audit, replay, hand-over, merge, metrics"
    )


def test_a_file_that_keeps_a_mode_from_acting_is_said(
    tmp_path: Path, stages: Stages, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a run's own config.yaml, which sets everything."""
    file = tmp_path / "config.yaml"
    file.write_text(render(load_config(mode="balanced")), encoding="utf-8")
    assert train_accelerated(["--config", str(file), "--speedup-mode", "aggressive"]) == 0
    said = capsys.readouterr().err
    assert f"note: {file} overrides settings of mode aggressive (its own in brackets): " in said
    assert "acceleration.max_staleness 1 (2)" in said and "acceleration.refill.enabled" not in said
    assert train_accelerated(["--config", str(file), "--set", "acceleration.mode=aggressive"]) == 0
    assert "overrides settings of mode aggressive" in capsys.readouterr().err
    assert train_accelerated(["--config", str(file), "--speedup-mode", "balanced"]) == 0
    assert train_accelerated(["--config", str(file)]) == 0
    assert "overrides" not in capsys.readouterr().err
