"""Runs in which a random process is killed at a random moment: does each finish, and does its ledger add up?

    python -m benchmarks.chaos --runs 30 --seed 0 --output benchmarks/results/chaos_cpu.json

Each run is a small real one: real sandbox and trainer, and real vLLM or (``--engine transformers``) the
portable generator, each stage in processes of the run's own, as on one machine. One process of it gets
SIGKILL: a generator, its engine's child, a reward worker, a sandbox's zygote, the trainer, the driver, or all
of them at once; each kind in turn, at a moment of its first half as an undisturbed run has it. Where the
driver is gone the run is resumed. Then every step must be there, the audit (pipeline.record.audit) must find
each draw accounted for once, and no process may be left.
With ``--keep`` what is done is noted there, and the same command goes on from it.
Prints a table and, last, one line of JSON; exit status 1 when anything is amiss.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.chaos.run import ENGINE_KINDS, KINDS, Case, Kill, Report, run_case
from benchmarks.report import RUN_PACKAGES, circumstances, make_parser, positive, publish, table_text
from benchmarks.whole_runs.contest import ResultStore

# One group of two short completions a step: what is killed counts, not what is learnt.
_SETTINGS = (
    "grpo.num_generations=2",
    "training.per_device_train_batch_size=2",
    "training.gradient_accumulation_steps=1",
    "generation.max_completion_length=16",
    "generation.kv_cache_gb=0.25",
    "evaluation.enabled=false",
    "output.save_steps=2",
    "output.save_total_limit=1",
    "runtime.progress=plain",
    # The built-in prompts show no examples.
    "rollouts.feedback=verdict",
)
_MAX_TRIES = 3
_QUIET = "quiet"  # the undisturbed run


def arguments_for(engine: str, model: str | None, turns: int = 1) -> tuple[str, ...]:
    """The command's arguments for a small run; with more ``turns`` nearly every answer has another one."""
    settings = (*_SETTINGS, f"generation.engine={engine}", f"rollouts.max_turns={turns}")
    return (
        *(() if model is None else ("--model", model)),
        *(part for setting in settings for part in ("--set", setting)),
    )


def measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All runs, the undisturbed one first."""
    kinds = given.victim or [kind for kind in KINDS if given.engine == "vllm" or kind not in ENGINE_KINDS]
    victims = [kinds[number % len(kinds)] for number in range(given.runs)]
    Random(given.seed).shuffle(victims)

    def case(name: str) -> Case:
        return Case(
            folder=folder,
            name=name,
            num_steps=given.steps,
            arguments=arguments_for(given.engine, given.model, given.turns),
            deadline_s=given.deadline,
            orphan_deadline_s=given.orphan_deadline,
        )

    terms = {
        name: getattr(given, name) for name in ("seed", "runs", "engine", "steps", "model", "victim", "turns")
    }
    store = ResultStore(folder / "done.json", terms)
    for name in store.missing([_QUIET]):
        quiet = _tried(case(name), [], Random(given.seed))
        if quiet.faults:
            raise RuntimeError(f"the undisturbed run failed already: {quiet.faults}")
        store.add(name, {"seconds": quiet.seconds, "step_times_s": quiet.step_times_s})
    undisturbed = store.result()["runs"][_QUIET]
    for number in store.missing(map(str, range(given.runs))):
        # A generator for each run: it is the same one, whatever was done before.
        random = Random(f"{given.seed}/{number}")
        row = _disturbed(case, number, victims[int(number)], undisturbed["step_times_s"], random)
        store.add(number, row, said=_line(row))
    rows = [store.result()["runs"][str(number)] for number in range(given.runs)]
    return {
        "engine": given.engine,
        "model": given.model or "built-in",
        "seed": given.seed,
        "num_steps": given.steps,
        "turns": given.turns,
        "undisturbed_s": round(undisturbed["seconds"], 1),
        "num_faulty": sum(bool(row["faults"]) for row in rows),
        "runs": rows,
        **circumstances(*RUN_PACKAGES),
    }


def _disturbed(
    make_case: Callable[[str], Case], number: str, victim: str, quiet_s: list[float], random: Random
) -> dict[str, Any]:
    """One run with one kill; made again where it was over before the kill."""
    for attempt in range(_MAX_TRIES):
        kill = _moment(victim, quiet_s, random)
        report = _tried(make_case(f"run{number}-{attempt}"), [kill], random)
        if report.num_kills or report.faults:
            break
    faults = report.faults or ([] if report.num_kills else ["it was over before anything was killed"])
    return {
        "victim": victim,
        "after_step": kill.after_step,
        "after_s": round(kill.after_s, 2),
        "seconds": round(report.seconds, 1),
        "num_resumes": report.num_resumes,
        "num_restarts": report.num_restarts,
        "faults": faults,
    }


def _moment(victim: str, quiet_s: list[float], random: Random) -> Kill:
    """A moment in the first half of a run; each phase of it, the start and every step, is equally likely."""
    after_step = random.randrange(len(quiet_s) // 2 + 1)
    begin_s = quiet_s[after_step - 1] if after_step else 0.0
    return Kill(
        victim=victim, after_step=after_step, after_s=random.uniform(0.0, quiet_s[after_step] - begin_s)
    )


def _tried(case: Case, kills: list[Kill], random: Random) -> Report:
    # What a killed benchmark left of it is no run of this one.
    shutil.rmtree(case.run, ignore_errors=True)
    case.log.unlink(missing_ok=True)
    report = run_case(case, kills, random)
    if not report.faults:
        # Checkpoints of all runs together would fill a disk.
        shutil.rmtree(case.run)
    return report


def _line(row: dict[str, Any]) -> str:
    verdict = "; ".join(row["faults"]) or "finished, every draw once, no orphan"
    return (
        f"{row['victim']} killed {row['after_s']} s after step {row['after_step']}: {verdict} "
        f"({row['seconds']} s, {row['num_resumes']} resumes, {row['num_restarts']} restarts)"
    )


def table(result: dict[str, Any]) -> str:
    """One line a kind of victim, in Markdown."""
    by_victim = defaultdict(list)
    for row in result["runs"]:
        by_victim[row["victim"]].append(row)
    rows = []
    for victim, found in sorted(by_victim.items()):
        sums = [sum(row[key] for row in found) for key in ("num_resumes", "num_restarts")]
        sums = [len(found), sum(not row["faults"] for row in found), *sums]
        seconds = statistics.median(row["seconds"] for row in found)
        rows.append([victim, *map(str, sums), f"{seconds:.0f}"])
    rows.append(["none", "1", "1", "0", "0", f"{result['undisturbed_s']:.0f}"])
    head = ["killed", "runs", "finished, ledger and processes in order", "resumes", "restarts"]
    return table_text([*head, "seconds a run"], rows)


def main() -> int:
    """Run it; returns the exit status."""
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--steps", type=int, default=4, help="optimiser steps of a run")
    parser.add_argument("--turns", type=positive, default=1, help="answers a rollout may have (%(default)s)")
    parser.add_argument("--victim", action="append", choices=KINDS, help="kill only this kind; repeatable")
    parser.add_argument("--model", help="another model than the built-in one")
    parser.add_argument("--deadline", type=float, default=600.0, help="seconds for one start of the command")
    parser.add_argument("--orphan-deadline", type=float, default=30.0, help="seconds for processes to go")
    parser.add_argument("--keep", type=Path, help="folder for the runs: notes, and what failed")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="code-grpo-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        result = measure(given, folder)
    except (ValueError, RuntimeError) as error:
        raise SystemExit(f"error: {error}") from error
    if given.keep is None and not result["num_faulty"]:
        shutil.rmtree(folder)
    publish(result, table, given)
    return 1 if result["num_faulty"] else 0


if __name__ == "__main__":
    sys.exit(main())
