"""A replay: the same bits after staleness, a resume and streamed parts; what is said where they differ."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from configs.load import render
from configs.schema import Config, OutputConfig
from pipeline.host.device import for_device
from pipeline.messages import RolloutGroup
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import read_metrics
from pipeline.record.run_folder import RunFolder
from pipeline.rollouts.batch import make_batch
from pipeline.run.replay import Tasks, main
from pipeline.run.resume import CHANGED, refuse_resume, terms_of
from pipeline.training.handle import TrainerHandle
from pipeline.weights.files import remove_weights
from tests.pipeline.fake_stages import rows
from tests.pipeline.rollouts import groups
from tests.pipeline.run.test_main_job import SMALL, command, settings
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer, save_byte_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def save_digit_model(folder: Path) -> Path:
    """A random model that writes digits mostly, so that many of its answers compile.

    For each token two digits are equally likely, so that the answers to a prompt differ.
    """
    tokenizer = make_byte_tokenizer()
    model = make_byte_model(0, initializer_range=0.2)
    model.config.tie_word_embeddings = False
    head = torch.zeros(len(tokenizer), 64)
    digits = [tokenizer.convert_tokens_to_ids(str(digit)) for digit in range(1, 9)]
    two = 3 * torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    head[digits] = torch.cat([two, -two, two, -two])
    model.lm_head.weight = torch.nn.Parameter(head)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def trained(folder: Path, name: str, num_steps: int, *more: str) -> Path:
    """A run of the digit model in ``folder``, with something to learn in every step."""
    # Another one for each answer.
    score = "zlib.crc32(completions[0].encode()) % 1000 / 1000"
    source = f"import zlib\ndef reward(prompts, completions, **columns):\n    return [{score}]\n"
    (folder / "scores.py").write_text(source)
    small = (
        "generation.engine=transformers",
        "evaluation.enabled=false",
        "training.learning_rate=1e-3",
        "rewards.custom=[scores:reward]",
        "rewards.custom_weights=[5.0]",
        "generation.max_completion_length=8",
    )
    model = ("--model", str(save_digit_model(folder / "model")), "--run-name", name)
    steps = ("--max-steps", str(num_steps))
    command("train_accelerated", *model, *steps, *settings(*SMALL, *small, *more), folder=folder)
    return folder / "runs" / name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of an asynchronous run of a small model, resumed after the second."""
    run = trained(tmp_path_factory.mktemp("replay"), "small", 2)
    command("train_accelerated", "--resume", str(run), "--max-steps", "4", folder=run.parents[1])
    return run


def copy(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "copy"))


