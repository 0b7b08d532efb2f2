"""What an audit found, as a table on the terminal and as one HTML file."""

from __future__ import annotations

import json
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final

from jinja2 import Environment, StrictUndefined

from configs.command_line import named
from curriculum.audit.examine import NO_TASK, TaskAudit
from curriculum.task import Task

WEAK_SHARE: Final = 0.8  # of the mutants
HIGH_CONSTANT: Final = 0.75  # of the tests
NEAR: Final = 0.5
_MAX_NAMED: Final = 3


def print_summary(name: str, audits: Sequence[TaskAudit]) -> None:
    """The table of ``findings``."""
    print(name)
    print_rows(findings(audits))


def print_rows(rows: Sequence[tuple[str, str, str]]) -> None:
    """Rows of ``findings``, each in one line of the terminal."""
    width = shutil.get_terminal_size().columns
    for question, answer, which in rows:
        line = f"  {question:<37}{answer:>14}  {which}".rstrip()
        print(line if len(line) <= width else f"{line[: width - 3]}...")


def findings(audits: Sequence[TaskAudit]) -> list[tuple[str, str, str]]:
    """What is asked of a task set: the question, the answer, and the first tasks that it is about."""
    sound = [audit for audit in audits if not audit.fault]
    rows = [("tasks", str(len(audits)), ""), ("sound", str(len(sound)), "")]
    kinds = Counter(audit.fault.partition(":")[0] for audit in audits if audit.fault)
    for kind, count in kinds.most_common():
        rows.append((f"  {kind}", str(count), _named(audits, partial(_is_of, kind))))
    # Of these a fault of the reference or of the tests says nothing.
    held = [audit for audit in audits if not audit.fault.startswith(f"{NO_TASK}:")]
    of_words = [
        _row(held, f"near a benchmark (over {NEAR})", lambda one: one.similarity > NEAR),
        _row(held, "prompts without the name", lambda one: not one.names_entry_point),
        _row(held, "prompts without a type", lambda one: not one.names_types),
    ]
    if not sound:
        return [*rows, *of_words] if held else rows
    mutants, killed = sum(one.num_mutants for one in sound), sum(one.num_killed for one in sound)
    rows.append(("mutants killed", f"{_percent(killed, mutants)} of {mutants}", ""))
    rows.append(_row(sound, f"  tasks below {WEAK_SHARE:.0%}", lambda one: one.killed_share < WEAK_SHARE))
    if any(one.num_tests_added for one in sound):
        added, more = sum(one.num_tests_added for one in sound), sum(one.num_killed_by_added for one in sound)
        rows.append(("  with new tests", f"{_percent(killed + more, mutants)}", f"{added} tests"))
    for cheat, words in _PROGRAMS.items():
        rows.append(_row(sound, f"passed by {words}", partial(_lets_pass, cheat)))
    is_high = f"a constant passes {HIGH_CONSTANT:.0%}"
    rows.append(_row(sound, is_high, lambda one: one.constant_share >= HIGH_CONSTANT))
    times = [one.test_s for one in sound]
    of_times = ("seconds for the tests", f"{statistics.median(times):.3f}", f"at most {max(times):.2f}")
    return [*rows, *of_words, of_times, *rate_rows(audits)]


def rate_rows(audits: Sequence[TaskAudit]) -> list[tuple[str, str, str]]:
    """The row of a model's pass rate; none where it was not measured."""
    rates = [one.pass_rate for one in audits if not one.fault and one.pass_rate is not None]
    return (
        [("pass rate of the model", f"{statistics.mean(rates):.3f}", f"{len(rates)} tasks")] if rates else []
    )


def write_page(path: Path, name: str, audits: Sequence[TaskAudit], tasks: Mapping[str, Task]) -> None:
    """One HTML file: the table, and a line a task that opens to its prompt and reference."""
    rows = []
    for audit in audits:
        task = tasks.get(audit.task_id)
        texts = {name: getattr(task, name, "") for name in ("prompt", "reference")}
        rows.append({**asdict(audit), "killed_share": audit.killed_share, **texts})
    source = (files("curriculum.audit") / "page.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(source)
    # Inside a script element nothing may close it.
    data = json.dumps(rows).replace("<", "\\u003c")
    page = template.render(name=name, findings=findings(audits), data=data)
    with named(path):
        path.write_text(page, encoding="utf-8")


_PROGRAMS: Final = {
    "empty": "an empty program",
    "constant": "a constant",
    "look-up": "the prompt's examples alone",
}


def _is_of(kind: str, audit: TaskAudit) -> bool:
    return audit.fault.startswith(f"{kind}:")


def _lets_pass(cheat: str, audit: TaskAudit) -> bool:
    return cheat in audit.passed_by


def _named(audits: Sequence[TaskAudit], is_one: Callable[[TaskAudit], bool]) -> str:
    names = [audit.task_id for audit in audits if is_one(audit)]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _row(
    audits: Sequence[TaskAudit], question: str, is_one: Callable[[TaskAudit], bool]
) -> tuple[str, str, str]:
    return question, str(sum(map(is_one, audits))), _named(audits, is_one)


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"
