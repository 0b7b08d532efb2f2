"""The battery for a GPU: all of it runs on a CPU, goes on where it stopped, and says what failed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import guide
from benchmarks.gpu.__main__ import STAGES, Planned, is_whole, main, run_stage, table
from benchmarks.gpu.generation import Generation
from benchmarks.gpu.stage import Terms
from benchmarks.gpu.train_step import TrainStep

ROOT = Path(__file__).parents[2]
SLOW = ("train_step", "generation", "whole_run")
# What an image with torch and transformers need not have; hidden from a process that imports the stages.
BLOCKED = ("vllm", "ray", "trl", "datasets")


def terms(work: Path) -> Terms:
    return Terms(device="cpu", is_tiny=True, work=work, cores=(0,))


def faulty(**given: Any) -> Planned:
    return Planned(target="tests.benchmarks.faulty_stage:Faulty", **{"needs": (), "limit_s": 9.0, **given})


def result(stage: dict[str, Any]) -> dict[str, Any]:
    card = {"name": "NVIDIA H200", "driver": "580.1", "memory_mb": "143771"}
    return {
        "hardware": {"cpu": "a CPU", "gpus": [card]},
        "versions": {"torch": "2.13.0", "cuda": "13.0"},
        "tiny": False,
        "stages": {"kernels": stage, "generation": {"skipped": "vllm not installed"}},
    }


def test_a_part_that_fails_is_written_down_and_the_others_go_on(tmp_path: Path) -> None:
    _, first, *_, found = run_stage(faulty(limit_s=20.0), terms(tmp_path), 10.0, {})
    assert found["parts"] == {"good": {"one": 1.0}}
    # A battery that is ended after a part has it, and goes on with the others.
    assert first["parts"] == {"good": {"one": 1.0}}
    assert first["errors"] == {"bad": "not begun", "slow": "not begun", "never": "not begun"}
    assert not is_whole(first)
    assert "the card | is gone" in found["errors"]["bad"]
    assert "not done within" in found["errors"]["slow"]
    assert found["errors"]["never"] == "not begun within the stage's 10 s"
    lines = table(result(found)).splitlines()
    assert lines[0] == "NVIDIA H200, 143771 MB, driver 580.1; torch 2.13.0, cuda 13.0."
    assert "| kernels | good | one 1 |" in lines
    assert "| kernels | bad | failed: ValueError: the card / is gone |" in lines
    assert "| generation |  | left out: vllm not installed |" in lines


def test_parts_that_are_done_are_not_measured_again(tmp_path: Path) -> None:
    done = {"good": {"one": 2.0}, "slow": {}, "never": {}}
    before, found = run_stage(faulty(), terms(tmp_path), 60.0, done)
    assert (before["errors"], found["parts"], list(found["errors"])) == ({"bad": "not begun"}, done, ["bad"])


def test_a_stage_says_what_is_not_installed(tmp_path: Path) -> None:
    planned = faulty(needs=("transformers", "no_such_package"))
    (found,) = run_stage(planned, terms(tmp_path), 9.0, {})
    assert found == {"skipped": "no_such_package not installed"}


def test_a_stage_that_is_there_is_measured_again_only_if_named_or_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []
    names = {planned.target: name for name, planned in STAGES.items()}

    def record(planned: Planned, *_: object) -> Iterator[dict[str, Any]]:
        measured.append(names[planned.target])
        errors = {"x": "no memory"} if planned is STAGES["memory"] and len(measured) < 7 else {}
        yield {"seconds": 1.0, "parts": {"x": {"figure": 2.0}}, "errors": errors}

    monkeypatch.setattr("benchmarks.gpu.__main__.run_stage", record)
    arguments = ["--device", "cpu", "--tiny", "--threads", "1", "--work", str(tmp_path)]
    assert main(arguments) == 1
    assert measured == list(STAGES)
    assert "| memory | x | failed: no memory |" in capsys.readouterr().out
    assert main(arguments) == 0
    assert measured[6:] == ["memory"]
    assert main([*arguments, "kernels"]) == 0
    assert measured[7:] == ["kernels"]
    kept = json.loads((tmp_path / "tiny.json").read_text())
    assert set(kept["stages"]) == set(STAGES)
    assert kept["versions"]["torch"] and kept["hardware"]["gpus"] == []
    assert kept["stages"]["kernels"]["command"].startswith("python ")


def test_parts_of_a_named_stage_stay_until_they_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(errors: dict[str, str], **parts: float) -> dict[str, Any]:
        return {"parts": {name: {"ms": ms} for name, ms in parts.items()}, "errors": errors}

    def run(*answers: dict[str, Any], is_ended: bool = False) -> dict[str, Any]:
        def measure(planned: Planned, given: Terms, limit_s: float, done: object) -> Iterator[dict[str, Any]]:
            assert done == {}, "all of a stage that is named"
            yield from answers
            if is_ended:
                raise KeyboardInterrupt

        monkeypatch.setattr("benchmarks.gpu.__main__.run_stage", measure)
        with pytest.raises(KeyboardInterrupt) if is_ended else contextlib.nullcontext():
            main(["--device", "cpu", "--tiny", "--threads", "1", "--work", str(tmp_path), "kernels"])
        stage: dict[str, Any] = json.loads((tmp_path / "tiny.json").read_text())["stages"]["kernels"]
        return {name: value for name, value in stage.items() if name != "command"}

    assert run(found({}, x=1.0, y=2.0)) == found({}, x=1.0, y=2.0)
    left = {"y": "not begun"}
    begun = (found({"x": "not begun", **left}), found(left, x=3.0))
    assert run(*begun, is_ended=True) == found(left, x=3.0, y=2.0)
    assert run(found({}, x=5.0, y=6.0)) == found({}, x=5.0, y=6.0)
    assert run({"skipped": "torch not installed"}) == found({}, x=5.0, y=6.0)


def test_figures_of_another_card_or_other_versions_are_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tiny.json"
    earlier = json.dumps({**result({"parts": {}, "errors": {}}), "device": "cpu"})
    file.write_text(earlier)
    assert main(["--device", "cpu", "--tiny", "--threads", "1", "--work", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"{file}: holds figures of another machine or of other options (" in said
    assert "cards was ['NVIDIA H200'], is ['" in said and "torch was 2.13.0, is " in said
    assert "tiny was False, is True" in said and said.endswith("give another --output\n")
    assert file.read_text() == earlier


def test_figures_of_other_threads_or_tasks_are_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"seconds": 1.0, "parts": {"x": {"figure": 2.0}}, "errors": {}}
    monkeypatch.setattr("benchmarks.gpu.__main__.run_stage", lambda *_: iter([found]))
    arguments = ["--device", "cpu", "--tiny", "--threads", "1", "--work", str(tmp_path), "kernels"]
    assert main([*arguments, "--task-set", "/elsewhere/mine.jsonl"]) == 0
    file = tmp_path / "tiny.json"
    kept = json.loads(file.read_text())
    assert (kept["threads"], kept["task_set"]) == (1, "mine.jsonl")
    assert main(arguments) == 2
    assert "task_set was mine.jsonl, is ladder" in capsys.readouterr().err
    file.write_text(json.dumps({**kept, "threads": 4, "task_set": "ladder"}))
    assert main(arguments) == 2
    assert "(threads was 4, is 1)" in capsys.readouterr().err
    # A result of an earlier version says neither.
    file.write_text(json.dumps({name: kept[name] for name in kept if name not in ("threads", "task_set")}))
    assert main(arguments) == 0


def test_a_failed_row_of_the_training_step_fails_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"variants": {}, "failed": {"all": "time all: the worker failed"}}
    monkeypatch.setattr("benchmarks.gpu.train_step.measure", lambda *terms, **more: found)
    stage = TrainStep(terms(tmp_path))
    monkeypatch.setattr(stage, "model", lambda name: name)
    with pytest.raises(RuntimeError, match=r"^all: time all: the worker failed$"):
        stage.all_parts()["random-0.5b"]()


def test_on_a_card_only_the_parts_that_say_so_wait_for_a_compiler(tmp_path: Path) -> None:
    stage = Generation(Terms(device="cuda", is_tiny=False, work=tmp_path, cores=(0,)))
    assert [name for name in stage.all_parts() if name.startswith("compiled")] == [
        "compiled",
        "compiled, adapters",
    ]
    assert stage._config({}).generation.enforce_eager is True
    assert stage._config({"enforce_eager": False}).generation.enforce_eager is False


def test_the_trainers_stages_need_neither_vllm_nor_ray_nor_trl_nor_datasets() -> None:
    modules = [
        "benchmarks.gpu.__main__",
        "benchmarks.train_step.worker",
        *(STAGES[name].target.partition(":")[0] for name in ("kernels", "train_step", "memory", "sharding")),
    ]
    program = f"import sys\nfor name in {BLOCKED}: sys.modules[name] = None\nimport {', '.join(modules)}"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


@pytest.mark.parametrize(
    "stage", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in STAGES]
)
def test_every_part_of_a_stage_runs_on_a_cpu(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--device", "cpu", "--tiny", "--threads", "1", "--work", str(tmp_path), stage]
    assert main(arguments) == 0, capsys.readouterr().out
    assert not list(Path("/dev/shm").glob("code-grpo-*-gpu-battery-*"))
    found = json.loads((tmp_path / "tiny.json").read_text())["stages"][stage]
    assert found["parts"] and not found["errors"]


def test_the_guide_has_the_battery_where_it_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guide, "RESULTS", tmp_path)
    # Two instances of a kernel, and one that is not a template.
    kernel = "share of void at::native::(anonymous namespace)::add_kernel<{}, at::native::Functor<fl"
    shares = {kernel.format(4): 0.25, "share of nvjet_128x256": 0.125, kernel.format(8): 0.5}
    parts = {"masks": {"ms": 1.5, "command": "python loop.py"}, "profile": shares}
    (tmp_path / "gpu.json").write_text(json.dumps(result({"seconds": 1.0, "parts": parts, "errors": {}})))
    text = guide.printed("gpu")
    assert "| kernels | masks | ms 1.5 |" in text and "\n- masks: `python loop.py`" in text
    assert "| kernels | profile | share of add_kernel 0.75; share of nvjet_128x256 0.125 |" in text
