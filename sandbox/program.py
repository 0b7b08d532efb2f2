"""A whole program that reads stdin and prints: load it as ``__main__``, run it to its end.

Runs inside the jailed child, together with the model's code; knows no expected output. Its stdin
and stdout are files that the owner made; what it printed is judged there, after its death.

One frame in: the source. One frame out, only where the program did not end well: the exception's
type and the line of the program, for the detail. The exit code is the program's own (1 after an
exception), as under python.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import contextlib
import os
import socket
import sys
import threading
import traceback
import types
from typing import NoReturn, cast

from sandbox.answer import FILE_NAME, line_of
from sandbox.cargo import unpack
from sandbox.codec import encode
from sandbox.wire import receive_frame, send_frame


def serve(channel: socket.socket) -> NoReturn:
    """Run the program and exit with its code."""
    source = cast("str", unpack(receive_frame(channel)))
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["solution.py"]
    # The site module, which zygotes run without, gives programs these two.
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    try:
        code = 0
        exec(compile(source, FILE_NAME, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:
        code = 1
        with contextlib.suppress(BaseException):
            send_frame(channel, encode((type(error).__name__[:80], line_of(error))))
            traceback.print_exc()
    _finish(code)


def _exit_code(error: SystemExit) -> int:
    """What python makes of ``sys.exit(value)``."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _finish(code: int) -> NoReturn:
    """What an interpreter does at its end, as far as a program can tell: threads, atexit, flush."""
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        if not sys.stdout.closed:
            sys.stdout.flush()
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:
        code = code or 120
    with contextlib.suppress(BaseException):
        sys.stderr.flush()
    os._exit(code)
