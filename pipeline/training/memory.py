"""What a trainer takes of memory, from sizes alone, what fits, and what a step made of its GPUs.

Weights, gradients and optimiser are counted; activations are those tensors that a backward keeps of each
layer, as PyTorch's hooks for saved tensors list them; what libraries take, and what the allocator adds, was
measured (``python -m benchmarks.train_step.memory``, docs/memory.md). Bytes throughout. Loads no model, and
starts nothing. ``needed_flops`` counts what a step's gradient needs; what is computed twice, or for padding,
is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import torch

from configs.acceleration_schema import ROW_TOKENS
from configs.schema import Config
from pipeline.host.limits import anonymous_bytes, memory
from pipeline.messages import TrainingSample
from pipeline.models.files import experts_of, mlp_width
from pipeline.models.loading import head_of
from pipeline.training.backward import logits_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedModel


# Resident memory of a trainer's process that holds no model: libraries, buffers, gaps.
TRAINER_LIBRARIES = 0.75e9
# Gaps that no later tensor fits into: of the activations on a CPU, beside those of ``_gap_bytes``; on a GPU.
_CPU_GAPS = 0.05
_GPU_SPARE = 0.5e9
# The two moments of a weight; in 8 bits every 256 have a scale of 4 bytes.
MOMENTS = {"adamw_torch": 8.0, "adamw_8bit": 2 * (1 + 4 / 256)}
_GIB = 2.0**30
# Bytes of a weight in 4 bits (QLoRA): blocks of 64 share a scale, which is quantised once more.
_NF4 = 0.516
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
# FLOP/s in bf16, dense, of NVIDIA's data sheets (SXM where there are several forms).
_PEAKS: Final = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchLimit:
    """The most sequences and tokens (padding included) that go through the model together.

    A single sequence may be longer than ``max_tokens``: it cannot be cut. ``checkpoints`` says that
    activations are computed anew in the backward (training.gradient_checkpointing).
    """

    max_sequences: int
    max_tokens: int
    checkpoints: bool = False

    def __str__(self) -> str:
        rest = ", activations computed anew in the backward" if self.checkpoints else ""
        return f"at most {self.max_tokens} tokens or {self.max_sequences} sequences{rest}"

    def below(self, num_sequences: int, num_tokens: int) -> MicroBatchLimit:
        """Half of a micro-batch that was too much."""
        return replace(
            self,
            max_sequences=min(self.max_sequences, max(num_sequences // 2, 1)),
            max_tokens=min(self.max_tokens, max(num_tokens // 2, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a dense decoder; ``origin`` says where they are from.

    ``query_width`` and ``kv_width``: of all queries, and of all keys, of a token; ``kv_heads``: their number.
    ``is_tied``: the output head is the embedding, and counts once.
    """

    origin: str
    num_parameters: int
    hidden: int
    layers: int
    query_width: int
    kv_width: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    is_tied: bool


def shape_of(model: PreTrainedModel, origin: str) -> ModelShape:
    """The sizes of ``model``, adapters not counted. Raises ValueError for a mixture of experts."""
    text = model.config.get_text_config()
    if experts_of(text.to_dict()) is not None:
        raise ValueError("it is a mixture of experts, for which no estimate is made")
    embedding = cast(torch.Tensor, model.get_input_embeddings().weight)
    head = head_of(model)
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    named = model.named_parameters()
    return ModelShape(
        origin=origin,
        num_parameters=sum(_num_weights(one) for name, one in named if ".lora_" not in name),
        hidden=embedding.shape[1],
        layers=text.num_hidden_layers,
        query_width=text.num_attention_heads * head_dim,
        kv_width=kv_heads * head_dim,
        kv_heads=kv_heads,
        intermediate=mlp_width(text.to_dict()),
        vocabulary=embedding.shape[0],
        is_tied=getattr(head, "weight", None) is embedding,
    )


