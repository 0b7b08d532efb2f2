"""The forward pass of a micro-batch, up to the hidden states that predict its loss tokens.

Padded sequences, or one row of trees (pipeline.training.rows) whose attention pipeline.training.attention
confines; both give the same states, and no cache is involved, so checkpointed layers compute the same again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from configs.schema import Config
from pipeline.models.loading import decoder_of
from pipeline.training.attention import IMPLEMENTATION, why_not_packed
from pipeline.training.micro_batch import MicroBatch

_log = logging.getLogger(__name__)

# The last hidden states (M, H) of a micro-batch, as ``completion_hidden_states`` makes them.
ForwardFn = Callable[[PreTrainedModel, MicroBatch], Tensor]


def completion_hidden_states(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """The last hidden state at the positions that predict loss tokens: (M, H).

    ``use_row_attention`` must have been called on ``model`` before a micro-batch in rows comes.
    """
    decoder = decoder_of(model)
    if batch.layout is None:
        output = decoder(input_ids=batch.input_ids, use_cache=False)
    else:
        output = decoder(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            use_cache=False,
            layout=batch.layout,
        )
    states = cast(Tensor, output.last_hidden_state).flatten(0, 1)
    return states.index_select(0, batch.source_rows)


def use_row_attention(model: PreTrainedModel) -> None:
    """Give ``model`` the attention that understands rows; padded batches go through SDPA as before."""
    model.set_attn_implementation(IMPLEMENTATION)


def supports_packing(config: Config, model: PreTrainedModel) -> bool:
    """Whether rows of several sequences go through ``model`` as they should; if not, the run says so."""
    acceleration, generation = config.acceleration, config.generation
    if not (acceleration.token_packing.enabled or acceleration.shared_prompt):
        return False
    obstacle = why_not_packed(model.config, generation.max_prompt_length + generation.max_completion_length)
    if obstacle is not None:
        _log.warning("token packing and shared prompts are off, the batches are padded: %s", obstacle)
    return obstacle is None


@contextmanager
def disabled_adapters(model: nn.Module) -> Iterator[None]:
    """Within it the model computes what its frozen weights alone say; nothing changes without adapters."""
    layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
