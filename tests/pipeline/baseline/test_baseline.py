from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from transformers import LlamaForCausalLM

from configs.schema import Config, ModelConfig
from curriculum.task import Task
from pipeline.baseline.account import BaselineAccount, rename_metrics
from pipeline.baseline.baseline import run_baseline
from pipeline.baseline.sampling import (
    baseline_engine,
    prompt_dataset,
    stop_token_ids,
    vllm_environment,
)
from pipeline.baseline.training import CpuGRPOTrainer, trl_config
from pipeline.errors import StageError
from pipeline.host.spans import FIRST_SCORE
from pipeline.models.find import resolve_model
from pipeline.models.merging import read_adapter
from pipeline.models.prompts import encode_prompt, training_sampling
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import MetricsWriter, read_metrics
from pipeline.record.progress import make_progress
from rewards.result import RewardResult
from rewards.scorer import Scorer
from sandbox.result import ExecutionRequest, ExecutionResult, Outcome
from tests.fake_sandbox import make_run
from tests.pipeline.fake_stages import is_documented, rows
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer, make_config, save_byte_model
from tests.rewards.test_trl import TASKS

ROOT = Path(__file__).parents[3]
# Prints how far vLLM's log-probabilities are from those of a model with other weights, before it gets these
# and after.
UPDATE_PROGRAM = """
import json, sys
import torch
from datasets import Dataset
from transformers import LlamaForCausalLM
from pipeline.baseline.training import CpuGRPOTrainer, trl_config
from tests.pipeline.baseline.test_baseline import small_config
from tests.pipeline.tiny_model import make_byte_tokenizer
from pathlib import Path

config = small_config(Path(sys.argv[2]), generation={"baseline_engine": "vllm"})
trainer = CpuGRPOTrainer(
    model=LlamaForCausalLM.from_pretrained(sys.argv[1]),
    reward_funcs=lambda **columns: [0.0],
    args=trl_config(config, Path(sys.argv[2]), "cpu"),
    train_dataset=Dataset.from_list([{"prompt": "abc"}] * 8),
    processing_class=make_byte_tokenizer(),
)
def distance():
    _, (ids, *_), (logprobs, *_), _ = trainer.vllm_generation.generate(
        prompts=[[1, 2, 3]] * 4, images=None, num_generations=4
    )
    tokens = torch.tensor([[1, 2, 3, *ids]])
    with torch.no_grad():
        own = torch.log_softmax(trainer.model(tokens).logits[0, 2:-1].float(), -1)
    own = own.gather(-1, tokens[0, 3:, None])[:, 0]
    return float((own - torch.tensor(logprobs)[:, 0]).abs().mean())
with torch.no_grad():
    for parameter in trainer.model.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
before = distance()
trainer.vllm_generation.sync_weights()
print(json.dumps([before, distance()]))
"""
# The answer is prefilled and an untrained model adds a comment: it compiles unless it has a line break.
PREFILL = "```python\ndef add(a, b):\n    return a + b\n#"
END = 7
GENERATION_S, BEFORE_SCORES_S = 0.05, 0.1


def small_config(folder: Path, **sections: Mapping[str, object]) -> Config:
    merged: dict[str, Mapping[str, object]] = {
        "output": {"dir": str(folder), "name": "run"},
        "training": {"max_steps": 2, "learning_rate": 1e-2, "lr_scheduler_type": "constant"},
        "generation": {"max_completion_length": 12},
        "runtime": {"device": "cpu", "progress": "plain"},
    }
    for name, values in sections.items():
        merged[name] = {**merged.get(name, {}), **values}
    return make_config(**merged)


class FixedSandbox:
    """Passes what holds "return", and fails as a machine does at the word "broken"."""

    level = "fake"

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        if "broken" in request.solution:
            return make_run(Outcome.INFRA_ERROR, detail="said so")
        is_right = "return" in request.solution
        return make_run(Outcome.PASS if is_right else Outcome.WRONG, 2 * is_right, 2, detail="said so")


