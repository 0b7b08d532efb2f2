"""Checkpoints: a Hugging Face folder plus what is needed to go on, complete or not there at all.

    run/checkpoints/step-000010/   config.json, model.safetensors, tokenizer files: from_pretrained loads it
                                   trainer.pt   optimiser moments, random state
                                   state.json   step, policy version, and the size of every other file

With ``lora.enabled`` the first are adapter_config.json and adapter_model.safetensors, in PEFT's layout, which
name the base model; from_pretrained loads that too.

A folder is written under a temporary name, flushed to disk and renamed; state.json is written last. Knows
nothing of what a trainer's state means.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.host.files import KEPT_FOR, flush, let_others_read, read_object

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


STATE_FILE = "state.json"
_OF_MODEL = (STATE_FILE, "config.json", "adapter_config.json")
TRAINER_FILE = "trainer.pt"
_NAME = re.compile(r"step-(\d+)")
_TEMPORARY = ".partial-"

_log = logging.getLogger(__name__)


def save_checkpoint(
    folder: Path | str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    trainer_state: Mapping[str, object],
    extra: Mapping[str, object],
    *,
    weights: Mapping[str, Tensor] | None = None,
    adapter: Mapping[str, object] | None = None,
) -> Path:
    """Write a checkpoint to ``folder`` and return it; weights keep the model's dtype (fp32 masters).

    ``trainer_state`` goes to trainer.pt (tensors and plain values), ``extra`` to state.json (JSON values; it
    must have an integer ``step``). ``weights`` are those of ``model`` where it does not hold them whole. With
    ``adapter``, which adapter_config.json shall hold, they are an adapter's and are all that is written of
    the model. An earlier checkpoint of that name is replaced only once the new one is whole. Raises OSError
    naming the folder when the disk is full; nothing partial is left then.
    """
    import torch

    from pipeline.models.merging import write_adapter_files

    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Of a trainer that was killed while it wrote: each is as large as a checkpoint.
    for left in folder.parent.glob(f"{_TEMPORARY}{folder.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    partial = folder.parent / f"{_TEMPORARY}{folder.name}-{uuid.uuid4().hex[:8]}"
    partial.mkdir()
    try:
        if adapter is not None:
            assert weights is not None
            write_adapter_files(partial, adapter, weights)
        else:
            model.save_pretrained(str(partial), state_dict=None if weights is None else dict(weights))
        tokenizer.save_pretrained(str(partial))
        let_others_read(partial)
        torch.save(dict(trainer_state), partial / TRAINER_FILE)
        sizes = {str(path.relative_to(partial)): path.stat().st_size for path in _files(partial)}
        (partial / STATE_FILE).write_text(json.dumps({**extra, "files": sizes}, indent=1))
        for path in [*_files(partial), partial]:
            flush(path)
        _replace(partial, folder)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if (reason := _write_fault(error)) is not None:
            raise OSError(f"checkpoint {folder} could not be written: {reason}") from error
        raise
    return folder


def _write_fault(error: BaseException) -> str | None:
    """Why a file could not be written, where that is what ``error`` means; else None.

    safetensors and torch have errors of their own for a full disk, and torch's does not say so.
    """
    from safetensors import SafetensorError

    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, RuntimeError) and "inline_container" in str(error):
        return "torch.save could not write all of it; is the disk full?"
    return str(error) if isinstance(error, SafetensorError) else None


def load_state(folder: Path | str, *, is_mapped: bool = False) -> tuple[dict[str, object], dict[str, object]]:
    """``(trainer_state, extra)`` of the checkpoint in ``folder``; tensors on the CPU.

    ``is_mapped`` leaves them in the file until they are read: for one of several ranks, which takes a part.
    Raises ValueError when the checkpoint is not whole.
    """
    folder = Path(folder)
    fault = find_fault(folder)
    if fault is not None:
        raise ValueError(f"checkpoint {folder}: {fault}")
    import torch

    trainer_state = torch.load(folder / TRAINER_FILE, map_location="cpu", weights_only=True, mmap=is_mapped)
    extra = json.loads((folder / STATE_FILE).read_text())
    del extra["files"]
    return trainer_state, extra


def find_fault(folder: Path) -> str | None:
    """Why the checkpoint in ``folder`` cannot be used, or None: every file there, with the size it had."""
    if not (folder / STATE_FILE).exists():
        return f"{STATE_FILE} is missing"
    try:
        state = read_object(folder / STATE_FILE)
    except ValueError as error:
        return f"{STATE_FILE} is damaged ({str(error).removeprefix(f'{folder / STATE_FILE}: ')})"
    sizes = state.get("files")
    for field, value in (("step", state.get("step")), ("policy_version", state.get("policy_version", 0))):
        if type(value) is not int or value < 0:
            return f"{STATE_FILE} is damaged (field {field!r} is {value!r}, not a whole number >= 0)"
    if not isinstance(sizes, dict) or not sizes:
        return f"{STATE_FILE} is damaged (field 'files' names no file and its size)"
    for name, size in sizes.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, expected {size}"
    return None


def latest_checkpoint(
    run_dir: Path,
    committed: Collection[str] | None = None,
    tell: Callable[[str], None] = _log.warning,
) -> Path | None:
    """The newest whole checkpoint of a run, or None; ``tell`` hears of each that is passed over, and why.

    ``committed`` names those whose step the ledger knows. Another one was written by a process that was
    killed before it could commit that step, or before the run went back behind it: it is of no step of
    this run.
    """
    for folder in reversed(_checkpoints(run_dir)):
        fault = find_fault(folder)
        if fault is None and committed is not None and folder.name not in committed:
            fault = "run.db knows of no step that ended with it"
        if fault is None:
            return folder
        tell(f"checkpoint {folder} is passed over: {fault}")
    return None


def find_faults(run_dir: Path) -> dict[str, str | None]:
    """What is wrong with each checkpoint of a run, by its name, oldest first; None for a whole one."""
    return {folder.name: find_fault(folder) for folder in _checkpoints(run_dir)}


def prune_checkpoints(
    run_dir: Path, save_total_limit: int, newest_step: int, committed: Collection[str] | None = None
) -> None:
    """Keep the newest ``save_total_limit`` whole checkpoints up to ``newest_step``; remove older ones.

    What lies above ``newest_step``, the run's last one, or is not ``committed`` (see above), is of steps that
    were lost: it takes the place of none that is kept. A damaged folder that is newer than a kept one stays:
    it may be evidence, and it does no harm. So does one that another run rests on (``keep_for``). Half-made
    folders that a crash left behind go too.
    """
    folders = [folder for folder in _checkpoints(run_dir) if step_of(folder) <= newest_step]
    known = [folder for folder in folders if committed is None or folder.name in committed]
    whole = [folder for folder in known if find_fault(folder) is None]
    if len(whole) > save_total_limit:
        oldest_kept = whole[-save_total_limit]
        for folder in folders[: folders.index(oldest_kept)]:
            remove_unless_kept(folder)
    for partial in (run_dir / "checkpoints").glob(f"{_TEMPORARY}*"):
        shutil.rmtree(partial, ignore_errors=True)


def remove_unless_kept(folder: Path) -> None:
    """Remove a checkpoint, but for one that another run rests on (``keep_for``)."""
    if not (folder / KEPT_FOR).exists():
        shutil.rmtree(folder, ignore_errors=True)


def keep_for(run_dir: Path, model: Path) -> Path | None:
    """Have the checkpoint of another run in which ``model`` lies outlast that run: ``run_dir`` rests on it.

    A run begins with its base again when it is resumed, and adapters are nothing without theirs. Returns the
    checkpoint; None where the model lies in none, or its folder takes no note.
    """
    for folder in (model, *model.parents):
        is_own = folder.parent == (run_dir / "checkpoints").resolve()
        # By its files, of which the baseline's have no state: the checkpoints' folder may be a link.
        is_checkpoint = _NAME.fullmatch(folder.name) and any((folder / name).is_file() for name in _OF_MODEL)
        if is_checkpoint and not is_own:
            try:
                with (folder / KEPT_FOR).open("a+", encoding="utf-8") as file:
                    file.seek(0)
                    if str(run_dir.resolve()) not in file.read().splitlines():
                        file.write(f"{run_dir.resolve()}\n")
            except OSError:
                return None
            return folder
    return None


def _checkpoints(run_dir: Path) -> list[Path]:
    """Checkpoint folders of a run, oldest first, whole or not."""
    parent = run_dir / "checkpoints"
    if not parent.is_dir():
        return []
    return sorted((path for path in parent.iterdir() if _NAME.fullmatch(path.name)), key=step_of)


def step_of(folder: Path) -> int:
    """The step whose checkpoint lies, or would lie, in ``folder``."""
    match = _NAME.fullmatch(folder.name)
    assert match is not None
    return int(match[1])


def _replace(partial: Path, folder: Path) -> None:
    """Put ``partial`` in the place of ``folder``; a rename cannot replace a folder that is not empty."""
    retired = None
    if folder.exists():
        retired = folder.parent / f"{_TEMPORARY}retired-{uuid.uuid4().hex[:8]}"
        os.replace(folder, retired)
    os.replace(partial, folder)
    flush(folder.parent)
    if retired is not None:
        shutil.rmtree(retired, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
