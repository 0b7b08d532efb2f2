"""What to evaluate and how: the options of evaluate_humaneval.

Checks the options; samples and scores nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from configs.errors import ConfigError, Problem, wrong_value
from configs.generation_schema import chat_template_problems
from configs.rollouts_schema import FeedbackKind
from configs.schema import Config, RuntimeConfig
from configs.section import module_name_problems
from configs.task_sets import task_set_problems
from configs.yaml_text import parse_value

ENGINES = ("vllm", "transformers")
PROMPT_FORMS = ("chat", "completion")
FEEDBACK: tuple[str, ...] = get_args(FeedbackKind)
# Options that only say how a chat is asked.
_OF_CHATS = ("system_prompt", "chat_template_kwargs", "assistant_prefill")
_SLOWEST_TOKEN_S = 2.0  # of an engine that works, with a batch of an evaluation's size


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """One evaluation: sample from ``model``, or score the completions that ``samples`` holds.

    Exactly one of ``model`` (as ``model.name`` in a configuration) and ``samples`` (a JSONL file in OpenAI's
    format) is given; ``against`` is another one to compare it with. ``prompt_form`` says how the model is
    asked: by its chat template, or with text to be continued; for the first ``system_prompt``,
    ``assistant_prefill`` and ``chat_template_kwargs`` (written as JSON or YAML) are as in ``generation`` of a
    configuration. ``timeout`` bounds the CPU seconds of one sample's run (of one test, where the answer is a
    whole program). ``per_task`` shows every task. ``ks`` are the k of pass@k; left empty, they become 1 and,
    where it is larger and known, ``num_samples``. ``num_samples``, the completions per task, and the sampling
    settings only count when sampling. An answer that failed is followed by up to ``turns`` - 1 more, after
    ``feedback`` (rewards.feedback) on the one before, or what a user's function ``custom_feedback`` makes of
    that.
    ``limit`` evaluates the first so many tasks. ``output`` is the file for samples and verdicts. ``seed``
    makes each task's samples repeatable with the Transformers engine, and with vLLM on a GPU; vLLM 0.31 on a
    CPU ends on some seeded batches, so none are sent to it there. ``allow_unsafe`` and ``modules`` are as in
    ``execution`` of a configuration, ``attach`` and ``keep_alive`` as in ``runtime``, but any engine with
    this model's layers will do; ``trust_remote_code`` as in ``model``. Raises ConfigError that names each
    wrong option by its flag.
    """

    model: str | None = None
    tasks: str = "humaneval"
    num_samples: int = 10
    ks: tuple[int, ...] = ()
    samples: str | None = None
    against: str | None = None
    prompt_form: str = "chat"
    system_prompt: str | None = None
    chat_template_kwargs: str | None = None
    assistant_prefill: str | None = None
    timeout: float = 2.0
    per_task: bool = False
    output: str | None = None
    temperature: float = 0.6
    top_p: float = 1.0
    max_completion_length: int = 512
    limit: int | None = None
    engine: str = "vllm"
    seed: int = 0
    allow_unsafe: bool = False
    modules: tuple[str, ...] = ()
    turns: int = 1
    feedback: str = "public"
    custom_feedback: str | None = None
    attach: bool = False
    keep_alive: bool = False
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ConfigError([replace(problem, where="command line") for problem in problems])
        if not self.ks:
            sampled = (self.num_samples,) if self.samples is None and self.num_samples > 1 else ()
            object.__setattr__(self, "ks", (1, *sampled))

    def _problems(self) -> Iterator[Problem]:
        yield from self._source_problems()
        for flag, value in (
            ("--turns", self.turns),
            ("-n", self.num_samples),
            ("--max-completion-length", self.max_completion_length),
            ("--limit", self.limit),
        ):
            if value is not None and not _is_int(value, 1):
                yield wrong_value(flag, value, "a whole number > 0")
        if not _is_int(self.seed, 0) or self.seed >= 2**31:
            yield wrong_value("--seed", self.seed, "a whole number >= 0 and < 2**31")
        if not _is_number(self.temperature) or self.temperature < 0:
            yield wrong_value("--temperature", self.temperature, "a number >= 0")
        if not _is_number(self.top_p) or not 0 < self.top_p <= 1:
            yield wrong_value("--top-p", self.top_p, "a number > 0 and <= 1")
        if not _is_number(self.timeout) or self.timeout <= 0:
            yield wrong_value("--timeout", self.timeout, "a number > 0")
        yield from module_name_problems("--module", self.modules)
        if self.prompt_form not in PROMPT_FORMS:
            yield wrong_value("--prompt-form", self.prompt_form, f"one of: {', '.join(PROMPT_FORMS)}")
        if self.feedback not in FEEDBACK:
            yield wrong_value("--feedback", self.feedback, f"one of: {', '.join(FEEDBACK)}")
        if self.turns != 1 and self.prompt_form == "completion":
            yield wrong_value(
                "--turns", self.turns, "1 with --prompt-form completion, which is no conversation"
            )
        yield from self._chat_problems()
        if self.engine not in ENGINES:
            yield wrong_value("--engine", self.engine, f"one of: {', '.join(ENGINES)}")
        if self.engine != "vllm" and (self.attach or self.keep_alive):
            yield wrong_value("--engine", self.engine, "vllm with --attach or --keep-alive")
        if self.temperature == 0 and self.num_samples != 1 and self.samples is None:
            yield wrong_value(
                "-n", self.num_samples, "1 with --temperature 0, where all samples are the same"
            )
        yield from self._k_problems()

    def _chat_problems(self) -> Iterator[Problem]:
        for name in _OF_CHATS:
            value = getattr(self, name)
            if value is not None and self.prompt_form == "completion":
                allowed = "nothing with --prompt-form completion, where the prompt itself is continued"
                yield wrong_value(f"--{name.replace('_', '-')}", value, allowed)
        if self.chat_template_kwargs is not None:
            variables = parse_value(self.chat_template_kwargs)
            if not isinstance(variables, dict) or not all(isinstance(name, str) for name in variables):
                allowed = 'a mapping, such as {"enable_thinking": false}'
                yield wrong_value("--chat-template-kwargs", self.chat_template_kwargs, allowed)
            else:
                for problem in chat_template_problems(variables):
                    yield replace(problem, field=f"--chat-template-kwargs: {problem.field}")

    def sample_settings(self) -> dict[str, str]:
        """What the samples of an evaluation, and their verdicts, depend on besides model and tasks."""
        names = [
            *("num_samples", "temperature", "top_p", "max_completion_length", "prompt_form", "engine"),
            *("seed", "timeout", "modules"),
        ]
        # Of no meaning where there is one turn, and then not in the journals of earlier versions either.
        names += ["turns", "feedback"] if self.turns > 1 else []
        given = ("custom_feedback", *_OF_CHATS)
        names += [name for name in given if getattr(self, name) is not None]
        return {name.replace("_", " "): str(getattr(self, name)) for name in names}

    def _source_problems(self) -> Iterator[Problem]:
        if (self.model is None) == (self.samples is None):
            allowed = "exactly one of --model NAME (to sample) and --samples FILE (to score)"
            yield wrong_value("--model, --samples", [self.model, self.samples], allowed)
        if self.model == "":
            yield wrong_value("--model", self.model, "text, not empty")
        if self.samples is not None:
            yield from _missing_file("--samples", self.samples)
        if self.against is not None:
            yield from self._against_problems(self.against)
        yield from task_set_problems("--tasks", self.tasks)
        folder_problems = [] if self.output is None else list(_folder_problems(self.output))
        yield from folder_problems
        if not folder_problems and (self.model is None) != (self.samples is None):
            yield from self._output_problems()

    def _against_problems(self, against: str) -> Iterator[Problem]:
        if against in ("", self.model, self.samples):
            yield wrong_value("--against", against, "another model (with --samples: file) to compare with")
        elif self.samples is not None:
            yield from _missing_file("--against", against)

    def stems(self) -> dict[str, str]:
        """What the files of each model, or file of samples, begin with, by its name; one or two of them."""
        first = self.samples if self.samples is not None else self.model
        assert first is not None
        tasks = Path(self.tasks).name.removesuffix(".gz").removesuffix(".jsonl")
        stem = self.output or self.samples or f"{tasks}_samples.jsonl"
        stems = {first: stem}
        if self.against is not None:
            own = self.against if self.samples is not None and self.output is None else None
            path = Path(stem)
            stems[self.against] = own or str(path.with_name(f"{path.stem}_against{path.suffix}"))
        return stems

    def _output_problems(self) -> Iterator[Problem]:
        stems = list(self.stems().values())
        written = [f"{stems[0]}_report.json", *(f"{stem}_results.jsonl" for stem in stems)]
        written += stems if self.samples is None else [self.output] if self.output is not None else []
        read = [self.tasks, *(name for name in (self.samples, self.against) if name is not None)]
        there = {Path(name).absolute() for name in read if os.path.exists(name)}
        for path in written:
            if Path(path).absolute() in there:
                allowed = (
                    "a file whose results are beside it, and none of them is one that the evaluation reads"
                )
                yield Problem(field="--output", fault=f"{path} would be overwritten", allowed=allowed)

    def _k_problems(self) -> Iterator[Problem]:
        for k in self.ks:
            if not _is_int(k, 1):
                yield wrong_value("-k", k, "a whole number > 0")
            elif self.samples is None and _is_int(self.num_samples, 1) and k > self.num_samples:
                yield wrong_value("-k", k, f"at most -n, which is {self.num_samples}")


def _folder_problems(output: str) -> Iterator[Problem]:
    path = Path(output)
    if not os.path.isdir(path.absolute().parent):
        fault, allowed = f"no such folder: {path.parent}", "a file in an existing folder"
        yield Problem(field="--output", fault=fault, allowed=allowed)
    elif os.path.isdir(path):
        yield Problem(field="--output", fault=f"{output} is a folder", allowed="a file")


def _missing_file(flag: str, path: str) -> Iterator[Problem]:
    if not os.path.isfile(path):
        yield Problem(field=flag, fault=f"no such file: {path}", allowed="an existing JSONL file")


def _is_int(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def config_of(options: EvaluationOptions, model: str) -> Config:
    """The configuration of an engine that answers as ``options`` say, with the weights of ``model``."""
    generation: dict[str, Any] = {
        name: value for name in _OF_CHATS if (value := getattr(options, name)) is not None
    }
    generation |= {"engine": options.engine, "max_completion_length": options.max_completion_length}
    if options.chat_template_kwargs is not None:
        generation["chat_template_kwargs"] = parse_value(options.chat_template_kwargs)
    # No option says it, and a slow machine may take seconds for a token of many answers.
    patience_s = max(RuntimeConfig().generation_timeout_s, _SLOWEST_TOKEN_S * options.max_completion_length)
    return Config.model_validate(
        {
            "model": {"name": model, "trust_remote_code": options.trust_remote_code},
            "generation": generation,
            "training": {"seed": options.seed},
            # The engine is as long as the longest of both.
            "evaluation": {"max_completion_length": options.max_completion_length},
            "runtime": {
                "attach": options.attach,
                "keep_alive": options.keep_alive,
                "generation_timeout_s": patience_s,
            },
        }
    )
