"""Weight updates that go wrong inside vLLM, one after the other; prints what their receipts say, as JSON.

    python -m tests.pipeline.generation.receipt_faults FOLDER

A program of its own: the engine is in this process, so that a fault can be put into its loader.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch
from safetensors.torch import load_file, save_file
from vllm import LLM
from vllm.config import WeightTransferConfig
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

from pipeline.generation.vllm.held_weights import Part, whole
from pipeline.generation.vllm.transfer import BACKEND, FileWeightTransferEngine, register
from pipeline.messages import WeightUpdate
from pipeline.models.loading import load_model
from pipeline.weights.files import write_weights
from pipeline.weights.receipts import differing
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer


class Updates:
    """The weight updates of an engine with the model in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = 0
        self.llm = LLM(
            model=str(folder),
            dtype="float32",
            enforce_eager=True,
            max_model_len=64,
            kv_cache_memory_bytes=2**26,
            weight_transfer_config=WeightTransferConfig(backend=BACKEND),
            worker_extension_cls="pipeline.generation.vllm.worker.WorkerMethods",
        )

    def publish(self) -> WeightUpdate:
        """Weights that nothing has held before."""
        self.version += 1
        model = load_model(self.folder)
        random = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn(weight.shape, generator=random))
        path = str(self.folder.parent / f"{self.version}.safetensors")
        return write_weights(model.named_parameters(), path, self.version, torch.float32)

    def load(self, update: WeightUpdate) -> list[str]:
        """Load it as the engine does; what is held otherwise than it was published."""
        call = self.llm.collective_rpc
        call("start_weight_update")
        info = {"path": update.path, "kind": update.kind, "policy_version": update.policy_version}
        call("update_weights", args=(info,))
        call("finish_weight_update")
        answers: list[dict[str, Any]] = call("weight_receipt", args=(update.policy_version, 0))
        held = whole([Part(*part) for part in answer["parts"]] for answer in answers)
        assert not answers[0]["unread"]
        if update.kind == "full":
            return differing(update.receipt, held)
        return differing(update.receipt, answers[0]["adapter"]) + differing(answers[0]["merged"], held)


def dropping(load: Callable[[Iterable[Any]], Any], lost: str) -> Callable[[Iterable[Any]], Any]:
    """A loader that drops one tensor."""
    return lambda weights: load((name, weight) for name, weight in weights if name != lost)


def flip_a_bit(path: str, name: str) -> None:
    tensors = load_file(path)
    tensors[name].view(torch.int32).flatten()[5] ^= 1
    save_file(tensors, path)


def faults(updates: Updates) -> dict[str, list[str]]:
    found = {f"sound {turn}": updates.load(updates.publish()) for turn in range(2)}
    (model,) = updates.llm.collective_rpc(lambda worker: worker.model_runner.get_model())

    load = model.load_weights
    model.load_weights = dropping(load, "model.layers.1.mlp.up_proj.weight")
    found["dropped"] = updates.load(updates.publish())
    model.load_weights = load

    transfer: Any = FileWeightTransferEngine
    finish = transfer.finish_weight_update
    transfer.finish_weight_update = lambda engine: finalize_layerwise_reload(
        engine.model, engine.model_config
    )
    found["stale head"] = updates.load(updates.publish())
    transfer.finish_weight_update = finish

    update = updates.publish()
    flip_a_bit(update.path, "model.layers.0.self_attn.k_proj.weight")
    found["flipped"] = updates.load(update)

    for name in ("adapter", "adapter not swapped in"):
        updates.version += 1
        path = updates.folder.parent / f"adapter {updates.version}"
        _, update = publish_random_adapter(updates.folder, path, updates.version, seed=updates.version)
        if name != "adapter":
            model.load_weights = lambda weights: [None for _ in weights]
        found[name] = updates.load(update)
        model.load_weights = load
    return found


def main(folder: Path) -> None:
    register()
    found = {}
    for is_tied in (True, False):
        model = make_byte_model(0, num_key_value_heads=1, initializer_range=0.2, has_end=False)
        model.config.tie_word_embeddings = is_tied
        if not is_tied:
            model.lm_head.weight = torch.nn.Parameter(0.2 * torch.randn(model.lm_head.weight.shape))
        base = folder / str(is_tied) / "base"
        model.save_pretrained(str(base))
        make_byte_tokenizer().save_pretrained(str(base))
        found["tied" if is_tied else "untied"] = faults(Updates(base))
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
