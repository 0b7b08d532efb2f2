"""What a benchmark ran on, for its result. Called by the benchmarks."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def hardware() -> dict[str, Any]:
    """The processor, the cores this process may use, the kernel, and how busy the machine was of late."""
    return {
        "cpu": cpu_model(),
        "cores": num_cores(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "load_average_at_end": round(os.getloadavg()[0], 2),
    }


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_model() -> str:
    """The processor's name, as the kernel tells it."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor() or "unknown"
