"""The cache: its keys change with every input of a verdict, it stays in its bounds, it survives on disk."""

from __future__ import annotations

import logging
import math
import pickle
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from curriculum.task import Task
from rewards.cache import CacheCounts, KeyMaker, RewardCache, entry_bytes, is_reproducible
from rewards.cache_file import CacheFile
from rewards.digest import canonical, judge_digest, task_digest
from rewards.result import RewardResult, infra_error
from sandbox.result import CallTest, Outcome
from tests.processes import printed_under_hash_seeds

TASK = Task(
    task_id="t/add",
    prompt="Write add.",
    entry_point="add",
    call_tests=(CallTest(args=(1, [2.0]), expected={"a", "b"}, expected_args=(1, [2.0])),),
    prelude="import math\n",
    reference="def add(a, b): ...\n",
    source="ladder",
)
CHECKED = Task(task_id="t/add", prompt="Write add.", entry_point="add", check_source="def check(f): ...\n")
CONFIGURATION = ("python 3.11", "ruff 0.1", "L3", "{}")
BIG = 10**9


def verdict(number: int = 0, outcome: Outcome = Outcome.WRONG) -> RewardResult:
    return RewardResult(
        reward=number / 7,
        breakdown={"syntax": 1.0, "lint": 0.95, "complexity": 1.0, "tests": 0.5, "execution": 1.0},
        outcome=outcome,
        passed=False,
        detail=f"test {number}: AssertionError",
        seconds=0.25,
    )


def key_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def with_test(**changes: object) -> Task:
    return replace(TASK, call_tests=(replace(TASK.call_tests[0], **changes),))  # type: ignore[arg-type]


def test_the_same_inputs_give_the_same_key_whatever_object_holds_them() -> None:
    keys, others = KeyMaker(CONFIGURATION), KeyMaker(list(CONFIGURATION))
    copy = pickle.loads(pickle.dumps(TASK))
    assert keys.key(TASK, "x = 1\n") == keys.key(TASK, "x = 1\n") == keys.key(copy, "x = 1\n")
    assert keys.key(TASK, "x = 1\n") == others.key(copy, "x = 1\n")
    assert len(keys.key(TASK, "x = '\ud800'\n")) == 16


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(TASK, prompt="Write add!"), id="prompt"),
        pytest.param(replace(TASK, entry_point="plus"), id="entry point"),
        pytest.param(replace(TASK, prelude=""), id="prelude"),
        pytest.param(replace(TASK, source="mbpp"), id="source"),
        pytest.param(replace(TASK, call_tests=TASK.call_tests * 2), id="number of tests"),
        pytest.param(with_test(args=(1, [3.0])), id="argument"),
        pytest.param(with_test(args=(True, [2.0])), id="type of an argument"),
        pytest.param(with_test(args=(1, (2.0,))), id="type of a container"),
        pytest.param(with_test(args=(1, [2])), id="type inside a container"),
        pytest.param(with_test(args=("1", [2.0])), id="text for a number"),
        pytest.param(with_test(expected={"a"}), id="expected"),
        pytest.param(with_test(expected=frozenset({"a", "b"})), id="type of expected"),
        pytest.param(with_test(expected_args=None), id="expected arguments"),
        pytest.param(CHECKED, id="check program for call tests"),
    ],
)
def test_any_other_task_has_another_key(other: Task) -> None:
    keys = KeyMaker(CONFIGURATION)
    assert keys.key(TASK, "x = 1\n") != keys.key(other, "x = 1\n")
    # The same id must not bring back the digest of the other task.
    assert keys.key(TASK, "x = 1\n") == KeyMaker(CONFIGURATION).key(TASK, "x = 1\n")


def test_another_check_program_has_another_key() -> None:
    keys = KeyMaker(CONFIGURATION)
    assert keys.key(CHECKED, "") != keys.key(replace(CHECKED, check_source="def check(f): pass\n"), "")


@pytest.mark.parametrize("index", range(len(CONFIGURATION)))
def test_any_other_configuration_has_another_key(index: int) -> None:
    changed = [*CONFIGURATION]
    changed[index] += " "
    assert KeyMaker(changed).key(TASK, "x") != KeyMaker(CONFIGURATION).key(TASK, "x")


