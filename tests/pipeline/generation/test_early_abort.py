"""Never a false alarm: what is ended fails the syntax reward however it goes on; what compiles never is."""

from __future__ import annotations

import random
import sysconfig
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rewards.completions import TRAINED, UNTRAINED, RealCompletion, load_completions
from configs.schema import Config, GrpoConfig
from pipeline.generation.early_abort import AbortBalance, AnswerWatch, is_hopeless
from pipeline.messages import GenerationRequest
from pipeline.record.ledger import GUARD
from pipeline.rollouts import producer
from pipeline.rollouts.batch import batch_metrics, make_batch
from pipeline.rollouts.producer import make_group
from rewards.extract import extract_code
from rewards.syntax import check_syntax
from tests.pipeline.fake_stages import TASKS, FakeRun, make_config, scored
from tests.pipeline.rollouts.groups import completion

FENCE = "```python\n"
SOURCES = [
    Path(sysconfig.get_paths()["stdlib"]) / f"{name}.py"
    for name in (
        "bisect",
        "contextlib",
        "heapq",
        "textwrap",
        "shlex",
        "string",
        "this",
        "types",
        "queue",
        "ast",
    )
]


def boundaries(text: str) -> Iterator[int]:
    """Where each line of ``text`` ends."""
    yield from (index + 1 for index, character in enumerate(text) if character == "\n")


def aborted_at(text: str, piece: int) -> int | None:
    """How many characters of an answer had been fed in pieces when it was given up; None if it never was."""
    watch = AnswerWatch("")
    for start in range(0, len(text), piece):
        if watch.feed(text[start : start + piece]):
            return start + piece
    return None


def compiles(answer: RealCompletion, text: str) -> bool:
    return check_syntax(extract_code(text, answer.task.entry_point, answer.task.prompt)).score == 1.0


@pytest.fixture(scope="module")
def answers() -> list[RealCompletion]:
    return load_completions((*UNTRAINED, *TRAINED))


