"""The flags of the console scripts, in hyphens and underscores alike, and their help.

Knows no configuration field: pipeline.cli says what each flag sets.

What the flags of evaluate_humaneval say.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from configs.evaluation_options import EvaluationOptions

LATEST = "latest"
RECORDED = "recorded"
WATCH_PORT = 8763


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="YAML file; see configs/ for examples")
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="quick, development, production, gpu-16gb ...: see configs/profiles/",
    )
    parser.add_argument("--model", metavar="NAME", help="built-in name, local folder, or hub id")
    parser.add_argument(
        "--dataset",
        metavar="NAME",
        help="ladder, codeio, humaneval, mbpp, FILE.jsonl, or OWNER/NAME on the hub",
    )
    parser.add_argument("--max-samples", metavar="N", help="use at most N tasks")
    parser.add_argument("--output-dir", metavar="DIR", help="folder of run folders")
    parser.add_argument("--run-name", metavar="NAME", help="name of the run folder; default: date and time")
    parser.add_argument("--max-steps", metavar="N", help="optimiser steps")
    parser.add_argument("--seed", metavar="N", help="seed of sampling, order and evaluation")
    parser.add_argument("--no-execution", action="store_true", help="do not run the tests")
    parser.add_argument(
        "--push-to-hub", metavar="OWNER/NAME", help="upload the trained model to the Hugging Face hub"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set any field, such as training.learning_rate=1e-6; may be repeated",
    )
    parser.add_argument(
        "--show-config", action="store_true", help="print the configuration, with who set what, and stop"
    )


def add_acceleration_flags(parser: argparse.ArgumentParser, *, shown: bool) -> None:
    def text(words: str) -> str:
        return words if shown else argparse.SUPPRESS

    parser.add_argument(
        "--speedup-mode",
        choices=("conservative", "balanced", "aggressive") if shown else None,
        help=text("which techniques may be used; default: balanced"),
    )
    parser.add_argument("--async-workers", metavar="N", help=text("reward worker processes"))
    parser.add_argument(
        "--curriculum-warmup", metavar="N", help=text("steps over which the difficulty range is opened")
    )
    parser.add_argument("--no-cache", action="store_true", help=text("score identical programs again"))
    parser.add_argument(
        "--resume",
        metavar="RUN_DIR",
        nargs="?",
        const=LATEST,
        help=text("continue that run, or the latest; its own config.yaml is used unless --config is given"),
    )


def add_evaluation_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="built-in name, local folder, or hub id")
    parser.add_argument(
        "--tasks",
        metavar="SET",
        help="humaneval (default), mbpp, ladder-heldout, ladder, codeio, word-problems-heldout, "
        "word-problems, a data set on the hub as OWNER/NAME, or FILE.jsonl, also as "
        "hf://datasets/OWNER/NAME/FILE.jsonl (our own form, HumanEval's, MBPP's, EvalPlus's, LiveCodeBench's "
        "or GSM8K's)",
    )
    parser.add_argument(
        "--against", metavar="NAME", help="evaluate this model (with --samples: file) too, and compare"
    )
    parser.add_argument(
        "--prompt-form",
        metavar="FORM",
        help="chat (default), or completion for models without a chat template",
    )
    parser.add_argument("--greedy", action="store_const", const=True, help="the same as --temperature 0 -n 1")
    parser.add_argument("--per-task", action="store_true", help="show every task")
    parser.add_argument("--timeout", metavar="S", help="CPU seconds of a sample's run; default: 2")
    parser.add_argument("-n", metavar="N", help="completions per task; default: 10")
    parser.add_argument(
        "-k",
        metavar="K",
        action="append",
        help="report pass@K; may be repeated; default: 1, and N if it is larger",
    )
    parser.add_argument("--samples", metavar="FILE", help="score these samples instead of sampling")
    parser.add_argument("--output", metavar="FILE", help="write samples and verdicts there")
    parser.add_argument("--temperature", metavar="T", help="default: 0.6; 0 is greedy")
    parser.add_argument("--top-p", metavar="P", help="default: 1")
    parser.add_argument("--max-completion-length", metavar="N", help="tokens per completion; default: 512")
    parser.add_argument("--limit", metavar="N", help="only the first N tasks")
    parser.add_argument("--engine", metavar="ENGINE", help="vllm (default) or transformers")
    parser.add_argument("--seed", metavar="N", help="default: 0; without effect with vLLM on a CPU")
    parser.add_argument(
        "--module",
        metavar="NAME",
        action="append",
        default=[],
        help="an installed package that programs may import, such as numpy; may be repeated",
    )
    parser.add_argument(
        "--allow-unsafe",
        action="store_true",
        help="run model code even where the sandbox is weaker than level L2",
    )
    parser.add_argument(
        "--keep-alive",
        action="store_const",
        const=True,
        help="leave the engine running at the end, for --attach",
    )
    parser.add_argument(
        "--attach",
        action="store_const",
        const=True,
        help="use the engine that was left running, if this model's weights fit it; otherwise say what "
        "differs and start one",
    )


def add_resident_flags(parser: argparse.ArgumentParser) -> None:
    """Flags about how a run starts, and what it leaves running."""
    parser.add_argument(
        "--keep-alive", action="store_true", help="leave the engine running at the end, for --attach"
    )
    parser.add_argument(
        "--attach",
        action="store_true",
        help="use the engine that a run with --keep-alive left, if model, versions and settings are the "
        "same; otherwise say what differs and start one",
    )
    parser.add_argument(
        "--stop-resident", action="store_true", help="end the engine that was left running, and stop"
    )
    parser.add_argument(
        "--profile-startup",
        action="store_true",
        help="measure the start up to the first scored rollout, print and draw it, and stop",
    )


def add_explain_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say what a run would be, and start none."""
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print every setting with who set it, and each technique with its class, its reasons and its "
        "test, and stop",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print steps, batch shapes, an estimate of memory and expected errors without loading a model, "
        "and stop",
    )
    parser.add_argument(
        "--gpu-memory", metavar="GB", help="with --dry-run: memory of the card that the run is meant for"
    )


