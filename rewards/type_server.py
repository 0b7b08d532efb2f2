"""The mypy process: typeshed loaded once, programs checked in a forked worker.

``serve`` runs in a process of its own that holds a warm mypy and never checks anything itself. It forks a
worker, which checks up to ``CHECKS_PER_WORKER`` programs one after the other, each as a new module that is
taken out again; then the next worker starts from the warm state as it was in the beginning. A worker is
also replaced after a program that mypy could not parse or that broke it, so nothing of one check is left
in the next, and memory does not grow. A fork costs 3 ms, a start 1.5 s.

Uses mypy's internal API (``dmypy_server.Server``), hence the pinned version. The process ends when its
standard input closes; the worker dies with it. Messages are lines of JSON.
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import select
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from mypy.dmypy_server import Server, process_start_options
from mypy.modulefinder import BuildSource

from rewards.type_rules import ERRORS_FOR_ZERO, FLAGS, is_blocking
from sandbox.jail import die_with_parent

CHECKS_PER_WORKER = 100
_MEMORY_BYTES = 2 * 1024**3
_MAX_MESSAGES = 4 * ERRORS_FOR_ZERO  # not all of them count, but by far more than a quarter
_MODULE = "solution"
# What programs import; no submodule that ``import package`` would not load by itself.
_PRELOADED = (
    "abc array base64 bisect cmath collections collections.abc contextlib copy csv dataclasses "
    "datetime decimal enum fractions functools hashlib heapq io itertools json math numbers operator "
    "os queue random re statistics string struct sys textwrap time types typing typing_extensions "
    "unicodedata"
)


@dataclass(slots=True, kw_only=True)
class _Worker:
    """The forked process, the pipes to and from it, and how many programs it has had."""

    pid: int
    requests: int
    replies: int
    num_checks: int = 0


def serve(folder: Path, timeout_s: float, cpu_limit_s: float) -> None:
    """Answer requests ``{"code": ...}`` on standard input until it closes; ``folder`` is empty, and goes.

    A reply is ``{"messages": [...]}`` with mypy's first errors, ``{"limit": why}`` where the program is
    to blame (CPU time, or mypy breaks on it twice), ``{"unloaded": module}`` where it imports a module of
    the standard library that is not loaded here, or ``{"failure": why}``.
    """
    output = os.dup(1)
    os.dup2(2, 1)  # whatever mypy prints must not get among the replies
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        supervisor = _Supervisor(folder, timeout_s, cpu_limit_s)
        _write_line(output, {"ready": True})
        try:
            while (line := _read_line(0, None)) is not None:
                _write_line(output, supervisor.check(json.loads(line)["code"]))
        finally:
            supervisor.end_worker()
    finally:
        # The owner does this too, unless it was killed.
        shutil.rmtree(folder, ignore_errors=True)


class _Supervisor:
    def __init__(self, folder: Path, timeout_s: float, cpu_limit_s: float) -> None:
        os.chdir(folder)  # mypy looks for modules in the current folder: here are none
        self._engine = _Engine(folder)
        self._timeout_s = timeout_s
        self._cpu_limit_s = cpu_limit_s
        self._worker: _Worker | None = None
        gc.collect()
        gc.freeze()

    def check(self, code: str) -> dict[str, object]:
        """One program's reply; a program that breaks a worker gets a second, fresh one."""
        deadline = time.monotonic() + self._timeout_s
        reason = ""
        for _ in range(2):
            worker = self._ready_worker()
            worker.num_checks += 1
            try:
                _write_line(worker.requests, {"code": code})
                line = _read_line(worker.replies, deadline)
            except TimeoutError:
                self.end_worker()
                return {"failure": f"no verdict within {self._timeout_s} s"}
            except BrokenPipeError:
                line = None
            if line is None:
                status = self.end_worker()
                reason = f"mypy's worker ended with status {status}"
                if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
                    return {"limit": f"more than {self._cpu_limit_s} s of CPU time"}
                if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                    return {"failure": reason}
                continue
            reply: dict[str, object] = json.loads(line)
            if reply.pop("last"):
                self.end_worker()
            if "crash" not in reply:
                return reply
            reason = str(reply["crash"])
        return {"limit": reason}

    def end_worker(self) -> int:
        """Kill and reap the worker, if there is one; its wait status."""
        if self._worker is None:
            return 0
        worker, self._worker = self._worker, None
        os.close(worker.requests)
        os.close(worker.replies)
        # Nothing to a worker that has ended: it is not reaped yet, so the pid is still its own.
        os.kill(worker.pid, signal.SIGKILL)
        return os.waitpid(worker.pid, 0)[1]

    def _ready_worker(self) -> _Worker:
        if self._worker is not None and self._worker.num_checks >= CHECKS_PER_WORKER:
            self.end_worker()
        if self._worker is None:
            self._worker = self._fork()
        return self._worker

    def _fork(self) -> _Worker:
        request_end, requests = os.pipe()
        replies, reply_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._work(request_end, reply_end, (requests, replies, 0))
        os.close(request_end)
        os.close(reply_end)
        return _Worker(pid=pid, requests=requests, replies=replies)

    def _work(self, requests: int, replies: int, foreign: tuple[int, ...]) -> NoReturn:
        try:
            die_with_parent()
            for descriptor in foreign:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            while (line := _read_line(requests, None)) is not None:
                cpu_s = math.ceil(time.process_time() + self._cpu_limit_s)
                # Who is not root cannot raise the hard limit again.
                resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
                _write_line(replies, self._engine.check(json.loads(line)["code"]))
                self._engine.forget()
        finally:
            os._exit(1)


