"""Guards: early abort ends where it does not pay, and the summary says what was decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.schema import Config, OutputConfig
from pipeline.evaluation.summary import guards_of, print_summary, write_summary
from pipeline.messages import Completion
from pipeline.record.ledger import GUARD, PLACEMENT_GUARD, Ledger
from pipeline.record.metrics import MetricsWriter
from pipeline.record.run_folder import RunFolder
from pipeline.rollouts.aborts import AbortBalance

PREFILL = "```python\n"
SPECULATING = Config.model_validate({"acceleration": {"speculative": {"enabled": True}}})


def completion(num_tokens: int, finish_reason: str) -> Completion:
    return Completion(
        index=0,
        token_ids=(1,) * num_tokens,
        logprobs=(0.0,) * num_tokens,
        text="def f():\n    return 1\n",
        finish_reason=finish_reason,
        min_policy_version=0,
        max_policy_version=0,
    )


def clock_of(step_s: float) -> Iterator[float]:
    now_s = 0.0
    while True:
        yield now_s
        now_s += step_s


def balance(watch_s: float) -> AbortBalance:
    """A balance for which watching any completion takes ``watch_s``."""
    times = clock_of(watch_s)
    return AbortBalance(PREFILL, least=8, every=2, clock=lambda: next(times))


def test_early_abort_goes_on_while_it_saves_more_than_it_costs() -> None:
    pays = balance(watch_s=0.01)
    for _ in range(20):
        assert pays.record(completion(40, "stop"), token_s=0.01) is None
        assert pays.record(completion(20, "abort"), token_s=0.01) is None
    assert pays.pays


def test_early_abort_that_saves_nothing_is_turned_off_once_and_it_is_said() -> None:
    costs = balance(watch_s=0.01)
    verdicts = [costs.record(completion(40, "stop"), token_s=0.01) for _ in range(20)]
    assert [verdict is not None for verdict in verdicts] == [False] * 7 + [True] + [False] * 12
    assert not costs.pays
    assert "turned off" in str(verdicts[7]) and "over 8 completions watching cost 0.08 s" in str(verdicts[7])


def test_watching_is_timed_by_the_real_watch() -> None:
    real = AbortBalance(PREFILL, least=1, every=1)
    verdict = real.record(completion(10, "stop"), token_s=0.0)
    assert verdict is not None and not real.pays


@pytest.mark.parametrize("config", [Config(), SPECULATING])
def test_a_run_tells_its_guards_in_the_summary(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder.create(OutputConfig(dir=str(tmp_path), name="run"), "{}") as folder:
        ledger = Ledger(folder.db)
        ledger.event("restart", "no guard")
        ledger.event(PLACEMENT_GUARD, "generation and training run in turn")
        ledger.event(GUARD, "early abort is turned off")
        ledger.close()
        metrics = MetricsWriter(folder.path)
        drafting = {"generation/drafted_tokens": 50.0, "generation/draft_acceptance": 0.5}
        metrics.log(1, {"generation/tokens": 100.0, **drafting})
        metrics.log(2, {"generation/tokens": 100.0, **drafting, "generation/draft_acceptance": 0.7})
        metrics.close()
        guards = guards_of(folder.db, folder.metrics, config)
        assert guards[0] == "generation and training run in turn"
        expected = "drafted 100 tokens for 200 that were written; 60 % of the drafted ones"
        assert guards[1] == "early abort is turned off"
        assert [expected in guard for guard in guards[2:]] == ([True] if config is SPECULATING else [])
        write_summary(folder, config, "cpu", "L3", None, None, {"total": 1.0}, guards=guards)
        assert json.loads(folder.summary.read_text())["guards"] == list(guards)
        print_summary(folder.path)
    said = capsys.readouterr().out
    assert all(f"guard: {guard}" in said for guard in guards)


def test_drafting_that_drafted_nothing_says_so(tmp_path: Path) -> None:
    with RunFolder.create(OutputConfig(dir=str(tmp_path), name="run"), "{}") as folder:
        Ledger(folder.db).close()
        metrics = MetricsWriter(folder.path)
        metrics.log(1, {"generation/tokens": 100.0, "generation/drafted_tokens": 0.0})
        metrics.close()
        (told,) = guards_of(folder.db, folder.metrics, SPECULATING)
    assert "drafted nothing" in told
