from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from configs.evaluation_options import EvaluationOptions
from configs.schema import ExecutionConfig, GenerationConfig
from curriculum.humaneval import load_humaneval
from curriculum.ladder.index import ladder_tasks
from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.evaluation.command import run_evaluation
from pipeline.evaluation.evaluate import (
    EvaluatedSample,
    EvaluationJournal,
    EvaluationReport,
    EvaluationTerms,
    TextScorer,
    evaluate_tasks,
)
from pipeline.evaluation.forms import ChatForm
from pipeline.evaluation.samples import read_samples, sample_completion, sample_program, write_samples
from pipeline.evaluation.scorers import SandboxScorer
from pipeline.generation.generator import GeneratorError
from pipeline.messages import SamplingSettings
from pipeline.models.prompts import encode_prompt, stop_strings
from rewards.result import RewardResult
from sandbox.pool import SandboxPool
from sandbox.result import Outcome
from tests.fake_sandbox import FakeSandbox
from tests.pipeline.evaluation.answers import ScriptedGenerator, result_of, write_tasks
from tests.pipeline.tiny_model import make_tokenizer, save_model

_PREFILL = "```python\n"


def evaluate(
    generator: ScriptedGenerator,
    tasks: Sequence[Task],
    num_samples: int,
    scorer: TextScorer,
    *,
    seed: int = 0,
    prefill: str = "",
    task_timeout_s: float = 60.0,
) -> EvaluationReport:
    form = ChatForm(tokenizer=make_tokenizer(), generation=GenerationConfig(assistant_prefill=prefill))
    settings = SamplingSettings(max_completion_length=1000)
    terms = EvaluationTerms(task_timeout_s=task_timeout_s)
    return asyncio.run(
        evaluate_tasks(generator, tasks, form, settings, num_samples, scorer, seed, terms=terms)
    )


class _FixedScorer:
    """Gives each text the outcome that ``outcome_of`` says."""

    def __init__(self, outcome_of: Callable[[str], Outcome]) -> None:
        self._outcome_of = outcome_of

    async def score(self, task: Task, text: str) -> RewardResult:
        return result_of(self._outcome_of(text), "said so")


def test_every_second_reference_passes_half_the_time_in_the_real_sandbox(sandbox: SandboxPool) -> None:
    tasks = ladder_tasks("heldout")[:6]
    task_of = {f"evaluation/{task.task_id}": task for task in tasks}

    def answer(name: str, index: int) -> str:
        wrong = f"def {task_of[name].entry_point}(*args):\n    raise ValueError\n"
        return (wrong if index % 2 else task_of[name].reference) + "```"

    scorer = SandboxScorer(sandbox, ExecutionConfig())
    report = evaluate(ScriptedGenerator(answer), tasks, 4, scorer, prefill=_PREFILL)
    assert report.outcomes == {"pass": 12, "exception": 12}, report.samples
    assert [(count.num_samples, count.num_correct) for count in report.counts] == [(4, 2)] * 6
    assert [count.task_id for count in report.counts] == [task.task_id for task in tasks]
    assert report.pass_at_1.mean == 0.5
    assert [sample.result.passed for sample in report.samples] == [True, False] * 12
    assert "pass@1 50.0 %" in report.describe()


def test_requests_are_bounded_and_their_seeds_depend_on_seed_and_task_only() -> None:
    tasks = ladder_tasks("train")[:80]
    scorer = _FixedScorer(lambda text: Outcome.WRONG)
    seeds = []
    for seed, chosen in ((0, tasks), (0, tasks[40:]), (1, tasks)):
        generator = ScriptedGenerator(lambda name, index: "")
        evaluate(generator, chosen, 2, scorer, seed=seed)
        assert generator.most_writing <= 32
        seeds.append({request.request_id: request.seed for request in generator.requests})
    assert seeds[1].items() <= seeds[0].items()
    assert all(seeds[0][name] != seeds[2][name] for name in seeds[0])
    assert len(set(seeds[0].values())) == len(tasks)


def test_what_is_asked_is_the_prompt_with_its_prefill_and_ends_where_the_form_says() -> None:
    tasks = ladder_tasks("train")[:3]
    generator = ScriptedGenerator(lambda name, index: "")
    evaluate(generator, tasks, 1, _FixedScorer(lambda text: Outcome.WRONG), prefill=_PREFILL)
    with_prefill, without = (GenerationConfig(assistant_prefill=prefill) for prefill in (_PREFILL, ""))
    asked = {request.request_id: request for request in generator.requests}
    for task in tasks:
        request = asked[f"evaluation/{task.task_id}"]
        assert request.prompt_ids == encode_prompt(make_tokenizer(), task, with_prefill)
        assert request.prompt_ids != encode_prompt(make_tokenizer(), task, without)
        assert request.sampling.stop == stop_strings(with_prefill) != ()


