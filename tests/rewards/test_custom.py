"""Rewards that users write: loaded by name, called as TRL calls, and every fault of theirs has their name."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch

from configs.errors import ConfigError
from curriculum.task import Task
from pipeline.cli import train_accelerated, train_code_grpo
from rewards.custom import CustomReward, load_custom
from rewards.user_function import Function, UserFunction, UserFunctionError
from sandbox.result import CallTest

TASK = Task(
    task_id="t/add",
    prompt="Write add(a, b).",
    entry_point="add",
    call_tests=(CallTest(args=(1, 2), expected=3),),
    source="ladder",
    difficulty=2,
)
CODE = "def add(a, b):\n    return a + b\n"
TEXT = f"```python\n{CODE}```"
MODULE = """
import asyncio

CALLS = []


def seen(prompts, completions, **columns):
    CALLS.append({"prompts": prompts, "completions": completions, **columns})
    return [0.5]


async def judged(completions, **columns):
    await asyncio.sleep(0)
    return [None]


def narrow(completions):
    return [1.0]


NUMBER = 3
"""


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name, module in sys.modules.items() if _lies_in(module, tmp_path)]:
        del sys.modules[name]


def _lies_in(module: object, folder: Path) -> bool:
    return str(getattr(module, "__file__", "")).startswith(str(folder))


def reward_of(function: Function, timeout_s: float = 20.0) -> CustomReward:
    return CustomReward(UserFunction("rewards.custom", "mine:judge", function, timeout_s))


def score(function: Function, timeout_s: float = 20.0) -> float | None:
    reward = reward_of(function, timeout_s)
    try:
        return reward.score(TASK, TEXT, CODE)
    finally:
        reward.close()


def test_functions_are_loaded_from_the_working_directory_and_called_as_trl_calls(
    working_directory: Path,
) -> None:
    (working_directory / "my_rewards.py").write_text(MODULE)
    seen, judged = load_custom(["my_rewards:seen", "my_rewards:judged"])
    assert (seen.name, judged.name) == ("seen", "judged")
    assert seen.score(TASK, TEXT, CODE) == 0.5
    assert judged.score(TASK, TEXT, CODE) is None
    (call,) = sys.modules["my_rewards"].CALLS
    assert all(isinstance(values, list) and len(values) == 1 for values in call.values())
    assert {name: values[0] for name, values in call.items()} == {
        "prompts": "Write add(a, b).",
        "completions": TEXT,
        "task_id": "t/add",
        "entry_point": "add",
        "code": CODE,
        "source": "ladder",
        "family": "",
        "difficulty": 2,
        "reference": "",
    }
    seen.close()
    seen.close()
    judged.close()


def test_an_installed_module_is_not_shadowed_by_a_file_of_the_working_directory(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who has imported it before would get that one, whatever the path.
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (working_directory / "colorsys.py").write_text("raise SystemExit('imported')\n")
    with pytest.raises(ConfigError, match="defines no judge"):
        load_custom(["colorsys:judge"])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("no_such_rewards:f", ["there is no module no_such_rewards", "working directory"]),
        ("my_rewards.inner:f", ["my_rewards.inner"]),
        ("my_rewards:missing", ["defines no missing"]),
        ("my_rewards:NUMBER", ["NUMBER is no function but 3"]),
        ("my_rewards:narrow", ["cannot be called", "unexpected keyword argument", "**columns"]),
        (
            "broken_rewards:f",
            ["broken_rewards cannot be imported", "ZeroDivisionError", "broken_rewards.py:1"],
        ),
        ("exiting_rewards:f", ["exiting_rewards cannot be imported", "SystemExit"]),
        ("needy_rewards:f", ["needy_rewards cannot be imported", "no_such_package"]),
        ("my_rewards", ["package.module:function"]),
    ],
)
def test_what_cannot_be_loaded_is_named_with_the_reason(
    spec: str, expected: list[str], working_directory: Path
) -> None:
    (working_directory / "my_rewards.py").write_text(MODULE)
    (working_directory / "broken_rewards.py").write_text("1 / 0\n")
    (working_directory / "exiting_rewards.py").write_text("raise SystemExit\n")
    (working_directory / "needy_rewards.py").write_text("import no_such_package\n")
    with pytest.raises(ConfigError) as caught:
        load_custom([spec])
    for part in ["rewards.custom", spec, "; allowed: ", *expected]:
        assert part in str(caught.value)


@pytest.mark.parametrize("command", [train_accelerated, train_code_grpo])
def test_a_command_refuses_a_wrong_reward_before_it_makes_a_run_or_loads_a_model(
    command: Callable[[list[str]], int], working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (working_directory / "my_rewards.py").write_text(MODULE)
    sets = ["rewards.custom=[my_rewards:seen, my_rewards:absent]", "model.name=no-such-model"]
    assert command([part for text in sets for part in ("--set", text)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: rewards.custom: my_rewards:absent: ") and "defines no absent" in line
    assert not (working_directory / "runs").exists()


def test_every_reward_that_cannot_be_loaded_is_listed(working_directory: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_custom(["none_a:f", "math:sqrt", "none_b:f"])
    assert [problem.fault.split(":")[0] for problem in caught.value.problems] == ["none_a", "math", "none_b"]


def test_an_import_that_takes_long_says_so_and_a_quick_one_nothing(
    working_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = "import time\ntime.sleep(0.5)\ndef f(**columns): return [1.0]\n"
    (working_directory / "slow_rewards.py").write_text(slow)
    monkeypatch.setattr("rewards.user_function._SLOW_IMPORT_S", 0.05)
    load_custom(["slow_rewards:f"])
    assert capsys.readouterr().err == "  ... importing slow_rewards:f\n"
    # It is there by now.
    monkeypatch.setattr("rewards.user_function._SLOW_IMPORT_S", 5.0)
    load_custom(["slow_rewards:f"])
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("working_directory")
def test_nothing_is_loaded_and_no_path_is_changed_without_custom_rewards() -> None:
    before = list(sys.path)
    assert load_custom([]) == ()
    assert sys.path == before


@pytest.mark.parametrize(
    "returned",
    [[0.25], (0.25,), [numpy.float32(0.25)], numpy.array([0.25]), torch.tensor([0.25]), iter([0.25])],
)
def test_every_usual_list_of_one_number_is_taken(returned: object) -> None:
    assert score(lambda **columns: returned) == 0.25


def test_truth_is_a_number_and_none_is_no_opinion() -> None:
    assert score(lambda **columns: [True]) == 1.0
    assert score(lambda **columns: [None]) is None


class Unwilling:
    """Neither a number nor a list, in words of its own."""

    def __float__(self) -> float:
        raise RuntimeError("more than one value")

    def __iter__(self) -> Iterator[float]:
        raise RuntimeError("no values")


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (0.5, "not a list"),
        (None, "not a list"),
        ([], "0 rewards for 1 completion"),
        ([0.5, 0.5], "2 rewards for 1 completion"),
        ({}, "0 rewards"),
        (["0.5"], "not a number or None"),
        ("5", "not a number or None"),
        ([[0.5]], "not a number or None"),
        ([Unwilling()], "not a number or None"),
        (Unwilling(), "not a list"),
        ([float("nan")], "not a finite number"),
        ([float("inf")], "not a finite number"),
        ([-1e200], "not a finite number from -1e+30 to 1e+30"),
    ],
)
def test_a_wrong_answer_is_reported_by_name(returned: object, expected: str) -> None:
    with pytest.raises(UserFunctionError) as caught:
        score(lambda **columns: returned)
    for part in ("rewards.custom: mine:judge: returned", expected, "t/add"):
        assert part in str(caught.value)


def raise_error(**columns: object) -> list[float]:
    raise KeyError("entry_pont")


async def raise_error_later(**columns: object) -> list[float]:
    await asyncio.sleep(0)
    raise KeyError("entry_pont")


def exit_process(**columns: object) -> list[float]:
    raise SystemExit(3)


def time_out(**columns: object) -> list[float]:
    raise TimeoutError("the judge's server")


def fail_while_it_is_read(**columns: object) -> Iterator[float]:
    raise KeyError("lost")
    yield 0.0


async def cancel_itself(**columns: object) -> list[float]:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (raise_error, "raised KeyError: 'entry_pont' at test_custom.py:"),
        (raise_error_later, "raised KeyError: 'entry_pont' at test_custom.py:"),
        (exit_process, "raised SystemExit: 3"),
        (time_out, "raised TimeoutError: the judge's server"),
        (cancel_itself, "cancelled"),
        (fail_while_it_is_read, "raised KeyError: 'lost' at test_custom.py:"),
    ],
)
def test_an_exception_is_reported_by_name_and_place(function: Function, expected: str) -> None:
    reward = reward_of(function, 20.0)
    for _ in range(2):  # The thread of the calls outlives each of them.
        with pytest.raises(UserFunctionError) as caught:
            reward.score(TASK, TEXT, CODE)
        for part in ("rewards.custom: mine:judge: ", expected, "t/add"):
            assert part in str(caught.value)
    reward.close()


def test_an_async_reward_that_comes_too_late_is_cancelled_and_the_next_call_works() -> None:
    cancelled = threading.Event()

    async def first_hangs(completions: list[str], **columns: object) -> list[float]:
        if completions[0] == TEXT:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return [1.0]

    reward = reward_of(first_hangs, 2.0)
    with pytest.raises(UserFunctionError, match="mine:judge: no answer in 2 s"):
        reward.score(TASK, TEXT, CODE)
    assert cancelled.wait(20)
    assert reward.score(TASK, "other", CODE) == 1.0
    reward.close()


def test_a_blocking_reward_that_comes_too_late_is_left_behind_and_the_next_call_works() -> None:
    release = threading.Event()

    def first_hangs(completions: list[str], **columns: object) -> list[float]:
        if completions[0] == TEXT:
            release.wait(60)
        return [1.0]

    reward = reward_of(first_hangs, 2.0)
    with pytest.raises(UserFunctionError, match="mine:judge: no answer in 2 s"):
        reward.score(TASK, TEXT, CODE)
    assert reward.score(TASK, "other", CODE) == 1.0
    release.set()
    reward.close()


def test_hanging_calls_do_not_pile_up_without_bound() -> None:
    release = threading.Event()

    def hangs(completions: list[str], **columns: object) -> list[float]:
        if completions[0] == TEXT:
            release.wait(120)
        return [1.0]

    reward = reward_of(hangs, 1.0)
    for _ in range(4):
        with pytest.raises(UserFunctionError, match="no answer"):
            reward.score(TASK, TEXT, CODE)
    for _ in range(3):
        with pytest.raises(UserFunctionError, match="mine:judge: 4 calls of it hang"):
            reward.score(TASK, TEXT, CODE)
    assert sum(thread.name == "mine:judge" for thread in threading.enumerate()) == 4
    release.set()
    deadline = time.monotonic() + 20
    while any(thread.name == "mine:judge" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "a thread whose call has returned must end"
        time.sleep(0.01)
    assert reward.score(TASK, TEXT, CODE) == 1.0
    reward.close()


def test_a_function_that_is_not_async_may_run_an_event_loop_of_its_own() -> None:
    async def think() -> float:
        await asyncio.sleep(0)
        return 0.5

    def as_new_code_does(**columns: object) -> list[float]:
        return [asyncio.run(think())]

    def as_old_code_does(**columns: object) -> list[float]:
        return [asyncio.get_event_loop().run_until_complete(think())]

    for function in (as_new_code_does, as_old_code_does):
        reward = reward_of(function)
        assert [reward.score(TASK, TEXT, CODE) for _ in range(2)] == [0.5, 0.5]
        reward.close()


def test_what_a_function_returns_to_be_awaited_runs_in_one_loop_that_goes_on_between_calls() -> None:
    ticks = []

    async def tick() -> None:
        while True:
            ticks.append(asyncio.get_running_loop())
            await asyncio.sleep(0.01)

    async def begin() -> list[float]:
        ticks.append(asyncio.get_running_loop())
        tasks.append(asyncio.create_task(tick()))
        return [1.0]

    tasks: list[asyncio.Task[None]] = []
    reward = reward_of(lambda **columns: begin())
    assert reward.score(TASK, TEXT, CODE) == 1.0
    deadline = time.monotonic() + 20
    while len(ticks) < 5:
        assert time.monotonic() < deadline, "what a call has begun must go on after it"
        time.sleep(0.01)
    assert reward.score(TASK, TEXT, CODE) == 1.0
    for task in tasks:
        task.get_loop().call_soon_threadsafe(task.cancel)
    reward.close()
    assert len(set(ticks)) == 1


def test_the_place_that_is_named_is_the_users_line_not_that_of_a_library() -> None:
    def parse(**columns: object) -> list[float]:
        return [json.loads("{")]

    async def parse_later(**columns: object) -> list[float]:
        return parse()

    for function in (parse, parse_later):
        with pytest.raises(UserFunctionError, match=r"JSONDecodeError: .* at test_custom.py:\d+ "):
            score(function)


def test_a_column_that_only_trl_has_is_refused_where_it_is_needed_by_name(working_directory: Path) -> None:
    source = (
        "def needs(completions, answer, **columns): ...\ndef may(completions, answer=None, **columns): ...\n"
    )
    (working_directory / "trl_rewards.py").write_text(source)
    with pytest.raises(ConfigError, match=r"trl_rewards:needs: .*missing a required argument: 'answer'"):
        load_custom(["trl_rewards:needs"])
    (reward,) = load_custom(["trl_rewards:may"])
    reward.close()


def test_all_calls_of_an_async_reward_share_one_event_loop() -> None:
    loops = []

    async def remember(**columns: object) -> list[float]:
        loops.append(asyncio.get_running_loop())
        return [1.0]

    reward = reward_of(remember)
    assert [reward.score(TASK, TEXT, CODE) for _ in range(3)] == [1.0] * 3
    reward.close()
    assert len(loops) == 3 and len(set(loops)) == 1


def test_the_fingerprint_follows_the_source_of_the_module(working_directory: Path) -> None:
    fingerprints = []
    for body in ("[1.0]", "[1.0]", "[2.0]"):
        (working_directory / "my_rewards.py").write_text(f"def f(**columns):\n    return {body}\n")
        (reward,) = load_custom(["my_rewards:f"])
        fingerprints.append(reward.fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert all(fingerprint.startswith("my_rewards:f@") for fingerprint in fingerprints)
