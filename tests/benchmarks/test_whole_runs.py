"""The benchmarks of whole runs: what is done is not done again, and their figures are those of the runs."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ablation, modes, quality, turn_speed
from benchmarks.modes import CONTENDERS
from benchmarks.processes import Watched, descendants, proportional_mb, run_command
from benchmarks.whole_runs.contest import ResultStore, open_store, speed_ratios
from benchmarks.whole_runs.training_run import (
    Contender,
    accelerated,
    checkpoints,
    evaluated,
    pass_at_1,
    read_pass_rates,
    speed_of,
    train,
    train_or_resume,
)
from configs.schema import OutputConfig
from configs.techniques import BY_KEY
from pipeline.record.ledger import Ledger
from pipeline.record.metrics import MetricsWriter
from pipeline.record.run_folder import RunFolder

_PR_GET_CHILD_SUBREAPER = 37
CORES = tuple(sorted(os.sched_getaffinity(0)))[:1]


def make_run(folder: Path, name: str, step_s: list[float]) -> Path:
    """A run of 4 completions a step, whose steps take these seconds."""
    now_s = 0.0
    with RunFolder.create(OutputConfig(dir=str(folder), name=name), "{}") as run:
        Ledger(run.db).close()
        metrics = MetricsWriter(run.path, clock=lambda: now_s)
        for step, seconds in enumerate(step_s, start=1):
            now_s += seconds
            rate = {"step/seconds": seconds, "step/samples_per_s": 4 / seconds}
            metrics.log(step, {**rate, "train/seconds": seconds / 2, "rollout/zero_signal_share": 0.0})
        metrics.close()
    return folder / name


def test_speed_is_that_of_the_steps_between_warm_up_and_tail(tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", [50.0, 10.0, 6.0, 0.5])
    speed = speed_of(run, num_warmup=1, num_tail=1)
    assert (speed["num_steps"], speed["seconds"]) == (2, 16.0)
    assert speed["samples_per_s"] == pytest.approx(8 / 16)
    assert speed["means"]["train/seconds"] == pytest.approx(4.0)
    with pytest.raises(ValueError, match="leave none"):
        speed_of(run, num_warmup=2, num_tail=2)
    # The completions of two steps are written at once: half of such a pair says nothing.
    pairs = make_run(tmp_path, "pairs", [50.0, 10.0, 6.0, 10.0, 0.5, 0.5])
    speed = speed_of(pairs, num_warmup=1, num_tail=2)
    assert (speed["num_steps"], speed["seconds"]) == (2, 16.0)
    ledger = Ledger(run / "run.db")
    ledger.event("restart", "the trainer died")
    ledger.close()
    with pytest.raises(RuntimeError, match="1 restarts"):
        speed_of(run, num_warmup=1, num_tail=1)


@pytest.mark.parametrize("file", ["config.json", "adapter_config.json"])
def test_checkpoints_of_both_trainers_are_found_by_their_step(file: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, "run", [1.0, 1.0, 1.0])
    for name in ("step-000002", "final", "step-000001", ".partial-000003"):
        (run / "checkpoints" / name).mkdir()
        if not name.startswith("."):
            (run / "checkpoints" / name / file).touch()
    found = {step: path.name for step, path in checkpoints(run).items()}
    assert found == {1: "step-000001", 2: "step-000002", 3: "final"}


def test_verdicts_are_counted_by_task_and_what_was_not_judged_is_not(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    verdicts = [("a", True), ("a", False), ("b", None), ("b", True)]
    lines = [json.dumps({"task_id": task, "completion": "", "passed": passed}) for task, passed in verdicts]
    file.write_text("\n".join(lines), encoding="utf-8")
    counts = read_pass_rates(file)
    assert counts == {"a": [1, 2], "b": [1, 1]}
    assert pass_at_1(counts)["mean"] == pytest.approx(0.75)


def test_a_store_goes_on_where_it_was_and_takes_no_other_settings(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    first = ResultStore(path, {"steps": 3, "set": ()})
    assert list(first.missing(["a/0", "b/0", "c/0"], 2)) == ["a/0", "b/0"]
    first.add("a/0", {"value": 1})
    again = ResultStore(path, {"steps": 3, "set": []})
    assert list(again.missing(["a/0", "b/0"])) == ["b/0"]
    again.add("b/0", {"value": 2})
    assert sorted(json.loads(path.read_text())["runs"]) == ["a/0", "b/0"]
    with pytest.raises(ValueError, match="steps was 3, is 4"):
        ResultStore(path, {"steps": 4, "set": []})
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="no result of this benchmark"):
        ResultStore(path, {"steps": 3})


def test_a_store_is_of_what_its_file_of_settings_says(tmp_path: Path) -> None:
    config = tmp_path / "recipe.yaml"
    config.write_text("training: {max_steps: 3}\n", encoding="utf-8")
    given = options(quality, tmp_path, "--config", str(config))
    open_store(given).add("base", {})
    config.write_text("# Said.\ntraining:\n  max_steps: 3\n", encoding="utf-8")
    assert list(open_store(given).missing(["base"])) == []
    config.write_text("training: {max_steps: 4}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="config_digest was"):
        open_store(given)
    # A result of an earlier version does not have it.
    result = json.loads(given.output.read_text())
    del result["settings"]["config_digest"]
    given.output.write_text(json.dumps(result))
    assert list(open_store(given).missing(["base"])) == []


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of a contest, which are not run: each leaves the folder that it would."""
    calls: list[list[str]] = []

    def run(name: str, arguments: list[str], **terms: object) -> Watched:
        calls.append([name, *arguments])
        given = dict(zip(arguments[::2], arguments[1::2], strict=False))
        if name == "evaluate_humaneval":
            lines = [json.dumps({"task_id": task, "passed": task == "a"}) for task in "ab"]
            output = Path(given["--output"])
            output.parent.mkdir(parents=True, exist_ok=True)
            Path(f"{output}_results.jsonl").write_text("\n".join(lines))
            Path(f"{output}_report.json").touch()
            return Watched(seconds=1.0, peak_mb=1.0)
        if "--resume" in given:
            return Watched(seconds=1.0, peak_mb=1.0)
        step_s = 8.0 if name == "train_code_grpo" else 2.0
        run_folder = make_run(
            Path(given["--output-dir"]), given["--run-name"], [step_s] * int(given["--max-steps"])
        )
        final = run_folder / "checkpoints" / f"step-{int(given['--max-steps']):06d}"
        final.mkdir()
        (final / "config.json").touch()
        return Watched(seconds=9.0, peak_mb=2500.0)

    monkeypatch.setattr("benchmarks.whole_runs.training_run.run_command", run)
    return calls


