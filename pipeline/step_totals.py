"""What one optimiser step was made of: its samples, and the micro-batches in which they were computed.

Pure. Filled by pipeline.step_gradient, read by pipeline.trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.batching import MicroPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """``num_samples`` came in ``num_parts`` parts that were not empty, with ``num_tokens`` loss tokens.

    ``micro_plans`` are those of all ranks whose gradient counts; what was begun and given up is not in them.
    """

    num_samples: int
    num_tokens: int
    num_parts: int
    micro_plans: tuple[MicroPlan, ...]

    @property
    def num_trained_samples(self) -> int:
        """Samples that went through the model."""
        return sum(plan.num_sequences for plan in self.micro_plans)

    @property
    def num_trained_tokens(self) -> int:
        """The loss tokens of these."""
        return sum(sum(item.sample.loss_mask) for plan in self.micro_plans for item in plan.samples)

    @property
    def num_shared_prompt_tokens(self) -> int:
        """Prompt tokens that needed no place of their own, because another sequence computes them."""
        groups = [group for plan in self.micro_plans if plan.sharing != "nothing" for group in plan.groups]
        return sum((len(group) - 1) * group[0].sample.num_prompt_tokens for group in groups)

    @property
    def num_shared_tokens(self) -> int:
        """All tokens that needed no place of their own."""
        num_inputs = sum(item.num_inputs for plan in self.micro_plans for item in plan.samples)
        return num_inputs - sum(plan.num_tokens - plan.num_padding for plan in self.micro_plans)

    def metrics(self) -> Mapping[str, float]:
        """The step's metrics that follow from them; see pipeline/metrics.py for the names."""
        num_tokens = sum(plan.num_tokens for plan in self.micro_plans)
        num_padding = sum(plan.num_padding for plan in self.micro_plans)
        capacity = sum(plan.capacity for plan in self.micro_plans)
        num_packed = sum(plan.num_tokens for plan in self.micro_plans if plan.capacity)
        num_skipped = self.num_samples - self.num_trained_samples
        return {
            "train/padding_share": num_padding / max(num_tokens, 1),
            "train/pack_ratio": num_packed / max(capacity, 1),
            "train/shared_prompt_tokens": float(self.num_shared_prompt_tokens),
            "train/shared_prefix_tokens": float(self.num_shared_tokens - self.num_shared_prompt_tokens),
            "train/skipped_samples": float(num_skipped),
            "train/skipped_share": num_skipped / max(self.num_samples, 1),
            "train/parts": float(self.num_parts),
            "train/micro_batches": float(len(self.micro_plans)),
        }
