"""One optimiser step at a time: forward, backward, clip, AdamW, on one device.

Keeps fp32 master weights; with ``training.bf16`` a bf16 copy of the model does forward and backward, its
gradients are summed in fp32, and it is refreshed after each update (faster than autocast, which casts every
weight at every micro-batch, and the generator's arithmetic as well: its residual stream is bf16 too).
Does not decide what to train on, and does not publish. Called by pipeline/trainer_actor.py.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from configs.schema import Config, TrainingConfig
from pipeline.batching import MicroBatch, StepPlan, plan_step
from pipeline.checkpoint import load_state, save_checkpoint
from pipeline.forward import completion_states
from pipeline.loss import TokenLoss, grpo_loss, token_logprobs
from pipeline.messages import StepResult, TrainBatch
from pipeline.models import load_model, load_tokenizer

# Tokens whose logits exist at a time: 1024 x 49,152 in bf16 are 96 MiB.
LOGITS_ROWS = 1024

# Models that change their logits after the output head; the loss reads the head's own.
_LOGIT_TRANSFORMS = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "output_multiplier",
    "lm_head_multiplier",
)


class Trainer:
    """The policy, its optimiser, and for ``grpo.beta`` > 0 the reference model.

    ``policy_version`` counts optimiser steps; the weights as loaded are version 0. The reference model is
    the policy as loaded, unless ``reference_path`` names another folder.
    """

    def __init__(
        self,
        config: Config,
        model_path: Path | str,
        device: torch.device | str = "cpu",
        *,
        reference_path: Path | str | None = None,
    ) -> None:
        if config.lora.enabled:
            raise ValueError("lora.enabled: value true: adapters are not supported yet; set it to false")
        training = config.training
        trust = config.model.trust_remote_code
        torch.manual_seed(training.seed)
        self.config = config
        self.device = torch.device(device)
        self.policy_version = 0
        self.tokenizer = load_tokenizer(model_path, trust_remote_code=trust)
        self.model = load_model(model_path, dtype=torch.float32, device=self.device, trust_remote_code=trust)
        _refuse_logit_transforms(self.model)
        self._compute = _compute_copy(self.model, training)
        self._pairs = list(zip(self.model.parameters(), self._compute.parameters(), strict=True))
        _route_gradients(self._pairs)
        self._masters = [master for master, _ in self._pairs]
        self._reference: PreTrainedModel | None = None
        if config.grpo.beta > 0:
            dtype = torch.bfloat16 if training.bf16 else torch.float32
            source = reference_path or model_path
            self._reference = load_model(source, dtype=dtype, device=self.device, trust_remote_code=trust)
            self._reference.requires_grad_(False)
        self._optimizer = torch.optim.AdamW(
            self._masters,
            lr=training.learning_rate,
            betas=(training.adam_beta1, training.adam_beta2),
            eps=training.adam_epsilon,
            weight_decay=training.weight_decay,
            fused=True,
        )

    def step(self, batch: TrainBatch) -> StepResult:
        """Train on ``batch``; the version rises by one, also when no sample of it has any signal.

        The device is waited for once, at the end. Raises FloatingPointError when the gradient is not
        finite: the weights are spoilt then, and the run goes on from its last checkpoint.
        """
        started = time.perf_counter()
        training = self.config.training
        plan = self._plan(batch)
        for master in self._masters:
            assert master.grad is not None
            master.grad.zero_()
        sums = torch.zeros(6, device=self.device)
        for micro_batch in plan.micro_batches:
            sums += self._accumulate(micro_batch)
        grad_norm = nn.utils.clip_grad_norm_(self._masters, training.max_grad_norm)
        learning_rate = training.learning_rate * learning_rate_factor(self.policy_version, training)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._refresh_copy()
        values = torch.cat([sums, grad_norm.detach().float().reshape(1)]).tolist()
        if not math.isfinite(values[-1]):
            raise FloatingPointError(
                f"step {batch.step}: the gradient norm is {values[-1]}; "
                "lower training.learning_rate, or look at the step's data"
            )
        self.policy_version += 1
        metrics = _metrics(
            values, plan, num_samples=len(batch.samples), has_reference=self._reference is not None
        )
        return StepResult(
            step=batch.step,
            policy_version=self.policy_version,
            metrics={
                **metrics,
                "train/learning_rate": learning_rate,
                "train/num_tokens": float(batch.num_tokens),
            },
            seconds=time.perf_counter() - started,
            num_tokens=batch.num_tokens,
        )

    def gradients(self, batch: TrainBatch) -> tuple[float, dict[str, Tensor]]:
        """The loss of ``batch`` and the gradient by parameter name, without a step (for tests)."""
        for master in self._masters:
            assert master.grad is not None
            master.grad.zero_()
        loss = sum(float(self._accumulate(part)[0]) for part in self._plan(batch).micro_batches)
        named = self.model.named_parameters()
        return loss, {name: cast(Tensor, master.grad).clone() for name, master in named}

    def named_weights(self) -> Iterable[tuple[str, Tensor]]:
        """The fp32 weights by Hugging Face name; a tied output head is named once, as the embedding."""
        return self.model.named_parameters()

    def save(self, folder: Path | str, step: int) -> Path:
        """Write a checkpoint that ``load`` and ``from_pretrained`` take; ``step`` is the last one done."""
        state: dict[str, object] = {
            "optimizer": self._optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }
        extra = {"step": step, "policy_version": self.policy_version}
        return save_checkpoint(folder, self.model, self.tokenizer, state, extra)

    def load(self, folder: Path | str) -> int:
        """Go on from the checkpoint in ``folder``; returns its step. Raises ValueError when it is not whole.

        The reference model stays the one that the run began with.
        """
        state, extra = load_state(folder)
        trust = self.config.model.trust_remote_code
        saved = load_model(folder, dtype=torch.float32, device=self.device, trust_remote_code=trust)
        self.model.load_state_dict(saved.state_dict())
        self._refresh_copy()
        self._optimizer.load_state_dict(cast(dict[str, object], state["optimizer"]))
        torch.set_rng_state(cast(Tensor, state["rng"]))
        if self.device.type == "cuda" and state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(cast(Tensor, state["cuda_rng"]), self.device)
        self.policy_version = int(cast(int, extra["policy_version"]))
        return int(cast(int, extra["step"]))

    def _plan(self, batch: TrainBatch) -> StepPlan:
        training, grpo = self.config.training, self.config.grpo
        return plan_step(
            batch.samples,
            loss_type=grpo.loss_type,
            batch_size=training.per_device_train_batch_size,
            max_completion_length=self.config.generation.max_completion_length,
            pad_token_id=cast(int, self.tokenizer.pad_token_id),
            # The KL term has a gradient where the advantage is zero.
            skip_zero_advantages=self.config.acceleration.skip_zero_advantages and grpo.beta == 0,
            # Checkpointing recomputes layers without a cache to read from.
            share_prompts=self.config.acceleration.shared_prompt and not training.gradient_checkpointing,
            device=self.device,
        )

    def _accumulate(self, part: MicroBatch) -> Tensor:
        """Add the gradient of ``part``; returns the sums loss, ratio, clipped, KL, mismatch, entropy: (6,).

        The logits exist for ``LOGITS_ROWS`` tokens at a time: each chunk is taken back to the hidden states
        at once, and the model's backward runs once, on their summed gradient.
        """
        hidden = completion_states(self._compute, part)  # (N, H)
        leaf = hidden.detach().requires_grad_()
        reference = self._reference_logprobs(part)
        sums = torch.zeros(6, device=self.device)
        for start in range(0, hidden.shape[0], LOGITS_ROWS):
            rows = slice(start, start + LOGITS_ROWS)
            result, entropy = self._chunk_loss(leaf, part, reference, rows)
            result.loss.backward()  # type: ignore[no-untyped-call]
            sums += torch.stack(
                [
                    result.loss.detach(),
                    result.ratio_sum,
                    result.num_clipped.float(),
                    result.kl_sum,
                    result.mismatch_kl_sum,
                    entropy.sum(),
                ]
            )
        hidden.backward(leaf.grad)  # type: ignore[no-untyped-call]
        return sums

    def _chunk_loss(
        self, hidden: Tensor, part: MicroBatch, reference: Tensor | None, rows: slice
    ) -> tuple[TokenLoss, Tensor]:
        grpo, temperature = self.config.grpo, self.config.generation.temperature
        targets = part.target_ids[rows]
        logprobs, entropy = token_logprobs(
            _head(self._compute)(hidden[rows]), targets, temperature=temperature
        )
        result = grpo_loss(
            logprobs,
            part.old_logprobs[rows],
            part.advantages[rows],
            part.weights[rows],
            epsilon=grpo.epsilon,
            epsilon_high=grpo.epsilon_high,
            beta=grpo.beta,
            ref_logprobs=None if reference is None else reference[rows],
        )
        return result, entropy

    def _reference_logprobs(self, part: MicroBatch) -> Tensor | None:
        """The reference model's log-probabilities (N,), or None without one."""
        if self._reference is None:
            return None
        with torch.no_grad():
            hidden = completion_states(self._reference, part)
            head, temperature = _head(self._reference), self.config.generation.temperature
            chunks = zip(
                torch.split(hidden, LOGITS_ROWS), torch.split(part.target_ids, LOGITS_ROWS), strict=True
            )
            parts = [token_logprobs(head(rows), targets, temperature=temperature) for rows, targets in chunks]
        return torch.cat([logprobs for logprobs, _ in parts])

    @torch.no_grad()
    def _refresh_copy(self) -> None:
        for master, computed in self._pairs:
            if master is not computed:
                computed.copy_(master)


