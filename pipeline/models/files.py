"""The files of a model's folder: the weights in them, one at a time, and whether it can be loaded at all.

Looked at before anything is started; needs no library for that. Sees what is missing, cut off or of another
kind; whether the weights are good it cannot see.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.conditions import max_engine_length
from configs.schema import Config
from pipeline.host.files import read_object
from pipeline.host.limits import read_text
from pipeline.host.versions import package_version

if TYPE_CHECKING:
    from torch import Tensor


_INDEX = "model.safetensors.index.json"
# Larger ones safetensors itself refuses.
_MAX_HEADER_BYTES = 100_000_000
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# PEFT's names: before that of a layer in its model, and behind it.
PEFT_PREFIX, A_END, B_END = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
_WRITES = re.compile("CausalLM|LMHead|ForConditionalGeneration")
_ROPE_BY_LENGTH = ("longrope", "su", "dynamic")
_CONTEXTS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
# Models that change their logits after the output head; the loss reads the head's own.
_LOGIT_TRANSFORMS = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "output_multiplier",
    "lm_head_multiplier",
    "logits_soft_cap",
    "output_logit_soft_cap",
    "logits_mup_width_multiplier",
)
# Architectures whose weights cannot be compared with what an engine holds of them.
_REARRANGED = ("bloom", "falcon", "gpt2", "gpt_neox", "phi")
# Where Transformers lists its kinds of models: the second since version 5.
_KINDS = ("configuration_auto.py", "auto_mappings.py")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)\.")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a model folder: those of its index, or all there are; ValueError for a bad index."""
    index = folder / _INDEX
    if not index.is_file():
        return sorted(folder.glob("model*.safetensors"))
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(one, str) for one in names.values()):
        raise ValueError(f"{index}: field 'weight_map': must be an object of weight names and their files")
    return sorted(folder / name for name in set(names.values()))


def stored_files(folder: Path) -> list[Path]:
    """As ``weight_files``; ValueError where there are none."""
    found = weight_files(folder)
    if not found:
        raise ValueError(f"model: {folder} holds no safetensors, in which weights are read anew")
    return found


def check_safetensors(path: Path) -> frozenset[str]:
    """The names of its tensors; ValueError, as 'FILE: what is wrong', unless ``path`` is whole by its header.

    The format: 8 bytes of length, a JSON header with the offsets of each tensor, then their bytes.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(size - 8, _MAX_HEADER_BYTES):
                raise ValueError(f"{path}: is no safetensors file, or is cut off ({size} bytes)")
            header = json.loads(file.read(length).decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError(f"{path}: is damaged: its header is no JSON object")
        ends = {name: entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"}
        if not ends:
            raise ValueError(f"{path}: holds no tensor")
        if 8 + length + max(ends.values()) != size:
            raise ValueError(f"{path}: has {size} bytes, its header says {8 + length + max(ends.values())}")
        return frozenset(ends)
    except FileNotFoundError:
        raise ValueError(f"{path}: is missing") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged: its header is no JSON ({error})") from None
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path}: is damaged: its header has no offsets ({error!r})") from None


def base_weights(folder: Path | str) -> Iterator[tuple[str, Tensor]]:
    """Name and value of every weight in a model folder, one at a time, as stored.

    Raises ValueError when the folder holds no safetensors.
    """
    for path in stored_files(Path(folder)):
        yield from file_weights(path)


def file_weights(path: Path | str, device: str = "cpu") -> Iterator[tuple[str, Tensor]]:
    """Name and value of every weight in a safetensors file, one at a time on ``device``, as stored."""
    # Imported here: who asks for the files alone does without.
    from safetensors import safe_open

    with safe_open(path, framework="pt", device=device) as file:
        for name in file.keys():  # noqa: SIM118 (a safetensors file is no mapping)
            yield name, file.get_tensor(name)


def experts_of(config: Mapping[str, Any]) -> str | None:
    """The field by which ``config`` is a mixture of experts, with its value; None for a dense model."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return next((f"{name} = {config[name]}" for name in names if config.get(name)), None)


def refuse_logit_transforms(value_of: Callable[[str], object], where: str) -> None:
    """Raise ValueError for a model whose logits are not what its output head returns.

    ``value_of`` gives a field of its configuration, None where there is none; ``where`` names that.
    """
    for name in _LOGIT_TRANSFORMS:
        value = value_of(name)
        if value is not None and value != 1.0:
            raise ValueError(
                f"model.name: {where} has {name} = {value}: models that change their logits after "
                "the output head are not trained; choose another model"
            )


def mlp_width(config: Mapping[str, Any]) -> int:
    """The width of the MLPs of ``config``, whatever its architecture calls it."""
    names = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
    hidden: int = config.get("hidden_size") or config["n_embd"]
    found: int | None = next((config[name] for name in names if isinstance(config.get(name), int)), None)
    return 4 * hidden if found is None else found