def account_for(
    folder: Path, steps: Sequence[Sequence[str]], logging_steps: int = 1
) -> list[list[float | None]]:
    """What TRL does with an account, without TRL: per step, score two groups, end, log."""
    config = small_config(folder, output={"logging_steps": logging_steps})
    ledger, rewards = Ledger(folder / "run.db"), []
    with (
        Scorer(config.rewards, config.execution, FixedSandbox()) as scorer,
        ExitStack() as stack,
    ):
        account = BaselineAccount(
            config=config,
            tasks=TASKS,
            scorer=scorer,
            prompt_ids=lambda task: (1, 2, 3),
            end_ids=frozenset({END}),
            ledger=ledger,
            open_metrics=lambda: stack.enter_context(closing(MetricsWriter(folder))),
            samples=folder / "samples.jsonl",
            progress=make_progress("plain", title="test"),
        )
        # TRL's vLLM starts between the two.
        assert not (folder / "metrics.jsonl").exists()
        account.on_train_begin(None, None, None)  # type: ignore[arg-type]
        for done, texts in enumerate(steps):
            state = SimpleNamespace(global_step=done)
            account.on_step_begin(None, state, None)  # type: ignore[arg-type]
            names = [TASKS[0].task_id] * 4 + [TASKS[1].task_id] * 4
            token_ids = [[3, 4, END] if index % 2 else [3] * 12 for index in range(8)]
            account.timed("generation", time.sleep)(GENERATION_S)
            # What TRL computes before it scores.
            time.sleep(BEFORE_SCORES_S)
            rewards.append(
                account.code_reward(
                    ["p"] * 8,
                    texts,
                    task_id=names,
                    completion_ids=token_ids,
                    trainer_state=state,  # type: ignore[arg-type]
                    log_metric=None,
                )
            )
            state.global_step += 1
            account.on_step_end(None, state, None)  # type: ignore[arg-type]
            logs = {"loss": 0.25, "grad_norm": 1.5, "learning_rate": 1e-3, "reward": 9.0}
            account.on_log(None, state, None, logs)  # type: ignore[arg-type]
        account.on_log(None, state, None, {"train_loss": 0.2})  # type: ignore[arg-type]
    ledger.close()
    return rewards


def answers(*bodies: str) -> list[str]:
    return [f"```python\ndef add(a, b):\n    {body}\n```" for body in bodies]


def test_the_reward_function_records_groups_in_order_and_the_log_commits_the_step(tmp_path: Path) -> None:
    texts = answers("return a", "pass", "return b", "pass", "return a", "return b", "pass", "pass")
    (rewards,) = account_for(tmp_path, [texts])
    assert rewards[0] != rewards[1] and None not in rewards
    draws = rows(tmp_path, "SELECT task_id, status, step_issued, policy_version_issued FROM draws")
    assert draws == [("t/add", "trained", 1, 0), ("t/sub", "trained", 1, 0)]
    rollouts = rows(
        tmp_path,
        "SELECT rollout_id, reward, passed, num_tokens, finish_reason, max_policy_version FROM rollouts",
    )
    assert [row[0] for row in rollouts] == [f"{draw}/{index}" for draw in (1, 2) for index in range(4)]
    assert [row[1] for row in rollouts] == rewards
    assert [row[2] for row in rollouts] == [1, 0, 1, 0, 1, 1, 0, 0]
    assert [row[3:] for row in rollouts[:2]] == [(12, "length", 0), (3, "stop", 0)]
    assert rows(tmp_path, "SELECT step, status, policy_version, num_tokens FROM steps") == [
        (1, "committed", 1, 60)
    ]
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert [(line["step"], line["task_id"], line["outcome"]) for line in samples] == [
        (1, "t/add", "pass"),
        (1, "t/add", "wrong"),
    ]


