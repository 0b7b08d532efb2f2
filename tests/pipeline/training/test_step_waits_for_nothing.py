from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_samples, save_byte_model
from tests.pipeline.training.builders import ADVANTAGES, LENGTHS, PADDED

# Operators whose result the host must know before it can go on.
WAITING_OPERATORS = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "masked_select", "equal"}
# Methods that read without an operator where the tensor is on a CPU already.
WAITING_METHODS = {"tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__"}


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, seen: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in WAITING_OPERATORS or _counts_a_mask(name, args):
            self._seen.append(name)
        return func(*args, **(kwargs or {}))


def _counts_a_mask(name: str, args: Any) -> bool:
    """Whether an operator looks up how many entries of a mask are true, to know the size of its result."""
    indices = args[1] if name in {"index", "index_put", "index_put_", "_index_put_impl_"} else ()
    return any(index is not None and index.dtype == torch.bool for index in indices)


class _Methods(TorchFunctionMode):
    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in WAITING_METHODS:
            self._seen.append(name)
        return func(*args, **(kwargs or {}))


@contextmanager
def waits() -> Iterator[list[str]]:
    """Everything in the block that would make the host wait for a device."""
    seen: list[str] = []
    with _Methods(seen), _Operators(seen):
        yield seen


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.sum()),
        lambda x: bool(x.any()),
        lambda x: x[x > 0],
        lambda x: x.__setitem__(x > 0, torch.zeros(3)),
        lambda x: x.nonzero(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: torch.equal(x, x),
        lambda x: x.masked_select(x > 0),
    ],
)
def test_the_check_sees_every_way_to_wait(read: Callable[[Tensor], object]) -> None:
    with waits() as seen:
        read(torch.ones(3))
    assert seen


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("acceleration", [{}, PADDED], ids=["packed", "padded"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_step_reads_one_value_from_the_device_at_its_end(
    folder: Path, bf16: bool, acceleration: dict[str, object], beta: float
) -> None:
    config = make_config(training={"bf16": bf16}, grpo={"beta": beta}, acceleration=acceleration)
    trainer = Trainer(config, folder)
    batch = make_samples(LENGTHS, ADVANTAGES)
    trainer.step(batch)
    with waits() as seen:
        trainer.update(batch, 1e-3)
    assert seen == []
    with waits() as seen:
        trainer.step(batch)
    assert seen == ["tolist"]


@pytest.mark.gpu
@pytest.mark.parametrize("acceleration", [{}, PADDED], ids=["packed", "padded"])
def test_a_step_on_a_gpu_never_waits_for_it(tmp_path: Path, acceleration: dict[str, object]) -> None:
    # Heads of 16: no kernel for rows on a GPU takes those of the tests' usual model.
    folder = save_byte_model(tmp_path)
    trainer = Trainer(make_config(training={"bf16": True}, acceleration=acceleration), folder, "cuda")
    batch = make_samples(LENGTHS, ADVANTAGES)
    # What is made once (pinned memory, handles, compiled kernels) may wait.
    trainer.step(batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.update(batch, 1e-3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
