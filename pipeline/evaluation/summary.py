"""The end of a run: summary.json and what is printed of it.

Compares the held-out measurements before and after training, paired by task, and says which of its own
techniques the run measured, and which it has turned off. Those decisions are made where the measurements are
(pipeline.run.overlap_trial, pipeline.training.memory, pipeline.generation.early_abort) and noted in the
ledger as events of these kinds; drafting decides at every token, so its account is made here from metrics.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from configs.schema import Config
from pipeline.evaluation.evaluate import EvaluationReport
from pipeline.evaluation.passk import paired_difference, table_cells
from pipeline.host.device import num_gpus
from pipeline.host.spans import process_started_s
from pipeline.host.versions import package_version, processor_name, source_commit
from pipeline.record.ledger import ALARM, GUARD, PLACEMENT_GUARD, REWIND
from pipeline.record.ledger_tables import num_replaced, num_trained, reading
from pipeline.record.run_folder import RunFolder

_PACKAGES = ("torch", "transformers", "trl", "ray")


def evaluation_record(report: EvaluationReport) -> dict[str, object]:
    """A report as JSON: the estimate, outcomes, and each task's counts."""
    return {
        "pass_at_1": asdict(report.pass_at_1),
        "num_samples": len(report.samples),
        "outcomes": dict(report.outcomes),
        "tasks": {count.task_id: [count.num_correct, count.num_samples] for count in report.counts},
    }


def write_summary(
    folder: RunFolder,
    config: Config,
    device: str,
    isolation_level: str,
    before: EvaluationReport | None,
    after: EvaluationReport | None,
    seconds: Mapping[str, float],
    *,
    trainer: str = "asynchronous",
    guards: Sequence[str] = (),
) -> None:
    """Write summary.json of a run that reached ``training.max_steps``.

    ``before`` is None where it was not measured, both are without held-out tasks. ``trainer`` tells the main
    job from the baseline ("trl"). ``guards`` say what the run decided about its techniques.
    """
    num_steps = config.training.max_steps
    evaluation: dict[str, object] = {
        "tasks": config.evaluation.tasks,
        "samples_per_task": config.evaluation.num_samples,
        "temperature": config.evaluation.temperature,
        "top_p": config.evaluation.top_p,
        "max_completion_length": config.evaluation.max_completion_length,
    }
    for name, report in (("before", before), ("after", after)):
        evaluation[name] = None if report is None else evaluation_record(report)
    if before is not None and after is not None:
        evaluation["difference"] = asdict(paired_difference(before.counts, after.counts))
    folder.write_summary(
        {
            "model": config.model.name,
            "trainer": trainer,
            "mode": config.acceleration.mode,
            "seed": config.training.seed,
            "num_steps": num_steps,
            # Resumed with other settings, its steps may have been of other sizes.
            "num_completions": num_trained(folder.db, num_steps) or num_steps * config.completions_per_step,
            "num_gated_completions": num_replaced(folder.db),
            "seconds": {name: round(value, 1) for name, value in seconds.items()} | _in_all(folder, seconds),
            "evaluation": evaluation,
            "isolation_level": isolation_level,
            "guards": list(guards),
            "commit": source_commit(),
            "hardware": {
                "device": device,
                "num_gpus": num_gpus(device),
                "cpu": processor_name(device),
                "num_cores": os.cpu_count(),
            },
            # Without an address nothing of a run needs Ray, so it need not be there.
            "versions": {name: found for name in _PACKAGES if (found := package_version(name))}
            | {"python": platform.python_version()},
        }
    )


def _in_all(folder: RunFolder, seconds: Mapping[str, float]) -> dict[str, float]:
    """The total with that of the processes before this one, which resumed them; the pauses do not count."""
    if "total" not in seconds or not folder.db.exists():
        return {}
    with reading(folder.db) as ledger:
        (earlier,) = ledger.execute(
            "SELECT SUM(COALESCE(ended_at, (SELECT MAX(committed_at) FROM steps"
            " WHERE steps.run_id = runs.run_id), started_at) - started_at)"
            " FROM runs WHERE started_at < ?",
            # It has several rows itself where it went back to a checkpoint.
            (process_started_s(),),
        ).fetchone()
    return {"total": round(seconds["total"] + (earlier or 0.0), 1)}


