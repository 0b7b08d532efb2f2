"""What an evaluation shows and leaves: tables for people, a record as JSON.

Counts nothing itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from curriculum.task import Task
from pipeline.evaluation.evaluate import EvaluatedSample, EvaluationReport
from pipeline.evaluation.passk import Comparison, Estimate, count_by_task, mean_pass_at_k
from pipeline.evaluation.turns import TurnReport
from sandbox.result import Outcome

_NUM_DETAILS = 3
_NUM_NAMES = 8
# Which test it was, and which line, says little of a kind of failure.
_PLACE = re.compile(r"\b(test|call) \d+: |, line \d+(?=;|$)")


def estimates(report: EvaluationReport, ks: Sequence[int]) -> dict[int, Estimate | None]:
    """pass@k for each k, None where a task has fewer samples."""
    fewest = min(count.num_samples for count in report.counts)
    return {k: mean_pass_at_k(report.counts, k) if k <= fewest else None for k in sorted(set(ks))}


def failure_kinds(samples: Sequence[EvaluatedSample]) -> dict[str, Counter[str]]:
    """How samples failed: outcome -> how often each reason was given, the most frequent outcome first."""
    kinds: dict[str, Counter[str]] = {}
    for sample in samples:
        if not sample.result.passed:
            reason = _PLACE.sub("", sample.result.detail)
            kinds.setdefault(sample.result.outcome.value, Counter())[reason] += 1
    return dict(sorted(kinds.items(), key=lambda kind: -kind[1].total()))


def part_estimates(report: EvaluationReport, tasks: Sequence[Task]) -> dict[str, Estimate]:
    """pass@1 on each part of the tests but all of them, where a task's tests have parts (check_parts)."""
    parts = next((task.check_parts for task in tasks if task.check_parts), ())
    num_parts = {task.task_id: max(1, len(task.check_parts)) for task in tasks}
    found = {}
    for index, name in enumerate(parts[:-1], start=1):
        reached: list[tuple[str, bool]] = []
        for sample in report.samples:
            if not sample.result.is_infra_error:
                num_passed = round(sample.result.breakdown["tests"] * num_parts[sample.task_id])
                passed = sample.result.passed or num_passed >= index
                reached.append((sample.task_id, passed))
        found[name] = mean_pass_at_k(count_by_task(reached), 1)
    return found


def report_record(report: EvaluationReport, tasks: Sequence[Task], ks: Sequence[int]) -> dict[str, object]:
    """A report as JSON: estimates by k and part, outcomes, kinds of failure, and every task's counts."""
    kinds_of_task: dict[str, Counter[str]] = {}
    for sample in report.samples:
        kinds_of_task.setdefault(sample.task_id, Counter())[sample.result.outcome.value] += 1
    return {
        "pass_at_k": {
            str(k): None if value is None else asdict(value) for k, value in estimates(report, ks).items()
        },
        "pass_at_1_of_parts": {name: asdict(value) for name, value in part_estimates(report, tasks).items()},
        "num_samples": len(report.samples),
        "outcomes": dict(report.outcomes),
        "failure_kinds": {kind: dict(reasons) for kind, reasons in failure_kinds(report.samples).items()},
        "tasks": {
            count.task_id: {
                "num_correct": count.num_correct,
                "num_samples": count.num_samples,
                "outcomes": dict(kinds_of_task[count.task_id]),
            }
            for count in report.counts
        },
    }


def _rows(report: EvaluationReport, tasks: Sequence[Task], ks: Sequence[int]) -> dict[str, Estimate | None]:
    """``estimates`` and ``part_estimates`` by the names of their rows."""
    found = {f"pass@{k}": estimate for k, estimate in estimates(report, ks).items()}
    return found | {f"pass@1, {name}": one for name, one in part_estimates(report, tasks).items()}


def _table(title: str, first: str, names: Iterable[str]) -> Table:
    """A column ``first``, and one for each model."""
    table = Table(title=title)
    table.add_column(first)
    for name in names:
        # The end of a checkpoint's path says which it is.
        table.add_column(name, justify="right", overflow="fold")
    return table


def print_report(
    console: Console, title: str, report: EvaluationReport, tasks: Sequence[Task], ks: Sequence[int]
) -> None:
    """pass@k with intervals, and how samples failed."""
    table = Table(title=f"{title}: {len(report.counts)} of {len(tasks)} tasks")
    for heading in ("", "mean over tasks", "95 % interval"):
        table.add_column(heading, justify="right")
    fewest = min(count.num_samples for count in report.counts)
    for name, found in _rows(report, tasks, ks).items():
        if found is None:
            table.add_row(name, "not known", f"a task has {fewest} samples")
        else:
            mean, interval = found.in_percent()
            table.add_row(name, mean, f"{interval} %")
    console.print(table)
    outcomes = ", ".join(f"{name} {number}" for name, number in sorted(report.outcomes.items()))
    console.print(f"outcomes: {outcomes}")
    for kind, reasons in failure_kinds(report.samples).items():
        listed = [f"{reason} {number}" for reason, number in reasons.most_common(_NUM_DETAILS) if reason]
        more = len(reasons) - _NUM_DETAILS
        if listed:
            console.print(
                f"  {kind}: {', '.join(listed)}" + (f", {more} other reasons" if more > 0 else ""),
                markup=False,
            )


