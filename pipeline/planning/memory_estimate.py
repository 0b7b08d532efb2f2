"""How much memory a run will take at most, process by process, from sizes alone; and a model's sizes.

An estimate: tests hold it against measured processes of the built-in model, within a factor of 1.5. Weights,
gradients, optimiser and KV cache are counted; activations are those tensors that a backward keeps of each
layer; what libraries take was measured once. Bytes throughout; GB are 10^9 bytes. Loads no model: its
config.json is read, and its weights are counted on torch's meta device. Of a hub id the config.json comes
from the hub's cache, else from the hub (some kilobytes).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from configs.schema import Config, ModelConfig
from pipeline.host.shares import uses_ray
from pipeline.models.find import local_folder
from pipeline.training.backward import LOGITS_ROWS

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# Resident memory of a process that has imported its libraries and holds no model yet.
_TRAINER_LIBRARIES = 0.6e9
_ENGINE_LIBRARIES = 1.2e9
_DRIVER = 0.5e9
_RAY = 0.5e9
_REWARD_WORKER = 0.15e9
# CUDA's own, in every process that uses a GPU.
_CUDA_CONTEXT = 0.5e9
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """One process, or ``count`` that are alike: bytes on the host and on its GPU, by what they are for."""

    name: str
    count: int
    host: Mapping[str, float]
    gpu: Mapping[str, float]

    @property
    def host_bytes(self) -> float:
        """On the host, one process."""
        return sum(self.host.values())

    @property
    def gpu_bytes(self) -> float:
        """On the GPU, one process."""
        return sum(self.gpu.values())


def micro_batch_tokens(config: Config) -> int:
    """The most tokens, padding included, that go through the trained model together."""
    acceleration = config.acceleration
    prompt, completion = config.generation.max_prompt_length, config.generation.max_completion_length
    longest = prompt + completion
    size = config.training.per_device_train_batch_size
    group = config.grpo.num_generations
    if not acceleration.token_packing.enabled:
        if acceleration.shared_prompt:
            return prompt + min(size, group) * completion
        return size * longest
    # What a step holds at most; rows are as equal as may be.
    one = prompt + group * completion if acceleration.shared_prompt else group * longest
    total = math.ceil(config.prompts_per_step * one / config.runtime.trainer_ranks)
    num_rows = max(1, math.ceil(total / acceleration.token_packing.max_tokens))
    return max(longest, math.ceil(total / num_rows))


def trainer_parts(
    config: Config, shape: ModelShape, device: str, *, num_tokens: int | None = None
) -> dict[str, float]:
    """Bytes of a trainer rank, by what they are for; ``num_tokens`` of None are the most of a micro-batch."""
    training, ranks = config.training, config.runtime.trainer_ranks
    tokens = micro_batch_tokens(config) if num_tokens is None else num_tokens
    width = 2 if training.bf16 else 4
    num_parameters = shape.num_parameters
    if config.lora.enabled:
        num_trained = _num_adapter_parameters(config, shape)
        frozen = num_parameters * (0.55 if config.lora.load_in_4bit else width)
        # Copies of what is trained: master, gradient sum, two moments, and the one that computes.
        weights = {
            "weights": frozen,
            "adapters, gradients, optimiser": num_trained * (16 + (width if width == 2 else 0)),
        }
    else:
        copy = num_parameters * 2 if training.bf16 else 0
        weights = {
            "weights": (4 * num_parameters + copy) / ranks,
            "gradients": 4 * num_parameters / ranks,
            "optimiser": 8 * num_parameters / ranks,
        }
        if config.grpo.beta > 0:
            weights["reference model"] = num_parameters * width / ranks
    return {
        **weights,
        "activations": activation_bytes(config, shape, device, tokens),
        "logits": min(tokens, LOGITS_ROWS) * shape.vocabulary * width,
    }


def activation_bytes(config: Config, shape: ModelShape, device: str, num_tokens: int) -> float:
    """What a backward keeps of ``num_tokens``: inputs of the products, gates, and attention's own."""
    width = 2 if config.training.bf16 else 4
    # Attention runs in fp32 on a CPU whatever the model's type (pipeline.training.attention).
    attention_width = 4 if device == "cpu" else width
    linear = 8 * shape.hidden + 4 * shape.intermediate + 2 * shape.kv_width
    attention = 2 * shape.query_width + 2 * shape.kv_width
    layer = width * linear + attention_width * attention
    if config.training.gradient_checkpointing:
        return num_tokens * (shape.layers * shape.hidden * width + layer)
    return num_tokens * shape.layers * layer


