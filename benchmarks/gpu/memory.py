"""Stage 3: what a trainer takes of the card beside the estimate of it, and what publishing weights costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import torch

from benchmarks.gpu.stage import Figures, Stage
from benchmarks.train_step.job import MemoryCase, run_worker
from configs.schema import Config
from pipeline.training.trainer import Trainer
from pipeline.weights.exchange import WeightServer
from pipeline.weights.files import shared_folder, write_weights

_TIMEOUT_S = 120.0
# Model, whether adapters alone are trained, tokens of a row, whether activations are checkpointed.
_CASES: Final[tuple[tuple[str, bool, int, bool], ...]] = (
    ("random-0.5b", False, 8192, False),
    ("random-0.5b", False, 8192, True),
    ("random-1.5b", False, 8192, False),
    ("random-1.5b", False, 8192, True),
    ("random-3b", False, 4096, True),
    ("random-7b", True, 4096, False),
    ("random-7b", True, 4096, True),
)
_TINY_CASES: Final = (("random-tiny", False, 256, False), ("random-tiny", True, 256, True))


class Memory(Stage):
    """See the module."""

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        """See Stage."""
        is_tiny = self.terms.is_tiny
        cases = {
            f"{model}, {'LoRA' if is_lora else 'all weights'}, rows of {num_tokens}"
            + (", checkpointed" if is_checkpointed else ""): partial(
                self._case, model, is_lora, num_tokens, is_checkpointed
            )
            for model, is_lora, num_tokens, is_checkpointed in (_TINY_CASES if is_tiny else _CASES)
        }
        published = ("random-tiny",) if is_tiny else ("random-0.5b", "random-3b")
        return cases | {f"publish {model}": partial(self._publish, model) for model in published}

    def _case(self, model: str, is_lora: bool, num_tokens: int, is_checkpointed: bool) -> Figures:
        case = MemoryCase(
            model=self.model(model),
            is_lora=is_lora,
            num_tokens=num_tokens,
            cores=self.terms.cores,
            device=self.terms.device,
            is_checkpointed=is_checkpointed,
        )
        found = run_worker(case, _TIMEOUT_S)
        estimate = sum(found["estimate"].values())
        return {
            "estimate_gb": estimate / 1e9,
            "measured_gb": found["peak"] / 1e9,
            "ratio": estimate / found["peak"],
            "activations_gb": found["estimate"]["activations"] / 1e9,
            "bf16": found["bf16"],
        }

    def _publish(self, model: str) -> Figures:
        """Seconds of a file in shared memory, and of an offer over a group, and their size."""
        trainer = Trainer(
            Config.model_validate({"training": {"bf16": True}}), self.model(model), self.terms.device
        )
        with shared_folder("gpu-battery") as folder:
            path = str(folder / "weights.safetensors")
            started = time.perf_counter()
            write_weights(trainer.named_weights(), path, 1, torch.bfloat16)
            file_s = time.perf_counter() - started
        server = WeightServer("127.0.0.1", trainer.device, 60.0)
        try:
            started = time.perf_counter()
            server.offer(trainer.named_weights(), 1, torch.bfloat16)
            offer_s = time.perf_counter() - started
        finally:
            server.close()
        num_bytes = sum(2 * weight.numel() for _, weight in trainer.named_weights())
        return {"bytes": num_bytes, "file_s": file_s, "offer_s": offer_s}
