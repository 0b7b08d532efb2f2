"""The coder's contest: what is measured is not measured again, and its table compares task by task."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks import coder
from benchmarks.report import RESULTS
from benchmarks.whole_runs import contest
from configs.load import load_config
from curriculum.sources import load_named_tasks

CONFIG = Path(__file__).parents[2] / coder.RECIPE


def write_mbpp(path: Path, numbers: list[int]) -> Path:
    row = {"text": "Double it.", "code": "def f(x):\n    return 2 * x", "test_list": ["assert f(1) == 2"]}
    rows = [{"task_id": number, **row} for number in numbers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parsed(folder: Path, mbpp: Path, *more: str) -> argparse.Namespace:
    files = ("--mbpp", str(mbpp), "--work", str(folder / "work"), "--output", str(folder / "result.json"))
    return coder.parse(["--config", str(CONFIG), *files, *more])


def test_each_measurement_is_done_once_and_a_seed_is_trained_on_the_training_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mbpp = write_mbpp(tmp_path / "mbpp.jsonl", [11, 510, 511, 974])
    trained, asked = [], []

    def train(seed: int, training: str, num_steps: int, given: argparse.Namespace) -> str:
        ids = [json.loads(line)["task_id"] for line in Path(training).read_text().splitlines()]
        trained.append((seed, ids, num_steps))
        return f"model {seed}"

    def verdicts(
        model: str, tasks: str, how: tuple[str, ...], given: argparse.Namespace, *, file: str
    ) -> Path:
        asked.append((model, Path(tasks).stem, how[0], file))
        task_id = load_named_tasks(tasks)[0].task_id
        said = {"task_id": task_id, "completion": "def f(): ...", "passed": True}
        path = tmp_path / f"{file}.jsonl"
        path.write_text(json.dumps(said), encoding="utf-8")
        return path

    monkeypatch.setattr(coder, "_trained", train)
    monkeypatch.setattr(contest, "verdicts", verdicts)
    coder.measure(parsed(tmp_path, mbpp, "--seeds", "5", "--limit", "7"))
    assert len(asked) == 7 and [model for model, *_ in asked[:6]] == [load_config(CONFIG).model.name] * 6
    assert asked[0] == (load_config(CONFIG).model.name, "mbpp_test", "--greedy", "base-mbpp-greedy")
    assert asked[6] == ("model 5", "mbpp_test", "--greedy", "seed-5-mbpp-greedy")
    result = coder.measure(parsed(tmp_path, mbpp, "--seeds", "5"))
    run = result["runs"]["seed 5/humaneval/sampled"]
    assert (run["tasks"], run["look_ups"]) == ({"HumanEval/0": [1, 1]}, {"HumanEval/0": [0, 1]})
    assert len(asked) == 12 == len({file for *_, file in asked})
    assert trained == [(5, [511, 974], 100)] * 6
    # The file alone, not where this machine has it.
    assert str(tmp_path) not in json.dumps(result["settings"]).replace(str(CONFIG), "")


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_trained_model_stays_until_its_last_measurement_or_for_good(
    is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work" / "coder-5"

    def train(seed: int, *terms: object) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    monkeypatch.setattr(coder, "_trained", train)
    monkeypatch.setattr(coder, "_parts", lambda mbpp, work: ("training", "test"))
    monkeypatch.setattr(coder, "read_pass_rates", lambda results: {})
    monkeypatch.setattr(coder, "look_ups", lambda results, tasks: {})
    monkeypatch.setattr(contest, "verdicts", lambda *terms, **more: tmp_path)
    words = ("--seeds", "5", *(["--keep"] if is_kept else []))
    coder.measure(parsed(tmp_path, tmp_path, *words, "--limit", "11"))
    assert folder.exists()
    coder.measure(parsed(tmp_path, tmp_path, *words))
    assert folder.exists() == is_kept


def test_the_measured_seeds_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = parsed(tmp_path, tmp_path)
    assert contest.open_store(given).result()["settings"]["seed"] == 0
    told = json.loads((RESULTS / "coder_cpu.json").read_text())
    here = {
        "hardware": {"cpu": "AMD EPYC", "has_bf16": True, "kernel": "another"},
        "versions": told["versions"],
    }
    monkeypatch.setattr(contest, "circumstances", lambda *packages: here)
    monkeypatch.setattr(contest, "write_result", lambda *terms: None)
    given.config, given.output = coder.RECIPE, RESULTS / "coder_cpu.json"
    monkeypatch.chdir(CONFIG.parents[2])
    assert list(contest.open_store(given).missing(told["runs"])) == []


def test_the_table_compares_with_the_base_task_by_task() -> None:
    def run(*passed: int, num: int) -> dict[str, object]:
        return {"tasks": {str(index): [one, num] for index, one in enumerate(passed)}}

    runs = {
        "base/mbpp/sampled": {**run(0, 4, 2, num=8), "look_ups": {"0": [1, 8], "1": [0, 8], "2": [2, 8]}},
        "base/mbpp/greedy": run(0, 1, 0, num=1),
        "seed 1/mbpp/sampled": run(2, 6, 4, num=8),
        "seed 1/mbpp/greedy": run(1, 1, 0, num=1),
    }
    text = coder.table({"settings": {"model": "m"}, "runs": runs})
    base, trained = text.splitlines()[4:]
    assert "| 25.0 % (" in base and "| 66.7 % |" in base and "| 12.5 % |" in base
    assert "| 50.0 % (" in trained and "| 100.0 % |" in trained
    assert "+25.0 % (-63.4 to +78.1)" in trained and "1 won, 0 lost, p = 1" in trained


def test_a_file_without_the_test_part_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mbpp = write_mbpp(tmp_path / "mbpp.jsonl", [511, 974])
    given = parsed(tmp_path, mbpp)
    assert contest.run_to_the_end(lambda: coder.measure(given), coder.table) == 2
    assert "holds no task of MBPP's test part" in capsys.readouterr().err
