"""Find a model by name.

A name is a built-in model (pipeline.models.packaged), a local folder, or a hub id; each resolves to one local
folder, so that every process of a run reads the same files. One that is there already is found without the
model's libraries, which an attached run would wait for longer than for its first rollout. A folder with an
adapter resolves to its base model with the adapter merged. Does not load it (pipeline.models.loading).
"""

from __future__ import annotations

import hashlib
import re
import shutil
from contextlib import suppress
from pathlib import Path

from configs.errors import nearest
from configs.schema import Config, ModelConfig
from pipeline.errors import in_short
from pipeline.host.files import LOCK_TIMEOUT_S, MERGE_LOCK, cache_root, locked
from pipeline.models.files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    check_adapter,
    check_model,
    is_adapter_folder,
)
from pipeline.models.packaged import BUILT_IN, packaged_folder

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)
# In a merged model's folder: the digest of the adapter that it was made of.
_ORIGIN = "merged_from"


def resolve_model(model: ModelConfig) -> Path:
    """The local folder, in Hugging Face layout, that ``model`` names; fetched or merged once if need be.

    Raises ValueError when the name is a folder without ``config.json``, or when the model can be had
    neither from the network nor from the cache, or is not the one expected; TimeoutError when another process
    holds the cache's lock for longer than ``LOCK_TIMEOUT_S``.
    """
    if model.name in BUILT_IN:
        return packaged_folder(BUILT_IN[model.name])
    folder = Path(model.name).expanduser()
    if folder.is_dir():
        if is_adapter_folder(folder):
            return _merged(folder.resolve())
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"model.name: folder {str(folder)!r} has no config.json; give a folder in Hugging Face layout"
            )
        return folder.resolve()
    if _is_path(model.name):
        raise ValueError(f"model.name: no such folder: {model.name!r}")
    return _from_hub(model)


def _is_path(name: str) -> bool:
    """Whether ``name`` can only be meant as a folder."""
    return name.startswith((".", "/", "~")) or _HUB_ID.fullmatch(name) is None


def refuse_damaged_model(name: str, field: str = "model.name") -> None:
    """Raise ValueError, as 'FIELD: FILE: what is wrong', where ``name`` is a folder that cannot be loaded.

    Also for a path that is no folder, and a built-in model's name misspelt. Names of the hub are not looked
    at.
    """
    folder = Path(name).expanduser()
    if name in BUILT_IN:
        return
    if not folder.is_dir():
        if folder.is_file():
            raise ValueError(f"{field}: {name!r} is a file; give the folder in Hugging Face layout")
        if _is_path(name):
            raise ValueError(f"{field}: no such folder: {name!r}")
        guess = None if "/" in name else nearest(name, BUILT_IN)
        if guess is not None:
            raise ValueError(f"{field}: no model {name!r} is built in, and no folder; did you mean {guess}?")
        return
    try:
        if is_adapter_folder(folder):
            check_adapter(folder)
        else:
            check_model(folder)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def path_on_this_node(model: ModelConfig, path: str) -> str:
    """``path``, the driver's folder of ``model``, where this node of a cluster has all of it; else its own.

    A snapshot of the hub is the driver's also where the hub has a newer one. Raises as ``resolve_model``.
    """
    # The folder of a download is there before its first file.
    with suppress(ValueError):
        check_model(Path(path))
        return path
    if (commit := commit_of(path)) is not None:
        model = model.model_copy(update={"revision": commit})
    return str(resolve_model(model))


def commit_of(path: str | Path) -> str | None:
    """The commit of the hub that the model's folder ``path`` is a snapshot of; None where it is none."""
    folder = Path(path)
    return folder.name if folder.parent.name == "snapshots" else None


def with_commit(config: Config, path: str) -> Config:
    """``config`` with the commit of its model, found at ``path``, where that is a snapshot of the hub.

    A branch may have moved when the run is gone on with.
    """
    model, commit = config.model, commit_of(path)
    if commit is None or Path(model.name).expanduser().is_dir():
        return config
    return config.model_copy(update={"model": model.model_copy(update={"revision": commit})})


def local_folder(model: ModelConfig) -> Path | None:
    """The folder that ``model`` names, where it lies on this machine by name; nothing is fetched."""
    kept = cache_root() / "models" / model.name
    for folder in (kept,) if model.name in BUILT_IN else (Path(model.name).expanduser(), kept):
        if (folder / "config.json").is_file():
            return folder
    return None


