"""The sandbox's command line: ``python -m sandbox selftest``, ``run`` and ``score``.

Reads arguments and files, prints, and turns what came of it into an exit status. Decides nothing.

Exit status of ``selftest``: 0 where model code may run, else 1. Of ``run``: 0 passed, 1 not passed. Of
``score``: 0 all lines judged. Of ``run`` and ``score``: 2 a user's mistake, a task at fault, or a host
below level L2 without leave; 3 the sandbox could not judge; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from configs.command_line import (
    DISK_FULL,
    INTERRUPTED,
    USER_ERROR,
    Parser,
    positive_number,
    positive_whole,
    print_error,
)
from sandbox.advice import refusal
from sandbox.job import Suite, find_entry_point, make_request, read_tests
from sandbox.pool import SAFE_LEVELS, SandboxPool
from sandbox.result import ExecutionRequest, ExecutionResult, Limits, Outcome
from sandbox.score import BROKEN, Terms, earlier_results, part_of, read_digests, score_file
from sandbox.selftest import as_fields, as_text, run_selftest
from sandbox.worker import SandboxError, unusable_modules

PASSED: Final = 0
NOT_PASSED: Final = 1
NOT_JUDGED: Final = 3


def main(argv: Sequence[str] | None = None, *, without: frozenset[str] = frozenset()) -> int:
    """Run one command; returns the exit status. ``without`` leaves out walls, to test as on weaker hosts."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "selftest":
            return _selftest(without, as_json=arguments.json)
        return _run(arguments, without) if arguments.command == "run" else _score(arguments, without)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except SandboxError as error:
        print_error(error)
        return NOT_PASSED if arguments.command == "selftest" else NOT_JUDGED
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.filename is None and arguments.command == "score":
            error.filename = arguments.target
        print_error(error)
        if isinstance(error, OSError) and error.errno in DISK_FULL and arguments.command == "score":
            print("error: free some space; --resume goes on with what was judged", file=sys.stderr)
        return USER_ERROR


def _selftest(without: frozenset[str], *, as_json: bool) -> int:
    try:
        found = run_selftest(without)
    except OSError as error:
        raise SandboxError(f"the sandbox could not start: {error}") from error
    print(json.dumps(as_fields(found)) if as_json else as_text(found))
    return PASSED if found.is_safe else NOT_PASSED


def _run(arguments: argparse.Namespace, without: frozenset[str]) -> int:
    request = _request(arguments)
    with _open_pool(arguments, 1, without) as pool:
        result = pool.run(request)
    print(_describe(result))
    if result.outcome is Outcome.INFRA_ERROR:
        return NOT_JUDGED
    return PASSED if result.outcome is Outcome.PASS else NOT_PASSED


def _score(arguments: argparse.Namespace, without: frozenset[str]) -> int:
    source, target = Path(arguments.source), Path(arguments.target)
    if target.is_dir():
        raise ValueError(f"{target}: is a folder; OUT is a file")
    if source.exists() and not source.is_file():
        raise ValueError(f"{source}: is no file; it is read twice, so a pipe cannot be scored")
    terms = Terms(limits=_limits(arguments), modules=tuple(arguments.module))
    digests = read_digests(source, terms)
    present = [path for path in (target, part_of(target)) if path.exists()]
    if present and not arguments.resume:
        raise ValueError(f"{present[0]}: is there already; --resume goes on with it, or remove it")
    with _open_pool(arguments, arguments.workers, without) as pool:
        done = earlier_results(target, digests, pool.level)
        counts = score_file(source, target, digests, done, pool, arguments.workers, terms)
    print(f"{counts.num_passed} of {counts.num_lines} passed; verdicts: {target}")
    if counts.num_infra_errors:
        print(
            f"error: {counts.num_infra_errors} not judged, a fault of the sandbox or the host (outcome "
            "infra_error, passed null); --resume judges them again",
            file=sys.stderr,
        )
    if counts.num_broken:
        print(
            f"error: {counts.num_broken} not judged: their tasks are broken (detail {BROKEN!r})",
            file=sys.stderr,
        )
        return USER_ERROR
    return NOT_JUDGED if counts.num_infra_errors else PASSED


def _open_pool(arguments: argparse.Namespace, num_workers: int, without: frozenset[str]) -> SandboxPool:
    """Raises ValueError below level L2 without leave, SandboxError."""
    if unusable := unusable_modules(arguments.module):
        raise ValueError("\n".join(f"--module: {fault}" for fault in unusable))
    try:
        pool = SandboxPool(num_workers, modules=tuple(arguments.module), allow_unsafe=True, without=without)
    except OSError as error:
        raise SandboxError(f"the sandbox could not start {num_workers} processes: {error}") from error
    if pool.level not in SAFE_LEVELS and not arguments.allow_unsafe:
        pool.close()
        raise ValueError(refusal(pool.walls, "--allow-unsafe"))
    return pool


