"""What a program must not reach: listeners, a secret file, a writable folder, a victim process.

All real and open to every user of the machine, so that only the sandbox's walls keep a program away;
``touched`` tells what was reached whatever the program itself says. Called by ``suite.py``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from types import TracebackType

SECRET = "the-secret-of-the-host"


class Targets:
    """A context manager that makes the targets and removes them."""

    def __enter__(self) -> Targets:
        self._folder = tempfile.mkdtemp(prefix="targets-")
        os.chmod(self._folder, 0o777)
        self._secret = os.path.join(self._folder, "secret")
        with open(self._secret, "w", encoding="utf-8") as file:
            file.write(SECRET)
        os.chmod(self._secret, 0o666)
        abstract = f"targets-{os.getpid()}"
        self._listeners = {
            "tcp": _listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": _listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "stream": _listener(socket.AF_UNIX, socket.SOCK_STREAM, os.path.join(self._folder, "stream")),
            "dgram": _listener(socket.AF_UNIX, socket.SOCK_DGRAM, os.path.join(self._folder, "dgram")),
            "abstract": _listener(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}"),
            "abstract dgram": _listener(socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{abstract}-dgram"),
        }
        self._victim = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(3600)"])
        self._words = {
            "@FOLDER@": self._folder,
            "@SECRET@": self._secret,
            "@TCP@": str(self._listeners["tcp"].getsockname()[1]),
            "@UDP@": str(self._listeners["udp"].getsockname()[1]),
            "@STREAM@": os.path.join(self._folder, "stream"),
            "@DGRAM@": os.path.join(self._folder, "dgram"),
            "@ABSTRACT@": abstract,
            "@VICTIM@": str(self._victim.pid),
            "@OWNER@": str(os.getpid()),
            "@HARNESS@": os.path.abspath(__file__),
        }
        self._names = sorted(os.listdir(self._folder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._victim.kill()
        self._victim.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def fill(self, source: str) -> str:
        """The source with the placeholders replaced."""
        for word, value in self._words.items():
            source = source.replace(word, value)
        return source

    def touched(self) -> list[str]:
        """Names of the targets that something reached since the last question."""
        found = [name for name, listener in self._listeners.items() if _was_reached(listener)]
        if self._victim.poll() is not None:
            found.append("victim")
        if sorted(os.listdir(self._folder)) != self._names:
            found.append("folder")
        with open(self._secret, encoding="utf-8") as file:
            if file.read() != SECRET:
                found.append("secret")
        return found


def _listener(family: int, kind: int, address: str | tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, kind)
    listener.bind(address)
    if kind == socket.SOCK_STREAM:
        listener.listen()
    if isinstance(address, str) and not address.startswith("\0"):
        os.chmod(address, 0o777)
    listener.setblocking(False)
    return listener


def _was_reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(16)
    except BlockingIOError:
        return False
    return True
