"""The most memory that a trainer's process takes, beside what pipeline.training.memory says of it beforehand.

    python -m benchmarks.train_step.memory --output benchmarks/results/memory_cpu.json

Two steps of a row or two of random samples, of all weights or of adapters; where the estimate says that
activations do not fit into this machine they are checkpointed. Each case has a process of its own. Cases that
the output file has already are not measured again; those of another processor, of other versions, of another
number of cores or in another precision are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.report import (
    add_cores_option,
    circumstances,
    differing,
    make_parser,
    other_circumstances,
    own_cores,
    positive,
    publish,
    table_text,
    write_result,
)
from benchmarks.train_step.job import MemoryCase, run_worker
from pipeline.host.files import read_object

_ROWS: Final = (1024, 2048, 4096, 8192)
_MODELS: Final = ("smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct")


def table(result: dict[str, Any]) -> str:
    """Estimate and peak of each case, in GB."""
    rows = []
    for name, case in result["cases"].items():
        estimate, peak = sum(case["estimate"].values()), case["peak"]
        parts = case["estimate"]
        rows.append(
            [
                *name.split(", "),
                "yes" if case["checkpoints"] else "no",
                f"{parts['activations'] / 1e9:.1f}",
                f"{estimate / 1e9:.1f}",
                f"{peak / 1e9:.1f}",
                f"{estimate / peak:.2f}",
            ]
        )
    precision = "bf16" if any(case["bf16"] for case in result["cases"].values()) else "fp32"
    hardware = f"{len(result['cores'])} cores of {result['hardware']['cpu']}"
    above = f"The trainer's process in {precision}, in GB; {hardware}."
    head = [
        "model",
        "trained",
        "tokens a row",
        "checkpointed",
        "activations",
        "estimate",
        "measured",
        "ratio",
    ]
    return table_text(head, rows, above=above)


def read_cases(path: Path, now: Mapping[str, Any]) -> dict[str, Any]:
    """The cases in the file ``path``. Raises ValueError where they are of other circumstances than now."""
    earlier = read_object(path)
    try:
        cases: dict[str, Any] = dict(earlier["cases"])
        then, here = ({"cores": len(one["cores"])} for one in (earlier, now))
        # What results of earlier versions tell the precision by.
        for case in cases.values():
            then["bf16"], here["bf16"] = case["bf16"], now["hardware"]["has_bf16"]
        changed = [*differing(then, here), *other_circumstances(earlier, now)]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: is no result of this benchmark ({error}); move it away") from error
    if cases and changed:
        told = ", ".join(f"{name} was {old!r}, is {new!r}" for name, old, new in changed)
        raise ValueError(f"{path}: holds cases of other circumstances ({told}); give another --output")
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is not measured yet; 2 for a file that cannot be gone on with."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS, help="names or folders")
    parser.add_argument("--rows", nargs="+", type=positive, default=_ROWS, help="tokens a row")
    add_cores_option(parser, "--threads", "cores, and threads")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds that a case may take")
    given = parser.parse_args(arguments)
    cores = own_cores(given.threads)
    result = {"cores": cores, **circumstances("torch", "transformers", "peft")}
    try:
        is_there = given.output is not None and given.output.is_file()
        cases = result["cases"] = read_cases(given.output, result) if is_there else {}
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for model in given.models:
        for is_lora in (False, True):
            for num_tokens in given.rows:
                case = MemoryCase(model=model, is_lora=is_lora, num_tokens=num_tokens, cores=cores)
                if case.name not in cases:
                    cases[case.name] = run_worker(case, given.timeout)
                    print(f"{case.name}: {cases[case.name]}", file=sys.stderr, flush=True)
                    if given.output is not None:
                        write_result(given.output, result)
    publish(result, table, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
