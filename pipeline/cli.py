"""The console scripts: train_accelerated, train_code_grpo and evaluate_humaneval.

Reads flags (the table is in pipeline.flags), checks the whole configuration, and only then imports what is
heavy. How they end: configs.command_line. Decides nothing about training itself.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os.path import isdir, isfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from configs.command_line import make_parser, run_command
from configs.errors import ConfigError, wrong_value
from pipeline.flags import (
    ACCELERATION,
    FLAGS,
    LATEST,
    WATCH_PORT,
    evaluation_options,
    fields_set,
    given_flags,
    refuse,
    refuse_idle,
)

if TYPE_CHECKING:
    from configs.load import Resolved

RUN_CONFIG_NAME = "config.yaml"
# Beside --watch and --stop-resident: what finds the folder of runs, where none is named.
_BESIDE_ACTIONS = frozenset({"--watch-port", "--config", "--profile", "--set", "--output-dir"})
_NOT_BESIDE_PLAN = (
    "--resume",
    "--dry-run",
    "--gpu-memory",
    "--show-config",
    "--explain",
    "--profile-startup",
)
_DESCRIPTIONS = {
    "train_accelerated": "Fine-tune a language model to write Python that passes tests.",
    "train_code_grpo": "The synchronous baseline: TRL's GRPOTrainer with the same tasks, rewards and "
    "sampling. The acceleration section of a file is not used.",
    "evaluate_humaneval": "Measure unbiased pass@k of a model, or of samples in a file.",
}


def train_accelerated(argv: Sequence[str] | None = None) -> int:
    """Train with the asynchronous pipeline; returns the exit status."""
    return _run("train_accelerated", argv, _train_accelerated)


def train_code_grpo(argv: Sequence[str] | None = None) -> int:
    """Train with the synchronous baseline, TRL's GRPOTrainer; returns the exit status."""
    return _run("train_code_grpo", argv, _train_code_grpo)


def evaluate_humaneval(argv: Sequence[str] | None = None) -> int:
    """Measure pass@k; returns the exit status."""
    return _run("evaluate_humaneval", argv, _evaluate)


def _run(name: str, argv: Sequence[str] | None, command: Callable[[argparse.Namespace], int]) -> int:
    parser = make_parser(name, _DESCRIPTIONS[name])
    for flag in FLAGS[name]:
        flag.add_to(parser)
    return run_command(parser, argv, command)


def _train_accelerated(arguments: argparse.Namespace) -> int:
    _refuse_beside_actions(arguments)
    if arguments.plan is not None:
        return _plan(arguments)
    refuse_idle(given_flags(arguments, "train_accelerated"))
    if arguments.stop_resident:
        from pipeline.generation.resident import stop_all

        return stop_all()
    if arguments.watch is not None:
        return _watch(arguments)
    _refuse_useless_flags(arguments)
    resume = _find_run(arguments) if arguments.resume is not None else None
    file = arguments.config
    if resume is not None and file is None:
        file = f"{resume}/{RUN_CONFIG_NAME}"
    resolved = _resolve(arguments, file)
    _refuse_useless_warmup(arguments, resolved)
    mode_given_by = resolved.origins.get("acceleration.mode", "")
    if file is not None and mode_given_by.startswith(("--set", "command line")):
        from configs.explanation import mode_overridden

        for note in mode_overridden(resolved, Path(file)):
            print(f"note: {note}", file=sys.stderr)
    if arguments.show_config:
        return _show(resolved)
    if arguments.explain:
        from configs.explanation import explain_run

        print(explain_run(resolved), end="")
        return 0
    if arguments.dry_run:
        from pipeline.planning.dry_run import run_dry
        from pipeline.run.job import choose_tasks, faults_of

        is_cpu = resolved.config.runtime.device == "cpu"
        if is_cpu and arguments.gpu_memory is not None:
            fault = f"{arguments.gpu_memory} would do nothing: runtime.device is cpu"
            refuse({"--gpu-memory": fault}, "without it")
        card = arguments.gpu_memory or (None if is_cpu else _card_of(arguments.profile))
        choose = partial(choose_tasks, run=None if resume is None else Path(resume))
        return run_dry(resolved, card, partial(faults_of, resume=resume), choose)
    if arguments.profile_startup:
        from pipeline.run.startup import run_profile

        return run_profile(resolved.config)
    return _train(resolved, resume)


