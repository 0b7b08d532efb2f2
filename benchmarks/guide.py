"""Writes the tables of SPEEDUP_GUIDE.md from benchmarks/results/*.json, between the markers that name them.

    python -m benchmarks.guide                 # write
    python -m benchmarks.guide --check         # exit 1 where a table is not the one in the data

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; what is between them is written
by this program alone. A benchmark without a result has one line there that says so. Measures nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import (
    ablation,
    async_overlap,
    chaos,
    curriculum,
    generation,
    modes,
    quality,
    rewards,
    sandbox,
    speculation_exactness,
    startup,
    step_table,
)
from configs.techniques import TECHNIQUES

GUIDE: Final = Path(__file__).parents[1] / "SPEEDUP_GUIDE.md"
RESULTS: Final = Path(__file__).parent / "results"
END: Final = "<!-- end of table -->"
_MARKED: Final = re.compile(rf"<!-- table: (?P<name>[a-z_]+) -->\n(?P<body>.*?){re.escape(END)}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideTable:
    """A table of the guide: its result file, who prints it, and the command that measures it."""

    file: str
    print: Callable[[dict[str, Any]], str]
    command: str


TABLES: Final[Mapping[str, GuideTable]] = {
    "modes": GuideTable(file="modes_cpu.json", print=modes.table, command="python -m benchmarks.modes"),
    "quality": GuideTable(
        file="quality_cpu.json", print=quality.table, command="python -m benchmarks.quality"
    ),
    "ablation": GuideTable(
        file="ablation_cpu.json", print=ablation.table, command="python -m benchmarks.ablation"
    ),
    "curriculum": GuideTable(
        file="curriculum_cpu.json", print=curriculum.table, command="python -m benchmarks.curriculum"
    ),
    "train_step": GuideTable(
        file="train_step_cpu.json", print=step_table.table, command="python -m benchmarks.train_step"
    ),
    "train_step_profile": GuideTable(
        file="train_step_profile_cpu.json",
        print=step_table.profile_table,
        command="python -m benchmarks.train_step --profile",
    ),
    "generation": GuideTable(
        file="generation_cpu.json", print=generation.table, command="python -m benchmarks.generation"
    ),
    "generation_transformers": GuideTable(
        file="generation_transformers_cpu.json",
        print=generation.table,
        command="python -m benchmarks.generation --contenders plain,transformers",
    ),
    "generation_draft": GuideTable(
        file="generation_draft_cpu.json",
        print=generation.table,
        command="python -m benchmarks.generation --draft-layers 6 --contenders plain,draft",
    ),
    "speculation_exactness": GuideTable(
        file="speculation_exactness_cpu.json",
        print=speculation_exactness.table,
        command="python -m benchmarks.speculation_exactness",
    ),
    "startup": GuideTable(
        file="startup_cpu.json", print=startup.table, command="python -m benchmarks.startup"
    ),
    "async_overlap": GuideTable(
        file="async_overlap_cpu.json", print=async_overlap.table, command="python -m benchmarks.async_overlap"
    ),
    "chaos": GuideTable(file="chaos_cpu.json", print=chaos.table, command="python -m benchmarks.chaos"),
    "sandbox": GuideTable(
        file="sandbox_cpu.json", print=sandbox.table, command="python -m benchmarks.sandbox"
    ),
    "rewards": GuideTable(
        file="rewards_cpu.json", print=rewards.table, command="python -m benchmarks.rewards"
    ),
}


def techniques_table() -> str:
    """Every technique: class, source of the gain, and what it measured alone and left out."""
    result = _result(TABLES["ablation"].file)
    mode = result["settings"]["mode"] if result is not None else "aggressive"
    # Of the mode as it comes: what the benchmark ran with other settings shows its figures all the same.
    pending = {row.name for row in ablation.rows(mode, (), None)}
    lines = [
        "| technique (setting) | exact? | where the gain comes from | alone | left out | guard |",
        "|---|---|---|---|---|---|",
    ]
    for technique in TECHNIQUES:
        first, *_ = technique.off
        measured = [_ratio(result, f"{row}-{technique.key}", pending) for row in ("only", "no")]
        name = f"{technique.name} (`{first}`)"
        lines.append(
            f"| {' | '.join([name, technique.exactness, technique.gain, *measured, technique.guard])} |"
        )
    return "\n".join(lines)


def _ratio(result: dict[str, Any] | None, row: str, pending: Set[str]) -> str:
    values = ablation.ratios(result["runs"], row) if result is not None else []
    return ", ".join(f"{value:.2f}" for value in values) or ("not measured yet" if row in pending else "")


def printed(name: str) -> str:
    """The table ``name``, or a line that says that there is none. Raises KeyError for a name that is none."""
    if name == "techniques":
        return techniques_table()
    table = TABLES[name]
    result = _result(table.file)
    return f"Not measured yet: `{table.command}`." if result is None else table.print(result)


def _result(file: str) -> dict[str, Any] | None:
    path = RESULTS / file
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def written(text: str) -> str:
    """``text`` with every marked table as the data have it. Raises ValueError for a marker that is wrong."""
    names = [match["name"] for match in _MARKED.finditer(text)]
    unknown = sorted(set(names) - {*TABLES, "techniques"})
    if unknown:
        raise ValueError(f"no such table: {', '.join(unknown)}; known: techniques, {', '.join(TABLES)}")
    if text.count("<!-- table:") != len(names) or text.count(END) != len(names):
        raise ValueError(f"a marker without its {END}, or the other way round")
    return _MARKED.sub(
        lambda match: f"<!-- table: {match['name']} -->\n{printed(match['name'])}\n{END}", text
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the guide, or check it; 2 for a guide whose markers are wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args(arguments)
    before = GUIDE.read_text(encoding="utf-8")
    try:
        after = written(before)
    except ValueError as error:
        print(f"error: {GUIDE.name}: {error}", file=sys.stderr)
        return 2
    if given.check:
        print(f"{GUIDE.name}: {'up to date' if before == after else 'not what the data say'}")
        return int(before != after)
    GUIDE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
