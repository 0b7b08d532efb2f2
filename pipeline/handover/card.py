"""The card of a trained model: what it was trained on and for, with which settings, and what came of it.

A README.md as the Hugging Face hub reads it, from the run's configuration and summary.json; for a run that
has not ended it says so. Measures nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from configs.cluster_schema import ClusterConfig
from configs.finished import load_finished
from configs.load import render
from configs.output_schema import OutputConfig
from configs.schema import Config
from configs.task_sets import hub_file_parts, is_on_hub
from configs.techniques import value_at
from pipeline.evaluation.passk import table_cells
from pipeline.host.files import read_object, write_text_atomically
from pipeline.models.packaged import BUILT_IN
from pipeline.record.ledger_tables import num_trained
from pipeline.record.run_folder import BASELINE_MARK

CARD = "README.md"
_TAGS = ["code", "grpo", "reinforcement-learning", "code-grpo"]
_SHOWN_SETTINGS = (
    "training.max_steps",
    "training.learning_rate",
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.bf16",
    "training.seed",
    "grpo.num_generations",
    "grpo.beta",
    "grpo.loss_type",
    "generation.temperature",
    "generation.max_completion_length",
    "acceleration.mode",
    "acceleration.max_staleness",
    "lora.enabled",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """What a card is made of. ``summary`` is summary.json's content, empty for a run that did not end."""

    name: str
    step: int
    config: Config
    summary: Mapping[str, Any]
    is_baseline: bool
    num_completions: int


def trained_model(run: Path, step: int) -> TrainedModel:
    """The facts of the run in ``run``. Raises ValueError, naming the file, where they cannot be read."""
    summary, config = run / "summary.json", load_finished(run / "config.yaml")
    return TrainedModel(
        name=run.resolve().name,
        step=step,
        config=config,
        num_completions=num_trained(run / "run.db", step) or step * config.completions_per_step,
        summary=read_object(summary) if summary.is_file() else {},
        is_baseline=(run / BASELINE_MARK).exists(),
    )


def write_card(folder: Path, model: TrainedModel) -> Path:
    """Write README.md into ``folder``, the model's; returns its path."""
    path = folder / CARD
    write_text_atomically(path, str(make_card(model)))
    return path


def make_card(model: TrainedModel) -> ModelCard:
    """The card, with the metadata that the hub shows beside it."""
    config = model.config
    base, licence = config.model.name, None
    if (built_in := BUILT_IN.get(base)) is not None:
        base, licence = built_in.original, built_in.licence
    is_hub_name = base.count("/") == 1 and not Path(base).expanduser().exists()
    base = _unplaced(base)
    data = ModelCardData(
        language="en",
        license=licence,
        base_model=base if is_hub_name else None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=_TAGS,
        model_name=model.name,
        eval_results=_eval_results(model) or None,
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(_lines(model, base)) + "\n")


def _lines(model: TrainedModel, base: str) -> Iterator[str]:
    config, dataset = model.config, model.config.dataset
    yield f"# {model.name}"
    yield ""
    trainer = "TRL's synchronous trainer" if model.is_baseline else "asynchronous GRPO"
    yield (
        f"`{base}` after {model.step} of {config.training.max_steps} steps of {trainer} with code-grpo, "
        "which teaches a language model to write Python that passes tests."
    )
    yield from _section("Data")
    limit = f", at most {dataset.max_samples} tasks" if dataset.max_samples else ""
    yield f"Tasks: `{_unplaced(dataset.name)}`, split `{dataset.split}`{limit}."
    if dataset.allow_evaluation_sets:
        named = ", ".join(dataset.allow_evaluation_sets)
        yield f"Trained on evaluation sets by leave: {named}. Its scores on them mean nothing."
    yield f"{model.num_completions:,} completions were scored and trained on."
    yield from _section("Rewards")
    yield from _reward_lines(config)
    yield from _section("Evaluation")
    yield from _evaluation_lines(model)
    yield from _section("Settings")
    shown = [name for name in _SHOWN_SETTINGS if not (model.is_baseline and name.startswith("acceleration."))]
    yield from _table(("setting", "value"), ((name, str(value_at(config, name))) for name in shown))
    yield ""
    settings = render(_of_nobody(config)).rstrip()
    yield from ("<details><summary>all settings</summary>", "", "```yaml", settings, "```", "")
    yield "</details>"
    yield from _section("Made with")
    yield from _origin_lines(model)
    yield from _section("Use")
    yield from ("```python", "from transformers import pipeline", "")
    yield 'write = pipeline("text-generation", "FOLDER_OR_HUB_NAME")'
    yield "```"
    yield ""
    yield (
        f"The model was asked through its chat template, where it has one, {_chat_terms(config)}and its "
        f"answer was opened with {config.generation.assistant_prefill!r}. It writes programs that may be "
        "wrong: run them in a sandbox."
    )


