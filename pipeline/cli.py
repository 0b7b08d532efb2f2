"""The console scripts: train_accelerated, train_code_grpo and evaluate_humaneval.

Reads flags, checks the whole configuration, and only then imports what is heavy. Every flag of several
words may be written with hyphens or underscores. Exit status: 0 done, 1 a stage failed for good, 2 a user's
mistake (one line a problem on standard error), 130 interrupted, 143 terminated. Decides nothing about
training itself.
"""

from __future__ import annotations

import argparse
import errno
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.command_line import USER_ERROR, make_parser, parse
from pipeline.errors import RunStoppedError, StageError
from pipeline.flags import (
    LATEST,
    WATCH_PORT,
    add_acceleration_flags,
    add_evaluation_flags,
    add_explain_flags,
    add_plan_flags,
    add_resident_flags,
    add_run_flags,
    add_watch_flags,
    spelt,
)

if TYPE_CHECKING:
    from configs.load import Resolved


STAGE_FAILED = 1
INTERRUPTED = 130
RUN_CONFIG_NAME = "config.yaml"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Flags whose value is taken as it stands, and flags whose value is a YAML scalar: flag -> field.
_TEXT_FLAGS = {
    "model": "model.name",
    "dataset": "dataset.name",
    "output_dir": "output.dir",
    "run_name": "output.name",
    "push_to_hub": "output.push_to_hub",
}
_NUMBER_FLAGS = {
    "max_samples": "dataset.max_samples",
    "max_steps": "training.max_steps",
    "seed": "training.seed",
    "async_workers": "acceleration.async_rewards.workers",
    "curriculum_warmup": "acceleration.curriculum.warmup_steps",
}
_OFF_FLAGS = {"no_cache": "acceleration.reward_cache.enabled", "no_execution": "execution.enabled"}
_ON_FLAGS = {"keep_alive": "runtime.keep_alive", "attach": "runtime.attach"}
_NEEDED_FLAGS = {"gpus": "--plan", "gpu_memory": "--dry-run", "watch_port": "--watch"}
_ACCELERATION_FLAGS = ("speedup_mode", "async_workers", "curriculum_warmup", "no_cache", "resume")


def train_accelerated(argv: Sequence[str] | None = None) -> int:
    """Train with the asynchronous pipeline; returns the exit status."""
    parser = make_parser("train_accelerated", "Fine-tune a language model to write Python that passes tests.")
    add_run_flags(parser)
    add_acceleration_flags(parser, shown=True)
    add_resident_flags(parser)
    add_explain_flags(parser)
    add_plan_flags(parser)
    add_watch_flags(parser)
    arguments = parse(parser, argv)
    return _guarded(lambda: _train_accelerated(arguments), arguments.verbose)


def train_code_grpo(argv: Sequence[str] | None = None) -> int:
    """Train with the synchronous baseline, TRL's GRPOTrainer; returns the exit status."""
    parser = make_parser(
        "train_code_grpo",
        "The synchronous baseline: TRL's GRPOTrainer with the same tasks, rewards and sampling. "
        "The acceleration section of a file is not used.",
    )
    add_run_flags(parser)
    add_acceleration_flags(parser, shown=False)
    arguments = parse(parser, argv)
    return _guarded(lambda: _train_code_grpo(arguments), arguments.verbose)


def evaluate_humaneval(argv: Sequence[str] | None = None) -> int:
    """Measure pass@k; returns the exit status."""
    parser = make_parser("evaluate_humaneval", "Measure unbiased pass@k of a model, or of samples in a file.")
    add_evaluation_flags(parser)
    arguments = parse(parser, argv)
    return _guarded(lambda: _evaluate(arguments), arguments.verbose)


