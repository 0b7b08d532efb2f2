from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.host.files import files_digest
from pipeline.record.checkpoints import (
    find_fault,
    keep_for,
    latest_checkpoint,
    load_state,
    prune_checkpoints,
    save_checkpoint,
)
from tests.pipeline.tiny_model import make_model, make_tokenizer


def save(run: Path, step: int, seed: int = 0) -> Path:
    folder = run / "checkpoints" / f"step-{step:06d}"
    state = {"optimizer": {"moment": torch.full((3,), float(step))}}
    return save_checkpoint(folder, make_model(seed), make_tokenizer(), state, {"step": step})


def test_a_checkpoint_is_a_hugging_face_folder_with_the_trainers_state(tmp_path: Path) -> None:
    folder = save(tmp_path, 3)
    model = AutoModelForCausalLM.from_pretrained(str(folder))
    for name, value in make_model().state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=0)
    assert AutoTokenizer.from_pretrained(str(folder)).eos_token == "<eos>"
    state, extra = load_state(folder)
    assert extra == {"step": 3}
    mapped, _ = load_state(folder, is_mapped=True)
    for found in (state, mapped):
        assert torch.equal(found["optimizer"]["moment"], torch.full((3,), 3.0))  # type: ignore[index]
    # What is written into it is written into no file.
    mapped["optimizer"]["moment"].zero_()  # type: ignore[index]
    again, _ = load_state(folder)
    assert torch.equal(again["optimizer"]["moment"], torch.full((3,), 3.0))  # type: ignore[index]
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_the_latest_whole_checkpoint_wins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert latest_checkpoint(tmp_path) is None
    good, cut, lost = save(tmp_path, 2), save(tmp_path, 10), save(tmp_path, 11)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    (lost / "trainer.pt").unlink()
    assert latest_checkpoint(tmp_path) == good
    assert "model.safetensors has" in caplog.text
    assert "trainer.pt is missing" in caplog.text
    with pytest.raises(ValueError, match=r"trainer\.pt is missing"):
        load_state(lost)


def test_a_damaged_state_file_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    (folder / "state.json").write_text('{"step": 1, "fil')
    assert "damaged" in str(find_fault(folder))
    (folder / "state.json").unlink()
    assert "missing" in str(find_fault(folder))


def test_pruning_keeps_the_newest_whole_ones_and_clears_leftovers(tmp_path: Path) -> None:
    folders = [save(tmp_path, step) for step in (1, 2, 3, 4)]
    (folders[3] / "trainer.pt").unlink()
    (tmp_path / "checkpoints" / ".partial-step-000005-dead").mkdir()
    prune_checkpoints(tmp_path, 2, newest_step=4)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-000002", "step-000003", "step-000004"]


def test_a_checkpoint_that_another_run_began_with_outlasts_its_own(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    base, later, newest = (save(first, step) for step in (1, 2, 3))
    (base / "merged").mkdir()
    assert keep_for(second, base / "merged") == keep_for(second, base) == base
    assert (base / "kept_for").read_text() == f"{second.resolve()}\n"
    assert keep_for(first, later) is keep_for(second, tmp_path / "model") is None
    assert find_fault(base) is None
    prune_checkpoints(first, 1, newest_step=3)
    assert (base / "merged").is_dir() and not later.exists() and newest.exists()


def test_a_base_is_kept_also_where_its_checkpoints_are_a_link_to_another_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    base, newest = save(first, 1), save(first, 2)
    (first / "checkpoints").rename(tmp_path / "elsewhere")
    (first / "checkpoints").symlink_to(tmp_path / "elsewhere")
    assert keep_for(second, base.resolve()) == tmp_path / "elsewhere" / base.name
    prune_checkpoints(first, 1, newest_step=2)
    assert base.exists() and newest.exists()


def test_a_note_beside_a_model_makes_no_other_model_of_it(tmp_path: Path) -> None:
    base = save(tmp_path / "first", 1)
    before = files_digest(base)
    keep_for(tmp_path / "second", base)
    (base / "merged.lock").write_text("7\n")
    assert files_digest(base) == before
    (base / "model.safetensors").touch()
    assert files_digest(base) != before


def test_checkpoints_of_lost_steps_are_no_ones_and_take_no_place(tmp_path: Path) -> None:
    """The process was killed between saving step 9 and committing it; it goes on from step 3."""
    older, good, lost = save(tmp_path, 2), save(tmp_path, 3), save(tmp_path, 9)
    told: list[str] = []
    assert latest_checkpoint(tmp_path, {"step-000002", "step-000003"}, told.append) == good
    assert told == [f"checkpoint {lost} is passed over: run.db knows of no step that ended with it"]
    prune_checkpoints(tmp_path, 1, newest_step=3)
    assert not older.exists() and good.exists() and lost.exists()


def test_a_checkpoint_that_the_ledger_does_not_know_takes_no_place(tmp_path: Path) -> None:
    """Step 3 was lost: the run went back to step 2, and saves every other step now."""
    oldest, good, lost, newest = (save(tmp_path, step) for step in (1, 2, 3, 4))
    prune_checkpoints(tmp_path, 2, 4, committed={"step-000001", "step-000002", "step-000004"})
    assert not oldest.exists() and good.exists() and lost.exists() and newest.exists()
    prune_checkpoints(tmp_path, 1, 4, committed={"step-000002", "step-000004"})
    assert not good.exists() and not lost.exists() and newest.exists()


def test_saving_a_step_again_replaces_it_whole(tmp_path: Path) -> None:
    save(tmp_path, 1, seed=0)
    folder = save(tmp_path, 1, seed=7)
    model = AutoModelForCausalLM.from_pretrained(str(folder))
    name = "model.embed_tokens.weight"
    assert torch.equal(model.state_dict()[name], make_model(7).state_dict()[name])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_partial(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    with pytest.raises(OSError, match="could not be written: No space left"):
        save_checkpoint(folder, make_model(), FullDisk(), {}, {"step": 1})  # type: ignore[arg-type]
    assert find_fault(folder) is None
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


def test_a_disk_that_is_full_in_the_middle_of_the_optimisers_state_is_told_as_that(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "step-000002"
    state = {"moments": torch.zeros(1_000_000)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    try:
        with pytest.raises(OSError, match=r"step-000002 could not be written: .*is the disk full\?"):
            save_checkpoint(folder, make_model(), make_tokenizer(), state, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(folder.parent.iterdir())


class FullDisk:
    """Stands where the tokenizer does, and fails as a full disk would."""

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "half.json").write_text("{")
        raise OSError(errno.ENOSPC, "No space left on device")