def test_what_is_missing_of_a_task_is_not_drawn_with_the_seed_of_what_is_there(tmp_path: Path) -> None:
    (task,) = ladder_tasks("train")[:1]
    form = ChatForm(tokenizer=make_tokenizer(), generation=GenerationConfig())
    seeds = []
    for num_kept in (0, 1):
        generator = ScriptedGenerator(lambda name, index: "")
        path = tmp_path / f"journal{num_kept}.jsonl"
        earlier = EvaluationJournal(path, {}, hint="")
        for _ in range(num_kept):
            earlier.add(EvaluatedSample(task_id=task.task_id, text="", result=result_of(Outcome.WRONG)))
        earlier.close()
        journal = EvaluationJournal(path, {}, hint="")
        scorer = _FixedScorer(lambda text: Outcome.WRONG)
        settings = SamplingSettings(max_completion_length=8)
        evaluation = evaluate_tasks(
            *(generator, [task], form, settings, 2, scorer, 0),
            terms=EvaluationTerms(task_timeout_s=60.0),
            journal=journal,
        )
        asyncio.run(evaluation)
        (request,) = generator.requests
        assert request.num_generations == 2 - num_kept
        seeds.append(request.seed)
        journal.close()
    assert seeds[0] != seeds[1]


def test_samples_that_could_not_be_judged_are_counted_apart() -> None:
    tasks = ladder_tasks("heldout")[:2]
    lost = f"evaluation/{tasks[1].task_id}"
    generator = ScriptedGenerator(lambda name, index: "infra_error" if index == 0 or name == lost else "pass")
    report = evaluate(generator, tasks, 4, _FixedScorer(Outcome))
    assert [(count.task_id, count.num_samples) for count in report.counts] == [(tasks[0].task_id, 3)]
    assert report.pass_at_1.mean == 1
    assert report.outcomes == {"pass": 3, "infra_error": 5}
    assert "5 samples could not be judged" in report.describe()


def test_an_evaluation_that_judged_nothing_is_an_error_with_the_reason() -> None:
    scorer = _FixedScorer(lambda text: Outcome.INFRA_ERROR)
    generator = ScriptedGenerator(lambda name, index: "")
    with pytest.raises(StageError, match=r"none of 4 samples.*said so"):
        evaluate(generator, ladder_tasks("train")[:2], 2, scorer)


def test_missing_samples_and_a_silent_generator_name_the_task() -> None:
    (task,) = ladder_tasks("train")[:1]
    scorer = _FixedScorer(lambda text: Outcome.WRONG)
    few = ScriptedGenerator(lambda name, index: "", num_missing=1)
    with pytest.raises(GeneratorError, match=rf"{task.task_id}: the generator gave 3 of 4"):
        evaluate(few, [task], 4, scorer)
    silent = ScriptedGenerator(lambda name, index: "")
    silent.is_asleep = True
    with pytest.raises(GeneratorError, match=rf"{task.task_id}: 4 samples were not there"):
        evaluate(silent, [task], 4, scorer, task_timeout_s=0.05)


def test_a_scorers_failure_ends_the_evaluation_as_itself() -> None:
    def fail(text: str) -> Outcome:
        raise ZeroDivisionError("scorer")

    generator = ScriptedGenerator(lambda name, index: "")
    with pytest.raises(ZeroDivisionError, match="scorer"):
        evaluate(generator, ladder_tasks("train")[:3], 2, _FixedScorer(fail))


def test_a_check_that_cannot_run_is_not_the_answers_fault() -> None:
    scorer = SandboxScorer(FakeSandbox(Outcome.PASS), ExecutionConfig())
    task = replace(load_humaneval()[0], check_source="broken")
    result = asyncio.run(scorer.score(task, "def f(): pass"))
    assert result.outcome is Outcome.INFRA_ERROR
    assert math.isnan(result.reward)
    assert "HumanEval/0" in result.detail


def check_passes(task: Task, program: str) -> None:
    """As OpenAI's harness does."""
    names: dict[str, object] = {}
    exec(f"{program}\n{task.check_source}\n", names)
    check = names["check"]
    assert callable(check)
    check(names[task.entry_point])


def test_published_completions_run_behind_their_prompts_as_in_openais_harness() -> None:
    for task in load_humaneval()[::8]:
        answer = f"Here it is:\n{_PREFILL}{task.reference}\n```\nDone."
        check_passes(task, task.prompt + sample_completion(task, answer))


def test_a_completion_of_a_head_without_docstring_is_scored_as_it_was_when_it_is_read_again() -> None:
    head = replace(load_humaneval()[0], prompt="def add(a, b):\n    # The sum.\n", entry_point="add")
    program = "def add(a, b):\n    return a + b"
    published = sample_completion(head, f"```python\n{program}\n```")
    assert sample_program(head, published).strip() == program


def test_a_program_that_must_begin_its_file_is_published_and_read_by_itself(tmp_path: Path) -> None:
    task = load_humaneval()[0]
    program = f"from __future__ import annotations\n\n{task.prompt}{task.reference}"
    published = sample_completion(task, f"```python\n{program}\n```")
    check_passes(task, sample_program(task, published))
    file = tmp_path / "evalplus.jsonl"
    file.write_text(json.dumps({"task_id": task.task_id, "solution": program}) + "\n")
    ((_, completion),) = read_samples(str(file), [task], ())
    check_passes(task, sample_program(task, completion))


