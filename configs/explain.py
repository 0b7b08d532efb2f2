"""From pydantic's findings to problems that say, in plain words, what each field allows.

Reads the words from the schema itself, so that the two cannot disagree. Does not know where a value was
written: configs.load, the only caller, adds that.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from configs.errors import ConfigError, Problem, nearest, show, wrong_value
from configs.schema import Config

Path = tuple[str | int, ...]
# Names of other trainers that have no like here, or another one.
_ELSEWHERE = {
    "num_train_epochs": "training.max_steps, for there are no epochs",
    "num_epochs": "training.max_steps, for there are no epochs",
    "epochs": "training.max_steps, for there are no epochs",
    "lr": "training.learning_rate",
    "batch_size": "training.per_device_train_batch_size",
    "warmup_ratio": "training.warmup_steps",
    "max_seq_length": "generation.max_completion_length",
    "use_vllm": "generation.engine",
    "vllm_gpu_memory_utilization": "generation.gpu_memory_utilization",
    "use_peft": "lora.enabled",
    "steps_per_generation": "acceleration.max_staleness",
    "auto_find_batch_size": "training.memory",
    "output_dir": "output.dir",
    "run_name": "output.name",
    "hub_private_repo": "output.hub_private",
    "vllm_importance_sampling_mode": "grpo.importance_sampling_mode",
    "vllm_importance_sampling_clip_max": "grpo.importance_sampling_cap",
    "vllm_mode": "runtime.placement",
    "vllm_tensor_parallel_size": "generation.tensor_parallel_size",
    "vllm_enable_sleep_mode": "generation.sleep_while_training",
    "reward_weights": "rewards.custom_weights or rewards.weights",
    "deepspeed": "runtime.trainer_ranks",
    "eval_steps": "evaluation.every_steps",
}
# TRL's that have none, with the reasons in docs/from_trl.md.
_NOT_OFFERED = frozenset(
    {
        "entropy_coef",
        "generation_batch_size",
        "generation_kwargs",
        "log_completions",
        "min_p",
        "num_iterations",
        "off_policy_mask_threshold",
        "repetition_penalty",
        "sync_ref_model",
        "top_entropy_quantile",
        "use_bias_correction_kl",
        "vllm_importance_sampling_clip_min",
        "vllm_max_model_length",
    }
)
# What is no value of the setting here, and how it is said instead.
_VALUES_ELSEWHERE = {"gspo": "; GSPO is grpo.importance_sampling_level: sequence"}
_TYPE_WORDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "null": "null",
}


def explain(error: ValidationError) -> list[Problem]:
    """One problem for each finding, with the field's dotted path; ``where`` is left empty."""
    problems: list[Problem] = []
    for finding in error.errors(include_url=False):
        path = finding["loc"]
        # Of a field that takes several types pydantic names the one that it tried as well.
        while path and not _schema_at(path) and finding["type"] != "extra_forbidden":
            path = path[:-1]
        cause = finding.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):
            problems.extend(_below(path, problem) for problem in cause.problems)
        elif finding["type"] == "extra_forbidden":
            problems.append(_unknown_key(path, finding["input"]))
        else:
            allowed = _words(_schema_at(path)) + _VALUES_ELSEWHERE.get(str(finding["input"]), "")
            problems.append(wrong_value(dotted(path), finding["input"], allowed))
    return list(dict.fromkeys(problems))


def dotted(path: Path) -> str:
    """``path`` as users write it."""
    return ".".join(str(key) for key in path)


def fields_called(name: str) -> str | None:
    """The dotted fields of that name, or what another trainer's setting of that name is called here."""
    found = [path for path in _all_paths() if path.rpartition(".")[2] == name]
    return " or ".join(found) or _ELSEWHERE.get(name)


def _below(path: Path, problem: Problem) -> Problem:
    prefix = dotted(path)

    def full(field: str) -> str:
        return ".".join(part for part in (prefix, field) if part)

    return replace(problem, field=full(problem.field), related=tuple(map(full, problem.related)))


def _unknown_key(path: Path, value: object) -> Problem:
    *parents, key = path
    siblings = sorted(_schema_at(tuple(parents)).get("properties", {}))
    if key in _NOT_OFFERED:
        hint = "; TRL's, and not offered here: docs/from_trl.md"
    else:
        guess = _likely_path(str(key), dotted(tuple(parents)), siblings)
        hint = f"; did you mean {guess}?" if guess else ""
    fault = f"unknown key (value {show(value)}{hint})"
    return Problem(field=dotted(path), fault=fault, allowed=", ".join(siblings))


def _likely_path(key: str, parent: str, siblings: list[str]) -> str | None:
    elsewhere = fields_called(key)
    if elsewhere:
        return elsewhere
    guess = nearest(key, siblings)
    if guess:
        return f"{parent}.{guess}" if parent else guess
    return nearest(key, _all_paths())


@lru_cache
def _whole_schema() -> dict[str, Any]:
    return Config.model_json_schema()


@lru_cache
def _all_paths() -> tuple[str, ...]:
    def walk(schema: dict[str, Any], prefix: str) -> list[str]:
        paths = []
        for key, child in _resolve(schema).get("properties", {}).items():
            paths += [prefix + key, *walk(child, f"{prefix}{key}.")]
        return paths

    return tuple(walk(_whole_schema(), ""))


def _schema_at(path: Path) -> dict[str, Any]:
    """What the schema says of ``path``."""
    schema = _whole_schema()
    for key in path:
        schema = _resolve(_child(schema, key))
    return schema


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    resolved: dict[str, Any] = _whole_schema()["$defs"][reference.rpartition("/")[2]]
    return resolved


def _child(schema: dict[str, Any], key: str | int) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    if key in properties:
        return properties[str(key)]
    below = schema.get("items") or schema.get("additionalProperties")
    return below if isinstance(below, dict) else {}


def _words(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_words(_resolve(choice)) for choice in schema["anyOf"])
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return "one of: " + ", ".join(str(choice) for choice in schema["enum"])
    kind = schema.get("type", "")
    if kind == "object":
        keys = ", ".join(schema.get("properties", {}))
        return f"a mapping with keys of: {keys}" if keys else f"a mapping from text to {_below_words(schema)}"
    if kind == "array":
        return f"a list of {_words(_resolve(schema['items']))} values"
    return _TYPE_WORDS.get(kind, "another value") + _range_words(schema)


def _below_words(schema: dict[str, Any]) -> str:
    """What the values of a mapping with free keys may be."""
    below = schema["additionalProperties"]
    if not isinstance(below, dict):
        return "any value"
    below = _resolve(below)
    return "text" if below.get("type") == "string" else _words(below)


def _range_words(schema: dict[str, Any]) -> str:
    if schema.get("type") == "string":
        return ", not empty" if schema.get("minLength") else ' (put digits in quotes, as "12")'
    bounds = [
        f"{sign} {schema[keyword]}"
        for keyword, sign in (
            ("exclusiveMinimum", ">"),
            ("minimum", ">="),
            ("exclusiveMaximum", "<"),
            ("maximum", "<="),
        )
        if keyword in schema
    ]
    return f" {' and '.join(bounds)}" if bounds else ""
