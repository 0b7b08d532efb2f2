"""The candidate as a test program sees it: a function that calls across to another process.

Arguments go over as plain data and a plain value comes back, so no object of the candidate's, with
its ``__eq__``, ever gets here. The candidate's death ends this process at once, past every ``except``
of the test program; what no test may take for an answer (an exit, a foreign value) stays on record
even where the test program swallows it. Decides nothing.
"""

from __future__ import annotations

import builtins
import os
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Final

from sandbox.answer import Answer, ForgedError, parse_answer
from sandbox.cargo import pack
from sandbox.codec import CodecError, decode
from sandbox.wire import FrameError, FrameReader, send_frame

EXIT_CANDIDATE_GONE: Final = 70
EXIT_CANDIDATE_FORGED: Final = 71
# A test program's own time limits: a handler that raised between call and answer would leave the answer
# to the next call.
_TIMERS: Final = frozenset({signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF})

# (verdict, detail): "wrong", "exception", "oom" or "broken".
Fault = tuple[str, str]


class CandidateFault(BaseException):
    """What the candidate did is no answer that a test could expect: not for ``except Exception``."""


class CandidateProxy:
    """Calls the candidate in its own process.

    ``num_calls`` counts the calls made. ``fault`` is the first thing on record that fails the test at
    hand whatever the test program makes of it; who judges a test takes it and sets it to None.
    """

    def __init__(self, channel: socket.socket, *, copy_back: bool) -> None:
        # The owner's time-outs left it otherwise.
        channel.setblocking(True)
        self._channel = channel
        self._reader = FrameReader(channel)
        self._copy_back = copy_back
        self._lock = threading.Lock()
        self._raised: tuple[BaseException, Fault] | None = None
        self._known: dict[str, type[Exception]] = {}
        self.num_calls = 0
        self.fault: Fault | None = None

    def learn_exceptions(self, namespace: Mapping[str, object]) -> None:
        """The prelude's exceptions, which the candidate has too: a test program may expect these as well.

        Not a StopIteration, for the reason that ``_stand_in`` gives.
        """
        self._known = {
            name: kind
            for name, kind in namespace.items()
            if isinstance(kind, type) and issubclass(kind, Exception) and kind.__name__ == name
            if not issubclass(kind, StopIteration | StopAsyncIteration)
        }

    def call(self, *args: object, **kwargs: object) -> object:
        """Return the candidate's plain value, or raise what stands for its exception.

        With copy-back, the lists, dicts and sets among the arguments then hold what the candidate left
        in its copies.
        """
        self.num_calls += 1
        try:
            frame = pack((args, kwargs, self._copy_back))
        except CodecError as refusal:
            # Before any answer came this is the test program's own fault, not a wrong answer.
            self._put_on_record("broken" if self.num_calls == 1 else "wrong", f"an argument: {refusal}")
            raise CandidateFault(str(refusal)) from refusal
        answer = self._exchange(frame)
        if answer.kind == "ok":
            if self._copy_back:
                _write_back((args, kwargs), (answer.args, answer.kwargs))
            return answer.value
        if answer.kind == "foreign":
            self._put_on_record("wrong", answer.text)
            raise CandidateFault(answer.text)
        fault = ("oom" if "MemoryError" in answer.names else "exception", answer.text)
        error = _stand_in(answer, self._known)
        if error is None:
            self._put_on_record(*fault)
            raise CandidateFault(answer.text)
        self._raised = error, fault
        raise error

    @property
    def has_surplus(self) -> bool:
        """Whether more came from the candidate than the answers to its calls."""
        return self._reader.has_more

    def explain(self, error: BaseException) -> Fault:
        """What an exception says that came out of the test program."""
        if self._raised is not None and error is self._raised[0]:
            return self._raised[1]
        return "wrong", type(error).__name__

    def _put_on_record(self, verdict: str, detail: str) -> None:
        if self.fault is None:
            self.fault = verdict, detail

    def _exchange(self, frame: bytes) -> Answer:
        try:
            # Threads of a test program take turns: the channel carries one call at a time.
            with self._lock:
                try:
                    signal.pthread_sigmask(signal.SIG_BLOCK, _TIMERS)
                    send_frame(self._channel, frame)
                    received = self._reader.receive()
                finally:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TIMERS)
            answer = decode(received)
            parsed = parse_answer(answer, with_args=self._copy_back)
        except EOFError:
            os._exit(EXIT_CANDIDATE_GONE)
        except (CodecError, FrameError, ForgedError):
            os._exit(EXIT_CANDIDATE_FORGED)
        if parsed.kind == "ready":
            os._exit(EXIT_CANDIDATE_FORGED)
        return parsed


def _stand_in(answer: Answer, known: Mapping[str, type[Exception]]) -> Exception | None:
    """The nearest exception, built-in or ``known``, among the class and its bases, so that a test may
    expect a ValueError; None for what is no Exception (an exit, an interrupt) and for a StopIteration,
    which would end the test program's own ``map`` or ``zip`` over its calls as if all had been made."""
    if not {"StopIteration", "StopAsyncIteration"}.isdisjoint(answer.names):
        return None
    for name in answer.names:
        if name in known and (error := _bare(known[name], answer.args)) is not None:
            return error
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            break
    else:
        return None
    if issubclass(kind, ExceptionGroup):
        return ExceptionGroup(answer.names[0], [Exception(answer.names[0])])
    try:
        # No more than one argument: the numbers in some exceptions are indices that nobody checks.
        error = kind(*answer.args[:1])
    except TypeError:
        error = kind.__new__(kind)
    error.args = answer.args
    return error


def _bare(kind: type[Exception], args: tuple[object, ...]) -> Exception | None:
    """One of the prelude's exceptions, whose ``__init__`` may want what nobody knows here; None where its
    class does not allow that."""
    try:
        error = kind.__new__(kind)
        error.args = args
    except Exception:
        return None
    return error if isinstance(error, kind) else None


def _write_back(mine: object, theirs: object) -> object:
    """Make ``mine`` hold what ``theirs`` holds, in place as far as the shapes allow; return the result.

    Lists, dicts and sets keep their identity; so do containers inside a list or dict that are of the
    same kind at the same index or key, and inside a tuple of the same length. Else theirs is taken.
    So a row that moved keeps its place and changes its content; and of two arguments that are one
    list the candidate gets two, the last of which is copied back. A call that raises brings nothing.
    """
    if isinstance(mine, list) and isinstance(theirs, list):
        kept = len(mine)
        mine[:] = [
            _write_back(mine[index], item) if index < kept else item for index, item in enumerate(theirs)
        ]
    elif isinstance(mine, dict) and isinstance(theirs, dict):
        items = [(key, _write_back(mine[key], item) if key in mine else item) for key, item in theirs.items()]
        mine.clear()
        for key, item in items:
            # Not update(): a Counter's adds.
            mine[key] = item
    elif isinstance(mine, set) and isinstance(theirs, set):
        mine.clear()
        mine.update(theirs)
    elif isinstance(mine, tuple) and isinstance(theirs, tuple) and len(mine) == len(theirs):
        return tuple(_write_back(own, item) for own, item in zip(mine, theirs, strict=True))
    else:
        return theirs
    return mine
