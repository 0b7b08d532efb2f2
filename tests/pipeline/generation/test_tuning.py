"""The search keeps what is clearly faster, stays in its budget, and its cache never leads astray."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.generation.tuning import (
    Choice,
    Trial,
    Tuning,
    changes_to_try,
    read_tuning,
    search,
    tuned,
    write_tuning,
)
from tests.pipeline.tiny_model import make_config, save_byte_model

BASE = Choice(threads=None, max_num_seqs=64, enforce_eager=True, kv_cache_gb=1.0)
CHANGES: list[dict[str, object]] = [{"threads": 2}, {"max_num_seqs": 128}, {"enforce_eager": False}]


class Bench:
    """Rates by what is changed (multiplied), and a clock on which each trial takes ``trial_s``."""

    def __init__(self, gains: Mapping[tuple[str, object], float | Exception], trial_s: float = 10.0) -> None:
        self.gains = gains
        self.trial_s = trial_s
        self.now_s = 100.0

    async def measure(self, choice: Choice) -> float:
        self.now_s += self.trial_s
        rate = 100.0
        for (name, value), gain in self.gains.items():
            if getattr(choice, name) == value:
                if isinstance(gain, Exception):
                    raise gain
                rate *= gain
        return rate

    def run(self, budget_s: float = 1000.0) -> Tuning:
        return asyncio.run(search(BASE, CHANGES, self.measure, budget_s=budget_s, clock=lambda: self.now_s))


def test_changes_that_are_clearly_faster_are_kept_together() -> None:
    found = Bench({("threads", 2): 1.2, ("max_num_seqs", 128): 0.8, ("enforce_eager", False): 1.5}).run()
    assert found.choice == Choice(threads=2, max_num_seqs=64, enforce_eager=False, kv_cache_gb=1.0)
    assert [trial.tokens_per_s for trial in found.trials] == pytest.approx([100, 120, 96, 180])
    assert found.num_untried == 0


def test_a_gain_within_the_noise_is_none() -> None:
    assert Bench({("threads", 2): 1.02}).run().choice == BASE


def test_a_choice_that_does_not_start_is_noted_and_passed_over() -> None:
    found = Bench({("threads", 2): StageError("no such core"), ("enforce_eager", False): 1.5}).run()
    assert found.choice == Choice(threads=None, max_num_seqs=64, enforce_eager=False, kv_cache_gb=1.0)
    assert found.trials[1].tokens_per_s is None
    assert "failed: no such core" in found.describe()
    assert found.describe().count("<- chosen") == 1


def test_settings_that_do_not_start_as_they_are_end_the_run() -> None:
    with pytest.raises(StageError, match="no memory"):
        Bench({("threads", None): StageError("no memory")}).run()


def test_no_trial_begins_that_would_not_fit_in_the_budget() -> None:
    bench = Bench({}, trial_s=40.0)
    found = bench.run(budget_s=100.0)
    assert len(found.trials) == 2
    assert found.num_untried == 2
    assert bench.now_s - 100.0 <= 100.0
    assert "2 more were not tried" in found.describe()


def test_only_what_can_differ_here_is_tried() -> None:
    config = Config.model_validate({"runtime": {"generator_threads": 1}})
    names = [next(iter(change)) for change in changes_to_try(config, "cpu", has_compiler=False)]
    assert "threads" not in names, "one thread cannot be halved"
    assert "enforce_eager" not in names, "nothing to compile with"
    assert {"enforce_eager": False} in changes_to_try(config, "cpu", has_compiler=True)
    assert all("kv_cache_gb" not in change for change in changes_to_try(config, "cuda", has_compiler=True)), (
        "on a GPU it is gpu_memory_utilization"
    )


def test_what_was_measured_is_read_back(tmp_path: Path) -> None:
    trials = (Trial(choice=BASE, tokens_per_s=10.0), Trial(choice=BASE, tokens_per_s=None, fault="x"))
    tuning = Tuning(choice=BASE, trials=trials, num_untried=3)
    write_tuning(tmp_path / "deep" / "a.json", tuning)
    assert read_tuning(tmp_path / "deep" / "a.json") == tuning
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"max_num_seqs": 64', '"max_num_seqs": "many"'),
        lambda text: text.replace('"max_num_seqs": 64', '"max_num_seqs": 0'),
        lambda text: text.replace('"enforce_eager": true', '"enforce_eager": 3'),
        lambda text: text.replace('"kv_cache_gb": 1.0', '"kv_cache_gb": -1'),
        lambda text: text.replace('"threads": null', '"threads": -2'),
        lambda text: text.replace('"choice"', '"chosen"'),
    ],
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "a.json"
    write_tuning(path, Tuning(choice=BASE, trials=(), num_untried=0))
    assert callable(damage)
    path.write_text(damage(path.read_text()))
    assert read_tuning(path) is None


def test_a_real_engine_is_measured_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = save_byte_model(tmp_path / "model")
    config = make_config(
        generation={"engine": "transformers", "dtype": "float32", "max_num_seqs": 16, "tune": True},
        training={"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
        grpo={"num_generations": 2},
        runtime={"generator_threads": 1},
    )
    told: list[str] = []
    first = asyncio.run(tuned(config, str(path), "cpu", told.append))
    assert "tok/s  <- chosen" in told[0]
    assert asyncio.run(tuned(config, str(path), "cpu", told.append)) == first
    assert told[1].startswith("engine settings from an earlier measurement")

    (stored,) = (tmp_path / "cache" / "code-grpo" / "tuning").iterdir()
    assert json.loads(stored.read_text())["trials"][0]["tokens_per_s"] > 0
    stored.write_text("{")
    asyncio.run(tuned(config, str(path), "cpu", told.append))
    assert "<- chosen" in told[2], "a corrupt file is measured anew"

    other = config.model_copy(update={"runtime": config.runtime.model_copy(update={"generator_threads": 2})})
    asyncio.run(tuned(other, str(path), "cpu", told.append))
    assert "<- chosen" in told[3], "another setting is another key"
