"""One process of the training-step benchmark: it times a variant, checks gradients or profiles.

A process of its own for each, so that its peak memory is the variant's. Its threads stay on the job's cores.
"""

from __future__ import annotations

import copy
import math
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.recording import describe_batch
from benchmarks.train_step.inputs import StepInputs, job_config, make_inputs, random_base, random_batch
from benchmarks.train_step.job import VARIANTS, BatchSpec, MemoryCase, StepJob, Variant
from benchmarks.train_step.profile import measure_limit, profile_step, wait_for
from configs.schema import Config
from pipeline.host.device import for_device
from pipeline.host.limits import memory
from pipeline.models.find import resolve_model
from pipeline.planning.memory_estimate import read_shape
from pipeline.training.memory import TRAINER_LIBRARIES, limits, needed_flops, shape_of, trainer_parts
from pipeline.training.trainer import Trainer

_MIB = 1024**2
# Of a row whose memory is measured, and how many steps; of the memory what it may take.
_GENERATIONS, _PROMPT = 8, 128
_NUM_STEPS = 2
_MANY_TOKENS = 2048
_LARGEST_SHARE = 0.9


def run_job(job: StepJob) -> dict[str, Any]:
    """Do ``job``; raises ValueError for a model or a batch that does not suit it."""
    variants = [VARIANTS[name] for name in job.variants]
    inputs = make_inputs(job)
    if job.task == "check":
        return check_gradients(job, variants, inputs)
    if job.task == "limit":
        folder, shape = str(inputs.model_path), read_shape(inputs.model_path / "config.json")
        # Groups without signal have no gradient.
        samples = [sample for sample in inputs.batch.samples if sample.advantage != 0.0]
        return {
            **measure_limit(folder, job.device),
            "needed_flops": needed_flops(shape, samples),
            "batch": describe_batch(job.batch.name, inputs.batch),
        }
    (variant,) = variants
    if job.task == "profile":
        config = job_config(job, variant, inputs)
        return profile_step(config, inputs.model_path, inputs.batch, job.device, job.num_steps)
    seconds = _step_seconds(job, variant, inputs)
    return {"step_s": seconds[1:], "peak_mb": _peak_mb(job.device)}


def check_gradients(job: StepJob, variants: list[Variant], inputs: StepInputs) -> dict[str, Any]:
    """How far the gradient of each variant is from plain's, ``relative`` to its norm.

    Every variant is computed in fp32, also one that runs in bf16, whose rounded gradient is compared in
    ``rounded``: rounding is what bf16 is, a wrong loss weight is not.
    """
    plain = _in_fp32(VARIANTS["plain"])
    expected = gradients_of(job, plain, inputs)
    norm = norm_of(expected)
    assert norm > 0, "the batch has no signal: nothing can be compared on it"
    errors: dict[str, dict[str, float]] = {}
    known = {_key(plain): 0.0}
    for variant in variants:
        exact = _in_fp32(variant)
        if (key := _key(exact)) not in known:
            known[key] = distance(gradients_of(job, exact, inputs), expected) / norm
        errors[variant.name] = {"relative": known[key]}
        if variant.is_bf16 and variant.trl_weights is None:
            rounded = gradients_of(job, variant, inputs)
            errors[variant.name]["rounded"] = distance(rounded, expected) / norm
    return {"norm": norm, "errors": errors}


def _key(variant: Variant) -> str:
    """The same for variants that compute the same."""
    return repr((variant.settings, variant.trl_weights is None))


def gradients_of(job: StepJob, variant: Variant, inputs: StepInputs) -> dict[str, Tensor]:
    config = job_config(job, variant, inputs)
    if variant.trl_weights is None:
        return Trainer(config, inputs.model_path, job.device).gradients(inputs.batch)[1]
    # Imported where it is needed: it takes seconds, and memory that would count as ours.
    from benchmarks.train_step.trl import trl_gradients

    return trl_gradients(config, inputs.model_path, inputs.batch, job.device)


