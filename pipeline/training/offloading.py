"""What checkpointed layers keep for the backward, in the memory of the host meanwhile.

With checkpointing that is the input of each layer. It is copied to the host on its way into the layer, and
back before the backward of the layer. No value changes. Does not checkpoint (pipeline.training.compilation).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from transformers import PreTrainedModel

from pipeline.training.micro_batch import ForwardFn, MicroBatch

# What waits on the host, and the device that wants it back; a tensor that stays has none.
_Kept = tuple[Tensor, torch.device | None]


def offloaded(forward: ForwardFn) -> ForwardFn:
    """``forward``, of a model whose layers are checkpointed; what its backward will need is offloaded."""

    def run(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        with saved_tensors_hooks(_to_host, _from_host):
            return forward(model, batch)

    return run


def _to_host(tensor: Tensor) -> _Kept:
    if tensor.is_leaf:
        # A weight, or what the micro-batch holds: it exists in any case.
        return tensor, None
    is_cuda = tensor.device.type == "cuda"
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=is_cuda)
    # In the order of the device's work: nothing here waits for it, and its memory is free after the copy.
    host.copy_(tensor, non_blocking=is_cuda)
    return host, tensor.device


def _from_host(kept: _Kept) -> Tensor:
    tensor, device = kept
    return tensor if device is None else tensor.to(device, non_blocking=True)
