"""The codec and the frames under arbitrary values, arbitrary bytes and bytes that are nearly right."""

from __future__ import annotations

import collections
import contextlib
import enum
import fractions
import socket
import struct
import threading
import time
import tracemalloc
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.codec import MAX_BYTES, MAX_DEPTH, MAX_NODES, CodecError, decode, encode
from sandbox.wire import FrameError, FrameReader, send_frame

pytestmark = pytest.mark.slow

_EXAMPLES = settings(max_examples=150)
_FEW_EXAMPLES = settings(max_examples=60)

_SMALL_INTS = st.integers(-(2**70), 2**70)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    _SMALL_INTS,
    st.binary(max_size=400).map(lambda data: int.from_bytes(data, "big", signed=True)),
    st.floats(),
    st.complex_numbers(),
    # With lone surrogates, NUL and all.
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.binary(max_size=20),
    st.builds(range, _SMALL_INTS, _SMALL_INTS, _SMALL_INTS.filter(bool)),
    st.sampled_from([int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, type(None)]),
)
_HASHABLES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.frozensets(inner, max_size=4),
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    _HASHABLES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.sets(_HASHABLES, max_size=5),
        st.dictionaries(_HASHABLES, inner, max_size=5),
    ),
    max_leaves=25,
)
_PIECES = st.one_of(
    st.sampled_from([bytes([tag]) for tag in b"NTFisfltSZdbcry"]),
    st.sampled_from(
        [b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff\xff\xff\xff\x0f", b"\xff" * 6, b"\x80" * 9]
    ),
    st.binary(max_size=9),
    VALUES.map(encode),
)


class _Int(int):
    pass


class _Meta(type):
    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(int)


class _Liar(metaclass=_Meta):
    pass


class _Colour(enum.IntEnum):
    RED = 1


@dataclass(frozen=True)
class _Point:
    x: int


_Pair = collections.namedtuple("_Pair", "a b")
_FOREIGN: tuple[object, ...] = (
    _Int(3), _Liar, _Liar(), _Colour.RED, _Point(1), _Pair(1, 2), fractions.Fraction(1, 2), object(), len,
    ..., NotImplemented, bytearray(b"a"), memoryview(b"a"), iter(()), collections.deque(), ValueError(),
    ValueError, type, _Int, int | str, list[int],
)  # fmt: skip


def canonical(value: object) -> object:
    """A form that is equal only for values of the same exact types, NaNs and signed zeros included.

    Fails for every type that may not come out of the codec.
    """
    kind = type(value)
    if kind is float:
        return "float", struct.pack("<d", value)
    if kind is complex:
        assert isinstance(value, complex)
        return "complex", struct.pack("<dd", value.real, value.imag)
    if kind in (list, tuple):
        assert isinstance(value, (list, tuple))
        return kind.__name__, [canonical(item) for item in value]
    if kind in (set, frozenset):
        assert isinstance(value, (set, frozenset))
        return kind.__name__, sorted(map(repr, map(canonical, value)))
    if kind is dict:
        assert isinstance(value, dict)
        return "dict", [(canonical(key), canonical(item)) for key, item in value.items()]
    if kind is range:
        assert isinstance(value, range)
        return "range", (value.start, value.stop, value.step)
    if kind is type:
        assert isinstance(value, type) and value.__module__ == "builtins"
        return "type", value.__name__
    assert kind in (type(None), bool, int, str, bytes), kind
    return kind.__name__, value


def _decodes_to_plain_data_or_not_at_all(data: bytes) -> bool:
    """Whether it decodes; then the value is plain, and what it means survives another round trip."""
    try:
        value = decode(data)
    except CodecError:
        return False
    assert canonical(decode(encode(value))) == canonical(value)
    return True


@_EXAMPLES
@given(VALUES)
@example([float("nan"), -0.0, complex("nan+infj"), "\ud800\0", 2**4000, -(2**4000), {(): {frozenset(): b""}}])
@example({True: 1, 0: False, 2.5: [], None: (), "": {}, b"": set(), range(0): int})
def test_values_arrive_with_their_exact_types(value: object) -> None:
    assert canonical(decode(encode(value))) == canonical(value)


@_EXAMPLES
@given(st.binary(max_size=300))
def test_arbitrary_bytes_make_plain_data_or_an_error(data: bytes) -> None:
    _decodes_to_plain_data_or_not_at_all(data)


@_EXAMPLES
@given(st.lists(_PIECES, max_size=30).map(b"".join))
@example(b"ys\x04open")
@example(b"ys\x0b__builtins__")
@example(b"yys\x03int")
@example(b"rTTT")
@example(b"ri\x01\x00i\x01\x00i\x01\x00")
@example(b"S\x02NN")
def test_bytes_of_the_right_words_make_plain_data_or_an_error(data: bytes) -> None:
    _decodes_to_plain_data_or_not_at_all(data)


@_EXAMPLES
@given(VALUES, st.data())
def test_encodings_with_a_flaw_make_plain_data_or_an_error(value: object, data: st.DataObject) -> None:
    encoded = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(encoded)))
        end = data.draw(st.integers(place, min(len(encoded), place + 8)))
        encoded[place:end] = data.draw(st.binary(max_size=8))
    _decodes_to_plain_data_or_not_at_all(bytes(encoded))


