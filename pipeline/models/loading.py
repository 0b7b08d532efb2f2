"""Load a model and its tokenizer from a local folder in Hugging Face layout, and name a model's parts.

Does not know how a folder is found (pipeline.models.find).
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

# Loading takes a second; the progress of a run is its own to show.
logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_tokenizer(path: Path | str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer in ``path``; its pad token is the eos token where it has none of its own.

    Raises ValueError where there is none that can be loaded.
    """
    try:
        tokenizer = cast(
            PreTrainedTokenizerBase,
            AutoTokenizer.from_pretrained(
                str(path), local_files_only=True, trust_remote_code=trust_remote_code
            ),
        )
    # The libraries look at what they read by using it.
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise ValueError(f"model.name: the tokenizer in {str(path)!r} cannot be loaded ({said})") from error
    if tokenizer.eos_token is None:
        raise ValueError(f"model.name: the tokenizer in {str(path)!r} has no eos token")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    path: Path | str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """The causal language model in ``path``, in eval mode, on ``device``, with attention by SDPA."""
    model = AutoModelForCausalLM.from_pretrained(
        str(path),
        dtype=dtype,
        local_files_only=True,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
    )
    return cast(PreTrainedModel, cast(nn.Module, model).to(device).eval())


def decoder_of(model: PreTrainedModel) -> nn.Module:
    """The part of a causal language model that makes hidden states: all but the output head.

    Adapters stand inside the decoder's layers (pipeline.training.adapters), so calling it applies them.
    """
    decoder: nn.Module = model.base_model
    return decoder


def head_of(model: PreTrainedModel) -> nn.Module:
    """The output head of a causal language model: hidden states (N, H) to logits (N, V)."""
    head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return head
