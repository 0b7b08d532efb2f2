"""How fast this machine multiplies the matrices of a model, and how many operations a step needs at least.

The limit is measured, not read from a data sheet: bf16 products of the shapes of the model's own layers, of
forward and backward, each repeated on its own.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from pipeline.messages import TrainBatch

# GFLOP/s in bf16, dense, of NVIDIA's data sheets (SXM where there are several forms).
_DATA_SHEET: Final = {"H200": 989_000.0, "H100": 989_000.0, "A100": 312_000.0, "L40S": 362_000.0}
# Rows of a product: tokens of a micro-batch.
_ROWS: Final = {"cpu": 2048, "cuda": 8192}
_MIN_S: Final = 0.1


def measure_limit(folder: str, device: str) -> dict[str, Any]:
    """GFLOP/s of each product, and ``gflops``: all of a step's, each as often as a step has it.

    ``sheet_gflops`` is what the data sheet of a known GPU promises, None for another device.
    """
    shapes = linear_shapes(folder)
    rows = _ROWS[device]
    products = {}
    total_flops = total_s = 0.0
    for (num_out, num_in), count in sorted(shapes.items()):
        flops = 2.0 * rows * num_out * num_in
        for name, seconds in _products_s(rows, num_out, num_in, device).items():
            products[f"{num_in} to {num_out}, {name}"] = round(flops / seconds / 1e9, 1)
            total_flops += count * flops
            total_s += count * seconds
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {
        "device_name": name,
        "sheet_gflops": next((value for key, value in _DATA_SHEET.items() if key in name), None),
        "gflops": total_flops / total_s / 1e9,
        "rows": rows,
        "products": products,
    }


def linear_shapes(folder: str) -> Counter[tuple[int, int]]:
    """(outputs, inputs) of the model's linear layers, the output head included, with their number."""
    model = _meta_model(folder)
    layers = (module for module in model.modules() if isinstance(module, nn.Linear))
    return Counter((layer.out_features, layer.in_features) for layer in layers)


def needed_flops(folder: str, batch: TrainBatch) -> dict[str, float]:
    """The operations that the step's gradient needs, forward and backward, by part.

    6 for each weight of a layer and token, a group's prompt counted once and no padding; 6 for each weight of
    the head and completion token; and 12 * heads * head size for each pair of tokens of which one sees the
    other, for each layer. Groups without signal count as the others. Nothing is computed twice.
    """
    model = _meta_model(folder)
    settings = model.config
    head_size = getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads
    head = settings.vocab_size * settings.hidden_size
    layers = sum(out * inputs for (out, inputs), count in linear_shapes(folder).items() for _ in range(count))
    prompts = {sample.token_ids[: sample.num_prompt_tokens] for sample in batch.samples}
    num_tokens = float(sum(len(prompt) for prompt in prompts))
    num_pairs = sum(len(prompt) * (len(prompt) + 1) / 2 for prompt in prompts)
    for sample in batch.samples:
        num_own = len(sample.token_ids) - sample.num_prompt_tokens
        num_tokens += num_own
        num_pairs += num_own * sample.num_prompt_tokens + num_own * (num_own + 1) / 2
    width = settings.num_attention_heads * head_size * settings.num_hidden_layers
    return {
        "layers": 6.0 * (layers - head) * num_tokens,
        "head": 6.0 * head * batch.num_tokens,
        "attention": 12.0 * width * num_pairs,
    }


def _meta_model(folder: str) -> Any:
    settings = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(settings)  # type: ignore[no-untyped-call]


def _products_s(rows: int, num_out: int, num_in: int, device: str) -> dict[str, float]:
    """Seconds of the layer's forward, and of the gradients to its inputs and to its weight."""
    inputs = torch.randn(rows, num_in, device=device, dtype=torch.bfloat16)
    weight = torch.randn(num_out, num_in, device=device, dtype=torch.bfloat16)
    outputs = torch.randn(rows, num_out, device=device, dtype=torch.bfloat16)
    return {
        "forward": _seconds(lambda: inputs @ weight.T, device),
        "to inputs": _seconds(lambda: outputs @ weight, device),
        "to weight": _seconds(lambda: outputs.T @ inputs, device),
    }


def _seconds(product: Callable[[], Tensor], device: str) -> float:
    """The best of repeated runs: the limit is what the machine can do, not what it does when disturbed."""
    best = float("inf")
    started = time.perf_counter()
    num = 0
    while num < 3 or time.perf_counter() - started < _MIN_S:
        before = time.perf_counter()
        product()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - before)
        num += 1
    return best