def test_metrics_have_the_main_jobs_names_and_its_meaning(tmp_path: Path) -> None:
    texts = answers("return a", "pass", "return b", "pass", "pass", "pass", "pass", "broken")
    (rewards,) = account_for(tmp_path, [texts])
    assert rewards[-1] is None
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert all(is_documented(name) for name in line.keys() - {"step", "time_s"})
    # TRL's log-probabilities before the scores are of training, as in the main job.
    generation_s, train_s = (line[name] or 0.0 for name in ("generation/seconds", "train/seconds"))
    assert GENERATION_S <= generation_s < GENERATION_S + BEFORE_SCORES_S / 2
    assert train_s >= BEFORE_SCORES_S and line["weights/update_s"] == 0.0
    scored = [reward for reward in rewards if reward is not None]
    assert line["rollout/reward_mean"] == pytest.approx(math.fsum(scored) / 7)
    assert line["rollout/pass_rate"] == pytest.approx(2 / 7)
    assert line["rollout/infra_error_share"] == pytest.approx(1 / 8)
    assert line["rollout/zero_signal_share"] == 0.5
    assert line["rollout/truncated_share"] == 0.5
    assert (line["train/loss"], line["train/grad_norm"]) == (0.25, 1.5)
    assert line["train/tokens"] == 60 - 3
    seconds = [line[f"{stage}/seconds"] or 0.0 for stage in ("generation", "rewards", "train")]
    assert 0 < sum(seconds) <= (line["step/seconds"] or 0.0)


def test_the_first_score_is_noted_when_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    score = Scorer.score

    def noted(self: Scorer, task: Task, text: str) -> RewardResult:
        seen.append("score")
        return score(self, task, text)

    monkeypatch.setattr(Scorer, "score", noted)
    monkeypatch.setattr("pipeline.host.spans.mark", lambda process, name: seen.append(name))
    account_for(tmp_path, [answers(*["return a", "pass"] * 4)])
    assert seen == ["score", FIRST_SCORE, *["score"] * 7]


def test_a_group_without_two_scores_is_failed_and_not_trained(tmp_path: Path) -> None:
    good = answers("return a", "pass", "return b", "pass")
    account_for(tmp_path, [good + answers("broken", "broken", "broken", "pass")])
    assert rows(tmp_path, "SELECT status, reason FROM draws") == [
        ("trained", None),
        ("failed", "scoring failed: said so"),
    ]


def test_a_step_that_could_not_be_scored_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"step 1: no group could be scored.*said so"):
        account_for(tmp_path, [answers(*["broken"] * 8)])


def test_every_step_is_committed_and_the_metrics_are_thinned_out(tmp_path: Path) -> None:
    texts = answers(*["return a", "pass"] * 4)
    account_for(tmp_path, [texts, texts, texts], logging_steps=2)
    assert rows(tmp_path, "SELECT step FROM steps") == [(1,), (2,), (3,)]
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [2]


def test_trls_metrics_get_our_names_and_its_others_are_left_out() -> None:
    logs = {"loss": 0.5, "clip_ratio/region_mean": 0.1, "kl": 0.1, "grad_norm": None, "reward": 1.0}
    assert rename_metrics(logs) == {"train/loss": 0.5, "train/clipped_share": 0.1}


def test_the_settings_reach_trl(tmp_path: Path) -> None:
    config = small_config(
        tmp_path,
        training={
            "warmup_steps": 3,
            "adam_beta1": 0.8,
            "adam_beta2": 0.95,
            "adam_epsilon": 1e-6,
            "max_grad_norm": 0.5,
            "weight_decay": 0.1,
            "seed": 7,
        },
        grpo={
            "epsilon": 0.1,
            "epsilon_high": 0.3,
            "delta": 1.5,
            "loss_type": "dr_grpo",
            "importance_sampling_level": "sequence",
            "scale_rewards": "none",
        },
        generation={"temperature": 0.7, "top_p": 0.9, "top_k": 20},
        output={"logging_steps": 5},
    )
    settings = trl_config(config, tmp_path, "cpu")
    # TRL corrects for vLLM only, and the baseline's policy is the generator; the last ones are ours.
    others = {"importance_sampling_mode", "importance_sampling_cap", "mismatch_kl_warning"}
    others |= {"tf32", "memory", "warm_start_steps", "activation_offloading"}
    # The fields that have TRL's names must have their values in TRL, every one of them.
    for section in (config.training, config.grpo):
        for name, value in section.model_dump().items():
            if name not in {"lr_scheduler_type", "optim", *others}:
                assert getattr(settings, name) == value, name
    assert settings.lr_scheduler_type == "constant_with_warmup"
    # Ours is fused; one that is asked for by another name is TRL's too.
    assert settings.optim == "adamw_torch_fused"
    eight_bit = small_config(tmp_path, training={"optim": "adamw_8bit"})
    assert trl_config(eight_bit, tmp_path, "cpu").optim == "adamw_8bit"
    for name in ("temperature", "top_p", "top_k", "max_completion_length"):
        assert getattr(settings, name) == getattr(config.generation, name)
    assert settings.generation_batch_size == config.completions_per_step
    assert settings.num_iterations == 1 and settings.steps_per_generation == 2
    assert settings.logging_steps == 1 and settings.use_cpu and not settings.use_vllm


