"""The codec carries plain data exactly, and takes nothing else from anybody: examples."""

from __future__ import annotations

import collections
import math

import pytest

from sandbox.codec import MAX_BYTES, CodecError, decode, encode


def test_lone_surrogates_large_integers_and_special_floats_survive() -> None:
    assert decode(encode(["\ud800", 10**5000, -1, 128, -128, -129])) == [
        "\ud800", 10**5000, -1, 128, -128, -129,
    ]  # fmt: skip
    decoded = decode(encode((float("nan"), -0.0)))
    assert isinstance(decoded, tuple)
    assert math.isnan(decoded[0]) and math.copysign(1, decoded[1]) == -1


class _Int(int):
    pass


class _List(list[int]):
    pass


class _Str(str):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@pytest.mark.parametrize(
    "value",
    [_Int(1), _List([1]), _Str("a"), object(), iter([]), len, type, memoryview, _Int, bytearray(b"a"),
     [1, [_Int(2)]], {"a": _Str("b")}, {_Str("a"): 1}, {_Int(3)}],
)  # fmt: skip
def test_foreign_types_and_subclasses_are_refused(value: object) -> None:
    with pytest.raises(CodecError):
        encode(value)


def test_dicts_of_the_standard_library_arrive_as_plain_dicts() -> None:
    value = [collections.Counter("aab"), collections.OrderedDict(a=1), collections.defaultdict(int, b=2)]
    decoded = decode(encode(value))
    assert decoded == [{"a": 2, "b": 1}, {"a": 1}, {"b": 2}]
    assert isinstance(decoded, list) and {type(item) for item in decoded} == {dict}


def test_cyclic_deep_and_shared_blow_ups_are_refused() -> None:
    cyclic: list[object] = []
    cyclic.append(cyclic)
    shared: list[object] = []
    for _ in range(60):
        shared = [shared, shared]
    for value in (cyclic, shared, [None] * 300_000, "a" * (MAX_BYTES + 1), b"a" * MAX_BYTES):
        with pytest.raises(CodecError):
            encode(value)


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"NN", b"i\x05a", b"s\x01\xff", b"l\xff\xff\xff\xff\x0f", b"l" + b"\xff" * 9, b"f123",
     b"d\x01l\x00N", b"S\x01l\x00", b"S\x01d\x00", b"l\x01" * 5000 + b"N", b"N" * (MAX_BYTES + 1),
     b"l\x80\x80\x40" + b"l\x00" * (1 << 20)],
)  # fmt: skip
def test_hostile_bytes_are_refused_cheaply(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(data)


def test_keys_with_one_hash_are_refused_before_they_make_hashing_quadratic() -> None:
    modulus = 2**61 - 1
    body = b"".join(encode(number * modulus) for number in range(1, 20_001))
    with pytest.raises(CodecError, match="hash"):
        decode(b"S\xa0\x9c\x01" + body)


def test_built_in_types_and_ranges_come_back_as_themselves() -> None:
    value = [int, str, type(None), object, {list: range(0)}, range(10**30, -5, -7), (bool, range)]
    decoded = decode(encode(value))
    assert decoded == value
    assert isinstance(decoded, list) and decoded[0] is int and decoded[2] is type(None)


@pytest.mark.parametrize(
    "data",
    [b"ys\x04type", b"ys\x08builtins", b"yi\x01\x01", b"yys\x03int", b"y", b"ri\x01\x00i\x01\x00i\x01\x00",
     b"rTTT", b"ri\x01\x00i\x01\x00f" + b"\x00" * 8, b"ri\x01\x00i\x01\x00"],
)  # fmt: skip
def test_other_types_by_name_and_impossible_ranges_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        decode(data)
