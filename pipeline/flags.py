"""The flags of the console scripts: one table of what each is called, sets and says.

Reads flags and hands on what they set; starts nothing. What a field may hold is the configuration's matter.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from configs.errors import ConfigError, Problem, show

if TYPE_CHECKING:
    from configs.evaluation_options import EvaluationOptions

LATEST = "latest"
WATCH_PORT = 8763


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: how it is written, the field of the configuration or of EvaluationOptions it sets, its help.

    ``form`` is name and value as in the help: "--gpus N ..." may be repeated, the value of "--watch [DIR]"
    may be left out and is then ``alone``. A value of one letter is a number. A flag without a value sets
    its field to ``on``. ``needs`` is the flag without which it does nothing.
    """

    form: str
    sets: str | None
    help: str
    _: KW_ONLY
    on: bool = True
    alone: str | None = None
    choices: tuple[str, ...] | None = None
    needs: str = ""

    @property
    def name(self) -> str:
        return self.form.split()[0]

    @property
    def value(self) -> str:
        """The word for its value; empty where it takes none."""
        return self.form.removeprefix(self.name).strip(" [].")

    @property
    def key(self) -> str:
        """Its name among the parsed arguments."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def is_repeated(self) -> bool:
        return self.form.endswith("...")

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        if not self.value:
            parser.add_argument(self.name, action="store_true", help=self.help)
        elif self.is_repeated:
            parser.add_argument(self.name, metavar=self.value, action="append", default=[], help=self.help)
        else:
            metavar, nargs = (None if self.choices else self.value), ("?" if self.alone else None)
            parser.add_argument(
                self.name,
                metavar=metavar,
                nargs=nargs,
                const=self.alone,
                choices=self.choices,
                help=self.help,
            )

    def read(self, written: Any) -> Any:
        """What the field is set to; a number that is none is kept, for the configuration to refuse."""
        # Imported here: --help needs no YAML.
        from configs.yaml_text import parse_value

        if not self.value:
            return self.on
        is_number = len(self.value) == 1
        if self.is_repeated:
            return tuple(parse_value(one) if is_number else one for one in written)
        return parse_value(written) if is_number else written


_MODEL = "built-in name, local folder, or hub id"
_KEEP_ALIVE = "leave the engine running at the end, for --attach"

# What both trainings have.
_TRAINING = (
    Flag("--config FILE", None, "YAML file; see configs/ for examples"),
    Flag("--profile NAME", None, "quick, development, production, gpu-16gb ...: see configs/profiles/"),
    Flag("--model NAME", "model.name", _MODEL),
    Flag(
        "--dataset NAME",
        "dataset.name",
        "ladder, word-problems, codeio, humaneval, mbpp, FILE.jsonl, or OWNER/NAME on the hub",
    ),
    Flag("--max-samples N", "dataset.max_samples", "use at most N tasks"),
    Flag("--output-dir DIR", "output.dir", "folder of run folders"),
    Flag("--run-name NAME", "output.name", "name of the run folder; default: date and time"),
    Flag("--max-steps N", "training.max_steps", "optimiser steps"),
    Flag("--seed N", "training.seed", "seed of sampling, order and evaluation"),
    Flag("--no-execution", "execution.enabled", "do not run the tests", on=False),
    Flag(
        "--push-to-hub OWNER/NAME", "output.push_to_hub", "upload the trained model to the Hugging Face hub"
    ),
    Flag("--set KEY=VALUE ...", None, "set any field, such as training.learning_rate=1e-6; may be repeated"),
    Flag("--show-config", None, "print the configuration, with who set what, and stop"),
)

# What the baseline takes only to refuse it by a message that says why.
ACCELERATION: Final = (
    Flag(
        "--speedup-mode MODE",
        None,
        "which techniques may be used; default: balanced",
        choices=("conservative", "balanced", "aggressive"),
    ),
    Flag("--async-workers N", "acceleration.async_rewards.workers", "reward worker processes"),
    Flag(
        "--curriculum-warmup N",
        "acceleration.curriculum.warmup_steps",
        "steps over which the difficulty range is opened",
    ),
    Flag("--no-cache", "acceleration.reward_cache.enabled", "score identical programs again", on=False),
    Flag(
        "--resume [RUN_DIR]",
        None,
        "continue that run, or the latest; its own config.yaml is used unless --config is given",
        alone=LATEST,
    ),
)

# What train_accelerated alone has: about the start of a run, what one would be, and its live page.
_ACCELERATED = (
    Flag("--strict", "runtime.strict", "end the run when an alarm says that it cannot learn"),
    Flag("--keep-alive", "runtime.keep_alive", _KEEP_ALIVE),
    Flag(
        "--attach",
        "runtime.attach",
        "use the engine that a run with --keep-alive left, if model, versions and settings are the "
        "same; otherwise say what differs and start one",
    ),
    Flag("--stop-resident", None, "end the engine that was left running, and stop"),
    Flag(
        "--profile-startup",
        None,
        "measure the start up to the first scored rollout, print and trace it, and stop",
    ),
    Flag(
        "--explain",
        None,
        "print every setting with who set it, and each technique with its class, its reasons and its "
        "test, and stop",
    ),
    Flag(
        "--dry-run",
        None,
        "print steps, batch shapes, an estimate of memory and expected errors without loading a model, "
        "and stop",
    ),
    Flag(
        "--gpu-memory GB",
        None,
        "with --dry-run: memory of the card that the run is meant for",
        needs="--dry-run",
    ),
    Flag(
        "--plan RUN_DIR",
        None,
        "print how many generators, trainer ranks and reward workers to take of 8, 64 and 1,024 GPUs, "
        "from what that run measured, and stop",
    ),
    Flag("--gpus N ...", None, "plan for N GPUs instead; may be repeated", needs="--plan"),
    Flag(
        "--watch [DIR]",
        None,
        "serve the report of that run, or of all runs in that folder (without a name: the output "
        "folder), live on this machine's 127.0.0.1; runs can be started, stopped and resumed there",
        alone=LATEST,
    ),
    Flag(
        "--watch-port N",
        None,
        f"port of the live page; default: {WATCH_PORT}; 0: any that is free",
        needs="--watch",
    ),
)

_EVALUATION = (
    Flag("--model NAME", "model", _MODEL),
    Flag(
        "--tasks SET",
        "tasks",
        "humaneval (default), mbpp, ladder-heldout, ladder, codeio, word-problems-heldout, "
        "word-problems, a data set on the hub as OWNER/NAME, or FILE.jsonl, also as "
        "hf://datasets/OWNER/NAME/FILE.jsonl (our own form, HumanEval's, MBPP's, EvalPlus's, LiveCodeBench's "
        "or GSM8K's)",
    ),
    Flag("--against NAME", "against", "evaluate this model (with --samples: file) too, and compare"),
    Flag("--per-task", "per_task", "show every task"),
    Flag("--timeout S", "timeout", "CPU seconds of a sample's run; default: 2"),
    Flag("-k K ...", "ks", "report pass@K; may be repeated; default: 1, and N if it is larger"),
    Flag("--samples FILE", "samples", "score these samples instead of sampling"),
    Flag("--output FILE", "output", "write samples there, verdicts and figures beside it"),
    Flag("--limit N", "limit", "only the first N tasks"),
    Flag(
        "--module NAME ...",
        "modules",
        "an installed package that programs may import, such as numpy; may be repeated",
    ),
    Flag("--allow-unsafe", "allow_unsafe", "run model code even where the sandbox is weaker than level L2"),
)
# Of no use with --samples, where nothing is sampled.
_SAMPLING = (
    Flag(
        "--prompt-form FORM",
        "prompt_form",
        "chat (default), or completion for models without a chat template",
    ),
    Flag("--system-prompt TEXT", "system_prompt", "the system message before each prompt; default: none"),
    Flag(
        "--chat-template-kwargs JSON",
        "chat_template_kwargs",
        "variables for the chat template, such as '{\"enable_thinking\": false}'",
    ),
    Flag(
        "--assistant-prefill TEXT",
        "assistant_prefill",
        "what each answer begins with, '' for nothing; default: a code fence, as in training",
    ),
    Flag("--greedy", None, "the same as --temperature 0 -n 1"),
    Flag("-n N", "num_samples", "completions per task; default: 10"),
    Flag("--temperature T", "temperature", "default: 0.6; 0 is greedy"),
    Flag("--top-p P", "top_p", "default: 1"),
    Flag("--max-completion-length N", "max_completion_length", "tokens per completion; default: 512"),
    Flag("--turns N", "turns", "up to N answers in a row, with feedback on each that failed; default: 1"),
    Flag(
        "--feedback KIND",
        "feedback",
        "public (default): the verdict, and what the first of the prompt's examples that fails gives; "
        "verdict: how the program failed; full: and the first test that failed",
        needs="--turns",
    ),
    Flag(
        "--custom-feedback MODULE:FUNCTION",
        "custom_feedback",
        "a function of yours that makes the text of it, as rollouts.custom_feedback",
        needs="--turns",
    ),
    Flag("--engine ENGINE", "engine", "vllm (default) or transformers"),
    Flag("--trust-remote-code", "trust_remote_code", "run the code that comes with the model"),
    Flag("--seed N", "seed", "default: 0; with vLLM on a CPU that of the engine, no two runs draw alike"),
    Flag("--keep-alive", "keep_alive", _KEEP_ALIVE),
    Flag(
        "--attach",
        "attach",
        "use the engine that was left running, if this model's weights fit it; otherwise say what "
        "differs and start one",
    ),
)

# Which command has which.
FLAGS: Final[Mapping[str, tuple[Flag, ...]]] = {
    "train_accelerated": (*_TRAINING, *ACCELERATION, *_ACCELERATED),
    "train_code_grpo": (
        *_TRAINING,
        Flag(
            "--baseline-engine ENGINE",
            "generation.baseline_engine",
            "what generates: vllm (TRL's own, colocated), transformers, or auto (default): vllm on a GPU, "
            "transformers on a CPU",
        ),
        *(replace(flag, help=argparse.SUPPRESS, choices=None) for flag in ACCELERATION),
    ),
    "evaluate_humaneval": (*_EVALUATION, *_SAMPLING),
}


def given_flags(arguments: argparse.Namespace, command: str) -> dict[Flag, Any]:
    """The flags of ``command`` that were written, with their values as they were written."""
    values = {flag: getattr(arguments, flag.key) for flag in FLAGS[command]}
    return {flag: value for flag, value in values.items() if value not in (None, False, [])}


def fields_set(flags: Mapping[Flag, Any]) -> dict[str, Any]:
    """What the given flags set, by field."""
    return {flag.sets: flag.read(value) for flag, value in flags.items() if flag.sets is not None}


def refuse(flags: Mapping[str, str], allowed: str) -> None:
    """Raise ConfigError for flags with what is wrong with each; nothing where there are none."""
    problems = [
        Problem(where="command line", field=flag, fault=fault, allowed=allowed)
        for flag, fault in flags.items()
    ]
    if problems:
        raise ConfigError(problems)


def refuse_idle(flags: Collection[Flag]) -> None:
    """Raise ConfigError for a flag that does nothing without another one, which is not given."""
    given = {flag.name for flag in flags}
    for flag in flags:
        if flag.needs and flag.needs not in given:
            refuse({flag.name: f"used by {flag.needs} only"}, f"with {flag.needs}")


def evaluation_options(arguments: argparse.Namespace) -> EvaluationOptions:
    """What to evaluate, and how; raises ConfigError for flags that do not go together or are no numbers."""
    from configs.evaluation_options import EvaluationOptions

    flags = given_flags(arguments, "evaluate_humaneval")
    if arguments.samples is not None:
        fault = "not used with --samples, where nothing is sampled"
        refuse(
            {flag.name: fault for flag in _SAMPLING if flag in flags}, "leave it out, or leave out --samples"
        )
    refuse_idle(flags)
    values = fields_set(flags)
    if arguments.greedy:
        said = [flag.name for flag in flags if flag.sets in ("temperature", "num_samples")]
        refuse(dict.fromkeys(said, "--greedy says it already"), "leave it out, or leave out --greedy")
        values |= {"temperature": 0.0, "num_samples": 1}
    nothing = {flag.name: text for flag, text in flags.items() if flag.sets and values[flag.sets] is None}
    refuse({name: f"{show(text)} is not allowed" for name, text in nothing.items()}, "a number")
    return EvaluationOptions(**values)
