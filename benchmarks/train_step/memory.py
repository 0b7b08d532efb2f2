"""The most memory that a trainer's process takes, beside what pipeline.training.memory says of it beforehand.

    python -m benchmarks.train_step.memory --output benchmarks/results/memory_cpu.json

Two steps of a row or two of random samples, of all weights or of adapters; where the estimate says that
activations do not fit into this machine they are checkpointed. Each case has a process of its own. Cases that
the output file has already are not measured again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.processes import Worker
from benchmarks.report import (
    check_cores,
    circumstances,
    make_parser,
    own_cores,
    positive,
    publish,
    table_text,
)
from benchmarks.report import write_result as write
from benchmarks.train_step.job import BatchSpec, MemoryCase

_ROWS: Final = (1024, 2048, 4096, 8192)
_MODELS: Final = ("smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct")
_GENERATIONS, _PROMPT = 8, 128
_NUM_STEPS = 2
_MANY_TOKENS = 2048


class MemoryWorker:
    """What this benchmark asks in a process of its own."""

    def __init__(self, case: MemoryCase) -> None:
        import torch

        self._case = case
        os.sched_setaffinity(0, case.cores)
        torch.set_num_threads(len(case.cores))

    def run(self) -> dict[str, Any]:
        """Train two steps; the estimate and the peak, in bytes."""
        from benchmarks.train_step.inputs import random_batch
        from benchmarks.train_step.worker import peak_mb
        from configs.schema import Config
        from pipeline.host.limits import memory
        from pipeline.host.shares import with_precision
        from pipeline.models.find import resolve_model
        from pipeline.training.memory import TRAINER_LIBRARIES, limits, shape_of, trainer_parts
        from pipeline.training.trainer import Trainer

        case = self._case
        # Each group fills a row. After the first what that one has left over counts as well; long rows take
        # too long for two.
        num_rows = 2 if case.num_tokens <= _MANY_TOKENS else 1
        length = (case.num_tokens - _PROMPT) // _GENERATIONS
        config = Config.model_validate(
            {
                "model": {"name": case.model},
                "lora": {"enabled": case.is_lora},
                "training": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": num_rows},
                "grpo": {"num_generations": _GENERATIONS},
                "generation": {"max_prompt_length": _PROMPT, "max_completion_length": length},
                "acceleration": {"token_packing": {"max_tokens": case.num_tokens}},
            }
        )
        config = with_precision(config, "cpu")
        path = resolve_model(config.model)
        trainer = Trainer(config, path)
        shape = shape_of(trainer.model, str(path))
        room = memory()[1] * 2**30 - TRAINER_LIBRARIES
        every = limits(config)

        def needed(number: int) -> dict[str, float]:
            return trainer_parts(config, shape, "cpu", every[number], num_tokens=case.num_tokens)

        number = 0 if sum(needed(0).values()) < 0.9 * room else len(every) // 2
        trainer.adopt_limit(number)
        spec = BatchSpec(
            name="random",
            groups=num_rows,
            generations=_GENERATIONS,
            prompt_tokens=_PROMPT,
            completion_tokens=length,
            is_full=True,
        )
        batch = random_batch(spec, shape.vocabulary)
        for _ in range(_NUM_STEPS):
            trainer.step(batch)
        parts = {"libraries": TRAINER_LIBRARIES, **needed(number)}
        return {
            "estimate": parts,
            "peak": peak_mb("cpu") * 2**20,
            "checkpoints": every[number].checkpoints,
            "bf16": config.training.bf16,
        }


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is not measured yet."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=_MODELS, help="names or folders")
    parser.add_argument("--rows", nargs="+", type=positive, default=_ROWS, help="tokens a row")
    parser.add_argument("--threads", type=positive, default=2, help="cores, and threads")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds that a case may take")
    given = parser.parse_args(arguments)
    check_cores(parser, given.threads, "--threads")
    cores = own_cores(given.threads)
    cases: dict[str, Any] = {}
    if given.output is not None and given.output.is_file():
        cases = json.loads(given.output.read_text(encoding="utf-8"))["cases"]
    result = {"cores": cores, **circumstances("torch", "transformers", "peft"), "cases": cases}
    for model in given.models:
        for is_lora in (False, True):
            for num_tokens in given.rows:
                case = MemoryCase(model=model, is_lora=is_lora, num_tokens=num_tokens, cores=cores)
                if case.name not in cases:
                    cases[case.name] = _measured(case, given.timeout)
                    if given.output is not None:
                        write(given.output, result)
    publish(result, "train_step.memory", table, given)
    return 0


def _measured(case: MemoryCase, timeout_s: float) -> dict[str, Any]:
    environment = {
        "OMP_NUM_THREADS": str(len(case.cores)),
        "HF_HUB_OFFLINE": "1",
        # As in the trainer's process.
        "THP_MEM_ALLOC_ENABLE": "1",
    }
    with Worker(
        case.name, "benchmarks.train_step.memory:MemoryWorker", case, environment=environment
    ) as worker:
        found: dict[str, Any] = worker.ask("run", deadline_s=timeout_s)
    print(f"{case.name}: {found}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
