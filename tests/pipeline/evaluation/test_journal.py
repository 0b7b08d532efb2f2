from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.evaluation.evaluate import EvaluatedSample, EvaluationJournal
from rewards.result import infra_error
from sandbox.result import Outcome
from tests.pipeline.evaluation.answers import result_of

_IDENTITY = {"model": "m", "temperature": "0.6"}


def _sample(task_id: str, text: str = "answer\n", *, passed: bool = True) -> EvaluatedSample:
    return EvaluatedSample(
        task_id=task_id,
        text=text,
        result=result_of(Outcome.PASS if passed else Outcome.WRONG),
        min_policy_version=3,
        max_policy_version=4,
    )


def _open(path: Path, **changed: str) -> EvaluationJournal:
    return EvaluationJournal(path, {**_IDENTITY, **changed}, hint="delete it")


def _leave(path: Path) -> list[EvaluatedSample]:
    samples = [_sample("a"), _sample("b", "\ud800 ü\n", passed=False), _sample("a", "other")]
    journal = _open(path)
    for sample in samples:
        journal.add(sample)
    journal.close()
    return samples


def test_what_was_written_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    first, second, third = _leave(path)
    journal = _open(path)
    assert journal.kept == {"a": [first, third], "b": [second]}
    assert journal.num_kept == 3
    journal.add(_sample("c"))
    journal.close()
    assert _open(path).num_kept == 4


def test_a_journal_of_an_earlier_version_is_taken_up(tmp_path: Path) -> None:
    result = {"reward": 1.0, "breakdown": {"tests": 1.0}, "outcome": "pass", "passed": True, "detail": ""}
    result |= {"cached": False, "seconds": 0.25}
    plain = {"task_id": "a", "text": "\ud800 ü\n", "min_policy_version": 3, "max_policy_version": 4}
    turn = {"feedback": "wrong", "text": "again", "num_tokens": 7, "result": result}
    lines = [{"evaluation": _IDENTITY}, plain | {"result": result}]
    lines.append(plain | {"result": result, "turns": [turn], "resampled": False})
    path = tmp_path / "j.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    first, second = _open(path).kept["a"]
    assert first.text == "\ud800 ü\n" and first.turns == () and first.resampled is None
    assert first.result.outcome is Outcome.PASS and first.result.seconds == 0.25
    (later,) = second.turns
    assert (later.text, later.num_tokens, later.result, second.resampled) == ("again", 7, first.result, False)


@pytest.mark.parametrize("change", [{"text": 3}, {"max_policy_version": "new"}, {"turns": [{}] * 50}])
def test_a_sample_with_a_field_of_another_type_is_damage_that_is_told_in_one_line(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "j.jsonl"
    _leave(path)
    first, second, *others = path.read_text("utf-8").splitlines()
    damaged = json.dumps(json.loads(second) | change)
    path.write_text("\n".join([first, damaged, *others, ""]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"j\.jsonl:2: is damaged \(.*\); delete it") as refusal:
        _open(path)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 600


def test_what_was_ended_before_its_first_sample_stands_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(json.dumps({"evaluation": _IDENTITY}) + "\n", encoding="utf-8")
    journal = _open(path, temperature="0.9")
    assert journal.num_kept == 0
    journal.add(_sample("a"))
    journal.close()
    assert _open(path, temperature="0.9").num_kept == 1
    with pytest.raises(ValueError, match="an unfinished evaluation that differs"):
        _open(path)


def test_samples_that_could_not_be_judged_are_made_again(tmp_path: Path) -> None:
    journal = _open(tmp_path / "j.jsonl")
    journal.add(EvaluatedSample(task_id="a", text="x", result=infra_error("sandbox", 1.0)))
    journal.close()
    assert _open(tmp_path / "j.jsonl").kept == {}


@pytest.mark.parametrize("torn", ['{"task_id": "c", "te', "x", '{"task_id": "ü'.encode().decode("latin-1")])
def test_a_line_torn_by_a_crash_is_cut_off(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "j.jsonl"
    _leave(path)
    whole = path.read_bytes()
    path.write_bytes(whole + torn.encode("utf-8"))
    journal = _open(path)
    assert journal.num_kept == 3
    journal.add(_sample("c"))
    journal.close()
    assert path.read_bytes().startswith(whole + b'{"task_id": "c"')


def test_a_journal_of_another_evaluation_is_left_alone_and_the_difference_named(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    _leave(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"j.jsonl: .*\(temperature: 0.6 there, 0.0 here\); delete it"):
        _open(path, temperature="0.0")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not JSON\n", ":1: is no journal"),
        (b"no line at all", "is no journal"),
        (b'{"task_id": "a"}\n', ":1: is no journal"),
        (b"[]\n", ":1: is no journal"),
        (b"\xff\xfe\n", "is no journal"),
        (b'{"evaluation": {"model": "m", "temperature": "0.6"}}\n{}\n', ":2: is damaged"),
        (b'{"evaluation": {"model": "m", "temperature": "0.6"}}\n[1]\n', ":2: is damaged"),
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{reason}.*; delete it"):
        _open(path)
    assert path.read_bytes() == content


def test_only_one_evaluation_writes_at_a_time(tmp_path: Path) -> None:
    journal = _open(tmp_path / "j.jsonl")
    with pytest.raises(ValueError, match="another evaluation writes it just now"):
        _open(tmp_path / "j.jsonl")
    journal.close()
    assert not (tmp_path / "j.jsonl").exists()
    with pytest.raises(ValueError, match="cannot be written"):
        _open(tmp_path / "none" / "j.jsonl")
