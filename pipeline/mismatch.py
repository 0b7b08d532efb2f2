"""Say so when generator and trainer give one policy's tokens different probabilities.

Two engines round differently, and the importance ratio corrects for that. What is far beyond rounding is a
fault: weights that did not arrive, another temperature, a kernel. Measured on a CPU with the built-in model
(vLLM against the trainer, 1,400 tokens), ``train/mismatch_kl`` is 0.001 where both compute in bf16 and 0 to
eight digits in fp32; it is 0.008 and more where one divides by a temperature of 0.9 instead of 1. The default
threshold lies between. Called by pipeline.training_loop.
"""

from __future__ import annotations

from collections.abc import Mapping

_METRIC = "train/mismatch_kl"


class MismatchWatch:
    """Looks at every step's metrics; ``threshold`` is ``grpo.mismatch_kl_warning``."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._has_warned = False

    def warning(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """What to tell the user after this step, once in a run; None where there is nothing to tell."""
        value = metrics.get(_METRIC)
        if self._has_warned or value is None or value <= self._threshold:
            return None
        self._has_warned = True
        return (
            f"warning: step {step}: {_METRIC} is {value:.3g}, above grpo.mismatch_kl_warning "
            f"{self._threshold:g}: generator and trainer give the same tokens of the same weights different "
            "probabilities. Look at generation.dtype, training.bf16 and generation.recompute_kv_cache; what "
            "grpo.importance_sampling_mode corrects for are small differences"
        )
