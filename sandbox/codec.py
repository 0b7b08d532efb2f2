"""Encode and decode values of exact built-in types: all that may cross a sandbox border.

Never makes an object of any other type, runs no code of the sender and trusts no length in the
bytes: a decoded value is safe to compare, hash and print. Not a general serialiser: there are no
shared or cyclic references.

Format: one tag byte a node; lengths and counts as LEB128; integers as two's complement.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict
from typing import Any, Final, cast

MAX_BYTES: Final = 4 * 1024**2
MAX_DEPTH: Final = 100
# A node costs its receiver up to some 250 bytes (an empty set), so bytes alone bound too little.
MAX_NODES: Final = 262_144
# Keys of one hash make inserting quadratic; honest data never comes near this.
MAX_EQUAL_HASHES: Final = 256
# Frozensets of such keys, nested, multiply that at each level: so the comparisons that a value may
# cost its receiver are counted as well.
MAX_COMPARISONS: Final = 2_000_000
# A range divides its parts to know its length, which is quadratic in their digits.
MAX_RANGE_BITS: Final = 4096

_FLOAT: Final = struct.Struct("<d")
_COMPLEX: Final = struct.Struct("<dd")
# The last three compare equal to the plain dict of their items, so they may travel as one; where the kinds
# are kept they have tags of their own.
_DICT_TAGS: Final[dict[type, bytes]] = {dict: b"d", OrderedDict: b"o", Counter: b"u", defaultdict: b"D"}
_TAGS: Final[dict[type, bytes]] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z"}
# Types as values (``f(xs, int)``) travel by name; they are compared by identity and hold no state.
_TYPES: Final[dict[str, type]] = {
    kind.__name__: kind
    for kind in (
        int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range, type(None), object,
    )
}  # fmt: skip
_TYPE_NAMES: Final[dict[type, str]] = {kind: name for name, kind in _TYPES.items()}


class CodecError(ValueError):
    """The value or the bytes are not of the kind that may cross the border."""


def encode(value: object, *, keep_kinds: bool = False) -> bytes:
    """Return the bytes of ``value``.

    Allowed, at any depth: None, bool, int, float, complex, str, bytes, list, tuple, dict, set,
    frozenset, range, and these built-in types themselves; ``defaultdict``, ``OrderedDict`` and
    ``Counter`` become plain dicts, or with ``keep_kinds`` stay what they are (a ``defaultdict`` whose
    factory is allowed). Raises ``CodecError`` for every other type, subclasses included, and beyond
    ``MAX_BYTES``, ``MAX_DEPTH`` or ``MAX_NODES``.
    """
    encoder = _Encoder(keep_kinds)
    encoder.write(value, MAX_DEPTH)
    if len(encoder.out) > MAX_BYTES:
        raise CodecError("value is too large")
    return bytes(encoder.out)


def decode(data: bytes, *, keep_kinds: bool = False) -> object:
    """Return the value of ``data``; raises ``CodecError`` for anything ``encode`` could not have made.

    ``keep_kinds`` as it was encoded, and for bytes from a trusted sender only.
    """
    if len(data) > MAX_BYTES:
        raise CodecError(f"{len(data)} bytes are more than {MAX_BYTES}")
    decoder = _Decoder(data, keep_kinds)
    value = decoder.read(MAX_DEPTH)
    if decoder.position != len(data):
        raise CodecError("bytes follow the end of the value")
    return value


class _Encoder:
    __slots__ = ("keep_kinds", "num_nodes", "out")

    def __init__(self, keep_kinds: bool) -> None:
        self.keep_kinds = keep_kinds
        self.out = bytearray()
        self.num_nodes = 0

    def write(self, value: object, depth: int) -> None:
        out = self.out
        kind = type(value)
        self.num_nodes += 1
        if depth < 0 or self.num_nodes > MAX_NODES or len(out) > MAX_BYTES:
            raise CodecError("value is too deep" if depth < 0 else "value is too large")
        if value is None:
            out += b"N"
        elif kind is bool:
            out += b"T" if value else b"F"
        elif kind is int:
            assert isinstance(value, int)
            num_bytes = value.bit_length() // 8 + 1
            self._head(b"i", num_bytes, num_bytes)
            out += value.to_bytes(num_bytes, "little", signed=True)
        elif kind is str:
            assert isinstance(value, str)
            # surrogatepass: a lone surrogate is a legal str and must arrive as it was.
            text = value.encode("utf-8", "surrogatepass")
            self._head(b"s", len(text), len(text))
            out += text
        elif kind is float:
            out += b"f" + _FLOAT.pack(value)
        elif kind in _TAGS:
            assert isinstance(value, (list, tuple, set, frozenset))
            self._head(_TAGS[kind], len(value), len(value))
            for item in value:
                self.write(item, depth - 1)
        elif kind in _DICT_TAGS:
            assert isinstance(value, dict)
            self._head(_DICT_TAGS[kind if self.keep_kinds else dict], len(value), 2 * len(value))
            if self.keep_kinds and isinstance(value, defaultdict):
                self.write(value.default_factory, depth - 1)
            for key, item in value.items():
                self.write(key, depth - 1)
                self.write(item, depth - 1)
        elif kind is bytes:
            assert isinstance(value, bytes)
            self._head(b"b", len(value), len(value))
            out += value
        elif kind is complex:
            assert isinstance(value, complex)
            out += b"c" + _COMPLEX.pack(value.real, value.imag)
        elif kind is range:
            assert isinstance(value, range)
            out += b"r"
            for part in (value.start, value.stop, value.step):
                _check_part(part)
                self.write(part, depth - 1)
        elif kind is type and value in _TYPE_NAMES:
            # kind is type itself: no metaclass of anybody's decides what ``in`` finds.
            assert isinstance(value, type)
            out += b"y"
            self.write(_TYPE_NAMES[value], depth - 1)
        else:
            raise CodecError(f"type {kind.__name__!s:.80} may not cross the sandbox border")

    def _head(self, tag: bytes, count: int, num_bytes: int) -> None:
        """Append tag and count; refuse before copying what cannot fit."""
        if len(self.out) + num_bytes > MAX_BYTES:
            raise CodecError("value is too large")
        self.out += tag
        while count > 0x7F:
            self.out.append(count & 0x7F | 0x80)
            count >>= 7
        self.out.append(count)


class _Decoder:
    __slots__ = ("data", "keep_kinds", "num_comparisons", "num_nodes", "position")

    def __init__(self, data: bytes, keep_kinds: bool) -> None:
        self.data = data
        self.keep_kinds = keep_kinds
        self.position = 0
        self.num_nodes = 0
        self.num_comparisons = 0

    def read(self, depth: int) -> object:
        self.num_nodes += 1
        if depth < 0 or self.num_nodes > MAX_NODES:
            raise CodecError("value is too deep" if depth < 0 else "value is too large")
        tag = self._take(1)
        if tag == b"i":
            return int.from_bytes(self._take(self._count()), "little", signed=True)
        if tag == b"s":
            try:
                return self._take(self._count()).decode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise CodecError("text is not UTF-8") from error
        if tag == b"l":
            return self._items(depth)
        if tag == b"t":
            return tuple(self._items(depth))
        if tag == b"N":
            return None
        if tag == b"T":
            return True
        if tag == b"F":
            return False
        if tag == b"f":
            number: float = _FLOAT.unpack(self._take(8))[0]
            return number
        if tag == b"d" or (self.keep_kinds and tag in (b"o", b"u", b"D")):
            return self._dict(tag, depth)
        if tag in (b"S", b"Z"):
            items = self._items(depth)
            self._check_keys(items)
            return set(items) if tag == b"S" else frozenset(items)
        if tag == b"b":
            return self._take(self._count())
        if tag == b"c":
            return complex(*_COMPLEX.unpack(self._take(16)))
        if tag == b"r":
            return self._range(depth)
        if tag == b"y":
            name = self.read(depth - 1)
            if isinstance(name, str) and name in _TYPES:
                return _TYPES[name]
            raise CodecError("not the name of a built-in type")
        raise CodecError(f"unknown tag {tag!r}")

    def _take(self, num_bytes: int) -> bytes:
        end = self.position + num_bytes
        if end > len(self.data):
            raise CodecError("the bytes end too early")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def _count(self) -> int:
        count = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            count |= (byte & 0x7F) << shift
            if byte < 0x80:
                return count
        raise CodecError("a length has too many digits")

    def _items(self, depth: int) -> list[object]:
        count = self._count()
        # Each item takes a byte at least: an impossible count costs nothing.
        if count > len(self.data) - self.position:
            raise CodecError("the bytes end too early")
        return [self.read(depth - 1) for _ in range(count)]

    def _range(self, depth: int) -> range:
        start, stop, step = (self.read(depth - 1) for _ in range(3))
        # Exact types: True is no part of a range that anybody encoded.
        if type(start) is int and type(stop) is int and type(step) is int and step != 0:
            for part in (start, stop, step):
                _check_part(part)
            return range(start, stop, step)
        raise CodecError("not the parts of a range")

    def _dict(self, tag: bytes, depth: int) -> object:
        count = self._count()
        if 2 * count > len(self.data) - self.position:
            raise CodecError("the bytes end too early")
        factory = self.read(depth - 1) if tag == b"D" else None
        flat = [self.read(depth - 1) for _ in range(2 * count)]
        keys = flat[::2]
        self._check_keys(keys)
        items: dict[Any, Any] = dict(zip(keys, flat[1::2], strict=True))
        if tag == b"o":
            return OrderedDict(items)
        if tag == b"u":
            return Counter(items)
        return defaultdict(cast("type | None", factory), items) if tag == b"D" else items

    def _check_keys(self, keys: list[object]) -> None:
        """Refuse unhashable keys and key sets made to make hashing quadratic."""
        try:
            hashes = [hash(key) for key in keys]
        except TypeError as error:
            raise CodecError("a key or set member is not hashable") from error
        if len(set(hashes)) == len(hashes):
            return
        counts = Counter(hashes)
        if max(counts.values()) > MAX_EQUAL_HASHES:
            raise CodecError("too many keys share one hash")
        for key, key_hash in zip(keys, hashes, strict=True):
            if counts[key_hash] > 1:
                self._count_comparisons(counts[key_hash] * self._cost(key))

    def _cost(self, key: object) -> int:
        """How many comparisons may tell the key from another of its hash."""
        self._count_comparisons(1)
        if not isinstance(key, (tuple, frozenset)):
            return 1
        cost = sum(self._cost(item) for item in key)
        if isinstance(key, frozenset) and key:
            cost *= max(Counter(map(hash, key)).values())
        return cost + 1

    def _count_comparisons(self, number: int) -> None:
        self.num_comparisons += number
        if self.num_comparisons > MAX_COMPARISONS:
            raise CodecError("too many keys share one hash")


def _check_part(part: int) -> None:
    if part.bit_length() > MAX_RANGE_BITS:
        raise CodecError(f"a range's numbers have more than {MAX_RANGE_BITS} bits")