def refuse_misfit(config: Config, folder: Path, device: str) -> None:
    """Raise ValueError where the model in ``folder``, by its config.json, cannot be used as ``config`` says.

    That is: it is a mixture of experts, which Transformers fuses and publishes under other names; its weights
    are read anew, and are no safetensors; prompt and completion are longer than its context; the KV cache has
    no room for one sequence.
    """
    file, fields = folder / "config.json", read_object(folder / "config.json")
    generation = config.generation
    fields = {**fields, **(fields.get("text_config") or {})}
    if (found := experts_of(fields)) is not None:
        raise ValueError(
            f"model.name: {file} has {found}: mixtures of experts are not supported; choose a dense model"
        )
    # Of a model that is yet to be fetched there may be a config.json alone.
    has_others = any(folder.glob("pytorch_model*.bin")) and not weight_files(folder)
    if (config.lora.enabled or config.runtime.keep_alive) and has_others:
        raise ValueError(
            f"model.name: {folder} holds no safetensors, which adapters (lora.enabled) are laid on and a "
            "resident engine (runtime.keep_alive) begins anew: load it with Transformers, and save it again"
        )
    longest = max_engine_length(config)
    context = next((fields[name] for name in _CONTEXTS if isinstance(fields.get(name), int)), None)
    if context is not None and longest > context and not _is_stretched(fields):
        raise ValueError(
            f"{_lengths(config)}: value {longest}: {file} has a "
            f"context of {context} tokens; allowed: at most that"
        )
    needed = longest * _bytes_per_token(fields, 4 if generation.dtype == "float32" else 2)
    # A GPU's cache is what its memory leaves; only a run finds out.
    is_given = device == "cpu" and generation.engine == "vllm"
    if is_given and needed > generation.kv_cache_gb * 2**30:
        raise ValueError(
            f"generation.kv_cache_gb: value {generation.kv_cache_gb:g}: holds less than one sequence of "
            f"{longest} tokens of {file}; allowed: at least {needed / 2**30:.3g}, or fewer tokens "
            f"({_lengths(config)})"
        )


def refuse_untrainable(config: Config, folder: Path) -> None:
    """Raise ValueError where the model in ``folder`` could not be trained, or not brought to an engine of it.

    That is, besides ``refuse_unfit_weights`` and ``refuse_logit_transforms``: vLLM holds its weights in
    another order, or under other names than a trainer publishes, such as those of models of pictures.
    """
    refuse_unfit_weights(folder)
    file, fields = folder / "config.json", read_object(folder / "config.json")
    refuse_logit_transforms({**fields, **(fields.get("text_config") or {})}.get, str(file))
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    kind, name = rope.get("rope_type", rope.get("type")), "original_max_position_embeddings"
    original = rope.get(name) or fields.get(name) or fields.get("max_position_embeddings") or math.inf
    # By the longest of a batch: what shares a row would change a gradient, and vLLM decides otherwise.
    if kind in _ROPE_BY_LENGTH and (longest := max_engine_length(config)) > original:
        raise ValueError(
            f"{_lengths(config)}: value {longest}: {file} has rope_type {kind!r}, which has other positions "
            f"in batches of more than {original} tokens a sequence; allowed in training: at most that"
        )
    if config.generation.engine != "vllm":
        return
    if (kind := fields.get("model_type")) in _REARRANGED:
        raise ValueError(
            f"model.name: {file} has model_type {kind!r}: vLLM holds its weights in another order or "
            "under other names than they are trained; choose another model, or generation.engine transformers"
        )
    if fields.get("text_config"):
        raise ValueError(
            f"model.name: {file} has text_config: models of pictures or sound as well as text are not "
            "supported; choose one of text alone (or generation.engine transformers)"
        )


def refuse_unfit_weights(folder: Path) -> None:
    """Raise ValueError where the weights in ``folder`` cannot be trained: quantised, or there twice."""
    refuse_quantised(folder, "model.name")
    if (folder / _INDEX).is_file() and (folder / "model.safetensors").is_file():
        raise ValueError(
            f"model.name: {folder / _INDEX}: there is a model.safetensors beside it, which Transformers "
            "reads and vLLM does not; remove one of the two"
        )


def refuse_quantised(folder: Path, field: str) -> None:
    """Raise ValueError where the weights in ``folder`` are not what they stand for: scales go with them."""
    file = folder / "config.json"
    if quantisation := read_object(file).get("quantization_config"):
        method = quantisation.get("quant_method", "") if isinstance(quantisation, dict) else ""
        raise ValueError(
            f"{field}: {file} has quantization_config ({method or 'of some kind'}): weights in few bits are "
            "neither trained nor merged with; choose the model in 16 or 32 bits"
        )


