"""LiveCodeBench's hidden tests: JSON, or JSON packed as base64(zlib(pickle(text))).

A pickle is a program that its reader runs. Nothing is unpickled here: the bytes are only looked through, and
whatever is not one pickled text is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib

from curriculum.record import Record

_MAX_BYTES = 128 * 1024**2
_TEXT = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE")
# They say which protocol is spoken, and what is to be remembered: nothing is made by them.
_SILENT = ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP")


def unpack_tests(record: Record, field: str) -> object:
    """The value of ``field``: as it stands, from JSON text, or from packed JSON text. Missing: an empty list.

    Raises ValueError for what is none of these.
    """
    value = record.fields.get(field)
    if value is None:
        return []
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        pass
    except RecursionError:
        raise record.error(field, "is nested too deeply") from None
    try:
        return json.loads(_pickled_text(_inflate(base64.b64decode(value, validate=True))))
    except (binascii.Error, zlib.error, ValueError, RecursionError) as failure:
        raise record.error(
            field, f"must be JSON, or base64 of zlib of one pickled text that is JSON ({failure})"
        ) from None


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, _MAX_BYTES)
    if inflater.unconsumed_tail:
        raise ValueError(f"more than {_MAX_BYTES // 1024**2} MiB unpacked")
    if not inflater.eof:
        raise ValueError("the packed data ends too early")
    return text


def _pickled_text(data: bytes) -> str:
    """The one text in a pickle that makes nothing else."""
    found = []
    for opcode, value, _ in pickletools.genops(data):
        if opcode.name in _TEXT and isinstance(value, str):
            found.append(value)
        elif opcode.name not in _SILENT:
            raise ValueError(f"a pickle with {opcode.name}, which is no text, is not read")
    if len(found) != 1:
        raise ValueError(f"a pickle of {len(found)} texts, must be one")
    return found[0]
