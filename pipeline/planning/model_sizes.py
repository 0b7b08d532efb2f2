"""The sizes of a decoder model from its config.json, or known ones by hub id: what memory depends on.

Loads no model and fetches nothing.

Source of the known sizes: the config.json of each model on the Hugging Face hub (Qwen2.5 and Qwen3 reports,
arXiv:2412.15115 and arXiv:2505.09388).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from configs.schema import ModelConfig
from pipeline.host.files import cache_root


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a dense decoder; ``origin`` says where they are from.

    ``num_biases`` are those of a layer's projections, ``num_head_norms`` the norm weights of a layer's heads.
    """

    origin: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    is_tied: bool
    num_biases: int = 0
    num_head_norms: int = 0

    @property
    def query_width(self) -> int:
        """Width of all queries of a token."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all keys of a token, and of all values."""
        return self.kv_heads * self.head_dim

    @property
    def num_embedding(self) -> int:
        """Parameters of the embedding, and of the output head where it has its own."""
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def num_parameters(self) -> int:
        """All of them; those of a tied head count once."""
        attention = 2 * self.hidden * (self.query_width + self.kv_width)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        layer += self.num_biases + self.num_head_norms
        return self.num_embedding + self.layers * layer + self.hidden


_QWEN = {"vocab_size": 151936, "tie_word_embeddings": True}
# hub id -> what its config.json says of sizes.
_KNOWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "smollm2-135m-instruct": {
        **{"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9},
        **{"num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152},
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": {
        **_QWEN,
        **{"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14},
        **{"num_key_value_heads": 2, "intermediate_size": 4864},
    },
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": {
        **_QWEN,
        **{"model_type": "qwen2", "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12},
        **{"num_key_value_heads": 2, "intermediate_size": 8960},
    },
    "Qwen/Qwen2.5-Coder-3B-Instruct": {
        **_QWEN,
        **{"model_type": "qwen2", "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16},
        **{"num_key_value_heads": 2, "intermediate_size": 11008},
    },
    "Qwen/Qwen2.5-Coder-7B-Instruct": {
        **{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28},
        **{"num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064},
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen3-0.6B": {
        **_QWEN,
        **{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16},
        **{"num_key_value_heads": 8, "intermediate_size": 3072, "head_dim": 128},
    },
    "Qwen/Qwen3-1.7B": {
        **_QWEN,
        **{"model_type": "qwen3", "hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16},
        **{"num_key_value_heads": 8, "intermediate_size": 6144, "head_dim": 128},
    },
    "Qwen/Qwen3-4B": {
        **_QWEN,
        **{"model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "intermediate_size": 9728, "head_dim": 128},
    },
    "Qwen/Qwen3-8B": {
        **{"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "intermediate_size": 12288, "head_dim": 128, "vocab_size": 151936},
        "tie_word_embeddings": False,
    },
}


def known_models() -> tuple[str, ...]:
    """The hub ids whose sizes are known without their files."""
    return tuple(_KNOWN)


def find_shape(model: ModelConfig) -> ModelShape | None:
    """The sizes of ``model``: from its files if they are here, else known ones; None where neither is.

    Raises ValueError for a config.json that is damaged or of a model that is no dense decoder.
    """
    folder = Path(model.name).expanduser()
    for candidate in (folder, cache_root() / "models" / model.name):
        if (file := candidate / "config.json").is_file():
            return read_shape(file)
    if (found := _in_hub_cache(model)) is not None:
        return read_shape(found)
    if model.name in _KNOWN:
        return shape_of(_KNOWN[model.name], f"known sizes of {model.name}")
    return None


def read_shape(file: Path) -> ModelShape:
    """The sizes in a config.json. Raises ValueError where it does not say them."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: cannot be read as JSON: {error}") from error
    return shape_of(values, str(file))


def shape_of(values: Mapping[str, Any], origin: str) -> ModelShape:
    """The sizes that a config.json's ``values`` say. Raises ValueError, naming ``origin``, if some miss."""
    if values.get("num_experts") or values.get("num_local_experts"):
        raise ValueError(f"{origin}: a mixture of experts; allowed: a dense decoder (no estimate is made)")
    try:
        hidden, heads = int(values["hidden_size"]), int(values["num_attention_heads"])
        head_dim = int(values.get("head_dim") or hidden // heads)
        kv_heads = int(values.get("num_key_value_heads") or heads)
        has_biases = values.get("model_type") == "qwen2" or bool(values.get("attention_bias"))
        return ModelShape(
            origin=origin,
            hidden=hidden,
            layers=int(values["num_hidden_layers"]),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            intermediate=int(values["intermediate_size"]),
            vocabulary=int(values["vocab_size"]),
            is_tied=bool(values.get("tie_word_embeddings", True)),
            num_biases=(heads + 2 * kv_heads) * head_dim if has_biases else 0,
            num_head_norms=2 * head_dim if values.get("model_type") == "qwen3" else 0,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{origin}: does not say the sizes of a decoder model ({error})") from error


def _in_hub_cache(model: ModelConfig) -> Path | None:
    if "/" not in model.name or model.name.startswith((".", "/", "~")):
        return None
    # Imported here: most models are in a folder.
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model.name, "config.json", revision=model.revision)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None
