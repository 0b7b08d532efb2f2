"""How fast the rewards are: fast tier, cache, type check, pool, a recorded run, and a batch as TRL calls it.

    python -m benchmarks.rewards --output benchmarks/results/rewards_cpu.json

All programs are real completions of the built-in model (tests/rewards/data). Figures are medians over
the rounds; rates a core are measured on one core. Prints a table and, last, one line of JSON.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.report import circumstances, make_parser, num_cores, publish, table_text
from benchmarks.rewards.completions import RUN_0, RUN_1, UNTRAINED, load_completions
from benchmarks.rewards.figures import (
    batches_of_64,
    cache_times,
    distinct,
    fast_tier,
    replay,
    throughput,
    type_checks,
)
from configs.schema import ExecutionConfig
from curriculum.judging import start_sandbox

_BATCH = 64
# Sooner than a model writes 64 completions on most hardware: the less, the harder for the pool.
_GENERATION_S = 2.0
_NUM_FOR_POOL = 400


def measure(num_rounds: int, num_workers: int, limit: int | None) -> dict[str, Any]:
    """All figures; a few minutes. ``limit`` takes only so many completions of each source set, to try it."""
    untrained = load_completions(UNTRAINED)
    # In the file's order long and short programs come in runs.
    random.Random(0).shuffle(untrained)
    untrained = untrained[:limit]
    run_0, run_1 = (load_completions(run)[:limit] for run in (RUN_0, RUN_1))
    humaneval = load_completions(("humaneval",))[:limit]
    rollouts = load_completions(("run0/train",))
    batches = [rollouts[start : start + _BATCH] for start in range(0, len(rollouts), _BATCH)]
    figures: dict[str, Any] = {
        "fast_tier": fast_tier(untrained, num_rounds),
        "cache": cache_times(untrained, num_rounds),
        "type_check": type_checks(untrained[:_NUM_FOR_POOL], num_rounds),
        "replay": {
            "run": replay(run_0),
            "second_run_warmed_by_the_first": replay(run_1, warmed_by=run_0),
            "humaneval_4_samples": replay(humaneval),
        },
    }
    figures["throughput"] = throughput(distinct(untrained)[:_NUM_FOR_POOL], num_rounds, num_workers)
    figures["batch_of_64"] = batches_of_64(batches[:limit], num_workers, _GENERATION_S)
    with start_sandbox(ExecutionConfig()) as sandbox:
        level = sandbox.level
    return {
        **figures,
        "settings": {"rounds": num_rounds, "workers": num_workers, "limit": limit},
        "level": level,
        **circumstances("ruff", "mypy", "ray", "cachetools"),
    }


def table(result: dict[str, Any]) -> str:
    """What a reader wants to see, in Markdown."""
    machine, versions = result["hardware"], result["versions"]
    runs = [
        [
            name.replace("_", " "),
            str(run["num_completions"]),
            f"{100 * run['hit_rate']:.1f} %",
            f"{run['seconds_without']:.1f}",
            f"{run['seconds_with']:.1f}",
            f"{100 * run['saved_share']:.0f} %",
        ]
        for name, run in result["replay"].items()
    ]
    head = ["recorded run", "completions", "found in the cache", "seconds without", "with", "saved"]
    above = (
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, {result['level']}; "
        f"Python {versions['python']}, ruff {versions['ruff']}, mypy {versions['mypy']}"
    )
    figures = table_text(["", "", "note"], _rows(result), above=above)
    return f"{figures}\n\n{table_text(head, runs)}"


def _rows(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    fast, cache, types = result["fast_tier"], result["cache"], result["type_check"]
    pool, batch = result["throughput"], result["batch_of_64"]
    workers = f"{pool['num_workers']} workers"
    return [
        (
            "fast tier, no cache",
            f"{fast['per_s_per_core']:.0f} /s/core",
            f"{fast['per_s_per_core_compiling']:.0f} for programs that compile",
        ),
        ("fast tier, cached", f"{cache['cached_per_s_per_core']} /s/core", "extraction included"),
        (
            "cache: key and look-up",
            f"{cache['key_and_look_up_us']:.1f} µs",
            f"{cache['num_entries']} entries, {cache['num_bytes'] / 1e6:.0f} MB",
        ),
        (
            "type check",
            f"{types['per_s_per_core']:.0f} /s/core",
            f"a mypy process each: {types['by_process_per_s']:.1f}",
        ),
        ("pool, no cache", f"{pool['pool_per_s']:.0f} /s", workers),
        ("serial loop", f"{pool['serial_per_s']:.0f} /s", f"the pool is {pool['ratio']:.2f} times as fast"),
        (
            "batch of 64, pool",
            f"{batch['pool_s']:.2f} s",
            f"{workers}, cache of the run; median of {batch['num_batches']}",
        ),
        (
            "batch of 64, left after generation",
            f"{batch['left_s']:.3f} s",
            f"completions come over {batch['generation_s']:g} s",
        ),
        (
            "batch of 64, as TRL calls",
            f"{batch['trl_s']:.2f} s",
            f"{batch['trl_to_pool']:.1f} times the pool's, {batch['trl_to_left']:.0f} times what is left",
        ),
        (
            "batch of 64, a ruff process each",
            f"{batch['plain_s']:.2f} s",
            f"{batch['plain_to_pool']:.1f} times the pool's",
        ),
    ]


def main() -> None:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=num_cores(), help="of the pool; default: cores")
    parser.add_argument("--limit", type=int, help="use only so many completions, to try it")
    given = parser.parse_args()
    result = measure(given.rounds, given.workers, given.limit)
    publish(result, table, given)


if __name__ == "__main__":
    main()
