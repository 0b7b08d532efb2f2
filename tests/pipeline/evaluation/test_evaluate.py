from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from configs.evaluation_options import EvaluationOptions
from configs.schema import ExecutionConfig
from curriculum.humaneval import load_humaneval
from curriculum.ladder.index import ladder_tasks
from curriculum.task import Task
from pipeline.errors import StageError
from pipeline.evaluation.command import run_evaluation
from pipeline.evaluation.evaluate import EvaluationReport, EvaluationTerms, difference, evaluate_tasks
from pipeline.evaluation.forms import ChatForm
from pipeline.evaluation.samples import read_samples, sample_completion, sample_program, write_samples
from pipeline.evaluation.scorers import SandboxScorer
from pipeline.generation.generator import GeneratorError
from pipeline.messages import Completion, GenerationRequest, SamplingSettings, WeightsLoaded, WeightUpdate
from rewards.result import RewardResult
from sandbox.pool import SandboxPool
from sandbox.result import ExecutionRequest, ExecutionResult, Outcome
from tests.pipeline.tiny_model import save_model

_PREFILL = "```python\n"
_SETTINGS = SamplingSettings()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool() as pool:
        yield pool


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core)  # type: ignore[no-untyped-call]


def _form(tokenizer: PreTrainedTokenizerFast, prefill: str = "") -> ChatForm:
    return ChatForm(tokenizer=tokenizer, prefill=prefill, stops=())


class _ScriptedGenerator:
    """Answers what ``answer(task_id, index)`` says, the last sample first; counts what is in flight."""

    def __init__(self, answer: Callable[[str, int], str], *, num_missing: int = 0) -> None:
        self._answer = answer
        self._num_missing = num_missing
        self._num_in_flight = 0
        self.most_in_flight = 0
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.requests.append(request)
        self._num_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._num_in_flight)
        task_id = request.request_id.removeprefix("evaluation/")
        for index in reversed(range(self._num_missing, request.num_generations)):
            await asyncio.sleep(0)
            yield Completion(
                index=index,
                token_ids=(1,),
                logprobs=(0.0,),
                text=self._answer(task_id, index),
                finish_reason="stop",
                min_policy_version=0,
                max_policy_version=0,
            )
        self._num_in_flight -= 1

    async def update_weights(self, update: WeightUpdate) -> WeightsLoaded:
        raise NotImplementedError

    async def stats(self) -> dict[str, float]:
        return {}

    async def sleep(self) -> None:
        pass

    async def wake(self) -> None:
        pass

    async def reset(self) -> None:
        pass

    async def close(self) -> None:
        pass


class _FixedScorer:
    """Gives each text the outcome that ``outcome_of`` says."""

    def __init__(self, outcome_of: Callable[[str], Outcome]) -> None:
        self._outcome_of = outcome_of

    async def score(self, task: Task, text: str) -> RewardResult:
        outcome = self._outcome_of(text)
        return RewardResult(
            reward=math.nan,
            breakdown={},
            outcome=outcome,
            passed=outcome is Outcome.PASS,
            detail="said so",
            cached=False,
            seconds=0.0,
        )


def test_every_second_reference_passes_half_the_time_in_the_real_sandbox(
    sandbox: SandboxPool, tokenizer: PreTrainedTokenizerFast
) -> None:
    tasks = ladder_tasks("heldout")[:6]
    references = {task.task_id: task.reference for task in tasks}
    wrong = {task.task_id: f"def {task.entry_point}(*args):\n    raise ValueError\n" for task in tasks}
    generator = _ScriptedGenerator(lambda task_id, i: (wrong if i % 2 else references)[task_id] + "```")
    scorer = SandboxScorer(sandbox, ExecutionConfig())
    report = asyncio.run(
        evaluate_tasks(generator, tasks, _form(tokenizer, _PREFILL), _SETTINGS, 4, scorer, 0)
    )
    assert report.outcomes == {"pass": 12, "exception": 12}, report.samples
    assert [(count.num_samples, count.num_correct) for count in report.counts] == [(4, 2)] * 6
    assert [count.task_id for count in report.counts] == [task.task_id for task in tasks]
    assert report.pass_at_1.mean == 0.5
    assert [sample.result.passed for sample in report.samples] == [True, False] * 12
    assert "pass@1 50.0 %" in report.describe()


