"""The training step against TRL's: speed and memory of each technique, alone and left out, and its gradient.

    python -m benchmarks.train_step --output benchmarks/results/train_step_cpu.json
    python -m benchmarks.train_step --rows trl-autocast plain all
    python -m benchmarks.train_step --profile
    python -m benchmarks.train_step --model qwen2.5-coder-0.5b-instruct --batch runs/coder_step.json.gz
    python -m benchmarks.train_step --device cuda --model FOLDER --batch random
    python -m benchmarks.train_step --device cuda --rows all all-liger all-8bit all-offloaded

All variants train on the same samples: a recorded step (``benchmarks.recording``) of the built-in model or,
from a file, of --model, or random ones. Generation and scoring are not part of it. Each variant has
processes of its own, pinned to the same cores, ``--rounds`` of them taken in turns with the others, so that a
drift of the machine hits all alike; the first step of a process is not counted. A token counts once for each
sequence that it is in, prompts included, whatever is computed of it. "Of limit" and, on a known GPU, MFU say
which share of the machine's matrix products (measured here; of the data sheet) the needed operations are
(``pipeline.training.memory``; groups without signal need none): one count for every variant, so that nothing
gains by computing more. The same run compares the gradients: it exits with 1 where one is not plain's. Where
a process fails or takes too long the rest is measured all the same, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.report import (
    add_cores_option,
    circumstances,
    in_turns,
    make_parser,
    own_cores,
    positive,
    publish,
    table_text,
)
from benchmarks.train_step.job import (
    ON_DEMAND,
    VARIANTS,
    BatchSpec,
    StepJob,
    precision_of,
    run_worker,
    why_left_out,
)
from pipeline.host.device import has_bf16
from pipeline.training.memory import training_flops

# Largest share of its norm by which an exact fp32 gradient may differ: rounding, summed in another order.
TOLERANCE: Final = 1e-5
_DEFAULT_ROWS: Final = tuple(name for name in VARIANTS if name not in ON_DEMAND)


def measure(
    job: StepJob, *, num_repeats: int, num_rounds: int, timeout_s: float, is_checked: bool = True
) -> dict[str, Any]:
    """Time the job's variants, ``num_repeats`` steps each, and compare their gradients.

    What has ``failed``, or taken longer than ``timeout_s``, is there with the reason: a variant, which is
    timed no further, or "gradients". Raises RuntimeError where the machine's limit could not be measured.
    """
    job = replace(job, num_steps=-(-num_repeats // num_rounds))
    # Every row is held against it. First, so that nothing is lost without it.
    limit = run_worker(replace(job, task="limit"), timeout_s)
    steps: dict[str, list[float]] = {name: [] for name in job.variants}
    peaks: dict[str, float] = dict.fromkeys(job.variants, 0.0)
    failed: dict[str, str] = {}
    for name, index in in_turns(job.variants, num_rounds):
        if name in failed:
            continue
        try:
            done = run_worker(replace(job, task="time", variants=(name,)), timeout_s)
        except RuntimeError as error:
            failed[name] = str(error)
            continue
        steps[name] += done["step_s"]
        peaks[name] = max(peaks[name], done["peak_mb"])
        print(f"round {index + 1}, {name}: {done['step_s']}", file=sys.stderr, flush=True)
    compared = tuple(name for name in job.variants if not VARIANTS[name].has_adapters)
    errors = None
    if is_checked and compared:
        try:
            errors = run_worker(replace(job, task="check", variants=compared), timeout_s)
        except RuntimeError as error:
            failed["gradients"] = str(error)
    rows = _rows(steps, peaks, limit)
    found = {"batch": limit["batch"], "variants": rows, "limit": limit, "gradients": errors}
    return {**found, "failed": failed, **_circumstances(job)}


def _rows(
    steps: dict[str, list[float]], peaks: dict[str, float], limit: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """The figures of each variant that has a step."""
    batch = limit["batch"]
    medians = {name: statistics.median(values) for name, values in steps.items() if values}
    trl = [medians[name] for name in medians if VARIANTS[name].trl_weights is not None]
    return {
        name: {
            "note": VARIANTS[name].note,
            "step_s": [round(value, 4) for value in steps[name]],
            "median_s": median,
            "tokens_per_s": batch["num_tokens"] / median,
            "samples_per_s": batch["num_samples"] / median,
            "peak_mb": peaks[name],
            "ratio": min(trl) / median if trl else None,
            "gflops": (gflops := _needed_gflop(limit, name) / median),
            "of_limit": gflops / limit["gflops"],
            "mfu": gflops / limit["sheet_gflops"] if limit["sheet_gflops"] else None,
        }
        for name, median in medians.items()
    }


def _needed_gflop(limit: dict[str, Any], name: str) -> float:
    """The operations of a step of the variant."""
    return training_flops(limit["needed_flops"], is_frozen=VARIANTS[name].has_adapters) / 1e9


def has_right_gradients(result: dict[str, Any]) -> bool:
    """Whether every gradient that was compared is plain's."""
    if result["gradients"] is None:
        return True
    return all(error["relative"] <= TOLERANCE for error in result["gradients"]["errors"].values())


