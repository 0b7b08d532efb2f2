"""The trial of layouts: the fastest stays, or what is asked for if it is near; no gradient changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from configs.schema import Config
from pipeline.training.layout_trial import Layout, LayoutTrial
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_groups, save_model

ROWS = Layout(packs=True, shares_prompts=True)
PADDED = Layout(packs=False, shares_prompts=True)
ALONE = Layout(packs=True, shares_prompts=False)


def verdict_of(seconds: dict[Layout, float]) -> tuple[Layout, str, int]:
    """The layout kept where each takes so long, the verdict, and after how many parts."""
    trial = LayoutTrial(list(seconds), num_settling=1, num_measured=3)
    for number in range(1, 50):
        verdict = trial.record(99.0 if number == 1 else seconds[trial.present], 1000)
        if verdict is not None:
            assert trial.is_over
            assert trial.record(1e9, 1000) is None, "it is decided for good"
            return trial.present, verdict, number
    raise AssertionError("never decided")


def test_a_layout_that_is_clearly_slower_than_another_is_given_up_and_it_is_said() -> None:
    kept, verdict, num_parts = verdict_of({ROWS: 2.0, PADDED: 1.0, ALONE: 3.0})
    assert kept == PADDED and num_parts == 1 + 3 * 3
    assert "without packing behind shared prompts 1.00 s" in verdict and "clearly faster" in verdict


def test_a_layout_that_is_asked_for_stays_where_another_is_hardly_faster() -> None:
    kept, verdict, _ = verdict_of({ROWS: 1.1, PADDED: 1.0, ALONE: 3.0})
    assert kept == ROWS and "kept as asked" in verdict


def test_parts_are_compared_by_their_tokens_and_empty_ones_do_not_count() -> None:
    trial = LayoutTrial([ROWS, PADDED], num_settling=0, num_measured=1)
    assert trial.record(5.0, 0) is None and trial.present == ROWS
    assert trial.record(4.0, 1000) is None
    verdict = trial.record(6.0, 3000)
    assert verdict is not None and trial.present == PADDED


@pytest.mark.parametrize(
    ("sections", "supports_packing", "is_over"),
    [
        ({}, True, False),
        ({}, False, True),
        ({"training": {"max_steps": 10}}, True, True),
        ({"runtime": {"trainer_ranks": 2}}, True, True),
        ({"generation": {"seed_requests": True}}, True, True),
        ({"acceleration": {"token_packing": {"enabled": False}, "shared_prompt": False}}, True, True),
        ({"acceleration": {"shared_prompt": False}}, True, True),  # padded prompts would need more memory
        ({"acceleration": {"shared_prompt": False, "token_packing": {"max_tokens": 8192}}}, True, False),
    ],
)
def test_a_trial_is_for_long_runs_of_one_rank_that_have_a_choice(
    sections: dict[str, object], supports_packing: bool, is_over: bool
) -> None:
    trial = LayoutTrial.of_run(Config.model_validate(sections), supports_packing=supports_packing)
    assert trial.is_over is is_over


def test_a_trainer_that_tries_layouts_has_the_gradients_of_one_that_does_not(tmp_path: Path) -> None:
    folder = save_model(tmp_path)
    config = make_config(training={"bf16": False, "max_steps": 36})
    batch = make_groups((4, 6), [[5, 3], [2, 7]])
    plain = Trainer(config, folder)
    trying = Trainer(config, folder, tries_layouts=True)
    seen = set()
    _, expected = plain.gradients(batch)
    for _ in range(10):
        seen.add(trying._layouts.present)
        trying._add(batch)
        scale = trying._gradient.finish().scale
        for name, master in trying.model.named_parameters():
            assert master.grad is not None
            torch.testing.assert_close(master.grad * scale, expected[name], rtol=1e-4, atol=1e-6)
    assert seen == {ROWS, PADDED}
    assert len(trying._notes) == 1


def test_the_verdict_comes_with_the_step_that_ends_the_trial(tmp_path: Path) -> None:
    config = make_config(training={"bf16": False, "max_steps": 36})
    trainer = Trainer(config, save_model(tmp_path), tries_layouts=True)
    batch = make_groups((4,), [[5, 3]])
    notes = [trainer.step(batch).notes for _ in range(12)]
    assert [len(note) for note in notes] == [0] * 6 + [1] + [0] * 5
