"""A frozen linear layer and its adapter as one step forward and one backward.

PEFT's own layer adds the scaled output of the adapter in passes of their own over a tensor as large as the
layer's output; so does autograd with the two gradients of the input. Here both are added by the product that
makes them. Does not know the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from peft.tuners import lora
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LoraLinear(lora.Linear):
    """PEFT's layer with an adapter, in fewer passes wherever the adapter is the plain one.

    Within a forward without the adapter, with dropout, or of mixed precisions, it is PEFT's own.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The layer's output, [..., outputs], of ``x``, [..., inputs]."""
        (name,) = self.active_adapters
        low, high = self.lora_A[name].weight, self.lora_B[name].weight
        base = cast(nn.Linear, self.base_layer)
        one_precision = x.dtype == low.dtype == base.weight.dtype
        has_dropout = not isinstance(self.lora_dropout[name], nn.Identity)
        if self.disable_adapters or has_dropout or not one_precision:
            return super().forward(x, *args, **kwargs)
        apply = cast(Callable[..., Tensor], _AdaptedProduct.apply)
        flat = apply(x.flatten(end_dim=-2), base.weight, base.bias, low, high, self.scaling[name])
        return flat.view(*x.shape[:-1], -1)


class _AdaptedProduct(torch.autograd.Function):
    """``x W' + b + scale (x A') B'`` of x, [tokens, inputs]; W and b are frozen, A and B get a gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, low: Tensor, high: Tensor, scale: float
    ) -> Tensor:
        inner = x @ low.t()
        ctx.save_for_backward(x, weight, low, high, inner)
        ctx.scale = scale
        return nn.functional.linear(x, weight, bias).addmm_(inner, high.t(), alpha=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, low, high, inner = ctx.saved_tensors
        to_inner = (gradient @ high).mul_(ctx.scale)
        to_x = (gradient @ weight).addmm_(to_inner, low) if ctx.needs_input_grad[0] else None
        return to_x, None, None, to_inner.t() @ x, (gradient.t() @ inner).mul_(ctx.scale), None