def profile(job: StepJob, timeout_s: float) -> dict[str, Any]:
    """Where the time of the job's one variant goes, beside the limit of the matrix products."""
    limit = run_worker(replace(job, task="limit"), timeout_s)
    return {
        "profile": run_worker(replace(job, task="profile"), timeout_s),
        "variant": job.variants[0],
        "limit": limit,
        "batch": limit["batch"],
        **_circumstances(job),
    }


def _circumstances(job: StepJob) -> dict[str, Any]:
    return {
        # Of a folder its name: where it lies is of this machine alone.
        "model": Path(job.model).name if Path(job.model).is_dir() else job.model,
        "device": job.device,
        "threads": len(job.cores),
        "cores": list(job.cores),
        "trl_micro_batch": job.trl_micro_batch,
        **circumstances("torch", "transformers", "trl"),
    }


def table(result: dict[str, Any]) -> str:
    """Speed, memory and gradient of every variant."""
    rows = []
    for name, row in result["variants"].items():
        seconds = row["step_s"]
        rows.append(
            [
                name,
                row["note"],
                f"{row['tokens_per_s']:.0f}",
                f"{row['samples_per_s']:.2f}",
                f"{row['median_s']:.2f} ({min(seconds):.2f} to {max(seconds):.2f})",
                f"{row['peak_mb']:.0f}",
                "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
                f"{100 * row['of_limit']:.0f} %" + (f" ({100 * row['mfu']:.0f} %)" if row["mfu"] else ""),
                _gradient(result["gradients"], name),
            ]
        )
    head = ["variant", "what", "tokens/s", "samples/s", "s a step (min to max)", "peak MB", "times TRL"]
    above = (
        f"{result['batch']['description']}; {result['model']} on {_place(result)}.\n"
        f"Matrix products of this model reach {result['limit']['gflops']:.0f} GFLOP/s "
        f"here in {precision_of(result['limit'])}."
    )
    # Results of an earlier version do not say.
    left_out = [f"{name} is left out: {reason}" for name, reason in result.get("left_out", {}).items()]
    left_out += [f"{name} failed: {_last(reason)}" for name, reason in result.get("failed", {}).items()]
    return table_text([*head, "of limit (MFU)", "gradient"], rows, above="\n".join([above, *left_out]))


def profile_table(result: dict[str, Any]) -> str:
    """Where the time of a step goes."""
    found, limit = result["profile"], result["limit"]
    needed = _needed_gflop(limit, result["variant"])
    reached = needed / found["step_s"]
    groups = sorted(found["groups"].items(), key=lambda item: -item[1]["share"])
    rows = [
        [name, f"{100 * group['share']:.1f} %", f"{1e3 * group['seconds']:.0f}"] for name, group in groups
    ]
    above = (
        f"{result['batch']['description']}; {result['model']}, variant {result['variant']}, on "
        f"{_place(result)}.\n"
        f"A step takes {found['step_s']:.2f} s, {found['profiled_s']:.2f} s under the profiler. It needs "
        f"{needed:.0f} GFLOP; matrix products of this model reach {limit['gflops']:.0f} GFLOP/s "
        f"here in {precision_of(limit)}, the step {reached:.0f}: "
        f"{100 * reached / limit['gflops']:.0f} % of that limit."
    )
    return table_text(["part of a step", "share", "ms"], rows, above=above)


def _gradient(gradients: dict[str, Any] | None, name: str) -> str:
    """The relative error of the variant in fp32, and that of its rounded gradient if it runs in bf16."""
    if gradients is None or name not in gradients["errors"]:
        return "not compared"
    error = gradients["errors"][name]
    rounded = f" (bf16: {error['rounded']:.1e})" if "rounded" in error else ""
    return f"{error['relative']:.1e}{rounded}"


def _last(reason: str) -> str:
    """Of a failure what counts: the last line, or that a process was killed."""
    lines = reason.strip().splitlines()
    return next((line.rstrip(":") for line in lines if "was killed by" in line), lines[-1])


