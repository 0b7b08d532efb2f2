"""A resident ``ruff server`` and the few LSP messages needed to ask it.

It ends when its standard input closes, so it dies with its owner. Every wait for it has a deadline.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from ruff import find_ruff_bin  # type: ignore[import-untyped]

from rewards.lint_rules import LINE_LENGTH, RULES, TARGET_VERSION, count_findings
from rewards.tool_output import is_ready, read_some

# What ruff may say of one program: of more there are more than enough findings, or they quote long lines.
MAX_ANSWER_BYTES = 4 * 1024**2

_HOME = Path(__file__).parent
_HOME_URI = _HOME.as_uri()
_END_TIMEOUT_S = 10.0


class UnreadableError(Exception):
    """Ruff died of a program, used up its time on it, or had far too much to say of it."""


class RuffServer:
    """A ``ruff server`` process and the few LSP messages needed to ask it.

    Raises OSError, ValueError or KeyError for a broken server, TimeoutError for a late one and
    UnreadableError for one that has too much to say.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._buffer = bytearray()
        self._num_requests = 0
        self._process = subprocess.Popen(
            [find_ruff_bin(), "--isolated", "server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_HOME,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        os.set_blocking(self._input.fileno(), False)
        deadline = time.monotonic() + timeout_s
        try:
            self._send(deadline, _request(0, "initialize", _initialize_parameters()))
            self._answer(deadline, "initialize")
            self._send(deadline, _notification("initialized", {}))
        except (OSError, ValueError, KeyError, TimeoutError):
            self.close()
            raise

    def count_issues(self, code: str, given: Collection[str] = ()) -> int:
        """The number of findings in ``code``, which holds no suppressions; see ``count_findings``."""
        self._num_requests += 1
        uri = f"{_HOME_URI}/solution_{self._num_requests}.py"
        document = {"uri": uri, "languageId": "python", "version": 1, "text": code}
        reference: dict[str, object] = {"textDocument": {"uri": uri}}
        deadline = time.monotonic() + self._timeout_s
        # One write for all three: the server answers from the state at the request, closed or not.
        self._send(
            deadline,
            _notification("textDocument/didOpen", {"textDocument": document}),
            _request(self._num_requests, "textDocument/diagnostic", reference),
            _notification("textDocument/didClose", reference),
        )
        return count_findings(self._answer(deadline, "textDocument/diagnostic")["items"], given)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(timeout=_END_TIMEOUT_S)
        self._input.close()
        self._output.close()

    def _answer(self, deadline: float, method: str) -> dict[str, list[object]]:
        while True:
            message = self._receive(deadline)
            if message.get("id") == self._num_requests and "method" not in message:
                result = message["result"]
                if not isinstance(result, dict):
                    raise ValueError(f"ruff server answered {method} with {result!r}")
                return result

    def _send(self, deadline: float, *messages: dict[str, object]) -> None:
        bodies = [json.dumps(message).encode() for message in messages]
        data = b"".join(b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies)
        while data:
            if not is_ready(self._input, select.POLLOUT, deadline - time.monotonic()):
                raise TimeoutError(f"ruff server (pid {self._process.pid}) reads nothing")
            data = data[os.write(self._input.fileno(), data) :]

    def _receive(self, deadline: float) -> dict[str, object]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            self._read_more(deadline)
        header = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        lengths = [line for line in header.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        num_bytes = int(lengths[0].split(b":")[1]) if lengths else 0
        if num_bytes > MAX_ANSWER_BYTES:
            raise UnreadableError(f"ruff server (pid {self._process.pid}) has {num_bytes} bytes to say")
        while len(self._buffer) < num_bytes:
            self._read_more(deadline)
        body = bytes(self._buffer[:num_bytes])
        del self._buffer[:num_bytes]
        message = json.loads(body)
        if not isinstance(message, dict):
            raise ValueError("ruff server sent a message that is no object")
        return message

    def _read_more(self, deadline: float) -> None:
        who = f"ruff server (pid {self._process.pid})"
        chunk = read_some(self._output, deadline, who)
        if not chunk:
            raise OSError(f"{who} ended")
        self._buffer += chunk


def _notification(method: str, parameters: dict[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method, "params": parameters}


def _request(number: int, method: str, parameters: dict[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}


def _initialize_parameters() -> dict[str, object]:
    configuration = {
        "line-length": LINE_LENGTH,
        "target-version": TARGET_VERSION,
        "lint": {"select": list(RULES)},
    }
    settings = {"configurationPreference": "editorOnly", "configuration": configuration}
    return {
        "processId": os.getpid(),
        "rootUri": None,
        # Without the pull-diagnostics capability the server would push, at times of its own choosing.
        "capabilities": {"textDocument": {"diagnostic": {"dynamicRegistration": False}}},
        "initializationOptions": {"settings": settings},
    }