def print_summary(path: Path) -> None:
    """Print what summary.json of the run folder ``path`` says."""
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    evaluation = summary["evaluation"]
    console = Console(highlight=False, markup=False)
    if evaluation["after"] is not None:
        console.print(
            f"pass@1 on {evaluation['tasks']}: {evaluation['samples_per_task']} samples a task, "
            f"temperature {evaluation['temperature']:g}"
        )
        table = Table()
        for heading in ("", "pass@1", "95 % interval"):
            table.add_column(heading, justify="left" if not heading else "right")
        for name in ("before", "after"):
            if evaluation[name] is not None:
                table.add_row(f"{name} training", *table_cells(evaluation[name]["pass_at_1"]))
        if "difference" in evaluation:
            table.add_row("difference", *table_cells(evaluation["difference"], "+"))
        console.print(table)
    number = summary["num_gated_completions"]
    gated = f" (and {number} of groups without signal, which were replaced)" if number else ""
    console.print(
        f"{summary['num_steps']} steps, {summary['num_completions']} completions{gated}, "
        f"{summary['seconds']['total'] / 60:.1f} min in all"
    )
    for guard in summary["guards"]:
        console.print(guard if guard.startswith("alarm: ") else f"guard: {guard}", soft_wrap=True)
    console.print(f"run folder: {path}", soft_wrap=True)


def guards_of(database: Path, config: Config) -> tuple[str, ...]:
    """What the run with this database decided, in the order in which it did; drafting last.

    Alarms of steps that were gone back from are not among it.
    """
    is_drafting = config.acceleration.speculative.enabled and config.generation.engine == "vllm"
    with reading(database) as ledger:
        query = "SELECT kind, text FROM events WHERE kind IN (?, ?, ?, ?) ORDER BY event_id"
        events = ledger.execute(query, (GUARD, PLACEMENT_GUARD, ALARM, REWIND)).fetchall()
        # Not from metrics.jsonl, which need not have every step (output.logging_steps).
        query = "SELECT metrics FROM steps WHERE status = 'committed'"
        steps = ledger.execute(query).fetchall() if is_drafting else []
    drafting = _drafting([json.loads(text) for (text,) in steps])
    # A trainer that was started again decides the same again.
    return tuple(dict.fromkeys((*_still_true(events), *([drafting] if drafting else []))))


def _still_true(events: Iterable[tuple[str, str]]) -> list[str]:
    kept: list[tuple[str, str]] = []
    for kind, text in events:
        if kind == REWIND:
            kept = [event for event in kept if event[0] != ALARM or _step_in(event[1]) <= _step_in(text)]
        else:
            kept.append((kind, text))
    return [text for _, text in kept]


def _step_in(text: str) -> int:
    """The first number after the word "step"."""
    found = re.search(r"step (\d+)", text)
    assert found is not None, text
    return int(found[1])


def _drafting(rows: Sequence[Mapping[str, float | None]]) -> str | None:
    """How much was drafted and accepted; None where nothing was logged."""
    drafted = sum(row.get("generation/drafted_tokens") or 0.0 for row in rows)
    written = sum(row.get("generation/tokens") or 0.0 for row in rows)
    if not rows:
        return None
    if not drafted:
        return "speculative decoding drafted nothing: it was off, or no draft was expected to pay"
    accepted = sum(
        (row.get("generation/drafted_tokens") or 0.0) * (row.get("generation/draft_acceptance") or 0.0)
        for row in rows
    )
    return (
        f"speculative decoding drafted {drafted:.0f} tokens for {written:.0f} that were written; "
        f"{100 * accepted / drafted:.0f} % of the drafted ones were accepted"
    )
