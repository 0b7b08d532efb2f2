"""How much memory a run will take at most, process by process, from sizes alone; and a model's sizes.

An estimate: tests hold it against measured processes of the built-in model, within a factor of 1.5. Weights,
gradients, optimiser and KV cache are counted; activations are those tensors that a backward keeps of each
layer; what libraries take was measured once. Bytes throughout; GB are 10^9 bytes. Loads no model: its
config.json is read, and its weights are counted on torch's meta device. Of a hub id the config.json comes
from the hub's cache, else from the hub (some kilobytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from configs.schema import Config, ModelConfig
from pipeline.host.shares import are_apart, engine_share, uses_ray
from pipeline.models.find import local_folder
from pipeline.models.packaged import QWEN_CODER, SMOLLM2
from pipeline.training.memory import (
    BYTES,
    MOMENTS,
    TRAINER_LIBRARIES,
    MicroBatchLimit,
    ModelShape,
    embedding_parameters,
    num_adapter_parameters,
    published_bytes,
    shape_of,
    trainer_parts,
)

# Resident memory of a process that has imported its libraries and holds no model yet.
_ENGINE_LIBRARIES = 1.3e9
_DRIVER = 0.5e9
_RAY = 0.5e9
_REWARD_WORKER = 0.15e9
# CUDA's own, in every process that uses a GPU.
CUDA_CONTEXT = 0.5e9
# Memory that is pinned for a card comes in powers of two.
_PINNED = 2.0
# What an engine that sleeps keeps of its GPU: that, and captured graphs.
ASLEEP = 1.5e9
_HUB_TIMEOUT_S = 5.0
# A built-in model has no config.json before its first run has fetched it.
_BUILT_IN_SIZES: Final[dict[str, dict[str, Any]]] = {
    SMOLLM2.name: {
        **{"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9},
        **{"num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152},
    },
    QWEN_CODER.name: {
        **{"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14},
        **{"num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936},
    },
}


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


def engine_parts(config: Config, shape: ModelShape, device: str, gpu_bytes: float | None) -> dict[str, float]:
    """Bytes of a generator: on a GPU the share that it reserves, whatever of it is cache."""
    generation = config.generation
    width, ranks = BYTES[generation.dtype], generation.tensor_parallel_size
    weights = shape.num_parameters * width / ranks
    if generation.quantization != "none":
        # Embedding and output head stay as they are.
        weights -= (shape.num_parameters - embedding_parameters(shape)) * (width - 1) / ranks
    if device != "cpu" and generation.engine != "vllm":
        return {"weights": weights, "KV cache": _kv_cache_bytes(config, shape)}
    if device != "cpu":
        reserved = engine_share(config, beside_trainer=shares_gpu(config)) * (gpu_bytes or 0.0)
        parts = {"weights": weights, "an update": _update_bytes(config, shape)}
        return {**parts, "KV cache and the rest": max(0.0, reserved - sum(parts.values()))}
    parts = {"weights": weights, "KV cache": _kv_cache_bytes(config, shape)}
    if generation.engine == "vllm":
        parts["weights that replace them"] = weights
        # oneDNN's product of the output head has weights of its own: measured, three times the embedding.
        parts["packed output head"] = 3 * shape.vocabulary * shape.hidden * width * shape.is_tied
    return parts


def _update_bytes(config: Config, shape: ModelShape) -> float:
    """What new weights take on the generator's card: adapters, or the largest tensor as it comes and goes."""
    width = BYTES[config.generation.dtype]
    if config.lora.enabled:
        return float(num_adapter_parameters(config, shape) * width)
    # Sent on the trainer's own card: its buffer as well, and the one that both have.
    num_copies = 4 if config.runtime.weight_transport == "collective" and shares_gpu(config) else 2
    return float(num_copies * shape.vocabulary * shape.hidden * width)


def shares_gpu(config: Config) -> bool:
    """Whether a generator would be on a trainer's GPU, as far as the settings tell: there may be one only."""
    is_whole = config.generation.tensor_parallel_size == 1
    return is_whole and not are_apart(config)


def may_sleep(config: Config) -> bool:
    """Whether the engine may give its memory to a trainer on its GPU, as far as the settings tell."""
    generation = config.generation
    return shares_gpu(config) and generation.engine == "vllm" and generation.sleep_while_training is not False


