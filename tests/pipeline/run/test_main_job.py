"""The commands as a user runs them: real vLLM, real Ray, real weights, real sandbox, in small."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from configs.schema import ModelConfig
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.record.metrics import read_metrics
from tests.left_behind import nothing_left
from tests.pipeline.fake_stages import rows
from tests.pipeline.tiny_model import save_byte_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = (
    "grpo.num_generations=4",
    "training.per_device_train_batch_size=4",
    "training.gradient_accumulation_steps=2",
    "generation.max_completion_length=32",
    "evaluation.max_completion_length=32",
    "evaluation.max_tasks=4",
    "evaluation.num_samples=2",
    "output.save_steps=1",
    "runtime.progress=plain",
)


def command(
    name: str, *arguments: str, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    program = (
        f"import sys; from pipeline.cli import {name}; status = {name}(); "
        "print('Ray was imported:', 'ray' in sys.modules); sys.exit(status)"
    )
    with nothing_left() as temporary:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "TMPDIR": temporary, **(environment or {})},
        )
        assert done.returncode == 0, done.stderr[-4000:]
    # No bars, colours or warnings of libraries where nobody watches.
    assert [line for line in done.stderr.splitlines() if not line.startswith("evaluated ")] == []
    assert "\x1b" not in done.stdout and "\r" not in done.stdout
    return done


def settings(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def steps_and_draws(run: Path) -> tuple[list[tuple[int, int]], dict[str, int]]:
    steps = rows(run, "SELECT step, policy_version FROM steps WHERE status = 'committed' ORDER BY step")
    return steps, dict(rows(run, "SELECT status, COUNT(*) FROM draws GROUP BY status"))


def others_load_it_without_a_word(run: Path, folder: Path) -> None:
    """What hand-over makes of ``run`` writes a token in Transformers, which has nothing to say of it."""
    hand_over = [sys.executable, "-m", "pipeline", "hand-over", str(run), str(folder)]
    use = (
        "import sys; from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
        "name = sys.argv[1]; "
        "inputs = T.from_pretrained(name)('def', return_tensors='pt'); "
        "M.from_pretrained(name).generate(**inputs, max_new_tokens=1)"
    )
    for arguments in (hand_over, [sys.executable, "-W", "error::UserWarning", "-c", use, str(folder)]):
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=200)
        # A bar of Transformers is the only thing that it may show.
        said = [line for line in done.stderr.splitlines() if line and "Loading weights" not in line]
        assert done.returncode == 0 and said == [], done.stderr


def test_two_steps_an_evaluation_and_a_resume_with_vllm(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "small"
    # Refilled groups may be of newer weights than the step expects.
    on_the_way = settings(
        "evaluation.every_steps=1", "evaluation.inloop_tasks=2", "acceleration.refill.enabled=false"
    )
    arguments = ("--run-name", "small", "--max-steps", "2", *settings(*SMALL), *on_the_way)
    done = command("train_accelerated", *arguments, folder=tmp_path)
    assert "before training" in done.stdout and "after training" in done.stdout
    summary = json.loads((run / "summary.json").read_text())
    assert summary["num_steps"] == 2
    assert set(summary["evaluation"]["difference"]) == {"mean", "low", "high", "num_tasks"}
    steps, draws = steps_and_draws(run)
    assert steps == [(1, 1), (2, 2)]
    assert draws["trained"] == 4
    metrics = read_metrics(run / "metrics.jsonl")
    assert [row["train/staleness_max"] for row in metrics] == [0.0, 1.0]
    # It ends beside whatever step is under way.
    measured = [row for row in metrics if "eval/policy_version" in row]
    assert [(row["eval/policy_version"], row["eval/num_tasks"]) for row in measured] == [(1, 2)]
    assert [path.name for path in run.glob("evaluation_step*")] == ["evaluation_step-000001.json"]
    assert (run / "samples.jsonl").read_text().count("\n") == 4
    trained, base = (
        load_model(run / "checkpoints" / "step-000002"),
        load_model(resolve_model(ModelConfig())),
    )
    pairs = zip(trained.parameters(), base.parameters(), strict=True)
    assert any(not torch.equal(left, right) for left, right in pairs)
    assert load_tokenizer(run / "checkpoints" / "step-000002").chat_template
    held = dict(rows(run, "SELECT policy_version, held FROM weights WHERE held = published"))
    receipts = rows(run, "SELECT DISTINCT max_policy_version, receipt FROM rollouts")
    assert list(held) == [1, 2]
    assert {receipt == held.get(version, "") for version, receipt in receipts} == {True}
    others_load_it_without_a_word(run, tmp_path / "handed-over")

    sent = ("--set", "runtime.weight_transport=collective")
    resumed = command("train_accelerated", "--resume", str(run), "--max-steps", "3", *sent, folder=tmp_path)
    assert "resumed from step 2" in resumed.stdout
    assert len(list(run.glob("evaluation_step*"))) == 2
    # What was measured before the first part is still what the second compares with.
    compared = json.loads((run / "summary.json").read_text())["evaluation"]
    assert compared["before"] == summary["evaluation"]["before"]
    assert compared["difference"] is not None
    steps, draws = steps_and_draws(run)
    assert steps == [(1, 1), (2, 2), (3, 3)]
    assert draws["trained"] == 6
    assert [row["step"] for row in read_metrics(run / "metrics.jsonl")] == [1, 2, 3]


def test_the_portable_engine_trains_on_policy_and_on_no_task_whose_reference_fails(tmp_path: Path) -> None:
    tasks = [
        {
            "task_id": name,
            "prompt": f"Write a function {name}(x) that returns x.",
            "entry_point": name,
            "tests": [{"args": [2], "expected": 2}],
            "reference": f"def {name}(x):\n    return {value}\n",
        }
        for name, value in (("same", "x"), ("wrong", "x + 1"))
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    model = save_byte_model(tmp_path / "own" / "model")
    command(
        "train_accelerated",
        *("--speedup-mode", "conservative", "--run-name", "portable", "--max-steps", "2"),
        *("--dataset", "tasks.jsonl", "--model", "own/model"),
        *settings(*SMALL, "generation.engine=transformers", "evaluation.enabled=false"),
        folder=tmp_path,
    )
    run = tmp_path / "runs" / "portable"
    metrics = read_metrics(run / "metrics.jsonl")
    assert [row["train/staleness_max"] for row in metrics] == [0.0, 0.0]
    assert set(rows(run, "SELECT task_id FROM draws")) == {("same",)}
    # Elsewhere "own/model" would be a name of the hub.
    assert f"name: {model}\n" in (run / "config.yaml").read_text()
    notes = rows(run, "SELECT text FROM events WHERE kind = 'wrong references'")
    assert len(notes) == 1 and "wrong:" in notes[0][0]


@pytest.mark.parametrize("address", ["null", "local"])
def test_two_trainer_ranks_train_a_small_model_with_ray_or_without(
    address: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # A socket's path has to be short, so not in tmp_path.
    sessions = Path(tempfile.mkdtemp())
    sessions.rmdir()
    portable = ("generation.engine=transformers", "evaluation.enabled=false", "runtime.trainer_ranks=2")
    request.addfinalizer(lambda: shutil.rmtree(sessions, ignore_errors=True))
    done = command(
        "train_accelerated",
        *("--run-name", "ranks", "--max-steps", "2", "--model", str(save_byte_model(tmp_path / "model"))),
        *settings(*SMALL, *portable, f"cluster.address={address}"),
        folder=tmp_path,
        environment={"RAY_TMPDIR": str(sessions)},
    )
    steps, _ = steps_and_draws(tmp_path / "runs" / "ranks")
    assert steps == [(1, 1), (2, 2)]
    load_model(tmp_path / "runs" / "ranks" / "checkpoints" / "step-000002")
    is_ray = address == "local"
    assert sessions.exists() == is_ray and f"Ray was imported: {is_ray}" in done.stdout


def test_humaneval_is_sampled_scored_and_written_in_openai_format(tmp_path: Path) -> None:
    done = command(
        "evaluate_humaneval",
        *("--model", "smollm2-135m-instruct", "--limit", "4", "-n", "2", "-k", "1", "-k", "2"),
        *("--max-completion-length", "48", "--output", "samples.jsonl"),
        folder=tmp_path,
    )
    assert "pass@1" in done.stdout and "pass@2" in done.stdout
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == 8 and all(set(line) == {"task_id", "completion"} for line in lines)
    command("evaluate_humaneval", *("--samples", "samples.jsonl", "--limit", "4", "-k", "1"), folder=tmp_path)


@pytest.mark.gpu
def test_two_steps_on_a_gpu(tmp_path: Path) -> None:
    command(
        "train_accelerated",
        *("--run-name", "gpu", "--max-steps", "2"),
        *settings(*SMALL, "runtime.device=cuda", "generation.gpu_memory_utilization=0.3"),
        *settings("generation.enforce_eager=true"),
        folder=tmp_path,
    )
    assert json.loads((tmp_path / "runs" / "gpu" / "summary.json").read_text())["num_steps"] == 2
