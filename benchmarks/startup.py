"""From process start to the first scored rollout: fresh, attached to a resident engine, and TRL's trainer.

    python -m benchmarks.startup --output benchmarks/results/startup_cpu.json

Each case is a command as a user types it, held to ``--cores`` cores, with the built-in model on disk:
``train_accelerated --profile-startup``; the same with ``--attach``, against an engine that a run with
``--keep-alive`` left (it ends one that is there already); and ``train_code_grpo``, which is ended when it has
scored its first completions (its measurement before training is off: it would come first). Cases take turns;
figures are medians over the rounds. The first round of each is not counted: it fills the caches that every
later start finds, bytecode included. Prints a table and, last, one line of JSON; the exit status is 1 where a
median is above its limit.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import (
    RUN_PACKAGES,
    add_cores_option,
    circumstances,
    end_on_sigterm,
    make_parser,
    own_cores,
    publish,
    table_text,
)
from pipeline.host.spans import FIRST_SCORE, LOG_VARIABLE, Span, process_started_s, read_spans

_DEADLINE_S = 900.0
_LIMITS_S = {"default": 20.0, "attached": 4.0}
_TRL_SETTINGS = ("--set", "evaluation.enabled=false", "--max-steps", "1")
_NOTES = {
    "default": "train_accelerated, vLLM",
    "attached": "train_accelerated --attach, engine resident",
    "trl": "train_code_grpo: its first batch is written whole before any of it is scored",
}


def measure(cases: Sequence[str], num_rounds: int, num_cores: int) -> dict[str, Any]:
    """``cases`` in turn, ``num_rounds`` counted times."""
    os.sched_setaffinity(0, own_cores(num_cores))
    figures: dict[str, list[float]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory(prefix="code-grpo-startup-") as folder:
        # As a user's, with bytecode kept: without, every start compiles every library again.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(num_rounds + 1):
            for name in figures:
                seconds = _case(name, Path(folder), environment)
                print(f"round {number} of {num_rounds}: {name} {seconds:.1f} s", file=sys.stderr, flush=True)
                if number > 0:
                    figures[name].append(seconds)
    return {
        "cases": {
            name: {
                "first_scored_rollout_s": round(statistics.median(seconds), 2),
                "rounds_s": [round(one, 2) for one in seconds],
                "limit_s": _LIMITS_S.get(name),
            }
            for name, seconds in figures.items()
        },
        "settings": {"rounds": num_rounds, "cores": num_cores},
        **circumstances(*RUN_PACKAGES),
    }


def _case(name: str, folder: Path, environment: Mapping[str, str]) -> float:
    """Seconds of one start to its first score."""
    if name != "attached":
        return _start(name, (), folder, environment)
    kept = _command("train_accelerated", "--profile-startup", "--keep-alive")
    ended = _command("train_accelerated", "--stop-resident")
    subprocess.run(kept, cwd=folder, env=environment, check=True, timeout=_DEADLINE_S, capture_output=True)
    try:
        return _start(name, ("--attach",), folder, environment)
    finally:
        subprocess.run(ended, env=environment, check=True, timeout=60, capture_output=True)


def _start(name: str, flags: tuple[str, ...], folder: Path, environment: Mapping[str, str]) -> float:
    log, said = folder / f"{name}.jsonl", folder / f"{name}.err"
    log.unlink(missing_ok=True)
    command = _command("train_accelerated", "--profile-startup", *flags)
    if name == "trl":
        command = _command("train_code_grpo", *_TRL_SETTINGS)
    with said.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, LOG_VARIABLE: str(log)},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    origin_s = process_started_s(process.pid)
    try:
        found = _wait_for_score(process, log, said)
        if name != "trl":
            process.wait(_DEADLINE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)
    if name == "attached" and "no resident engine" in said.read_text(encoding="utf-8"):
        raise RuntimeError(f"the run was not attached: {said.read_text(encoding='utf-8').strip()}")
    score = min(span.ended_s for span in found if span.name == FIRST_SCORE)
    return score - origin_s


def _wait_for_score(process: subprocess.Popen[bytes], log: Path, said: Path) -> tuple[Span, ...]:
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        spans = read_spans(log) if log.exists() else ()
        if any(span.name == FIRST_SCORE for span in spans):
            return spans
        if process.poll() is not None:
            words = said.read_text(encoding="utf-8")[-2000:]
            raise RuntimeError(f"the run ended without a score: {words}")
        time.sleep(0.1)
    raise TimeoutError(f"no score within {_DEADLINE_S:.0f} s")


def _command(script: str, *arguments: str) -> list[str]:
    program = f"import sys; from pipeline.cli import {script}; sys.exit({script}())"
    return [sys.executable, "-c", program, *arguments]


def table(result: dict[str, Any]) -> str:
    """What a reader wants to see, in Markdown."""
    rows = []
    for name, case in result["cases"].items():
        limit = f" (limit {case['limit_s']:g} s)" if case["limit_s"] else ""
        rounds = ", ".join(f"{one:.1f}" for one in case["rounds_s"])
        rows.append([name, f"{case['first_scored_rollout_s']:.1f} s{limit}", rounds, _NOTES[name]])
    above = (
        f"{result['hardware']['cpu']}, {result['settings']['cores']} cores, "
        f"medians of {result['settings']['rounds']} rounds"
    )
    return table_text(["", "first scored rollout", "rounds", "note"], rows, above=above)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and publish; 1 where a case took longer than it may."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="counted starts of each case")
    parser.add_argument("--cases", nargs="+", choices=tuple(_NOTES), default=tuple(_NOTES))
    add_cores_option(parser, "--cores", "cores that the commands may use")
    given = parser.parse_args(arguments)
    end_on_sigterm()
    result = measure(given.cases, given.rounds, given.cores)
    publish(result, table, given)
    slow = [
        name
        for name, case in result["cases"].items()
        if case["limit_s"] and case["first_scored_rollout_s"] > case["limit_s"]
    ]
    for name in slow:
        print(f"error: {name}: above its limit", file=sys.stderr)
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
