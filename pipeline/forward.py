"""The forward pass of a micro-batch, up to the hidden states that predict its loss tokens.

Two forms with the same result: every sequence whole, or the prompt of a group once and then all its
completions behind the prompt's keys and values, through which the gradient flows back to the prompt. Called
by pipeline.trainer.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from pipeline.batching import MicroBatch


def completion_states(model: PreTrainedModel, part: MicroBatch) -> Tensor:
    """The last hidden state at the positions that predict a loss token: (N, H)."""
    if part.prompt_ids is None:
        output = model.base_model(input_ids=part.input_ids, use_cache=False)
        states = cast(Tensor, output.last_hidden_state).flatten(0, 1)
    else:
        states = _behind_shared_prompt(model, part.prompt_ids, part.input_ids)
    return states.index_select(0, part.source_rows)


def _behind_shared_prompt(model: PreTrainedModel, prompt_ids: Tensor, completion_ids: Tensor) -> Tensor:
    """States of the prompt's P tokens, then of the B completions of C tokens: (P + B * C, H).

    Exact: a causal model's prompt states do not depend on what follows, so B equal copies of the prompt
    have equal states, and the gradient of the shared one is the sum of theirs (shared-prefix training,
    e.g. arXiv:2506.05433).
    """
    cache = DynamicCache(config=model.config)
    prompt = model.base_model(input_ids=prompt_ids, past_key_values=cache, use_cache=True)
    cache.batch_repeat_interleave(completion_ids.shape[0])
    completions = model.base_model(input_ids=completion_ids, past_key_values=cache, use_cache=True)
    return torch.cat(
        [
            cast(Tensor, prompt.last_hidden_state).flatten(0, 1),
            cast(Tensor, completions.last_hidden_state).flatten(0, 1),
        ]
    )
