"""Our loss and gradient are those of the installed TRL's GRPOTrainer on the same batch, in fp32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import LlamaForCausalLM
from trl import GRPOConfig
from trl.trainer.utils import nanstd

from pipeline.advantages import group_advantages
from pipeline.messages import TrainBatch, TrainingSample
from pipeline.models import load_model
from pipeline.trainer import Trainer
from pipeline.trl_setup import CpuGRPOTrainer
from tests.pipeline.tiny_model import make_config, make_model, make_samples, make_tokenizer, save_model

BATCH = 4
ACCUMULATION = 2
MAX_COMPLETION = 16
LENGTHS = [(5, 9), (3, 16), (7, 1), (5, 4), (2, 12), (6, 6), (4, 3), (3, 8)]
ADVANTAGES = [1.2, -0.7, 0.0, 0.4, -1.5, 0.9, 0.3, -0.2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    root = tmp_path_factory.mktemp("models")
    yield save_model(root / "policy", seed=0), save_model(root / "reference", seed=5)


def trl_loss_and_gradient(
    policy: Path, tmp_path: Path, batch: TrainBatch, *, loss_type: str, beta: float, temperature: float
) -> tuple[float, dict[str, Tensor]]:
    """Accumulate TRL's loss over ACCUMULATION micro-batches, as its training step does."""
    settings = GRPOConfig(
        output_dir=str(tmp_path),
        loss_type=loss_type,
        beta=beta,
        epsilon=0.2,
        epsilon_high=0.28,
        temperature=temperature,
        num_generations=4,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATION,
        max_completion_length=MAX_COMPLETION,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
    )
    model = load_model(policy)
    trainer = CpuGRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **columns: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["w3 w4"] * 8}),
        processing_class=make_tokenizer(),
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = ACCUMULATION
    model.zero_grad()
    total = 0.0
    reference = make_model(seed=5) if beta else None
    for start in range(0, len(batch.samples), BATCH):
        part = batch.samples[start : start + BATCH]
        inputs = trl_inputs(part, batch.num_tokens, reference, temperature)
        loss = trainer.compute_loss(trainer.model, inputs)
        loss.backward()
        # TRL leaves the division by the accumulation steps to the loss itself.
        total += float(loss.detach())
    return total, {
        name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None
    }


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


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "bnpo"])
def test_loss_and_gradient_equal_trl(
    folders: tuple[Path, Path], tmp_path: Path, loss_type: str, beta: float
) -> None:
    policy, reference = folders
    batch = make_samples(LENGTHS, ADVANTAGES)
    temperature = 0.7
    expected_loss, expected = trl_loss_and_gradient(
        policy, tmp_path, batch, loss_type=loss_type, beta=beta, temperature=temperature
    )
    config = make_config(
        grpo={"loss_type": loss_type, "beta": beta, "epsilon_high": 0.28},
        generation={"temperature": temperature},
    )
    trainer = Trainer(config, policy, reference_path=reference)
    loss, gradients = trainer.gradients(batch)
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    assert gradients.keys() == expected.keys()
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-3
    for name, value in expected.items():
        torch.testing.assert_close(gradients[name], value, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("scale_rewards", ["group", "batch", "none"])
def test_advantages_equal_trls_formula(scale_rewards: str) -> None:
    rewards = torch.tensor([[0.1, 0.9, 0.4, float("nan")], [1.0, 0.2, 0.2, 0.0]])
    expected = rewards - rewards.nanmean(dim=1, keepdim=True)
    if scale_rewards != "none":
        std = nanstd(rewards, dim=1, keepdim=True) if scale_rewards == "group" else nanstd(rewards)
        expected = expected / (std + 1e-4)
    ours = torch.tensor(group_advantages(rewards.tolist(), scale_rewards))  # type: ignore[arg-type]
    torch.testing.assert_close(ours, expected, equal_nan=True, atol=1e-5, rtol=1e-5)