def _num_weights(parameter: torch.Tensor) -> int:
    """Its weights; in 4 bits (bitsandbytes) two of them are one number."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else math.prod(state.shape)


def limits(config: Config) -> list[MicroBatchLimit]:
    """What micro-batches may have, from what is asked for down to the least.

    Rows are halved as long as they hold the longest sequence, which costs little; only then are activations
    checkpointed, which costs another forward.
    """
    longest = config.max_sequence_length
    # Jobs decide it by their device (pipeline.host.device.for_device).
    asked = MicroBatchLimit(
        max_sequences=config.training.per_device_train_batch_size,
        max_tokens=config.acceleration.token_packing.max_tokens or ROW_TOKENS["cpu"],
        checkpoints=config.training.gradient_checkpointing,
    )
    halves = [asked]
    while micro_batch_tokens(config, halves[-1]) > longest:
        last = halves[-1]
        half = replace(
            last, max_sequences=max(last.max_sequences // 2, 1), max_tokens=max(last.max_tokens // 2, longest)
        )
        if half == last:
            break
        halves.append(half)
    checkpointed = [] if asked.checkpoints else [replace(one, checkpoints=True) for one in halves]
    return [*halves, *checkpointed]


def fitting(config: Config, shape: ModelShape, device: str, free_bytes: float, *, at_least: int = 0) -> int:
    """Which of ``limits``, from number ``at_least`` on, is the first to fit; the last where none does.

    ``free_bytes`` are for all of ``trainer_parts``.
    """
    every = limits(config)
    for number in range(at_least, len(every)):
        if sum(trainer_parts(config, shape, device, every[number]).values()) <= free_bytes:
            return number
    return len(every) - 1


def free_bytes(config: Config, shape: ModelShape, device: torch.device) -> float:
    """What this trainer's ``trainer_parts`` may take, of which it may hold some already.

    On a CPU it is what is free, less what other processes will still take of it: KV caches, whose pages come
    with their first use, two files of weights on their way, tested programs, and a twentieth of the machine.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - _GPU_SPARE
    total, available = (_GIB * value for value in memory())
    generation, num_workers = config.generation, config.acceleration.async_rewards.workers
    num_engines = 1 if config.cluster.is_joined else generation.num_engines
    others = published_bytes(config, shape) + num_engines * generation.kv_cache_gb * _GIB + 0.05 * total
    others += num_workers * config.execution.max_memory * 2**20 * config.execution.enabled
    # Every rank of this machine counts the same memory.
    num_ranks = 1 if config.cluster.is_joined else config.runtime.trainer_ranks
    return (available - others) / num_ranks + max(0.0, anonymous_bytes() - TRAINER_LIBRARIES)


def micro_batch_tokens(config: Config, limit: MicroBatchLimit) -> int:
    """The most tokens, padding included, that go through the trained model together."""
    acceleration = config.acceleration
    prompt, completion = config.generation.max_prompt_length, config.max_trajectory_length
    longest = prompt + completion
    group = config.grpo.num_generations
    if not acceleration.token_packing.enabled:
        if acceleration.shared_prompt:
            return prompt + min(limit.max_sequences, group) * completion
        return limit.max_sequences * longest
    # What a step holds at most: shorter groups may fill a row to its end.
    one, num = (prompt + group * completion, 1) if acceleration.shared_prompt else (longest, group)
    total = one * math.ceil(num * config.prompts_per_step / config.runtime.trainer_ranks)
    return max(longest, min(limit.max_tokens, total))


def trainer_parts(
    config: Config,
    shape: ModelShape,
    device: str,
    limit: MicroBatchLimit,
    *,
    num_tokens: int | None = None,
) -> dict[str, float]:
    """Bytes of a trainer rank, by what they are for; ``num_tokens`` of None are the most of a micro-batch."""
    training, ranks = config.training, config.runtime.trainer_ranks
    tokens = micro_batch_tokens(config, limit) if num_tokens is None else num_tokens
    width = 2 if training.bf16 else 4
    num_parameters, moments = shape.num_parameters, MOMENTS[training.optim]
    if config.lora.enabled:
        num_trained = num_adapter_parameters(config, shape)
        frozen = float(num_parameters * width)
        if config.lora.load_in_4bit:
            # Embedding and output head stay as they are; one layer's matrix at a time is made whole.
            in_4bit = num_parameters - embedding_parameters(shape)
            frozen -= in_4bit * (width - _NF4) - shape.hidden * shape.intermediate * width
        # Copies of what is trained: master, gradient sum, two moments, and the one that computes.
        weights = {
            "weights": frozen / ranks,
            "adapters, gradients, optimiser": num_trained * (8 + moments + width % 4) / ranks,
        }
    else:
        copy = num_parameters * 2 if training.bf16 else 0
        weights = {
            "weights": (4 * num_parameters + copy) / ranks,
            "gradients": 4 * num_parameters / ranks,
            "optimiser": moments * num_parameters / ranks,
        }
        if config.grpo.beta > 0:
            weights["reference model"] = num_parameters * width / ranks
    activations = _activation_bytes(config, shape, tokens, checkpoints=limit.checkpoints)
    if device == "cpu":
        num_layers = 1 if limit.checkpoints else shape.layers
        activations = (1 + _CPU_GAPS) * activations + _gap_bytes(config, shape, tokens, num_layers)
    return {
        **weights,
        "activations": activations,
        "logits": logits_bytes(tokens, shape.vocabulary, width, device),
    }


def _activation_bytes(config: Config, shape: ModelShape, num_tokens: int, *, checkpoints: bool) -> float:
    """What a backward keeps of ``num_tokens`` on the device."""
    width = 2 if config.training.bf16 else 4
    # A norm keeps its input, what it has normed (for the gradient of its own weight) and its output; in bf16
    # its input once more, in fp32. Four of a feed-forward part: gate, its activation, up, their product.
    norms = 6 + 2 * (width == 2) - 2 * config.lora.enabled
    layer = norms * shape.hidden + 4 * shape.intermediate + 2 * shape.query_width + 2 * shape.kv_width
    # The inner sides of the adapters of seven projections.
    layer += 7 * config.lora.r * config.lora.enabled
    if checkpoints and config.training.activation_offloading:
        return float(num_tokens * width * (2 * shape.hidden + layer))
    if checkpoints:
        return float(num_tokens * width * (shape.layers * shape.hidden + layer))
    return float(num_tokens * width * shape.layers * layer)


