"""Prompts that are too long: named and counted, refused or left out, in a run and in a dry run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from transformers import PreTrainedTokenizerBase

from configs.schema import Config
from curriculum.task import Task
from pipeline.cli import train_accelerated
from pipeline.evaluation.sound_tasks import tasks_that_fit
from tests.pipeline.tiny_model import save_model

CHECK = "def check(candidate):\n    assert candidate() == 1\n"


class Words:
    """A token a word."""

    chat_template = None

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [1] * len(text.split())}


def task(name: str, num_words: int) -> Task:
    return Task(task_id=name, prompt="word " * num_words, entry_point="f", check_source=CHECK)


SHORT, LONG, LONGER = task("short", 5), task("long", 100), task("longer", 600)


def fit(tasks: list[Task], heldout: list[Task], overlong: str, notes: list[str]) -> list[str]:
    settings: dict[str, Any] = {
        "dataset": {"overlong_prompts": overlong},
        "generation": {"max_prompt_length": 60},
    }
    tokenizer = cast(PreTrainedTokenizerBase, Words())
    config = Config.model_validate(settings)
    kept = tasks_that_fit(tokenizer, tasks, heldout, config, lambda kind, text: notes.append(text))
    return [one.task_id for one in kept]


def test_long_prompts_are_left_out_with_a_note_where_that_is_asked_for() -> None:
    notes: list[str] = []
    assert fit([LONG, SHORT, LONGER], [SHORT], "skip", notes) == ["short"]
    (note,) = notes
    assert "value 60: 2 of 3 prompts have more tokens: 'longer' (" in note
    assert note.index("'longer'") < note.index("'long' (") and note.endswith("are left out")
    assert fit([SHORT], [], "skip", notes) == ["short"] and len(notes) == 1


def test_prompts_of_which_tests_were_hidden_are_counted() -> None:
    notes: list[str] = []
    assert fit([SHORT, replace(SHORT, task_id="cut", hides_tests=True)], [], "error", notes) == [
        "short",
        "cut",
    ]
    assert notes == [
        "1 of 2 prompts show all the tests that judge their answers: the first stays, the others are hidden "
        "(dataset.shown_tests)"
    ]


@pytest.mark.parametrize(
    ("tasks", "heldout", "overlong", "said"),
    [
        ([LONG, SHORT], [], "error", "1 of 2 prompts .*'long' .*set dataset.overlong_prompts to skip"),
        ([LONG, LONGER], [], "skip", "2 of 2 prompts .*no task is left"),
        ([SHORT], [LONGER], "skip", "1 of 1 prompts .*'longer' .*evaluation.tasks must fit"),
    ],
)
def test_what_may_not_be_left_out_is_refused_by_name(
    tasks: list[Task], heldout: list[Task], overlong: str, said: str
) -> None:
    with pytest.raises(ValueError, match=rf"generation.max_prompt_length: value 60: {said}"):
        fit(tasks, heldout, overlong, [])


@pytest.mark.parametrize(("overlong", "status"), [("error", 2), ("skip", 0)])
def test_a_dry_run_counts_them_too(
    overlong: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_model(tmp_path / "model")
    file = tmp_path / "tasks.jsonl"
    rows = [
        {"task_id": one.task_id, "prompt": one.prompt, "entry_point": "f", "check": one.check_source}
        for one in (SHORT, LONGER)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = [f"dataset.overlong_prompts={overlong}", "evaluation.enabled=false"]
    settings += ["generation.max_prompt_length=400", "training.per_device_train_batch_size=8"]
    overrides = [part for setting in settings for part in ("--set", setting)]
    arguments = ["--dry-run", "--model", str(model), "--dataset", str(file), *overrides]
    assert train_accelerated(arguments) == status
    said = capsys.readouterr()
    assert "1 of 2 prompts have more tokens: 'longer'" in (said.err if status else said.out)
