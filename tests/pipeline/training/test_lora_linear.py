"""The adapted layer in few passes against PEFT's own: output, gradients, and when PEFT's own runs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import peft
import pytest
import torch
from peft.tuners import lora
from torch import Tensor, nn

from pipeline.training import adapters
from pipeline.training.adapters import LoraLinear, _AdaptedProduct

INPUTS, OUTPUTS = 24, 40


def make_layer(
    kind: type[lora.Linear], *, bias: bool, dtype: torch.dtype, dropout: float = 0.0
) -> lora.Linear:
    """The same at every call, with an adapter that is not zero."""
    torch.manual_seed(3)
    settings = peft.LoraConfig(r=4, lora_alpha=6, lora_dropout=dropout)
    base = nn.Linear(INPUTS, OUTPUTS, bias=bias).requires_grad_(False)
    layer = kind(base, "default", config=settings, r=4, lora_alpha=6)
    nn.init.normal_(factors(layer)[1], std=0.1)
    return layer.to(dtype)


def factors(layer: lora.Linear) -> tuple[Tensor, Tensor]:
    """A and B."""
    return cast(Tensor, layer.lora_A["default"].weight), cast(Tensor, layer.lora_B["default"].weight)


def gradients(layer: lora.Linear, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """The output for a fixed input, and the gradients of input, A and B for a fixed one of the output."""
    random = torch.Generator().manual_seed(7)
    low, high = factors(layer)
    x = torch.randn(*shape, INPUTS, generator=random).to(low.dtype).requires_grad_()
    output = layer(x)
    to_output = torch.randn(output.shape, generator=random).to(low.dtype)
    return output, *torch.autograd.grad(output, (x, low, high), to_output)


@pytest.mark.parametrize("shape", [(2, 9), (11,), (1, 1)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
)
def test_output_and_gradients_are_those_of_pefts_layer(
    shape: Sequence[int], bias: bool, dtype: torch.dtype, error: float
) -> None:
    expected = gradients(make_layer(lora.Linear, bias=bias, dtype=dtype), shape)
    ours = gradients(make_layer(LoraLinear, bias=bias, dtype=dtype), shape)
    for one, other in zip(ours, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert (one - other).norm() <= error * other.norm()
        assert other.any()


def test_an_input_without_gradient_gets_none() -> None:
    layer = make_layer(LoraLinear, bias=True, dtype=torch.float32)
    layer(torch.ones(3, INPUTS)).sum().backward()
    assert factors(layer)[1].grad is not None
    assert layer.base_layer.weight.grad is None
    # autograd drops a gradient that nobody asked for: what counts is that none is computed.
    x, weight, low, high = torch.ones(3, 2), torch.ones(4, 2), torch.ones(1, 2), torch.ones(4, 1)
    saved = (x, weight, low, high, x @ low.t())
    for needs in (False, True):
        ctx = SimpleNamespace(saved_tensors=saved, scale=1.0, needs_input_grad=(needs,))
        to_x, *_ = inspect.unwrap(_AdaptedProduct.backward)(ctx, torch.ones(3, 4))
        assert (to_x is not None) == needs


@pytest.mark.parametrize("case", ["plain", "disabled", "dropout", "mixed"])
def test_pefts_own_forward_runs_where_the_adapter_is_not_plain(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    class Recorded(_AdaptedProduct):
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Tensor:
            used.append(case)
            return _AdaptedProduct.forward(ctx, *values)

    monkeypatch.setattr(adapters, "_AdaptedProduct", Recorded)
    dropout = 0.5 if case == "dropout" else 0.0
    ours, peft_own = (
        make_layer(kind, bias=True, dtype=torch.float32, dropout=dropout)
        for kind in (LoraLinear, lora.Linear)
    )
    for layer in (ours, peft_own):
        layer.enable_adapters(case != "disabled")
        if case == "mixed":
            layer.base_layer.to(torch.bfloat16)
    x = torch.randn(5, INPUTS, generator=torch.Generator().manual_seed(1))
    x = x.bfloat16() if case == "mixed" else x
    outputs = []
    for layer in (ours, peft_own):
        torch.manual_seed(0)
        outputs.append(layer(x))
    torch.testing.assert_close(*outputs)
    assert bool(used) == (case == "plain")
