"""Stage 2: the training step against TRL's (benchmarks.train_step), and where a step leaves the card idle."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.stage import Figures, Stage
from benchmarks.train_step.__main__ import measure
from benchmarks.train_step.inputs import job_config, make_inputs
from benchmarks.train_step.job import VARIANTS, BatchSpec, StepJob
from benchmarks.train_step.profile import wait_for
from pipeline.training.trainer import Trainer

_ROWS = ("trl-bf16", "all", "all-compiled")
_MORE_ROWS = ("trl-autocast", "plain", "only-packing", "only-shared", "all-checkpointed", "no-packing")
_TINY_ROWS = ("plain", "all")
_TIMEOUT_S = 240.0
_NUM_KERNELS = 12
# Sequences of TRL's micro-batch: the fastest of 8, 16 and 32, at 52 and 62 GB; no larger one fits into 80.
_TRL_MICRO_BATCH = {"random-0.5b": 32, "random-1.5b": 16}
_NUM_PROFILED = 2


class TrainStep(Stage):
    """See the module."""

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        """See Stage."""
        more = {
            "random-1.5b": partial(self._step, "random-1.5b", _ROWS),
            "random-0.5b, more rows": partial(self._step, "random-0.5b", _MORE_ROWS),
        }
        return {
            "profile of all, random-0.5b": self._profile,
            "random-0.5b": partial(self._step, "random-0.5b", _ROWS),
            # Of a tiny model these are the same rows again.
            **({} if self.terms.is_tiny else more),
        }

    def _job(self, model: str, rows: tuple[str, ...]) -> StepJob:
        sizes = BatchSpec(name="random", groups=8, prompt_tokens=512, completion_tokens=512)
        if self.terms.is_tiny:
            sizes = BatchSpec(name="random", groups=2, generations=4, prompt_tokens=20, completion_tokens=30)
        return StepJob(
            task="time",
            variants=rows,
            model=self.model(model),
            batch=sizes,
            num_steps=1,
            cores=self.terms.cores,
            device=self.terms.device,
            trl_micro_batch=4 if self.terms.is_tiny else _TRL_MICRO_BATCH[model],
        )

    def _step(self, model: str, rows: tuple[str, ...]) -> Figures:
        rows = _TINY_ROWS if self.terms.is_tiny else rows
        missing = [name for name in ("trl", "datasets") if importlib.util.find_spec(name) is None]
        if missing:
            rows = tuple(name for name in rows if VARIANTS[name].trl_weights is None)
        num_repeats = 1 if self.terms.is_tiny else 3
        found = measure(
            self._job(model, rows),
            num_repeats=num_repeats,
            num_rounds=1,
            timeout_s=_TIMEOUT_S,
            is_checked=False,
        )
        if found["failed"]:
            # The battery measures a part again that has failed.
            raise RuntimeError("\n".join(f"{name}: {reason}" for name, reason in found["failed"].items()))
        note = {"without TRL": f"{' and '.join(missing)} not installed"} if missing else {}
        return {**note, "train_step": found}

    def _profile(self) -> Figures:
        """The share of a step's time in which the device had nothing to do, and its largest kernels."""
        job = replace(self._job("random-0.5b", ("all",)), num_steps=_NUM_PROFILED + 1)
        inputs = make_inputs(job)
        config = job_config(job, VARIANTS["all"], inputs)
        trainer = Trainer(config, inputs.model_path, self.terms.device)
        trainer.step(inputs.batch)
        is_cuda = self.terms.device == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
        with profile(activities=activities) as recorded:
            started = time.perf_counter()
            for _ in range(_NUM_PROFILED):
                trainer.step(inputs.batch)
            wait_for(self.terms.device)
            wall_s = time.perf_counter() - started
        # What runs on the card, and not once more what began it; spans that were named around it neither.
        wanted = "CUDA" if is_cuda else "CPU"
        seconds = {
            event.key: (event.self_device_time_total if is_cuda else event.self_cpu_time_total) / 1e6
            for event in recorded.key_averages()
            if event.device_type.name == wanted and not event.is_user_annotation
        }
        busy_s = sum(seconds.values())
        largest = sorted(seconds.items(), key=lambda item: -item[1])[:_NUM_KERNELS]
        return {
            "step_s": wall_s / _NUM_PROFILED,
            "idle_share": max(0.0, 1.0 - busy_s / wall_s),
            **{f"share of {name[:80]}": value / busy_s for name, value in largest},
        }
