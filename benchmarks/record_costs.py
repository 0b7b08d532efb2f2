"""Record what the stages of a run cost, for plans by those who have no run yet, and for async_overlap.

    python -m benchmarks.record_costs RUN_DIR [--output FILE]

Reads the folder of a run that ``train_accelerated`` has made; trains nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.planning.measured_run import RECORD, read_run, write_record


def main(argv: Sequence[str] | None = None) -> int:
    """Write the record; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_costs", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--output", type=Path, default=RECORD, help="default: %(default)s")
    arguments = parser.parse_args(argv)
    run = read_run(arguments.run)
    origin = f"a recorded run (benchmarks/data/{RECORD.name}; no run of yours was named)"
    write_record(replace(run, origin=origin), arguments.output)
    print(f"{arguments.output}: {run.num_steps} steps on {run.device}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
