"""A whole program that reads stdin and prints: load it as ``__main__``, run it to its end.

Runs inside the jailed child, together with the model's code; knows no expected output. Its stdin
and stdout are files that the owner made; what it printed is judged there, after its death.

One frame in: the source. Frames out: that it is ready for it; and where the program did not end well the
exception's type and the line of the program, for the detail. The exit code is the program's own (1 after an
exception), as under python.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import socket
import sys
import threading
import traceback
import types
from typing import Final, NoReturn, cast

from sandbox.answer import FILE_NAME, line_of
from sandbox.cargo import unpack
from sandbox.codec import encode
from sandbox.wire import FrameReader, send_frame

# In the order in which they are flushed: text goes into a buffer.
_FILES: Final = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
# To end fewer objects than this takes less than 5 ms.
_MANY: Final = 50_000


def serve(channel: socket.socket) -> NoReturn:
    """Run the program and exit with its code."""
    send_frame(channel, encode(("ready", None)))
    source = cast("str", unpack(FrameReader(channel).receive()))
    sys.argv = ["solution.py"]
    # Nothing else holds it, so that the program's objects end when it is let go (``_end_objects``).
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules["__main__"].__file__ = sys.argv[0]
    try:
        code = 0
        exec(compile(source, FILE_NAME, "exec", dont_inherit=True), sys.modules["__main__"].__dict__)
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
    """End as an interpreter does, as far as a program can tell and in its order: wait for threads, atexit,
    flush, end the program's objects. A step that fails does not keep the next one from being taken.
    """
    with contextlib.suppress(BaseException):
        # It also ends executors that nobody shut down, whose threads would wait for ever.
        threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    if not _flush():
        code = code or 120
    with contextlib.suppress(BaseException):
        _end_objects()
    _flush()
    os._exit(code)


def _flush() -> bool:
    """Flush the standard streams, whatever the program put in their places; False where that failed."""
    is_flushed = True
    for name in ("stdout", "stderr"):
        try:
            stream = getattr(sys, name, None)
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException:
            is_flushed = False
    return is_flushed


def _end_objects() -> None:
    """Give the program's objects their end, at which files are flushed and ``__del__`` runs."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    if _flush_files():
        sys.modules.pop("__main__", None)
        gc.collect()


def _flush_files() -> bool:
    """Flush all files, whoever holds them; whether the other objects are worth an end.

    A file's own end would not do: among others' it may come to the descriptor first, and then to the buffer.
    To end millions of objects takes a third of the time that it took to make them, so one must notice it.
    """
    objects = gc.get_objects()
    kinds = set(map(type, objects))
    files = [] if kinds.isdisjoint(_FILES) else [one for one in objects if type(one) in _FILES]
    for file in sorted(files, key=lambda one: _FILES.index(type(one))):
        with contextlib.suppress(BaseException):
            file.flush()
    return len(objects) < _MANY or any(map(_notices, kinds))


def _notices(kind: type) -> bool:
    """Whether objects of this kind do something at their end."""
    return hasattr(kind, "__del__") and not issubclass(kind, io.IOBase)
