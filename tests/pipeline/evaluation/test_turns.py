"""Second tries in an evaluation: who goes on, what they cost, and fresh answers with as many tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.errors import ConfigError
from configs.evaluation_options import EvaluationOptions
from configs.schema import ExecutionConfig, GenerationConfig
from curriculum.judging import Executor
from curriculum.ladder.index import ladder_tasks
from curriculum.task import Task
from pipeline.cli import evaluate_humaneval
from pipeline.errors import StageError
from pipeline.evaluation.evaluate import (
    EvaluatedSample,
    EvaluatedTurn,
    EvaluationJournal,
    EvaluationReport,
    EvaluationTerms,
    evaluate_tasks,
)
from pipeline.evaluation.forms import ChatForm
from pipeline.evaluation.scorers import SandboxScorer
from pipeline.evaluation.turns import SecondTries, turn_report
from pipeline.messages import SamplingSettings
from rewards.custom import CustomFeedback
from rewards.result import RewardResult, infra_error
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, Outcome
from tests.fake_sandbox import FakeSandbox
from tests.pipeline.evaluation.answers import ScriptedGenerator, result_of, write_tasks
from tests.pipeline.tiny_model import make_byte_tokenizer, save_byte_model

PREFILL = "```python\n"
TASK = Task(
    task_id="t/double",
    prompt='def double(n):\n    """Twice n.\n    >>> double(2)\n    4\n    """\n',
    entry_point="double",
    call_tests=(CallTest(args=(2,), expected=4), CallTest(args=(7,), expected=14)),
)
RIGHT, WRONG = "def double(n):\n    return 2 * n\n```", "def double(n):\n    return 3 * n\n```"


def evaluated(
    sandbox: SandboxPool,
    answer: Callable[[str, int], str],
    *,
    num_samples: int = 1,
    kind: str = "public",
    temperature: float = 1.0,
    max_turns: int = 2,
    examples: Executor | None = None,
    custom: CustomFeedback | None = None,
) -> tuple[EvaluationReport, ScriptedGenerator]:
    tokenizer = make_byte_tokenizer()
    form = ChatForm(tokenizer=tokenizer, generation=GenerationConfig(assistant_prefill=PREFILL))
    tries = SecondTries(
        form,
        tokenizer,
        [TASK],
        examples or sandbox,
        ExecutionConfig(),
        max_turns=max_turns,
        kind=kind,
        custom=custom,
    )
    generator = ScriptedGenerator(answer)
    report = asyncio.run(
        evaluate_tasks(
            generator,
            [TASK],
            form,
            SamplingSettings(temperature=temperature),
            num_samples,
            SandboxScorer(sandbox, ExecutionConfig()),
            0,
            terms=EvaluationTerms(task_timeout_s=60.0, later_turns=tries.go_on),
        )
    )
    return report, generator


def test_an_answer_that_failed_goes_on_and_one_that_passed_does_not(sandbox: SandboxPool) -> None:
    def answer(name: str, index: int) -> str:
        if "/turn 2" in name:
            return RIGHT
        return WRONG if "/fresh" in name else (RIGHT, WRONG)[index]

    report, _ = evaluated(sandbox, answer, num_samples=2)
    passed, failed = report.samples
    assert passed.result.passed and passed.turns == () and passed.resampled is None
    (turn,) = failed.turns
    assert not failed.result.passed and turn.result.passed and failed.resampled is False
    assert turn.text == PREFILL + RIGHT
    assert turn.feedback == "The example returns 6."
    # pass@1 is that of the first answers.
    assert report.pass_at_1.mean == 0.5
    found = turn_report(report.samples, 2)
    assert [one.mean for one in found.pass_after] == [0.5, 1.0]
    assert found.repaired is not None and found.repaired.mean == 1.0
    assert found.resampled is not None and found.resampled.mean == 0.5
    assert found.above_resampled is not None and found.above_resampled.mean == 0.5


def test_fresh_answers_have_as_many_tokens_as_the_later_turns_and_no_more(sandbox: SandboxPool) -> None:
    report, generator = evaluated(sandbox, lambda name, index: WRONG, kind="verdict", max_turns=3)
    (sample,) = report.samples
    budget = sum(turn.num_tokens for turn in sample.turns)
    first, *_ = generator.requests
    fresh = [one for one in generator.requests if "/fresh" in one.request_id]
    assert len(sample.turns) == 2 and sample.resampled is False
    assert all(one.prompt_ids == first.prompt_ids for one in fresh)
    written = [min(len(WRONG), one.sampling.max_completion_length) for one in fresh]
    assert sum(written) == budget
    assert len({one.request_id for one in generator.requests}) == len(generator.requests)


def test_a_fresh_answer_that_passes_within_its_tokens_counts(sandbox: SandboxPool) -> None:
    report, _ = evaluated(sandbox, lambda name, index: RIGHT if "/fresh 0" in name else WRONG)
    found = turn_report(report.samples, 2)
    assert report.samples[0].resampled is True
    assert found.above_resampled is not None and found.above_resampled.mean == -1.0


def test_fresh_answers_beside_sampled_tokens_alone_have_none_for_the_feedback(sandbox: SandboxPool) -> None:
    # Of the last answer's length: with a comment before it a program is cut off there, but not within what
    # the feedback has as well.
    long = RIGHT.replace("    return", "    # " + 16 * "x" + "\n    return")
    for fresh, all_pass, by_answers_pass in ((RIGHT, True, True), (long, True, False), (WRONG, False, False)):
        answer = {True: fresh, False: WRONG}
        report, _ = evaluated(sandbox, lambda name, index, answer=answer: answer["/fresh" in name])  # type: ignore[misc]
        (sample,) = report.samples
        assert sample.resampled is all_pass and sample.resampled_by_answers is by_answers_pass
        found = turn_report(report.samples, 2)
        assert found.resampled_by_answers is not None and found.above_resampled_by_answers is not None
        assert found.resampled_by_answers.mean == by_answers_pass
        assert found.above_resampled_by_answers.mean == -by_answers_pass


def test_an_answer_cut_off_where_the_sampled_tokens_end_is_judged_as_it_is_then(sandbox: SandboxPool) -> None:
    # What follows the program is what is cut off.
    long = RIGHT + 20 * "x"
    report, _ = evaluated(sandbox, lambda name, index: long if "/fresh" in name else WRONG)
    assert report.samples[0].resampled_by_answers is True


def test_greedy_answers_have_no_fresh_ones_beside_them(sandbox: SandboxPool) -> None:
    report, generator = evaluated(sandbox, lambda name, index: WRONG, temperature=0.0)
    assert report.samples[0].resampled is None and len(generator.requests) == 2
    found = turn_report(report.samples, 2)
    assert found.resampled is None and found.above_resampled is None and found.repaired is not None


def hint(feedback: str, task_id: str, **columns: object) -> str | None:
    return f"{task_id}: {feedback}"


def silent(feedback: str, **columns: object) -> int:
    return 3


def test_a_function_of_the_users_has_the_last_word_on_feedback(sandbox: SandboxPool) -> None:
    custom = CustomFeedback(f"{__name__}:hint", field="--custom-feedback")
    report, _ = evaluated(sandbox, lambda name, index: WRONG, kind="verdict", num_samples=3, custom=custom)
    told = {turn.feedback for sample in report.samples for turn in sample.turns}
    assert told == {"t/double: Your program gives a wrong result in a test."}


def once(feedback: str, code: str, **columns: object) -> str:
    if "more" in code:
        raise ValueError("no idea")
    return feedback


def test_feedback_that_fails_after_a_later_turn_leaves_what_was_judged(sandbox: SandboxPool) -> None:
    custom = CustomFeedback(f"{__name__}:once", field="--custom-feedback")

    def answer(name: str, index: int) -> str:
        return WRONG.replace("\n```", "\n# more\n```") if "/turn 2" in name else WRONG

    report, _ = evaluated(sandbox, answer, kind="verdict", max_turns=3, custom=custom)
    second, unjudged = report.samples[0].turns
    assert second.result.outcome is Outcome.WRONG and "more" in second.text and second.num_tokens > 0
    assert unjudged.result.is_infra_error and "no idea" in unjudged.result.detail
    assert not report.samples[0].is_judged


def test_a_function_that_tells_nothing_usable_leaves_the_answer_unjudged(sandbox: SandboxPool) -> None:
    custom = CustomFeedback(f"{__name__}:silent", field="--custom-feedback")
    report, _ = evaluated(sandbox, lambda name, index: WRONG, custom=custom)
    (turn,) = report.samples[0].turns
    assert turn.result.is_infra_error
    assert f"--custom-feedback: {__name__}:silent: returned 3, not a text or None" in turn.result.detail
    with pytest.raises(ConfigError, match=r"--custom-feedback: .*defines no hints"):
        CustomFeedback(f"{__name__}:hints", field="--custom-feedback")


def test_public_feedback_on_tasks_that_show_nothing_is_refused(sandbox: SandboxPool) -> None:
    tokenizer = make_byte_tokenizer()
    form = ChatForm(tokenizer=tokenizer, generation=GenerationConfig(assistant_prefill=PREFILL))
    with pytest.raises(ValueError, match=r'--feedback: value "public": no prompt of these tasks shows'):
        SecondTries(
            form,
            tokenizer,
            ladder_tasks("heldout")[:1],
            sandbox,
            ExecutionConfig(),
            max_turns=2,
            kind="public",
        )


def sample(task_id: str, *results: RewardResult, resampled: bool | None = None) -> EvaluatedSample:
    first, *later = results
    turns = tuple(EvaluatedTurn(feedback="f", text="t", result=one, num_tokens=9) for one in later)
    return EvaluatedSample(task_id=task_id, text="x", result=first, turns=turns, resampled=resampled)


PASS, FAIL = result_of(Outcome.PASS), result_of(Outcome.WRONG)


def test_a_conversation_that_could_not_be_judged_counts_nowhere(tmp_path: Path) -> None:
    lost = sample("a", FAIL, infra_error("sandbox", 1.0))
    found = turn_report([sample("a", PASS), lost, sample("b", FAIL, PASS, resampled=False)], 2)
    assert [one.mean for one in found.pass_after] == [0.5, 1.0]
    with pytest.raises(StageError, match="none of 1 conversations could be judged to its end: sandbox"):
        turn_report([lost], 2)
    journal = EvaluationJournal(tmp_path / "j", {}, hint="")
    journal.add(lost)
    journal.close()
    assert not (tmp_path / "j").exists(), "it is made again"


def test_turns_are_in_the_journal(tmp_path: Path) -> None:
    kept = [sample("a", FAIL, FAIL, PASS, resampled=True), sample("a", PASS)]
    journal = EvaluationJournal(tmp_path / "j", {}, hint="")
    for one in kept:
        journal.add(one)
    journal.close()
    assert EvaluationJournal(tmp_path / "j", {}, hint="").kept == {"a": kept}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"turns": 0}, "--turns: 0 is not allowed"),
        ({"turns": 2, "prompt_form": "completion"}, "1 with --prompt-form completion"),
        ({"turns": 2, "feedback": "hints"}, "--feedback"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EvaluationOptions(model="m", **options)  # type: ignore[arg-type]


def test_the_command_shows_the_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a")
    arguments = (
        *("--model", str(save_byte_model(tmp_path / "model")), "--tasks", str(tasks)),
        *("--engine", "transformers", "--max-completion-length", "4", "-n", "2"),
        *("--output", str(tmp_path / "out.jsonl")),
    )
    assert evaluate_humaneval([*arguments, "--feedback", "verdict"]) == 2
    assert "used by --turns only" in capsys.readouterr().err
    own = ("--custom-feedback", f"{__name__}:hint")
    assert evaluate_humaneval([*arguments, *own]) == 2
    assert evaluate_humaneval([*arguments, "--turns", "2", "--custom-feedback", "my:hint"]) == 2
    assert "--custom-feedback" in capsys.readouterr().err
    assert evaluate_humaneval([*arguments, "--turns", "2", *own]) == 0
    shown = capsys.readouterr().out
    assert "passed after turn 2" in shown and "fresh answers, as many tokens" in shown
    record = json.loads((tmp_path / "out.jsonl_report.json").read_text())
    assert record["settings"]["turns"] == "2" and record["settings"]["feedback"] == "public"
    (turns,) = record["turns"].values()
    assert len(turns["pass_after"]) == 2 and turns["num_feedback_turns"] == 2
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl_results.jsonl").read_text().splitlines()]
    assert [len(line["turns"]) for line in lines] == [1, 1]
    assert set(lines[0]["turns"][0]) == {"feedback", "answer", "result", "passed"}
    assert record["settings"]["custom feedback"] == own[1]
    assert lines[0]["turns"][0]["feedback"].startswith(f"{lines[0]['task_id']}: Your program")


def fails(feedback: str, **columns: object) -> str:
    """Feedback that cannot be made."""
    raise RuntimeError(f"no hint for {columns['task_id']}")


def test_first_answers_are_reported_where_no_conversation_could_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        *("--model", str(save_byte_model(tmp_path / "model")), "--engine", "transformers", "-n", "1"),
        *("--tasks", str(write_tasks(tmp_path / "tasks.jsonl", "a")), "--max-completion-length", "4"),
        *("--output", str(tmp_path / "out.jsonl"), "--turns", "2", "--custom-feedback", f"{__name__}:fails"),
    )
    assert evaluate_humaneval(arguments) == 1
    assert "could be judged to its end: " in (said := capsys.readouterr().err) and "no hint for a" in said
    record = json.loads((tmp_path / "out.jsonl_report.json").read_text())
    assert "turns" not in record and len(record["reports"]) == 1


def test_an_answer_without_feedback_is_not_judged_and_counts_in_no_rate(sandbox: SandboxPool) -> None:
    def answer(name: str, index: int) -> str:
        return (RIGHT, WRONG)[index]

    report, generator = evaluated(sandbox, answer, num_samples=2, examples=FakeSandbox(Outcome.INFRA_ERROR))
    passed, unjudged = report.samples
    assert [one.is_judged for one in report.samples] == [True, False]
    (turn,) = unjudged.turns
    assert turn.result.detail == "no feedback on t/double: because" and unjudged.resampled is None
    assert len(generator.requests) == 1, "nothing was asked for after it"
    found = turn_report(report.samples, 2)
    assert [one.mean for one in found.pass_after] == [1.0, 1.0] and found.repaired is None
    with pytest.raises(StageError, match="none of 1 conversations could be judged"):
        turn_report([unjudged], 2)
    assert passed.turns == ()
