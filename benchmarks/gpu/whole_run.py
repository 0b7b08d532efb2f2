"""Stage 6: whole runs from the command line, ours and TRL's: speed, what stages took, the card's memory."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import configs
from benchmarks.gpu.stage import Figures, Stage, used_mb
from benchmarks.processes import run_command
from benchmarks.report import rows_of
from benchmarks.whole_runs.training_run import speed_of
from pipeline.record.ledger import PLACEMENT_GUARD
from pipeline.record.metrics import read_metrics

_DEADLINE_S = 600.0
_LOOK_S = 1.0
_OURS, _TRLS = "train_accelerated", "train_code_grpo"
# Of a run: steps, those of its warm-up, in which the trial of overlap ends where "in turn" is faster (9 of
# mode balanced; 14 where it looks at overlap again), and the last ones, in which nothing is generated for
# later ones.
_NUM_STEPS, _WARMUP, _TAIL = 20, 12, 2
_SHARES: Final = ("generation/seconds", "rewards/seconds", "train/seconds", "rollout/wait_s")
_SETTINGS: Final = ("evaluation.enabled=false", "execution.allow_unsafe=true", "runtime.progress=plain")
# What configs/gpu.yaml says of a larger model.
_MODEL: Final = "qwen2.5-coder-0.5b-instruct"
_CODER: Final = ("training.learning_rate=2e-6",)
_TINY: Final = (
    *("runtime.device=cpu", "training.warmup_steps=0", "dataset.max_samples=4"),
    *("training.per_device_train_batch_size=4", "training.gradient_accumulation_steps=2"),
    *("grpo.num_generations=4", "generation.max_completion_length=24", "generation.max_num_seqs=8"),
    *("generation.enforce_eager=true", "generation.kv_cache_gb=0.1", "generation.assistant_prefill=''"),
    "acceleration.async_rewards.workers=1",
)


class WholeRun(Stage):
    """See the module."""

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        """See Stage."""
        commands = (_OURS,) if self.terms.is_tiny else (_OURS, _TRLS)
        return {command: partial(self._run, command) for command in commands}

    def _run(self, command: str) -> Figures:
        runs, name = self.terms.work / "runs", f"gpu-battery-{command}"
        folder = runs / name
        shutil.rmtree(folder, ignore_errors=True)
        num_steps = 2 if self.terms.is_tiny else _NUM_STEPS
        arguments = [
            *("--config", str(Path(configs.__file__).parent / "gpu.yaml")),
            *("--output-dir", str(runs), "--run-name", name, "--max-steps", str(num_steps)),
            *("--dataset", self.terms.task_set),
            *("--model", self.model("") if self.terms.is_tiny else _MODEL),
        ]
        for setting in (*_SETTINGS, *(_TINY if self.terms.is_tiny else _CODER)):
            arguments += ["--set", setting]
        memory: list[int] = []
        is_over = threading.Event()
        watch = threading.Thread(target=_watch, args=(memory, is_over), daemon=True)
        if self.terms.device == "cuda":
            watch.start()
        try:
            watched = run_command(
                command,
                arguments,
                # All of them, as a user's.
                cores=self.terms.cores if self.terms.is_tiny else sorted(os.sched_getaffinity(0)),
                log=runs / f"{name}.log",
                deadline_s=_DEADLINE_S,
            )
        finally:
            is_over.set()
        # The tiny run has no steps beside its warm-up.
        return {
            "command_s": watched.seconds,
            **({} if self.terms.is_tiny else _speed(folder)),
            **_figures(folder),
            **_memory(memory),
        }


def _watch(memory: list[int], is_over: threading.Event) -> None:
    while not is_over.wait(_LOOK_S):
        memory.append(used_mb())


def _speed(folder: Path) -> Figures:
    found = speed_of(folder, num_warmup=_WARMUP, num_tail=_TAIL)
    return {name: found[name] for name in ("samples_per_s", "rollouts_per_step")}


def _figures(folder: Path) -> Figures:
    rows = read_metrics(folder / "metrics.jsonl")
    seconds = [row["step/seconds"] or 0.0 for row in rows]
    total_s = sum(seconds)
    verdicts = rows_of(folder, f"SELECT text FROM events WHERE kind = '{PLACEMENT_GUARD}'")
    return {
        "steps": len(rows),
        "step_s": statistics.median(seconds),
        "steps_per_s": len(rows) / total_s,
        **{f"share of {name}": sum(row.get(name) or 0.0 for row in rows) / total_s for name in _SHARES},
        "overlap or turns": "; ".join(text for (text,) in verdicts) or "no trial",
    }


def _memory(memory: list[int]) -> Figures:
    """Of the card, in MB, once a second and thinned out to thirty values."""
    if not memory:
        return {}
    return {"memory_mb": memory[:: max(1, len(memory) // 30)], "peak_mb": max(memory)}