def _request(arguments: argparse.Namespace) -> ExecutionRequest:
    prompt = _read(arguments.prompt) if arguments.prompt is not None else ""
    tests = _tests(arguments.tests)
    entry_point = arguments.entry_point or ""
    if not entry_point and not tests.stdio_tests:
        try:
            entry_point = find_entry_point(prompt, tests)
        except ValueError as fault:
            raise ValueError(f"{fault}; name it with --entry-point") from None
    return make_request(
        prompt=prompt,
        solution=_read(arguments.solution),
        entry_point=entry_point,
        tests=tests,
        limits=_limits(arguments),
    )


def _tests(path: str) -> Suite:
    text = _read(path)
    if not path.endswith(".json"):
        return Suite(check_source=text)
    try:
        return read_tests(json.loads(text))
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"{path}: {fault}") from None


def _read(path: str) -> str:
    try:
        # As task files are read: some editors begin a file with a mark.
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as fault:
        raise ValueError(f"{path}: must be UTF-8 text ({fault})") from None


def _describe(result: ExecutionResult) -> str:
    detail = f" ({result.detail})" if result.detail else ""
    return (
        f"{result.outcome.value}{detail}\n"
        f"passed {result.num_passed} of {result.num_tests}, cpu {result.cpu_s:.3f} s, "
        f"wall {result.wall_s:.3f} s, level {result.level}"
    )


def _limits(arguments: argparse.Namespace) -> Limits:
    return Limits.around(arguments.cpu_s, arguments.memory_mb * 1024**2, arguments.wall_s)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m sandbox", description="Run model-written Python against tests.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    selftest = commands.add_parser("selftest", help="what the sandbox is worth on this host")
    selftest.add_argument("--json", action="store_true", help="one line of JSON instead of text")
    run = commands.add_parser(
        "run",
        help="judge one program",
        description="Judge one program. Exit status: 0 passed, 1 not passed, 2 a mistake in what was given, "
        "3 the sandbox could not judge.",
    )
    run.add_argument("--prompt", metavar="F", help="HumanEval's form (head and docstring), imports, or prose")
    run.add_argument("--solution", metavar="F", required=True, help="a program, or the prompt's completion")
    run.add_argument(
        "--tests",
        metavar="F",
        required=True,
        help='a test program (.py), or a .json list of {"args", "expected"} or {"stdin", "expected_stdout"}',
    )
    run.add_argument("--entry-point", metavar="NAME", help="default: what the prompt or the tests tell")
    _add_common(run)
    score = commands.add_parser(
        "score",
        help="judge many programs",
        description='Judge the lines {"id", "prompt", "solution", "test", "entry_point"} of IN; '
        "instead of test: tests, or stdin with expected_stdout. Exit status: 0 all judged, "
        "2 a wrong line or a broken task, 3 some could not be judged.",
    )
    score.add_argument("source", metavar="IN.jsonl")
    score.add_argument("target", metavar="OUT.jsonl")
    score.add_argument(
        "--workers",
        metavar="N",
        type=positive_whole,
        default=len(os.sched_getaffinity(0)),
        help="sandboxes side by side; default: one a core",
    )
    score.add_argument(
        "--resume",
        action="store_true",
        help="keep the verdicts of a run that was killed, where program, tests, limits, modules and level "
        "are the same",
    )
    _add_common(score)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    limits = Limits()
    parser.add_argument(
        "--cpu-s", metavar="S", type=positive_number, default=limits.cpu_s, help="default: %(default)s"
    )
    parser.add_argument(
        "--wall-s",
        metavar="S",
        type=positive_number,
        help=f"default: five times --cpu-s, and {limits.wall_s:g} at least",
    )
    parser.add_argument(
        "--memory-mb",
        metavar="MIB",
        type=positive_whole,
        default=limits.memory_bytes // 1024**2,
        help="default: %(default)s",
    )
    parser.add_argument(
        "--module",
        metavar="NAME",
        action="append",
        default=[],
        help="an installed package that programs may import, such as numpy; may be repeated",
    )
    parser.add_argument("--allow-unsafe", action="store_true", help="run also where the level is below L2")


if __name__ == "__main__":
    sys.exit(main())
