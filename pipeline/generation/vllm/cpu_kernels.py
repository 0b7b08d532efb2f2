"""Products and layers that vLLM's CPU build has kernels for and does not use by itself.

vLLM's CPU build has fused kernels for RMS normalisation and the gated activation, but leaves these layers to
torch.compile; in eager mode each of them is then up to eight operations, and every one of them wakes all
threads. They go in through vLLM's own ways of adding kernels. Importing this module registers them;
pipeline.generation.vllm.engine imports it on a CPU and asks for ``PROVIDER`` first.

Rollouts in 8 bits: vLLM 0.31 has the kernel for products in int8 (oneDNN's), but takes it only for
checkpoints that are in int8 already. Here weights are quantised when they are loaded, at the start and at
each update: symmetrically, with a scale for each row of a matrix and, when they come, for each token's
activations (W8A8, as in arXiv:2206.01861). Embedding, output head and norms stay as they are. An update may
leave it out, for a model that does not bear it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm import _custom_ops as ops
from vllm import ir
from vllm.config.kernel import IrOpPriorityConfig
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.linear import LinearBase, LinearMethodBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.platforms import current_platform

PROVIDER = "code_grpo_cpu"
# Elements that a kernel handles at once; it takes rows of whole vectors only.
_VECTOR = 16

current_platform.import_kernels()
INT8 = "int8"
# Shapes of inputs for which a matrix keeps its compiled kernel; vLLM's own number for this kernel.
_NUM_KEPT = 32
_COPIES = ("int8_kernel", "int8_scales", "cpu_linear")


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


@register_quantization_config(INT8)
class Int8Config(QuantizationConfig):  # type: ignore[misc]
    """What vLLM asks when ``quantization`` is ``INT8``."""

    @classmethod
    def get_name(cls) -> str:
        """The word for it."""
        return INT8

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        """What goes into a layer and comes out of it."""
        return [torch.bfloat16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        """Of a GPU; this is for none."""
        return 0

    @classmethod
    def get_config_filenames(cls) -> list[str]:
        """Nothing in a checkpoint says how it is done."""
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Int8Config:
        """There is nothing to choose."""
        return cls()

    def get_quant_method(self, layer: nn.Module, prefix: str) -> LinearMethodBase | None:
        """Linear layers are quantised."""
        return Int8LinearMethod() if isinstance(layer, LinearBase) else None


class Int8LinearMethod(LinearMethodBase):  # type: ignore[misc]
    """Products of a layer (N, K) in int8."""

    create_weights = UnquantizedLinearMethod.create_weights

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Quantise what was loaded; the kernel packs it, and the 16-bit weights go."""
        weight: Any = layer.weight
        # Rows of weights, as those of activations below. The kernel keeps pointers to the scales.
        quantised, layer.int8_scales, _ = ops.onednn_scaled_int8_quant(weight.data, None, None, True)
        layer.int8_kernel = ops.create_onednn_scaled_mm(
            quantised.t(), layer.int8_scales, weight.dtype, True, False, _NUM_KEPT
        )
        layer.weight = nn.Parameter(torch.empty(0, dtype=weight.dtype), requires_grad=False)

    def apply(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x`` (..., K) to (..., N)."""
        rows = x.reshape(-1, x.shape[-1])
        kernel: Any = layer.int8_kernel
        quantised, scales, _ = ops.onednn_scaled_int8_quant(rows, None, None, True)
        product = torch.empty((len(rows), kernel.n), dtype=x.dtype)
        ops.onednn_scaled_mm(kernel, quantised, product, scales, None, None, bias)
        return product.reshape(*x.shape[:-1], kernel.n)


def choose(model: nn.Module, is_quantised: bool) -> bool:
    """What is loaded next into the layers of ``model`` stays in 16 bits, or does not.

    Returns whether that is another choice than before: all layers have to be loaded then.
    """
    is_new = False
    for layer in model.modules():
        if isinstance(layer, LinearBase) and isinstance(layer.quant_method, Int8LinearMethod) != is_quantised:
            is_new = True
            layer.quant_method = Int8LinearMethod() if is_quantised else UnquantizedLinearMethod()
            # The copies of the weights that the other kind computes with.
            for name in _COPIES:
                layer.__dict__.pop(name, None)
    return is_new