def add_watch_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the live page, which trains nothing by itself."""
    parser.add_argument(
        "--watch",
        metavar="DIR",
        nargs="?",
        const=LATEST,
        help="serve the report of that run, or of all runs in that folder (without a name: the output "
        "folder), live on this machine's 127.0.0.1; runs can be started, stopped and resumed there",
    )
    parser.add_argument(
        "--watch-port", metavar="N", help=f"port of the live page; default: {WATCH_PORT}; 0: any that is free"
    )


def add_plan_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of a plan, which trains nothing."""
    parser.add_argument(
        "--plan",
        metavar="RUN_DIR",
        nargs="?",
        const=RECORDED,
        help="print how many generators, trainer ranks and reward workers to take of 8, 64 and 1,024 GPUs, "
        "from what that run measured (without a name: from a recorded run), and stop",
    )
    parser.add_argument(
        "--gpus", metavar="N", action="append", default=[], help="plan for N GPUs instead; may be repeated"
    )
    parser.add_argument(
        "--assume",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="change an assumption of the plan, which names them all; may be repeated",
    )


def spelt(flag: str) -> str:
    return f"-{flag}" if len(flag) == 1 else f"--{flag.replace('_', '-')}"


_SAMPLING_FLAGS = (
    "n",
    "temperature",
    "top_p",
    "max_completion_length",
    "prompt_form",
    "greedy",
    "engine",
    "seed",
    "attach",
    "keep_alive",
)


def evaluation_options(arguments: argparse.Namespace) -> EvaluationOptions:
    """What to evaluate, and how; raises ConfigError for flags that do not go together or are no numbers."""
    # Imported here: --help need not wait for the library that checks values.
    from configs.errors import ConfigError, Problem, wrong_value
    from configs.evaluation_options import EvaluationOptions
    from configs.yaml_text import parse_value

    given: Mapping[str, Any] = {flag: value for flag, value in vars(arguments).items() if value is not None}
    useless = [spelt(flag) for flag in _SAMPLING_FLAGS if flag in given and "samples" in given]
    if useless:
        allowed = "leave it out, or leave out --samples"
        fault = "not used with --samples, where nothing is sampled"
        raise ConfigError(
            [Problem(where="command line", field=flag, fault=fault, allowed=allowed) for flag in useless]
        )

    greedy_conflicts = [spelt(flag) for flag in ("temperature", "n") if flag in given and "greedy" in given]
    if greedy_conflicts:
        fault, allowed = "--greedy says it already", "leave it out, or leave out --greedy"
        raise ConfigError(
            [
                Problem(where="command line", field=flag, fault=fault, allowed=allowed)
                for flag in greedy_conflicts
            ]
        )

    def number(flag: str, otherwise: Any) -> Any:
        if flag not in given:
            return otherwise
        value = parse_value(given[flag])
        if value is None:
            problem = wrong_value(spelt(flag), given[flag], "a number")
            raise ConfigError([replace(problem, where="command line")])
        return value

    num_samples = number("n", 1 if "greedy" in given else 10)
    ks: list[Any] = [parse_value(k) for k in arguments.k or ()]
    return EvaluationOptions(
        model=arguments.model,
        tasks=given.get("tasks", "humaneval"),
        num_samples=num_samples,
        ks=tuple(ks),
        samples=arguments.samples,
        against=arguments.against,
        prompt_form=given.get("prompt_form", "chat"),
        timeout=number("timeout", 2.0),
        per_task=arguments.per_task,
        output=arguments.output,
        temperature=number("temperature", 0.0 if "greedy" in given else 0.6),
        top_p=number("top_p", 1.0),
        max_completion_length=number("max_completion_length", 512),
        limit=number("limit", None),
        engine=given.get("engine", "vllm"),
        seed=number("seed", 0),
        allow_unsafe=arguments.allow_unsafe,
        modules=tuple(arguments.module),
        attach="attach" in given,
        keep_alive="keep_alive" in given,
    )