def _train_accelerated(arguments: argparse.Namespace) -> int:
    if arguments.stop_resident:
        from pipeline.generation.resident import stop_all

        return stop_all()
    if arguments.watch is not None:
        return _watch(arguments)
    if arguments.plan is not None:
        return _plan(arguments)
    _refuse_useless_flags(arguments)
    resume = _find_run(arguments) if arguments.resume is not None else None
    file = arguments.config
    if resume is not None and file is None:
        file = f"{resume}/{RUN_CONFIG_NAME}"
    resolved = _resolve(arguments, file, arguments.speedup_mode)
    _refuse_useless_warmup(arguments, resolved)
    if arguments.show_config:
        return _show(resolved)
    if arguments.explain:
        from configs.explanation import run_explanation

        return run_explanation(resolved)
    if arguments.dry_run:
        from pipeline.planning.dry_run import run_dry

        return run_dry(resolved, arguments.gpu_memory)
    if arguments.profile_startup:
        from pipeline.run.command import run_profile

        return run_profile(resolved.config)
    from pipeline.run.command import run_training

    return run_training(resolved.config, resume, arguments.verbose)


def _watch(arguments: argparse.Namespace) -> int:
    from configs.errors import ConfigError, wrong_value

    folder, port = arguments.watch, str(arguments.watch_port or WATCH_PORT)
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError([wrong_value("--watch-port", port, "a port number up to 65535, or 0")])
    if folder == LATEST:
        folder = _resolve(arguments, arguments.config, arguments.speedup_mode).config.output.dir
    from pipeline.report.live.server import run_watch

    return run_watch(folder, int(port))


def _plan(arguments: argparse.Namespace) -> int:
    """A plan for the configuration of the command line, or of the run that it is made from."""
    from os.path import isfile

    file = arguments.config
    if file is None and isfile(f"{arguments.plan}/{RUN_CONFIG_NAME}"):
        file = f"{arguments.plan}/{RUN_CONFIG_NAME}"
    resolved = _resolve(arguments, file, arguments.speedup_mode)
    from pipeline.planning.plan import run_plan

    return run_plan(resolved.config, arguments.plan, arguments.gpus)


def _refuse_useless_flags(arguments: argparse.Namespace) -> None:
    from configs.errors import ConfigError, Problem

    problems = [
        Problem(
            where="command line", field=spelt(flag), fault=f"used by {other} only", allowed=f"with {other}"
        )
        for flag, other in _NEEDED_FLAGS.items()
        if vars(arguments)[flag] and not vars(arguments)[_name_of(other)]
    ]
    if arguments.profile is not None and arguments.resume is not None and arguments.config is None:
        fault, allowed = "not used with --resume: the run has its own config.yaml", "without it"
        problems.append(Problem(where="command line", field="--profile", fault=fault, allowed=allowed))
    if problems:
        raise ConfigError(problems)


