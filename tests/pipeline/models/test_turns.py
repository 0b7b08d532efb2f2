"""Between two answers: tokens in, tokens out, in the form of each built-in model's own chat template."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cache
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from configs.schema import Config, GenerationConfig, ModelConfig
from curriculum.ladder.index import ladder_tasks
from curriculum.task import Task
from pipeline.generation.generator import GeneratorError
from pipeline.host.files import cache_root
from pipeline.messages import Completion, GenerationRequest, SamplingSettings
from pipeline.models.find import resolve_model
from pipeline.models.loading import load_tokenizer
from pipeline.models.packaged import BUILT_IN
from pipeline.models.prompts import (
    PromptTokenizer,
    TurnTokens,
    encode_prompt,
    prompt_messages,
    what_to_write,
)
from pipeline.rollouts.turns import Turn, TurnTerms, later_turns
from pipeline.run.stages import _turn_tokens
from rewards.result import RewardResult
from sandbox.result import CallTest, Outcome, StdioTest
from tests.pipeline.evaluation.answers import result_of
from tests.pipeline.rollouts.groups import completion
from tests.pipeline.tiny_model import make_byte_tokenizer

PREFILL = "```python\n"
ASKED = GenerationConfig(assistant_prefill=PREFILL)
TASK = ladder_tasks("train")[0]
DEFAULT = ModelConfig().name


@cache
def tokenizer_of(name: str) -> PreTrainedTokenizerBase:
    # The larger ones are fetched once a machine, and tests do not fetch them.
    if name != DEFAULT and not (cache_root() / "models" / name / "config.json").is_file():
        pytest.skip(f"{name} is not in the cache")
    return load_tokenizer(resolve_model(ModelConfig(name=name)))


@pytest.fixture(params=sorted(BUILT_IN))
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return tokenizer_of(request.param)


def turn_tokens(
    tokenizer: PreTrainedTokenizerBase, max_length: int = 256, generation: GenerationConfig = ASKED
) -> TurnTokens:
    return TurnTokens(tokenizer, generation, max_length, TASK)


def ids_of(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def text_of(tokenizer: PreTrainedTokenizerBase, ids: tuple[int, ...]) -> str:
    return str(tokenizer.decode(list(ids)))


@pytest.mark.parametrize("is_ended", [True, False], ids=["ended by the model", "stopped at the fence"])
def test_two_turns_are_the_conversation_that_the_template_writes(
    tokenizer: PreTrainedTokenizerBase, is_ended: bool
) -> None:
    answer, said = "def f(n):\n    return n\n```", "Your program gives a wrong result in a test."
    end = (tokenizer.eos_token_id,) if is_ended else ()
    answer_ids = ids_of(tokenizer, answer) + end
    prompt_ids = encode_prompt(tokenizer, TASK, ASKED)
    ids = prompt_ids + answer_ids + turn_tokens(tokenizer).encode(TASK, answer_ids, said)[1]
    messages = [
        *prompt_messages(TASK),
        {"role": "assistant", "content": PREFILL + answer},
        {"role": "user", "content": f"{said}\nCorrect it. {what_to_write(TASK)}"},
    ]
    written = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text_of(tokenizer, ids) == f"{written}{PREFILL}"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@given(said=st.text(max_size=3000))
@settings(max_examples=60)
def test_no_feedback_is_longer_than_its_bound(name: str, said: str) -> None:
    ids = turn_tokens(tokenizer_of(name), 80).encode(TASK, (5,), said)[1]
    assert len(ids) <= 80
    # What asks for the next answer is never what is cut.
    assert text_of(tokenizer_of(name), ids).endswith(f"assistant\n{PREFILL}")


def test_a_run_of_one_turn_encodes_no_feedback_and_asks_no_template() -> None:
    assert _turn_tokens(Config(), cast(PromptTokenizer, None), ()) is None


def test_a_bound_that_the_template_does_not_fit_into_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"feedback of 8 tokens at most: the chat template takes \d+ of them"
    ):
        turn_tokens(tokenizer_of(DEFAULT), 8)


@pytest.mark.parametrize(
    "template",
    [
        # One message only.
        "{% if messages|length > 1 %}{{ raise_exception('one') }}{% endif %}<{{ messages[0].content }}>",
        # Answers are left out.
        "{% for m in messages %}{% if m.role == 'user' %}<{{ m.content }}>{% endif %}{% endfor %}",
        # The beginning depends on what comes later.
        "{{ messages|length }}{% for m in messages %}<{{ m.content }}>{% endfor %}",
        # Only the last message is kept.
        "<{{ messages[-1].content }}>",
    ],
)
def test_a_template_that_cannot_go_on_is_refused_by_name(template: str) -> None:
    tokenizer = make_byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=r"model.name: the chat template .* cannot go on after an answer"):
        turn_tokens(tokenizer)


_THINKS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined %}<think>\n"
    "{{ '\n</think>\n\n' if not enable_thinking }}{% endif %}{% endif %}"
)


def test_reasoning_that_the_template_begins_and_ends_may_be_left_out_of_what_lies_behind() -> None:
    tokenizer = make_byte_tokenizer()
    tokenizer.chat_template = _THINKS
    asked = GenerationConfig(chat_template_kwargs={"enable_thinking": False}, system_prompt="Be terse.")
    ids = turn_tokens(tokenizer, 400, asked).encode(TASK, (5,), "Wrong.")[1]
    told = f"Wrong.\nCorrect it. {what_to_write(TASK)}"
    assert text_of(tokenizer, ids) == f"</><user>{told}</><assistant><think>\n\n</think>\n\n{PREFILL}"


def test_a_template_that_begins_reasoning_and_leaves_it_out_later_cannot_go_on() -> None:
    tokenizer = make_byte_tokenizer()
    tokenizer.chat_template = _THINKS
    asked = GenerationConfig(chat_template_kwargs={"enable_thinking": True})
    with pytest.raises(ValueError, match="cannot go on after an answer"):
        turn_tokens(tokenizer, 400, asked)


@pytest.mark.parametrize("said", ["", "Wrong.", " \n Wrong.\n\n"])
def test_a_template_that_trims_messages_goes_on_after_any_feedback(said: str) -> None:
    tokenizer = make_byte_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    ids = turn_tokens(tokenizer, 400).encode(TASK, (5,), said)[1]
    told = f"{said.strip()}\nCorrect it. {what_to_write(TASK)}".strip()
    assert text_of(tokenizer, ids) == f"</><user>{told}</><assistant>{PREFILL}"


@pytest.mark.timeout(60)
def test_a_task_whose_own_words_are_above_the_bound_is_asked_without_feedback() -> None:
    tokenizer = make_byte_tokenizer()
    least = len(turn_tokens(tokenizer, 400).encode(TASK, (5,), "")[1])
    tests = (StdioTest(stdin="1", expected_stdout="1"),)
    program = Task(task_id="p", prompt="Echo.", entry_point="", stdio_tests=tests)
    asked = turn_tokens(tokenizer, least).encode(program, (5,), "Wrong.")[1]
    assert len(asked) > least
    assert text_of(tokenizer, asked) == f"\n\nCorrect it. {what_to_write(program)}\n\n{PREFILL}"


def test_without_a_template_a_conversation_is_plain_text() -> None:
    tokenizer = make_byte_tokenizer()
    tokenizer.chat_template = None
    ids = turn_tokens(tokenizer, 400).encode(TASK, (5,), "Wrong.")[1]
    assert text_of(tokenizer, ids) == f"\n\nWrong.\nCorrect it. {what_to_write(TASK)}\n\n{PREFILL}"


class Scripted:
    """Writes the answers that it was given, one a request; keeps the requests."""

    def __init__(self, answers: list[tuple[int, ...]]) -> None:
        self._answers = answers
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.requests.append(request)
        if self._answers:
            yield completion_of(self._answers.pop(0))


def completion_of(token_ids: tuple[int, ...], index: int = 0) -> Completion:
    return replace(completion(index, length=len(token_ids)), token_ids=token_ids)


def conversation(
    answers: list[tuple[int, ...]], outcomes: list[Outcome], max_turns: int, name: str = DEFAULT
) -> tuple[tuple[Turn, ...], Scripted, GenerationRequest]:
    first, *later = answers
    generator = Scripted(later)
    verdicts = list(outcomes)

    async def feedback(task: Task, completion: Completion, result: RewardResult, _: float) -> str:
        return f"It was {result.outcome}."

    async def score(task: Task, completion: Completion) -> RewardResult:
        return result_of(verdicts.pop(0))

    request = GenerationRequest(
        request_id="q",
        prompt_ids=encode_prompt(tokenizer_of(name), TASK, ASKED),
        num_generations=4,
        sampling=SamplingSettings(temperature=0.7, stop=("\n```",)),
        seed=7,
    )
    terms = TurnTerms(
        tokens=turn_tokens(tokenizer_of(name)), feedback=feedback, kind="verdict", max_turns=max_turns
    )
    result = result_of(verdicts.pop(0))
    turns, _ = asyncio.run(
        later_turns(terms, generator.generate, score, TASK, request, completion_of(first, index=2), result)
    )
    return turns, generator, request


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@given(
    answers=st.lists(
        st.lists(st.integers(0, 49_000), min_size=1, max_size=12).map(tuple), min_size=2, max_size=4
    )
)
@settings(max_examples=40)
def test_what_was_sampled_stands_in_the_next_prompt_token_by_token(
    name: str, answers: list[tuple[int, ...]]
) -> None:
    outcomes = [Outcome.WRONG] * len(answers)
    turns, generator, request = conversation(list(answers), outcomes, len(answers), name)
    assert [turn.completion.token_ids for turn in turns] == answers[1:]
    expected = request.prompt_ids
    for before, turn, asked in zip(answers, turns, generator.requests, strict=False):
        expected = (*expected, *before, *turn.feedback_ids)
        assert asked.prompt_ids == expected
        assert turn.num_tokens == len(turn.feedback_ids) + len(turn.completion.token_ids)


@pytest.mark.parametrize(
    ("outcomes", "num_later"),
    [
        ([Outcome.PASS], 0),
        ([Outcome.INFRA_ERROR], 0),
        ([Outcome.WRONG, Outcome.PASS], 1),
        ([Outcome.WRONG, Outcome.INFRA_ERROR], 1),
        ([Outcome.WRONG, Outcome.EXCEPTION, Outcome.WRONG], 2),
    ],
)
def test_a_conversation_ends_with_a_pass_or_at_its_bound(outcomes: list[Outcome], num_later: int) -> None:
    turns, generator, _ = conversation([(1,), (2,), (3,), (4,)], outcomes, 3)
    assert [turn.result.outcome for turn in turns] == outcomes[1:]
    assert len(generator.requests) == num_later


def test_later_turns_are_sampled_as_the_first_and_have_names_and_seeds_of_their_own() -> None:
    _, generator, request = conversation([(1,), (2,), (3,)], [Outcome.WRONG] * 3, 3)
    assert [one.request_id for one in generator.requests] == ["q/2/turn 2", "q/2/turn 3"]
    assert all(one.sampling == request.sampling and one.num_generations == 1 for one in generator.requests)
    assert len({request.seed, *(one.seed for one in generator.requests)}) == 3


def test_an_answer_that_is_missing_is_an_error_by_name() -> None:
    with pytest.raises(GeneratorError, match=r"q/2/turn 3: the generator gave 0 of 1 completions"):
        conversation([(1,), (2,)], [Outcome.WRONG] * 3, 3)


@pytest.mark.parametrize(("kind", "num_left"), [("full", [3, 2, 1, 1]), ("public", [4, 4, 4, 4])])
def test_a_test_that_was_told_counts_for_no_later_answer(kind: str, num_left: list[int]) -> None:
    tests = tuple(CallTest(args=(number,), expected=number) for number in range(4))
    task = Task(task_id="t", prompt="Write f.", entry_point="f", call_tests=tests)
    judged: list[Task] = []

    async def feedback(task: Task, completion: Completion, result: RewardResult, _: float) -> str:
        return "Wrong."

    async def score(task: Task, completion: Completion) -> RewardResult:
        judged.append(task)
        return result_of(Outcome.WRONG, "test 0: wrong value")

    terms = TurnTerms(
        tokens=turn_tokens(tokenizer_of(DEFAULT)), feedback=feedback, kind=kind, max_turns=len(num_left) + 1
    )
    generate = Scripted([(2,)] * len(num_left)).generate
    request = GenerationRequest(
        request_id="q", prompt_ids=(1,), num_generations=1, sampling=SamplingSettings(temperature=1.0)
    )
    first = result_of(Outcome.WRONG, "test 0: wrong value")
    asyncio.run(later_turns(terms, generate, score, task, request, completion_of((1,), index=0), first))
    # The first of those that are left is told each time, never the last one.
    assert [task.call_tests for task in judged] == [tests[-num:] for num in num_left]