def test_on_a_gpu_trl_generates_with_its_vllm_which_sleeps_and_stops_where_the_main_job_does(
    tmp_path: Path,
) -> None:
    config = small_config(tmp_path, generation={"gpu_memory_utilization": 0.3, "max_prompt_length": 100})
    settings = trl_config(config, tmp_path, "cuda")
    assert settings.use_vllm and settings.vllm_mode == "colocate" and settings.vllm_enable_sleep_mode
    assert settings.vllm_gpu_memory_utilization == 0.3
    assert settings.vllm_max_model_length == 112
    assert settings.generation_kwargs == {
        "stop": list(training_sampling(config).stop),
        "include_stop_str_in_output": True,
    }
    settings = trl_config(
        small_config(
            tmp_path,
            generation={"baseline_engine": "vllm", "stop_at_code_fence": False},
            grpo={"importance_sampling_mode": "token_truncate", "importance_sampling_cap": 2.0},
        ),
        tmp_path,
        "cpu",
    )
    assert settings.use_vllm and not settings.vllm_enable_sleep_mode and settings.use_cpu
    assert settings.generation_kwargs is None
    assert settings.vllm_importance_sampling_mode == "token_truncate"
    assert settings.vllm_importance_sampling_clip_max == 2.0


def test_the_baselines_engine_is_vllm_on_a_gpu_and_transformers_on_a_cpu_unless_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine(device: str, **generation: object) -> str:
        return baseline_engine(small_config(tmp_path, generation=generation), device)

    assert (engine("cuda"), engine("cpu")) == ("vllm", "transformers")
    assert engine("cuda", engine="transformers") == "transformers"
    assert engine("cpu", baseline_engine="vllm") == "vllm"
    assert engine("cuda", baseline_engine="transformers") == "transformers"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"generation.baseline_engine: value 'vllm': vLLM is not installed"):
        engine("cpu", baseline_engine="vllm")


def test_masking_truncated_completions_is_refused_where_trl_would_mask_whole_answers(tmp_path: Path) -> None:
    masking = {"mask_truncated_completions": True}
    config = small_config(tmp_path, grpo=masking)
    with pytest.raises(ValueError, match=r"generation.baseline_engine: value 'auto'.*stop string"):
        baseline_engine(config, "cuda")
    assert baseline_engine(config, "cpu") == "transformers"
    open_ended = small_config(tmp_path, grpo=masking, generation={"stop_at_code_fence": False})
    assert baseline_engine(open_ended, "cuda") == "vllm"


