"""What a vLLM engine needs to start; a light module, so that drivers need not import vllm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine needs to start. ``max_model_len`` counts prompt and completion tokens.

    ``kv_cache_memory_bytes`` is for CPU. Without ``per_request_seeds`` only ``seed`` rules what is drawn.
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