def _place(result: dict[str, Any]) -> str:
    hardware = result["hardware"]
    if result["device"] == "cuda":
        return str(result["limit"]["device_name"])
    return f"{result['threads']} cores of {hardware['cpu']}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends the process with a message for one that cannot be run."""
    parser = make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="smollm2-135m-instruct", help="or a folder")
    parser.add_argument(
        "--rows", nargs="+", choices=VARIANTS, help="variants (default: all but some slow ones)"
    )
    parser.add_argument("--repeats", type=positive, default=6, help="timed steps of each variant")
    parser.add_argument("--rounds", type=positive, default=3, help="processes of each variant")
    add_cores_option(parser, "--threads", "cores, and threads")
    parser.add_argument(
        "--trl-micro-batch", type=positive, default=8, help="TRL's per_device_train_batch_size"
    )
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds that a process may take")
    parser.add_argument("--skip-check", action="store_true", help="do not compare gradients")
    parser.add_argument(
        "--profile", action="store_true", help="where the time of one variant (default: all) goes"
    )
    batch = parser.add_argument_group("batch")
    batch.add_argument(
        "--batch",
        default="short",
        help="short, random, or a file of benchmarks.recording (%(default)s)",
    )
    batch.add_argument("--groups", type=positive, default=8, help="random: prompts")
    batch.add_argument("--generations", type=positive, default=8, help="random: completions of each")
    batch.add_argument("--prompt-tokens", type=positive, default=256, help="random: longest prompt")
    batch.add_argument("--completion-tokens", type=positive, default=1024, help="random: longest completion")
    batch.add_argument("--flat-groups", type=int, default=0, help="random: groups without signal")
    given = parser.parse_args(arguments)
    if given.repeats < given.rounds:
        parser.error(f"--repeats: value {given.repeats}: at least one for each of {given.rounds} --rounds")
    if not 0 <= given.flat_groups < given.groups:
        parser.error(f"--flat-groups: value {given.flat_groups}: from 0 to one less than --groups")
    is_file = given.batch not in ("short", "random")
    if is_file and not Path(given.batch).is_file():
        parser.error(f"--batch: value {given.batch!r}: short, random, or a file that is there")
    num_samples = given.groups * given.generations if given.batch == "random" else 64
    if not is_file and num_samples % given.trl_micro_batch:
        parser.error(f"--trl-micro-batch: value {given.trl_micro_batch}: a divisor of {num_samples} samples")
    if given.profile and (given.device != "cpu" or len(given.rows or ["all"]) > 1):
        parser.error("--profile: one of --rows, on the cpu")
    rows = given.rows or _default_rows(given)
    reasons = {name: why_left_out(name, given.device) for name in rows}
    given.left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    given.rows = [name for name in rows if name not in given.left_out]
    for name, reason in given.left_out.items():
        print(f"--rows: {name} is left out: {reason}", file=sys.stderr, flush=True)
    if not given.rows:
        parser.error("--rows: none of them can run here")
    return given


def _default_rows(given: argparse.Namespace) -> tuple[str, ...]:
    """Without bf16 ``no-bf16`` is what a run does, and TRL's rival the row in fp32."""
    is_bf16 = has_bf16(given.device)
    if given.profile:
        return ("all" if is_bf16 else "no-bf16",)
    return _DEFAULT_ROWS if is_bf16 else ("trl-fp32", *_DEFAULT_ROWS)


def make_job(given: argparse.Namespace) -> StepJob:
    """The job of a command line; it runs on the first ``--threads`` cores that this process may use."""
    batch = BatchSpec(
        name=given.batch,
        groups=given.groups,
        generations=given.generations,
        prompt_tokens=given.prompt_tokens,
        completion_tokens=given.completion_tokens,
        flat_groups=given.flat_groups,
    )
    return StepJob(
        task="time",
        variants=tuple(given.rows),
        model=given.model,
        batch=batch,
        num_steps=2,
        cores=own_cores(given.threads),
        device=given.device,
        trl_micro_batch=given.trl_micro_batch,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; 1 if something failed or a gradient is wrong."""
    given = parse(arguments)
    job = make_job(given)
    try:
        if given.profile:
            publish(profile(job, given.timeout), profile_table, given)
            return 0
        result = measure(
            job,
            num_repeats=given.repeats,
            num_rounds=given.rounds,
            timeout_s=given.timeout,
            is_checked=not given.skip_check,
        )
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    publish({**result, "left_out": given.left_out}, table, given)
    for name, reason in result["failed"].items():
        print(f"error: {name}: {reason}", file=sys.stderr)
    return 0 if has_right_gradients(result) and not result["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