def change(run: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(run / "run.db") as database:
        assert database.execute(statement, values).rowcount > 0
    database.close()


def test_a_run_that_was_resumed_is_the_same_bit_for_bit(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main([str(run)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:-1] == [f"step {step}: the same" for step in (1, 2, 3, 4)]
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    steps = rows(run, "SELECT layout, metrics FROM steps WHERE status = 'committed'")
    assert all(sum(json.loads(layout)["parts"]) == 2 for layout, _ in steps)
    # There was something to learn.
    assert all(json.loads(metrics)["train/grad_norm"] > 0 for _, metrics in steps)


def test_a_token_of_another_probability_shows_in_its_step(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = copy(run, tmp_path)
    ((draw_ids,),) = rows(other, "SELECT draw_ids FROM steps WHERE step = 2")
    query = (
        "SELECT draw_id, place, logprobs FROM trained_tokens"
        " WHERE draw_id IN (SELECT value FROM json_each(?)) AND LENGTH(logprobs) > 0"
    )
    for draw_id, place, logprobs in rows(other, query, draw_ids):
        values = array("f", logprobs)
        # The least likely one: of a token that is all but certain the gradient is all but zero.
        values[values.index(min(values))] -= 0.5
        statement = "UPDATE trained_tokens SET logprobs = ? WHERE draw_id = ? AND place = ?"
        change(other, statement, values.tobytes(), draw_id, place)
    assert main([str(other)]) == 1
    said = capsys.readouterr().out
    assert "step 1: the same" in said and "step 2 differs" in said and "has other bits" in said


def test_a_checkpoint_that_was_changed_is_found_by_its_tensor(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = copy(run, tmp_path)
    path = other / "checkpoints" / "step-000004" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert main([str(other), "--from", "4", "--to", "4"]) == 1
    # The first line: what comes before begins at the checkpoint before it.
    assert capsys.readouterr().out.startswith("step 4 differs: 1 things, first model.safetensors: ")


def test_a_whole_run_repeats_itself_with_seeds_for_requests_and_no_staleness(tmp_path: Path) -> None:
    exact = ("acceleration.max_staleness=0", "acceleration.stream_steps=false")
    tokens, weights = [], []
    for name in ("first", "second"):
        run = trained(tmp_path, name, 3, "generation.seed_requests=true", *exact)
        query = "SELECT draw_id, place, token_ids, logprobs FROM trained_tokens ORDER BY draw_id, place"
        tokens.append(rows(run, query))
        weights.append(rows(run, "SELECT policy_version, digests FROM weights ORDER BY policy_version"))
    assert len(tokens[0]) == 24 and len(weights[0]) == 3
    assert tokens[0] == tokens[1] and weights[0] == weights[1]


def test_two_turns_with_vllm_and_their_replay(tmp_path: Path) -> None:
    # So long that the cache, which holds blocks of 32 tokens, has most of it: these are bytes.
    prompt = "Write a function same(x) that returns x. " + "It may be anything, a whole number too. " * 9
    tests = [{"args": [value], "expected": value} for value in (2, 3)]
    task = {"task_id": "same", "prompt": prompt, "entry_point": "same", "tests": tests}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    turns = ("rollouts.max_turns=2", "rollouts.feedback=verdict", f"dataset.name={tmp_path / 'tasks.jsonl'}")
    engine = ("generation.engine=vllm", "generation.max_completion_length=32")
    # So low that what is trained one step later is still nearly what was sampled.
    run = trained(tmp_path, "t", 2, *turns, *engine, "training.learning_rate=1e-5", "lora.enabled=true")
    scored = rows(run, "SELECT turns, passed FROM rollouts WHERE outcome != 'infra_error'")
    conversations = [json.loads(text) for text, _ in scored]
    # Digits are no answer, and each answer that fails has another one after it.
    assert any(conversations)
    assert all(len(turns) == 1 or passed for turns, (_, passed) in zip(conversations, scored, strict=True))
    metrics = read_metrics(run / "metrics.jsonl")
    assert all((row["train/grad_norm"] or 0.0) > 0 for row in metrics)
    assert all(0.9 < (row["train/ratio_mean"] or 0.0) < 1.1 for row in metrics), (
        "what is trained is what was sampled"
    )
    # What was published are adapters, and the engine has them merged.
    assert (run / "checkpoints" / "step-000002" / "adapter_config.json").is_file()
    updates = rows(run, "SELECT policy_version, published, held FROM weights")
    assert updates and all(published == held for _, published, held in updates)
    # A later turn begins with all of the one before it, which the engine has read.
    assert all((row["rollout/prompt_cached_share"] or 0.0) > 0.5 for row in metrics)
    for verb in ("audit", "replay"):
        done = subprocess.run(
            [sys.executable, "-m", "pipeline", verb, str(run)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr


async def test_settings_that_a_resume_changed_are_those_of_each_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps, and two more of a run that is longer and whose reward has another weight."""
    model = save_byte_model(tmp_path / "model")
    folder = RunFolder.create(OutputConfig(dir=str(tmp_path), name="run"), "{}")
    done = 0
    for preset in ("default", "tests_only"):
        config = Config.model_validate(
            {
                "model": {"name": str(model)},
                "training": {
                    **{"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1},
                    **{"max_steps": done + 2, "warmup_steps": 0, "learning_rate": 1e-2},
                },
                "grpo": {"num_generations": 4},
                "rewards": {"preset": preset},
                "evaluation": {"enabled": False},
                "runtime": {"device": "cpu"},
            }
        )
        config = for_device(config, "cpu")
        changes = refuse_resume(folder.path, config) if done else []
        folder.write_config(render(config))
        await train(folder, config, model, done, changes)
        done += 2
    folder.close()
    assert await asyncio.to_thread(main, [str(folder.path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:-1] == [f"step {step}: the same" for step in (1, 2, 3, 4)]
    rates = [
        json.loads(text)["train/learning_rate"] for (text,) in rows(folder.path, "SELECT metrics FROM steps")
    ]
    assert rates == pytest.approx([1e-2, 5e-3, 5e-3, 2.5e-3])


async def train(folder: RunFolder, config: Config, model: Path, done: int, changes: Sequence[str]) -> None:
    """Two steps after ``done``, of one group each, as a process of a run does them."""
    tasks = Tasks(config, model)
    task = next(iter(tasks.by_id.values()))
    prompt_ids = tasks.prompt_ids(task)
    trainer = TrainerHandle(config, str(model), "cpu")
    with closing(Ledger(folder.db, terms_of(config))) as ledger:
        await trainer.start()
        try:
            if done:
                await trainer.load(folder.checkpoint(done))
                for change in changes:
                    ledger.event("settings", f"{CHANGED}{change}")
                ledger.rewind(done)
            for step in range(done + 1, done + 3):
                draw_id = ledger.record_draw(task.task_id, step - 1, step - 1)
                rollouts = tuple(
                    replace(
                        groups.rollout(float(index % 2), index=index, version=step - 1), prompt_ids=prompt_ids
                    )
                    for index in range(4)
                )
                group = RolloutGroup(draw_id=draw_id, task=task, rollouts=rollouts)
                ledger.record_group(group, tasks.basis(task, prompt_ids))
                batch = make_batch(step, [group], config.grpo)
                await trainer.fit_memory()
                result = await trainer.step(batch)
                update = await trainer.publish(str(folder.path))
                remove_weights(update)
                ledger.note_weights(update)
                ledger.commit_step(result, [draw_id], {}, None, {"parts": [1], **trainer.layout})
            saved = await trainer.save(folder.checkpoint(done + 2), done + 2)
            ledger.note_checkpoint(done + 2, saved.name)
        finally:
            trainer.close()


def test_what_cannot_be_replayed_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = copy(run, tmp_path)
    assert main([str(other), "--from", "9"]) == 2
    assert "has the steps 1 to 4, not those from 9 on that end with 4" in capsys.readouterr().err
    change(other, "DELETE FROM trained_tokens WHERE draw_id IN (SELECT draw_id FROM draws)")
    assert main([str(other)]) == 2
    assert "are not kept any more (output.text_steps)" in capsys.readouterr().err
    change(other, "UPDATE draws SET basis = 'other' WHERE draw_id IN (SELECT draw_id FROM draws)")
    assert main([str(other)]) == 2
    assert "is not what it was in the run" in capsys.readouterr().err
    assert main([str(other), "--from", "3", "--to", "2"]) == 2
    assert "has the steps 1 to 4, not those from 3 on that end with 2" in capsys.readouterr().err
    change(other, "UPDATE steps SET layout = '{}' WHERE step > 0")
    assert main([str(other)]) == 2
    assert "a run of train_code_grpo cannot be replayed" in capsys.readouterr().err
    change(other, "DELETE FROM steps")
    assert main([str(other)]) == 2
    assert "has no step yet that could be done again" in capsys.readouterr().err
    assert main([str(other / "run.db")]) == 2
    assert "run.db is no folder" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "run.db does not exist" in capsys.readouterr().err
