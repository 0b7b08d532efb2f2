"""What of vLLM's own arguments may be set by hand, and where it cannot be; asked before anything loads.

vLLM's sources are read, not imported, which would take the run's driver seconds.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from configs.errors import ConfigError, Problem, nearest, wrong_value
from configs.schema import Config

_FIELD = "generation.engine_kwargs"
_ARGUMENTS = "engine/arg_utils.py", ("EngineArgs", "AsyncEngineArgs")
_BACKENDS = "v1/attention/backends/registry.py", ("AttentionBackendEnum",)
_LENGTHS = "generation.max_prompt_length and generation.max_completion_length"
# vLLM's arguments that are decided here, by the setting of ours; empty where there is none.
OURS: Final = {
    "model": "model.name",
    "tokenizer": "model.name",
    "revision": "model.revision",
    "trust_remote_code": "model.trust_remote_code",
    "hf_token": "the environment variable HF_TOKEN",
    "dtype": "generation.dtype",
    "max_model_len": _LENGTHS,
    "max_num_seqs": "generation.max_num_seqs",
    "max_num_batched_tokens": "generation.max_num_batched_tokens",
    "tensor_parallel_size": "generation.tensor_parallel_size",
    "pipeline_parallel_size": "generation.tensor_parallel_size",
    "data_parallel_size": "generation.num_engines",
    "enforce_eager": "generation.enforce_eager",
    "gpu_memory_utilization": "generation.gpu_memory_utilization",
    "kv_cache_memory_bytes": "generation.gpu_memory_utilization, or generation.kv_cache_gb on a CPU",
    "enable_prefix_caching": "generation.enable_prefix_caching",
    "quantization": "generation.quantization",
    "quantization_config": "generation.quantization",
    "kv_cache_dtype": "generation.kv_cache_dtype",
    "attention_backend": "generation.attention_backend",
    "seed": "training.seed",
    "enable_lora": "lora.enabled",
    "max_lora_rank": "lora.r",
    "max_loras": "lora.enabled",
    "lora_dtype": "generation.dtype",
    "fully_sharded_loras": "lora.enabled",
    "speculative_config": "acceleration.speculative.enabled",
    "spec_method": "acceleration.speculative.method",
    "spec_model": "acceleration.speculative.draft_model",
    "spec_tokens": "acceleration.speculative.num_tokens",
    "weight_transfer_config": "runtime.weight_transport",
    "enable_sleep_mode": "generation.sleep_while_training",
    **dict.fromkeys(("logprobs_mode", "generation_config", "override_generation_config"), ""),
    **dict.fromkeys(("worker_cls", "worker_extension_cls", "distributed_executor_backend"), ""),
    **dict.fromkeys(("disable_log_stats", "skip_tokenizer_init"), ""),
    **dict.fromkeys(("block_size", "ir_op_priority", "scheduler_cls", "logits_processors"), ""),
}


def check_vllm_arguments(config: Config, device: str) -> None:
    """Raises ConfigError for what vLLM does not know, is not the user's to set, or ``device`` has not.

    Where vLLM is not installed its names are not known, and none is refused for that.
    """
    generation = config.generation
    if problems := [*_unknown(config), *_misplaced(config, device)]:
        raise ConfigError(problems)
    backend = generation.attention_backend
    if backend is not None and (known := _names(*_BACKENDS)) and backend not in known:
        allowed = "null, or a backend of vLLM's such as FLASH_ATTN, FLASHINFER or TRITON_ATTN"
        if (likely := nearest(backend.upper(), known)) is not None:
            allowed += f" (did you mean {likely}?)"
        raise ConfigError([wrong_value("generation.attention_backend", backend, allowed)])


def _misplaced(config: Config, device: str) -> Iterator[Problem]:
    generation = config.generation
    if device != "cpu":
        if generation.quantization == "int8":
            allowed = "none, auto or fp8 on a GPU; this one is for a CPU (the run's device is cuda)"
            yield wrong_value("generation.quantization", "int8", allowed, "runtime.device")
        return
    for field, value, idle in (
        ("quantization", generation.quantization, ("none", "auto", "int8")),
        ("kv_cache_dtype", generation.kv_cache_dtype, ("auto",)),
        ("attention_backend", generation.attention_backend, (None,)),
    ):
        if value not in idle:
            instead = "null" if None in idle else idle[0]
            allowed = f"{instead} on a CPU; this one needs a CUDA GPU (the run's device is cpu)"
            yield wrong_value(f"generation.{field}", value, allowed, "runtime.device")


def _unknown(config: Config) -> Iterator[Problem]:
    given = config.generation.engine_kwargs
    if not given:
        return
    known = _names(*_ARGUMENTS)
    for name in given:
        if name in OURS:
            instead = f"set {OURS[name]} instead" if OURS[name] else "this project needs it as it is"
            allowed = f"arguments of vLLM's that the project does not set itself; {instead}"
            yield Problem(field=f"{_FIELD}.{name}", fault="the project sets it", allowed=allowed)
        elif known and name not in known:
            likely = nearest(name, known)
            allowed = "names of vLLM's AsyncEngineArgs" + (f" (did you mean {likely}?)" if likely else "")
            yield Problem(field=f"{_FIELD}.{name}", fault="vLLM has no such argument", allowed=allowed)


def _names(file: str, classes: tuple[str, ...]) -> frozenset[str]:
    """The public attributes that ``classes`` in vLLM's ``file`` define; none where vLLM is not installed."""
    package = importlib.util.find_spec("vllm")
    if package is None or package.origin is None:
        return frozenset()
    tree = ast.parse((Path(package.origin).parent / file).read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            for line in node.body:
                targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(name for name in found if not name.startswith("_"))
