"""From a run to a model that others can load: one Hugging Face folder with a model card.

    python -m pipeline hand-over runs/NAME my-model                 # then: vllm serve my-model
    python -m pipeline hand-over runs/NAME --push-to-hub OWNER/NAME
    python -m pipeline hand-over runs/NAME/checkpoints/step-000010 my-model --dtype float32
    python -m pipeline merge ADAPTER_DIR OUT_DIR [BASE_DIR]         # an adapter, without a card

The folder holds weights (bf16 unless told otherwise, an adapter merged into its base), tokenizer, generation
settings and the card, and none of the optimiser's state. It is complete or not there at all, and none that
exists is written to. Exit status 2 for what cannot be handed over, 1 where the hub does not take it. A run
itself asks ``refuse_push`` before it begins, and ``finish_run`` at its end; torch is imported to convert
weights only, since the driver of a run does without it.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.constants import is_offline_mode
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id
from safetensors import SafetensorError

from configs.command_line import make_parser, run_command
from configs.errors import ConfigError, Problem
from configs.schema import Config
from pipeline.errors import StageError, in_short
from pipeline.handover.card import TrainedModel, trained_model, write_card
from pipeline.host.files import KEPT_FOR, MERGE_LOCK, let_others_read, no_folder, read_object, written_whole
from pipeline.models.files import is_adapter_folder
from pipeline.models.find import adapter_base
from pipeline.record.checkpoints import find_fault, latest_checkpoint
from pipeline.record.ledger_tables import known_checkpoints

if TYPE_CHECKING:
    import torch

_DTYPES = ("bfloat16", "float32")
# Where the baseline saves its model.
_BASELINE_FOLDER = "final"
# What a run keeps beside a model, and nobody needs who only uses it.
_PRIVATE_FILES = ("trainer.pt", "training_args.bin", "state.json", KEPT_FOR, "merged/*", MERGE_LOCK, ".*")


def find_model_folder(place: Path) -> tuple[Path, TrainedModel]:
    """The folder of the model to hand over, and what is known of it.

    ``place`` is a run, whose newest whole checkpoint is taken, or one of its checkpoints. Raises ValueError,
    naming the folder, where there is no such model.
    """
    run, chosen = place, None
    if not (place / "config.yaml").is_file():
        # Not resolved: the folder of the checkpoints may be a link to another disk.
        chosen = Path(os.path.abspath(place))
        run = chosen.parent.parent
    if not (run / "config.yaml").is_file():
        what = "is neither a run nor a checkpoint of one" if place.is_dir() else no_folder(place)
        raise ValueError(f"{place} {what}; give runs/NAME or runs/NAME/checkpoints/step-NNNNNN")
    if chosen is None:
        final = run / "checkpoints" / _BASELINE_FOLDER
        chosen = final if final.is_dir() else latest_checkpoint(run, known_checkpoints(run / "run.db"))
        if chosen is None:
            raise ValueError(f"{run}/checkpoints: holds no whole checkpoint; let the run save one")
    if chosen.name == _BASELINE_FOLDER:
        model = trained_model(run, 0)
        return chosen, trained_model(run, model.config.training.max_steps)
    fault = find_fault(chosen) if chosen.is_dir() else no_folder(chosen)
    if fault is not None:
        raise ValueError(f"checkpoint {chosen}: {fault}")
    return chosen, trained_model(run, int(read_object(chosen / "state.json")["step"]))


def finish_run(run: Path, config: Config) -> None:
    """Write the card of a run that is over into its last checkpoint; upload the model if that is asked for.

    Raises StageError when the upload fails; the model stays where it is.
    """
    folder, model = find_model_folder(run)
    print(f"model: {folder} (card: {write_card(folder, model).name})")
    if (name := config.output.push_to_hub) is not None:
        print(f"on the hub: {_push_export(folder, model, name, is_private=config.output.hub_private)}")


def _push_export(
    folder: Path, model: TrainedModel, name: str, *, is_private: bool, dtype: str = "bfloat16"
) -> str:
    # In the run's folder: what is half-made beside the checkpoints is removed by a run that goes on.
    with tempfile.TemporaryDirectory(prefix=".export-", dir=folder.parent.parent) as work:
        return push(export(folder, Path(work) / "model", model, dtype=dtype), name, is_private=is_private)


def export(folder: Path, out: Path, model: TrainedModel, *, dtype: str = "bfloat16") -> Path:
    """Write the model in ``folder``, a checkpoint, to ``out`` with its card; returns ``out``.

    ``dtype`` is one of _DTYPES. The folder is complete or not there at all.

    Raises ValueError when ``out`` exists, or an adapter's base cannot be had; OSError, naming ``out``, when
    it cannot be written.
    """
    _refuse_taken(out)
    # Imported here: it takes seconds.
    from pipeline.models.merging import merge_adapter

    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        with written_whole(out) as partial:
            if is_adapter_folder(folder):
                # Once, and not to the base's type before: a change may be less than half of its last bit.
                merge_adapter(folder, adapter_base(folder), partial, _torch_dtype(dtype))
            else:
                ignored = shutil.ignore_patterns(*(name.partition("/")[0] for name in _PRIVATE_FILES))
                shutil.copytree(folder, partial, ignore=ignored)
            _convert(partial, dtype)
            write_card(partial, model)
    except (shutil.Error, SafetensorError) as error:
        raise _unwritten(out, error) from error
    return out


def _unwritten(out: Path, error: Exception) -> Exception:
    # Of a disk without room the libraries say so in words only.
    if "No space left" in str(error) or "os error 28" in str(error):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))
    return ValueError(f"{out}: cannot be made: {error}")


def _convert(folder: Path, name: str) -> None:
    """Bring the weights in ``folder`` to the type called ``name``, one file at a time."""
    from safetensors.torch import load_file, save_file

    dtype = _torch_dtype(name)
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        if any(value.is_floating_point() and value.dtype != dtype for value in tensors.values()):
            converted = {
                key: value.to(dtype) if value.is_floating_point() else value for key, value in tensors.items()
            }
            save_file(converted, path, metadata={"format": "pt"})
    let_others_read(folder)
    config = read_object(folder / "config.json")
    config["dtype"] = name
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _torch_dtype(name: str) -> torch.dtype:
    # Imported here: a mistake on the command line is told without it.
    import torch

    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]


def refuse_push(name: str, field: str = "output.push_to_hub") -> None:
    """Raise ConfigError where nothing can be uploaded as ``name``: no OWNER/NAME, no token, or offline."""
    fault = allowed = ""
    try:
        validate_repo_id(name)
        if name.count("/") != 1:
            fault, allowed = f"{name!r} is no hub id", "OWNER/NAME, such as jane/my-coder"
    except HFValidationError as error:
        fault, allowed = f"{name!r} is no hub id ({error})", "OWNER/NAME, such as jane/my-coder"
    if not fault and is_offline_mode():
        fault, allowed = f"{name!r}, but HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE, or leave this out"
    if not fault and get_token() is None:
        fault = f"{name!r}, but there is no token for the hub"
        allowed = "with a token that may write: hf auth login, or HF_TOKEN in the environment"
    if fault:
        raise ConfigError([Problem(field=field, fault=fault, allowed=allowed)])


def push(folder: Path, name: str, *, is_private: bool = True, endpoint: str | None = None) -> str:
    """Upload ``folder`` as one commit to the model repository ``name``, made where there is none; its URL.

    Raises StageError, naming the repository, when the hub refuses or cannot be reached.
    """
    api = HfApi(endpoint=endpoint)
    try:
        api.create_repo(name, private=is_private, exist_ok=True)
        done = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message="Trained with code-grpo",
            ignore_patterns=list(_PRIVATE_FILES),
        )
    except (httpx.HTTPError, OSError, RuntimeError, ValueError) as error:
        raise StageError(
            f"--push-to-hub: {name!r} was not uploaded ({type(error).__name__}: {in_short(error)}); the "
            f"model is kept, try again with: python -m pipeline hand-over RUN_DIR --push-to-hub {name}"
        ) from error
    return str(done.repo_url)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = make_parser("python -m pipeline hand-over", str(__doc__).partition("\n")[0])
    parser.add_argument("run", metavar="RUN_DIR", help="a run, or one of its checkpoints")
    parser.add_argument("out", nargs="?", metavar="OUT_DIR", help="where the model goes; must not exist")
    parser.add_argument("--dtype", choices=_DTYPES, default="bfloat16", help="default: bfloat16")
    parser.add_argument("--push-to-hub", metavar="OWNER/NAME", help="upload it there")
    parser.add_argument("--public", action="store_true", help="make the hub's repository public")
    return run_command(parser, argv, _hand_over)


def _hand_over(arguments: argparse.Namespace) -> int:
    if arguments.out is None and arguments.push_to_hub is None:
        raise ValueError("command line: give OUT_DIR, or --push-to-hub OWNER/NAME, or both")
    if arguments.public and arguments.push_to_hub is None:
        raise ValueError("--public: says how to upload; give --push-to-hub OWNER/NAME too, or leave it out")
    if arguments.push_to_hub is not None:
        refuse_push(arguments.push_to_hub, "--push-to-hub")
    folder, model = find_model_folder(Path(arguments.run).expanduser())
    if arguments.out is not None:
        out = export(folder, Path(arguments.out).expanduser(), model, dtype=arguments.dtype)
        print(f"{out}: try it with: vllm serve {out}")
        if arguments.push_to_hub is not None:
            print(push(out, arguments.push_to_hub, is_private=not arguments.public))
    else:
        is_private, dtype = not arguments.public, arguments.dtype
        print(_push_export(folder, model, arguments.push_to_hub, is_private=is_private, dtype=dtype))
    return 0


def merge_command(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = make_parser("python -m pipeline merge", "Merge an adapter folder into its base model.")
    parser.add_argument("adapter", metavar="ADAPTER_DIR", help="an adapter's folder, such as a checkpoint")
    parser.add_argument("out", metavar="OUT_DIR", help="where the merged model goes")
    parser.add_argument("base", nargs="?", metavar="BASE_DIR", help="default: the base that it names")
    return run_command(parser, argv, _merge)


def _refuse_taken(out: Path) -> None:
    if out.exists():
        raise ValueError(f"{out}: exists already; give a folder that does not")


def _merge(arguments: argparse.Namespace) -> int:
    if not Path(arguments.adapter).is_dir():
        raise ValueError(
            f"{arguments.adapter} {no_folder(Path(arguments.adapter))}; give a folder with an adapter"
        )
    if not is_adapter_folder(Path(arguments.adapter)):
        raise ValueError(
            f"{arguments.adapter}: holds no adapter (adapter_config.json); a whole model is handed over as "
            "it is: python -m pipeline hand-over"
        )
    _refuse_taken(Path(arguments.out))
    # As above.
    from pipeline.models.merging import merge_adapter

    base = arguments.base or adapter_base(Path(arguments.adapter))
    try:
        print(merge_adapter(arguments.adapter, base, arguments.out))
    except SafetensorError as error:
        raise _unwritten(Path(arguments.out), error) from error
    return 0
