"""The command: what it writes, where it goes on, what it refuses, and a set that is wrong in every way."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from curriculum.__main__ import main
from curriculum.audit.command import _locked
from tests.bad_input.harness import Case, refuse
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer
from tests.processes import printed_under_hash_seeds

GOOD = {
    "task_id": "double",
    "prompt": "Write double(x), twice the number x. </script> & so on",
    "entry_point": "double",
    "tests": [{"args": [2], "expected": 4}, {"args": [3], "expected": 6}],
    "reference": "def double(x):\n    return 2 * x\n",
}
# A set that is wrong in every way: what is changed, and the kind of fault that comes of it.
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "wrong": ({"reference": "def double(x):\n    return x\n"}, "wrong reference"),
    "raises": ({"reference": "def double(x):\n    return x / 0\n"}, "wrong reference"),
    "endless": ({"reference": "def double(x):\n    while True:\n        pass\n"}, "never ends"),
    "broken": ({"prelude": "1 / 0\n"}, "broken tests"),
    "none": ({"reference": ""}, "no reference"),
    "untested": ({"tests": []}, "no task"),
    "größe-数": ({"prompt": "Verdopple die Größe: double(x). 数"}, ""),
    "sometimes": (
        {"reference": "import os\ndef double(x):\n    return 2 * x + (os.urandom(1)[0] < 192)\n"},
        "flaky|wrong reference",
    ),
    # As every run of a program draws the same, it takes runs of other seeds to see.
    "by chance": (
        {"reference": "import random\ndef double(x):\n    return 2 * x + (random.random() < 0.5)\n"},
        "flaky|wrong reference",
    ),
}


def write_tasks(path: Path, names: list[str]) -> Path:
    lines = [{**GOOD, "task_id": name, **(WRONG[name][0] if name in WRONG else {})} for name in names]
    path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")
    return path


def audit(*arguments: object) -> int:
    return main(
        ["audit", *map(str, arguments), "--against", "humaneval", "--timeout", "0.5", "--workers", "1"]
    )


def entries(folder: Path) -> dict[str, dict[str, object]]:
    lines = (folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["task_id"]: line for line in map(json.loads, lines)}


def test_what_is_wrong_is_counted_by_kind_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", ["double", *WRONG])
    before = tasks.read_bytes()
    assert audit(tasks, "--output", tmp_path / "out", "--add-tests", 2) == 1
    said = capsys.readouterr().out
    found = entries(tmp_path / "out")
    for name, (_, fault) in WRONG.items():
        if fault != "no task":
            assert re.fullmatch(f"({fault}).*" if fault else "", str(found[name]["fault"]), re.DOTALL), name
    for count, kind in ((1, "never ends"), (1, "broken tests"), (1, "no reference"), (1, "no task")):
        assert re.search(rf"^    {kind} +{count}  ", said, re.MULTILINE), kind
    assert found["wrong"]["num_tests"] == found["double"]["num_tests"] == len(GOOD["tests"])
    assert found["double"]["fault"] == "" and found["double"]["killed_share"] == 1.0
    assert tasks.read_bytes() == before
    # The page holds all of it, and no text of a task ends its script.
    page = (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 1 and json.dumps("größe-数")[1:-1] in page
    written = (tmp_path / "out" / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(written) == len(WRONG)


def test_a_run_that_was_ended_goes_on_and_a_task_that_has_changed_is_examined_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", ["a", "b", "c"])
    assert audit(tasks, "--output", tmp_path / "out") == 0
    assert "resumed" not in capsys.readouterr().err
    path = tmp_path / "out" / "audit.jsonl"
    # Ended in the middle of its last line.
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    write_tasks(tasks, ["a", "b", "c"])
    assert audit(tasks, "--output", tmp_path / "out") == 0
    assert "resumed: 2 of 3 were judged before" in capsys.readouterr().err
    text = tasks.read_text(encoding="utf-8").replace("2 * x", "x + x", 1)
    tasks.write_text(text, encoding="utf-8")
    assert audit(tasks, "--output", tmp_path / "out") == 0
    assert "resumed: 2 of 3 were judged before" in capsys.readouterr().err
    assert sorted(entries(tmp_path / "out")) == ["a", "b", "c"]


def test_with_a_limit_the_lines_of_the_other_tasks_stay_and_those_of_another_set_are_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", ["a", "b", "c"])
    assert audit(tasks, "--output", tmp_path / "out") == 0
    assert audit(tasks, "--limit", 1, "--output", tmp_path / "out") == 0
    assert "resumed: 1 of 1 were judged before" in capsys.readouterr().err
    assert sorted(entries(tmp_path / "out")) == ["a", "b", "c"]
    # Also where they were found with other settings.
    found = entries(tmp_path / "out")
    assert audit(tasks, "--limit", 1, "--output", tmp_path / "out", "--max-mutants", 1) == 0
    after = entries(tmp_path / "out")
    assert [after[name] == found[name] for name in "abc"] == [False, True, True]
    others = write_tasks(tmp_path / "others.jsonl", ["d"])
    before = (tmp_path / "out" / "audit.jsonl").read_bytes()
    assert audit(others, "--output", tmp_path / "out") == 2
    assert "holds the audit of 3 other tasks" in capsys.readouterr().err
    assert (tmp_path / "out" / "audit.jsonl").read_bytes() == before
    monkeypatch.chdir(tmp_path)
    assert audit(tasks, "--add-tests", 1) == 0
    assert audit(Path("audits") / "tasks" / "tasks.jsonl") == 2
    assert "would write over the audit beside" in capsys.readouterr().err


def test_a_line_that_is_no_json_is_named_and_the_others_are_examined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", ["a", "b"])
    first, second = tasks.read_text(encoding="utf-8").splitlines()
    tasks.write_text(f"{first}\n{{\n{second}\n", encoding="utf-8")
    assert audit(tasks, "--output", tmp_path / "out") == 1
    assert sorted(entries(tmp_path / "out")) == ["a", "b"]
    assert "no task" in capsys.readouterr().out
    assert f"{tasks}:2" in (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")


def test_the_key_of_a_task_is_the_same_in_every_process() -> None:
    program = (
        "from curriculum.audit.command import _key\n"
        "from curriculum.sources import load_named_tasks\n"
        "tasks = load_named_tasks('ladder')\n"
        "sets = [task for task in tasks if any(type(test.expected) is set for test in task.call_tests)]\n"
        "assert len(sets) > 3\n"
        "print([_key(task, {'aa', 'b', 'cc'}) for task in sets])"
    )
    keys = printed_under_hash_seeds(program)
    assert len(keys) == 1


def test_sets_with_tuples_are_examined_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert audit("ladder", "--limit", 40, "--max-mutants", 3, "--output", tmp_path / "out") == 0
    assert "resumed: 40 of 40 were judged before" in capsys.readouterr().err
    assert all(line["passed_by"] == [] for line in entries(tmp_path / "out").values())


def test_what_is_near_is_looked_for_anew_in_a_benchmark_that_has_changed_and_also_for_tasks_at_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", ["wrong"])
    benchmark = write_tasks(tmp_path / "benchmark.jsonl", ["known"])
    wanted = (tasks, "--output", tmp_path / "out", "--against", benchmark)
    assert audit(*wanted) == 1
    assert re.search(r"^  near a benchmark \(over 0.5\) +1  wrong$", capsys.readouterr().out, re.MULTILINE)
    assert entries(tmp_path / "out")["wrong"]["nearest"] == "known"
    other = {**GOOD, "task_id": "other", "prompt": "Something else.", "reference": ""}
    benchmark.write_text(json.dumps(other), encoding="utf-8")
    assert audit(*wanted) == 1
    assert re.search(r"^  near a benchmark \(over 0.5\) +0$", capsys.readouterr().out, re.MULTILINE)
    assert entries(tmp_path / "out")["wrong"]["nearest"] == ""


@pytest.mark.parametrize(("names", "status"), [(["double"], 2), (["double", "untested"], 1)])
def test_the_report_is_there_before_a_model_is_asked_and_stays_where_that_fails(
    names: list[str],
    status: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "evaluate"
    page = tmp_path / "out" / "audit.html"
    program.write_text(f"#!/bin/sh\ntest -s '{page}' && echo 'has a page' >&2\nexit 2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr("curriculum.audit.command._evaluation", lambda: str(program))
    tasks = write_tasks(tmp_path / "tasks.jsonl", names)
    assert audit(tasks, "--output", tmp_path / "out", "--model", "tiny") == status
    said = capfd.readouterr()
    assert "has a page\nnote: --model: value 'tiny'" in said.err
    assert "mutants killed" in said.out and "pass rate" not in said.out


def test_a_task_whose_name_cannot_be_printed_is_named_by_its_line(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({**GOOD, "task_id": "a\ud83d"}), encoding="utf-8")
    assert audit(tasks, "--output", tmp_path / "out") == 1
    assert f"{tasks}:1" in (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")


def test_tasks_that_the_plain_form_cannot_say_are_named_and_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = json.dumps([{"input": "1\n", "output": "1.0\n", "testtype": "stdin"}])
    contest = {
        "question_id": "echo",
        "question_content": "Print the number that you read.",
        "difficulty": "easy",
        "public_test_cases": test,
        "private_test_cases": "[]",
    }
    tasks = write_tasks(tmp_path / "tasks.jsonl", ["a"])
    with tasks.open("a", encoding="utf-8") as file:
        file.write(json.dumps(contest) + "\n")
    for _ in range(2):
        assert audit(tasks, "--output", tmp_path / "out", "--add-tests", 1) == 0
        assert re.search(r"plain form cannot say: LiveCodeBench/echo$", capsys.readouterr().err, re.MULTILINE)
        written = (tmp_path / "out" / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["task_id"] for line in written] == ["a"]


CASES = {
    "no such file": (("audit", "absent.jsonl"), ("absent.jsonl: no such file",)),
    "no such set": (("audit", "laddr"), ("'laddr'", "ladder")),
    "an empty file": (("audit", "empty.jsonl"), ("empty.jsonl", "no task")),
    "no JSON": (("audit", "text.jsonl"), ("text.jsonl:1", "one JSON object")),
    "split of a file": (
        ("audit", "tasks.jsonl", "--split", "train"),
        ("--split", "'train'", "a file has none"),
    ),
    "split with a model, whose evaluation has none": (
        ("audit", "ladder", "--split", "heldout", "--model", "smollm2-135m-instruct"),
        ("--split", "'heldout'", "--model"),
    ),
    "no such split": (("audit", "ladder", "--split", "dev"), ("'dev'", "heldout")),
    "no new tests": (("audit", "ladder", "--add-tests", "0"), ("--add-tests", "whole number > 0")),
    "no time": (("audit", "ladder", "--timeout", "0"), ("--timeout", "> 0")),
    "no such module": (("audit", "ladder", "--module", "nump"), ("--module", "nump is not installed")),
    "no such benchmark": (("audit", "ladder", "--against", "humanevil"), ("'humanevil'", "humaneval")),
    "new tests over the tasks": (
        ("audit", "tasks.jsonl", "--output", ".", "--add-tests", "3"),
        ("--add-tests", "tasks.jsonl", "--output"),
    ),
    "new tests over a benchmark": (
        ("audit", "ladder", "--output", "here", "--add-tests", "3", "--against", "here/../here/tasks.jsonl"),
        ("--add-tests", "here/tasks.jsonl", "--output"),
    ),
    "answers over the tasks": (
        ("audit", "samples.jsonl", "--output", ".", "--model", "smollm2-135m-instruct"),
        ("--model", "samples.jsonl", "--output"),
    ),
    "a split that another set has": (
        ("audit", "ladder-heldout", "--split", "all"),
        ("--split", "'all'", "train (the default"),
    ),
    "no such verb": (("adit", "ladder"), ("'adit'", "audit")),
    "no such flag": (("audit", "ladder", "--add-test", "3"), ("--add-test", "--add-tests")),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_audited_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, says = CASES[name]
    write_tasks(tmp_path / "tasks.jsonl", ["a"])
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    (tmp_path / "text.jsonl").write_text("a task\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    refuse(Case(command=main, arguments=arguments, says=says), tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_pass_rate_of_a_model_is_measured_beside_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = ("ladder", "--limit", 2, "--output", tmp_path / "out")
    # vLLM's kernels for CPUs know no heads of 16.
    make_byte_model(0, initializer_range=0.02).save_pretrained(tmp_path / "model")
    make_byte_tokenizer().save_pretrained(tmp_path / "model")
    assert audit(*tasks, "--model", tmp_path / "model") == 0
    assert "pass rate of the model" in capfd.readouterr().out
    page = (tmp_path / "out" / "audit.html").read_text(encoding="utf-8")
    rates = re.findall(r'"pass_rate": ([\d.]+|null)', page)
    assert len(rates) == 2 and all(rate in ("0.0", "0.25", "0.5", "0.75", "1.0") for rate in rates)
    # A model that is none ends with a word of its own, and what was found of the tasks is kept.
    assert audit(*tasks, "--model", tmp_path) == 2
    assert "--model: value" in capfd.readouterr().err
    assert len(entries(tmp_path / "out")) == 2


def test_a_folder_is_one_audits_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", ["a"])
    with _locked(tmp_path / "out"):
        assert audit(tasks, "--output", tmp_path / "out") == 2
    assert "another audit writes there just now; give another folder" in capsys.readouterr().err
    assert audit(tasks, "--output", tmp_path / "out") == 0
