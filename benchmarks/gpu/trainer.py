"""Stages 3 and 4: what a trainer takes of the card and what publishing costs, and whether a rank is exact."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, distributed

from benchmarks.gpu.stage import Figures, Stage
from benchmarks.train_step.inputs import random_base, random_batch
from benchmarks.train_step.job import BatchSpec, MemoryCase, run_worker
from benchmarks.train_step.worker import distance
from configs.schema import Config
from pipeline.training.ranks import Ranks, join
from pipeline.training.trainer import Trainer
from pipeline.weights.exchange import WeightServer, open_store
from pipeline.weights.files import shared_folder, write_weights

_TIMEOUT_S = 120.0
_RANKS_TIMEOUT_S = 60.0
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
_SPEC = BatchSpec(name="random", groups=2, generations=4, prompt_tokens=40, completion_tokens=60)


class Memory(Stage):
    """What a trainer takes of the card beside the estimate of it, and what publishing weights costs."""

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
            num_bytes = Path(path).stat().st_size
        server = WeightServer("127.0.0.1", trainer.device, 60.0)
        try:
            started = time.perf_counter()
            server.offer(trainer.named_weights(), 1, torch.bfloat16)
            offer_s = time.perf_counter() - started
        finally:
            server.close()
        return {"bytes": num_bytes, "file_s": file_s, "offer_s": offer_s}


class Sharding(Stage):
    """One sharded rank, over NCCL or gloo, computes what a trainer without ranks does."""

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        """See Stage."""
        return {"one rank": self._one_rank}

    def _one_rank(self) -> Figures:
        """How far weights, their change and the gradient's norm are from those without ranks, relative."""
        started = time.perf_counter()
        start, _ = self._after(Ranks(), num_steps=0)
        expected, norm = self._after(Ranks(), num_steps=1)
        ranks = join(
            open_store("127.0.0.1", _RANKS_TIMEOUT_S), 0, 1, torch.device(self.terms.device), _RANKS_TIMEOUT_S
        )
        try:
            ours, our_norm = self._after(ranks, num_steps=1)
        finally:
            distributed.destroy_process_group()
        change = distance(expected, start)
        return {
            "difference of the step": distance(ours, expected) / change,
            "difference of the gradient's norm": abs(our_norm - norm) / norm,
            "seconds": time.perf_counter() - started,
        }

    def _after(self, ranks: Ranks, *, num_steps: int) -> tuple[dict[str, Tensor], float]:
        """The whole weights in fp32 on the CPU, and the gradient's norm."""
        base = random_base(_SPEC)
        # One step of the random batch changes little with a warm-up.
        base["training"] |= {"bf16": False, "warmup_steps": 0}
        config = Config.model_validate(base)
        trainer = Trainer(config, self.model("random-tiny"), self.terms.device, ranks=ranks)
        batch = random_batch(_SPEC, int(trainer.model.config.get_text_config().vocab_size))
        norm = 0.0
        for _ in range(num_steps):
            norm = float(trainer.step(batch).metrics["train/grad_norm"])
        named = trainer.named_weights()
        return {name: weight.detach().float().cpu().clone() for name, weight in named}, norm
