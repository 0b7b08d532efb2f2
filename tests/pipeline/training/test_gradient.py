from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pipeline.training.gradient import is_out_of_memory
from pipeline.training.ranks import Ranks
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_samples
from tests.pipeline.training.builders import (
    GROUP_ADVANTAGES,
    GROUP_LENGTHS,
    PADDED,
    FaultyAllocator,
    gpu_fault,
    relative_error,
)

pytestmark = pytest.mark.slow

PACKED: Mapping[str, object] = {"token_packing": {"enabled": True, "max_tokens": 64}}


def cpu_fault() -> Exception:
    return RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")


def make_trainer(folder: Path, layout: Mapping[str, object], **training: object) -> Trainer:
    sizes = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    config = make_config(training={**sizes, **training}, grpo={"loss_type": "bnpo"}, acceleration=layout)
    return Trainer(config, folder)


@pytest.mark.parametrize("layout", [PADDED, PACKED], ids=["padded", "packed"])
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("fault", [gpu_fault, cpu_fault])
@pytest.mark.parametrize("bf16", [False, True])
def test_a_step_that_runs_out_of_memory_goes_on_in_smaller_parts_with_the_same_gradient(
    folder: Path,
    layout: Mapping[str, object],
    where: str,
    fault: Callable[[], Exception],
    bf16: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch = make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES)
    expected_loss, expected = make_trainer(folder, layout).gradients(batch)
    trainer = make_trainer(folder, layout, bf16=bf16)
    allocator = FaultyAllocator(trainer, 40, where, fault)
    with caplog.at_level(logging.WARNING):
        loss, gradients = trainer.gradients(batch)
    if bf16:
        assert loss == pytest.approx(expected_loss, rel=0.1)
    else:
        assert loss == pytest.approx(expected_loss, rel=1e-5)
        assert relative_error(gradients, expected) < 1e-5
    num_failures = sum(size > 40 for size in allocator.sizes)
    assert 1 <= num_failures == len(caplog.records)
    assert "does not fit into memory" in caplog.text
    allocator.sizes.clear()
    trainer.step(batch)
    assert allocator.sizes and max(allocator.sizes) <= 40


@pytest.mark.parametrize("layout", [PADDED, PACKED], ids=["padded", "packed"])
def test_a_sequence_that_is_too_long_for_the_memory_is_named(
    folder: Path, layout: Mapping[str, object]
) -> None:
    trainer = make_trainer(folder, layout)
    FaultyAllocator(trainer, 10, "forward")
    with pytest.raises(MemoryError, match=r"step 1: .*one sequence of 16 tokens.*max_completion_length"):
        trainer.step(make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES))


def test_one_sequence_that_is_too_long_is_tried_with_activations_computed_anew(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batch = make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES)
    _, expected = make_trainer(folder, PACKED).gradients(batch)
    trainer = make_trainer(folder, PACKED)
    compute_model = trainer._weights.compute_model

    def fail(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if not compute_model.is_gradient_checkpointing:
            raise gpu_fault()

    compute_model.model.layers[0].register_forward_hook(fail)
    with caplog.at_level(logging.WARNING):
        _, gradients = trainer.gradients(batch)
    assert relative_error(gradients, expected) < 1e-5
    assert trainer._gradient.limit.checkpoints
    assert "computed anew in the backward" in caplog.text


def test_a_fixed_size_is_not_changed_and_the_setting_is_named(folder: Path) -> None:
    trainer = make_trainer(folder, PADDED, memory="fixed")
    FaultyAllocator(trainer, 40, "forward")
    with pytest.raises(MemoryError, match=r"8 sequences.*per_device_train_batch_size.*memory: auto"):
        trainer.step(make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES))


def test_several_ranks_are_not_told_to_set_what_is_set(folder: Path) -> None:
    class Two(Ranks):
        num_ranks = 2

    config = make_config(training={"memory": "auto"}, acceleration=PADDED)
    trainer = Trainer(config, folder, ranks=Two())
    FaultyAllocator(trainer, 40, "forward")
    with pytest.raises(MemoryError, match=r"per_device_train_batch_size") as caught:
        trainer.step(make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES))
    assert "auto" not in str(caught.value)


def test_other_errors_end_the_step(folder: Path) -> None:
    trainer = make_trainer(folder, PADDED)
    allocator = FaultyAllocator(trainer, 40, "forward", lambda: RuntimeError("illegal memory access"))
    with pytest.raises(RuntimeError, match="illegal"):
        trainer.step(make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES))
    assert len(allocator.sizes) == 1


def test_the_allocator_of_the_cpu_fails_as_expected() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("illegal memory access"))


@pytest.mark.gpu
def test_a_full_gpu_is_survived(folder: Path) -> None:
    batch = make_samples(GROUP_LENGTHS, GROUP_ADVANTAGES)
    _, expected = Trainer(make_config(acceleration=PADDED), folder, "cuda").gradients(batch)
    trainer = Trainer(make_config(acceleration=PADDED), folder, "cuda")
    layer = trainer._weights.compute_model.model.layers[0]
    shapes: list[int] = []

    def allocate(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        shapes.append(inputs[0].shape[0])
        if inputs[0].shape[0] > 2:
            torch.empty(2**44, dtype=torch.uint8, device="cuda")

    layer.register_forward_pre_hook(allocate)
    _, gradients = trainer.gradients(batch)
    assert shapes[0] == 4 and set(shapes[1:]) == {2}
    for name, value in expected.items():
        torch.testing.assert_close(gradients[name], value, atol=1e-5, rtol=1e-4, msg=name)
