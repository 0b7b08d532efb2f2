"""The measurement of second answers: each done once, by the real command, and its table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import turns


def estimate(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.1, "high": mean + 0.1, "num_tasks": 3}


FOUND: dict[str, Any] = {
    "pass_after": [estimate(0.4), estimate(0.5)],
    "repaired": estimate(0.2),
    "resampled_by_answers": estimate(0.4),
    "above_resampled_by_answers": estimate(0.1),
    "resampled": estimate(0.45),
    "above_resampled": estimate(0.05),
    "num_feedback_turns": 3,
    "repairs": {"a": [0, 1], "b": [1, 1]},
}
VERDICTS = [
    {"task_id": "a", "passed": True},
    {"task_id": "a", "passed": False, "turns": [{"passed": True}]},
    {"task_id": "a", "passed": False, "turns": [{"passed": False}]},
    {"task_id": "b", "passed": False, "turns": [{"passed": None}]},
    {"task_id": "b", "passed": None},
]


def test_each_model_and_kind_is_measured_once_as_the_command_line_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: str, arguments: Sequence[str], **terms: object) -> None:
        assert command == "evaluate_humaneval"
        asked.append([*arguments])
        output = arguments[arguments.index("--output") + 1]
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        Path(f"{output}_report.json").write_text(json.dumps({"turns": {"m": FOUND}}))
        Path(f"{output}_results.jsonl").write_text("\n".join(map(json.dumps, VERDICTS)))

    monkeypatch.setattr("benchmarks.whole_runs.training_run.run_command", run)
    words = ["--tasks", "t.jsonl", "--models", "runs/a/step-1", "b", "--work", str(tmp_path / "work")]
    words += ["--output", str(tmp_path / "result.json")]
    turns.measure(turns.parse([*words, "--limit", "1"]))
    result = turns.measure(turns.parse(words))
    assert list(result["runs"]) == ["step-1/public", "step-1/verdict", "b/public", "b/verdict"]
    assert len(asked) == 4
    assert result["runs"]["b/public"]["repairs"] == {"a": [1, 2]}
    first = " ".join(asked[0])
    assert "--model runs/a/step-1 --tasks t.jsonl" in first and "--turns 2 --feedback public" in first
    assert len({arguments[arguments.index("--output") + 1] for arguments in asked}) == 4


def test_models_in_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [tmp_path / run / "step-000012" for run in "ab"]
    for size, folder in enumerate(folders, start=1):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x" * size)
    first, second = (turns.key_of(str(folder)) for folder in folders)
    assert first != second and first == turns.key_of(f"{folders[0]}/")
    assert first.startswith("step-000012-") and second.startswith("step-000012-")
    assert turns.key_of("org/coder") == "coder"


def test_the_table_has_every_turn_and_leaves_out_what_greedy_answers_lack() -> None:
    settings = {"tasks": "t.jsonl", "samples": 1, "turns": 2}
    greedy = {
        **FOUND,
        "resampled_by_answers": None,
        "above_resampled_by_answers": None,
        "resampled": None,
        "above_resampled": None,
    }
    better = {**FOUND, "repairs": {"a": [1, 1], "b": [1, 1]}}
    runs = {"m/public": FOUND, "m/verdict": greedy, "n/public": better}
    _, _, head, _, public, verdict, other = turns.table({"settings": settings, "runs": runs}).splitlines()
    assert "passed after turn 2" in head
    assert public.startswith("| m | `public` | 40.0 % (30.0 to 50.0) | 50.0 %") and "+5.0 % (" in public
    assert verdict.endswith("|  |  |")
    assert [cell.strip()[:6] for cell in public.split("|")[7:11]] == ["40.0 %", "+10.0 ", "45.0 %", "+5.0 %"]
    cells = [cell.strip() for cell in other.split("|")]
    assert cells[6].startswith("+50.0 % (")
    assert public.split("|")[6].strip() == ""
    # A result of an earlier version has no account of the repairs, and counted feedback always.
    later = ("repairs", "resampled_by_answers", "above_resampled_by_answers")
    earlier = {name: value for name, value in FOUND.items() if name not in later}
    old = turns.table({"settings": settings, "runs": {"m/public": earlier, "n/public": better}})
    assert old.splitlines()[-1].split("|")[6].strip() == ""
    assert [cell.strip()[:6] for cell in old.splitlines()[-2].split("|")[7:11]] == [
        "",
        "",
        "45.0 %",
        "+5.0 %",
    ]


def test_without_a_second_answer_there_is_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        turns.parse(["--turns", "1"])
    assert "--turns: 1 is not allowed; allowed: 2 or more" in capsys.readouterr().err
