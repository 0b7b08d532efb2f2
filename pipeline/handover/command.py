"""From a run to a model that others can load: one Hugging Face folder with a model card.

    python -m pipeline hand-over runs/NAME my-model                 # then: vllm serve my-model
    python -m pipeline hand-over runs/NAME --push-to-hub OWNER/NAME
    python -m pipeline hand-over runs/NAME/checkpoints/step-000010 my-model --dtype float32

The folder holds weights (bf16 unless told otherwise, an adapter merged into its base), tokenizer, generation
settings and the card, and none of the optimiser's state. It is complete or not there at all, and none that
exists is written to. Exit status 2 for what cannot be handed over, 1 where the hub does not take it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from configs.schema import Config
from pipeline.command_line import USER_ERROR, make_parser, parse, print_error
from pipeline.errors import StageError
from pipeline.handover.card import TrainedModel, trained_model, write_card
from pipeline.handover.export import DTYPES, export, push, refuse_push
from pipeline.host.files import read_object
from pipeline.record.checkpoints import find_fault, latest_checkpoint

_UPLOAD_FAILED = 1
# Where the baseline saves its model.
_BASELINE_FOLDER = "final"


def find_model_folder(place: Path) -> tuple[Path, TrainedModel]:
    """The folder of the model to hand over, and what is known of it.

    ``place`` is a run, whose newest whole checkpoint is taken, or one of its checkpoints. Raises ValueError,
    naming the folder, where there is no such model.
    """
    run, chosen = (place, None) if (place / "config.yaml").is_file() else (place.parent.parent, place)
    if not (run / "config.yaml").is_file():
        what = "no such folder" if not place.is_dir() else "neither a run nor a checkpoint of one"
        raise ValueError(f"{place}: {what}; give runs/NAME or runs/NAME/checkpoints/step-NNNNNN")
    if chosen is None:
        final = run / "checkpoints" / _BASELINE_FOLDER
        chosen = final if final.is_dir() else latest_checkpoint(run)
        if chosen is None:
            raise ValueError(f"{run}/checkpoints: holds no whole checkpoint; let the run save one")
    if chosen.name == _BASELINE_FOLDER:
        model = trained_model(run, 0)
        return chosen, trained_model(run, model.config.training.max_steps)
    fault = find_fault(chosen)
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


def _push_export(folder: Path, model: TrainedModel, name: str, *, is_private: bool) -> str:
    with tempfile.TemporaryDirectory(prefix=".partial-export-", dir=folder.parent) as work:
        return push(export(folder, Path(work) / "model", model), name, is_private=is_private)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = make_parser("python -m pipeline hand-over", str(__doc__).partition("\n")[0])
    parser.add_argument("run", metavar="RUN_DIR", help="a run, or one of its checkpoints")
    parser.add_argument("out", nargs="?", metavar="OUT_DIR", help="where the model goes; must not exist")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="default: bfloat16")
    parser.add_argument("--push-to-hub", metavar="OWNER/NAME", help="upload it there")
    parser.add_argument("--public", action="store_true", help="make the hub's repository public")
    arguments = parse(parser, argv)
    if arguments.out is None and arguments.push_to_hub is None:
        parser.error("give OUT_DIR, or --push-to-hub OWNER/NAME, or both")
    try:
        if arguments.push_to_hub is not None:
            refuse_push(arguments.push_to_hub, "--push-to-hub")
        folder, model = find_model_folder(Path(arguments.run).expanduser())
        if arguments.out is not None:
            out = export(folder, Path(arguments.out).expanduser(), model, dtype=arguments.dtype)
            print(f"{out}: try it with: vllm serve {out}")
            if arguments.push_to_hub is not None:
                print(push(out, arguments.push_to_hub, is_private=not arguments.public))
        else:
            print(_push_export(folder, model, arguments.push_to_hub, is_private=not arguments.public))
    except (ValueError, StageError) as error:
        print_error(error)
        return USER_ERROR if isinstance(error, ValueError) else _UPLOAD_FAILED
    return 0
