"""Has vLLM use its own compiled CPU kernels where it would run several small PyTorch operations.

vLLM's CPU build has fused kernels for RMS normalisation and the gated activation, but leaves these layers to
torch.compile; in eager mode each of them is then up to eight operations, and every one of them wakes all
threads. They go in through vLLM's own ways of adding kernels. Importing this module registers them;
pipeline.generation.vllm.engine imports it on a CPU and asks for ``PROVIDER`` first.
"""

from __future__ import annotations

import torch
from torch import Tensor
from vllm import ir
from vllm.config.kernel import IrOpPriorityConfig
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.platforms import current_platform

PROVIDER = "code_grpo_cpu"
# Elements that a kernel handles at once; it takes rows of whole vectors only.
_VECTOR = 16

current_platform.import_kernels()


def kernel_priority() -> IrOpPriorityConfig:
    """The kernels of this module first, for vLLM's engine arguments."""
    return IrOpPriorityConfig(rms_norm=[PROVIDER], fused_add_rms_norm=[PROVIDER])


def _suits_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
    return (
        variance_size is None
        and weight is not None
        and weight.dtype == x.dtype
        and x.shape[-1] % _VECTOR == 0
        and x.is_contiguous()
    )


def _suits_add_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> bool:
    return _suits_norm(x, weight, epsilon, variance_size) and x_residual.is_contiguous()


@ir.ops.rms_norm.register_impl(PROVIDER, supports_args=_suits_norm)  # type: ignore[untyped-decorator]
def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    """``x`` (..., H) over its root mean square, times ``weight`` (H,)."""
    normed = torch.empty_like(x)
    torch.ops._C.rms_norm(normed, x, weight, epsilon)
    return normed


@ir.ops.fused_add_rms_norm.register_impl(  # type: ignore[untyped-decorator]
    PROVIDER, supports_args=_suits_add_norm, inplace=True
)
def fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """``rms_norm`` of the sum of ``x`` and ``x_residual``, and the sum; both arguments are overwritten."""
    torch.ops._C.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual


@SiluAndMul.register_oot(name="SiluAndMul")
class FusedSiluAndMul(SiluAndMul):  # type: ignore[misc]
    """SiLU of the first half of a row times its second half."""

    def forward_cpu(self, x: Tensor) -> Tensor:
        """(..., 2 D) to (..., D)."""
        size = x.shape[-1] // 2
        if size % _VECTOR or not x.is_contiguous():
            native: Tensor = self.forward_native(x)
            return native
        product = torch.empty(*x.shape[:-1], size, dtype=x.dtype)
        torch.ops._C.silu_and_mul(product, x)
        return product