def _chat_terms(config: Config) -> str:
    """What else the prompt was made with; empty where nothing."""
    generation = config.generation
    terms = (
        "" if generation.system_prompt is None else f"with the system prompt {generation.system_prompt!r} "
    )
    if generation.chat_template_kwargs:
        terms += f"with its variables {json.dumps(generation.chat_template_kwargs, default=str)} "
    return terms


def _section(title: str) -> tuple[str, ...]:
    return ("", f"## {title}", "")


def _reward_lines(config: Config) -> Iterator[str]:
    rewards = config.rewards
    rows = [(name, f"{weight:g}") for name, weight in rewards.weights.model_dump().items() if weight]
    rows += [
        (name, f"{weight:g}") for name, weight in zip(rewards.custom, rewards.custom_weights, strict=True)
    ]
    yield f"Preset `{rewards.preset}`; a weighted sum of:"
    yield ""
    yield from _table(("part", "weight"), rows)
    for source, override in rewards.per_source.items():
        said = [f"{name} {value:g}" for name, value in override.weights.items()]
        said += [f"tests: {override.tests}"] * (override.tests is not None)
        if (failure := override.syntax_failure_reward) is not None:
            said.append(f"{failure:g} for a syntax failure")
        if said:
            yield f"\nOf tasks from `{source}`: {', '.join(said)}."


def _evaluation_of(model: TrainedModel) -> Mapping[str, Any]:
    """What the run measured of this very step; the run may have measured another, or gone on since."""
    is_of_step = model.summary.get("num_steps") == model.step
    return (model.summary.get("evaluation") or {}) if is_of_step else {}


def _evaluation_lines(model: TrainedModel) -> Iterator[str]:
    evaluation = _evaluation_of(model)
    rows = []
    for name, words in (("before", "before training"), ("after", "after training")):
        if evaluation.get(name):
            rows.append((words, *table_cells(evaluation[name]["pass_at_1"])))
    if evaluation.get("difference"):
        rows.append(("difference, paired by task", *table_cells(evaluation["difference"], "+")))
    if not rows:
        measured = model.summary.get("num_steps", model.step)
        yield (
            "Not measured: the run did not come to its end, or measured nothing."
            if measured == model.step
            else f"Not measured: what the run measured is step {measured}, and this is step {model.step}."
        )
        return
    yield (
        f"pass@1 on `{_unplaced(evaluation['tasks'])}`, {evaluation['samples_per_task']} samples a task at "
        f"temperature {evaluation['temperature']:g}, intervals by bootstrap over tasks:"
    )
    yield ""
    yield from _table(("", "pass@1", "95 % interval"), rows)


def _origin_lines(model: TrainedModel) -> Iterator[str]:
    summary = model.summary
    versions = ", ".join(f"{name} {version}" for name, version in summary.get("versions", {}).items())
    hardware = summary.get("hardware", {})
    rows = [("commit of code-grpo", str(summary.get("commit") or "unknown"))]
    if versions:
        rows.append(("versions", versions))
    if hardware:
        rows.append(("hardware", f"{hardware.get('cpu')}, {hardware.get('num_cores')} cores"))
    if "seconds" in summary:
        rows.append(("wall time", f"{summary['seconds'].get('total', 0.0) / 60:.1f} min in all"))
    if "isolation_level" in summary:
        rows.append(("sandbox", f"level {summary['isolation_level']}"))
    yield from _table(("", ""), rows)


def _of_nobody(config: Config) -> Config:
    """``config`` without what says where its machine keeps things, for others to read."""
    update = {
        "model": config.model.model_copy(update={"name": _unplaced(config.model.name)}),
        "dataset": config.dataset.model_copy(update={"name": _unplaced(config.dataset.name)}),
        "evaluation": config.evaluation.model_copy(update={"tasks": _unplaced(config.evaluation.tasks)}),
        "output": OutputConfig(),
        "cluster": ClusterConfig(),
    }
    return config.model_copy(update=update)


def _unplaced(name: str) -> str:
    """Of an absolute path its last part, else ``name``."""
    return Path(name).name if Path(name).is_absolute() else name


def _eval_results(model: TrainedModel) -> list[EvalResult]:
    evaluation = _evaluation_of(model)
    if not evaluation.get("after"):
        return []
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=_hub_name(evaluation["tasks"]),
            dataset_name=_unplaced(evaluation["tasks"]),
            metric_type="pass@1",
            metric_value=round(evaluation["after"]["pass_at_1"]["mean"], 4),
        )
    ]


def _hub_name(tasks: str) -> str:
    """``tasks`` as the hub takes a data set's name: OWNER/NAME, or one name."""
    if (parts := hub_file_parts(tasks)) is not None:
        return parts[0]
    if is_on_hub(tasks) and not Path(tasks).is_dir():
        return tasks
    return re.sub(r"[^\w.-]", "-", Path(tasks).name, flags=re.ASCII)


def _table(heads: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + " --- |" * len(heads)
    for row in rows:
        yield f"| {' | '.join(row)} |"