def learning_rate_factor(step: int, training: TrainingConfig) -> float:
    """The share of the peak learning rate in optimiser step ``step`` (from 0).

    Warm-up rises linearly and does not waste the first step on a rate of zero; linear and cosine then
    fall towards zero at ``max_steps``.
    """
    if step < training.warmup_steps:
        return (step + 1) / (training.warmup_steps + 1)
    if training.lr_scheduler_type == "constant":
        return 1.0
    left = max(training.max_steps - training.warmup_steps, 1)
    progress = min((step - training.warmup_steps) / left, 1.0)
    return (
        1.0 - progress
        if training.lr_scheduler_type == "linear"
        else 0.5 * (1.0 + math.cos(math.pi * progress))
    )


def _compute_copy(model: PreTrainedModel, training: TrainingConfig) -> PreTrainedModel:
    """The model that runs forward and backward: a bf16 copy, or ``model`` itself."""
    computed = copy.deepcopy(model) if training.bf16 else model
    if training.bf16:
        cast(nn.Module, computed).to(torch.bfloat16)
    for module in computed.modules():
        # The ratio compares this policy with the generator's, which drops nothing.
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    if training.gradient_checkpointing:
        computed.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        computed.train()
    return computed


def _route_gradients(pairs: Iterable[tuple[nn.Parameter, nn.Parameter]]) -> None:
    """Give every master a zeroed fp32 gradient, to which each backward of its bf16 copy is added."""
    for master, computed in pairs:
        master.grad = torch.zeros_like(master)
        if master is not computed:
            total = master.grad

            def add(parameter: Tensor, total: Tensor = total) -> None:
                assert parameter.grad is not None
                total.add_(parameter.grad)
                parameter.grad = None

            computed.register_post_accumulate_grad_hook(add)  # type: ignore[no-untyped-call]


