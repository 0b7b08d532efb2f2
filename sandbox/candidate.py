"""The candidate's side of a run: load the solution, then answer calls until the peer hangs up.

Runs inside the jailed child, together with the model's code, so nothing here can be trusted and
nothing here knows an expected value or a test: all that can be forged is the candidate's own value.
The peer is the trusted owner (call tests) or the judge (check programs). Called by the zygote.

Frames out: ``("ready",)`` or ``("error", type)`` for the prelude (still trusted: the solution has
not run), the same for the solution, then one a call: ``("ok", value)``, ``("error", type)`` or
``("foreign", reason)``.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import types
from collections.abc import Callable
from typing import cast

from sandbox.codec import CodecError, decode, encode
from sandbox.wire import receive_frame, send_frame


def serve(channel: socket.socket) -> None:
    """Answer until EOF. Every way out of the model's code that Python can catch becomes a frame."""
    solution, prelude, entry_point = cast("tuple[str, str, str]", decode(receive_frame(channel)))
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    try:
        exec(compile(prelude, "<prelude>", "exec"), module.__dict__)
    except BaseException as error:
        _fail(channel, type(error).__name__)
        return
    send_frame(channel, encode(("ready",)))
    try:
        exec(compile(solution, "<solution>", "exec"), module.__dict__)
        function = module.__dict__[entry_point]
    except BaseException as error:
        missing = type(error) is KeyError and entry_point not in module.__dict__
        name = f"{entry_point[:60]} is not defined" if missing else type(error).__name__
        _fail(channel, name)
        return
    send_frame(channel, encode(("ready",)))
    while True:
        try:
            frame = receive_frame(channel)
        except EOFError:
            return
        args, kwargs = cast("tuple[tuple[object, ...], dict[str, object]]", decode(frame))
        send_frame(channel, _answer(function, args, kwargs))


def _fail(channel: socket.socket, name: str) -> None:
    """Report, then stay until the owner ends this process: only a real death shall look like one."""
    send_frame(channel, encode(("error", name)))
    with contextlib.suppress(EOFError):
        receive_frame(channel)


def _answer(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
    try:
        return encode(("ok", function(*args, **kwargs)))
    except CodecError as error:
        return encode(("foreign", str(error)[:160]))
    except BaseException as error:
        return encode(("error", type(error).__name__))
