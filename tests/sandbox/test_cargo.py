"""What goes into a child: the same values as the codec would bring, of the same exact types."""

from __future__ import annotations

import array
import math
from collections import Counter, OrderedDict, defaultdict
from enum import IntEnum

import pytest
from hypothesis import given

from sandbox.cargo import pack, unpack
from sandbox.codec import CodecError, decode, encode
from tests.sandbox.test_codec_fuzz import VALUES, canonical


class _Number(IntEnum):
    ONE = 1


@given(VALUES)
def test_a_value_arrives_as_the_codec_would_bring_it(value: object) -> None:
    assert canonical(unpack(pack(value))) == canonical(decode(encode(value)))


@pytest.mark.parametrize("value", [int, type(None), range(3), [str, (range(2), {1: dict})]])
def test_what_only_the_codec_knows_takes_the_codec(value: object) -> None:
    assert canonical(unpack(pack(value))) == canonical(decode(encode(value)))


@pytest.mark.parametrize(
    "value",
    [
        Counter("aab"),
        OrderedDict(b=1, a=2),
        defaultdict(list, a=[1]),
        defaultdict(None, a=1),
        [OrderedDict(a={1: Counter([(1, 2)])}), defaultdict(int)],
    ],
)
def test_dicts_of_the_standard_library_stay_what_they_are_on_the_way_in(value: object) -> None:
    # Their repr has kinds, order and factory.
    assert repr(unpack(pack(value))) == repr(value)


@pytest.mark.parametrize("value", [Counter("aab"), OrderedDict(a=1), defaultdict(int, a=1)])
def test_no_answer_brings_a_kind_of_dict_of_its_own(value: object) -> None:
    with pytest.raises(CodecError, match="unknown tag"):
        decode(encode(value, keep_kinds=True))
    with pytest.raises(CodecError, match="type function may not cross"):
        pack(defaultdict(lambda: 1))


@pytest.mark.parametrize(
    "value",
    [bytearray(b"a"), memoryview(b"a"), array.array("i", [1]), ..., StopIteration, compile("1", "a", "eval"),
     _Number.ONE, [object()], {1: bytearray(b"a")}, lambda: 1, math],
)  # fmt: skip
def test_what_may_not_cross_is_refused_though_marshal_would_take_it(value: object) -> None:
    with pytest.raises(CodecError):
        pack(value)


def test_a_list_that_stands_in_two_places_becomes_two() -> None:
    row = [0]
    grid = unpack(pack([row, row]))
    assert isinstance(grid, list)
    grid[0].append(1)
    assert grid == [[0, 1], [0]]


def test_deep_and_large_values_are_refused() -> None:
    deep: list[object] = []
    for _ in range(200):
        deep = [deep]
    for value in (deep, "a" * 5_000_000):
        with pytest.raises(CodecError, match="too"):
            pack(value)