def test_a_run_is_trained_once_and_again_where_it_was_cut_off_or_is_another(
    tmp_path: Path, calls: list[list[str]]
) -> None:
    given = options(modes, tmp_path)
    for _ in range(2):
        folder, watched = train(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)
        assert watched == Watched(seconds=9.0, peak_mb=2500.0)
    assert len(calls) == 1
    assert calls[0][:3] == ["train_accelerated", "--speedup-mode", "conservative"]
    for text in ("one", "two"):
        (tmp_path / "tasks.jsonl").write_text(f'{{"task_id": "{text}"}}\n')
        own = accelerated("own", "balanced", {"dataset.name": str(tmp_path / "tasks.jsonl")})
        if text == "one":
            train(own, given, name="own", num_steps=2, seed=0)
            continue
        with pytest.raises(ValueError, match="holds a run of other settings"):
            train(own, given, name="own", num_steps=2, seed=0)
    del calls[1:]
    cut_off(folder)
    train(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)
    assert len(calls) == 2 and "--resume" not in calls[1]
    for number, seed in ((3, 0), (4, 1)):
        shutil.rmtree(folder)
        train(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=seed)
        assert len(calls) == number
    assert not any("--resume" in call for call in calls)


@pytest.mark.parametrize("begin", [train, train_or_resume])
def test_a_run_that_is_another_or_that_nobody_noted_is_left_alone(
    begin: Callable[..., object], tmp_path: Path, calls: list[list[str]]
) -> None:
    given = options(modes, tmp_path)
    folder, _ = train(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)
    saved = folder / "checkpoints" / "step-000002" / "config.json"
    with pytest.raises(ValueError, match=rf"{folder}: holds a run of other settings.* give another --work"):
        begin(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=1)
    note = folder.with_name("run.contest.json")
    noted = json.loads(note.read_text())
    note.unlink()
    with pytest.raises(ValueError, match="or one that nobody noted"):
        begin(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)
    assert len(calls) == 1 and saved.is_file() and not note.exists()
    # Ended before it had begun.
    note.write_text(json.dumps({**noted, "watched": None}))
    (folder / "config.yaml").unlink()
    begin(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)
    assert len(calls) == 2 and "--resume" not in calls[1]


