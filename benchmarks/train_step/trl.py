"""TRL's optimiser step on recorded completions: its own loop, with the generation taken out of it.

The installed GRPOTrainer runs ``train()`` unchanged, but gets the recorded rollouts where it would generate
and score; what is timed is the time between the start and the end of an optimiser step as its own callbacks
tell it. Nothing is patched; on a CPU the trainer is pipeline.baseline.training.CpuGRPOTrainer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback
from trl import GRPOTrainer

from benchmarks.train_step.profile import wait_for
from configs.schema import Config
from pipeline.baseline.training import CpuGRPOTrainer, trl_config
from pipeline.messages import TrainBatch
from pipeline.models.loading import load_model, load_tokenizer


class _Recorded:
    """Gives the recorded rollouts out as those of every generation batch."""

    recorded: dict[str, Tensor]

    def _generate_and_score_completions(self, inputs: object) -> dict[str, Tensor]:
        return dict(self.recorded)


class _CpuTrainer(_Recorded, CpuGRPOTrainer):
    pass


class _GpuTrainer(_Recorded, GRPOTrainer):  # type: ignore[misc]
    pass


class _StepClock(TrainerCallback):
    """Seconds of each optimiser step, the device waited for."""

    def __init__(self, device: str) -> None:
        self.seconds: list[float] = []
        self._device = device
        self._started = 0.0

    def on_step_begin(self, *given: Any, **unused: Any) -> None:
        wait_for(self._device)
        self._started = time.perf_counter()

    def on_step_end(self, *given: Any, **unused: Any) -> None:
        wait_for(self._device)
        self.seconds.append(time.perf_counter() - self._started)


def trl_step_seconds(
    config: Config,
    model_path: Path,
    batch: TrainBatch,
    *,
    dtype: torch.dtype,
    num_steps: int,
    device: str,
) -> list[float]:
    """Seconds of each of ``num_steps`` optimiser steps on ``batch``; weights are held in ``dtype``.

    ``training.bf16`` of ``config`` says whether the forward runs under bf16 autocast.
    """
    clock = _StepClock(device)
    with _trainer(config, model_path, batch, dtype, num_steps, device) as trainer:
        trainer.add_callback(clock)
        trainer.train()
    assert len(clock.seconds) == num_steps, "TRL did not do the steps that it was asked for"
    return clock.seconds


def trl_gradients(config: Config, model_path: Path, batch: TrainBatch, device: str) -> dict[str, Tensor]:
    """The fp32 gradient of the whole step by parameter name, accumulated over TRL's micro-batches."""
    num_parts = config.training.gradient_accumulation_steps
    size = config.training.per_device_train_batch_size
    with _trainer(config, model_path, batch, torch.float32, 1, device) as trainer:
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = num_parts
        trainer.model.zero_grad()
        for index in range(num_parts):
            rows = slice(index * size, (index + 1) * size)
            part = {name: value[rows] if value.ndim else value for name, value in trainer.recorded.items()}
            trainer.compute_loss(trainer.model, part).backward()
        return {name: value.grad.clone() for name, value in trainer.model.named_parameters()}


def trl_inputs(batch: TrainBatch, pad_token_id: int, device: str) -> dict[str, Tensor]:
    """The step's rollouts as TRL pads them: to the longest prompt and the longest completion of the step.

    B sequences, prompts (B, P) padded on the left, completions (B, C) on the right.
    """
    samples = batch.samples
    prompts = [sample.token_ids[: sample.num_prompt_tokens] for sample in samples]
    answers = [sample.token_ids[sample.num_prompt_tokens :] for sample in samples]
    masks = [sample.loss_mask[sample.num_prompt_tokens :] for sample in samples]
    old = [sample.old_logprobs[sample.num_prompt_tokens :] for sample in samples]
    inputs = {
        "prompt_ids": _padded(prompts, pad_token_id, "left"),
        "prompt_mask": _padded([(1,) * len(prompt) for prompt in prompts], 0, "left"),
        "completion_ids": _padded(answers, pad_token_id),
        "completion_mask": _padded(masks, 0),
        "old_per_token_logps": _padded(old, 0.0),
        "advantages": torch.tensor([sample.advantage for sample in samples]),
        "num_items_in_batch": torch.tensor(batch.num_tokens),
    }
    return {name: value.to(device) for name, value in inputs.items()}


@contextmanager
def _trainer(
    config: Config, model_path: Path, batch: TrainBatch, dtype: torch.dtype, num_steps: int, device: str
) -> Iterator[Any]:
    tokenizer = load_tokenizer(model_path)
    model: PreTrainedModel = load_model(model_path, dtype=dtype, device=device)
    trainer_class = _CpuTrainer if device == "cpu" else _GpuTrainer
    with TemporaryDirectory() as output:
        settings = trl_config(config, Path(output), device)
        settings.max_steps = num_steps
        trainer = trainer_class(
            model=model,
            reward_funcs=lambda completions, **columns: [0.0] * len(completions),
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": ["recorded"] * config.prompts_per_step}),
            processing_class=tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.recorded = trl_inputs(batch, tokenizer.pad_token_id, device)
        yield trainer


def _padded(rows: Sequence[Sequence[float]], value: float, side: str = "right") -> Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], True, value, side)
