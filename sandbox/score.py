"""Score many programs: a JSONL file in, a JSONL file of verdicts out, in the same order.

A line holds ``id`` (text or a whole number, once in the file), ``solution``, perhaps ``prompt``, and one
form of tests: ``test`` (a test program) or ``tests`` (``{"args", "expected"}`` objects), each with
``entry_point``; or ``stdin`` and ``expected_stdout`` (lists of texts, of the same length). ``copy_back``
is as in ExecutionRequest. Other fields are ignored. ``job.py`` says how prompt and solution are joined.

All lines are read and checked before the first program runs. Verdicts are collected in OUT.part in the
order in which they come; when all are there, OUT is written in the order of IN. A killed run is resumed
from both files. A verdict is kept where its ``request``, a digest of program, tests, limits and modules, and
its ``level`` are those of now; all else is judged again, and so is what could not be judged then. A task that
is at fault itself (its test program cannot run) is no wrong solution: its outcome is infra_error, ``passed``
is null, and the detail begins with "broken task: ".
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final, TextIO, TypeVar, cast

from configs.command_line import named
from sandbox.job import Suite, make_request, read_tests, refuse_constant
from sandbox.pool import Executor
from sandbox.progress import Progress
from sandbox.result import ExecutionRequest, Limits, Outcome, StdioTest

BROKEN: Final = "broken task: "
_MAX_NAMED: Final = 20
_WAITING_PER_WORKER: Final = 4
_OUTCOMES: Final = frozenset(outcome.value for outcome in Outcome)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What came of all lines, those scored earlier included."""

    num_lines: int
    num_passed: int
    num_broken: int
    num_infra_errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What verdicts depend on beside program and tests, the level apart."""

    limits: Limits
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A line; ``digest`` is of all that its verdict depends on, the level apart."""

    name: object
    request: ExecutionRequest
    digest: str

    @property
    def key(self) -> str:
        return _key(self.name)


def read_digests(path: Path, terms: Terms) -> dict[str, str]:
    """Check every line; the digests of their requests by the keys of their ids, in the order of the file.

    Raises ValueError that names each wrong line (the first twenty), as FILE:LINE: what is right.
    """
    faults: list[str] = []
    first_seen: dict[str, int] = {}
    digests: dict[str, str] = {}
    for number, line in _lines(path):
        try:
            job = _job(line, terms)
            if job.key in first_seen:
                earlier = first_seen[job.key]
                raise ValueError(f"id: value {job.key}: must be unique; line {earlier} has it too")
            first_seen[job.key], digests[job.key] = number, job.digest
        except ValueError as fault:
            faults.append(f"{path}:{number}: {fault}")
    if len(faults) > _MAX_NAMED:
        faults[_MAX_NAMED:] = [f"{path}: and {len(faults) - _MAX_NAMED} more wrong lines"]
    if not faults and not first_seen:
        faults.append(f"{path}: holds no line; at least one is needed")
    if faults:
        raise ValueError("\n".join(faults))
    return digests


def earlier_results(target: Path, digests: Mapping[str, str], level: str) -> dict[str, str]:
    """The verdicts that an earlier run left in ``target`` and its .part, as lines by key.

    Left out is what could not be judged, what was judged at another ``level`` or of another request than
    ``digests`` has, and what does not say of which. Raises ValueError for a file that holds other lines;
    the last one, half written when the run was killed, is no fault.
    """
    found: dict[str, str] = {}
    for path in (target, part_of(target)):
        if not path.exists():
            continue
        *lines, torn = path.read_bytes().split(b"\n")
        if torn and path == target:
            raise ValueError(f"{path}: its last line has no end; this is no file of verdicts")
        for number, line in enumerate(lines, start=1):
            try:
                verdict = json.loads(line)
                key, outcome = _key(verdict["id"]), verdict["outcome"]
                judged = verdict.get("request"), verdict.get("level")
            except (ValueError, KeyError, TypeError, RecursionError):
                outcome = None
            if not isinstance(outcome, str) or outcome not in _OUTCOMES:
                raise ValueError(f"{path}:{number}: no verdict of an earlier run; use another OUT")
            if outcome != Outcome.INFRA_ERROR and judged == (digests.get(key, ""), level):
                found[key] = line.decode("utf-8")
    return found


def part_of(target: Path) -> Path:
    """Where verdicts are kept until all are there."""
    return target.with_name(f"{target.name}.part")


def score_file(
    source: Path,
    target: Path,
    keys: Iterable[str],
    done: dict[str, str],
    pool: Executor,
    num_workers: int,
    terms: Terms,
    screen: TextIO = sys.stderr,
) -> Counts:
    """Judge the lines of ``source`` whose keys are not in ``done``, then write ``target``.

    ``keys`` are those of ``read_digests``, ``done`` the lines of ``earlier_results``; it grows. Raises
    OSError where a file cannot be read or written, ValueError where a line of ``source`` is gone since it was
    checked, or another process scores to ``target``.
    """
    part, keys = part_of(target), list(keys)
    earlier = [bool(json.loads(line)["passed"]) for line in done.values()]
    jobs = (job for _, line in _lines(source) if (job := _job(line, terms)).key not in done)
    # The file that is replaced is held to the end as well: another process may have opened it before.
    with _held(part):
        try:
            # Anew, so that nothing half written stays in front of the new lines.
            write_lines(part, done.values())
            with _held(part) as file, ThreadPoolExecutor(num_workers) as threads:
                progress = Progress(len(keys), earlier, screen)
                try:
                    for verdict in in_any_order(partial(_judge, pool), jobs, threads, num_workers):
                        line = json.dumps(verdict)
                        append_line(file, line)
                        done[_key(verdict["id"])] = line
                        progress.count(cast("bool | None", verdict["passed"]))
                finally:
                    threads.shutdown(cancel_futures=True)
                progress.finish()
            missing = [key for key in keys if key not in done]
            if missing:
                raise ValueError(f"{source}: has changed: the line with id {missing[0]} is gone")
            write_lines(target, (done[key] for key in keys))
            part.unlink()
        finally:
            if part.exists() and not part.stat().st_size:
                part.unlink()
    return _count([done[key] for key in keys])


