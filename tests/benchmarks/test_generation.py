"""The generation benchmark reads its command line, shares tasks out and says what it measured."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import generation
from benchmarks.generation import (
    contender_config,
    contender_environment,
    main,
    parse_arguments,
    save_shallow,
    summarise,
    table,
    task_slices,
)
from pipeline.models.loading import load_model
from tests.pipeline.tiny_model import save_byte_model


def row(contender: str, repeat: int, which: str, seconds: float, **more: float) -> dict[str, Any]:
    """One pass of 100 tokens at 4 sequences in flight."""
    key = {"contender": contender, "repeat": repeat, "batch": 4, "pass": which}
    return {**key, "tokens": 100, "seconds": seconds, **more}


@pytest.mark.parametrize("has_int8", [True, False])
def test_every_contender_runs_but_those_that_cannot(
    has_int8: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.generation.has_int8", lambda: has_int8)
    given = parse_arguments(["--threads", "1"])
    assert given.batch == [1, 4, 16, 64]
    assert "draft" not in given.contenders
    own = {"plain", "ngram", "history", "dynamic", *(["int8"] if has_int8 else [])}
    assert own | {"vllm_defaults", "transformers"} == set(given.contenders)
    with_draft = parse_arguments(["--threads", "1", "--draft-model", "tiny", "--output", "out.json"])
    assert "draft" in with_draft.contenders
    assert with_draft.output.name == "out.json"
    for name in ["draft", *([] if has_int8 else ["int8"])]:
        with pytest.raises(SystemExit):
            parse_arguments(["--threads", "1", "--contenders", "plain", name])
        assert f"--contenders: {name} needs " in capsys.readouterr().err


def test_contenders_differ_in_what_their_names_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.generation.has_int8", lambda: True)
    given = parse_arguments(["--threads", "1", "--draft-model", "tiny"])
    speculative = {name: contender_config(name, given).acceleration.speculative for name in given.contenders}
    assert not speculative["plain"].enabled
    assert not speculative["transformers"].enabled
    assert (speculative["history"].method, speculative["history"].dynamic) == ("history", False)
    assert (speculative["dynamic"].method, speculative["dynamic"].dynamic) == ("history", True)
    assert speculative["ngram"].method == "ngram"
    assert speculative["draft"].draft_model == "tiny"
    assert contender_config("plain", given).runtime.generator_threads == 1
    quantised = {
        name for name in given.contenders if contender_config(name, given).generation.quantization != "none"
    }
    assert quantised == {"int8"}


def test_rivals_are_told_the_cores_and_nothing_of_our_settings() -> None:
    config = contender_config("vllm_defaults", parse_arguments(["--threads", "1"]))
    environment = contender_environment("vllm_defaults", config)
    assert environment["OMP_NUM_THREADS"] == "1"
    assert "OMP_WAIT_POLICY" not in environment
    assert contender_environment("plain", config)["OMP_NUM_THREADS"] == "1"


def test_no_task_is_in_two_rounds() -> None:
    slices = list(task_slices([f"task {number}" for number in range(350)], [1, 4, 16, 64], 5))
    assert len(slices) == 20
    ids = [task_id for _, _, tasks in slices for task_id in tasks]
    assert len(set(ids)) == len(ids)
    sizes = {batch: len(tasks) for _, batch, tasks in slices}
    assert sizes == {1: 2, 4: 2, 16: 4, 64: 16}
    with pytest.raises(ValueError, match=r"needs .* tasks; there are 100"):
        list(task_slices(["one"] * 100, [64], 1000))


def test_what_is_named_twice_is_measured_once() -> None:
    words = ["--threads", "1", "--contenders", "plain", "ngram", "plain", "--batch", "4", "1", "4"]
    given = parse_arguments(words)
    assert (given.contenders, given.batch) == (["plain", "ngram"], [4, 1])


class Writer(contextlib.ExitStack):
    """A contender that writes no more after so many passes."""

    num_passes = 99
    fault: type[BaseException] = RuntimeError

    def __init__(self, name: str, *terms: object) -> None:
        super().__init__()
        self.name = name

    def wait_ready(self) -> None:
        pass

    def warm_up(self, task: str) -> None:
        pass

    def write_groups(self, name: str, tasks: Sequence[str], num_in_flight: int) -> dict[str, float]:
        Writer.num_passes -= 1
        if Writer.num_passes < 0:
            raise Writer.fault(f"{self.name}: not done within 900 s")
        return {"tokens": 100, "seconds": 1.0}


@pytest.mark.parametrize(("num_passes", "num_rounds"), [(12, 3), (11, 2), (4, 1), (3, 0)])
def test_a_pass_that_fails_leaves_the_rounds_before_it(
    num_passes: int,
    num_rounds: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(generation, "Contender", Writer)
    monkeypatch.setattr(generation, "model_and_tasks", lambda given: ("folder", [str(i) for i in range(7)]))
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: None)
    monkeypatch.setattr(Writer, "num_passes", num_passes)
    output = tmp_path / "result.json"
    words = ["--threads", "1", "--contenders", "plain", "ngram", "--batch", "4", "--output", str(output)]
    assert main([*words, "--repeats", "3"]) == (0 if num_rounds == 3 else 1)
    said = capsys.readouterr()
    assert output.exists() == (num_rounds > 0)
    if num_rounds:
        found = json.loads(output.read_text())
        assert len(found["rounds"]) == 4 * num_rounds
        assert found["in_flight"]["4"]["ngram"]["second"]["rounds_times_plain"] == [1.0] * num_rounds
        assert "| ngram | 100, 100 (1.00) |" in said.out
    assert ("not done within 900 s" in said.err) == (num_rounds < 3)


def test_what_is_ended_in_the_middle_has_the_rounds_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "Contender", Writer)
    monkeypatch.setattr(generation, "model_and_tasks", lambda given: ("folder", [str(i) for i in range(7)]))
    monkeypatch.setattr(Writer, "num_passes", 5)
    monkeypatch.setattr(Writer, "fault", KeyboardInterrupt)
    output = tmp_path / "result.json"
    words = ["--threads", "1", "--contenders", "plain", "ngram", "--batch", "4", "--output", str(output)]
    with pytest.raises(KeyboardInterrupt):
        generation.measure(parse_arguments(words))
    found = json.loads(output.read_text())
    assert len(found["rounds"]) == 4 and found["command"] and "failed" not in found


def test_too_few_tasks_are_refused_before_an_engine_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generation, "model_and_tasks", lambda given: ("folder", ["one", "two"]))
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: None)
    # None that can be called.
    monkeypatch.setattr(generation, "Contender", None)
    assert main(["--threads", "1", "--contenders", "plain", "--batch", "4"]) == 2
    assert "error: --repeats 3 needs 6 tasks; there are 1" in capsys.readouterr().err


def test_figures_are_medians_and_ratios_are_formed_within_a_round() -> None:
    rows = []
    # The machine is half as fast in the second round, for both.
    for repeat, speed in enumerate((1.0, 0.5, 1.0)):
        for which in ("first", "second"):
            gain = 1.0 if which == "first" else 1.5
            rows.append(row("plain", repeat, which, 1 / speed))
            counts = {"steps": 10.0, "drafts": 20.0, "drafted": 80.0, "accepted": 60.0}
            rows.append(row("history", repeat, which, 1 / speed / gain, **counts))
    found = summarise(rows)["in_flight"]["4"]
    assert found["plain"]["first"]["tokens_per_s"] == 100.0
    assert found["history"]["second"]["tokens_per_s"] == 150.0
    assert found["history"]["second"]["rounds_times_plain"] == [1.5, 1.5, 1.5]
    assert found["history"]["first"]["times_plain"] == 1.0
    assert found["history"]["second"]["acceptance"] == 0.75
    assert found["history"]["second"]["accepted_length"] == 3.0
    assert "acceptance" not in found["plain"]["second"]
    result = {
        "in_flight": {"4": found},
        "settings": {"model": "m", "max_completion_length": 128, "threads": 2},
        "hardware": {"cpu": "c"},
    }
    assert "| history | 100, 150 (1.50) | 75 % (3.0 a draft) |" in table(result)
    assert table(result).count("\n") == 5


def test_the_first_layers_are_a_model_of_their_own(tmp_path: Path) -> None:
    whole = save_byte_model(tmp_path / "whole")
    save_shallow(whole, 1, tmp_path / "shallow")
    model, first = load_model(whole), load_model(tmp_path / "shallow")
    assert len(model.model.layers) > len(first.model.layers) == first.config.num_hidden_layers == 1
    for one, other in zip(
        first.model.layers[0].parameters(), model.model.layers[0].parameters(), strict=True
    ):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match=r"--draft-layers: value 99"):
        save_shallow(whole, 99, tmp_path / "none")