def print_side_by_side(
    console: Console,
    title: str,
    reports: Mapping[str, EvaluationReport],
    tasks: Sequence[Task],
    ks: Sequence[int],
) -> None:
    """pass@k with intervals and the outcomes of several models, a column each."""
    table = _table(f"{title}: {len(tasks)} tasks", "", reports)
    table.add_row("tasks with samples", *(str(len(report.counts)) for report in reports.values()))
    columns = [_rows(report, tasks, ks) for report in reports.values()]
    for name in columns[0]:
        cells = [
            "not known" if found is None else "{} ({} %)".format(*found.in_percent())
            for found in (column[name] for column in columns)
        ]
        table.add_row(f"{name} (95 %)", *cells)
    table.add_section()
    for name in sorted({name for report in reports.values() for name in report.outcomes}):
        table.add_row(name, *(str(report.outcomes.get(name, 0)) for report in reports.values()))
    console.print(table)


def print_turns(console: Console, reports: Mapping[str, TurnReport]) -> None:
    """The pass rate after each turn, what was repaired, and fresh answers in their place."""
    table = _table("turns: mean over tasks (95 % interval)", "", reports)
    found = list(reports.values())
    for turn in range(len(found[0].pass_after)):
        cells = [_shown(report.pass_after[turn]) for report in found]
        table.add_row(f"passed after turn {turn + 1}", *cells)
    table.add_row("repaired, of answers that failed", *(_shown(report.repaired) for report in found))
    fresh = {
        "sampled tokens": [(one.resampled_by_answers, one.above_resampled_by_answers) for one in found],
        "tokens": [(one.resampled, one.above_resampled) for one in found],
    }
    for what, pairs in fresh.items():
        table.add_row(f"fresh answers, as many {what}", *(_shown(rate) for rate, _ in pairs))
        table.add_row("last turn above them", *(_shown(above, "+") for _, above in pairs))
    console.print(table)


def _shown(estimate: Estimate | None, sign: str = "") -> str:
    if estimate is None:
        return "-"
    mean, interval = estimate.in_percent(sign)
    return f"{mean} ({interval})"


def print_tasks(console: Console, reports: Mapping[str, EvaluationReport]) -> None:
    """Every task's passes of samples, side by side, and how the others failed."""
    table = _table("tasks", "task", reports)
    table.add_column("failures" if len(reports) == 1 else "")
    counts = {name: {count.task_id: count for count in report.counts} for name, report in reports.items()}
    task_ids = dict.fromkeys(task_id for found in counts.values() for task_id in found)
    for task_id in task_ids:
        cells = [
            f"{found[task_id].num_correct}/{found[task_id].num_samples}" if task_id in found else "-"
            for found in counts.values()
        ]
        table.add_row(task_id, *cells, _note(task_id, list(reports.values()), cells))
    console.print(table)


def print_comparison(console: Console, names: tuple[str, str], comparison: Comparison) -> None:
    """Which of the two is better, by how much, and how sure that is."""
    mean, interval = comparison.difference.in_percent("+")
    console.print(
        f"pass@1 of {names[1]} less that of {names[0]}: {mean} (95 %: {interval}), "
        f"{comparison.difference.num_tasks} tasks; {comparison.test}: p = {comparison.p_value:.3g}",
        soft_wrap=True,
    )
    for name, task_ids in zip(names, (comparison.first_better, comparison.second_better), strict=True):
        shown = ", ".join(task_ids[:_NUM_NAMES]) + (", ..." if len(task_ids) > _NUM_NAMES else "")
        console.print(
            f"tasks in which {name} is better: {len(task_ids)}" + (f" ({shown})" if task_ids else ""),
            soft_wrap=True,
        )


def _note(task_id: str, reports: Sequence[EvaluationReport], cells: Sequence[str]) -> str:
    """How one model's samples of a task failed; for two models, whether they differ."""
    if len(reports) > 1:
        return "" if len(set(cells)) == 1 else "differ"
    failed = Counter(
        sample.result.outcome.value
        for sample in reports[0].samples
        if sample.task_id == task_id and sample.result.outcome is not Outcome.PASS
    )
    return ", ".join(f"{kind} {number}" for kind, number in failed.most_common())
