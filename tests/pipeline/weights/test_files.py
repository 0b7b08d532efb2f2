from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.models.merging import read_adapter
from pipeline.weights.files import remove_weights, shared_folder, write_adapter, write_weights


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let the kernel refuse files that grow beyond ``num_bytes``, as a full file system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_weights_are_read_back_in_the_asked_dtype(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    update = write_weights([("a", weight), ("b", weight.T + 1)], str(path), 7, torch.bfloat16)
    loaded = load_file(path)
    assert loaded["a"].dtype is torch.bfloat16
    assert torch.equal(loaded["a"].float(), weight)
    assert torch.equal(loaded["b"].float(), weight.T + 1)
    assert (update.policy_version, update.path) == (7, str(path))
    write_weights([("a", weight)], str(path), 8, torch.float32)
    assert load_file(path)["a"].dtype is torch.float32


def test_tensors_made_on_the_way_are_each_written_with_their_own_values(tmp_path: Path) -> None:
    """Merged adapters are made one by one; a freed one's address may be given to the next."""
    layers = ((f"layer{index}", torch.full((64, 64), float(index))) for index in range(8))
    write_weights(layers, str(tmp_path / "w"), 1, torch.bfloat16)
    loaded = load_file(tmp_path / "w")
    assert [loaded[f"layer{index}"][0, 0].item() for index in range(8)] == list(range(8))


def test_a_full_file_system_is_reported_with_folder_and_bytes_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "w"
    write_weights([("a", torch.ones(2))], str(path), 1, torch.bfloat16)
    before = path.read_bytes()
    with (
        largest_file(100_000),
        pytest.raises(OSError, match=rf"cannot write 400000 bytes of weights to {tmp_path}: .*too large"),
    ):
        write_weights([("a", torch.ones(200_000))], str(path), 2, torch.bfloat16)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["w"], "no temporary file is left"


def test_a_folder_that_is_gone_is_reported_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"cannot write 4 bytes of weights to {tmp_path / 'gone'}"):
        write_weights([("a", torch.ones(2))], str(tmp_path / "gone" / "w"), 1, torch.bfloat16)


def test_a_name_that_cannot_be_replaced_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    with pytest.raises(OSError, match="cannot write 4 bytes"):
        write_weights([("a", torch.ones(2))], str(tmp_path / "w"), 1, torch.bfloat16)
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_the_shared_folder_is_of_this_run_and_closed_to_others() -> None:
    with shared_folder("test-run-of-weights") as folder, shared_folder("other-run-of-weights") as other:
        assert "test-run-of-weights" in folder.parent.name
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        assert folder != other
        (folder / "weights.safetensors").touch()
    assert not folder.parent.exists() and not other.parent.exists()


_OWNER = """
import time
from pipeline.weights.files import shared_folder

with shared_folder("test-run-of-weights") as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


def test_the_folder_that_a_killed_run_left_is_removed_by_the_next_and_a_living_ones_stays() -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        # A process of another container has a number that means nothing here.
        elsewhere = folder.parent.with_name(folder.parent.name.replace(f"-{owner.pid}", f"-{2**22 + 1}"))
        folder.parent.rename(elsewhere)
        with shared_folder("other-run-of-weights"):
            assert elsewhere.exists()
        owner.kill()
        owner.wait()
        with shared_folder("other-run-of-weights") as other:
            assert not elsewhere.exists()
            assert other.exists()


ADAPTER = {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "base_model_name_or_path": "base"}
FACTORS = [
    ("base_model.model.up.lora_A.weight", torch.ones(2, 3)),
    ("base_model.model.up.lora_B.weight", torch.ones(4, 2)),
]


def test_an_adapter_is_published_whole_in_pefts_layout_and_removed_again(tmp_path: Path) -> None:
    update = write_adapter(FACTORS, ADAPTER, str(tmp_path / "adapter"), 3, torch.bfloat16)
    assert (update.kind, update.policy_version) == ("adapter", 3)
    adapter = read_adapter(update.path)
    assert (adapter.base, adapter.scale, list(adapter.factors)) == ("base", 4.0, ["up.weight"])
    assert adapter.factors["up.weight"][0].dtype is torch.bfloat16
    merged = adapter.merged("up.weight", torch.zeros(4, 3), torch.float32)
    torch.testing.assert_close(merged, torch.full((4, 3), 8.0))
    assert [path.name for path in tmp_path.iterdir()] == ["adapter"]
    full = write_weights([("a", torch.ones(2))], str(tmp_path / "w"), 4, torch.bfloat16)
    for written in (update, full, update, full):
        remove_weights(written)
    assert not list(tmp_path.iterdir())


def test_an_adapter_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    large = [(name, value.repeat(1, 100_000)) for name, value in FACTORS]
    with (
        largest_file(10_000),
        pytest.raises(OSError, match=rf"cannot write 2800000 bytes of weights to {tmp_path}: .*too large"),
    ):
        write_adapter(large, ADAPTER, str(tmp_path / "adapter"), 1, torch.bfloat16)
    assert not list(tmp_path.iterdir())
