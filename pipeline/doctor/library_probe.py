"""Imports libraries and prints what they are, as one line of JSON: a process for pipeline.doctor.machine.

    python -m pipeline.doctor.library_probe torch vllm

An import that fails is a text in the answer; one that ends the interpreter is seen by who started it.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any


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
