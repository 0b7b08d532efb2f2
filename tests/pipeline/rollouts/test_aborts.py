"""Tokens that early abort saved are estimated."""

from __future__ import annotations

from pipeline.messages import Completion
from pipeline.rollouts.aborts import AbortAccount


def completion(length: int, finish_reason: str = "stop") -> Completion:
    return Completion(
        index=0,
        token_ids=(7,) * length,
        logprobs=(-1.0,) * length,
        text="",
        finish_reason=finish_reason,
        min_policy_version=0,
        max_policy_version=0,
    )


def test_what_an_aborted_completion_saved_is_what_others_had_left_there() -> None:
    account = AbortAccount()
    account.record(completion(5, "abort"))
    assert account.drain().num_tokens_saved == 0, "nothing is known yet"
    for length in (4, 10, 20):
        account.record(completion(length))
    account.record(completion(8, "abort"))
    account.record(completion(15, "abort"))
    counts = account.drain()
    assert counts.num_aborted == 2
    assert counts.num_tokens_saved == ((10 - 8) + (20 - 8)) / 2 + (20 - 15)
    assert account.drain().num_aborted == 0