def _name_of(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _train_code_grpo(arguments: argparse.Namespace) -> int:
    _refuse_acceleration(arguments)
    resolved = _resolve(arguments, arguments.config, "conservative")
    ignored = [path for path, origin in resolved.origins.items() if _is_ignored(path, origin)]
    if ignored:
        origins = ", ".join(sorted({resolved.origins[path] for path in ignored}))
        print(f"note: the baseline does not use {', '.join(ignored)} of {origins}", file=sys.stderr)
    if arguments.show_config:
        return _show(resolved)
    from pipeline.baseline.baseline import run_baseline

    return run_baseline(resolved.config, arguments.verbose)


def _evaluate(arguments: argparse.Namespace) -> int:
    from pipeline.flags import evaluation_options

    options = evaluation_options(arguments)
    from pipeline.evaluation.command import run_evaluation

    return run_evaluation(options)


def _resolve(arguments: argparse.Namespace, file: str | None, mode: str | None) -> Resolved:
    from pathlib import Path

    from configs.load import resolve

    path = Path(file) if file is not None else None
    return resolve(path, mode, arguments.set, _flags(arguments), arguments.profile)


def _flags(arguments: argparse.Namespace) -> dict[str, object]:
    from configs.yaml_text import parse_value

    given: Mapping[str, object] = vars(arguments)
    flags = {field: given[flag] for flag, field in _TEXT_FLAGS.items() if given[flag] is not None}
    for flag, field in _NUMBER_FLAGS.items():
        if given[flag] is not None:
            flags[field] = parse_value(str(given[flag]))
    flags |= {field: False for flag, field in _OFF_FLAGS.items() if given[flag]}
    return flags | {field: True for flag, field in _ON_FLAGS.items() if given.get(flag)}


def _show(resolved: Resolved) -> int:
    from configs.load import render

    print(render(resolved.config, resolved.origins), end="")
    return 0


def _find_run(arguments: argparse.Namespace) -> str:
    """The run folder that --resume names; without a name the newest in the output folder."""
    from os.path import isdir, isfile
    from pathlib import Path

    from configs.errors import ConfigError, Problem
    from pipeline.record.run_folder import BASELINE_MARK

    if arguments.resume != LATEST:
        run = Path(arguments.resume).expanduser()
        allowed = "the folder of an earlier run of train_accelerated"
        fault = None
        if not isfile(run / RUN_CONFIG_NAME):
            fault = f"{run} holds no {RUN_CONFIG_NAME}" if isdir(run) else f"no such folder: {run}"
        elif isfile(run / BASELINE_MARK):
            fault = f"{run} is a run of train_code_grpo, which cannot be resumed"
        if fault is not None:
            raise ConfigError([Problem(where="command line", field="--resume", fault=fault, allowed=allowed)])
        return str(run)
    folder = Path(
        _resolve(arguments, arguments.config, arguments.speedup_mode).config.output.dir
    ).expanduser()
    found = sorted(folder.glob(f"*/{RUN_CONFIG_NAME}"), key=lambda file: file.stat().st_mtime_ns)
    runs = [file for file in found if not isfile(file.parent / BASELINE_MARK)]
    if not runs:
        fault = f"no run in {folder}" + (" but those of train_code_grpo" if found else "")
        allowed = "a folder with an earlier run in it (--output_dir), or --resume RUN_DIR"
        raise ConfigError([Problem(where="command line", field="--resume", fault=fault, allowed=allowed)])
    return str(runs[-1].parent)


def _refuse_useless_warmup(arguments: argparse.Namespace, resolved: Resolved) -> None:
    from configs.errors import ConfigError, Problem

    if arguments.curriculum_warmup is not None and not resolved.config.acceleration.curriculum.enabled:
        fault = f"{arguments.curriculum_warmup} would do nothing: acceleration.curriculum.enabled is false"
        allowed = (
            "with the curriculum on (--speedup-mode balanced, --set acceleration.curriculum.enabled=true)"
        )
        problem = Problem(where="command line", field="--curriculum-warmup", fault=fault, allowed=allowed)
        raise ConfigError([problem])


def _refuse_acceleration(arguments: argparse.Namespace) -> None:
    from configs.errors import ConfigError, Problem

    given = vars(arguments)
    refused = [spelt(flag) for flag in _ACCELERATION_FLAGS if given[flag] not in (None, False)]
    refused += [f"--set {text}" for text in arguments.set if text.strip().startswith("acceleration.")]
    fault, allowed = "not used by the synchronous baseline", "leave it out, or run train_accelerated"
    if refused:
        raise ConfigError(
            [Problem(where="command line", field=flag, fault=fault, allowed=allowed) for flag in refused]
        )


def _is_ignored(path: str, origin: str) -> bool:
    return path.startswith("acceleration.") and not origin.startswith(("mode ", "command line"))


def _guarded(command: Callable[[], int], verbose: bool) -> int:
    """Run ``command``; a user's mistake or a failed stage becomes a message and a status.

    Anything else is a fault of the program and shows its traceback.
    """
    try:
        return command()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except RunStoppedError as stopped:
        print(stopped, file=sys.stderr)
        return stopped.status
    except (StageError, TimeoutError) as error:
        return _report(error, STAGE_FAILED, verbose)
    except ValueError as error:
        return _report(error, USER_ERROR, verbose)
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        print("error: what was committed before is kept: free some space, then --resume", file=sys.stderr)
        return _report(error, STAGE_FAILED, verbose)


def _report(error: Exception, status: int, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    for line in str(error).splitlines() or [repr(error)]:
        print(f"error: {line}", file=sys.stderr)
    return status
