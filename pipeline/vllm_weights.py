"""vLLM's side of a weight update: a weight-transfer engine that reads what the trainer wrote.

All weights come from a safetensors file. An adapter is merged with the base model's own files, so that
generation costs nothing more than before; pipeline.vllm_engine says when vLLM's own LoRA takes it instead.

vLLM loads ``register`` in each of its processes through the ``vllm.general_plugins`` entry point that
pyproject.toml declares; nothing else calls this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.utils.torch_utils import set_random_seed

from pipeline.merging import base_weights, merged_weights, read_adapter

BACKEND = "safetensors_file"


@dataclass
class FileInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """A file needs no rendezvous."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Where the new weights lie, and of which kind they are; see pipeline.messages.WeightUpdate."""

    path: str
    kind: str


class FileWeightTransferEngine(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):  # type: ignore[misc]
    """Loads a whole checkpoint from what the trainer left in shared memory."""

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Nothing to prepare."""

    def start_weight_update(self) -> None:
        """Put the layers back into the form in which checkpoints are loaded."""
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        """Read the tensors and hand them to the model's own loader."""
        if update_info.kind == "adapter":
            adapter = read_adapter(update_info.path)
            self.model.load_weights(merged_weights(adapter, self.model_config.model))
        elif update_info.kind == "base":
            self.model.load_weights(base_weights(update_info.path))
            # The next run shall draw what it would draw from a fresh engine.
            set_random_seed(self.model_config.seed)
        else:
            self.model.load_weights(load_file(update_info.path, device=str(self.device)).items())

    def finish_weight_update(self) -> None:
        """Pack the layers for the kernels again, tied output heads included.

        vLLM's reload does not re-pack an output head that shares its weight with the embedding, so on
        CPU it would keep answering with the old weights (seen in 0.31.0).
        """
        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type != "cpu":
            return
        for module in self.model.modules():
            if isinstance(module, VocabParallelEmbedding):
                with torch.no_grad():
                    module.quant_method.process_weights_after_loading(module)

    def shutdown(self) -> None:
        """Nothing to close."""


def register() -> None:
    """Make the engine known to vLLM in this process; a second call changes nothing."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, FileWeightTransferEngine)
