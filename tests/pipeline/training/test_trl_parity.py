"""Our loss and gradient are those of the installed TRL's GRPOTrainer on the same batch, in fp32."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import LlamaForCausalLM
from trl import GRPOConfig
from trl.trainer.utils import nanstd

from pipeline.baseline.training import CpuGRPOTrainer
from pipeline.messages import TrainBatch, TrainingSample
from pipeline.models.loading import load_model
from pipeline.rollouts.batch import group_advantages
from tests.pipeline.tiny_model import make_config, make_model, make_samples, make_tokenizer, save_model
from tests.pipeline.training.builders import ADVANTAGES, LENGTHS, with_reference

BATCH = 4
ACCUMULATION = 2
MAX_COMPLETION = 16
TEMPERATURE = 0.7
CAP = 1.5


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("models")
    return save_model(root / "policy", seed=0), save_model(root / "reference", seed=5)


@pytest.fixture(scope="module")
def trl_trainer(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> CpuGRPOTrainer:
    """One trainer of TRL for all tests; ``trl_loss_and_gradient`` sets what its loss reads."""
    settings = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("trl")),
        epsilon=0.2,
        epsilon_high=0.28,
        temperature=TEMPERATURE,
        num_generations=4,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATION,
        max_completion_length=MAX_COMPLETION,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
    )
    trainer = CpuGRPOTrainer(
        model=load_model(folders[0]),
        reward_funcs=lambda completions, **columns: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["w3 w4"] * 8}),
        processing_class=make_tokenizer(),
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = ACCUMULATION
    return trainer


def trl_loss_and_gradient(
    trainer: CpuGRPOTrainer,
    batch: TrainBatch,
    *,
    loss_type: str,
    beta: float,
    level: str,
    epsilon_high: float,
    mode: str,
    delta: float | None = None,
) -> tuple[float, dict[str, Tensor]]:
    """Accumulate TRL's loss over ACCUMULATION micro-batches, as its training step does."""
    trainer.loss_type, trainer.beta, trainer.epsilon_high = loss_type, beta, epsilon_high
    trainer.importance_sampling_level, trainer.args.delta = level, delta
    # The loss then reads what vLLM's log-probabilities gave; no vLLM is involved.
    trainer.use_vllm = mode != "none"
    trainer.model.zero_grad()
    total = 0.0
    reference = make_model(seed=5) if beta else None
    for start in range(0, len(batch.samples), BATCH):
        inputs = trl_inputs(batch.samples[start : start + BATCH], batch.num_tokens, reference, TEMPERATURE)
        if mode != "none":
            inputs |= trl_correction(trainer, inputs, mode)
        loss = trainer.compute_loss(trainer.model, inputs)
        loss.backward()
        # TRL leaves the division by the accumulation steps to the loss itself.
        total += float(loss.detach())
    named = trainer.model.named_parameters()
    return total, {name: value.grad.clone() for name, value in named if value.grad is not None}