@contextmanager
def _held(part: Path) -> Iterator[TextIO]:
    """``part``, opened to append. Raises ValueError where another process holds it."""
    with part.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{part}: another process writes it just now; use another OUT") from None
        yield file


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write ``path`` whole or not at all."""
    anew = path.with_name(f"{path.name}.new")
    with named(path):
        anew.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.replace(anew, path)


def append_line(file: TextIO, line: str) -> None:
    """Write ``line`` at the end of ``file``, for who reads it from now on; an OSError names the file."""
    with named(Path(file.name)):
        try:
            file.write(f"{line}\n")
            file.flush()
        except OSError:
            # It would try once more when it is closed, and say it without the name.
            with suppress(OSError):
                file.close()
            raise


def in_any_order(
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    threads: ThreadPoolExecutor,
    num_workers: int,
) -> Iterator[_Result]:
    """What ``function`` gives for ``items``, as it comes; few are held at a time, however many there are."""
    left = iter(items)
    running: set[Future[_Result]] = set()
    while True:
        room = _WAITING_PER_WORKER * num_workers - len(running)
        running |= {threads.submit(function, item) for item in islice(left, room)}
        if not running:
            return
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            yield future.result()


def _judge(pool: Executor, job: _Job) -> dict[str, object]:
    """The verdict's fields."""
    try:
        result = pool.run(job.request)
    except ValueError as fault:
        broken = {"outcome": Outcome.INFRA_ERROR.value, "passed": None, "detail": f"{BROKEN}{fault}"[:300]}
        usage = {"cpu_s": 0.0, "wall_s": 0.0, "level": pool.level}
        return {"id": job.name, **broken, **usage, "request": job.digest}
    is_judged = result.outcome is not Outcome.INFRA_ERROR
    return {
        "id": job.name,
        "outcome": result.outcome.value,
        "passed": result.outcome is Outcome.PASS if is_judged else None,
        "detail": result.detail,
        "cpu_s": round(result.cpu_s, 6),
        "wall_s": round(result.wall_s, 6),
        "level": result.level,
        "request": job.digest,
    }


def _count(lines: list[str]) -> Counts:
    verdicts = [cast("dict[str, object]", json.loads(line)) for line in lines]
    unjudged = [verdict for verdict in verdicts if verdict["outcome"] == Outcome.INFRA_ERROR]
    num_broken = sum(str(verdict["detail"]).startswith(BROKEN) for verdict in unjudged)
    return Counts(
        num_lines=len(verdicts),
        num_passed=sum(verdict["passed"] is True for verdict in verdicts),
        num_broken=num_broken,
        num_infra_errors=len(unjudged) - num_broken,
    )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _job(line: bytes, terms: Terms) -> _Job:
    """What one line asks for. Raises ValueError."""
    try:
        fields = json.loads(line.decode("utf-8"), parse_constant=refuse_constant)
    except UnicodeDecodeError as fault:
        raise ValueError(f"must be UTF-8 text ({fault})") from None
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"must be one JSON object ({fault})") from None
    if not isinstance(fields, dict):
        raise ValueError("must be one JSON object")
    name = fields.get("id")
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ValueError("id: must be text or a whole number")
    tests = _tests(fields)
    copy_back = fields.get("copy_back", False)
    if not isinstance(copy_back, bool):
        raise ValueError("copy_back: must be true or false")
    request = make_request(
        prompt=_text(fields, "prompt", otherwise=""),
        solution=_text(fields, "solution"),
        entry_point="" if tests.stdio_tests else _text(fields, "entry_point"),
        tests=tests,
        limits=terms.limits,
        copy_back=copy_back,
    )
    try:
        text = repr((request, terms.modules))
    except RecursionError:
        raise ValueError("tests: are nested too deeply") from None
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return _Job(name=name, request=request, digest=digest)


def _tests(fields: dict[str, object]) -> Suite:
    if sum(name in fields for name in ("test", "tests", "stdin")) != 1:
        raise ValueError("give exactly one of test, tests, and stdin with expected_stdout")
    if "test" in fields:
        return Suite(check_source=_text(fields, "test"))
    if "tests" in fields:
        return read_tests(fields["tests"])
    inputs, outputs = fields["stdin"], fields.get("expected_stdout")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise ValueError("stdin, expected_stdout: must be two lists of the same length")
    if not inputs or not all(isinstance(text, str) for text in (*inputs, *outputs)):
        raise ValueError("stdin, expected_stdout: must hold texts, at least one each")
    pairs = zip(inputs, outputs, strict=True)
    return Suite(stdio_tests=tuple(StdioTest(stdin=given, expected_stdout=want) for given, want in pairs))


def _text(fields: dict[str, object], name: str, otherwise: str | None = None) -> str:
    value = fields.get(name, otherwise)
    if not isinstance(value, str):
        raise ValueError(f"{name}: {'must be text' if name in fields else 'is missing; it must be text'}")
    return value


def _key(name: object) -> str:
    """1 and "1" are two ids."""
    return json.dumps(name)
