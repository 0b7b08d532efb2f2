"""Writes the tables of the documents, each between the markers that name it.

    python -m benchmarks.guide                 # write
    python -m benchmarks.guide --check         # exit 1 where a table is not what it should be

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; what is between them is written
by this program alone: what a benchmark measured, from benchmarks/results/NAME_cpu.json, for the battery from
gpu.json, or what follows from the code. Measures nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import (
    ablation,
    coder,
    curriculum,
    generation,
    generation_parts,
    modes,
    quality,
    speculation_exactness,
    startup,
    step_limit,
    turn_speed,
    turns,
)
from benchmarks.async_overlap import __main__ as async_overlap
from benchmarks.chaos import __main__ as chaos
from benchmarks.gpu import __main__ as gpu
from benchmarks.graders import __main__ as graders
from benchmarks.report import RESULTS, make_parser, table_text
from benchmarks.rewards import __main__ as rewards
from benchmarks.sandbox import __main__ as sandbox
from benchmarks.train_step import __main__ as train_step
from benchmarks.train_step import memory
from configs.techniques import TECHNIQUES

_ROOT: Final = Path(__file__).parents[1]
GUIDE: Final = _ROOT / "SPEEDUP_GUIDE.md"
DOCUMENTS: Final = (
    GUIDE,
    _ROOT / "SECURITY.md",
    *(_ROOT / "docs" / f"{name}.md" for name in ("techniques", "memory", "results", "turns")),
)
END: Final = "<!-- end of table -->"
_MARKED: Final = re.compile(rf"<!-- table: (?P<name>[a-z_]+) -->\n(?P<body>.*?){re.escape(END)}", re.DOTALL)

# Who prints a benchmark's result; the file says what measured it.
MEASURED: Final[Mapping[str, Callable[[dict[str, Any]], str]]] = {
    "modes": modes.table,
    "baselines": modes.table,
    "modes_coder": modes.table,
    "modes_second_epoch": modes.table,
    "step_limit": step_limit.table,
    "quality": quality.table,
    "quality_coder": quality.table,
    "coder": coder.table,
    "coder_sixty_steps": coder.table,
    "coder_warm_start": coder.table,
    "coder_without_kl": coder.table,
    "coder_shown_tests": coder.table,
    "turns": turns.table,
    "turn_speed": turn_speed.table,
    "turn_speed_two_workers": turn_speed.table,
    "ablation": ablation.table,
    "ablation_coder": ablation.measured_table,
    "dropped": ablation.dropped_table,
    "curriculum": curriculum.table,
    "train_step": train_step.table,
    "train_step_coder": train_step.table,
    "memory": memory.table,
    "train_step_profile": train_step.profile_table,
    "train_step_profile_coder": train_step.profile_table,
    "generation": generation.table,
    "generation_coder": generation.table,
    "generation_parts": generation_parts.table,
    "generation_transformers": generation.table,
    "generation_draft": generation.table,
    "speculation_exactness": speculation_exactness.table,
    "startup": startup.table,
    "async_overlap": async_overlap.table,
    "chaos": chaos.table,
    "chaos_after": chaos.table,
    "sandbox": sandbox.table,
    "graders": graders.table,
    "rewards": rewards.table,
    "gpu": gpu.table,
}


# Where a result has another file than NAME_cpu.json.
_FILES: Final[Mapping[str, str]] = {"dropped": "ablation_cpu.json", "gpu": "gpu.json"}


def proofs_table() -> str:
    """Every technique: its class, its switch, its test."""
    rows = []
    for one in TECHNIQUES:
        switch, *_ = one.off
        file, _, function = one.proof.partition("::")
        rows.append([one.name, one.exactness, f"`{switch}`", one.gain, f"[{function}](../{file})"])
    head = ["technique", "class", "switch", "what it gains", "test against the plain version"]
    return table_text(head, rows)


DERIVED: Final[Mapping[str, Callable[[], str]]] = {"proofs": proofs_table}


def printed(name: str) -> str:
    """The table ``name``. Raises KeyError for a name that is none."""
    if name in DERIVED:
        return DERIVED[name]()
    path = RESULTS / _FILES.get(name, f"{name}_cpu.json")
    return MEASURED[name](json.loads(path.read_text(encoding="utf-8")))


def written(text: str) -> str:
    """``text`` with every marked table as it should be. Raises ValueError for a marker that is wrong."""
    names = [match["name"] for match in _MARKED.finditer(text)]
    known = sorted({*MEASURED, *DERIVED})
    if unknown := sorted({*names} - {*known}):
        raise ValueError(f"no such table: {', '.join(unknown)}; known: {', '.join(known)}")
    if text.count("<!-- table:") != len(names) or text.count(END) != len(names):
        raise ValueError(f"a marker without its {END}, or the other way round")
    return _MARKED.sub(
        lambda match: f"<!-- table: {match['name']} -->\n{printed(match['name'])}\n{END}", text
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the documents, or check them; 2 for one with a wrong marker or without its result."""
    parser = make_parser(__doc__, prints_result=False)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_checked = parser.parse_args(arguments).check
    is_stale = False
    for document in DOCUMENTS:
        before = document.read_text(encoding="utf-8")
        try:
            after = written(before)
        except (ValueError, FileNotFoundError) as error:
            print(f"error: {document.name}: {error}", file=sys.stderr)
            return 2
        if is_checked:
            print(f"{document.name}: {'up to date' if before == after else 'not what it should be'}")
            is_stale |= before != after
        else:
            document.write_text(after, encoding="utf-8")
    return int(is_stale)


if __name__ == "__main__":
    sys.exit(main())
