"""Small files: written whole, read with errors that name them, locked; and the folder of the user's cache."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import AcquireReturnProxy, BaseFileLock, FileLock, Timeout

from configs.command_line import named

_TEMPORARY_PREFIX, _OWN_LOCK = "code-grpo-engine-", ".lock"
# Of the temporary folder, in bytes: 107 of a socket's path, less the name of our folder in it, with a
# process id, and that of vLLM's socket, a UUID.
_LONGEST_BASE = 107 - len(f"/{_TEMPORARY_PREFIX}12345678-4194304") - len(f"/{uuid.UUID(int=0)}")
_LEFT_WAIT_S = 0.0
# Between the making of a folder and its lock.
_BEGINNING_S = 60.0
# Longer than the downloads of a model may take, and what is made of them; a dead owner holds nothing.
LOCK_TIMEOUT_S = 4 * 3600.0


# In a checkpoint that other runs began with: their folders, a line each.
KEPT_FOR = "kept_for"
# Beside adapters, while they are merged with their base, and left there.
MERGE_LOCK = "merged.lock"
# What comes to lie beside a model, and is no part of it: the above, and its card.
_NOTES = (KEPT_FOR, MERGE_LOCK, "README.md")


def files_digest(folder: Path, pattern: str = "*") -> str:
    """Changes with the name, size or time of any file: to read them all would take longer than a start.

    Notes and locks beside a model do not count.
    """
    lines = []
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and path.name not in _NOTES:
            status = path.stat()
            lines.append(f"{path.relative_to(folder)} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def locked(path: Path, *, timeout_s: float) -> AcquireReturnProxy[BaseFileLock]:
    """Lock ``path`` for this process, whose id is then in it: for a block, or until ``.lock.release()``.

    The kernel frees it when its owner dies. Raises TimeoutError, naming the owner, when another
    process holds it longer than ``timeout_s`` seconds.
    """
    lock: BaseFileLock = FileLock(path, timeout=timeout_s, thread_local=False)
    try:
        held = lock.acquire()
    except Timeout:
        owner = path.read_text(encoding="utf-8").strip() or "unknown"
        raise TimeoutError(f"{path}: still locked by process {owner} after {timeout_s:.0f} s") from None
    try:
        with named(path):
            path.write_text(f"{os.getpid()}\n", encoding="utf-8")
    except OSError:
        held.lock.release()
        raise
    return held


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
    """``$XDG_CACHE_HOME`` or ``~/.cache``, then code-grpo; it need not exist yet.

    Raises ValueError for a user without a home.
    """
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "code-grpo"
    try:
        return Path.home() / ".cache" / "code-grpo"
    except RuntimeError:
        raise ValueError(
            f"user {os.getuid()} has no home directory (no HOME, no entry in passwd): set XDG_CACHE_HOME to "
            "a folder for models and caches"
        ) from None


def own_temporary_folder() -> AcquireReturnProxy[BaseFileLock]:
    """From now on what this process and its children write to the temporary folder lies in one of their own.

    The lock is that of ``own_folder``. torch's cache of compiled code stays where it was.
    """
    common = Path(tempfile.gettempdir())
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(common / f"torchinductor_{_user()}"))
    # vLLM's sockets lie in it, and a socket's path has a bound.
    base = common if len(os.fsencode(common)) <= _LONGEST_BASE else Path("/tmp")
    folder, held = own_folder(base, _TEMPORARY_PREFIX)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return held


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # One without an entry in passwd, as containers have.
        return str(os.getuid())


def own_folder(base: Path, prefix: str, name: str = "") -> tuple[Path, AcquireReturnProxy[BaseFileLock]]:
    """A new folder in ``base``, open to this user only; what its like of dead processes left goes first.

    The lock, a file in it, says that this process or a child still lives: nobody else may take the folder.
    """
    remove_left_folders(base, prefix)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{name}", suffix=f"-{os.getpid()}", dir=base))
    return folder, locked(folder / _OWN_LOCK, timeout_s=_LEFT_WAIT_S)


@contextmanager
def passing_folder(base: Path, prefix: str, name: str = "") -> Iterator[Path]:
    """``own_folder`` for the block, at whose end it is removed."""
    folder, held = own_folder(base, prefix, name)
    with held:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_left_folders(base: Path | None = None, prefix: str = _TEMPORARY_PREFIX) -> None:
    """Remove the folders of processes that are gone: temporary ones, or those of ``prefix`` in ``base``."""
    for folder in (base or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        with suppress(OSError):  # Somebody else's, or removed by another process meanwhile.
            if not (folder / _OWN_LOCK).exists() and time.time() - folder.stat().st_mtime < _BEGINNING_S:
                continue
            with locked(folder / _OWN_LOCK, timeout_s=_LEFT_WAIT_S):
                shutil.rmtree(folder, ignore_errors=True)


def no_folder(path: Path) -> str:
    """What is wrong with ``path``, which is no folder."""
    return "is no folder" if path.exists() else "does not exist"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A name beside ``path`` for a file or folder; it becomes ``path`` if all goes well, else is removed.

    What a link leads to is replaced, not the link. Raises ValueError for a device or a pipe.
    """
    if path.is_symlink():
        path = path.resolve()
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path}: is a device or a pipe; give a file")
    temporary = path.absolute().parent / f".{path.name}-{uuid.uuid4().hex[:8]}"
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        is_named = isinstance(error, OSError) and str(error.filename) in ("None", str(temporary))
        if isinstance(error, OSError) and error.errno is not None and is_named:
            error.filename = str(path)  # The name that the user knows.
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with suppress(OSError):  # On a read-only disk even of what is not there.
                temporary.unlink(missing_ok=True)
        raise


def write_text_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` so that a reader, or a crash, sees the old file or the new one whole."""
    with written_whole(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        temporary.chmod(0o644)
    flush(path.parent)


def let_others_read(folder: Path) -> None:
    """Give weights in ``folder`` the mode of its other files; their library leaves them to their owner."""
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)


def flush(path: Path) -> None:
    """Have the kernel write a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