def test_trls_vllm_shares_the_trainers_threads_on_a_cpu(tmp_path: Path) -> None:
    config = small_config(tmp_path, generation={"kv_cache_gb": 0.25, "enforce_eager": True})
    on_cpu, on_gpu = vllm_environment(config, "cpu"), vllm_environment(config, "cuda")
    assert on_cpu["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert on_cpu["VLLM_CPU_KVCACHE_SPACE"] == "1" and on_cpu["TORCH_COMPILE_DISABLE"] == "1"
    assert not any("CPU" in name or "COMPILE" in name for name in on_gpu)


@pytest.mark.parametrize(("visible", "first"), [(None, "0"), ("3,5", "3"), ("GPU-7f,GPU-8a", "GPU-7f")])
def test_of_several_gpus_trl_sees_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, first: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    config = small_config(tmp_path)
    assert vllm_environment(config, "cuda")["CUDA_VISIBLE_DEVICES"] == first
    assert "CUDA_VISIBLE_DEVICES" not in vllm_environment(config, "cpu")


def test_a_fence_stops_a_completion_where_the_main_job_stops_at_it(tmp_path: Path) -> None:
    tokenizer = make_byte_tokenizer()
    fence = tokenizer.convert_tokens_to_ids("```")
    assert tokenizer("x\n```")["input_ids"][-1] == fence
    assert stop_token_ids(tokenizer, None, small_config(tmp_path)) == sorted([fence, tokenizer.eos_token_id])
    # Without the opening fence in the prefill, the first fence would be the opening one.
    for generation in ({"assistant_prefill": ""}, {"stop_at_code_fence": False}):
        config = small_config(tmp_path, generation=generation)
        assert stop_token_ids(tokenizer, [3], config) == sorted([3, tokenizer.eos_token_id])


def test_trl_reads_the_prompts_that_the_main_job_samples_from(tmp_path: Path) -> None:
    tokenizer = make_byte_tokenizer()
    config = small_config(tmp_path)
    dataset = prompt_dataset(TASKS, tokenizer, config)
    assert len(dataset) == len(TASKS)
    for row, task in zip(dataset, TASKS, strict=True):
        assert row["task_id"] == task.task_id
        expected = encode_prompt(tokenizer, task, config.generation)
        assert tuple(tokenizer(text=row["prompt"])["input_ids"]) == expected


def test_a_data_set_smaller_than_a_step_is_repeated(tmp_path: Path) -> None:
    config = small_config(tmp_path, training={"gradient_accumulation_steps": 5})
    names = prompt_dataset(TASKS, make_byte_tokenizer(), config)["task_id"]
    assert list(names) == ["t/add", "t/sub"] * 3


def test_the_cpu_trainers_logprobs_are_the_plain_ones(tmp_path: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(str(save_byte_model(tmp_path)))
    token_ids = torch.randint(0, 250, (3, 10), generator=torch.Generator().manual_seed(0))
    trainer = SimpleNamespace(accelerator=Accelerator(cpu=True), temperature=0.7)
    logprobs, entropies, _ = CpuGRPOTrainer._get_per_token_logps_and_entropies(
        trainer,  # type: ignore[arg-type]
        model,
        token_ids,
        torch.ones_like(token_ids),
        4,
        batch_size=2,
        compute_entropy=True,
    )
    plain = torch.log_softmax(model(token_ids).logits[:, 5:9] / 0.7, dim=-1)
    torch.testing.assert_close(logprobs, plain.gather(-1, token_ids[:, 6:, None]).squeeze(-1))
    torch.testing.assert_close(entropies, -(plain.exp() * plain).sum(-1))
    assert logprobs.requires_grad


KILLER = "import os\n\n\ndef judge(prompts, completions, **columns):\n    os.kill(os.getpid(), 9)\n"


@pytest.mark.slow
def test_a_training_that_is_killed_ends_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a process of its own, whose memory is free for the measurement after it."""
    (tmp_path / "killer_of_training.py").write_text(KILLER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    rewards = {"custom": ["killer_of_training:judge"], "custom_weights": [1.0]}
    config = runnable_config(tmp_path, rewards=rewards, evaluation={"enabled": False})
    with pytest.raises(StageError, match=r"the process of TRL's trainer was killed: the kernel's"):
        run_baseline(config, verbose=False)


def write_tasks(file: Path, names: Sequence[str]) -> Path:
    lines = [
        {
            "task_id": name,
            "prompt": f"Write a function add(a, b), {name}.",
            "entry_point": "add",
            "tests": [{"args": [3, 2], "expected": 5}],
        }
        for name in names
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def runnable_config(folder: Path, **sections: Mapping[str, object]) -> Config:
    """Two steps of a byte model on two tasks, with three more held out, on Transformers."""
    merged: dict[str, dict[str, object]] = {
        "model": {"name": str(save_byte_model(folder / "model"))},
        "dataset": {"name": str(write_tasks(folder / "train.jsonl", ["first", "second"]))},
        "evaluation": {
            "tasks": str(write_tasks(folder / "heldout.jsonl", ["a", "b", "c"])),
            "num_samples": 4,
            "max_completion_length": 48,
        },
        "generation": {
            "engine": "transformers",
            "dtype": "float32",
            "max_completion_length": 48,
            "assistant_prefill": PREFILL,
        },
    }
    for name, values in sections.items():
        merged[name] = {**merged.get(name, {}), **values}
    return small_config(folder / "runs", **merged)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"evaluation": {"every_steps": 3}}, "evaluation.every_steps: value 3: the baseline measures before"),
        (
            {"generation": {"quantization": "auto"}},
            "generation.quantization: value auto: the baseline samples",
        ),
        ({"generation": {"kv_cache_dtype": "fp8"}}, "generation.kv_cache_dtype: value fp8: the baseline sam"),
        ({"grpo": {"warm_start_steps": 2}}, "grpo.warm_start_steps: value 2: the baseline has no warm start"),
        ({"rollouts": {"max_turns": 2}}, "rollouts.max_turns: value 2: the baseline has one turn"),
        ({"runtime": {"trainer_ranks": 2}}, "runtime.trainer_ranks: value 2: the baseline trains in one"),
        (
            {"runtime": {"keep_alive": True}},
            "runtime.keep_alive: value True: the baseline has the machine",
        ),
        ({"runtime": {"strict": True}}, "runtime.strict: value True: the baseline has no alarms"),
        ({"runtime": {"attach": True}}, "runtime.attach: value True: the baseline starts an engine"),
        (
            {"cluster": {"address": "auto"}, "runtime": {"device": "cpu"}},
            "cluster.address: value auto: the baseline trains on this machine",
        ),
        ({"generation": {"engine_kwargs": {"no_such": 1}}}, "generation.engine_kwargs.no_such"),
        ({"model": {"loader": "unsloth"}}, "model.loader: value unsloth: the baseline loads models with T"),
        (
            {"lora": {"enabled": True, "load_in_4bit": True}},
            "lora.load_in_4bit: value True: the baseline does not quantise",
        ),
    ],
)
def test_what_the_baseline_cannot_do_is_refused_by_name(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run_baseline(Config.model_validate(settings), verbose=False)


def test_a_prompt_that_is_too_long_is_refused_by_name(tmp_path: Path) -> None:
    config = runnable_config(tmp_path, generation={"max_prompt_length": 5})
    with pytest.raises(ValueError, match=r"max_prompt_length.*first"):
        run_baseline(config, verbose=False)


def test_tasks_that_the_main_job_leaves_out_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pipeline.baseline.baseline._train_apart", lambda *unused: pytest.fail("trained"))
    config = runnable_config(tmp_path, evaluation={"enabled": False})
    file = Path(config.dataset.name)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    wrong = [{**line, "reference": "def add(a, b):\n    return a - b"} for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in wrong), encoding="utf-8")
    with pytest.raises(ValueError, match=r"wrong references: those of 2 of 2 tasks fail their own tests"):
        run_baseline(config, verbose=False)


@pytest.mark.slow
def test_two_steps_of_trl_leave_a_run_folder_like_the_main_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = runnable_config(tmp_path, output={"save_steps": 1})
    before = LlamaForCausalLM.from_pretrained(config.model.name).state_dict()
    assert run_baseline(config, verbose=False) == 0
    run = tmp_path / "runs" / "run"
    assert {
        "config.yaml",
        "run.db",
        "metrics.jsonl",
        "samples.jsonl",
        "summary.json",
        "evaluation_before.json",
        "evaluation_after.json",
        "checkpoints",
    } <= {path.name for path in run.iterdir()}
    lines = read_metrics(run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["train/learning_rate"] == pytest.approx(1e-2) for line in lines)
    assert all((line["train/grad_norm"] or 0.0) > 0.0 for line in lines)
    assert any((line["rollout/pass_rate"] or 0.0) > 0.0 for line in lines)
    assert any((line["rollout/syntax_failure_share"] or 0.0) > 0.0 for line in lines)
    assert rows(run, "SELECT status, COUNT(*) FROM draws GROUP BY status") == [("trained", 4)]
    assert rows(run, "SELECT COUNT(*) FROM rollouts WHERE reward IS NOT NULL") == [(16,)]
    assert rows(run, "SELECT step, policy_version FROM steps") == [(1, 1), (2, 2)]
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["trainer"], summary["num_steps"], summary["num_completions"]) == ("trl", 2, 16)
    assert {"startup", "evaluation_before", "training", "evaluation_after", "total"} == set(
        summary["seconds"]
    )
    for when in ("before", "after"):
        assert set(summary["evaluation"][when]["tasks"]) == {"a", "b", "c"}
        assert summary["evaluation"][when]["num_samples"] == 12
    assert "before training" in capsys.readouterr().out
    final = run / "checkpoints" / "final"
    trained = LlamaForCausalLM.from_pretrained(str(final))
    after = trained.state_dict()
    assert set(after) == set(before)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    # The fence ended completions in training; the saved model ends at its own end token.
    own_end = make_byte_tokenizer().eos_token_id
    assert json.loads((final / "generation_config.json").read_text())["eos_token_id"] == own_end
    assert trained.config.eos_token_id == own_end
    between = run / "checkpoints" / "step-000001"
    assert json.loads((between / "generation_config.json").read_text())["eos_token_id"] == own_end
    weights = LlamaForCausalLM.from_pretrained(str(between)).state_dict()
    assert any(not torch.equal(weights[name], after[name]) for name in after)
    assert not (run / "checkpoints" / "step-000002").exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_lora", [False, True])
def test_trls_vllm_on_a_cpu_writes_with_the_weights_that_it_is_given(tmp_path: Path, is_lora: bool) -> None:
    model = tmp_path / "model-64"
    # vLLM has no kernels for heads of 16.
    make_byte_model(0, initializer_range=0.02).save_pretrained(str(model))
    make_byte_tokenizer().save_pretrained(str(model))
    config = runnable_config(
        tmp_path,
        model={"name": str(model)},
        generation={"baseline_engine": "vllm"},
        evaluation={"enabled": False},
        lora={"enabled": is_lora, "r": 4, "alpha": 8},
    )
    assert run_baseline(config, verbose=False) == 0
    run = tmp_path / "runs" / "run"
    lines = read_metrics(run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    assert all((line["train/grad_norm"] or 0.0) > 0.0 for line in lines)
    assert rows(run, "SELECT COUNT(*) FROM rollouts WHERE reward IS NOT NULL") == [(16,)]
    assert rows(run, "SELECT COUNT(*) FROM rollouts WHERE num_tokens > 48") == [(0,)]


@pytest.mark.slow
def test_after_an_update_trls_vllm_on_a_cpu_gives_the_trainers_probabilities(tmp_path: Path) -> None:
    """In a process of its own, as a run has it: vLLM does not leave one again."""
    model = tmp_path / "model-64"
    make_byte_model(0, initializer_range=0.3).save_pretrained(str(model))
    make_byte_tokenizer().save_pretrained(str(model))
    program = tmp_path / "program.py"
    program.write_text(UPDATE_PROGRAM, encoding="utf-8")
    config = small_config(tmp_path, generation={"baseline_engine": "vllm"})
    environment = {**os.environ, **vllm_environment(config, "cpu"), "PYTHONPATH": str(ROOT)}
    said = subprocess.run(
        [sys.executable, str(program), str(model), str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr
    before, after = json.loads(said.stdout.splitlines()[-1])
    # bf16 against fp32: 0.03 on average.
    assert before > 0.3 and after < 0.1


@pytest.mark.slow
def test_with_adapters_trl_trains_these_alone(tmp_path: Path) -> None:
    config = runnable_config(tmp_path, output={"save_steps": 1}, lora={"enabled": True, "r": 4, "alpha": 8})
    before = LlamaForCausalLM.from_pretrained(config.model.name).state_dict()
    assert run_baseline(config, verbose=False) == 0
    run = tmp_path / "runs" / "run"
    final = run / "checkpoints" / "final"
    for folder in (run / "checkpoints" / "step-000001", final):
        adapter = read_adapter(folder)
        assert Path(adapter.base) == Path(config.model.name)
        assert not (folder / "model.safetensors").exists(), "the base is saved nowhere"
    after = LlamaForCausalLM.from_pretrained(resolve_model(ModelConfig(name=str(final)))).state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all("_proj." in name for name in changed), changed
    assert all((line["train/grad_norm"] or 0.0) > 0.0 for line in read_metrics(run / "metrics.jsonl"))
    assert json.loads((run / "summary.json").read_text())["evaluation"]["after"]["num_samples"] == 12
