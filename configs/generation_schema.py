"""The generation section: sampling and the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from configs.errors import Problem, wrong_value
from configs.section import (
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Section,
    Text,
)

# What a chat is rendered from, and the arguments of Transformers' apply_chat_template that are no variables.
_TEMPLATE_OURS = frozenset(
    {
        *("add_generation_prompt", "chat_template", "continue_final_message", "conversation", "max_length"),
        *("messages", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors"),
        *("tokenize", "tokenizer_kwargs", "truncation"),
    }
)


def chat_template_problems(variables: Mapping[str, Any]) -> Iterator[Problem]:
    """What ``generation.chat_template_kwargs`` must not name."""
    for name, value in variables.items():
        if name in _TEMPLATE_OURS:
            allowed = "variables of the chat template's own; this one the project sets"
            yield wrong_value(f"chat_template_kwargs.{name}", value, allowed)


class GenerationConfig(Section):
    """Sampling and the engine."""

    engine: Literal["vllm", "transformers"] = Field(default="vllm", description="which generator runs")
    baseline_engine: Literal["auto", "vllm", "transformers"] = Field(
        default="auto",
        description="what generates in train_code_grpo: TRL's own vLLM, in its process, or Transformers; "
        "auto: vllm on a GPU, transformers on a CPU",
    )
    temperature: PositiveFloat = Field(default=1.0, description="sampling temperature")
    top_p: PositiveFraction = Field(default=1.0, description="nucleus sampling")
    top_k: NonNegativeInt = Field(default=0, description="top-k sampling; 0 turns it off")
    max_prompt_length: PositiveInt = Field(
        default=512, description="longer prompts are refused, or left out (dataset.overlong_prompts)"
    )
    max_completion_length: PositiveInt = Field(default=128, description="tokens per completion")
    system_prompt: str | None = Field(
        default=None,
        description="the system message before each prompt; null: none, or the chat template's own",
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="variables for the model's chat template, enable_thinking say; one that it does not read "
        "is refused",
    )
    assistant_prefill: str = Field(
        default="```python\n",
        description="text that opens the answer, as if the model had written it; may be empty",
    )
    stop_at_code_fence: bool = Field(
        default=True,
        description="end a completion at its closing code fence, where assistant_prefill opens one",
    )
    max_num_seqs: PositiveInt = Field(default=64, description="sequences the engine runs at once")
    enforce_eager: bool | None = Field(
        default=None,
        description="vLLM without torch.compile and CUDA graphs; null: on a CPU, where the start would take "
        "minutes; a GPU's engine is compiled, as vLLM's default is",
    )
    kv_cache_gb: PositiveFloat = Field(default=1.0, description="KV cache on CPU, in GiB")
    max_num_batched_tokens: PositiveInt | None = Field(
        default=None,
        description="tokens that the engine reads in one forward, prompts included, at least one (and its "
        "draft) for each of max_num_seqs; null: 8192 on a GPU, vLLM's own choice on a CPU",
    )
    gpu_memory_utilization: PositiveFraction | None = Field(
        default=None,
        description="share of a GPU for vLLM; null: 0.4 of one where a trainer is too, 0.9 of one of its own",
    )
    sleep_while_training: Literal["auto"] | bool = Field(
        default="auto",
        description="on a GPU that generator and trainer share, vLLM gives its KV cache back, and keeps its "
        "weights on the host, while the trainer works; auto: where the two run in turn; true: they run in "
        "turn from the first step on, and the trainer may count on that memory",
    )
    dtype: Literal["auto", "bfloat16", "float32", "float16"] = Field(
        default="auto",
        description="engine weights; auto: bfloat16 where there are instructions for it and on a cluster, "
        "else float32 on a CPU and float16 on a GPU",
    )
    quantization: Literal["none", "auto", "int8", "fp8", "fp8_per_tensor", "fp8_per_block"] = Field(
        default="none",
        description="engine weights in 8 bits, quantised at the start and at every update: int8, on a CPU, "
        "and fp8 have a scale for each row, the others one for a matrix or a block; fp8 needs a GPU of "
        "compute capability 8.9 or more; auto: fp8 there, int8 on a CPU with AVX-512 VNNI, else, and on a "
        "cluster, none; a run leaves int8 where train/mismatch_kl says so and neither top_p nor top_k "
        "explains it",
    )
    kv_cache_dtype: Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"] = Field(
        default="auto",
        description="keys and values in the engine's cache; auto: as dtype; fp8: half of that, on a GPU of "
        "compute capability 8.9 or more",
    )
    attention_backend: Text | None = Field(
        default=None,
        description="vLLM's name of the attention kernels, FLASH_ATTN say; null: vLLM chooses; needs a GPU",
    )
    engine_kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="further arguments of vLLM's AsyncEngineArgs by name; those that the project sets itself "
        "are refused",
    )
    enable_prefix_caching: bool = Field(default=True, description="share the prompt of a group")
    weight_update_mode: Literal["keep", "keep_cache", "drain", "abort"] = Field(
        default="keep",
        description="completions that are being written when new weights come: keep pauses them between two "
        "tokens, computes the KV cache anew and goes on; keep_cache goes on over the old one; drain lets "
        "them end first, while new ones wait; abort writes them anew from the prompt, which favours short "
        "answers",
    )
    seed_requests: bool = Field(
        default=False,
        description="a seed of its own for each training request, from training.seed and the draw: with "
        "max_staleness 0 a run can be repeated, and resumed, sample by sample; costs vLLM its fast sampler",
    )
    num_engines: PositiveInt = Field(default=1, description="generators that run beside each other")
    tensor_parallel_size: PositiveInt = Field(default=1, description="GPUs that one generator is split over")

    def _problems(self) -> Iterator[Problem]:
        yield from chat_template_problems(self.chat_template_kwargs)
        if self.quantization == "int8" and self.enforce_eager is False:
            allowed = "true with int8: what is compiled keeps the kernels that it began with"
            yield wrong_value("enforce_eager", False, allowed, "quantization")
        if self.engine != "vllm":
            yield from self._vllm_problems()

    def _vllm_problems(self) -> list[Problem]:
        """What only vLLM can do, asked of another engine."""
        asked: tuple[tuple[str, object, tuple[object, ...], str], ...] = (
            ("quantization", self.quantization, ("none", "auto"), "none"),
            ("kv_cache_dtype", self.kv_cache_dtype, ("auto",), "auto"),
            ("attention_backend", self.attention_backend, (None,), "null"),
            ("engine_kwargs", self.engine_kwargs, ({},), "{}"),
        )
        return [
            wrong_value(field, value, f"{allowed} with this engine: it is vLLM's", "engine")
            for field, value, idle, allowed in asked
            if value not in idle
        ]
