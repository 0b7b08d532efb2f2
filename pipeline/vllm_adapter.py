"""vLLM's own LoRA: one adapter beside the frozen weights, replaced in place at every update.

For GPUs, where its kernels cost little and an update moves only the adapter. On a CPU vLLM copies the factors
once a token, so adapters are merged there (pipeline.vllm_weights). Called by pipeline.vllm_engine.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch
from vllm.lora.request import LoRARequest
from vllm.v1.engine.async_llm import AsyncLLM

from pipeline.merging import PEFT_PREFIX, base_weights, write_adapter_files

# What vLLM 0.31 has room for.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_NAME, _NUMBER = "policy", 1


class ServedAdapter:
    """The adapter that every request asks for, on the model in the folder ``model``.

    It begins with zeros for one layer, which is the base model. Requests name it by a number that stays the
    same, so those that are running when it is replaced go on under the new one.
    """

    def __init__(self, model: str, rank: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="code-grpo-adapter-"))
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": [], "bias": "none"}
        write_adapter_files(self._folder, config, _zeros(model, rank))
        self.request = LoRARequest(_NAME, _NUMBER, str(self._folder))

    async def replace(self, engine: AsyncLLM, path: str) -> None:
        """Load the adapter in the folder ``path`` instead; generation is paused, and no KV is kept."""
        await engine.add_lora(LoRARequest(_NAME, _NUMBER, path, load_inplace=True))

    def close(self) -> None:
        """Remove the files of the first adapter."""
        shutil.rmtree(self._folder, ignore_errors=True)


def room_for(rank: int) -> int:
    """The smallest rank that vLLM can be started with and that ``rank`` fits into."""
    return next(size for size in _RANKS if size >= rank)


def _zeros(model: str, rank: int) -> dict[str, torch.Tensor]:
    """Factors of zero for the first matrix that is part of a numbered layer; vLLM refuses to load none."""
    for name, weight in base_weights(model):
        if weight.dim() == 2 and any(part.isdigit() for part in name.split(".")):
            layer = f"{PEFT_PREFIX}{name.removesuffix('.weight')}"
            return {
                f"{layer}.lora_A.weight": torch.zeros(rank, weight.shape[1]),
                f"{layer}.lora_B.weight": torch.zeros(weight.shape[0], rank),
            }
    raise ValueError(f"adapter: the base model {model} has no layer that could get one")
