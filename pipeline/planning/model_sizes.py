"""The sizes of a decoder model: its config.json is read, and its weights are counted on torch's meta device.

Loads no model. Of a hub id the config.json comes from the hub's cache, else from the hub (some kilobytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from configs.schema import ModelConfig
from pipeline.host.files import cache_root

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_HUB_TIMEOUT_S = 5.0
# The built-in model has no config.json before its first run has fetched it.
_BUILT_IN_SIZES: Final[dict[str, Any]] = {
    **{"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3},
    **{"intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a dense decoder; ``origin`` says where they are from.

    ``query_width`` and ``kv_width``: of all queries, and of all keys, of a token. ``is_tied``: the output
    head is the embedding, and counts once.
    """

    origin: str
    num_parameters: int
    hidden: int
    layers: int
    query_width: int
    kv_width: int
    intermediate: int
    vocabulary: int
    is_tied: bool


def find_shape(model: ModelConfig) -> ModelShape | None:
    """The sizes of ``model``; None where its config.json is neither on this machine nor to be had.

    Raises ValueError, naming the file, where it is damaged or of a model that is no dense decoder.
    """
    for folder in (Path(model.name).expanduser(), cache_root() / "models" / model.name):
        if (folder / "config.json").is_file():
            return read_shape(folder / "config.json", trust_remote_code=model.trust_remote_code)
    if model.name == ModelConfig().name:
        # Imported here: it takes seconds, and the command line must not wait for it.
        from transformers import LlamaConfig

        return _count(LlamaConfig(**_BUILT_IN_SIZES), f"known sizes of {model.name}", False)
    found = _from_hub(model)
    return None if found is None else read_shape(found, trust_remote_code=model.trust_remote_code)


def read_shape(file: Path, *, trust_remote_code: bool = False) -> ModelShape:
    """The sizes of the model whose config.json is ``file``. Raises ValueError where it does not say them."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(file.parent), trust_remote_code=trust_remote_code)
        return _count(config, str(file), trust_remote_code)
    # Whatever a wrong value breaks inside of transformers or torch is the fault of the file.
    except Exception as error:
        said = (str(error).strip() or repr(error)).splitlines()[0]
        raise ValueError(f"{file}: gives no sizes of a dense decoder: {said}") from error


def _count(config: PretrainedConfig, origin: str, trust_remote_code: bool) -> ModelShape:
    import torch
    from transformers import AutoModelForCausalLM

    text = config.get_text_config()
    if getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None):
        raise ValueError("it is a mixture of experts, for which no estimate is made")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, trust_remote_code=trust_remote_code
        )
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return ModelShape(
        origin=origin,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        hidden=embedding.shape[1],
        layers=text.num_hidden_layers,
        query_width=text.num_attention_heads * head_dim,
        kv_width=(getattr(text, "num_key_value_heads", None) or text.num_attention_heads) * head_dim,
        intermediate=text.intermediate_size,
        vocabulary=embedding.shape[0],
        is_tied=head is embedding,
    )


def _from_hub(model: ModelConfig) -> Path | None:
    import httpx
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    name, revision = model.name, model.revision
    try:
        found = try_to_load_from_cache(name, "config.json", revision=revision)
        if not isinstance(found, str):
            # Asked first: where there is no network a download tries six times, for 23 s.
            get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision), timeout=_HUB_TIMEOUT_S)
            found = hf_hub_download(name, "config.json", revision=revision)
        return Path(found)
    except (OSError, ValueError, httpx.HTTPError):
        return None
