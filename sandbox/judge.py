"""The judge's side of a run: execute a check program against a candidate in another process.

Runs inside its own jailed child, which alone holds the test source. The ``candidate`` it passes to
``check`` is a proxy: arguments go across as plain data and a plain value comes back, so no object
of the candidate's, with its ``__eq__``, ever gets here. The death of the candidate ends this
process at once, past every ``except`` of the test program. It reports; the owner decides. In-place
changes of arguments are not seen here. Called by the zygote.

Frame out, one: ``(verdict, detail, num_calls)`` with verdict pass, wrong, exception or broken.
"""

from __future__ import annotations

import builtins
import os
import socket
import types
from typing import Final, cast

from sandbox.codec import CodecError, decode, encode
from sandbox.wire import FrameError, receive_frame, send_frame

EXIT_CANDIDATE_GONE: Final = 70
EXIT_CANDIDATE_FORGED: Final = 71


class CandidateError(RuntimeError):
    """The candidate raised an exception that is not a plain built-in one; the message is its type."""


class CandidateProxy:
    """Calls the candidate in its own process. ``error`` is the last exception raised on its behalf."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.num_calls = 0
        self.error: BaseException | None = None
        self.unsendable = False
        self.error_kind = ""
        self.error_name = ""

    def call(self, *args: object, **kwargs: object) -> object:
        """Return the candidate's plain value, or raise what stands for its exception."""
        self.num_calls += 1
        try:
            request = encode((args, kwargs))
        except CodecError:
            # Before any answer came this is the test program's own fault, not a wrong answer.
            self.unsendable = self.num_calls == 1
            raise
        kind, payload = self._exchange(request)
        if kind == "ok":
            return payload
        self.error_name = str(payload)[:80]
        if kind == "error":
            self.error_kind = "exception"
            self.error = _stand_in(self.error_name)
        else:
            self.error_kind = "wrong"
            self.error = TypeError(self.error_name)
        raise self.error

    def _exchange(self, request: bytes) -> tuple[str, object]:
        try:
            send_frame(self._channel, request)
            answer = decode(receive_frame(self._channel))
        except EOFError:
            os._exit(EXIT_CANDIDATE_GONE)
        except (CodecError, FrameError):
            os._exit(EXIT_CANDIDATE_FORGED)
        if not isinstance(answer, tuple) or len(answer) != 2 or answer[0] not in ("ok", "error", "foreign"):
            os._exit(EXIT_CANDIDATE_FORGED)
        return answer


def serve(control: socket.socket, candidate: socket.socket) -> None:
    """Run one check program and send its verdict frame."""
    prelude, check_source, entry_point = cast("tuple[str, str, str]", decode(receive_frame(control)))
    proxy = CandidateProxy(candidate)

    def call(*args: object, **kwargs: object) -> object:
        return proxy.call(*args, **kwargs)

    module = types.ModuleType("check")
    try:
        exec(compile(prelude, "<prelude>", "exec"), module.__dict__)
        module.__dict__[entry_point] = call
        exec(compile(check_source, "<check>", "exec"), module.__dict__)
        check = module.__dict__["check"]
    except BaseException as error:
        verdict = _failure(error, proxy, default="wrong" if proxy.num_calls else "broken")
    else:
        verdict = _verdict(check, call, proxy)
    send_frame(control, encode(verdict))


def _verdict(check: object, call: object, proxy: CandidateProxy) -> tuple[str, str, int]:
    assert callable(check)
    try:
        check(call)
    except BaseException as error:
        return _failure(error, proxy, default="wrong")
    return "broken" if proxy.unsendable else "pass", "", proxy.num_calls


def _failure(error: BaseException, proxy: CandidateProxy, *, default: str) -> tuple[str, str, int]:
    if proxy.unsendable:
        return "broken", "an argument is not plain data", proxy.num_calls
    if error is proxy.error:
        return proxy.error_kind, proxy.error_name, proxy.num_calls
    return default, type(error).__name__, proxy.num_calls


def _stand_in(name: str) -> Exception:
    """Built-in exceptions come back as themselves, so that a check may expect a ValueError."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError):
        return kind(f"raised by the candidate: {name}")
    return CandidateError(name)
