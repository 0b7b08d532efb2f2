"""The rewards inside the installed TRL: its signature, and two real steps of its trainer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from configs.schema import Config, ExecutionConfig, RewardsConfig
from curriculum.task import Task
from pipeline.baseline import (
    CpuGRPOTrainer,
    prompt_dataset,
    rename_metrics,
    stop_token_ids,
    train_baseline,
    trl_config,
)
from pipeline.metrics import read_metrics
from pipeline.prompts import encode_prompt
from pipeline.run_folder import RunFolder
from rewards.rubric import Scorer
from rewards.trl import make_reward_function, reward_metrics
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome

TASKS = tuple(
    Task(
        task_id=f"t/{name}",
        prompt=f"Write a function {name}(a, b).",
        entry_point=name,
        call_tests=(CallTest(args=(3, 2), expected=expected), CallTest(args=(0, 0), expected=0)),
    )
    for name, expected in (("add", 5), ("sub", 1))
)
BY_ID = {task.task_id: task for task in TASKS}
ADD = "def add(a, b):\n    return a + b\n```"


class BrokenSandbox:
    """A sandbox whose machinery fails: a fault that the real one does not show on demand."""

    level = "fake"

    def run(self, request: ExecutionRequest) -> ExecutionResult:
        return ExecutionResult(
            outcome=Outcome.INFRA_ERROR,
            num_passed=0,
            num_tests=2,
            detail="broken",
            clean=False,
            cpu_s=0.0,
            wall_s=0.0,
            level=self.level,
        )


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with SandboxPool() as sandbox, Scorer(RewardsConfig(), ExecutionConfig(), None, sandbox) as instance:
        yield instance


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, one token for a code fence, and an end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    vocabulary |= {"``": len(alphabet), "```": len(alphabet) + 1, "<end>": len(alphabet) + 2}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[("`", "`"), ("``", "`")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, eos_token="<end>", pad_token="<end>"
    )


def save_tiny_model(folder: Path) -> None:
    """A randomly initialised Llama of 2 layers, hidden size 32, with its tokenizer."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    model = LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=True,
        )
    )
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def tiny_config(folder: Path, **generation: object) -> Config:
    return Config.model_validate(
        {
            "output": {"dir": str(folder), "name": "run"},
            "training": {
                "max_steps": 2,
                "learning_rate": 1e-2,
                "warmup_steps": 0,
                "per_device_train_batch_size": 4,
                "gradient_accumulation_steps": 2,
                "bf16": False,
            },
            "grpo": {"num_generations": 4},
            "generation": {"max_completion_length": 12, **generation},
            "runtime": {"device": "cpu"},
        }
    )


def test_plain_and_conversational_completions_score_alike(scorer: Scorer) -> None:
    reward = make_reward_function(BY_ID, scorer, prefill="```python\n")
    message = [{"role": "assistant", "content": ADD}]
    rewards = reward(["p"] * 3, [ADD, message, "oops ("], task_id=["t/add", "t/add", "t/sub"])
    assert rewards == pytest.approx([1.0, 1.0, 0.1])


def test_an_infrastructure_error_is_none_for_trl() -> None:
    logged: dict[str, float] = {}
    with Scorer(RewardsConfig(), ExecutionConfig(), None, BrokenSandbox()) as scorer:
        reward = make_reward_function(BY_ID, scorer, prefill="```python\n")
        rewards = reward(["p"] * 2, [ADD, "oops ("], task_id=["t/add"] * 2, log_metric=logged.__setitem__)
    assert rewards == [None, 0.1]
    assert logged["rollout/infra_error_share"] == 0.5
    assert logged["rollout/pass_rate"] == 0.0
    assert logged["rollout/syntax_failure_share"] == 1.0


def test_no_rollout_at_all_has_no_metrics() -> None:
    assert reward_metrics([]) == {}


def test_an_unknown_task_is_named(scorer: Scorer) -> None:
    with pytest.raises(ValueError, match="t/mul"):
        make_reward_function(BY_ID, scorer)(["p"], [ADD], task_id=["t/mul"])


