"""The layers of the model that trains: fused, checkpointed, compiled where that can work, and taken back.

The layers are compiled one by one: they are the same code, so the first one's kernels serve all of them and
the start costs one layer. Lengths are dynamic. Does not decide to compile (``training.torch_compile``).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from configs.schema import TrainingConfig

_log = logging.getLogger(__name__)

_MIN_CAPABILITY = (7, 0)
_COMPILER_TIMEOUT_S = 60.0
# What the kernels for a CPU include and link.
_PROBE = "#include <Python.h>\n#include <omp.h>\nint main() { return omp_get_max_threads() > 0 ? 0 : 1; }\n"


def why_not_compile(device: torch.device) -> str | None:
    """Why torch.compile cannot work on ``device``, or None where it can."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return why_not_on_gpu((major, minor), has_triton=importlib.util.find_spec("triton") is not None)
    return why_not_with(os.environ.get("CXX", "g++"))


def why_not_on_gpu(capability: tuple[int, int], *, has_triton: bool) -> str | None:
    """Why a GPU of this compute capability cannot run compiled code, or None where it can."""
    if capability < _MIN_CAPABILITY:
        return f"the GPU's compute capability is {capability[0]}.{capability[1]}, and 7.0 is needed"
    return None if has_triton else "triton is not installed"


def why_not_with(compiler: str) -> str | None:
    """Why the C++ compiler ``compiler`` cannot build kernels for this Python, or None where it can."""
    path = shutil.which(compiler)
    if path is None:
        return f"there is no C++ compiler {compiler} (CXX names another)"
    include = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(_PROBE, encoding="utf-8")
        command = [path, "-shared", "-fPIC", "-fopenmp", f"-I{include}", str(source), "-o", f"{folder}/probe"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILER_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the C++ compiler {path} does not work: {error}"
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return f"the C++ compiler {path} does not work: {lines[0]}" if done.returncode else None


def prepare_layers(model: PreTrainedModel, training: TrainingConfig, device: torch.device) -> bool:
    """Fuse, checkpoint and compile the layers as asked; returns whether they are compiled."""
    if training.use_liger_kernel:
        fuse_layers(model)
    if training.gradient_checkpointing:
        checkpoint_layers(model)
    if not training.torch_compile:
        return False
    reason = why_not_compile(device)
    if reason is None:
        if compile_layers(model) > 0:
            return True
        reason = f"{type(model).__name__} has no layers of the kind that Transformers checkpoints"
    _log.warning("training.torch_compile: the run goes on uncompiled: %s", reason)
    return False


def fuse_layers(model: PreTrainedModel) -> None:
    """Give ``model`` Liger's norms, rotary embeddings and SwiGLU; where it has none, the run says so.

    The rotary embeddings are those of every model of this kind in the process.
    """
    # Imported here: it need not be installed (pipeline.host.device), and needs Triton.
    from liger_kernel.transformers import monkey_patch  # type: ignore[import-not-found]

    kind = model.config.model_type
    if kind not in monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN:
        _log.warning("training.use_liger_kernel: the run goes on without: Liger has no kernels for %s", kind)
        return
    # The loss reads hidden states and has a head of its own (pipeline.training.backward).
    monkey_patch._apply_liger_kernel_to_instance(
        model, rope=True, rms_norm=True, swiglu=True, cross_entropy=False, fused_linear_cross_entropy=False
    )


def checkpoint_layers(model: PreTrainedModel) -> None:
    """Compute each layer's activations anew in the backward, from the next forward on."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()


def compile_layers(model: nn.Module) -> int:
    """Compile every layer of ``model`` at its first call; returns how many there are."""
    layers = _layers(model)
    for layer in layers:
        layer.compile(dynamic=True)
    return len(layers)


def uncompile_layers(model: nn.Module) -> None:
    """Run the layers as they were written, from the next call on."""
    for layer in _layers(model):
        # Module.compile has no inverse; this is the field that it sets.
        layer._compiled_call_impl = None


def _layers(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
