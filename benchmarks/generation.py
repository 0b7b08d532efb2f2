"""How fast completions are written: our engine with each way of drafting, vLLM's own defaults, Transformers.

    python -m benchmarks.generation --threads 2 --repeats 5 --output benchmarks/results/generation_cpu.json

Every contender is a process of its own, all pinned to the same cores; one works at a time. In each round
all of them write the same number of completions for the same tasks (--task-set), twice: in the first pass the
tasks are new to them (a cold history), in the second they have answered them before (a warm one). Rounds
take new tasks. A pass is timed whole, its tail included. Figures are medians over the rounds; ratios are
formed within a round, so that what else the machine does falls on both sides. Tokens are completion tokens.
--output is written after each round; where a pass fails it has the rounds before, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from benchmarks.processes import Worker
from benchmarks.report import (
    add_cores_option,
    circumstances,
    command_line,
    make_parser,
    own_cores,
    positive,
    publish,
    table_text,
    write_result,
)
from configs.schema import Config
from curriculum.sources import load_named_tasks
from pipeline.evaluation.sound_tasks import tasks_that_fit
from pipeline.generation.settings import engine_environment
from pipeline.host.device import for_device, has_int8
from pipeline.host.orphan_guard import guarded
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.prompts import PromptTokenizer

_GENERATIONS_PER_TASK = 8
_MIN_SEQUENCES = 16
_START_TIMEOUT_S = 600.0
_PASS_TIMEOUT_S = 900.0
_END_TIMEOUT_S = 30.0
_PASSES = ("first", "second")
_PLAIN = "plain"
# How each contender drafts; int8 is "plain" in another precision. Rivals run as their kind says.
_OWN: Mapping[str, Mapping[str, Any]] = {
    _PLAIN: {"enabled": False},
    "ngram": {"enabled": True, "method": "ngram", "dynamic": False},
    "history": {"enabled": True, "method": "history", "dynamic": False},
    "draft": {"enabled": True, "method": "draft_model", "dynamic": False},
    "dynamic": {"enabled": True, "method": "history", "dynamic": True},
    "int8": {"enabled": False},
}
# Ours, with measured parts (benchmarks.generation_parts): what is called in the engine is pickled.
_TIMED = "timed"
_RIVALS = ("vllm_defaults", "transformers")


class Contender(Worker):
    """See benchmarks.generation_contender; loading its model is what its first answer waits for."""

    def __init__(self, name: str, given: argparse.Namespace, model_path: str) -> None:
        config = contender_config(name, given)
        super().__init__(
            name,
            "benchmarks.generation_contender:Hosted",
            name,
            config,
            model_path,
            environment={**contender_environment(name, config), "HF_HUB_OFFLINE": "1"},
        )

    def wait_ready(self) -> None:
        """Wait until its model is loaded."""
        self.ask("stats", deadline_s=_START_TIMEOUT_S)

    def warm_up(self, task: str) -> None:
        """What does not count: compilation, first allocations."""
        self.ask("write_all", "warm-up", [task] * 4, 4, deadline_s=_PASS_TIMEOUT_S)

    def write_groups(self, name: str, tasks: Sequence[str], num_in_flight: int) -> dict[str, float]:
        """A pass ``name``, a group of completions for each of ``tasks``; see Hosted.write_all."""
        wanted = [task for task in tasks for _ in range(_GENERATIONS_PER_TASK)]
        found: dict[str, float] = self.ask(
            "write_all", name, wanted, num_in_flight, deadline_s=_PASS_TIMEOUT_S
        )
        return found

    def __exit__(self, *exception: object) -> None:
        """Let it end what it has started, then kill it."""
        with contextlib.suppress(RuntimeError):
            self.ask("close", deadline_s=_END_TIMEOUT_S)
        super().__exit__(*exception)


def contender_config(name: str, given: argparse.Namespace) -> Config:
    """The defaults of the project, and what makes this contender."""
    drafts = {"draft_model": given.draft_model} if name == "draft" else {}
    config = Config.model_validate(
        {
            "model": {"name": given.model},
            "dataset": {"overlong_prompts": "skip"},
            "evaluation": {"tasks": given.task_set},
            "generation": {
                "max_completion_length": given.length,
                "quantization": name if name == "int8" else "none",
            },
            "acceleration": {"speculative": {**_OWN.get(name, _OWN[_PLAIN]), **drafts}},
            "runtime": {"generator_threads": given.threads},
        }
    )
    return for_device(config, "cpu")


def contender_environment(name: str, config: Config) -> dict[str, str]:
    """Ours for ours; a rival is told nothing but the cores and to be quiet."""
    if name not in _RIVALS:
        pickles = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"} if name == _TIMED else {}
        return {**engine_environment(config, "cpu"), **pickles}
    num_threads = config.runtime.generator_threads or 1
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "false"}
    cores = ",".join(map(str, own_cores(num_threads)))
    return {**quiet, "VLLM_CPU_OMP_THREADS_BIND": cores, "OMP_NUM_THREADS": str(num_threads)}


def task_slices(
    ids: Sequence[str], batches: Sequence[int], num_repeats: int
) -> Iterator[tuple[int, int, list[str]]]:
    """``(repeat, sequences in flight, task ids)`` of every round: no task is in two of them.

    Raises ValueError when there are too few tasks.
    """
    sizes = {batch: max(_MIN_SEQUENCES, 2 * batch) // _GENERATIONS_PER_TASK for batch in batches}
    needed = num_repeats * sum(sizes.values())
    if needed > len(ids):
        raise ValueError(f"--repeats {num_repeats} needs {needed} tasks; there are {len(ids)}")
    # Neighbours in the built-in ladder are variants of one idea.
    order = iter(random.Random(0).sample(ids, len(ids)))
    for repeat in range(num_repeats):
        for batch in batches:
            yield repeat, batch, [next(order) for _ in range(sizes[batch])]


def model_and_tasks(given: argparse.Namespace) -> tuple[str, list[str]]:
    """The folder of the model, and the ids of the tasks whose prompts fit."""
    config = contender_config(_PLAIN, given)
    model_path = str(resolve_model(config.model))
    tokenizer = PromptTokenizer(Path(model_path), trust_remote_code=False)
    tasks = tasks_that_fit(tokenizer, load_named_tasks(given.task_set), (), config, lambda *_: None)
    return model_path, [task.task_id for task in tasks]


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Every pass of every contender, and what follows from them; ``failed`` says why rounds are missing.

    Raises ValueError where there are too few tasks, RuntimeError where no round was whole.
    """
    model_path, (warm_up, *rest) = model_and_tasks(given)
    # All of them, so that what is refused is refused before engines are loaded.
    rounds = list(task_slices(rest, given.batch, given.repeats))
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        if given.draft_layers:
            given.draft_model = stack.enter_context(TemporaryDirectory(prefix="code-grpo-draft-"))
            save_shallow(Path(model_path), given.draft_layers, Path(given.draft_model))
        contenders = []
        for name in given.contenders:
            contenders.append(stack.enter_context(Contender(name, given, model_path)))
            contenders[-1].wait_ready()
        for one in contenders:
            # Over a task that no round takes.
            one.warm_up(warm_up)
        for repeat, batch, names in rounds:
            try:
                rows += _round(contenders, repeat, batch, names)
            except RuntimeError as error:
                if not rows:
                    raise
                return {**_result(rows, given), "failed": str(error)}
            if given.output is not None:
                write_result(given.output, {"command": command_line(), **_result(rows, given)})
    return _result(rows, given)