def trl_correction(trainer: CpuGRPOTrainer, inputs: dict[str, Tensor], mode: str) -> dict[str, Tensor]:
    """What TRL adds to the inputs when vLLM sampled them (``_generate_and_score_completions``)."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    with torch.no_grad():
        old, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, attention, inputs["completion_ids"].shape[1]
        )
    difference = (old - inputs["old_per_token_logps"]) * inputs["completion_mask"]
    if mode.startswith("sequence"):
        difference = difference.sum(dim=-1, keepdim=True)
    ratio = torch.exp(difference)
    ratio = ratio.clamp(max=CAP) if mode.endswith("truncate") else ratio.masked_fill(ratio > CAP, 0.0)
    return {"old_per_token_logps": old, "importance_sampling_ratio": ratio}


def trl_inputs(
    part: tuple[TrainingSample, ...], num_items: int, reference: LlamaForCausalLM | None, temperature: float
) -> dict[str, Tensor]:
    """The padded inputs of TRL: prompts on the left, completions on the right."""
    prompts = max(sample.num_prompt_tokens for sample in part)
    completions = max(len(sample.token_ids) - sample.num_prompt_tokens for sample in part)
    rows: dict[str, list[Sequence[float]]] = {"prompt_ids": [], "prompt_mask": [], "completion_ids": []}
    rows |= {"completion_mask": [], "old_per_token_logps": []}
    for sample in part:
        num = sample.num_prompt_tokens
        left, right = prompts - num, completions - (len(sample.token_ids) - num)
        rows["prompt_ids"].append([0] * left + list(sample.token_ids[:num]))
        rows["prompt_mask"].append([0] * left + [1] * num)
        rows["completion_ids"].append(list(sample.token_ids[num:]) + [0] * right)
        rows["completion_mask"].append(list(sample.loss_mask[num:]) + [0] * right)
        rows["old_per_token_logps"].append(list(sample.old_logprobs[num:]) + [0.0] * right)
    inputs = {name: torch.tensor(values) for name, values in rows.items()}
    inputs["advantages"] = torch.tensor([sample.advantage for sample in part])
    inputs["num_items_in_batch"] = torch.tensor(num_items)
    if reference is not None:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        with torch.no_grad():
            logits = reference(input_ids=ids, attention_mask=mask).logits[:, prompts - 1 : -1] / temperature
        chosen = logits.log_softmax(-1).gather(2, inputs["completion_ids"][..., None])
        inputs["ref_per_token_logps"] = chosen.squeeze(2)
    return inputs


def assert_equals_trl(
    folders: tuple[Path, Path],
    trainer: CpuGRPOTrainer,
    batch: TrainBatch,
    *,
    epsilon_high: float = 0.28,
    mode: str = "none",
    level: str = "token",
    **grpo: Any,
) -> None:
    policy, reference = folders
    expected_loss, expected_gradients = trl_loss_and_gradient(
        trainer, batch, epsilon_high=epsilon_high, mode=mode, level=level, **grpo
    )
    settings = {"importance_sampling_mode": mode, "importance_sampling_level": level, **grpo}
    config = make_config(
        grpo={"epsilon_high": epsilon_high, "importance_sampling_cap": CAP, **settings},
        generation={"temperature": TEMPERATURE},
    )
    loss, gradients = with_reference(config, policy, reference).gradients(batch)
    # Of a loss of 6.1255 a processor without AVX-512 gives 1.7e-6 less: fp32 has no more digits.
    assert loss == pytest.approx(expected_loss, rel=2e-6, abs=1e-5)
    assert gradients.keys() == expected_gradients.keys()
    assert max(float(value.abs().max()) for value in expected_gradients.values()) > 1e-3
    for name, value in expected_gradients.items():
        # An element near zero is a sum of terms as large as the largest: it is as exact as they are.
        atol = 1e-5 * max(1.0, float(value.abs().max()))
        torch.testing.assert_close(gradients[name], value, atol=atol, rtol=1e-4, msg=name)


@pytest.mark.parametrize("delta", [None, 2.0])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "bnpo"])
def test_loss_and_gradient_equal_trl(
    folders: tuple[Path, Path],
    trl_trainer: CpuGRPOTrainer,
    loss_type: str,
    beta: float,
    level: str,
    delta: float | None,
) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    assert_equals_trl(folders, trl_trainer, batch, loss_type=loss_type, beta=beta, level=level, delta=delta)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_cispo_equals_trl(folders: tuple[Path, Path], trl_trainer: CpuGRPOTrainer, beta: float) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    assert_equals_trl(folders, trl_trainer, batch, loss_type="cispo", beta=beta, epsilon_high=1.5)


MODES = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


@pytest.mark.parametrize(
    ("mode", "loss_type", "level", "beta"),
    [
        *itertools.product(MODES, ["dapo"], ["token", "sequence"], [0.0, 0.1]),
        *itertools.product(MODES, ["grpo"], ["token"], [0.0]),
        *itertools.product(MODES, ["cispo"], ["token"], [0.1]),
    ],
)
def test_importance_correction_equals_trl(
    folders: tuple[Path, Path],
    trl_trainer: CpuGRPOTrainer,
    mode: str,
    loss_type: str,
    level: str,
    beta: float,
) -> None:
    batch = samples_near_the_policy(folders[0])
    assert_equals_trl(
        folders,
        trl_trainer,
        batch,
        loss_type=loss_type,
        beta=beta,
        level=level,
        epsilon_high=1.5 if loss_type == "cispo" else 0.28,
        mode=mode,
    )


def samples_near_the_policy(policy: Path) -> TrainBatch:
    """Samples whose behaviour log-probabilities scatter around the policy's: ratios on both sides of CAP."""
    batch = make_samples(LENGTHS, ADVANTAGES)
    model = load_model(policy)
    generator = torch.Generator().manual_seed(3)
    samples = []
    for sample in batch.samples:
        num = sample.num_prompt_tokens
        ids = torch.tensor([sample.token_ids])
        with torch.no_grad():
            logprobs = (model(input_ids=ids).logits[0, num - 1 : -1] / TEMPERATURE).log_softmax(-1)
        chosen = logprobs.gather(1, ids[0, num:, None]).squeeze(1)
        old = chosen + 0.3 * torch.randn(len(chosen), generator=generator)
        samples.append(replace(sample, old_logprobs=(0.0,) * num + tuple(old.tolist())))
    return replace(batch, samples=tuple(samples))


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
def test_advantages_equal_trls_formula(scale_rewards: str) -> None:
    rewards = torch.tensor([[0.1, 0.9, 0.4, float("nan")], [1.0, 0.2, 0.2, 0.0]])
    expected = rewards - rewards.nanmean(dim=1, keepdim=True)
    if scale_rewards != "none":
        std = nanstd(rewards, dim=1, keepdim=True) if scale_rewards == "group" else nanstd(rewards)
        expected = expected / (std + 1e-4)
    ours = torch.tensor(group_advantages(rewards.tolist(), scale_rewards))  # type: ignore[arg-type]
    torch.testing.assert_close(ours, expected, equal_nan=True, atol=1e-5, rtol=1e-5)