def test_a_run_of_another_processor_is_not_measured_as_this_ones(
    tmp_path: Path, calls: list[list[str]]
) -> None:
    """Its folder may have come here with the disk."""
    given = options(modes, tmp_path)
    folder, _ = train(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)
    note = folder.with_name("run.contest.json")
    noted = json.loads(note.read_text())
    note.write_text(json.dumps({**noted, "on": {**noted["on"], "cpu": "another"}}))
    with pytest.raises(ValueError, match="of another processor or of other versions"):
        train(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)
    # Where the speed is not asked for it is the same run.
    assert train_or_resume(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0) == folder
    # Earlier versions did not note it.
    note.write_text(json.dumps({name: value for name, value in noted.items() if name != "on"}))
    train(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)
    assert len(calls) == 2


def test_a_run_is_another_where_its_recipe_says_something_else(
    tmp_path: Path, calls: list[list[str]]
) -> None:
    config = tmp_path / "recipe.yaml"
    given = options(modes, tmp_path, "--config", str(config))

    def go_on(said: str) -> int:
        config.write_text(said, encoding="utf-8")
        train(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=1)
        return len(calls)

    assert [go_on(said) for said in ("lora: {r: 4}", "lora: {r: 4}  # same")] == [1, 1]
    with pytest.raises(ValueError, match="holds a run of other settings"):
        go_on("lora: {r: 8}")
    # Noted by an earlier version, which knew the file's name alone.
    note = tmp_path / "work" / "run.contest.json"
    noted = json.loads(note.read_text())
    del noted["config"]
    note.write_text(json.dumps(noted))
    assert go_on("lora: {r: 16}") == 1


def test_what_was_measured_of_another_model_or_of_other_tasks_is_measured_again(
    tmp_path: Path, calls: list[list[str]]
) -> None:
    given = options(modes, tmp_path)
    model, tasks = tmp_path / "model", tmp_path / "tasks.jsonl"
    output = tmp_path / "work" / "measured" / "one.jsonl"

    def measure(how: tuple[str, ...] = ("-n", "4"), is_left: bool = False) -> int:
        evaluated(output, model=str(model), tasks=str(tasks), how=how, given=given)
        assert journal.exists() == is_left
        return len(calls)

    journal = Path(f"{output}_journal.jsonl")
    model.mkdir()
    (model / "config.json").write_text("{}")
    tasks.write_text("{}")
    assert [measure(), measure()] == [1, 1]
    assert [measure(("-n", "8")), measure(("-n", "8"))] == [2, 2]
    (model / "config.json").write_text("{} ")
    journal.touch()
    assert [measure(("-n", "8")), measure(("-n", "8"))] == [3, 3]
    tasks.write_text("{} ")
    assert measure(("-n", "8")) == 4
    # Of an earlier version, with the beginning of a measurement that knows by itself what it is of.
    output.with_name("one.jsonl.contest.json").unlink()
    journal.touch()
    assert measure(("-n", "8"), is_left=True) == 5


