"""How full vLLM's KV cache is, from the statistics of its scheduler. Called by pipeline.vllm_engine."""

from __future__ import annotations

from vllm.config import VllmConfig
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import IterationStats, MultiModalCacheStats, SchedulerStats


class PressureLog(StatLoggerBase):  # type: ignore[misc]
    """Keeps the newest statistics; vLLM calls ``record`` after every step of an engine."""

    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None:
        self._usage = 0.0
        self._num_preemptions = 0

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        mm_cache_stats: MultiModalCacheStats | None = None,
        engine_idx: int = 0,
    ) -> None:
        """Take note of one step."""
        if scheduler_stats is not None:
            self._usage = scheduler_stats.kv_cache_usage
        if iteration_stats is not None:
            self._num_preemptions += iteration_stats.num_preempted_reqs

    def log_engine_initialized(self) -> None:
        """Nothing to say."""

    def stats(self) -> dict[str, float]:
        """``kv_cache_usage``, 0 to 1, and ``preemptions`` since the start."""
        return {"kv_cache_usage": self._usage, "preemptions": float(self._num_preemptions)}
