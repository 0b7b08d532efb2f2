"""One optimiser step at a time: forward, backward, clip, AdamW, on one device.

Joins the parts: the model and its master weights (pipeline.training.precision), the step's gradient
(pipeline.training.gradient), the optimiser and the checkpoint. Does not decide what to train on, and does not
publish.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from transformers import PreTrainedModel

from configs.schema import Config
from pipeline.messages import StepResult, TrainBatch
from pipeline.models.loading import fill_model, load_model, load_tokenizer
from pipeline.record.checkpoints import load_state, save_checkpoint
from pipeline.training.adapters import (
    adapter_config,
    load_policy,
    published_weights,
    saved_adapter,
)
from pipeline.training.attention import IMPLEMENTATION, row_kernel, use_row_attention, use_rows
from pipeline.training.backward import LossBackward
from pipeline.training.batching import StepPlanner, StepTotals
from pipeline.training.compilation import checkpoint_layers, prepare_layers
from pipeline.training.gradient import StepGradient
from pipeline.training.loss import loss_metrics
from pipeline.training.memory import CardUse, fitting, free_bytes, limits, shape_of
from pipeline.training.micro_batch import ForwardFn, MicroBatch, completion_hidden_states
from pipeline.training.precision import (
    MasterWeights,
    learning_rate_factor,
    make_moments,
    make_optimizer,
    set_gpu_arithmetic,
)
from pipeline.training.ranks import OptimizerState, Ranks, gathered_state, own_optimizer_state


class Trainer:
    """The policy, its optimiser, and for ``grpo.beta`` > 0 the reference model: the policy as loaded.

    ``policy_version`` counts optimiser steps; the weights as loaded are version 0. ``published_adapter`` is
    what adapter_config.json says of ``named_weights`` where these are adapters; else None.
    """

    def __init__(
        self,
        config: Config,
        model_path: Path | str,
        device: torch.device | str = "cpu",
        *,
        ranks: Ranks | None = None,
    ) -> None:
        training = config.training
        torch.manual_seed(training.seed)
        self.config = config
        self.device = torch.device(device)
        self.policy_version = 0
        if self.device.type == "cuda":
            set_gpu_arithmetic(tf32=training.tf32)
        self.tokenizer = load_tokenizer(model_path, trust_remote_code=config.model.trust_remote_code)
        self._ranks = Ranks() if ranks is None else ranks
        self.model = load_policy(config, model_path, self._ranks.load_device(self.device))
        has_rows = use_rows(config, self.model)
        self.published_adapter: Mapping[str, object] | None = None
        if config.lora.enabled:
            self.published_adapter = adapter_config(self.model, config.model, model_path)
        forward = self._ranks.shard(self.model, model_path, bf16=bool(training.bf16))
        self._weights = MasterWeights(self.model, bf16=bool(training.bf16) and not self._ranks.casts_weights)
        # Known from here on: while the reference computes, PEFT says of no adapter that it is trained.
        self._published = list(published_weights(self.model))
        _disable_dropout(self._weights.compute_model)
        self._reference, reference_forward = self._load_reference(model_path, forward)
        self._planner = StepPlanner(
            config,
            supports_rows=has_rows,
            pad_token_id=cast(int, self.tokenizer.pad_token_id),
            num_ranks=self._ranks.num_ranks,
        )
        self._gradient = StepGradient(
            self._weights,
            self._make_backward(forward, reference_forward),
            self._planner,
            self._ranks,
            is_compiled=prepare_layers(self._weights.compute_model, training, self.device),
            kernel=row_kernel(self.model, training, self.device) if has_rows else "sdpa",
        )
        self._optimizer = make_optimizer(self._weights.trained, training)
        if self.device.type == "cuda":
            make_moments(self._optimizer, has_sums=self._weights.has_sums)
        self._card = CardUse(config, self.model, self.device, self._ranks.num_ranks)
        self._changing = threading.Lock()
        self._is_changed = False  # whether the weights are newer than policy_version
        self._earlier_s = 0.0  # spent on the earlier parts of the step that is open

    def _load_reference(
        self, model_path: Path | str, policy_forward: ForwardFn
    ) -> tuple[PreTrainedModel | None, ForwardFn]:
        """The reference model and its forward pass; no model where ``grpo.beta`` is 0."""
        config = self.config
        if config.grpo.beta == 0:
            return None, completion_hidden_states
        if config.lora.enabled:
            # The policy without its adapters; see pipeline.training.backward.
            return self._weights.compute_model, policy_forward
        reference = load_model(
            model_path,
            dtype=torch.bfloat16 if config.training.bf16 else torch.float32,
            device=self._ranks.load_device(self.device),
            trust_remote_code=config.model.trust_remote_code,
        )
        if self.model.config._attn_implementation == IMPLEMENTATION:
            use_row_attention(reference)
        reference.requires_grad_(False)
        return reference, self._ranks.shard(reference, model_path, bf16=bool(config.training.bf16))

    def _make_backward(self, forward: ForwardFn, reference_forward: ForwardFn) -> LossBackward:
        return LossBackward(
            self._weights.compute_model,
            self._reference,
            self.config.grpo,
            temperature=self.config.generation.temperature,
            gradient_of=self._weights.gradient_of,
            forward=_offloaded(forward) if self.config.training.activation_offloading else forward,
            reference_forward=reference_forward,
        )

    def fit_memory(self, at_least: int) -> int:
        """Which of pipeline.training.memory.limits, from number ``at_least`` on, fits into what is free.

        The last one where none does. Raises MemoryError where there are not so many.
        """
        if at_least >= len(limits(self.config)):
            raise MemoryError(
                "a process lacked memory with the smallest micro-batches that there are: "
                "lower generation.max_completion_length or generation.kv_cache_gb, or set lora.enabled: true"
            )
        shape = shape_of(self.model, str(self.model.config.name_or_path))
        free = free_bytes(self.config, shape, self.device)
        return fitting(self.config, shape, self.device.type, free, at_least=at_least)

    def adopt_limit(self, number: int) -> str:
        """Keep micro-batches to this one of the limits from here on; returns what they have then, in words.

        What a step has learnt stays: they become larger only where activations are computed anew from now on.
        """
        limit, learnt = limits(self.config)[number], self._gradient.limit
        if learnt.checkpoints or not limit.checkpoints:
            limit = replace(
                learnt,
                max_sequences=min(limit.max_sequences, learnt.max_sequences),
                max_tokens=min(limit.max_tokens, learnt.max_tokens),
            )
        self._gradient.limit = limit
        if limit.checkpoints:
            checkpoint_layers(self._weights.compute_model)
        return str(limit)

    def accumulate(self, batch: TrainBatch) -> None:
        """Add the gradient of ``batch``, a part of a step but not its last; the weights stay as they are.

        The device is waited for at the end: who calls wants to know when it has nothing to do. After an error
        the step is forgotten, and may begin again at its part 0. Raises as ``step`` does, and ValueError for
        a part that does not follow the last one.
        """
        started = time.perf_counter()
        self._gradient.add(batch)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._earlier_s = time.perf_counter() - started + (self._earlier_s if batch.part else 0.0)

    def step(self, batch: TrainBatch) -> StepResult:
        """Train on ``batch``, a whole step or the last part of one, and on the parts before it.

        The version rises by one, also when no sample has any signal. The device is waited for once, at the
        end. Raises FloatingPointError when the gradient is not finite: the weights are spoilt then, and the
        run ends; ``--resume`` goes on from its last checkpoint. Raises MemoryError when a single sequence,
        or with training.memory fixed or other ranks any micro-batch, does not fit into memory.
        """
        started = time.perf_counter() - (self._earlier_s if batch.part else 0.0)
        training = self.config.training
        learning_rate = training.learning_rate * learning_rate_factor(self.policy_version, training)
        totals, sums = self.update(batch, learning_rate)
        values = sums.tolist()
        if not math.isfinite(values[-1]):
            raise FloatingPointError(
                f"step {batch.step}: the gradient norm is {values[-1]}; "
                "lower training.learning_rate, or look at the step's data"
            )
        self.policy_version += 1
        self._is_changed = False
        seconds = time.perf_counter() - started
        trained = [item.sample for plan in totals.micro_plans for item in plan.samples]
        has_reference = self._reference is not None
        return StepResult(
            step=batch.step,
            metrics={
                **loss_metrics(
                    values[:-1], num_tokens=totals.num_trained_tokens, has_reference=has_reference
                ),
                **totals.metrics(),
                **self._card.metrics(trained, seconds),
                "train/grad_norm": values[-1],
                "train/learning_rate": learning_rate,
                "train/num_trained_tokens": float(totals.num_trained_tokens),
            },
            seconds=seconds,
            num_tokens=totals.num_tokens,
        )

    def update(self, batch: TrainBatch, learning_rate: float) -> tuple[StepTotals, Tensor]:
        """The part of ``step`` that changes the weights; it never waits for the device.

        Returns what the step was made of and, on the device, the sums of the loss
        (``LossSums.reported``) and the norm of the gradient, in one tensor.
        """
        self._gradient.add(batch)
        found = self._gradient.finish()
        max_norm = self.config.training.max_grad_norm
        grad_norm = self._ranks.full(self._weights.clip_gradients(max_norm, scale=found.scale))
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        with self._changing:
            self._is_changed = True
            self._optimizer.step()
            self._weights.refresh()
        return found.totals, torch.cat([found.sums.reported(), grad_norm.detach().float().reshape(1)])

    def gradients(self, *parts: TrainBatch) -> tuple[float, dict[str, Tensor]]:
        """The loss of a step of ``parts`` and the gradient by parameter name, without a step (for tests)."""
        for part in parts:
            self._gradient.add(part)
        found = self._gradient.finish()
        named = [(name, master) for name, master in self.model.named_parameters() if master.requires_grad]
        return float(found.sums.loss), {
            name: self._ranks.full(cast(Tensor, master.grad)) * found.scale for name, master in named
        }

    def named_weights(self) -> Iterable[tuple[str, Tensor]]:
        """The trained fp32 weights by Hugging Face name, or PEFT's; a tied output head as the embedding.

        Of adapters nothing else: a generator adds them to its own base. Where the frozen weights here are in
        4 bits the two policies differ by that, and the loss's ratio to the generator's probabilities allows
        for it.
        """
        return ((name, self._ranks.full(weight)) for name, weight in self._published)

    def save(self, folder: Path | str, step: int) -> Path:
        """Write a checkpoint that ``load`` and ``from_pretrained`` take; ``step`` is the last one done.

        With one rank also from another thread, beside ``step`` or ``accumulate``. Raises RuntimeError when
        the weights are those of another step.
        """
        with self._changing:
            if self._is_changed or self.policy_version != step:
                raise RuntimeError(f"the weights are past step {step}")
            state: dict[str, object] = {
                "optimizer": gathered_state(self._ranks, self._optimizer.state_dict()),
                "rng": torch.get_rng_state(),
                "cuda_rng": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            }
            extra = {"step": step, "policy_version": self.policy_version}
            weights, adapter = self._saved_weights(), self.published_adapter
            if self._ranks.rank > 0:
                return Path(folder)
            return save_checkpoint(
                folder, self.model, self.tokenizer, state, extra, weights=weights, adapter=adapter
            )

    def load(self, folder: Path | str) -> int:
        """Go on from the checkpoint in ``folder``; returns its step.

        Raises ValueError when it is not whole, or not on this rank's node.

        The reference model stays the one that the run began with, and AdamW's settings those of the
        configuration.
        """
        if self._ranks.rank > 0 and not Path(folder).is_dir():
            raise ValueError(
                f"checkpoint {folder}: the node of trainer rank {self._ranks.rank} does not see it: with "
                "ranks on several nodes output.dir must be on a file system that all of them have"
            )
        state, extra = load_state(folder, is_mapped=self._ranks.num_ranks > 1)
        self._gradient.forget()
        self._load_weights(folder)
        self._weights.refresh()
        optimizer = cast(OptimizerState, state["optimizer"])
        # What is there would stay on the card beside what comes.
        self._optimizer.state.clear()
        self._optimizer.load_state_dict(own_optimizer_state(self._ranks, optimizer, self._weights.trained))
        for group in self._optimizer.param_groups:
            # torch takes the settings of the checkpoint too; those of this run's configuration count.
            group.update(self._optimizer.defaults)
        torch.set_rng_state(cast(Tensor, state["rng"]))
        if self.device.type == "cuda" and state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(cast(Tensor, state["cuda_rng"]), self.device)
        self.policy_version = int(cast(int, extra["policy_version"]))
        self._is_changed = False
        return int(cast(int, extra["step"]))

    def _saved_weights(self) -> dict[str, Tensor] | None:
        if self.published_adapter is None:
            return self._ranks.full_weights(self.model)
        named = self._published
        return {name: self._ranks.full(weight.detach()).cpu().contiguous() for name, weight in named}

    @torch.no_grad()
    def _load_weights(self, folder: Path | str) -> None:
        if self.published_adapter is not None:
            adapter = saved_adapter(folder, self.published_adapter)
            for name, weight in self._published:
                weight.copy_(self._ranks.own(adapter[name], weight))
            return
        trusted = self.config.model.trust_remote_code
        fill_model(self.model, folder, self._ranks.own, trust_remote_code=trusted)


def _offloaded(forward: ForwardFn) -> ForwardFn:
    """``forward``; what its backward will need, of checkpointed layers their inputs, waits on the host."""

    def run(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        with save_on_cpu(pin_memory=True):
            return forward(model, batch)

    return run


def _disable_dropout(model: nn.Module) -> None:
    """The ratio compares this policy with the generator's, which drops nothing."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # What is not a module of its own drops where its owner trains, as checkpointed layers do.
        for name, value in list(vars(module).items()):
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
