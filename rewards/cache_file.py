"""The CacheFile: kept verdicts in the run folder, so that a resumed or repeated run starts warm.

Append-only, one JSON line a verdict after a first line that names the format. Lines wait in memory
until ``flush``, which may run in another thread; after a crash the last few are missing, no more. It is
a convenience: a file that cannot be read or written costs a warning, never the run.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rewards.cache import KEY_BYTES
from rewards.result import RewardResult
from sandbox.result import Outcome

_logger = logging.getLogger(__name__)
_FORMAT = "code-grpo reward cache"
_FLUSH_EVERY_S = 5.0
_MAX_WAITING = 1_000


class CacheFile:
    """The verdicts stored in ``path``, at most about ``max_bytes`` of them.

    A file that is no cache is left alone, and nothing is stored. What another version of the judge wrote is
    not found: that version is in the keys. A file found longer than half of ``max_bytes`` is cut to its
    newest half; one that reaches ``max_bytes`` takes nothing more in this run.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # held while the file is written
        self._waiting: deque[str] = deque()
        self._flushed_s = time.monotonic()
        self._is_on = True
        self._num_bytes = 0

    def load(self) -> Iterator[tuple[bytes, RewardResult]]:
        """The stored verdicts, oldest first. Call it once, before ``put``: it also readies the file."""
        try:
            lines = self._open()
        except OSError as error:
            self._give_up(f"cannot be opened: {error}")
            return
        num_bad = 0
        for line in lines:
            entry = _parse(line)
            if entry is None:
                num_bad += 1
            else:
                yield entry
        if num_bad:
            _logger.warning("reward cache %s: %d of %d lines skipped", self._path, num_bad, len(lines))

    def put(self, key: bytes, result: RewardResult) -> None:
        """Store a verdict at the next flush."""
        if self._is_on:
            self._waiting.append(_line(key, result))

    @property
    def is_due(self) -> bool:
        """Whether it is time to flush."""
        is_late = time.monotonic() - self._flushed_s >= _FLUSH_EVERY_S
        return bool(self._waiting) and (is_late or len(self._waiting) >= _MAX_WAITING)

    def flush(self) -> None:
        """Write what waits; blocks on the disk. May be called from any thread."""
        with self._lock:
            lines = []
            # One by one: the event loop may append meanwhile.
            while self._waiting:
                lines.append(self._waiting.popleft())
            self._flushed_s = time.monotonic()
            data = "".join(lines).encode()
            if not self._is_on or not data:
                return
            if self._num_bytes + len(data) > self._max_bytes:
                self._give_up(f"is full ({self._num_bytes} bytes); verdicts are stored no more")
                return
            try:
                with self._path.open("ab") as file:
                    file.write(data)
            except OSError as error:
                self._give_up(f"cannot be written: {error}")
                return
            self._num_bytes += len(data)

    def _open(self) -> list[bytes]:
        """The whole lines after the header; makes or mends the file so that lines can be appended."""
        data = self._path.read_bytes() if self._path.exists() else b""
        header, *lines = data.split(b"\n")
        if not data:
            self._write_anew([])
            return []
        if not _is_cache(header):
            self._give_up("is no reward cache; it is left as it is")
            return []
        # Without a line feed the header itself is torn.
        torn = lines.pop() if lines else header
        kept = lines
        if len(data) > self._max_bytes // 2:
            kept = _newest(lines, self._max_bytes // 2 - len(header) - 1)
        if torn or len(kept) < len(lines):
            self._write_anew(kept)
        else:
            self._num_bytes = len(data)
        if torn:
            _logger.warning("reward cache %s: its last line was cut off by a crash; skipped", self._path)
        return kept

    def _write_anew(self, lines: list[bytes]) -> None:
        """Replace the file whole: a crash leaves the old one or the new one."""
        header = json.dumps({"format": _FORMAT}).encode()
        data = b"".join(line + b"\n" for line in (header, *lines))
        temporary = self._path.with_name(f".{self._path.name}.new")
        temporary.write_bytes(data)
        os.replace(temporary, self._path)
        self._num_bytes = len(data)

    def _give_up(self, reason: str) -> None:
        _logger.warning("reward cache %s: %s", self._path, reason)
        self._is_on = False
        self._waiting.clear()


def _is_cache(header: bytes) -> bool:
    try:
        fields = json.loads(header)
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and fields.get("format") == _FORMAT


def _newest(lines: list[bytes], max_bytes: int) -> list[bytes]:
    first, num_bytes = len(lines), 0
    while first > 0 and num_bytes + len(lines[first - 1]) + 1 <= max_bytes:
        first -= 1
        num_bytes += len(lines[first]) + 1
    return lines[first:]


def _line(key: bytes, result: RewardResult) -> str:
    fields = {"key": key.hex(), **asdict(result)}
    # Never so of what is kept.
    del fields["cached"]
    return json.dumps(fields) + "\n"


def _parse(line: bytes) -> tuple[bytes, RewardResult] | None:
    """The verdict of a line, None where it is not one."""
    try:
        fields = json.loads(line)
        key = bytes.fromhex(fields["key"])
        result = RewardResult(
            reward=float(fields["reward"]),
            breakdown={str(name): float(score) for name, score in fields["breakdown"].items()},
            outcome=Outcome(fields["outcome"]),
            passed=bool(fields["passed"]),
            detail=str(fields["detail"]),
            seconds=float(fields["seconds"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    is_whole = len(key) == KEY_BYTES and math.isfinite(result.reward) and not result.is_infra_error
    return (key, result) if is_whole else None