def cut_off(folder: Path) -> None:
    """Leave of the run in ``folder`` what it leaves when its benchmark is killed before it ends."""
    note = folder.with_name(f"{folder.name}.contest.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "watched": None}))


def test_a_run_whose_speed_is_not_asked_for_goes_on_where_it_was_cut_off(
    tmp_path: Path, calls: list[list[str]]
) -> None:
    given = options(modes, tmp_path)

    def go_on() -> Path:
        return train_or_resume(CONTENDERS["conservative"], given, name="run", num_steps=2, seed=0)

    folder = go_on()
    go_on()
    assert [words[1] for words in calls] == ["--speedup-mode", "--resume"]
    assert calls[1] == ["train_accelerated", "--resume", str(folder)]
    (folder / "summary.json").touch()
    assert go_on() == folder and len(calls) == 2


def options(benchmark: Any, folder: Path, *arguments: str) -> argparse.Namespace:
    given = ["--work", str(folder / "work"), "--output", str(folder / "result.json"), "--cores", "1"]
    parsed: argparse.Namespace = benchmark.parse([*given, *arguments])
    return parsed


def test_modes_take_turns_are_compared_within_a_repeat_and_go_on_after_an_interruption(
    tmp_path: Path, calls: list[list[str]]
) -> None:
    asked = ("--warmup", "1", "--steps", "5", "--repeats", "2", "--only", "baseline", "balanced")
    given = options(modes, tmp_path, *asked)
    modes.measure(options(modes, tmp_path, *asked[:-2], "baseline"))
    result = modes.measure(given)
    assert [call[0] for call in calls] == [
        "train_code_grpo", "train_code_grpo", "train_accelerated", "train_accelerated"
    ]  # fmt: skip
    assert speed_ratios(result["runs"], "balanced", "baseline") == [4.0, 4.0]
    # Balanced works two steps ahead of its end: they and the warm-up are not counted.
    assert [result["runs"][f"{name}/0"]["speed"]["num_steps"] for name in ("baseline", "balanced")] == [4, 2]
    row = modes.table(result).splitlines()[-1]
    assert row.startswith("| `balanced` | 2.00 | 4.00 (4.00, 4.00) | 2.00 (4.00) | 2.0 |") and row.endswith(
        "| 2.5 GB |"
    )
    assert not (tmp_path / "work" / "balanced-0").exists()
    modes.measure(given)
    assert len(calls) == 4
    with pytest.raises(ValueError, match="--steps 3: balanced has 3 steps that are not counted"):
        modes.measure(options(modes, tmp_path / "other", "--warmup", "1", "--steps", "3"))


def test_a_baseline_of_minutes_a_step_may_run_fewer_steps(tmp_path: Path, calls: list[list[str]]) -> None:
    asked = ("--warmup", "2", "--steps", "6", "--repeats", "1", "--baseline-steps", "3")
    result = modes.measure(
        options(modes, tmp_path, *asked, "--only", "baseline", "baseline-vllm", "balanced")
    )
    assert [call[call.index("--max-steps") + 1] for call in calls] == ["3", "3", "6"]
    assert [run["speed"]["num_steps"] for run in result["runs"].values()] == [2, 2, 2]
    assert "Of a baseline 3 steps, counted after the first." in modes.table(result)
    with pytest.raises(ValueError, match="--steps 1: baseline has 1 steps that are not counted"):
        modes.measure(options(modes, tmp_path / "other", *asked[:-1], "1", "--only", "baseline"))


def test_a_curve_has_the_model_as_it_was_and_every_checkpoint(tmp_path: Path, calls: list[list[str]]) -> None:
    asked = ("--warmup", "1", "--steps", "2", "--repeats", "1", "--only", "baseline", "--curve")
    result = modes.measure(options(modes, tmp_path, *asked))
    curve = result["runs"]["baseline/0"]["curve"]
    assert [(point["step"], point["time_s"], point["mean"]) for point in curve] == [
        (0, 0, 0.5),
        (2, 16.0, 0.5),
    ]
    assert [call[0] for call in calls].count("evaluate_humaneval") == 2
    assert modes.table(result).splitlines()[-1].endswith("| 0.0 min |"), "it was there before training"
    result["settings"]["target"] = 0.6
    assert modes.table(result).splitlines()[-1].endswith("| not reached |")


def test_quality_measures_each_run_once_and_stops_at_its_limit(
    tmp_path: Path, calls: list[list[str]]
) -> None:
    asked = ("--seeds", "0", "1", "--only", "baseline", "aggressive", "--steps", "2")
    for limit, num_runs in ((1, 1), (2, 3), (9, 4), (9, 4)):
        result = quality.measure(options(quality, tmp_path, *asked, "--limit", str(limit)))
        assert len(result["runs"]) == 1 + num_runs
    trained = [call for call in calls if call[0].startswith("train")]
    assert len(trained) == 4 and len(calls) == 9
    assert quality.compared(result["runs"])["aggressive"]["mean"] == 0.0
    lines = quality.table(result).splitlines()
    assert "samples a task at temperature 1; before" in lines[0]
    assert "| above baseline (95 %) | share of baseline's |" in lines[2]
    assert lines[-2].startswith("| `baseline` | 50.0, 50.0 | 50.0 % |  |")
    assert lines[-1].endswith("| +0.0 % (+0.0 to +0.0) | 1.00 |")


def test_quality_is_against_the_first_contender_that_was_run_and_at_the_temperature_that_is_asked(
    tmp_path: Path, calls: list[list[str]]
) -> None:
    asked = ("--seeds", "0", "--steps", "2", "--temperature", "0.8")
    order = ("--only", "aggressive", "baseline-vllm")
    result = quality.measure(options(quality, tmp_path, *asked, *order))
    measured = [call for call in calls if call[0] == "evaluate_humaneval"]
    assert [call[call.index("--temperature") + 1] for call in measured] == ["0.8"] * 3
    assert list(quality.compared(result["runs"])) == ["aggressive"]
    lines = quality.table(result).splitlines()
    assert "samples a task at temperature 0.8; before" in lines[0]
    assert "| above baseline-vllm (95 %) |" in lines[2] and "`baseline-vllm`" in lines[-2]


def test_quality_takes_the_runs_that_modes_kept(tmp_path: Path, calls: list[list[str]]) -> None:
    asked = ("--steps", "2", "--only", "baseline", "--keep")
    modes.measure(options(modes, tmp_path, *asked, "--warmup", "1", "--repeats", "2", "--curve"))
    before = len(calls)
    given = options(quality, tmp_path, *asked, "--seeds", "0", "1")
    given.output = tmp_path / "quality.json"
    assert sorted(quality.measure(given)["runs"]) == ["base", "baseline/0", "baseline/1"]
    # Trained and measured: both are taken from what modes left.
    assert len(calls) == before


def test_a_difference_between_trainers_is_seen_and_noise_is_not() -> None:
    worse = [{f"t{task}": [task % 2, 8] for task in range(60)} for _ in range(3)]
    better = [{f"t{task}": [task % 2 + 2, 8] for task in range(60)} for _ in range(3)]
    found = quality.difference(worse, better)
    assert found.mean == pytest.approx(0.25) and found.low > 0.15
    same = quality.difference(worse, worse)
    assert same.low <= 0.0 <= same.high
    with pytest.raises(ValueError, match="no task"):
        quality.difference([{"a": [1, 1]}], [{"b": [1, 1]}])


@pytest.mark.parametrize("mode", ["conservative", "balanced", "aggressive"])
def test_an_ablation_has_a_row_for_every_technique_that_acts(mode: str) -> None:
    found = ablation.rows(mode, (), None)
    assert {"all", "plain", "no-packing", "only-packing", "only-early_abort"} <= set(found)
    assert ("no-early_abort" in found) == (mode == "aggressive")
    assert "only-in_flight" not in found and "only-bf16" not in found
    plain = ablation._with(mode, (), None, found["plain"])
    assert [key for key, technique in BY_KEY.items() if technique.is_on(plain)] == ["bf16"]
    alone = ablation._with(mode, (), None, found["only-packing"])
    assert [key for key, technique in BY_KEY.items() if technique.is_on(alone)] == ["packing", "bf16"]
    speeds = {"all": 2.0, "plain": 1.0, "no-packing": 1.0, "only-packing": 3.0}
    runs = {f"{name}/0": {"speed": {"samples_per_s": speed}} for name, speed in speeds.items()}
    assert ablation.ratios(runs, "no-packing") == [0.5] and ablation.ratios(runs, "only-packing") == [3.0]


def test_an_ablation_compares_rows_within_a_repeat(tmp_path: Path, calls: list[list[str]]) -> None:
    asked = ("--mode", "conservative", "--only", "packing", "--warmup", "1", "--steps", "1")
    result = ablation.measure(options(ablation, tmp_path, *asked))
    assert sorted(result["runs"]) == ["all/0", "no-packing/0", "only-packing/0", "plain/0"]
    assert ablation.ratios(result["runs"], "no-packing") == [1.0]
    (row,) = (line for line in ablation.table(result).splitlines() if line.startswith("| token packing "))
    assert row.startswith("| token packing (`acceleration.token_packing.enabled`) | exact | ")
    assert " | 1.00 | 1.00 | " in row


def test_a_second_answer_is_weighed_by_its_tokens(tmp_path: Path, calls: list[list[str]]) -> None:
    asked = ("--repeats", "2", "--warmup", "1", "--steps", "1")
    result = turn_speed.measure(options(turn_speed, tmp_path, *asked))
    given = [" ".join(call) for call in calls]
    assert [f"rollouts.max_turns={turns}" in one for turns, one in zip((1, 2, 2, 1), given, strict=True)] == [
        True
    ] * 4
    for name, length, rate in (("one answer", 100.0, 2.0), ("two answers", 250.0, 1.0)):
        for number in range(2):
            speed = result["runs"][f"{name}/{number}"]["speed"]
            speed["samples_per_s"], speed["means"]["rollout/completion_length"] = rate, length
            if name == "two answers":
                speed["means"]["rollout/feedback_tokens"] = 30.0
    one, two = turn_speed.table(result).splitlines()[-2:]
    assert one == "| one answer | 2.000 | 100 | 200 | 1.00 (1.00, 1.00) |  |  |"
    assert two == "| two answers | 1.000 | 250 | 250 | 1.25 (1.25, 1.25) | 30 | 1.40 (1.40, 1.40) |"


def test_what_was_measured_of_a_technique_that_is_gone_has_a_table_of_its_own() -> None:
    def run(technique: str, rate: float) -> dict[str, Any]:
        return {"technique": technique, "speed": {"samples_per_s": rate}}

    runs = {"plain/0": run("", 2.0), "only-packing/0": run("token packing", 3.0)}
    result = {
        "runs": runs,
        "settings": {"model": "m", "mode": "aggressive", "cores": 2, "steps": 6, "warmup": 3},
        "hardware": {"cpu": "c"},
    }
    assert "still there" in ablation.dropped_table(result)
    runs["only-gone/0"] = run("what did not pay", 1.8)
    assert ablation.dropped_table(result).splitlines()[2:] == ["| what did not pay | 0.90 |  |"]
    assert "what did not pay" not in ablation.table(result)


def test_a_command_is_watched_and_one_that_fails_is_named_with_its_words(tmp_path: Path) -> None:
    before = [process.pid for process in descendants(os.getpid())]
    terms = {"cores": CORES, "log": tmp_path / "log", "deadline_s": 60.0}
    watched = run_command("train_accelerated", ["--show-config"], **terms)  # type: ignore[arg-type]
    assert watched.seconds > 0.0
    assert "max_staleness" in (tmp_path / "log").read_text()
    with pytest.raises(RuntimeError, match=r"status 2: .*no such profile|status 2: .*--profile"):
        run_command("train_accelerated", ["--profile", "none"], **terms)  # type: ignore[arg-type]
    assert [process.pid for process in descendants(os.getpid())] == before
    adopts = ctypes.c_int(-1)
    assert ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts)) == 0
    assert adopts.value == 0, "whoever loses their parent would stay here as a zombie"


