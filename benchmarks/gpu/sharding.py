"""Stage 4: one sharded rank, over NCCL or gloo, computes what a trainer without ranks does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from benchmarks.gpu.stage import Figures, Stage
from benchmarks.train_step.inputs import random_base, random_batch
from benchmarks.train_step.job import BatchSpec
from benchmarks.train_step.worker import distance
from configs.schema import Config
from pipeline.training.ranks import Ranks, join, leave
from pipeline.training.trainer import Trainer
from pipeline.weights.exchange import open_store

_SPEC = BatchSpec(name="random", groups=2, generations=4, prompt_tokens=40, completion_tokens=60)
_TIMEOUT_S = 60.0


class Sharding(Stage):
    """See the module."""

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        """See Stage."""
        return {"one rank": self._one_rank}

    def _one_rank(self) -> Figures:
        """How far weights, their change and the gradient's norm are from those without ranks, relative."""
        started = time.perf_counter()
        start, _ = self._after(Ranks(), num_steps=0)
        expected, norm = self._after(Ranks(), num_steps=1)
        ranks = join(open_store("127.0.0.1", _TIMEOUT_S), 0, 1, torch.device(self.terms.device), _TIMEOUT_S)
        try:
            ours, our_norm = self._after(ranks, num_steps=1)
        finally:
            leave()
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
