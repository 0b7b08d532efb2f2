"""What early abort saved is estimated, and it ends where it does not pay."""

from __future__ import annotations

import itertools

from pipeline.generation.early_abort import AbortAccount, AbortBalance
from tests.pipeline.rollouts.groups import completion

PREFILL = "```python\n"


def test_what_an_aborted_completion_saved_is_what_others_had_left_there() -> None:
    account = AbortAccount()
    account.record(completion(length=5, finish="abort"))
    assert account.drain() == {"generation/aborted": 1.0, "generation/tokens_saved": 0.0}, "nothing is known"
    for length in (4, 10, 20):
        account.record(completion(length=length))
    account.record(completion(length=8, finish="abort"))
    account.record(completion(length=15, finish="abort"))
    saved = ((10 - 8) + (20 - 8)) / 2 + (20 - 15)
    assert account.drain() == {"generation/aborted": 2.0, "generation/tokens_saved": saved}
    assert account.drain() == {"generation/aborted": 0.0, "generation/tokens_saved": 0.0}


def balance(watch_s: float) -> AbortBalance:
    """A balance for which watching any completion takes ``watch_s``."""
    times = itertools.count(0.0, watch_s)
    return AbortBalance(PREFILL, least=8, every=2, clock=lambda: next(times))


def test_early_abort_goes_on_while_it_saves_more_than_it_costs() -> None:
    pays = balance(watch_s=0.01)
    for _ in range(20):
        assert pays.record(completion(length=40), saved_s=0.0) is None
        assert pays.record(completion(length=20, finish="abort"), saved_s=0.2) is None
    assert pays.pays


def test_early_abort_that_saves_nothing_is_turned_off_once_and_it_is_said() -> None:
    costs = balance(watch_s=0.01)
    verdicts = [costs.record(completion(length=40), saved_s=0.0) for _ in range(20)]
    assert [verdict is not None for verdict in verdicts] == [False] * 7 + [True] + [False] * 12
    assert not costs.pays
    assert "turned off" in str(verdicts[7]) and "over 8 completions watching cost 0.08 s" in str(verdicts[7])


def test_watching_is_timed_by_the_real_watch() -> None:
    real = AbortBalance(PREFILL, least=1, every=1)
    verdict = real.record(completion(length=10), saved_s=0.0)
    assert verdict is not None and not real.pays