def _lengths(config: Config) -> str:
    """The settings that make a sequence as long as it can be."""
    if max_engine_length(config) > config.max_sequence_length:
        return "generation.max_prompt_length + evaluation.max_completion_length"
    turns = ", rollouts.max_turns" if config.rollouts.max_turns > 1 else ""
    return f"generation.max_prompt_length + generation.max_completion_length{turns}"


def _is_stretched(fields: Mapping[str, Any]) -> bool:
    """Whether positions beyond the context are scaled (YaRN and its like): then vLLM knows how far."""
    return any(
        isinstance(given, dict) and given.get("rope_type", given.get("type", "default")) != "default"
        for given in (fields.get("rope_scaling"), fields.get("rope_parameters"))
    )


def _bytes_per_token(fields: Mapping[str, Any], width: int) -> float:
    """Of keys and values; 0 for a model that names its sizes otherwise."""
    try:
        heads = fields["num_attention_heads"]
        size = fields.get("head_dim") or fields["hidden_size"] // heads
        each = fields.get("num_key_value_heads", heads) * size
        return float(2 * fields["num_hidden_layers"] * each * width)
    except (KeyError, TypeError):
        return 0.0


def check_model(folder: Path) -> None:
    """Raise ValueError, as 'FILE: what is wrong', unless the model in ``folder`` can be loaded."""
    config = folder / "config.json"
    if not config.is_file():
        raise ValueError(f"folder {str(folder)!r} has no config.json; give a folder in Hugging Face layout")
    fields = read_object(config)
    kind, architectures = fields.get("model_type"), fields.get("architectures")
    if not isinstance(kind, str) or not kind:
        raise ValueError(f"{config}: field 'model_type': value {kind!r}: must name the kind of model")
    if not fields.get("auto_map") and not _is_known(kind):
        raise ValueError(
            f"{config}: field 'model_type': value {kind!r}: must be one that the installed Transformers "
            f"({package_version('transformers')}) knows; a newer one may"
        )
    if isinstance(architectures, list) and not any(_WRITES.search(str(one)) for one in architectures):
        raise ValueError(
            f"{config}: field 'architectures': value {architectures}: must name a causal language model"
        )
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ValueError(f"{folder}: has no tokenizer; one of {', '.join(_TOKENIZERS)} is needed")
    _check_tokenizer(folder)
    files = weight_files(folder)
    # Older folders have weights in PyTorch's own format, which only torch can look into.
    if not files and not list(folder.glob("*.bin")):
        raise ValueError(f"{folder}: has no weights (model.safetensors)")
    names = frozenset[str]().union(*(check_safetensors(path) for path in files))
    number = fields.get("num_hidden_layers")
    found = {int(match[1]) for name in names if (match := _LAYER.search(name))}
    if isinstance(number, int) and found and len(found) < number:
        raise ValueError(
            f"{config}: field 'num_hidden_layers': value {number}: its weights have {len(found)} layers"
        )


def _is_known(kind: str) -> bool:
    """Whether Transformers has models of this kind: its tables are read, since to import it takes seconds."""
    package = importlib.util.find_spec("transformers")
    if package is None or package.origin is None:
        return True
    folder = Path(package.origin).parent / "models" / "auto"
    tables = [read_text(folder / name) for name in _KINDS]
    return not any(tables) or any(f'"{kind}"' in table for table in tables)


def _check_tokenizer(folder: Path) -> None:
    settings = folder / "tokenizer_config.json"
    if settings.is_file():
        read_object(settings)
    table = folder / "tokenizer.json"
    if not table.is_file():
        return
    # Megabytes: whether it is whole is seen from its ends.
    with table.open("rb") as file:
        first = file.read(64).lstrip()[:1]
        file.seek(max(0, table.stat().st_size - 64), os.SEEK_SET)
        last = file.read().rstrip()[-1:]
    if (first, last) != (b"{", b"}"):
        raise ValueError(f"{table}: is no JSON object, or is cut off ({table.stat().st_size} bytes)")


def is_adapter_folder(folder: Path) -> bool:
    """Whether ``folder`` holds an adapter and no whole model."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / "config.json").is_file()


def check_adapter(folder: Path) -> dict[str, Any]:
    """What adapter_config.json holds; ValueError, as 'FILE: what is wrong', unless the adapter is whole."""
    path = folder / ADAPTER_CONFIG
    config = read_object(path)
    base, rank = config.get("base_model_name_or_path"), config.get("r")
    alpha = config.get("lora_alpha")
    if not isinstance(base, str) or not base:
        raise ValueError(f"{path}: field 'base_model_name_or_path': value {base!r}: must name a model")
    if type(rank) is not int or rank < 1:
        raise ValueError(f"{path}: field 'r': value {rank!r}: must be a whole number > 0")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise ValueError(f"{path}: field 'lora_alpha': value {alpha!r}: must be a number")
    check_safetensors(folder / ADAPTER_WEIGHTS)
    return config
