"""The generation section: sampling and the engine. Called by configs.schema."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from configs.section import (
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Section,
)


class GenerationConfig(Section):
    """Sampling and the engine."""

    engine: Literal["vllm", "transformers"] = Field(default="vllm", description="which generator runs")
    temperature: PositiveFloat = Field(default=1.0, description="sampling temperature")
    top_p: PositiveFraction = Field(default=1.0, description="nucleus sampling")
    top_k: NonNegativeInt = Field(default=0, description="top-k sampling; 0 turns it off")
    max_prompt_length: PositiveInt = Field(default=512, description="longer prompts are refused")
    max_completion_length: PositiveInt = Field(default=128, description="tokens per completion")
    assistant_prefill: str = Field(
        default="```python\n",
        description="text that opens the answer, as if the model had written it; may be empty",
    )
    stop_at_code_fence: bool = Field(default=True, description="end a completion at its closing code fence")
    max_num_seqs: PositiveInt = Field(default=64, description="sequences the engine runs at once")
    enforce_eager: bool = Field(default=True, description="vLLM without torch.compile")
    kv_cache_gb: PositiveFloat = Field(default=1.0, description="KV cache on CPU, in GiB")
    gpu_memory_utilization: PositiveFraction = Field(default=0.4, description="share of the GPU for vLLM")
    dtype: Literal["bfloat16", "float32", "float16"] = Field(default="bfloat16", description="engine weights")
    enable_prefix_caching: bool = Field(default=True, description="share the prompt of a group")
    num_engines: PositiveInt = Field(default=1, description="generators that run beside each other")
    tensor_parallel_size: PositiveInt = Field(default=1, description="GPUs that one generator is split over")
    tune: bool = Field(
        default=False,
        description="measure threads, sequences in flight and compilation once, keep what is fastest here",
    )