def _train(resolved: Resolved, resume: str | None) -> int:
    from configs.explanation import beyond_mode
    from pipeline.host import spans
    from pipeline.run.early_start import launched

    config = resolved.config
    for note in beyond_mode(resolved):
        print(f"note: {note}", file=sys.stderr)
    with launched(config) as early:
        with spans.span("driver", "import the run"):
            # On a CPU the engine's process is starting meanwhile.
            from pipeline.run.orchestrator import run_training

        return run_training(config, resume, early)


def _watch(arguments: argparse.Namespace) -> int:
    folder, port = arguments.watch, str(arguments.watch_port or WATCH_PORT)
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError([wrong_value("--watch-port", port, "a port number up to 65535, or 0")])
    if folder == LATEST:
        folder = _resolve(arguments, arguments.config).config.output.dir
    from pipeline.report.live_server import run_watch

    return run_watch(folder, int(port))


def _plan(arguments: argparse.Namespace) -> int:
    """A plan for the configuration of the command line, or of the run that it is made from."""
    file = arguments.config
    useless = dict.fromkeys(_NOT_BESIDE_PLAN, "it trains nothing")
    if file is None and isfile(f"{arguments.plan}/{RUN_CONFIG_NAME}"):
        file = f"{arguments.plan}/{RUN_CONFIG_NAME}"
        useless |= dict.fromkeys(("--profile", "--speedup-mode"), "the run has its own config.yaml")
    flags = given_flags(arguments, "train_accelerated")
    _refuse_beside("--plan", useless, {flag.name for flag in flags})
    refuse_idle(flags)
    from configs.finished import stand_ins
    from pipeline.planning.plan import run_plan

    # Its tasks may be gone, and are not asked for.
    resolved = _resolve(arguments, file, beside=stand_ins(Path(file)) if file != arguments.config else {})

    return run_plan(resolved.config, arguments.plan, arguments.gpus)


def _refuse_beside_actions(arguments: argparse.Namespace) -> None:
    """--watch and --stop-resident train nothing: but for what finds the folder of runs, flags are refused."""
    given = {flag.name for flag in given_flags(arguments, "train_accelerated")}
    for action in ("--watch", "--stop-resident"):
        if action in given:
            others = sorted(given - _BESIDE_ACTIONS - {action})
            fault = f"not used with {action}, which trains nothing"
            refuse(dict.fromkeys(others, fault), f"{action} in a command of its own")


def _refuse_beside(action: str, useless: Mapping[str, str], given: Collection[str]) -> None:
    """Refuse those flags of ``useless`` that are ``given``, each for its reason."""
    faults = {name: f"not used with {action}: {why}" for name, why in useless.items() if name in given}
    refuse(faults, "without it")


def _refuse_useless_flags(arguments: argparse.Namespace) -> None:
    given = {flag.name for flag in given_flags(arguments, "train_accelerated")}
    if "--resume" in given:
        useless = {"--run-name": "the run keeps its folder"}
        if arguments.resume != LATEST:
            useless["--output-dir"] = "the run keeps its folder"
        if "--config" not in given:
            useless |= dict.fromkeys(("--profile", "--speedup-mode"), "the run has its own config.yaml")
        useless["--profile-startup"] = "it starts a run of its own"
        _refuse_beside("--resume", useless, given)


def _train_code_grpo(arguments: argparse.Namespace) -> int:
    _refuse_acceleration(arguments)
    resolved = _resolve(arguments, arguments.config, "train_code_grpo", mode="conservative")
    ignored = [
        path
        for path, origin in resolved.origins.items()
        if path.startswith("acceleration.") and not origin.startswith(("mode ", "command line"))
    ]
    if ignored:
        origins = ", ".join(sorted({resolved.origins[path] for path in ignored}))
        print(f"note: the baseline does not use {', '.join(ignored)} of {origins}", file=sys.stderr)
    if arguments.show_config:
        return _show(resolved)
    from configs.load import load_config
    from pipeline.baseline.baseline import run_baseline

    # Else the measurements would draft as the file says.
    acceleration = load_config(None, "conservative").acceleration
    config = resolved.config.model_copy(update={"acceleration": acceleration})
    return run_baseline(config, arguments.verbose)