def test_a_fence_and_the_end_token_stop_a_completion() -> None:
    tokenizer = tiny_tokenizer()
    fence = tokenizer.convert_tokens_to_ids("```")
    assert stop_token_ids(tokenizer, None) == sorted([fence, tokenizer.eos_token_id])
    assert tokenizer("x\n```")["input_ids"][-1] == fence


def test_trl_reads_the_prompts_that_the_main_job_samples_from(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    config = tiny_config(tmp_path)
    rows = prompt_dataset(TASKS, tokenizer, config)
    for row, task in zip(rows, TASKS, strict=True):
        assert row["task_id"] == task.task_id
        expected = encode_prompt(tokenizer, task, config.generation.assistant_prefill)
        assert tuple(tokenizer(text=row["prompt"])["input_ids"]) == expected


def test_a_prompt_that_is_too_long_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"max_prompt_length.*t/add"):
        prompt_dataset(TASKS, tiny_tokenizer(), tiny_config(tmp_path, max_prompt_length=5))


def test_the_settings_reach_trl(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "training": {
                "warmup_steps": 3,
                "adam_beta2": 0.95,
                "max_grad_norm": 0.5,
                "seed": 7,
                "bf16": False,
            },
            "grpo": {"epsilon_high": 0.3, "loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.01},
            "generation": {"temperature": 0.7, "top_p": 0.9, "top_k": 20},
            "runtime": {"device": "cpu"},
        }
    )
    settings = trl_config(config, tmp_path)
    assert settings.lr_scheduler_type == "constant_with_warmup" and settings.warmup_steps == 3
    assert (settings.adam_beta2, settings.max_grad_norm, settings.seed) == (0.95, 0.5, 7)
    assert (settings.epsilon_high, settings.loss_type, settings.scale_rewards) == (0.3, "dr_grpo", "none")
    assert (settings.beta, settings.temperature, settings.top_p, settings.top_k) == (0.01, 0.7, 0.9, 20)
    assert settings.generation_batch_size == config.completions_per_step


def test_trls_metrics_get_our_names_and_its_others_are_left_out() -> None:
    logs = {"reward": 0.5, "rewards/code_reward/mean": 0.5, "rewards/lint": 1.0, "kl": 0.1, "entropy": None}
    assert rename_metrics(logs) == {"rollout/reward_mean": 0.5, "rewards/lint": 1.0}


def test_trls_trainer_takes_two_steps_with_our_rewards_and_leaves_a_run_folder(tmp_path: Path) -> None:
    model_path = tmp_path / "model"
    save_tiny_model(model_path)
    before = LlamaForCausalLM.from_pretrained(str(model_path)).state_dict()
    # The answer is prefilled and an untrained model adds a comment: it compiles unless it has a line break.
    config = tiny_config(
        tmp_path, max_completion_length=48, assistant_prefill="```python\ndef add(a, b):\n    return a + b\n#"
    )
    with RunFolder.create(config.output, "run: 1\n") as folder:
        final = train_baseline(config, TASKS, model_path, folder)
    lines = read_metrics(folder.metrics)
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert {
            "rollout/reward_mean",
            "rollout/pass_rate",
            "rewards/tests",
            "train/loss",
            "step/seconds",
        } <= set(line)
        reward = line["rollout/reward_mean"]
        assert reward is not None and 0.0 <= reward <= 1.0
        assert line["rollout/infra_error_share"] == 0.0
    assert any((line["rollout/pass_rate"] or 0.0) > 0.0 for line in lines)
    assert any((line["rollout/syntax_failure_share"] or 0.0) > 0.0 for line in lines)
    trained = LlamaForCausalLM.from_pretrained(str(final))
    after = trained.state_dict()
    assert set(after) == set(before)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    # The fence ended completions in training; the saved model ends at its own end token.
    assert json.loads((final / "generation_config.json").read_text())["eos_token_id"] == (
        tiny_tokenizer().eos_token_id
    )
    assert trained.config.eos_token_id == tiny_tokenizer().eos_token_id


def test_the_cpu_trainers_logprobs_are_the_plain_ones(tmp_path: Path) -> None:
    save_tiny_model(tmp_path)
    model = LlamaForCausalLM.from_pretrained(str(tmp_path))
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
