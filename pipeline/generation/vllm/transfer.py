"""vLLM's side of a weight update: a weight-transfer engine that takes what the trainer wrote or sends.

All weights come from a safetensors file, or from the trainer's process (pipeline.weights.exchange). An
adapter is merged with the base model's own files, so that generation costs nothing more than before;
pipeline.generation.vllm.engine says when vLLM's own LoRA takes it instead.

vLLM loads ``register`` in each of its processes through the ``vllm.general_plugins`` entry point that
pyproject.toml declares.
"""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from pipeline.models.files import base_weights, file_weights
from pipeline.models.merging import merged_weights, read_adapter
from pipeline.weights.receipts import noted, receipt_of
from sandbox.jail import die_with_parent

if TYPE_CHECKING:
    from pipeline.weights.exchange import WeightClient


BACKEND = "safetensors_file"


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Where the new weights lie, and of which kind they are; see pipeline.messages.WeightUpdate.

    The rest is for an offer: the engine's name, and the time that the trainer has to answer.
    """

    path: str
    kind: str
    policy_version: int
    is_quantised: bool = True
    receiver: str = ""
    timeout_s: float = 0.0


class FileWeightTransferEngine(WeightTransferEngine[WeightTransferInitInfo, FileUpdateInfo]):  # type: ignore[misc]
    """Loads a whole checkpoint from what the trainer left in shared memory, or from its process.

    Of an adapter on what is still its base, the numbered layers that it adapts.
    """

    init_info_cls = WeightTransferInitInfo
    update_info_cls = FileUpdateInfo

    _client: WeightClient | None = None
    _is_cut_off = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Of the last update, if it was an adapter: digests of what it makes of the base, and of its factors.
        self.merged: dict[str, int] = {}
        self.adapter: dict[str, int] = {}
        # Of all that a quantised engine was given: what it makes of that is not what was published.
        self.given: dict[str, int] = {}
        # Whether the model held is the base, but for an adapter; and whether an update loads all of it.
        self._is_adapted_base = self._is_whole = True

    def init_transfer_engine(self, init_info: WeightTransferInitInfo) -> None:
        """Nobody asks for it: a file needs no rendezvous, and who sends is met at the first update."""

    def start_weight_update(self) -> None:
        """Put the layers back into the form in which checkpoints are loaded."""
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Read the tensors and hand them to the model's own loader.

        Raises RuntimeError after an update that was cut off: some of its layers are half loaded, and vLLM
        goes on with them where it was.
        """
        if self._is_cut_off:
            raise RuntimeError("an earlier update was cut off in the middle of a layer")
        version = update_info.policy_version
        if self.model_config.quantization == "int8":
            # Imported here: it makes itself known to vLLM, which no other engine needs.
            from pipeline.generation.vllm.cpu_kernels import choose

            self._is_adapted_base &= not choose(self.model, update_info.is_quantised)
        # No more, where this one fails halfway.
        is_adapted_base, self._is_adapted_base = self._is_adapted_base, False
        self._is_whole = True
        self.merged, self.adapter, self.given = {}, {}, {}
        if update_info.kind == "adapter":
            adapter = read_adapter(update_info.path)
            self.adapter = receipt_of(adapter.named_factors(), version, scale=adapter.scale)
            # In the dtype of the engine, which is what it will hold.
            merged = merged_weights(adapter, self.model_config.model, self.model_config.dtype)
            weights = noted(merged, version, self.merged)
            layers = tuple({_layer_of(name) for name in adapter.factors} if is_adapted_base else ("",))
            self._is_whole = "" in layers
            self._load(weights, version, layers)
        elif update_info.kind == "base":
            self._load(base_weights(update_info.path), version)
        elif update_info.kind == "offer":
            self._load(self._fetched(update_info), version)
        else:
            # One by one: a card never holds a second copy of the model.
            self._load(file_weights(update_info.path, str(self.device)), version)
        self._is_adapted_base = update_info.kind in ("adapter", "base")

    def _load(
        self, weights: Iterator[tuple[str, Tensor]], version: int, layers: tuple[str, ...] = ("",)
    ) -> None:
        """Hand those of ``layers`` to the model; the others are the same as the last time.

        Where the model is quantised, vLLM does that to each layer when it is whole.
        """
        if self.model_config.quantization is not None:
            weights = noted(weights, version, self.given)
        self._is_cut_off = True
        self.model.load_weights(pair for pair in weights if pair[0].startswith(layers))
        self._is_cut_off = False

    def finish_weight_update(self) -> None:
        """Pack the layers for the kernels again, tied output heads included."""
        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu" and self._is_whole:
            _pack_heads(self.model)

    def shutdown(self) -> None:
        """Part from the trainer."""
        self._client = None

    def _fetched(self, update: FileUpdateInfo) -> Iterator[tuple[str, Tensor]]:
        if self._client is None:
            # Imported here: most engines read files.
            from pipeline.weights.exchange import WeightClient

            self._client = WeightClient(
                update.receiver,
                index=self.parallel_config.rank,
                num_processes=self.parallel_config.world_size,
                device=self.device,
            )
        return self._client.fetch(update.path, update.policy_version, update.timeout_s)


def reload_on_cpu(model: nn.Module, model_config: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Load ``weights`` into a model that vLLM runs in this process, and pack its layers again."""
    initialize_layerwise_reload(model)
    model.load_weights(weights)  # type: ignore[operator]
    finalize_layerwise_reload(model, model_config)
    _pack_heads(model)


def _layer_of(name: str) -> str:
    """How the names of all weights of the numbered layer of ``name`` begin; empty for one of none."""
    found = re.match(r".*?\.\d+\.", name)
    return found[0] if found else ""


def _pack_heads(model: nn.Module) -> None:
    """vLLM's reload does not re-pack an output head that shares its weight with the embedding, so on a CPU
    it would keep answering with the old weights (seen in 0.31.0).
    """
    head = getattr(model, "lm_head", None)
    for module in model.modules():
        if isinstance(module, ParallelLMHead) or (
            module is head and isinstance(module, VocabParallelEmbedding)
        ):
            with torch.no_grad():
                module.quant_method.process_weights_after_loading(module)


def _die_with_engine() -> None:
    """End this process with the one that started it, where that is one of vLLM's or the engine's host.

    Where vLLM starts fresh interpreters for a GPU, they would go on, and keep the card's memory.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    die_with_parent()
    if os.getppid() != parent.pid:
        # It was gone before the kernel was told.
        os._exit(1)


def register() -> None:
    """Make the engine known to vLLM in this process, which is tied to the life of the one that began it.

    A second call changes nothing.
    """
    _die_with_engine()
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, FileWeightTransferEngine)
