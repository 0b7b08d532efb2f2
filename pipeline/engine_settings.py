"""What a vLLM engine needs to start; a light module, so that drivers need not import vllm."""

from __future__ import annotations

from dataclasses import dataclass

# Of an adapter that vLLM 0.31 runs beside the weights.
LARGEST_LORA_RANK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationSettings:
    """How tokens are drafted ahead; the fields are those of ``acceleration.speculative``.

    ``method`` is "history", "ngram" or "draft_model"; ``draft_model`` is a folder, resolved.
    """

    method: str
    num_tokens: int
    dynamic: bool
    draft_model: str | None
    history_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine needs to start. ``max_model_len`` counts prompt and completion tokens.

    ``kv_cache_memory_bytes`` is for CPU. Without ``per_request_seeds`` only ``seed`` rules what is drawn.
    With ``lora_rank`` adapters of that rank run beside the weights; without, they are merged into them.
    ``on_cpu`` forks the engine's process from the caller's instead of starting an interpreter (its OpenMP
    variables must be set already) and has the model in it too; its threads are bound to ``cores``, one each,
    unless there are none. ``reports_pressure`` has it say how full its KV cache is. A trainer that sends
    weights has to answer within ``weight_timeout_s``.
    """

    model: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    enforce_eager: bool
    gpu_memory_utilization: float
    enable_prefix_caching: bool
    kv_cache_memory_bytes: int | None
    seed: int
    per_request_seeds: bool
    tensor_parallel_size: int = 1
    lora_rank: int | None = None
    on_cpu: bool = False
    cores: tuple[int, ...] = ()
    reports_pressure: bool = False
    weight_timeout_s: float = 120.0
    speculation: SpeculationSettings | None = None
