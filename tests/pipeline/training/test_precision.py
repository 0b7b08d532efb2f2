from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from configs.schema import TrainingConfig
from pipeline.models.loading import load_model
from pipeline.training.precision import MasterWeights, make_moments, make_optimizer, set_gpu_arithmetic
from tests.pipeline.tiny_model import make_model, save_model

IDS = torch.arange(3, 43).view(2, 20)


def add_gradient(weights: MasterWeights, value: float) -> nn.Parameter:
    """One backward that gives every element of the final norm the gradient ``value``."""
    computed: nn.Parameter = weights.compute_model.model.norm.weight
    (computed * value).sum().backward()  # type: ignore[no-untyped-call]
    return computed


def test_gradients_of_the_bf16_copy_are_summed_in_fp32() -> None:
    model = make_model()
    weights = MasterWeights(model, bf16=True)
    for value in (256.0, 0.5, 0.5):
        computed = add_gradient(weights, value)
    assert computed.dtype == torch.bfloat16 and computed.grad is None
    master = model.model.norm.weight
    assert master.grad is not None and master.grad.dtype == torch.float32
    # A sum in bf16 would have stayed at 256.
    assert master.grad.tolist() == [257.0] * master.numel()


@pytest.mark.parametrize("bf16", [True, False])
def test_a_step_begins_without_the_gradient_of_the_last_one(bf16: bool) -> None:
    model = make_model()
    weights = MasterWeights(model, bf16=bf16)
    for value in (8.0, 2.0):
        weights.clear_gradients()
        add_gradient(weights, value)
        weights.complete_gradients()
        assert model.model.norm.weight.grad is not None
        assert model.model.norm.weight.grad[0] == value
    untouched = model.model.layers[0].mlp.up_proj.weight.grad
    assert untouched is not None and not untouched.any()


def test_a_step_without_a_backward_takes_no_second_copy_of_the_gradient() -> None:
    model = make_model()
    weights = MasterWeights(model, bf16=True)
    add_gradient(weights, 8.0)
    master = model.model.norm.weight
    assert master.grad is not None
    kept = master.grad.data_ptr()
    weights.clear_gradients()
    weights.complete_gradients()
    assert master.grad is not None and master.grad.data_ptr() == kept and not master.grad.any()
    assert all(one.grad is not None and not one.grad.any() for one in weights.trained)


def test_the_copy_computes_what_a_model_loaded_in_bf16_does(tmp_path: Path) -> None:
    folder = save_model(tmp_path)
    copied = MasterWeights(load_model(folder), bf16=True).compute_model
    loaded = load_model(folder, dtype=torch.bfloat16)
    assert [buffer.dtype for buffer in copied.buffers()] == [torch.float32] * len(list(copied.buffers()))
    assert torch.equal(copied(IDS).logits, loaded(IDS).logits)


def test_frozen_parameters_have_no_master_no_gradient_and_no_optimiser_state() -> None:
    model = make_model()
    model.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj.requires_grad_(True)
    weights = MasterWeights(model, bf16=True)
    optimizer = make_optimizer(weights.trained, TrainingConfig(learning_rate=0.1))
    frozen = model.model.embed_tokens.weight
    assert frozen is weights.compute_model.model.embed_tokens.weight and frozen.dtype == torch.bfloat16
    before = [parameter.detach().clone() for parameter in model.parameters()]
    weights.clear_gradients()
    weights.compute_model(IDS).logits.float().square().mean().backward()
    weights.complete_gradients()
    assert weights.clip_gradients(1.0) > 0
    optimizer.step()
    weights.refresh()
    assert len(weights.trained) == len(optimizer.state) == 2
    for old, master, computed in zip(
        before, model.parameters(), weights.compute_model.parameters(), strict=True
    ):
        assert bool((master != old).any()) == master.requires_grad
        assert (master.grad is not None) == master.requires_grad
        assert torch.equal(computed, master.to(torch.bfloat16))


@pytest.mark.parametrize("bf16", [True, False])
def test_moments_made_at_the_start_are_those_of_the_first_step(bf16: bool) -> None:
    training = TrainingConfig(learning_rate=0.1, weight_decay=0.1)
    results: list[list[torch.Tensor]] = []
    for is_early in (False, True):
        weights = MasterWeights(make_model(), bf16=bf16)
        optimizer = make_optimizer(weights.trained, training)
        if is_early:
            make_moments(optimizer, has_sums=weights.has_sums)
            assert all("exp_avg_sq" in optimizer.state[parameter] for parameter in weights.trained)
            assert all(parameter.grad is None for parameter in weights.trained)
            assert weights.trained[0].equal(results[0][0])
        start = [parameter.detach().clone() for parameter in weights.trained]
        results.append(start)
        for value in (1.0, -3.0):
            weights.clear_gradients()
            add_gradient(weights, value)
            weights.complete_gradients()
            optimizer.step()
            weights.refresh()
        results.append([parameter.detach().clone() for parameter in weights.trained])
    late_start, late, early_start, early = results
    for expected, ours in ((late_start, early_start), (late, early)):
        assert all(torch.equal(left, right) for left, right in zip(expected, ours, strict=True))
    assert not all(torch.equal(left, right) for left, right in zip(late_start, late, strict=True))


def test_a_model_without_anything_to_train_is_refused() -> None:
    model = make_model()
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"):
        MasterWeights(model, bf16=False)


@pytest.fixture
def restored_arithmetic() -> Iterator[None]:
    precision = torch.get_float32_matmul_precision()
    flags = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = flags


@pytest.mark.usefixtures("restored_arithmetic")
@pytest.mark.parametrize(("tf32", "precision"), [(True, "high"), (False, "highest")])
def test_tf32_is_what_the_setting_says(tf32: bool, precision: str) -> None:
    set_gpu_arithmetic(tf32=tf32)
    assert torch.get_float32_matmul_precision() == precision
    assert torch.backends.cudnn.allow_tf32 is tf32
    assert torch.backends.cudnn.benchmark


@pytest.mark.gpu
@pytest.mark.usefixtures("restored_arithmetic")
def test_tf32_products_are_coarser_and_fp32_products_are_not() -> None:
    a, b = torch.randn(2, 512, 512, device="cuda").unbind()
    exact = a.double() @ b.double()
    errors = []
    for tf32 in (False, True):
        set_gpu_arithmetic(tf32=tf32)
        errors.append(float(((a @ b).double() - exact).abs().max()))
    assert errors[0] < 1e-3 and errors[0] <= errors[1] < 1.0