def engine_parts(config: Config, shape: ModelShape, device: str, gpu_bytes: float | None) -> dict[str, float]:
    """Bytes of a generator: on a GPU the share that it reserves, whatever of it is cache."""
    generation = config.generation
    width = _BYTES[generation.dtype]
    weights = shape.num_parameters * width / generation.tensor_parallel_size
    if device != "cpu":
        reserved = generation.gpu_memory_utilization * (gpu_bytes or 0.0)
        return {"weights": weights, "KV cache and the rest": max(0.0, reserved - weights)}
    parts = {"weights": weights, "KV cache": _kv_cache_bytes(config, shape)}
    if generation.engine == "vllm" and shape.is_tied:
        # oneDNN's product of the output head has weights of its own.
        parts["packed output head"] = shape.vocabulary * shape.hidden * width
    return parts


def kv_tokens(config: Config, shape: ModelShape, num_bytes: float) -> int:
    """Tokens for which ``num_bytes`` of KV cache suffice."""
    width = _BYTES[config.generation.dtype]
    return int(num_bytes // (2 * shape.layers * shape.kv_width * width))


def _kv_cache_bytes(config: Config, shape: ModelShape) -> float:
    generation = config.generation
    if generation.engine == "vllm":
        return generation.kv_cache_gb * 1024**3
    # Transformers keeps the keys and values of the sequences that it is writing, and a copy when it grows.
    longest = generation.max_prompt_length + generation.max_completion_length
    tokens = min(generation.max_num_seqs, config.completions_per_step) * longest
    return 2.0 * tokens * 2 * shape.layers * shape.kv_width * _BYTES[generation.dtype]


def processes(
    config: Config, shape: ModelShape, device: str, gpu_bytes: float | None = None
) -> tuple[ProcessMemory, ...]:
    """Every process of a run; ``gpu_bytes`` are those of one GPU, for what the engine reserves there."""
    engine = engine_parts(config, shape, device, gpu_bytes)
    trainer = trainer_parts(config, shape, device)
    is_cpu = device == "cpu"
    num_sent = _num_adapter_parameters(config, shape) if config.lora.enabled else shape.num_parameters
    ray = ProcessMemory(name="Ray", count=1, host={"servers": _RAY}, gpu={})
    return (
        ProcessMemory(name="driver", count=1, host={"libraries, buffer, tasks": _DRIVER}, gpu={}),
        *((ray,) if uses_ray(config, device) else ()),
        ProcessMemory(
            name="generator",
            count=config.generation.num_engines,
            host={"libraries": _ENGINE_LIBRARIES, **(engine if is_cpu else {})},
            gpu={} if is_cpu else engine,
        ),
        ProcessMemory(
            name="trainer",
            count=config.runtime.trainer_ranks,
            host={
                "libraries": _TRAINER_LIBRARIES,
                "weights on their way to the generator": 2.0 * num_sent,
                **(trainer if is_cpu else {}),
            },
            gpu={} if is_cpu else {"CUDA": _CUDA_CONTEXT, **trainer},
        ),
        ProcessMemory(
            name="reward worker",
            count=config.acceleration.async_rewards.workers,
            host={
                "libraries, sandbox": _REWARD_WORKER,
                "one program": config.execution.max_memory * 1024.0**2 * config.execution.enabled,
            },
            gpu={},
        ),
    )


def _num_adapter_parameters(config: Config, shape: ModelShape) -> int:
    """Of adapters on all projections of a layer; fewer targets make fewer."""
    # Into and out of: queries and output, keys and values, the three of the feed-forward part.
    widths = 2 * (shape.hidden + shape.query_width) + 2 * (shape.hidden + shape.kv_width)
    widths += 3 * (shape.hidden + shape.intermediate)
    return shape.layers * config.lora.r * widths


def find_shape(model: ModelConfig) -> ModelShape | None:
    """The sizes of ``model``; None where its config.json is neither on this machine nor to be had.

    Raises ValueError, naming the file, where it is damaged or of a model that is no dense decoder.
    """
    if (folder := local_folder(model)) is not None:
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
