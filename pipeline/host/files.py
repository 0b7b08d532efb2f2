"""A lock on a file of the user's cache: one process makes what stands there, others wait for it.

A JSON object in a small file of a run or a model, or a ValueError that names the file.

The user's cache folder of this project.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def files_digest(folder: Path) -> str:
    """Changes with the name, size or time of any file of a model's folder."""
    lines = []
    for path in sorted(folder.iterdir()):
        if path.is_file():
            status = path.stat()
            lines.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


LOCK_TIMEOUT_S = 1200.0  # longer than a download may take, and what is made of it
_POLL_S = 0.5


@contextmanager
def locked(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold an advisory lock on ``path``; the kernel frees it when its owner dies.

    Raises TimeoutError, naming the owner, when another process holds it longer than ``timeout_s`` seconds.
    """
    with path.open("a+") as handle:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    handle.seek(0)
                    owner = handle.read().strip() or "unknown"
                    raise TimeoutError(
                        f"{path}: still locked by process {owner} after {timeout_s:.0f} s"
                    ) from None
                time.sleep(_POLL_S)
        handle.seek(0)
        handle.truncate()
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def read_object(path: Path) -> dict[str, Any]:
    """The object in ``path``; ValueError, as 'FILE: what is wrong', where there is none to be had."""
    try:
        value = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 (byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: must hold a JSON object, holds {type(value).__name__}")
    return value


def cache_root() -> Path:
    """``$XDG_CACHE_HOME`` or ``~/.cache``, then code-grpo; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "code-grpo"


def write_text_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that a reader, or a crash, sees the old file or the new one whole."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