def absolute_name(name: str) -> str:
    """``name``, as an absolute path where it is a folder: elsewhere it would be taken for a hub id."""
    folder = Path(name).expanduser()
    return name if name in BUILT_IN or not folder.is_dir() else str(folder.absolute())


def with_absolute_models(config: Config) -> Config:
    """``config`` with the absolute names of its model and of the one that drafts."""
    model = config.model.model_copy(update={"name": absolute_name(config.model.name)})
    acceleration = config.acceleration
    if (draft := acceleration.speculative.draft_model) is not None:
        drafting = acceleration.speculative.model_copy(update={"draft_model": absolute_name(draft)})
        acceleration = acceleration.model_copy(update={"speculative": drafting})
    return config.model_copy(update={"model": model, "acceleration": acceleration})


def resolve_draft_model(config: Config) -> Path:
    """The local folder of ``acceleration.speculative.draft_model``, which must be set.

    Raises ValueError when it can be had neither from a folder nor from the hub.
    """
    name = config.acceleration.speculative.draft_model
    try:
        return resolve_model(config.model.model_copy(update={"name": name, "revision": None}))
    except ValueError as error:
        message = str(error).removeprefix("model.name: ")
        raise ValueError(f"acceleration.speculative.draft_model: {message}") from error


def adapter_base(folder: Path) -> Path:
    """The folder of the base model of the adapter in ``folder``, fetched if need be.

    Raises ValueError, naming both, where it cannot be had.
    """
    # Imported here, as below: see above.
    from pipeline.models.merging import read_adapter

    adapter = read_adapter(folder)
    # A built-in model may lie elsewhere than where the adapter was trained.
    named, is_there = Path(adapter.base).name, Path(adapter.base).is_dir()
    name = named if named in BUILT_IN and not is_there else adapter.base
    try:
        return resolve_model(ModelConfig(name=name, revision=adapter.revision))
    except ValueError as error:
        raise ValueError(f"model.name: {str(folder)!r} holds an adapter of {name!r}: {error}") from error


def _merged(folder: Path) -> Path:
    """The folder ``merged`` in an adapter's folder: its base model with the adapter added."""
    out = folder / "merged"
    if _is_current(out, folder):
        return out
    from safetensors import SafetensorError

    from pipeline.models.merging import merge_adapter

    try:
        base = adapter_base(folder)
        with locked(folder / MERGE_LOCK, timeout_s=LOCK_TIMEOUT_S):
            if not _is_current(out, folder):
                if out.exists():
                    shutil.rmtree(out)
                merge_adapter(folder, base, out)
                (out / _ORIGIN).write_text(_digest(folder), encoding="utf-8")
            return out
    except TimeoutError:
        raise
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"model.name: the adapter in {folder} could not be merged there ({error}); write the merged "
            f"model elsewhere with `python -m pipeline merge {folder} OUT_FOLDER`"
        ) from error


def _is_current(merged: Path, adapter: Path) -> bool:
    """Whether ``merged`` is of this adapter, which may have been trained again; without its weights it is."""
    try:
        if (origin := merged / _ORIGIN).is_file():
            return origin.read_text(encoding="utf-8") == _digest(adapter)
        newest = max((adapter / name).stat().st_mtime_ns for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS))
        return merged.is_dir() and merged.stat().st_mtime_ns >= newest
    except FileNotFoundError:
        return merged.is_dir()


def _digest(adapter: Path) -> str:
    # Not the files' times: a copy of the folder has others.
    digest = hashlib.sha256((adapter / ADAPTER_CONFIG).read_bytes())
    with (adapter / ADAPTER_WEIGHTS).open("rb") as weights:
        hashlib.file_digest(weights, lambda: digest)
    return digest.hexdigest()


def _from_hub(model: ModelConfig) -> Path:
    from httpx import HTTPError
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(model.name, revision=model.revision))
    except (HTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        version = "" if model.revision is None else f" at model.revision {model.revision}"
        raise ValueError(
            f"model.name: {model.name!r} is no local folder and could not be had from the hub{version} "
            f"({type(error).__name__}: {in_short(error)}); give {' or '.join(BUILT_IN)}, a folder "
            "in Hugging Face layout, or a hub id that this machine can reach"
        ) from error
    if is_adapter_folder(found):
        raise ValueError(
            f"model.name: {model.name!r} is an adapter: fetch it into a folder of yours, and give that "
            f"(hf download {model.name} --local-dir FOLDER)"
        )
    return found