def test_a_published_completion_stands_for_a_continuation_a_program_or_a_chat_answer() -> None:
    head, words = load_humaneval()[0], ladder_tasks("train")[0]
    body = head.reference.removeprefix(head.prompt)
    assert sample_program(head, body) == head.reference
    assert sample_program(words, words.reference) == words.reference
    assert (
        sample_program(words, f"Sure:\n```python\n{words.reference}\n```").strip() == words.reference.strip()
    )


def test_samples_in_a_file_are_scored_and_written_with_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = load_humaneval()[:4]
    file, stem = tmp_path / "samples.jsonl", str(tmp_path / "verdicts")
    bodies = [task.reference.removeprefix(task.prompt) for task in tasks]
    samples = [(task.task_id, body) for task, body in zip(tasks, bodies, strict=True)]
    samples += [(task.task_id, "    return None\n") for task in tasks]
    write_samples(file, samples)
    assert run_evaluation(EvaluationOptions(samples=str(file), ks=(1, 2, 3), limit=4, output=stem)) == 0
    lines = [json.loads(line) for line in Path(f"{stem}_results.jsonl").read_text("utf-8").splitlines()]
    assert [line["passed"] for line in lines] == [True] * 4 + [False] * 4
    assert lines[0]["result"] == "passed"
    assert lines[4]["result"].startswith("failed: wrong")
    assert [(line["task_id"], line["completion"]) for line in lines] == samples
    shown = capsys.readouterr().out
    assert "50.0 %" in shown
    assert "100.0 %" in shown
    assert "a task has 2 samples" in shown


def test_a_whole_solution_behind_a_head_without_a_docstring_is_that_program(tmp_path: Path) -> None:
    prompt, program = "def last(items):\n    # The last item\n", "def last(items):\n    return items[-1]\n"
    task = Task(task_id="t", prompt=prompt, entry_point="last", check_source="def check(f): pass")
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps({"task_id": "t", "solution": program}) + "\n")
    ((_, completion),) = read_samples(str(file), [task], ())
    assert sample_program(task, completion).strip() == program.strip()


def test_whole_solutions_in_evalplus_form_are_read_as_programs(tmp_path: Path) -> None:
    task = load_humaneval()[0]
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps({"task_id": task.task_id, "solution": task.reference}), encoding="utf-8")
    ((_, completion),) = read_samples(str(file), [task], ())
    check_passes(task, sample_program(task, completion))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"task_id": "HumanEval/0", "solution": 3}', r"field 'solution': value 3"),
        ('{"task_id": "HumanEval/0"}', r":1: field 'completion': value missing"),
        ('{"completion": "x"}', r":1: field 'task_id': value missing"),
        ('{"task_id": "HumanEval/0", "completion": 3}', r"field 'completion': value 3"),
        ('{"task_id": "Other/0", "completion": "x"}', r"no line has a task_id of the chosen tasks"),
        ("completion", r":1: field \(whole line\)"),
    ],
)
def test_malformed_samples_are_named_with_their_line(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=reason):
        read_samples(str(file), load_humaneval(), ())


def sampled(folder: Path, *, seed: int, num_samples: int, temperature: float) -> str:
    """The file of samples of an evaluation of the first two tasks."""
    out = folder / "samples.jsonl"
    options = EvaluationOptions(
        model=str(save_model(folder / "model")),
        tasks=str(write_tasks(folder / "tasks.jsonl")),
        num_samples=num_samples,
        temperature=temperature,
        ks=(1,),
        limit=2,
        engine="transformers",
        max_completion_length=8,
        output=str(out),
        seed=seed,
    )
    assert run_evaluation(options) == 0
    return out.read_text("utf-8")


def test_sampling_with_the_transformers_engine_writes_samples_verdicts_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = sampled(tmp_path, seed=0, num_samples=2, temperature=1.0)
    out, shown = tmp_path / "samples.jsonl", capsys.readouterr().out
    # The title is as wide as the table, and its path as long as the folder's.
    assert "2 of 2 tasks" in " ".join(shown.split()) and "0.0 %" in shown and "exception 4" in shown
    assert f"samples: {out}" in shown.replace("\n", "")
    samples = [json.loads(line) for line in first.splitlines()]
    assert [line["task_id"] for line in samples] == ["a", "a", "b", "b"]
    results = [json.loads(line) for line in Path(f"{out}_results.jsonl").read_text("utf-8").splitlines()]
    assert [(line["task_id"], line["completion"]) for line in results] == [
        (line["task_id"], line["completion"]) for line in samples
    ]
    assert all(line["passed"] is False and line["result"].startswith("failed") for line in results)
    assert sampled(tmp_path, seed=0, num_samples=2, temperature=1.0) == first
    assert sampled(tmp_path, seed=1, num_samples=2, temperature=1.0) != first


def test_a_greedy_evaluation_takes_the_most_probable_token(tmp_path: Path) -> None:
    texts = [sampled(tmp_path, seed=seed, num_samples=1, temperature=0.0) for seed in (0, 1)]
    assert texts[0] == texts[1]
