"""Run the whole suite as whoever calls this, and print ``{"level", "num_cases", "failures"}`` as JSON.

``python -m tests.sandbox.attacks [--without WALL ...]`` from the repository's root.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from sandbox.pool import SandboxPool
from tests.sandbox.attacks.suite import ATTACKS, ODDITIES, run_case
from tests.sandbox.attacks.targets import Targets


def main() -> int:
    """Return 1 when a case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--times", action="store_true", help="the slowest cases, on stderr")
    arguments = parser.parse_args()
    runs = [
        (case, mode) for case in (*ATTACKS, *ODDITIES) for mode in case.modes if arguments.only in case.name
    ]
    failures: dict[str, str] = {}
    times: list[tuple[float, str]] = []
    with SandboxPool(without=frozenset(arguments.without)) as pool, Targets() as targets:
        for case, mode in runs:
            started = time.monotonic()
            failure = run_case(pool, targets, case, mode)
            times.append((time.monotonic() - started, f"{case.name} [{mode}]"))
            if failure:
                failures[f"{case.name} [{mode}]"] = failure
        level = pool.level
    if arguments.times:
        for seconds, name in sorted(times, reverse=True)[:25]:
            print(f"{seconds:6.2f} s  {name}", file=sys.stderr)
    print(json.dumps({"level": level, "num_cases": len(runs), "failures": failures}))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