def _round(contenders: Sequence[Contender], repeat: int, batch: int, tasks: Sequence[str]) -> list[Any]:
    """Both passes of all contenders. Raises RuntimeError where one fails: ratios need all of them."""
    rows = []
    for which in _PASSES:
        # Whoever comes first in every round might find another machine than the last.
        turn = repeat % len(contenders)
        for one in (*contenders[turn:], *contenders[:turn]):
            answer = one.write_groups(f"{repeat}-{batch}-{which}", tasks, batch)
            row = {"contender": one.name, "repeat": repeat, "batch": batch, "pass": which}
            rows.append({**row, **answer})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _result(rows: Sequence[Mapping[str, Any]], given: argparse.Namespace) -> dict[str, Any]:
    return {
        **summarise(rows),
        "rounds": list(rows),
        "settings": {
            "threads": given.threads,
            "repeats": given.repeats,
            "max_completion_length": given.length,
            "generations_per_task": _GENERATIONS_PER_TASK,
            "model": given.model,
            "task_set": given.task_set,
            "draft_model": f"first {given.draft_layers} layers" if given.draft_layers else given.draft_model,
        },
        # On CPU the distribution is named vllm-cpu.
        **circumstances("torch", "transformers", "vllm", "vllm-cpu"),
    }


def save_shallow(model_path: Path, num_layers: int, folder: Path) -> None:
    """Write the model in ``model_path`` with its first ``num_layers`` layers only to ``folder``.

    A draft model where there is no smaller one of the family. It was not trained as one, so what it drafts is
    seldom kept: a figure with it says what drafting costs, and is a lower bound of what a trained one gains.
    Raises ValueError where the model has fewer layers.
    """
    model = load_model(model_path)
    layers = model.model.layers
    if not 0 < num_layers <= len(layers):
        raise ValueError(f"--draft-layers: value {num_layers}: {model_path} has {len(layers)} layers")
    model.model.layers = nn.ModuleList(layers[:num_layers])
    model.config.num_hidden_layers = num_layers
    model.save_pretrained(folder)
    load_tokenizer(model_path).save_pretrained(folder)


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By sequences in flight, contender and pass: medians over the rounds, and ratios to plain.

    ``acceptance`` is the share of drafted tokens that were kept; ``accepted_length`` the kept tokens a draft.
    """
    by_key: dict[tuple[int, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        by_key.setdefault((row["batch"], row["contender"], row["pass"]), []).append(row)
    figures: dict[str, dict[str, dict[str, Any]]] = {}
    for (batch, contender, which), passes in by_key.items():
        rates = [row["tokens"] / row["seconds"] for row in passes]
        figure: dict[str, Any] = {"tokens_per_s": round(statistics.median(rates), 1)}
        plain = by_key.get((batch, _PLAIN, which))
        if plain is not None:
            ratios = [
                rate * base["seconds"] / base["tokens"] for rate, base in zip(rates, plain, strict=True)
            ]
            figure["times_plain"] = round(statistics.median(ratios), 3)
            figure["rounds_times_plain"] = [round(ratio, 3) for ratio in ratios]
        num_drafted = sum(row.get("drafted", 0) for row in passes)
        if num_drafted:
            num_accepted = sum(row["accepted"] for row in passes)
            figure["acceptance"] = round(num_accepted / num_drafted, 3)
            figure["accepted_length"] = round(num_accepted / sum(row["drafts"] for row in passes), 2)
        figures.setdefault(str(batch), {}).setdefault(contender, {})[which] = figure
    return {"in_flight": figures}


def table(result: dict[str, Any]) -> str:
    """What a reader wants to see, in Markdown: one row a contender, tok/s of both passes and the ratio."""
    machine, settings = result["hardware"], result["settings"]
    batches = list(result["in_flight"])
    rows = []
    for contender in next(iter(result["in_flight"].values())):
        cells, kept = [], []
        for batch in batches:
            first, second = (result["in_flight"][batch][contender][which] for which in _PASSES)
            ratio = f" ({second['times_plain']:.2f})" if "times_plain" in second else ""
            cells.append(f"{first['tokens_per_s']:.0f}, {second['tokens_per_s']:.0f}{ratio}")
            if "acceptance" in second:
                kept.append(f"{100 * second['acceptance']:.0f} % ({second['accepted_length']:.1f} a draft)")
        rows.append([contender, *cells, ", ".join(kept)])
    above = (
        f"{settings['model']}, at most {settings['max_completion_length']} tokens; {machine['cpu']}, "
        f"{settings['threads']} cores; tok/s first pass, second pass (times plain in the second)"
    )
    head = ["sequences in flight", *batches, "accepted of drafted in the second, by sequences"]
    return table_text(head, rows, above=above)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """What a contender is told: cores, length, model, tasks."""
    add_cores_option(parser, "--threads", "cores, the first that this process may use")
    parser.add_argument("--length", type=positive, default=128, help="tokens of a completion at most")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--task-set", default="ladder", help="built in, or FILE.jsonl (%(default)s)")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; what cannot be is refused before anything starts."""
    parser = make_parser(__doc__)
    names = [*_OWN, *_RIVALS]
    add_engine_options(parser)
    parser.add_argument(
        "--batch", nargs="+", type=positive, default=[1, 4, 16, 64], help="sequences in flight"
    )
    parser.add_argument("--repeats", type=positive, default=3, help="rounds, each with new tasks")
    parser.add_argument("--draft-model", help="folder of a smaller model; without one draft is left out")
    parser.add_argument("--draft-layers", type=int, help="draft with the model's own first layers")
    parser.add_argument("--contenders", nargs="+", choices=names, help="default: all that can run")
    given = parser.parse_args(arguments)
    has_draft = bool(given.draft_model or given.draft_layers)
    cannot = {} if has_draft else {"draft": "--draft-model or --draft-layers"}
    cannot |= {} if has_int8() else {"int8": "a processor with AVX-512 VNNI"}
    if given.contenders is None:
        given.contenders = [name for name in names if name not in cannot]
    for name in given.contenders:
        if name in cannot:
            parser.error(f"--contenders: {name} needs {cannot[name]}")
    # What is named twice would be compared with itself.
    given.contenders, given.batch = list(dict.fromkeys(given.contenders)), list(dict.fromkeys(given.batch))
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line says; 1 if a pass failed, 2 for what cannot be."""
    given = parse_arguments(arguments)
    os.sched_setaffinity(0, own_cores(given.threads))
    try:
        # Killed, contenders would leave their engines behind.
        with guarded():
            result = measure(given)
    except (ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    publish(result, table, given)
    if "failed" in result:
        print(f"error: {result['failed']}", file=sys.stderr)
    return int("failed" in result)


if __name__ == "__main__":
    sys.exit(main())