def _head(model: PreTrainedModel) -> nn.Module:
    return cast(nn.Module, model.get_output_embeddings())  # type: ignore[no-untyped-call]


def _refuse_logit_transforms(model: PreTrainedModel) -> None:
    settings = model.config.get_text_config().to_dict()
    for name in _LOGIT_TRANSFORMS:
        value = settings.get(name)
        if value is not None and value != 1.0:
            raise ValueError(
                f"model.name: the model's config has {name} = {value}: models that change their logits after "
                "the output head are not supported; choose another model"
            )


def _metrics(
    values: list[float], plan: StepPlan, *, num_samples: int, has_reference: bool
) -> dict[str, float]:
    """Means over the tokens that went through the model; see pipeline/metrics.py for the names."""
    loss, ratio, clipped, kl, mismatch, entropy, grad_norm = values
    tokens = max(plan.num_trained_tokens, 1)
    metrics = {
        "train/loss": loss,
        "train/grad_norm": grad_norm,
        "train/ratio_mean": ratio / tokens if plan.num_trained_tokens else 1.0,
        "train/clipped_share": clipped / tokens,
        "train/kl": mismatch / tokens,
        "train/entropy": entropy / tokens,
        "train/padding_share": 1.0 - plan.num_real / max(plan.num_padded, 1) if plan.num_padded else 0.0,
        "train/shared_prompt_tokens": float(plan.num_shared),
        "train/skipped_samples": float(plan.num_skipped),
        "train/skipped_share": plan.num_skipped / max(num_samples, 1),
    }
    return {**metrics, "train/reference_kl": kl / tokens} if has_reference else metrics
