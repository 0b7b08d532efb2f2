"""Load a model and its tokenizer from a local folder in Hugging Face layout, and name a model's parts.

Does not know how a folder is found (pipeline.models.find).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import init_empty_weights  # type: ignore[import-untyped]
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from pipeline.models.files import base_weights, check_safetensors, weight_files

# Loading takes a second; the progress of a run is its own to show.
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]

_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")

_log = logging.getLogger(__name__)


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
    """The causal language model in ``path``, in eval mode, on ``device``, with attention by SDPA.

    On "meta" its parameters have shapes and take no memory until ``fill_model``; where the files in ``path``
    name them otherwise than the model does, they are on the host instead. Raises ValueError where the files
    lack a weight of the model: Transformers would draw it at random.
    """
    if torch.device(device).type == "meta":
        if (empty := _empty_model(path, dtype, trust_remote_code=trust_remote_code)) is not None:
            return _savable(empty)
        device = "cpu"
    of_class: Any = AutoModelForCausalLM
    model, found = of_class.from_pretrained(
        str(path),
        dtype=dtype,
        local_files_only=True,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
        output_loading_info=True,
    )
    if missing := sorted(found["missing_keys"]):
        raise ValueError(
            f"model.name: the files in {str(path)!r} lack {len(missing)} weight(s) of the model that its "
            f"config.json describes: {', '.join(missing[:3])}"
        )
    return _savable(cast(PreTrainedModel, cast(nn.Module, model).to(device).eval()))


def _savable(model: PreTrainedModel) -> PreTrainedModel:
    """``model`` with its generation settings in a form in which Transformers saves them again.

    It reads what it refuses to write. What cannot be brought to that form is left out, but for the tokens.
    """
    settings = model.generation_config
    if settings is None:
        return model
    if isinstance(settings.pad_token_id, int) and settings.pad_token_id < 0:
        settings.pad_token_id = None
    try:
        settings.validate(strict=True)
    except ValueError:
        # A temperature or the like where sampling is off.
        settings.do_sample = True
        try:
            settings.validate(strict=True)
        except ValueError as error:
            said = " ".join(str(error).split())
            _log.warning("generation_config.json is not saved again, but for its tokens: %s", said)
            tokens = {name: getattr(settings, name) for name in _TOKENS}
            settings = GenerationConfig(**tokens)  # type: ignore[no-untyped-call]
    model.generation_config = settings
    return model


def model_without_weights(settings: PretrainedConfig, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """The causal language model that ``settings`` describe, for its names and shapes: milliseconds."""
    make: Any = AutoModelForCausalLM.from_config
    with torch.device("meta"):
        return cast(PreTrainedModel, make(settings, trust_remote_code=trust_remote_code))


def _empty_model(path: Path | str, dtype: torch.dtype, *, trust_remote_code: bool) -> PreTrainedModel | None:
    settings = AutoConfig.from_pretrained(
        str(path), local_files_only=True, trust_remote_code=trust_remote_code
    )
    # What a model computes by itself, such as the frequencies of positions, stands in no file.
    with init_empty_weights(include_buffers=False):
        make: Any = AutoModelForCausalLM.from_config
        model = make(settings, dtype=dtype, attn_implementation="sdpa", trust_remote_code=trust_remote_code)
    # Made so, it has derived them from config.json.
    if (Path(path) / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(str(path))
    model.tie_weights()
    stored = _stored_names(path)
    names: dict[int, set[str]] = {}  # of one weight there are several where it is tied
    for name, value in model.state_dict(keep_vars=True).items():
        names.setdefault(id(value), set()).add(name)
    is_named = stored <= set().union(*names.values()) and all(one & stored for one in names.values())
    return cast(PreTrainedModel, model.eval()) if is_named else None


@torch.no_grad()
def fill_model(
    model: PreTrainedModel,
    path: Path | str,
    own: Callable[[Tensor, Tensor], Tensor],
    *,
    trust_remote_code: bool = False,
) -> None:
    """Copy the weights in the safetensors files of ``path`` into ``model``, one at a time.

    ``own(whole, present)`` is the part of a weight that ``model`` holds as ``present``. Where the files are
    others, name weights otherwise than the model does, or lack some, all are on the host meanwhile. Raises as
    ``load_model``.
    """
    present = model.state_dict()
    needed = {name for name, _ in model.named_parameters()}
    if needed <= _stored_names(path) <= present.keys():
        named = base_weights(path)
    else:
        # Transformers saves such a model as its first files were.
        named = iter(load_model(path, trust_remote_code=trust_remote_code).state_dict().items())
    for name, whole in named:
        present[name].copy_(own(whole.to(present[name].dtype), present[name]))


def _stored_names(path: Path | str) -> set[str]:
    return {name for file in weight_files(Path(path)) for name in check_safetensors(file)}


def head_of(model: PreTrainedModel) -> nn.Module:
    """The output head of a causal language model: hidden states (N, H) to logits (N, V)."""
    head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return head