def _step_seconds(job: StepJob, variant: Variant, inputs: StepInputs) -> list[float]:
    """Seconds of each step, the first included; the device is waited for."""
    config = job_config(job, variant, inputs)
    if variant.trl_weights is None:
        trainer = Trainer(config, inputs.model_path, job.device)
        return [_timed_step(trainer, inputs) for _ in range(job.num_steps + 1)]
    from benchmarks.train_step.trl import trl_step_seconds

    return trl_step_seconds(
        config,
        inputs.model_path,
        inputs.batch,
        dtype=getattr(torch, variant.trl_weights),
        num_steps=job.num_steps + 1,
        device=job.device,
    )


def _timed_step(trainer: Trainer, inputs: StepInputs) -> float:
    started = time.perf_counter()
    trainer.step(inputs.batch)
    wait_for(trainer.device.type)
    return time.perf_counter() - started


def _in_fp32(variant: Variant) -> Variant:
    settings = copy.deepcopy(variant.settings)
    # Neither bf16 nor, on a GPU, products in TF32.
    settings["training"] |= {"bf16": False, "tf32": False}
    return replace(variant, settings=settings, trl_weights=variant.trl_weights and "float32")


def norm_of(gradients: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(value.double().pow(2).sum()) for value in gradients.values()))


def distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys(), "the variants train different parameters"
    return norm_of({name: value.double() - expected[name].double() for name, value in found.items()})


def _peak_mb(device: str) -> float:
    """The most memory that this process has held: on the GPU by tensors, otherwise resident."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / _MIB
    # Not ru_maxrss: that begins with what the parent held.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


class StepWorker:
    """What ``run_worker`` asks in the process."""

    def __init__(self, job: StepJob | MemoryCase) -> None:
        self._job = job
        os.sched_setaffinity(0, job.cores)
        torch.set_num_threads(len(job.cores))

    def run(self) -> dict[str, Any]:
        """What there is to find."""
        return measure_memory(self._job) if isinstance(self._job, MemoryCase) else run_job(self._job)


def memory_terms(case: MemoryCase) -> tuple[BatchSpec, Config]:
    """The rows of ``case``, and its settings before a device has decided the rest."""
    spec = BatchSpec(
        name="random",
        # Each group fills a row. After the first what that one has left over counts as well; long rows
        # take too long for two.
        groups=2 if case.num_tokens <= _MANY_TOKENS else 1,
        generations=_GENERATIONS,
        prompt_tokens=_PROMPT,
        completion_tokens=(case.num_tokens - _PROMPT) // _GENERATIONS,
        is_full=True,
    )
    config = Config.model_validate(
        {
            **random_base(spec),
            "model": {"name": case.model},
            "lora": {"enabled": case.is_lora},
            "acceleration": {"token_packing": {"max_tokens": case.num_tokens}},
        }
    )
    return spec, config


def measure_memory(case: MemoryCase) -> dict[str, Any]:
    """Train a few steps; the estimate by its parts and the peak, in bytes."""
    spec, config = memory_terms(case)
    config = for_device(config, case.device)
    is_cpu = case.device == "cpu"
    # Before the weights are there, which the estimate counts.
    free_gib = memory()[1]
    trainer = Trainer(config, resolve_model(config.model), case.device)
    shape, every = shape_of(trainer.model, case.model), limits(config)
    libraries = TRAINER_LIBRARIES if is_cpu else 0.0
    room = free_gib * 2**30 - libraries if is_cpu else float(torch.cuda.mem_get_info()[1])
    number = 0
    parts = trainer_parts(config, shape, case.device, every[number], num_tokens=case.num_tokens)
    if case.is_checkpointed or sum(parts.values()) > _LARGEST_SHARE * room:
        # The same rows, checkpointed.
        number = len(every) // 2
        parts = trainer_parts(config, shape, case.device, every[number], num_tokens=case.num_tokens)
    trainer.adopt_limit(number)
    batch = random_batch(spec, shape.vocabulary)
    for _ in range(_NUM_STEPS):
        trainer.step(batch)
    return {
        "estimate": {"libraries": libraries, **parts},
        # With the gaps between tensors, which no one else gets.
        "peak": _peak_mb("cpu") * _MIB if is_cpu else torch.cuda.max_memory_reserved(),
        "checkpoints": every[number].checkpoints,
        "bf16": config.training.bf16,
    }