def _gap_bytes(config: Config, shape: ModelShape, num_tokens: int, num_layers: int) -> float:
    """What a CPU computes with and gives up in each layer: what is kept meanwhile leaves it in gaps.

    Attention goes over keys and values for each query head, of bf16 over fp32 copies of queries and output
    as well. A frozen norm keeps nothing of what it makes on its way to its output; in bf16 the gradient of
    an embedding that is trained exists three times for a moment. Found by measuring (docs/memory.md).
    """
    is_bf16, is_frozen = bool(config.training.bf16), config.lora.enabled
    widths = (4 if is_bf16 else 2) * shape.query_width + 4 * shape.hidden * (is_frozen and not is_bf16)
    embedding = 6.0 * shape.vocabulary * shape.hidden * (is_bf16 and not is_frozen)
    return 4.0 * widths * num_tokens * num_layers + embedding


def embedding_parameters(shape: ModelShape) -> int:
    """Those of the embedding and, where it is another matrix, of the output head."""
    return shape.vocabulary * shape.hidden * (1 if shape.is_tied else 2)


def published_bytes(config: Config, shape: ModelShape) -> float:
    """Weights on their way to the generator: those that it has, for one that starts again, and the next."""
    num_sent = num_adapter_parameters(config, shape) if config.lora.enabled else shape.num_parameters
    return 2.0 * num_sent * BYTES[config.generation.dtype]


def num_adapter_parameters(config: Config, shape: ModelShape) -> int:
    """Of adapters on all projections of a layer; fewer targets make fewer."""
    # Into and out of: queries and output, keys and values, the three of the feed-forward part.
    widths = 2 * (shape.hidden + shape.query_width) + 2 * (shape.hidden + shape.kv_width)
    widths += 3 * (shape.hidden + shape.intermediate)
    return shape.layers * config.lora.r * widths


def peak_flops(name: str) -> float | None:
    """The FLOP/s in bf16 that the data sheet of the card ``name`` promises; None where it is not known."""
    return next((peak for card, peak in _PEAKS.items() if card in name), None)


def needed_flops(shape: ModelShape, samples: Sequence[TrainingSample]) -> dict[str, float]:
    """The operations that the gradient of ``samples`` needs, forward and backward, by part.

    ``layers``: six for each weight and token, a group's prompt counted once and no padding; ``head``: six for
    each weight and trained token; ``attention``: 12 for each pair of tokens of which one sees the other,
    layer, and part of a query. Groups without signal count as the others. Nothing is computed twice.
    """
    layer = shape.hidden * (2 * shape.query_width + 2 * shape.kv_width + 3 * shape.intermediate)
    prompts = {sample.token_ids[: sample.num_prompt_tokens] for sample in samples}
    num_tokens = sum(len(prompt) for prompt in prompts)
    num_pairs = sum(len(prompt) * (len(prompt) + 1) / 2 for prompt in prompts)
    num_trained = 0
    for sample in samples:
        num_own = len(sample.token_ids) - sample.num_prompt_tokens
        num_tokens += num_own
        num_pairs += num_own * sample.num_prompt_tokens + num_own * (num_own + 1) / 2
        num_trained += sum(sample.loss_mask)
    return {
        "layers": 6.0 * shape.layers * layer * num_tokens,
        "head": 6.0 * shape.vocabulary * shape.hidden * num_trained,
        "attention": 12.0 * shape.layers * shape.query_width * num_pairs,
    }


def training_flops(needed: Mapping[str, float], *, is_frozen: bool) -> float:
    """Of ``needed_flops`` those of a step: weights that are frozen, beside adapters, get no gradient."""
    share = 2 / 3 if is_frozen else 1.0
    return share * (needed["layers"] + needed["head"]) + needed["attention"]


class CardUse:
    """The metrics of one trainer rank's GPU, step by step; ``num_ranks`` share a step's work."""

    def __init__(self, config: Config, model: PreTrainedModel, device: torch.device, num_ranks: int) -> None:
        self._device = device
        self._num_ranks = num_ranks
        self._is_frozen = config.lora.enabled
        self._peak: float | None = None
        if device.type == "cuda":
            self._peak = peak_flops(torch.cuda.get_device_name(device))
            self._shape = shape_of(model, "")

    def metrics(self, samples: Sequence[TrainingSample], seconds: float) -> dict[str, float]:
        """Of a step that took ``seconds`` for ``samples``, skipped ones left out; the next one begins."""
        if self._device.type != "cuda":
            return {}
        found = {"train/gpu_memory_gb": torch.cuda.max_memory_reserved(self._device) / 1e9}
        torch.cuda.reset_peak_memory_stats(self._device)
        if self._peak is not None:
            flops = training_flops(needed_flops(self._shape, samples), is_frozen=self._is_frozen)
            found["train/mfu"] = flops / (seconds * self._peak * self._num_ranks)
        return found
