"""The candidate's side of a run: load the solution, then answer calls until the peer hangs up.

Runs inside the jailed child, together with the model's code, so nothing here can be trusted and
nothing here knows an expected value or a test: all that can be forged is the candidate's own value.
The peer is the trusted owner (call tests) or the judge (check programs).

Frames in: ``(solution, prelude, entry_point)`` once, then ``(args, kwargs, with_args)`` a call.
Frames out: one for the prelude (still trusted: the solution has not run), one for the solution, then
one a call; their forms are in ``answer.py``.
"""

from __future__ import annotations
import __future__

import contextlib
import socket
import sys
import types
from collections.abc import Callable, Mapping
from typing import Final, cast

from sandbox.answer import FILE_NAME, call_answer, error_answer
from sandbox.cargo import unpack
from sandbox.codec import encode
from sandbox.wire import FrameReader, send_frame

_FUTURE: Final[int] = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_READY: Final = encode(("ready", None))


class _Missing(Exception):
    """The solution does not define the entry point."""


def serve(channel: socket.socket) -> None:
    """Answer until EOF. Every way out of the model's code that Python can catch becomes a frame."""
    reader = FrameReader(channel)
    solution, prelude, entry_point = cast("tuple[str, str, str]", unpack(reader.receive()))
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    try:
        # Compiling nothing is not free: its pages are copied too.
        flags = run_prelude(prelude, module) if prelude else 0
    except BaseException as error:
        _fail(channel, reader, error_answer(error))
        return
    send_frame(channel, _READY)
    try:
        exec(compile(solution, FILE_NAME, "exec", flags, dont_inherit=True), module.__dict__)
        function = _find(module.__dict__, entry_point)
    except _Missing:
        _fail(channel, reader, encode(("error", ((f"{entry_point[:60]} is not defined",), (), 0))))
        return
    except BaseException as error:
        _fail(channel, reader, error_answer(error))
        return
    send_frame(channel, _READY)
    while True:
        try:
            frame = reader.receive()
        except EOFError:
            return
        args, kwargs, with_args = cast("tuple[tuple[object, ...], dict[str, object], bool]", unpack(frame))
        send_frame(channel, call_answer(function, args, kwargs, with_args=with_args))


def run_prelude(prelude: str, module: types.ModuleType) -> int:
    """Execute ``prelude`` in ``module``; the compiler's flags for what follows in the same file: those of the
    prelude's ``from __future__`` imports."""
    code = compile(prelude, "<prelude>", "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return code.co_flags & _FUTURE


def _find(namespace: Mapping[str, object], entry_point: str) -> Callable[..., object]:
    """Return the function, or for ``Class.method`` one that calls the method of a fresh instance."""
    name, _, method = entry_point.partition(".")
    if name not in namespace:
        raise _Missing
    found = namespace[name]
    if not method:
        return cast("Callable[..., object]", found)
    kind = cast("Callable[[], object]", found)
    if getattr(kind, method, None) is None:
        raise _Missing

    def call(*args: object, **kwargs: object) -> object:
        return getattr(kind(), method)(*args, **kwargs)

    return call


def _fail(channel: socket.socket, reader: FrameReader, answer: bytes) -> None:
    """Report, then stay until the owner ends this process: only a real death shall look like one."""
    send_frame(channel, answer)
    with contextlib.suppress(EOFError):
        while True:
            reader.receive()
