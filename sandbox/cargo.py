"""Values on their way into a child: from the owner or the judge, whom a child may trust.

Written and read in C, by marshal, where it knows the types: a fresh child then touches few pages, each
of which would be copied for it. Never used the other way: what comes out of a child is read by
``codec.py`` alone.
"""

from __future__ import annotations

import marshal
from typing import Final, cast

from sandbox.codec import MAX_BYTES, MAX_DEPTH, CodecError, decode, encode

# Without references, in which one list that stands in two places would stay one: the codec copies.
_VERSION: Final = 2
_MARSHAL, _CODEC = b"m", b"c"
_ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
_SEQUENCES: Final = frozenset({list, tuple, set, frozenset})


def pack(value: object) -> bytes:
    """The bytes of a plain value; see ``codec.encode`` for which those are, kinds kept. Raises CodecError."""
    # marshal would take more than may cross: whatever has a buffer becomes bytes.
    if not _is_plain(value, MAX_DEPTH):
        return _CODEC + encode(value, keep_kinds=True)
    packed = marshal.dumps(cast("str", value), _VERSION)
    if len(packed) > MAX_BYTES:
        raise CodecError("value is too large")
    return _MARSHAL + packed


def unpack(data: bytes) -> object:
    """The value of ``pack``'s bytes. For bytes from a trusted sender only."""
    if data[:1] == _MARSHAL:
        value: object = marshal.loads(data[1:])
        return value
    return decode(data[1:], keep_kinds=True)


def _is_plain(value: object, depth: int) -> bool:
    """Whether marshal and the codec make the same of it."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if depth == 0:
        return False
    if kind in _SEQUENCES:
        assert isinstance(value, (list, tuple, set, frozenset))
        return all(_is_plain(item, depth - 1) for item in value)
    if kind is dict:
        assert isinstance(value, dict)
        return all(_is_plain(key, depth - 1) and _is_plain(item, depth - 1) for key, item in value.items())
    return False
