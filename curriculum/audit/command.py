"""``python -m curriculum audit TASKS``: what a task set is worth, before a model is trained on it.

Writes three files to a folder: audit.jsonl (a line a task, as they come; a run that was ended goes on there),
audit.html, and with --add-tests tasks.jsonl, the same tasks with new tests. Exit status 1 where a reference
fails its own tests or could not be judged, or a line holds no task.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from pprint import pformat
from typing import Any

from configs.command_line import FAILED, USER_ERROR, make_parser, positive_number, positive_whole, run_command
from configs.schema import ExecutionConfig
from configs.task_sets import is_task_file, split_problems
from curriculum.audit.examine import MAX_MUTANTS, NO_REFERENCE, NO_TASK, NOT_JUDGED, Examiner, TaskAudit
from curriculum.audit.model import SAMPLES_A_TASK, model_pass_rates
from curriculum.audit.overlap import Overlap, benchmark_tasks
from curriculum.audit.summary import print_rows, print_summary, rate_rows, write_page
from curriculum.jsonl import local_file, parse_line, read_lines, record_task
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from sandbox.progress import Progress
from sandbox.score import append_line, in_any_order, write_lines
from sandbox.worker import SandboxError, unusable_modules


def main(argv: Sequence[str] | None = None) -> int:
    """Audit a task set; returns the exit status."""
    parser = make_parser("python -m curriculum audit", "What is a task set worth? Runs on the sandbox.")
    parser.add_argument("tasks", metavar="TASKS", help="a name that dataset.name takes, or a file")
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="default: audits/NAME")
    parser.add_argument(
        "--split", metavar="NAME", help="of a data set; default: train (test of one on the hub)"
    )
    parser.add_argument("--limit", metavar="N", type=positive_whole, help="only the first N tasks")
    parser.add_argument(
        "--add-tests", metavar="N", type=positive_whole, help="write the tasks with up to N new tests each"
    )
    parser.add_argument(
        "--against",
        metavar="TASKS",
        action="append",
        help="benchmarks to find near tasks in; may be repeated; default: humaneval, mbpp",
    )
    parser.add_argument(
        "--model", metavar="NAME", help=f"measure its pass rate, {SAMPLES_A_TASK} answers a task"
    )
    parser.add_argument(
        "--max-mutants",
        metavar="N",
        type=positive_whole,
        default=MAX_MUTANTS,
        help="a task; default: %(default)s",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=positive_whole,
        default=len(os.sched_getaffinity(0)),
        help="sandboxes side by side; default: one a core",
    )
    parser.add_argument("--timeout", metavar="S", type=positive_number, default=2.0, help="CPU; default: 2")
    parser.add_argument(
        "--module", metavar="NAME", action="append", default=[], help="an installed package for the programs"
    )
    parser.add_argument("--allow-unsafe", action="store_true", help="run also below level L2")
    return run_command(parser, argv, _audit)


@dataclass(frozen=True, slots=True)
class _Examined:
    """What was found of a task, and with --add-tests the task itself in the plain form."""

    audit: TaskAudit
    record: dict[str, object]


def _audit(arguments: argparse.Namespace) -> int:
    # Imported here: a mistake on the command line is told without them.
    from curriculum.judging import start_sandbox

    folder = arguments.output or Path("audits") / Path(arguments.tasks).name.removesuffix(".jsonl")
    _refuse(arguments, folder)
    execution = ExecutionConfig(
        timeout=arguments.timeout, modules=arguments.module, allow_unsafe=arguments.allow_unsafe
    )
    everything = _load(arguments.tasks, arguments.split)
    tasks = [one for one in everything[: arguments.limit] if isinstance(one, Task)]
    unread = [one for one in everything[: arguments.limit] if isinstance(one, TaskAudit)]
    benchmarks = list(benchmark_tasks(arguments.against, _note))
    overlap = Overlap(benchmarks)
    # What a benchmark's name stands for may change as well, or not be there today.
    near = _digest(repr([(task.task_id, task.prompt, task.reference) for task in benchmarks]))
    path = folder / "audit.jsonl"
    # With --limit the earlier lines of the others stay.
    keyed = [one for one in everything if isinstance(one, Task)] if path.exists() else tasks
    try:
        sandbox = start_sandbox(execution, arguments.workers)
    except SandboxError as error:
        raise ValueError(str(error)) from None
    # A reference may fail for these alone.
    host = (sandbox.level, platform.python_version())
    # Another version of this program may say otherwise.
    own = _digest("".join(file.read_text("utf-8") for file in sorted(Path(__file__).parent.glob("*.py"))))
    settings = (execution, arguments.max_mutants, arguments.add_tests, near, host, own)
    keys = {task.task_id: _key(task, settings) for task in keyed}
    with sandbox, _locked(folder):
        done, others = _done(path, keys, {task.task_id for task in tasks})
        examiner = Examiner(
            sandbox=sandbox, execution=execution, max_mutants=arguments.max_mutants, overlap=overlap
        )

        def examine(task: Task) -> _Examined:
            found = examiner.examine(task)
            if not arguments.add_tests:
                return _Examined(found, {})
            # Imported here: an audit without new tests does without hypothesis.
            from curriculum.audit.new_tests import as_record, with_new_tests

            if not found.fault:
                task, num_added, num_killed = with_new_tests(examiner, task, arguments.add_tests)
                found = replace(found, num_tests_added=num_added, num_killed_by_added=num_killed)
            return _Examined(found, as_record(task))

        _examine_all(examine, tasks, keys, done, others, path, arguments.workers)
    if arguments.add_tests:
        records = {task.task_id: done[task.task_id].record for task in keyed if task.task_id in done}
        write_lines(folder / "tasks.jsonl", (json.dumps(record) for record in records.values() if record))
        if left_out := [name for name, record in records.items() if not record]:
            _note(f"tasks.jsonl lacks what the plain form cannot say: {', '.join(left_out)}")
    audits = [done[task.task_id].audit for task in tasks] + unread
    return _report(arguments, execution, folder, audits, {task.task_id: task for task in tasks})


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make ``folder``, and hold it. Raises ValueError where another audit does."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"--output: value {str(folder)!r}: another audit writes there just now; give another folder"
            ) from None
        yield
    finally:
        os.close(handle)


def _refuse(arguments: argparse.Namespace, folder: Path) -> None:
    """Raise ValueError, by the name of a flag, for what cannot be done or would cost the user a file."""
    if unusable := unusable_modules(arguments.module):
        raise ValueError("\n".join(f"--module: {fault}" for fault in unusable))
    if arguments.model and arguments.split is not None:
        raise ValueError(
            f"--split: value {arguments.split!r}: cannot go with --model, whose evaluation takes no split; "
            "leave one of them out"
        )
    has_models = all(find_spec(name) for name in ("torch", "vllm"))
    if arguments.model and (_evaluation() is None or not has_models):
        raise ValueError("--model: needs this project with its models, as `make install` has it")
    read = {Path(name).resolve() for name in (arguments.tasks, *(arguments.against or ()))}
    for flag, value, names in (
        ("--output", str(folder), ("audit.jsonl", "audit.html")),
        ("--add-tests", arguments.add_tests, ("tasks.jsonl",)),
        ("--model", arguments.model, ("samples.jsonl", "samples.jsonl_results.jsonl")),
    ):
        for path in (folder / name for name in names if value):
            if path.resolve() in read:
                raise ValueError(
                    f"{flag}: value {value!r}: would write over {path}, which is read; "
                    "give another folder with --output"
                )
    if arguments.output is None and (folder / "tasks.jsonl").resolve() in read:
        raise ValueError(
            f"--output: default {str(folder)!r}: would write over the audit beside {arguments.tasks}; "
            "give another folder with --output"
        )


def _report(
    arguments: argparse.Namespace,
    execution: ExecutionConfig,
    folder: Path,
    audits: list[TaskAudit],
    tasks: dict[str, Task],
) -> int:
    """Tell and write what was found, then measure the model, if there is one; returns the exit status."""
    name = Path(arguments.tasks).name
    print_summary(name, audits)
    write_page(folder / "audit.html", name, audits, tasks)
    is_at_fault = any(audit.fault and not audit.fault.startswith(NO_REFERENCE) for audit in audits)
    status = FAILED if is_at_fault else 0
    if program := arguments.model and _evaluation():
        sys.stdout.flush()
        try:
            rates = model_pass_rates(
                program, arguments.model, arguments.tasks, arguments.limit, execution, folder
            )
        except ValueError as failure:
            _note(str(failure))
            status = status or USER_ERROR
        else:
            audits = [replace(audit, pass_rate=rates.get(audit.task_id)) for audit in audits]
            print_rows(rate_rows(audits))
            write_page(folder / "audit.html", name, audits, tasks)
    print(f"\nfolder: {folder}")
    return status


def _load(name: str, split: str | None) -> list[Task | TaskAudit]:
    """The tasks in their order, and of a file in their places the lines that hold none."""
    if not is_task_file(name):
        for problem in split_problems(name, split) if split is not None else ():
            raise ValueError(f"--split: value {split!r}: allowed: {problem.allowed}")
        return list(load_named_tasks(name, split))
    if split is not None:
        raise ValueError(f"--split: value {split!r}: a file has none; leave it out")
    found: list[Task | TaskAudit] = []
    ids: set[str] = set()
    lines = read_lines(local_file(name))
    if not lines:
        raise ValueError(f"{name}: holds no task; at least one is needed")
    # A file that does not even begin with JSON is not what was meant.
    parse_line(*lines[0])
    for where, line in lines:
        named: object = None
        try:
            record = parse_line(where, line)
            named = record.fields.get("task_id")
            task = record_task(record)
            if task.task_id in ids:
                raise record.error("task_id", "must be unique; an earlier line has it too")
            ids.add(task.task_id)
            found.append(task)
        except ValueError as fault:
            # Half of a surrogate pair, which the fault may be about, cannot be printed.
            has_name = isinstance(named, str) and named.isprintable() and named not in ids
            found.append(TaskAudit(task_id=str(named) if has_name else where, fault=f"{NO_TASK}: {fault}"))
    return found


def _examine_all(
    examine: Callable[[Task], _Examined],
    tasks: Sequence[Task],
    keys: dict[str, str],
    done: dict[str, _Examined],
    others: Sequence[str],
    path: Path,
    num_workers: int,
) -> None:
    """Examine what is not in ``done``, which grows; each line is in the file when its task has ended.

    The lines ``others`` stay before them.
    """
    earlier = [not done[task.task_id].audit.fault for task in tasks if task.task_id in done]
    progress = Progress(len(tasks), earlier, sys.stderr, verb="examined")
    left = [task for task in tasks if task.task_id not in done]
    threads = ThreadPoolExecutor(num_workers)
    write_lines(path, (*others, *(json.dumps(_line(found, keys[name])) for name, found in done.items())))
    try:
        with path.open("a", encoding="utf-8") as file:
            for found in in_any_order(examine, left, threads, num_workers):
                name = found.audit.task_id
                done[name] = found
                append_line(file, json.dumps(_line(found, keys[name])))
                is_judged = not found.audit.fault.startswith(NOT_JUDGED)
                progress.count(not found.audit.fault if is_judged else None)
    finally:
        threads.shutdown(cancel_futures=True)
        if not path.stat().st_size:
            path.unlink()
    progress.finish()


def _done(
    path: Path, keys: dict[str, str], wanted: Collection[str]
) -> tuple[dict[str, _Examined], list[str]]:
    """What an earlier run has found of the same tasks with the same settings.

    Beside it the other lines of tasks that are not ``wanted`` now: found with other settings, or not judged.
    Raises ValueError where it knows none of the tasks: the file is another set's.
    """
    names = [field.name for field in fields(TaskAudit)]
    found: dict[str, _Examined] = {}
    kept: list[str] = []
    others: set[str] = set()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
            key, record = entry["key"], entry["record"]
            # JSON has no tuples.
            given: dict[str, Any] = {
                name: tuple(entry[name]) if isinstance(entry[name], list) else entry[name] for name in names
            }
            audit = TaskAudit(**given)
        except (ValueError, KeyError, TypeError):
            continue  # Half written when the run was ended.
        others.add(audit.task_id)
        if keys.get(audit.task_id) == key and not audit.fault.startswith(NOT_JUDGED):
            found[audit.task_id] = _Examined(audit, record)
        elif audit.task_id in keys and audit.task_id not in wanted:
            kept.append(line)
    if others and others.isdisjoint(keys):
        raise ValueError(
            f"--output: value {str(path.parent)!r}: holds the audit of {len(others)} other tasks "
            f"({min(others)!r} ...); give another folder with --output"
        )
    return found, kept


def _line(found: _Examined, key: str) -> dict[str, object]:
    shares = {"killed_share": round(found.audit.killed_share, 4)}
    return {**asdict(found.audit), **shares, "key": key, "record": found.record}


def _key(task: Task, settings: object) -> str:
    # Its form of a set does not hang on the process, as repr's does, where the line is too short for the set.
    return _digest(pformat((asdict(task), settings), width=1))


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _evaluation() -> str | None:
    return shutil.which("evaluate_humaneval", path=str(Path(sys.executable).parent))


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)
