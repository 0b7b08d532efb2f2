"""What the steps of finished runs took, stage by stage, and what this machine could do the same work in.

    python -m benchmarks.step_limit runs/benchmark/conservative-0 runs/benchmark/aggressive-0 --steps 6

Counted are the last --steps steps of each run before those for which nothing follows (a multiple of what it
generates at once). The limit of training is its matrix products, forward and backward (adapters: without the
gradients of frozen weights; groups without signal need none; with a KL term all do, and the reference's
forward), at the rate that products of the model's shapes reach here by themselves. That of generation is the
longer of its products at that rate, prompts once a group, and of reading all weights once for each token of
--sequences sequences at the rate at which memory is read; where rollouts were quantised it is left out, and
with it that of the step: neither rate is theirs. Attention counts, nothing counts twice, all else (norms,
sampling, scoring, the optimiser, weights on their way) is taken to need no time. Nothing else may run
meanwhile: the rates are measured first.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import (
    add_cores_option,
    circumstances,
    make_parser,
    own_cores,
    positive,
    publish,
    table_text,
)
from benchmarks.train_step.job import precision_of
from benchmarks.train_step.profile import linear_shapes, measure_limit
from benchmarks.whole_runs.contest import steps_ahead
from configs.finished import load_finished
from configs.schema import Config
from pipeline.host.device import for_device
from pipeline.messages import TrainBatch
from pipeline.models.find import resolve_model
from pipeline.planning.memory_estimate import read_shape
from pipeline.record.ledger_tables import reading
from pipeline.record.metrics import read_metrics
from pipeline.rollouts.batch import make_batch
from pipeline.run.replay import RunRecord, Tasks
from pipeline.training.memory import needed_flops, training_flops

_READ_BYTES = 2**30
_REPEATS = 5
STAGES: Mapping[str, str] = {
    "generation": "generation/seconds",
    "training": "train/seconds",
    "weight updates": "weights/update_s",
}


def memory_rate() -> float:
    """Bytes a second that this machine reads, on all cores of this process."""
    values = torch.ones(_READ_BYTES // 4)
    seconds = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        values.sum()
        seconds.append(time.perf_counter() - started)
    return _READ_BYTES / statistics.median(seconds)


def machine_rates(folder: str, num_cores: int) -> dict[str, Any]:
    """``flops_per_s`` of products of the shapes of the model in ``folder``, and ``bytes_per_s`` read, on so
    many cores."""
    before, num_threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, own_cores(num_cores))
    # It has counted them already.
    torch.set_num_threads(num_cores)
    try:
        limit = measure_limit(folder, "cpu")
        return {
            "flops_per_s": 1e9 * limit["gflops"],
            "dtype": precision_of(limit),
            "bytes_per_s": memory_rate(),
        }
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(num_threads)


def needed(folder: str, batch: TrainBatch, *, is_lora: bool, has_kl: bool = False) -> dict[str, float]:
    """Operations by stage of a step that writes ``batch`` and trains on it; ``has_kl``: with a reference."""
    shape = read_shape(Path(folder) / "config.json")
    trained = [sample for sample in batch.samples if has_kl or sample.advantage != 0]
    flops = needed_flops(shape, trained)
    return {
        "training": training_flops(flops, is_frozen=is_lora) + has_kl * sum(flops.values()) / 3,
        # A forward is a third of forward and backward.
        "generation": sum(needed_flops(shape, batch.samples).values()) / 3,
    }


def measure_run(run: Path, num_steps: int, num_sequences: int, rates: Mapping[str, Any]) -> dict[str, Any]:
    """Mean seconds of a counted step, by stage, and the least that they could be. Raises ValueError."""
    # What "auto" is on this machine.
    config = for_device(load_finished(run / "config.yaml"), "cpu")
    ahead = steps_ahead(config)
    rows = read_metrics(run / "metrics.jsonl")
    end, num_steps = len(rows) - ahead, num_steps - num_steps % max(1, ahead)
    if not 0 < num_steps < end:
        raise ValueError(f"{run}: has {end} steps that count; --steps has to be fewer, and {ahead} or more")
    counted = rows[end - num_steps : end]
    folder = str(resolve_model(config.model))
    flops = dict.fromkeys(("training", "generation"), 0.0)
    num_trained = 0
    with reading(run / "run.db") as database:
        record, tasks = RunRecord(run, database), Tasks(config, Path(folder))
        steps = {step.step: step for step in record.steps()}
        for row in counted:
            step = steps[int(row["step"] or 0)]
            groups = [record.group(draw_id, tasks) for draw_id in step.draw_ids]
            batch = make_batch(step.step, groups, config.grpo)
            for stage, value in needed(
                folder, batch, is_lora=config.lora.enabled, has_kl=config.grpo.beta > 0
            ).items():
                flops[stage] += value
            num_trained += batch.num_tokens
    # What is never trained on counts as the rest, with its share of prompts; what was trained on was written,
    # be it while an earlier step was counted.
    written = max(sum(row["generation/tokens"] or 0.0 for row in counted), float(num_trained))
    flops["generation"] *= written / num_trained
    least = least_s(config, folder, flops, written / num_sequences, rates)
    seconds = float(counted[-1]["time_s"] or 0.0) - float(rows[end - num_steps - 1]["time_s"] or 0.0)
    return {
        "num_steps": num_steps,
        "step_s": seconds / num_steps,
        "stages_s": {
            name: sum(row.get(metric) or 0.0 for row in counted) / num_steps
            for name, metric in STAGES.items()
        },
        "least_s": {stage: value / num_steps for stage, value in least.items()},
        "of_limit": sum(least.values()) / seconds if "generation" in least else None,
    }


def least_s(
    config: Config, folder: str, flops: Mapping[str, float], num_readings: float, rates: Mapping[str, Any]
) -> dict[str, float]:
    """Seconds at the limit, by stage: of ``flops``, and of so many readings of all weights.

    Without generation where it is quantised: its products and its weights are of another width.
    """
    least = {stage: value / rates["flops_per_s"] for stage, value in flops.items()}
    if config.generation.quantization != "none":
        del least["generation"]
        return least
    width = 4 if config.generation.dtype == "float32" else 2
    num_bytes = width * sum(out * inputs * count for (out, inputs), count in linear_shapes(folder).items())
    least["generation"] = max(least["generation"], num_readings * num_bytes / rates["bytes_per_s"])
    return least


def table(result: dict[str, Any]) -> str:
    """The figures in Markdown."""
    rows = []
    for name, run in result["runs"].items():
        for stage, seconds in run["stages_s"].items():
            least = run["least_s"].get(stage)
            share = "" if least is None or not seconds else f"{100 * least / seconds:.0f} %"
            rows.append(
                [f"`{name}`", stage, f"{seconds:.1f}", "" if least is None else f"{least:.1f}", share]
            )
        cells = ["", ""]
        if run["of_limit"] is not None:
            cells = [f"{sum(run['least_s'].values()):.1f}", f"{100 * run['of_limit']:.0f} %"]
        rows.append([f"`{name}`", f"step (mean of {run['num_steps']})", f"{run['step_s']:.1f}", *cells])
    above = (
        f"{result['hardware']['cpu']}, {result['hardware']['cores']} cores: products of its shapes at "
        f"{result['rates']['flops_per_s'] / 1e9:.0f} GFLOP/s in {precision_of(result['rates'])}, "
        f"memory read at {result['rates']['bytes_per_s'] / 1e9:.0f} GB/s."
    )
    return table_text(["run", "stage", "s a step", "s at the limit", "share of it"], rows, above=above)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs of one model")
    parser.add_argument("--steps", type=positive, default=6, help="steps that are counted (%(default)s)")
    parser.add_argument(
        "--sequences", type=positive, default=32, help="sequences that are written at once (%(default)s)"
    )
    add_cores_option(parser, "--cores", "cores that the runs were held to")
    given: argparse.Namespace = parser.parse_args(arguments)
    if len({run.name for run in given.runs}) < len(given.runs):
        print("error: runs: two folders have one name, under which a result stands", file=sys.stderr)
        return 2
    try:
        folder = str(resolve_model(load_finished(given.runs[0] / "config.yaml").model))
        rates = machine_rates(folder, given.cores)
        runs = {run.name: measure_run(run, given.steps, given.sequences, rates) for run in given.runs}
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    publish({"rates": rates, "runs": runs, **circumstances("torch", "transformers")}, table, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