def test_memory_of_a_process_is_read_and_of_one_that_is_gone_is_none() -> None:
    with subprocess.Popen([sys.executable, "-c", "x = 'x' * 30_000_000; print(1, flush=True); input()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        assert 30 < proportional_mb(process.pid) < 90
        process.communicate(b"\n")
    assert proportional_mb(process.pid) == 0.0


def test_the_baseline_is_trls_trainer_and_comes_first() -> None:
    first, *_ = CONTENDERS.values()
    assert first == Contender(
        name="baseline", command="train_code_grpo", arguments=("--baseline-engine", "transformers")
    )


def test_modes_are_measured_against_trls_vllm_too_where_it_is_asked_for() -> None:
    assert "baseline-vllm" not in modes.parse([]).only
    assert modes.parse(["--only", "baseline-vllm", "balanced"]).only == ["baseline-vllm", "balanced"]
    speeds = {"baseline/0": 1.0, "baseline-vllm/0": 2.0, "balanced/0": 6.0}
    figures = {"step_s": 1.0, "rollouts_per_step": 8.0, "means": {"rollout/zero_signal_share": 0.0}}
    runs: dict[str, Any] = {
        key: {"speed": {"samples_per_s": speed, **figures}, "peak_mb": 1e3, "curve": []}
        for key, speed in speeds.items()
    }
    settings = {"model": "m", "cores": 2, "steps": 9, "warmup": 3, "target": 0.1}
    result = {"hardware": {"cpu": "a CPU"}, "settings": settings, "runs": runs}
    head, _, *rows = modes.table(result).splitlines()[2:]
    assert "times baseline (of each repeat) | times baseline-vllm (of each repeat)" in head
    assert rows[-1].startswith("| `balanced` | 6.00 | 6.00 (6.00) | 3.00 (3.00) | 6.00 (6.00) | 1.0 |")
    # Of the baseline's groups every other one has a gradient, of the mode's every one.
    for key, share in (("baseline/0", 0.5), ("balanced/0", 0.0)):
        runs[key]["speed"]["means"] = {"rollout/zero_signal_share": share}
    assert "| 3.00 (3.00) | 6.00 (12.00) | 1.0 |" in modes.table(result)
    # Without it the table is as it was.
    plain = {**result, "runs": {key: run for key, run in runs.items() if key != "baseline-vllm/0"}}
    assert "baseline-vllm" not in modes.table(plain)