class _Engine:
    """mypy in this process. After an exception or a reply with ``last`` it must not be used again."""

    def __init__(self, folder: Path) -> None:
        options = process_start_options(list(FLAGS), False)
        self._server = Server(options, str(folder / "status.json"))
        self._path = folder / f"{_MODULE}.py"
        preload = folder / "preload.py"
        preload.write_text("".join(f"import {name}\n" for name in _PRELOADED.split()))
        self._server.check([BuildSource(str(preload), "preload", None)], False, False, 80)
        manager = self._server.fine_grained_manager
        if manager is None:
            raise RuntimeError("mypy did not load its own type stubs")
        self._manager = manager
        self._loaded = frozenset(manager.graph)
        preload.unlink()

    def check(self, code: str) -> dict[str, object]:
        self._path.write_text(code, encoding="utf-8", errors="replace", newline="")
        self._server.fscache.flush()
        try:
            messages = self._manager.update([(_MODULE, str(self._path))], [])
        # The type checker broke on the program, in any way there is: also with SystemExit.
        except BaseException as error:
            return {"crash": f"mypy broke: {type(error).__name__}", "last": True}
        if self._manager.blocking_error is not None:
            # It looked at nothing.
            return {"crash": "mypy was blocked by the program", "last": True}
        unloaded = self._find_unloaded()
        if unloaded:
            return {"unloaded": unloaded, "last": True}
        errors = [message for message in messages if " error: " in message][:_MAX_MESSAGES]
        return {"messages": errors, "last": is_blocking(errors)}

    def _find_unloaded(self) -> str:
        """A known module that the program imports and that is not loaded; "" for none.

        In a warm mypy that skips imports whatever comes from such a module is Any.
        """
        state = self._manager.graph.get(_MODULE)
        names = [] if state is None else state.dependencies
        return next((name for name in names if name not in self._loaded), "")

    def forget(self) -> None:
        """Take the program out again."""
        self._server.fscache.flush()
        self._manager.update([], [(_MODULE, str(self._path))])
        self._manager.flush_cache()


def _write_line(descriptor: int, message: dict[str, object]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def _read_line(descriptor: int, deadline: float | None) -> str | None:
    """The next line, or None at the end. Raises TimeoutError past ``deadline`` (monotonic seconds)."""
    data = b""
    while not data.endswith(b"\n"):
        remaining_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([descriptor], [], [], remaining_s)[0]:
            raise TimeoutError
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return None
        data += chunk
    return data.decode()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