def test_requests_are_bounded_and_their_seeds_depend_on_seed_and_task_only(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tasks = ladder_tasks("train")[:80]
    scorer = _FixedScorer(lambda text: Outcome.WRONG)
    seeds = []
    for seed, chosen in ((0, tasks), (0, tasks[40:]), (1, tasks)):
        generator = _ScriptedGenerator(lambda task_id, index: "")
        asyncio.run(evaluate_tasks(generator, chosen, _form(tokenizer), _SETTINGS, 2, scorer, seed))
        assert generator.most_in_flight <= 32
        seeds.append({request.request_id: request.seed for request in generator.requests})
    assert seeds[1].items() <= seeds[0].items()
    assert all(seeds[0][name] != seeds[2][name] for name in seeds[0])
    assert len(set(seeds[0].values())) == len(tasks)


def test_samples_that_could_not_be_judged_are_counted_apart(tokenizer: PreTrainedTokenizerFast) -> None:
    tasks = ladder_tasks("heldout")[:2]
    lost = tasks[1].task_id
    generator = _ScriptedGenerator(
        lambda task_id, index: "infra" if index == 0 or task_id == lost else "pass"
    )
    scorer = _FixedScorer(lambda text: Outcome.INFRA_ERROR if text == "infra" else Outcome.PASS)
    report = asyncio.run(evaluate_tasks(generator, tasks, _form(tokenizer), _SETTINGS, 4, scorer, 0))
    assert [(count.task_id, count.num_samples) for count in report.counts] == [(tasks[0].task_id, 3)]
    assert report.pass_at_1.mean == 1
    assert report.outcomes == {"pass": 3, "infra_error": 5}
    assert "5 samples could not be judged" in report.describe()


def test_an_evaluation_that_judged_nothing_is_an_error_with_the_reason(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    scorer = _FixedScorer(lambda text: Outcome.INFRA_ERROR)
    generator = _ScriptedGenerator(lambda task_id, index: "")
    with pytest.raises(StageError, match=r"none of 4 samples.*said so"):
        asyncio.run(
            evaluate_tasks(generator, ladder_tasks("train")[:2], _form(tokenizer), _SETTINGS, 2, scorer, 0)
        )


def test_missing_samples_and_a_silent_generator_name_the_task(tokenizer: PreTrainedTokenizerFast) -> None:
    class _Silent(_ScriptedGenerator):
        async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
            await asyncio.sleep(3600)
            yield Completion(
                index=0,
                token_ids=(),
                logprobs=(),
                text="",
                finish_reason="stop",
                min_policy_version=0,
                max_policy_version=0,
            )

    (task,) = ladder_tasks("train")[:1]
    scorer = _FixedScorer(lambda text: Outcome.WRONG)
    few = _ScriptedGenerator(lambda task_id, index: "", num_missing=1)
    with pytest.raises(GeneratorError, match=rf"{task.task_id}: the generator gave 3 of 4"):
        asyncio.run(evaluate_tasks(few, [task], _form(tokenizer), _SETTINGS, 4, scorer, 0))
    silent = _Silent(lambda task_id, index: "")
    with pytest.raises(GeneratorError, match=rf"{task.task_id}: 4 samples were not there"):
        asyncio.run(
            evaluate_tasks(
                silent,
                [task],
                _form(tokenizer),
                _SETTINGS,
                4,
                scorer,
                0,
                terms=EvaluationTerms(task_timeout_s=0.05),
            )
        )


def test_a_scorers_failure_ends_the_evaluation_as_itself(tokenizer: PreTrainedTokenizerFast) -> None:
    def fail(text: str) -> Outcome:
        raise ZeroDivisionError("scorer")

    generator = _ScriptedGenerator(lambda task_id, index: "")
    with pytest.raises(ZeroDivisionError, match="scorer"):
        asyncio.run(
            evaluate_tasks(
                generator, ladder_tasks("train")[:3], _form(tokenizer), _SETTINGS, 2, _FixedScorer(fail), 0
            )
        )


def test_the_difference_is_paired_over_tasks_that_both_judged(tokenizer: PreTrainedTokenizerFast) -> None:
    tasks = ladder_tasks("heldout")[:8]

    def report(num_right: int, chosen: tuple[Task, ...]) -> EvaluationReport:
        generator = _ScriptedGenerator(lambda task_id, index: "pass" if index < num_right else "wrong")
        scorer = _FixedScorer(lambda text: Outcome(text))
        return asyncio.run(evaluate_tasks(generator, chosen, _form(tokenizer), _SETTINGS, 4, scorer, 0))

    before, after = report(1, tasks), report(3, tasks[2:])
    rise = difference(before, after)
    assert (rise.mean, rise.num_tasks) == (0.5, 6)


def test_a_check_that_cannot_run_is_not_the_answers_fault() -> None:
    class _BrokenCheck:
        level = "none"

        def run(self, request: ExecutionRequest) -> ExecutionResult:
            raise ValueError("check program of 'f' cannot run: NameError")

    scorer = SandboxScorer(_BrokenCheck(), ExecutionConfig())
    result = asyncio.run(scorer.score(load_humaneval()[0], "def f(): pass"))
    assert result.outcome is Outcome.INFRA_ERROR
    assert math.isnan(result.reward)
    assert "HumanEval/0" in result.detail


def test_published_completions_run_behind_their_prompts_as_in_openais_harness() -> None:
    for task in load_humaneval()[::8]:
        answer = f"Here it is:\n{_PREFILL}{task.reference}\n```\nDone."
        program = task.prompt + sample_completion(task, answer) + f"\n{task.check_source}\n"
        names: dict[str, object] = {}
        exec(program, names)
        check = names["check"]
        assert callable(check)
        check(names[task.entry_point])


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
    file = tmp_path / "samples.jsonl"
    bodies = [task.reference.removeprefix(task.prompt) for task in tasks]
    samples = [(task.task_id, body) for task, body in zip(tasks, bodies, strict=True)]
    samples += [(task.task_id, "    return None\n") for task in tasks]
    write_samples(file, samples)
    assert run_evaluation(EvaluationOptions(samples=str(file), ks=(1, 2, 3), limit=4)) == 0
    lines = [json.loads(line) for line in Path(f"{file}_results.jsonl").read_text("utf-8").splitlines()]
    assert [line["passed"] for line in lines] == [True] * 4 + [False] * 4
    assert lines[0]["result"] == "passed"
    assert lines[4]["result"].startswith("failed: wrong")
    assert [(line["task_id"], line["completion"]) for line in lines] == samples
    shown = capsys.readouterr().out
    assert "50.0 %" in shown
    assert "100.0 %" in shown
    assert "a task has 2 samples" in shown


def test_whole_solutions_in_evalplus_form_are_read_as_programs(tmp_path: Path) -> None:
    task = load_humaneval()[0]
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps({"task_id": task.task_id, "solution": task.reference}), encoding="utf-8")
    ((_, completion),) = read_samples(str(file), [task])
    names: dict[str, object] = {}
    exec(f"{sample_program(task, completion)}\n{task.check_source}", names)
    check = names["check"]
    assert callable(check)
    check(names[task.entry_point])


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
        read_samples(str(file), load_humaneval())


def write_tasks(file: Path) -> list[str]:
    """Three tasks; returns their ids."""
    names = ["a", "b", "c"]
    tests = [{"args": [3], "expected": 3}]
    lines = [
        {"task_id": name, "prompt": f"Write a function {name}(x).", "entry_point": name, "tests": tests}
        for name in names
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return names


def test_sampling_with_the_transformers_engine_writes_samples_verdicts_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = write_tasks(tmp_path / "tasks.jsonl")
    out = tmp_path / "samples.jsonl"

    def options(seed: int) -> EvaluationOptions:
        return EvaluationOptions(
            model=str(save_model(tmp_path / "model")),
            tasks=str(tmp_path / "tasks.jsonl"),
            num_samples=2,
            ks=(1,),
            limit=2,
            engine="transformers",
            max_completion_length=8,
            output=str(out),
            seed=seed,
        )

    assert run_evaluation(options(0)) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 tasks" in shown and "0.0 %" in shown and "exception 4" in shown
    assert f"samples: {out}" in shown.replace("\n", "")
    first = out.read_text("utf-8")
    samples = [json.loads(line) for line in first.splitlines()]
    assert [line["task_id"] for line in samples] == ["a", "a", "b", "b"] and names[2] == "c"
    results = [json.loads(line) for line in Path(f"{out}_results.jsonl").read_text("utf-8").splitlines()]
    assert [(line["task_id"], line["completion"]) for line in results] == [
        (line["task_id"], line["completion"]) for line in samples
    ]
    assert all(line["passed"] is False and line["result"].startswith("failed") for line in results)
    run_evaluation(options(0))
    assert out.read_text("utf-8") == first
    run_evaluation(options(1))
    assert out.read_text("utf-8") != first


def test_what_was_sampled_can_be_scored_again_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = write_tasks(tmp_path / "tasks.jsonl")
    out = tmp_path / "samples.jsonl"
    right = [(name, f"def {name}(x):\n    return x\n") for name in names]
    write_samples(out, [*right, (names[0], "def a(x):\n    return -x\n")])
    options = EvaluationOptions(
        samples=str(out), tasks=str(tmp_path / "tasks.jsonl"), ks=(1,), output=str(tmp_path / "verdicts")
    )
    assert run_evaluation(options) == 0
    lines = (tmp_path / "verdicts_results.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["passed"] for line in lines] == [True, True, True, False]
    assert "83.3 %" in capsys.readouterr().out


def test_a_greedy_evaluation_takes_the_most_probable_token(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl")
    texts = []
    for seed in (0, 1):
        out = tmp_path / f"samples{seed}.jsonl"
        options = EvaluationOptions(
            model=str(save_model(tmp_path / "model")),
            tasks=str(tmp_path / "tasks.jsonl"),
            num_samples=1,
            temperature=0.0,
            engine="transformers",
            max_completion_length=8,
            output=str(out),
            seed=seed,
        )
        assert run_evaluation(options) == 0
        texts.append(out.read_text("utf-8"))
    assert texts[0] == texts[1]