def _evaluate(arguments: argparse.Namespace) -> int:
    options = evaluation_options(arguments)
    from pipeline.evaluation.command import run_evaluation

    return run_evaluation(options)


def _resolve(
    arguments: argparse.Namespace,
    file: str | None,
    command: str = "train_accelerated",
    mode: str | None = None,
    beside: Mapping[str, object] = MappingProxyType({}),
) -> Resolved:
    from configs.load import resolve

    fields = {**beside, **fields_set(given_flags(arguments, command))}
    path = Path(file) if file is not None else None
    return resolve(path, mode or arguments.speedup_mode, arguments.set, fields, arguments.profile)


def _card_of(profile: str | None) -> str | None:
    """The GB of the card that a profile is for, by its name."""
    found = re.match(r"gpu-(\d+)gb(?:-|$)", profile or "")
    return found and found[1]


def _show(resolved: Resolved) -> int:
    from configs.load import render

    print(render(resolved.config, resolved.origins), end="")
    return 0


def _find_run(arguments: argparse.Namespace) -> str:
    """The run folder that --resume names; without a name the newest in the output folder."""
    from pipeline.record.run_folder import BASELINE_MARK

    if arguments.resume != LATEST:
        run = Path(arguments.resume).expanduser()
        allowed = "the folder of an earlier run of train_accelerated"
        if run.parent.name == "checkpoints" and isfile(run.parent.parent / RUN_CONFIG_NAME):
            fault = f"{run} is a checkpoint; a run goes on from its last whole one"
            refuse({"--resume": fault}, f"--resume {run.parent.parent}")
        if not isfile(run / RUN_CONFIG_NAME):
            fault = f"{run} holds no {RUN_CONFIG_NAME}" if isdir(run) else f"no such folder: {run}"
            refuse({"--resume": fault}, allowed)
        if isfile(run / BASELINE_MARK):
            fault = f"{run} is a run of train_code_grpo, which cannot be resumed"
            refuse({"--resume": fault}, allowed)
        return str(run)
    folder = Path(_output_dir(arguments)).expanduser()
    found = sorted(folder.glob(f"*/{RUN_CONFIG_NAME}"), key=lambda file: file.stat().st_mtime_ns)
    # What --profile-startup leaves, also where it was ended.
    others = (BASELINE_MARK, "startup.json", "startup.jsonl")
    runs = [file for file in found if not any(isfile(file.parent / name) for name in others)]
    if not runs:
        fault = f"no run in {folder}" + (
            " but those of train_code_grpo or --profile-startup" if found else ""
        )
        refuse({"--resume": fault}, "a folder with an earlier run in it (--output_dir), or --resume RUN_DIR")
    return str(runs[-1].parent)


def _output_dir(arguments: argparse.Namespace) -> str:
    """Where runs lie. What else is given need not fit the defaults: it is for the run that is looked for."""
    from configs.load import resolve
    from configs.yaml_text import parse_assignment

    with suppress(ConfigError):
        return _resolve(arguments, arguments.config).config.output.dir

    own = ("output", "dir")
    sets = [text for text in arguments.set if parse_assignment(text)[0] == own]
    fields = fields_set(given_flags(arguments, "train_accelerated"))
    flags = {path: value for path, value in fields.items() if path == ".".join(own)}
    file = Path(arguments.config) if arguments.config is not None else None
    return resolve(file, None, sets, flags).config.output.dir


def _refuse_useless_warmup(arguments: argparse.Namespace, resolved: Resolved) -> None:
    if arguments.curriculum_warmup is not None and not resolved.config.acceleration.curriculum.enabled:
        refuse(
            {
                "--curriculum-warmup": f"{arguments.curriculum_warmup} would do nothing: "
                "acceleration.curriculum.enabled is false"
            },
            "with the curriculum on (--speedup-mode balanced, --set acceleration.curriculum.enabled=true)",
        )


def _refuse_acceleration(arguments: argparse.Namespace) -> None:
    given, refused = given_flags(arguments, "train_code_grpo"), {flag.name for flag in ACCELERATION}
    useless = [flag.name for flag in given if flag.name in refused]
    useless += [f"--set {text}" for text in arguments.set if text.strip().startswith("acceleration.")]
    fault = "not used by the synchronous baseline"
    refuse(dict.fromkeys(useless, fault), "leave it out, or run train_accelerated")
