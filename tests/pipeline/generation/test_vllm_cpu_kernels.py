"""vLLM's fused CPU kernels compute what its own PyTorch layers compute."""

from __future__ import annotations

import pytest
import torch
from vllm import ir
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.activation import SiluAndMul

from pipeline.generation.vllm import cpu_kernels as vllm_cpu_kernels
from pipeline.generation.vllm.cpu_kernels import PROVIDER, FusedSiluAndMul

# Three roundings of the result's own precision.
TOLERANCES = {torch.float32: 1e-6, torch.bfloat16: 3e-2}


def operation(name: str, provider: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    result = getattr(ir.ops, name).impls[provider].impl_fn(*(x.clone() for x in tensors), 1e-5)
    return result if isinstance(result, tuple) else (result,)


def assert_close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    error = TOLERANCES[expected.dtype]
    assert ours.dtype == expected.dtype
    torch.testing.assert_close(ours, expected, rtol=error, atol=error)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("rows", [1, 33])
def test_norms_equal_the_native_ones(dtype: torch.dtype, rows: int) -> None:
    random = torch.Generator().manual_seed(rows)
    x, residual = (torch.randn(rows, 576, generator=random).to(dtype) for _ in range(2))
    weight = torch.randn(576, generator=random).to(dtype)
    pairs = [("rms_norm", (x, weight)), ("fused_add_rms_norm", (x, residual, weight))]
    for name, tensors in pairs:
        expected = operation(name, "native", *tensors)
        for one, other in zip(operation(name, PROVIDER, *tensors), expected, strict=True):
            assert_close(one, other)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("size", [576, 6], ids=["whole vectors", "part of a vector"])
def test_the_gated_activation_equals_the_native_one(dtype: torch.dtype, size: int) -> None:
    with set_current_vllm_config(VllmConfig()):
        layer = SiluAndMul()
    assert isinstance(layer, FusedSiluAndMul)
    x = torch.randn(5, 2 * size, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert_close(layer.forward_cpu(x), SiluAndMul.forward_native(x))
    assert_close(layer.forward_cpu(x.repeat(1, 2)[:, ::2]), SiluAndMul.forward_native(x.repeat(1, 2)[:, ::2]))


@pytest.mark.parametrize(
    ("x", "weight", "variance_size", "suits"),
    [
        (torch.ones(2, 32), torch.ones(32), None, True),
        (torch.ones(2, 24), torch.ones(24), None, False),
        (torch.ones(2, 64)[:, ::2], torch.ones(32), None, False),
        (torch.ones(2, 32), torch.ones(32).bfloat16(), None, False),
        (torch.ones(2, 32), None, None, False),
        (torch.ones(2, 32), torch.ones(32), 16, False),
    ],
    ids=["suits", "part of a vector", "strided", "other precision", "no weight", "part of a row"],
)
def test_what_a_kernel_cannot_do_is_left_to_vllm(
    x: torch.Tensor, weight: torch.Tensor | None, variance_size: int | None, suits: bool
) -> None:
    assert ir.ops.rms_norm.impls[PROVIDER].supports_args(x, weight, 1e-5, variance_size) is suits
    add_norm = ir.ops.fused_add_rms_norm.impls[PROVIDER]
    assert add_norm.supports_args(x, x.contiguous(), weight, 1e-5, variance_size) is suits


def test_a_strided_residual_is_left_to_vllm() -> None:
    x, strided, weight = torch.ones(2, 32), torch.ones(2, 64)[:, ::2], torch.ones(32)
    add_norm = ir.ops.fused_add_rms_norm.impls[PROVIDER]
    assert not add_norm.supports_args(x, strided, weight, 1e-5, None)


def test_the_kernels_come_first() -> None:
    priority = vllm_cpu_kernels.kernel_priority()
    assert priority.rms_norm[0] == priority.fused_add_rms_norm[0] == PROVIDER