def test_of_6236_real_completions_only_those_that_do_not_compile_are_ended(
    answers: list[RealCompletion],
) -> None:
    assert len(answers) == 6236
    num_failed = num_ended = num_spared = 0
    for number, answer in enumerate(answers):
        position = aborted_at(answer.text, piece=1 + number % 7)
        failed = not compiles(answer, answer.text)
        num_failed += failed
        if position is not None:
            assert failed, answer.text
            # Ended there, it is scored on what it has.
            assert not compiles(answer, answer.text[:position]), answer.text
            num_ended += 1
            num_spared += len(answer.text) - position
    # Most failures of this model are answers cut at their length, which could have gone on.
    assert num_ended > 0.3 * num_failed, (num_ended, num_failed)
    assert num_spared > 40 * num_ended


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_beginning_of_a_valid_module_is_hopeless(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    ends = list(boundaries(source))
    # The parser starts at the beginning each time: of a long module, its first lines and a sample.
    chosen = ends[:80] + random.Random(0).sample(ends, min(60, len(ends)))
    assert [end for end in chosen if is_hopeless(source[:end])] == []


def test_no_beginning_of_a_valid_completion_is_hopeless(answers: list[RealCompletion]) -> None:
    valid = [answer for answer in answers[::3] if compiles(answer, answer.text)]
    assert len(valid) > 1000
    for answer in valid:
        program = extract_code(answer.text, answer.task.entry_point, answer.task.prompt)
        assert [end for end in boundaries(program) if is_hopeless(program[:end])] == [], program


@pytest.mark.parametrize(
    "lines",
    [
        "x = (1,\n",
        "x = [\n    1,\n    # more\n",
        "s = '''a\n",
        'def f():\n    """\n    not closed (\n',
        "try:\n    x = 1\n",
        "if a:\n    b\nelif c:\n    d\n",
        "@decorator\n",
        "match x:\n",
        "def f(a,\n",
        "x = 1 + \\\n",
        "s = 'a\\\n",
        "class A:\n",
        "def f():\n    def g():\n        nonlocal x\n        x = 1\n",
        "for x in y:\n    pass\nelse:\n",
        "lambda: (yield)\n",
        "s = f'''{\n",
    ],
)
def test_what_can_still_be_mended_is_not_hopeless(lines: str) -> None:
    assert not is_hopeless(lines)


@pytest.mark.parametrize(
    "lines",
    [
        "def f(:\n",
        "x = )\n",
        "x = (1]\n",
        "x = 'abc\n",
        "x =\n",
        "print 1\n",
        "def f():\nreturn 1\n",
        "def f():\n        x = 1\n    y = 2\n",
        "x = 1\n    y = 2\n",
        "return 1\n",
        "break\n",
        "def f():\n    continue\n",
        "class A:\n    yield 1\n",
        "if x = 1:\n",
        "else:\n",
        "for i in range(3)\n",
        "x = 1 +* 2\n",
        "Here is the function you asked for\n",
    ],
)
@pytest.mark.parametrize("opening", ["", "import os\n\n\n"])
def test_what_cannot_be_mended_is_hopeless_and_stays_so(opening: str, lines: str) -> None:
    assert is_hopeless(opening + lines)
    for more in ("", "x\n", "    pass\n", ")\n", "]\n", "'''\n", '"""\n', "'\n", "\\\n", "x = 0\nreturn x\n"):
        assert check_syntax(opening + lines + more).score == 0.0


VALID = [path.read_text(encoding="utf-8") for path in SOURCES[:6]]
PIECES = st.sampled_from(
    [
        *("(", ")", "[", "]", "{", "}", ":", ",", ".", "=", "*", "#", "'", '"', '"""', "'''", "f'{", "}'"),
        *("\\", "\n", "\r", "    ", "\t", "0x", "def ", "else:", "return", "lambda", "await ", "async "),
        *("match x:", "case _:"),
    ]
)


@settings(max_examples=400)
@given(
    source=st.sampled_from(VALID),
    first=st.integers(0, 200),
    num_lines=st.integers(1, 25),
    cut=st.floats(0, 1),
    pieces=st.lists(PIECES, max_size=3),
    continuations=st.lists(st.lists(PIECES, max_size=6), max_size=6),
)
def test_a_hopeless_beginning_fails_with_every_continuation(
    source: str, first: int, num_lines: int, cut: float, pieces: list[str], continuations: list[list[str]]
) -> None:
    """Valid code, damaged somewhere: if it is given up, neither the rest of it nor anything else mends it."""
    lines = source.splitlines(keepends=True)[first:]
    head, rest = "".join(lines[:num_lines]), "".join(lines[num_lines:])
    middle = round(cut * len(head))
    damaged = head[:middle] + "".join(pieces) + head[middle:]
    for end in boundaries(damaged):
        if is_hopeless(damaged[:end]):
            for more in ("", damaged[end:], damaged[end:] + rest, *map("".join, continuations)):
                assert check_syntax(damaged[:end] + more).score == 0.0, (damaged[:end], more)
            break


@settings(max_examples=300)
@given(
    text=st.lists(
        st.sampled_from(
            [
                *("```", "```python\n", "```py\n", "```text\n", "```\n", " ```\n", "\n", "\n\n", "Prose.\n"),
                *("<think>", "<think>\n", "</think>", " </think>\n"),
                *(
                    "x = 1\n",
                    "x = (\n",
                    "x = )",
                    ")\n",
                    "    y\n",
                    "def f(a):\n",
                    "    return a\n",
                    "return 1\n",
                ),
            ]
        ),
        max_size=12,
    ).map("".join),
    prompt=st.sampled_from(["", "def f(a):\n", 'def f(a):\n    """Doc."""\n']),
    piece=st.integers(1, 9),
)
def test_it_reads_answers_as_extraction_does(text: str, prompt: str, piece: int) -> None:
    """Fences, prose and continuations in any order: what is given up fails, whole and at every length."""
    position = aborted_at(text, piece)
    if position is not None:
        for end in range(position, len(text) + 1):
            assert check_syntax(extract_code(text[:end], "f", prompt)).score == 0.0


@pytest.mark.parametrize("is_closed", [True, False])
def test_no_program_takes_the_generator_long(is_closed: bool) -> None:
    """Its compiler copies what is in a finally block, and so 2 to the power of 16 times what is in 16."""
    depth = range(1, 17)
    bomb = "def f(x):\n" + "".join(f"{' ' * i}try: pass\n{' ' * i}finally:\n" for i in depth)
    text = FENCE + bomb + (" " * 17 + "x += 1\n") * 20 + "```\n" * is_closed
    started = time.process_time()
    assert aborted_at(text, piece=4) is None
    assert time.process_time() - started < 0.8


def test_a_misplaced_statement_is_hopeless_whatever_else_could_still_be_mended() -> None:
    lines = "def f():\n    def g():\n        nonlocal x\n"
    assert not is_hopeless(lines)
    assert is_hopeless(lines + "return 1\n")


def test_the_prefill_opens_the_block() -> None:
    watch = AnswerWatch(FENCE)
    assert not watch.feed("def f(x):\n    return x")
    assert not watch.feed(" +")
    assert watch.feed("\n")
    assert watch.feed("whatever follows\n")


def test_without_a_python_fence_nothing_is_ended() -> None:
    for text in ("x = )\n", "```\nx = )\n", "```text\nx = )\n```\n", "```python\n    x = )\n"):
        assert aborted_at(text, piece=1) is None


def test_a_block_within_reasoning_is_not_the_answer() -> None:
    wrong, answer = "```python\nx = )\n```\n", "\n```python\nx = )\n"
    for reasoning in (f"<think>\n{wrong}</think>\n", f"\n<think>{wrong}So.</think>\n", "<think></think>\n"):
        assert aborted_at(reasoning, piece=1) is None
        assert aborted_at(reasoning + answer, piece=1) == len(reasoning + answer)
    # The chat template may have begun it: what stands before a block may be reasoning.
    assert aborted_at(f"One way:\n{wrong}</think>\n", piece=1) is None


def test_a_prefill_may_end_the_reasoning() -> None:
    assert AnswerWatch(f"<think>\n\n</think>\n\n{FENCE}").feed("x = )\n")


def test_a_long_answer_is_checked_a_bounded_number_of_times() -> None:
    """Each check parses from the start: 4,000 lines must not mean 4,000 parses."""
    watch = AnswerWatch(FENCE)
    num_checks, last = 0, -1
    for _ in range(4000):
        watch.feed("x = 1\n")
        num_checks += watch._next_check != last
        last = watch._next_check
    assert num_checks < 150


def test_an_aborted_completion_keeps_its_tokens_and_the_reward_of_a_syntax_failure() -> None:
    """It is no truncated one: ``mask_truncated_completions`` leaves it in the loss."""
    completions = [
        completion(index, length=3, finish=finish) for index, finish in enumerate(("abort", "length", "stop"))
    ]
    group = make_group(1, TASKS[0], (1, 2), completions, [scored(0.1), scored(0.1), scored(1.0)])
    grpo = GrpoConfig(mask_truncated_completions=True)
    batch = make_batch(1, [group], grpo)
    masks = [sample.loss_mask for sample in batch.samples]
    assert masks == [(0, 0, 1, 1, 1), (0, 0, 0, 0, 0), (0, 0, 1, 1, 1)]
    assert batch.samples[0].advantage == batch.samples[1].advantage < 0
    assert batch.samples[0].old_logprobs == (0.0, 0.0, *completions[0].logprobs)
    metrics = batch_metrics(1, [group], Config(grpo=grpo))
    assert metrics["rollout/truncated_share"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_setting_reaches_the_generator_and_the_metrics(tmp_path: Path, is_on: bool) -> None:
    requests: list[GenerationRequest] = []
    run = FakeRun(
        tmp_path, make_config(acceleration={"early_abort": {"enabled": is_on}}), fault=requests.append
    )
    run.train()
    assert {request.abort_prefill for request in requests} == {"prefill " if is_on else None}
    text = (run.folder.path / "metrics.jsonl").read_text()
    assert '"generation/aborted": 0.0, "generation/tokens_saved": 0.0' in text


def test_watching_that_does_not_pay_ends_for_the_rest_of_the_run_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is aborted here, so that it costs and saves nothing.
    monkeypatch.setattr(producer, "AbortBalance", partial(AbortBalance, least=4, every=1))
    requests: list[GenerationRequest] = []
    config = make_config(acceleration={"early_abort": {"enabled": True}})
    run = FakeRun(tmp_path, config, fault=requests.append)
    run.train()
    watched = [request.abort_prefill is not None for request in requests]
    assert watched[0] and not watched[-1]
    assert watched == sorted(watched, reverse=True)
    said = [str(text) for (text,) in run.rows(f"SELECT text FROM events WHERE kind = '{GUARD}'")]
    assert len(said) == 1 and "early abort" in said[0]