def test_keys_tell_neighbouring_parts_apart() -> None:
    keys = {
        KeyMaker(["ab", "c"]).key(TASK, ""),
        KeyMaker(["a", "bc"]).key(TASK, ""),
        KeyMaker(["abc"]).key(TASK, ""),
        KeyMaker(["abc", ""]).key(TASK, ""),
        KeyMaker(["abc"]).key(TASK, "x"),
        KeyMaker(["abc"]).key(replace(TASK, prelude="import math\nW", prompt="rite add."), ""),
    }
    assert len(keys) == 6


def test_what_no_verdict_depends_on_leaves_the_key_alone() -> None:
    other = replace(TASK, task_id="u", difficulty=4, family="sums", reference="")
    assert task_digest(other) == task_digest(TASK)


def test_a_digest_is_the_same_in_every_process() -> None:
    program = (
        "from tests.rewards.test_cache import TASK, CONFIGURATION\n"
        "from rewards.cache import KeyMaker\n"
        "from rewards.digest import judge_digest\n"
        "print(KeyMaker((*CONFIGURATION, judge_digest())).key(TASK, 'x = 1').hex())"
    )
    digests = printed_under_hash_seeds(program)
    assert digests == {KeyMaker((*CONFIGURATION, judge_digest())).key(TASK, "x = 1").hex() + "\n"}


def test_a_number_that_python_does_not_write_in_tens_has_a_digest() -> None:
    huge = 16**5000
    assert canonical(huge) == canonical(16**5000) != canonical(huge + 1)
    assert canonical(-huge) != canonical(huge)


def test_sets_are_equal_in_any_order_and_dictionaries_are_not() -> None:
    assert canonical({8, 0, 16}) == canonical({16, 8, 0})
    assert canonical({"a": 1, "b": 2}) != canonical({"b": 2, "a": 1})
    assert canonical(["a,b"]) != canonical(["a", "b"])
    assert canonical([[1], 2]) != canonical([[1, 2]])
    assert canonical(0.0) != canonical(-0.0)


@pytest.mark.parametrize("outcome", Outcome)
def test_only_verdicts_that_the_machine_had_no_part_in_are_kept(outcome: Outcome) -> None:
    machine = {Outcome.INFRA_ERROR, Outcome.TIMEOUT_WALL, Outcome.OOM}
    assert is_reproducible(verdict(outcome=outcome)) == (outcome not in machine)


def test_what_may_come_out_differently_is_not_kept() -> None:
    cache = RewardCache(10)
    cache.put(key_of(1), infra_error("no sandbox", 1.0))
    assert len(cache) == 0 and cache.get(key_of(1)) is None


def test_a_kept_verdict_comes_back_whole_and_its_seconds_count_as_saved() -> None:
    cache = RewardCache(10)
    assert cache.get(key_of(1)) is None
    cache.put(key_of(1), verdict(3))
    assert cache.get(key_of(1)) == cache.get(key_of(1)) == verdict(3)
    assert cache.counts == CacheCounts(num_hits=2, num_misses=1, num_evictions=0, saved_s=0.5)


def test_the_least_recently_used_verdict_goes_first() -> None:
    cache = RewardCache(2)
    cache.put(key_of(1), verdict(1))
    cache.put(key_of(2), verdict(2))
    assert cache.get(key_of(1)) is not None
    cache.put(key_of(3), verdict(3))
    assert cache.get(key_of(2)) is None
    assert cache.get(key_of(1)) is not None and cache.get(key_of(3)) is not None
    assert cache.counts.num_evictions == 1


def test_the_bytes_are_bounded_too_and_what_is_too_big_is_not_kept() -> None:
    cache = RewardCache(1000, 0.02)
    for number in range(100):
        cache.put(key_of(number), verdict(number))
    assert 0 < cache.num_bytes <= 20_000
    assert len(cache) == 20_000 // entry_bytes(verdict(99))
    assert cache.counts.num_evictions == 100 - len(cache)
    cache.put(key_of(100), replace(verdict(), detail="x" * 30_000))
    assert cache.get(key_of(100)) is None and cache.get(key_of(99)) is not None


def test_50000_verdicts_as_they_come_from_workers_take_less_than_200_mb_and_no_more_than_estimated() -> None:
    source = random.Random(0)
    cache = RewardCache(50_000, 200.0)
    tracemalloc.start()
    for number in range(50_000):
        result = replace(
            verdict(number),
            breakdown={name: source.random() for name in (*verdict().breakdown, "type_safety")},
            detail=f"test {number}: AssertionError: {source.random()} where something else was expected",
        )
        # As it comes over the wire: every string and number an object of its own.
        cache.put(key_of(number), pickle.loads(pickle.dumps(result)))
    num_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(cache) == 50_000 and cache.counts.num_evictions == 0
    assert num_bytes < 200e6
    assert 0.8 * num_bytes < cache.num_bytes < 1.5 * num_bytes