@_EXAMPLES
@given(VALUES, st.data())
def test_no_encoding_is_the_beginning_of_another(value: object, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert not _decodes_to_plain_data_or_not_at_all(encoded[:cut])
    assert not _decodes_to_plain_data_or_not_at_all(encoded + encoded[cut:])


@_EXAMPLES
@given(VALUES, st.sampled_from(_FOREIGN), st.integers(0, 5))
def test_a_foreign_object_is_refused_wherever_it_hides(value: object, foreign: object, place: int) -> None:
    holders: list[object] = [
        foreign, [value, foreign], (foreign, value), {0: value, 1: [foreign]}, [[{"a": (value, foreign)}]],
    ]  # fmt: skip
    if getattr(type(foreign), "__hash__", None) is not None:
        holders.append({foreign: value})
    with pytest.raises(CodecError):
        encode(holders[place % len(holders)])


@_FEW_EXAMPLES
@given(st.lists(_PIECES, max_size=60).map(b"".join))
def test_decoding_takes_memory_in_proportion_to_the_bytes(data: bytes) -> None:
    tracemalloc.start()
    try:
        with contextlib.suppress(CodecError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 200_000 + 1000 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"l\xff\xff\xff\x01" + b"S\x00" * (MAX_BYTES // 2 - 10),
        b"l" + b"\x80\x80\x10" + b"S\x00" * MAX_NODES,
        b"l" + b"\x80\x80\x10" + b"d\x00" * MAX_NODES,
        b"l\xff\xff\xff\xff\x0f" + b"N" * 1000,
        b"d\xff\xff\xff\xff\x07" + b"N" * 1000,
        b"b\xff\xff\xff\xff\x0f" + b"N" * 1000,
        b"i\xff\xff\xff\xff\x0f" + b"N" * 1000,
        b"l\x01" * (MAX_BYTES // 2),
        b"y" * MAX_BYTES,
        b"r" * MAX_BYTES,
    ],
    ids=range(10),
)
def test_bombs_are_refused_within_bounded_memory(data: bytes) -> None:
    assert len(data) <= MAX_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 128 * 1024**2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
def test_depth_has_the_same_bound_on_both_sides(depth: int) -> None:
    value: object = None
    for _ in range(depth):
        value = [value]
    data = b"l\x01" * depth + b"N"
    if depth <= MAX_DEPTH:
        assert encode(value) == data
        assert decode(data) == value
    else:
        with pytest.raises(CodecError, match="deep"):
            encode(value)
        with pytest.raises(CodecError, match="deep"):
            decode(data)


@_FEW_EXAMPLES
@given(st.lists(st.binary(max_size=200), max_size=6), st.data())
def test_frames_arrive_whole_however_they_are_cut(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(struct.pack("<I", len(payload)) + payload for payload in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    sender, receiver = socket.socketpair()
    with sender, receiver:
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            sender.sendall(stream[start:end])
        sender.close()
        deadline = time.monotonic() + 30.0
        reader = FrameReader(receiver)
        assert [reader.receive(deadline=deadline) for _ in payloads] == payloads
        with pytest.raises(EOFError):
            reader.receive(deadline=deadline)


@_EXAMPLES
@given(st.binary(max_size=64))
@example(b"\xff\xff\xff\xff" + b"a" * 60)
@example(struct.pack("<I", MAX_BYTES + 1))
@example(struct.pack("<I", MAX_BYTES))
def test_hostile_frames_end_in_a_named_error_and_take_no_memory(data: bytes) -> None:
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.sendall(data)
        sender.close()
        tracemalloc.start()
        try:
            payload = FrameReader(receiver).receive(deadline=time.monotonic() + 30.0)
        except FrameError:
            assert len(data) >= 4 and struct.unpack_from("<I", data)[0] > MAX_BYTES
        except EOFError:
            assert len(data) < 4 or struct.unpack_from("<I", data)[0] > len(data) - 4
        else:
            (length,) = struct.unpack_from("<I", data)
            assert payload == data[4 : 4 + length]
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 1024**2


@pytest.mark.parametrize("head", [b"", b"\x01", struct.pack("<I", 1000), struct.pack("<I", 1000) + b"abc"])
def test_a_peer_that_falls_silent_does_not_outlast_the_deadline(head: bytes) -> None:
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.sendall(head)
        with pytest.raises(TimeoutError):
            FrameReader(receiver).receive(deadline=time.monotonic() + 0.05)


def test_a_peer_that_trickles_does_not_outlast_the_deadline() -> None:
    sender, receiver = socket.socketpair()
    over = threading.Event()

    def trickle() -> None:
        sender.sendall(struct.pack("<I", 1_000_000))
        while not over.wait(0.01):
            sender.send(b"a")

    with sender, receiver:
        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            with pytest.raises(TimeoutError):
                FrameReader(receiver).receive(deadline=time.monotonic() + 0.3)
        finally:
            over.set()
            thread.join()


def test_a_peer_that_never_reads_does_not_outlast_the_deadline() -> None:
    sender, receiver = socket.socketpair()
    with sender, receiver, pytest.raises(TimeoutError):
        send_frame(sender, bytes(MAX_BYTES), deadline=time.monotonic() + 0.1)
