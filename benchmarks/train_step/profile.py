"""Where the time of a training step goes, and how fast it could be.

``profile_step``: torch.profiler's events in a dozen groups that make up the whole. The step is profiled on a
CPU, where an operation's own time is wall time; what no operation accounts for is Python. An elementwise
operation of the backward belongs to the module whose forward made it: both carry the same sequence number.

``measure_limit``: how fast this machine multiplies the matrices of a model, measured and not read from a data
sheet: products, in bf16 where there is such, of the shapes of the model's own layers, of forward and
backward, each repeated on its own.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig

from configs.schema import Config
from pipeline.host.device import has_bf16
from pipeline.messages import TrainBatch
from pipeline.models.loading import model_without_weights
from pipeline.training.memory import peak_flops
from pipeline.training.trainer import Trainer

# Rows of a product: tokens of a micro-batch.
_ROWS: Final = {"cpu": 2048, "cuda": 8192}
_MIN_S: Final = 0.1
_SCOPE: Final = "module: "
_PRODUCTS: Final = frozenset(
    {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_addmm_activation"}
)
_ATTENTION_OPS: Final = ("scaled_dot_product", "_CpuAttention", "_VarlenAttention")
GROUPS: Final = (
    "matrix products of the layers, forward",
    "matrix products of the layers, backward",
    "matrix products of the head",
    "attention, forward",
    "attention, backward",
    "log-probabilities",
    "norms",
    "MLP, elementwise",
    "rotary positions, residuals",
    "embedding",
    "routing gradients to fp32",
    "optimiser, clipping and copy",
    "Python and planning",
    "other operations",
)


def profile_step(
    config: Config, model_path: Path, batch: TrainBatch, device: str, num_steps: int
) -> dict[str, Any]:
    """The share of each group in a step's time, 0 to 1, and the seconds behind it.

    ``step_s`` is a step without the profiler, ``profiled_s`` one with it, of which the shares are; both are
    means over ``num_steps`` after a warm-up. Raises ValueError on another device than a CPU.
    """
    if device != "cpu":
        raise ValueError(f"--profile: value {device!r} of --device: only a step on the cpu is profiled")
    trainer = Trainer(config, model_path, device)
    trainer.step(batch)
    step_s = _mean_s(trainer, batch, num_steps)
    with _module_scopes(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        profiled_s = _mean_s(trainer, batch, num_steps)
    vocabulary = int(trainer.model.config.get_text_config().vocab_size)
    seconds = group_seconds(recorded.events() or (), vocabulary)
    seconds = {name: value / num_steps for name, value in seconds.items()}
    seconds["Python and planning"] = max(profiled_s - sum(seconds.values()), 0.0)
    total = sum(seconds.values())
    return {
        "step_s": step_s,
        "profiled_s": profiled_s,
        "groups": {
            name: {"share": seconds.get(name, 0.0) / total, "seconds": seconds.get(name, 0.0)}
            for name in GROUPS
        },
    }


def group_seconds(events: Iterable[Any], vocabulary: int) -> dict[str, float]:
    """Seconds of the events' own time in each group; ``vocabulary`` tells the head's operations."""
    known = list(events)
    modules = _modules_by_sequence(known)
    seconds: dict[str, float] = defaultdict(float)
    for event in known:
        seconds[_group(event, modules, vocabulary)] += event.self_cpu_time_total / 1e6
    return dict(seconds)


def _group(event: Any, modules: dict[int, str], vocabulary: int) -> str:
    chain = list(_chain(event))
    names = [link.name for link in chain]
    outer = next((name for name in names if name.startswith("autograd::engine")), None)
    direction = "forward" if outer is None else "backward"
    if any(key in name for name in names for key in _ATTENTION_OPS):
        return f"attention, {direction}"
    if any("Optimizer" in name or "_fused_adamw" in name or "_foreach" in name for name in names):
        return "optimiser, clipping and copy"
    is_of_head = any(vocabulary in shape for link in chain for shape in _shapes(link))
    if event.name in _PRODUCTS or "mkldnn" in event.name:
        return "matrix products of the head" if is_of_head else f"matrix products of the layers, {direction}"
    if any("AccumulateGrad" in name for name in names):
        return "routing gradients to fp32"
    if any("embedding" in name for name in names):
        return "embedding"
    if any(shape[-1:] == [vocabulary] for link in chain for shape in _shapes(link)):
        return "log-probabilities"
    return _elementwise_group(_module(chain, modules))


def _elementwise_group(module: str) -> str:
    if "Norm" in module:
        return "norms"
    if "MLP" in module or "SiLU" in module or "Activation" in module:
        return "MLP, elementwise"
    if any(part in module for part in ("Attention", "Rotary", "Layer", "Linear")):
        return "rotary positions, residuals"
    return "other operations"


def _module(chain: Sequence[Any], modules: dict[int, str]) -> str:
    """The class of the innermost module that an operation, or the forward of its gradient, is part of."""
    scope = _scope(chain)
    if scope:
        return scope
    if any(link.name.startswith("autograd::engine") for link in chain):
        for link in chain:
            if link.sequence_nr in modules:
                return modules[link.sequence_nr]
        # The engine adds up what comes back to a tensor that was used twice.
        return "Layer"
    return ""


def _modules_by_sequence(events: Sequence[Any]) -> dict[int, str]:
    """The module of each forward operation that the backward will refer to."""
    scopes = ((event.sequence_nr, _scope(_chain(event))) for event in events if event.sequence_nr >= 0)
    return {sequence: scope for sequence, scope in scopes if scope}


def _scope(chain: Iterable[Any]) -> str:
    """The class of the innermost module whose forward an operation is part of, or nothing."""
    names = (link.name for link in chain if link.name.startswith(_SCOPE))
    return str(next(names, "")).removeprefix(_SCOPE)


def _chain(event: Any) -> Iterator[Any]:
    """The event, and those around it."""
    while event is not None:
        yield event
        event = event.cpu_parent


def _shapes(event: Any) -> Iterator[list[int]]:
    for shape in event.input_shapes or ():
        if shape and all(isinstance(size, int) for size in shape):
            yield shape


def _mean_s(trainer: Trainer, batch: TrainBatch, num_steps: int) -> float:
    started = time.perf_counter()
    for _ in range(num_steps):
        trainer.step(batch)
    return (time.perf_counter() - started) / num_steps


@contextmanager
def _module_scopes() -> Iterator[None]:
    """While it lasts, the profiler sees which module each forward operation is part of."""
    scopes: list[record_function] = []

    def enter(module: nn.Module, inputs: object) -> None:
        scopes.append(record_function(f"{_SCOPE}{type(module).__name__}"))
        scopes[-1].__enter__()  # type: ignore[no-untyped-call]

    def leave(module: nn.Module, inputs: object, output: object) -> None:
        scopes.pop().__exit__(None, None, None)

    hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def measure_limit(folder: str, device: str) -> dict[str, Any]:
    """GFLOP/s of each product, and ``gflops``: all of a step's, each as often as a step has it.

    In bf16 where the device has it, else in fp32 (``dtype``).

    ``sheet_gflops`` is what the data sheet of a known GPU promises, None for another device.
    """
    shapes = linear_shapes(folder)
    rows, dtype = _ROWS[device], torch.bfloat16 if has_bf16(device) else torch.float32
    products = {}
    total_flops = total_s = 0.0
    for (num_out, num_in), count in sorted(shapes.items()):
        flops = 2.0 * rows * num_out * num_in
        for name, seconds in _products_s(rows, num_out, num_in, device, dtype).items():
            products[f"{num_in} to {num_out}, {name}"] = round(flops / seconds / 1e9, 1)
            total_flops += count * flops
            total_s += count * seconds
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {
        "device_name": name,
        "sheet_gflops": None if (peak := peak_flops(name)) is None else peak / 1e9,
        "gflops": total_flops / total_s / 1e9,
        "rows": rows,
        "dtype": "bf16" if dtype == torch.bfloat16 else "fp32",
        "products": products,
    }


def linear_shapes(folder: str) -> Counter[tuple[int, int]]:
    """(outputs, inputs) of the model's linear layers, the output head included, with their number."""
    model = model_without_weights(AutoConfig.from_pretrained(folder, local_files_only=True))
    layers = (module for module in model.modules() if isinstance(module, nn.Linear))
    return Counter((layer.out_features, layer.in_features) for layer in layers)


def wait_for(device: str) -> None:
    """Return when all that was begun on ``device`` is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def _products_s(rows: int, num_out: int, num_in: int, device: str, dtype: torch.dtype) -> dict[str, float]:
    """Seconds of the layer's forward, and of the gradients to its inputs and to its weight."""
    inputs = torch.randn(rows, num_in, device=device, dtype=dtype)
    weight = torch.randn(num_out, num_in, device=device, dtype=dtype)
    outputs = torch.randn(rows, num_out, device=device, dtype=dtype)
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
        wait_for(device)
        best = min(best, time.perf_counter() - before)
        num += 1
    return best