def store(path: Path, numbers: range, max_bytes: int = BIG) -> None:
    """As one run: load, judge, flush."""
    file = CacheFile(path, max_bytes)
    cache = RewardCache(1000, on_put=file.put)
    cache.warm(file.load())
    for number in numbers:
        cache.put(key_of(number), verdict(number))
    file.flush()


def loaded(path: Path, max_bytes: int = BIG) -> dict[bytes, RewardResult]:
    return dict(CacheFile(path, max_bytes).load())


def test_a_later_run_finds_the_verdicts_of_earlier_ones_and_stores_none_twice(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    store(path, range(3))
    store(path, range(5))
    assert loaded(path) == {key_of(number): verdict(number) for number in range(5)}
    assert len(path.read_text().splitlines()) == 6


def test_a_line_cut_off_by_a_crash_is_skipped_and_what_follows_is_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.jsonl"
    store(path, range(3))
    path.write_bytes(path.read_bytes()[:-10])
    store(path, range(10, 12))
    assert "cut off" in caplog.text
    assert list(loaded(path)) == [key_of(number) for number in (0, 1, 10, 11)]


def test_a_file_cut_off_behind_its_header_is_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.jsonl"
    store(path, range(3))
    path.write_bytes(path.read_bytes().partition(b"\n")[0])
    store(path, range(10, 12))
    assert "cut off" in caplog.text
    assert list(loaded(path)) == [key_of(10), key_of(11)]


def test_lines_that_are_no_verdicts_are_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.jsonl"
    store(path, range(2))
    lines = path.read_text().splitlines()
    bad = [
        "",
        "[]",
        "{}",
        "\x00\x00",
        lines[1].replace('"wrong"', '"no outcome"'),
        lines[1].replace('"reward": 0.0', '"reward": NaN'),
        lines[1].replace('"key": "00', '"key": "'),
        lines[1].replace('"reward": 0.0', '"reward": 1' + "0" * 400),
        "[" * 100_000,
    ]
    path.write_text("\n".join([lines[0], *bad, lines[2]]) + "\n")
    assert list(loaded(path)) == [key_of(1)]
    assert "9 of 10 lines" in caplog.text


@pytest.mark.parametrize("text", ["notes of mine\n", '{"step": 1}\n{"step": 2}\n', "\x80\x81", "[" * 100_000])
def test_a_foreign_file_is_left_alone(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cache.jsonl"
    path.write_bytes(text.encode("latin-1"))
    store(path, range(3))
    assert path.read_bytes() == text.encode("latin-1")
    assert "no reward cache" in caplog.text


def test_the_file_is_bounded_and_keeps_the_newest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cache.jsonl"
    store(path, range(50))
    size = path.stat().st_size
    kept = list(loaded(path, max_bytes=size))
    assert kept == [key_of(number) for number in range(50 - len(kept), 50)] and 20 < len(kept) <= 25
    assert path.stat().st_size <= size / 2
    store(path, range(100, 200), max_bytes=size)
    assert "full" in caplog.text and path.stat().st_size <= size


@pytest.mark.parametrize("bound", ["_MAX_WAITING", "_FLUSH_EVERY_S"])
def test_a_pool_that_is_killed_has_lost_the_last_verdicts_alone(
    bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache.jsonl"
    monkeypatch.setattr(f"rewards.cache_file.{bound}", 0)
    file = CacheFile(path, BIG)
    list(file.load())
    file.put(key_of(1), verdict(1))
    assert file.is_due
    file.flush()
    assert not file.is_due and list(loaded(path)) == [key_of(1)]


def test_a_file_that_cannot_be_written_costs_a_warning_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path / "no folder" / "cache.jsonl", range(3))
    (tmp_path / "folder").mkdir()
    store(tmp_path / "folder", range(3))
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(messages) == 2 and all("cannot be" in message for message in messages)


def test_only_whole_verdicts_reach_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    file = CacheFile(path, BIG)
    cache = RewardCache(10, on_put=file.put)
    cache.warm(file.load())
    assert not file.is_due
    for number, result in enumerate([infra_error("lost", 1.0), verdict(1)]):
        cache.put(key_of(number), result)
    cache.put(key_of(1), verdict(1))
    file.flush()
    stored = loaded(path)
    assert list(stored) == [key_of(1)] and math.isfinite(stored[key_of(1)].reward)