def kv_tokens(config: Config, shape: ModelShape, num_bytes: float) -> int:
    """Tokens for which ``num_bytes`` of KV cache on each of a generator's devices suffice."""
    is_small = config.generation.kv_cache_dtype.startswith("fp8")
    width = 1 if is_small else BYTES[config.generation.dtype]
    # Each has a head at least: of more devices than heads, several hold the same.
    ranks = min(config.generation.tensor_parallel_size, shape.kv_heads)
    return int(num_bytes * ranks // (2 * shape.layers * shape.kv_width * width))


def _kv_cache_bytes(config: Config, shape: ModelShape) -> float:
    generation = config.generation
    if generation.engine == "vllm":
        return generation.kv_cache_gb * 1024**3
    # Transformers keeps the keys and values of the sequences that it is writing, and a copy when it grows: of
    # one request, a group or the answers to a task of a measurement.
    evaluation = config.evaluation
    num_samples = max(evaluation.num_samples, evaluation.inloop_samples) if evaluation.enabled else 0
    requests = (
        (config.grpo.num_generations, config.max_sequence_length),
        (num_samples, generation.max_prompt_length + evaluation.max_completion_length),
    )
    tokens = max(min(generation.max_num_seqs, num) * length for num, length in requests)
    return 2.0 * tokens * 2 * shape.layers * shape.kv_width * BYTES[generation.dtype]


def processes(
    config: Config, shape: ModelShape, device: str, limit: MicroBatchLimit, gpu_bytes: float | None = None
) -> tuple[ProcessMemory, ...]:
    """Every process of a run with micro-batches of ``limit``.

    ``gpu_bytes`` are those of one GPU, for what the engine reserves there.
    """
    engine = engine_parts(config, shape, device, gpu_bytes)
    trainer = trainer_parts(config, shape, device, limit)
    is_cpu = device == "cpu"
    sleeps = not is_cpu and may_sleep(config)
    ray = ProcessMemory(name="Ray", count=1, host={"servers": _RAY}, gpu={})
    return (
        ProcessMemory(name="driver", count=1, host={"libraries, buffer, tasks": _DRIVER}, gpu={}),
        *((ray,) if uses_ray(config, device) else ()),
        ProcessMemory(
            name="generator",
            count=config.generation.num_engines,
            host={
                "libraries": _ENGINE_LIBRARIES,
                **(engine if is_cpu else {}),
                **({"weights, asleep": _PINNED * engine["weights"]} if sleeps else {}),
            },
            gpu={} if is_cpu else engine,
        ),
        ProcessMemory(
            name="trainer",
            count=config.runtime.trainer_ranks,
            host={
                "libraries": TRAINER_LIBRARIES,
                **(trainer if is_cpu else {}),
            },
            gpu={} if is_cpu else {"CUDA": CUDA_CONTEXT, **trainer},
        ),
        _published(config, shape, device),
        *(() if is_cpu else (_checkpoint(config, shape),)),
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


def _are_offered(config: Config, device: str) -> bool:
    """Whether weights go from card to card, by way of the host."""
    transport, engine = config.runtime.weight_transport, config.generation.engine
    is_sent = transport == "collective" or (transport == "auto" and are_apart(config) and engine == "vllm")
    return device != "cpu" and is_sent and not config.lora.enabled


def _published(config: Config, shape: ModelShape, device: str) -> ProcessMemory:
    """What the first rank holds on the host for the generators."""
    pinned = _PINNED if _are_offered(config, device) else 1.0
    host = {"to the generator": published_bytes(config, shape) * pinned}
    return ProcessMemory(name="weights sent", count=1, host=host, gpu={})


def _checkpoint(config: Config, shape: ModelShape) -> ProcessMemory:
    """What the first rank has on the host while it saves."""
    num_trained = num_adapter_parameters(config, shape) if config.lora.enabled else shape.num_parameters
    width = MOMENTS[config.training.optim] + (4 if config.runtime.trainer_ranks > 1 else 0)
    return ProcessMemory(name="checkpoint", count=1, host={"on its way": num_trained * width}, gpu={})


def find_shape(model: ModelConfig) -> ModelShape | None:
    """The sizes of ``model``; None where its config.json is neither on this machine nor to be had.

    Raises ValueError, naming the file, where it is damaged or of a model that is no dense decoder.
    """
    if (folder := local_folder(model)) is not None:
        return read_shape(folder / "config.json", trust_remote_code=model.trust_remote_code)
    if (sizes := _BUILT_IN_SIZES.get(model.name)) is not None:
        # Imported here: it takes seconds, and the command line must not wait for it.
        from transformers import AutoConfig

        from pipeline.models.loading import model_without_weights

        built_in = AutoConfig.for_model(**sizes, tie_word_embeddings=True)
        return shape_of(model_without_weights(built_in), f"known sizes of {model.name}")
    found = _from_hub(model)
    return None if found is None else read_shape(found, trust_remote_code=model.trust_remote_code)


def read_shape(file: Path, *, trust_remote_code: bool = False) -> ModelShape:
    """The sizes of the model whose config.json is ``file``. Raises ValueError where it does not say them."""
    from transformers import AutoConfig

    from pipeline.models.loading import model_without_weights

    try:
        config = AutoConfig.from_pretrained(str(file.parent), trust_remote_code=trust_remote_code)
        return shape_of(model_without_weights(config, trust_remote_code=trust_remote_code), str(file))
    # Whatever a wrong value breaks inside of transformers or torch is the fault of the file.
    except Exception as error:
        said = (str(error).strip() or repr(error)).splitlines()[0]
        raise ValueError(f"{file}: gives no sizes of a dense decoder: {said}") from error


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
