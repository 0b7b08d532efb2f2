"""Tokens that early abort saved are estimated."""

from __future__ import annotations

from pipeline.rollouts.aborts import AbortAccount
from tests.pipeline.rollouts.groups import completion


def test_what_an_aborted_completion_saved_is_what_others_had_left_there() -> None:
    account = AbortAccount()
    account.record(completion(length=5, finish="abort"))
    assert account.drain().num_tokens_saved == 0, "nothing is known yet"
    for length in (4, 10, 20):
        account.record(completion(length=length))
    account.record(completion(length=8, finish="abort"))
    account.record(completion(length=15, finish="abort"))
    counts = account.drain()
    assert counts.num_aborted == 2
    assert counts.num_tokens_saved == ((10 - 8) + (20 - 8)) / 2 + (20 - 15)
    assert account.drain().num_aborted == 0
