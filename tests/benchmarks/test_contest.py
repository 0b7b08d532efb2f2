"""What a contest goes on with, and what its commands are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import modes
from benchmarks.processes import Watched
from benchmarks.report import circumstances
from benchmarks.whole_runs.contest import ResultStore, open_store
from benchmarks.whole_runs.training_run import accelerated, train
from tests.benchmarks.test_whole_runs import options


def test_a_file_says_which_processor_it_is_of_and_another_one_does_not_go_on_with_it(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    ResultStore(path, {"steps": 3}).add("a/0", {"value": 1})
    result = json.loads(path.read_text())
    here = result["hardware"]
    assert here["cpu"] == circumstances()["hardware"]["cpu"] and isinstance(here["has_bf16"], bool)

    def go_on(**hardware: object) -> list[str]:
        path.write_text(json.dumps({**result, "hardware": hardware}))
        return list(ResultStore(path, {"steps": 3}).missing(["a/0", "b/0"]))

    # One of an earlier version, which did not say all of it; other cores or another kernel change nothing.
    assert go_on(cpu=here["cpu"], cores=99) == go_on() == ["b/0"]
    with pytest.raises(ValueError, match=r"of another processor .*cpu was 'a 486', is "):
        go_on(**{**here, "cpu": "a 486"})
    with pytest.raises(ValueError, match=f"has_bf16 was {not here['has_bf16']}, is {here['has_bf16']}"):
        go_on(**{**here, "has_bf16": not here["has_bf16"]})


def test_runs_with_a_curve_and_runs_without_do_not_share_a_file(tmp_path: Path) -> None:
    plain, curved = options(modes, tmp_path), options(modes, tmp_path, "--curve")
    open_store(plain).add("base", {})
    with pytest.raises(ValueError, match="curve was False, is True"):
        open_store(curved)
    # A result of an earlier version does not have it.
    result = json.loads(plain.output.read_text())
    del result["settings"]["curve"]
    plain.output.write_text(json.dumps(result))
    assert list(open_store(curved).missing(["base"])) == []


def test_what_makes_a_contender_comes_after_what_is_said_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(name: str, arguments: list[str], **terms: object) -> Watched:
        asked.append(arguments)
        return Watched(seconds=1.0, peak_mb=1.0)

    monkeypatch.setattr("benchmarks.whole_runs.training_run.run_command", run)
    said = ("rollouts.max_turns=3", "evaluation.enabled=true")
    given = options(modes, tmp_path, *(word for text in said for word in ("--set", text)))
    train(accelerated("two", "balanced", {"rollouts.max_turns": 2}), given, name="run", num_steps=2, seed=0)
    (words,) = asked
    assert [word for word in words if word.startswith(("rollouts.", "evaluation."))] == [
        *said,
        "rollouts.max_turns=2",
        "evaluation.enabled=false",
    ]
