"""A completion ends with the token that completes its stop string, whatever was drafted behind it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput

from pipeline.generation.generator import VersionMarks, num_up_to_stop
from pipeline.generation.vllm.engine import _completion
from pipeline.messages import VersionRun

STOP = "\n```"
# A token's text is at its number; the last one is left out of texts, as an end token is.
PIECES = ("x", "\n", "`", "``", "```", "\n``", "`\n", "x\n```y", "```\n", "")


def decode(token_ids: Sequence[int]) -> str:
    return "".join(PIECES[token] for token in token_ids)


@given(before=st.lists(st.integers(0, 9), max_size=400), behind=st.lists(st.integers(0, 9), max_size=9))
def test_tokens_end_where_writing_one_after_the_other_would_have_ended(
    before: list[int], behind: list[int]
) -> None:
    written: list[int] = []
    for token in [*before, 1, 4]:
        written.append(token)
        if STOP in decode(written):
            break
    assert num_up_to_stop([*written, *behind], STOP, decode) == len(written)


def test_a_stop_string_that_is_no_part_of_the_text_cuts_nothing_off() -> None:
    assert [num_up_to_stop([0] * number, STOP, decode) for number in (0, 1, 5)] == [0, 1, 5]


def piece(text: str, *token_ids: int, stop_reason: str | int | None = None) -> CompletionOutput:
    logprobs = [{token: Logprob(logprob=-float(token)), 99: Logprob(logprob=0.0)} for token in token_ids]
    return CompletionOutput(
        index=0,
        text=text,
        token_ids=list(token_ids),
        cumulative_logprob=None,
        logprobs=logprobs,
        finish_reason="stop",
        stop_reason=stop_reason,
    )


# The third token completes the stop string; the weights change where it begins, and behind it.
@pytest.mark.parametrize(
    ("pieces", "num_tokens"),
    [
        ([piece("x\n```", 0, 1, 4, 0, 9, stop_reason=STOP)], 3),
        ([piece("x", 0), piece("\n```", 1, 4, 0, 9, stop_reason=STOP)], 3),
        ([piece("x\n```", 0, 1, 4, stop_reason=STOP)], 3),
        # Ended by something else: all that was written counts.
        ([piece("x\n```x", 0, 1, 4, 0, 9)], 5),
        ([piece("x\n```x", 0, 1, 4, 0, 9, stop_reason=9)], 5),
    ],
)
def test_what_was_drafted_behind_a_stop_string_is_no_part_of_a_completion(
    pieces: list[CompletionOutput], num_tokens: int
) -> None:
    marks = VersionMarks(3)
    marks.changed(1, 4)
    marks.changed(4, 5)
    found = _completion(2, pieces, "stop", 7, marks, decode)
    assert (found.index, found.finish_reason, found.num_cached_tokens) == (2, "stop", 7)
    assert found.text == "".join(one.text for one in pieces)
    assert found.token_ids == (0, 1, 4, 0, 9)[:num_tokens]
    assert found.logprobs == (-0.0, -1.0, -4.0, -0.0, -9.0)[:num_tokens]
    versions = (3, 4, 4, 4, 5)[:num_tokens]
    assert found.token_versions == versions
    assert (found.min_policy_version, found.max_policy_version) == (min(versions), max(versions))
    if num_tokens == 3:
        expected = (VersionRun(policy_version=3, num_tokens=1), VersionRun(policy_version=4, num_tokens=2))
        assert found.version_runs == expected
