"""Engines that disagree are told from policies that are old, and from rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.evaluation.summary import guards_of
from pipeline.messages import StepResult, TrainBatch, WeightsLoaded, WeightUpdate
from pipeline.training.loss import LossSums
from pipeline.training.ranks import Ranks, sums_of_all
from pipeline.training.trainer import Trainer
from tests.pipeline.fake_stages import FakeRun, make_config, scored
from tests.pipeline.tiny_model import make_config as make_model_config
from tests.pipeline.tiny_model import make_samples, save_model

LENGTHS = [(4, 6), (4, 6), (3, 5), (3, 5)]
ADVANTAGES = [1.0, -1.0, 0.5, -0.5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("policy"))


def with_log_ratios(trainer: Trainer, batch: TrainBatch, shift: float, on_policy: list[int]) -> TrainBatch:
    """The samples with behaviour log-probabilities that are the trainer's own minus ``shift``."""
    samples = []
    for sample, is_on_policy in zip(batch.samples, on_policy, strict=True):
        with torch.no_grad():
            logits = trainer.model(torch.tensor([sample.token_ids])).logits[0, :-1]
        logprobs = torch.log_softmax(logits, dim=-1)
        own = [0.0] + [float(row[token]) for row, token in zip(logprobs, sample.token_ids[1:], strict=True)]
        samples.append(
            replace(
                sample,
                old_logprobs=tuple(
                    (value - shift) * m for value, m in zip(own, sample.loss_mask, strict=True)
                ),
                on_policy=tuple(is_on_policy * m for m in sample.loss_mask),
            )
        )
    return replace(batch, samples=tuple(samples))


def train_once(folder: Path, shifts: tuple[float, float]) -> dict[str, float]:
    """A step on two samples of the present policy and two of an older one, of these log-ratios."""
    trainer = Trainer(make_model_config(), folder)
    batch = make_samples(LENGTHS, ADVANTAGES)
    fresh = with_log_ratios(trainer, batch, shifts[0], [1, 1, 0, 0]).samples[:2]
    old = with_log_ratios(trainer, batch, shifts[1], [1, 1, 0, 0]).samples[2:]
    return dict(trainer.step(replace(batch, samples=fresh + old)).metrics)


def test_only_tokens_of_the_version_in_training_count_as_mismatch(folder: Path) -> None:
    metrics = train_once(folder, (0.0, 0.5))
    assert metrics["train/on_policy_share"] == pytest.approx(12 / 22)
    assert abs(metrics["train/mismatch_kl"]) < 1e-6
    assert abs(metrics["train/mismatch_kl_k1"]) < 1e-5
    assert metrics["train/kl"] > 0.05, "what is old differs, and shows elsewhere"
    metrics = train_once(folder, (0.3, 0.0))
    assert metrics["train/mismatch_kl"] == pytest.approx(2.718281828**0.3 - 0.3 - 1, abs=1e-4)
    assert metrics["train/mismatch_kl_k1"] == pytest.approx(-0.3, abs=1e-4)
    quantiles = [metrics[f"train/ratio_{name}"] for name in ("p01", "p50", "p99")]
    assert quantiles == pytest.approx([1.0, 2.718281828**0.3, 2.718281828**0.3], abs=1e-4)


def test_without_a_token_of_the_present_version_there_is_no_mismatch_to_tell(folder: Path) -> None:
    trainer = Trainer(make_model_config(), folder)
    metrics = trainer.step(make_samples(LENGTHS, ADVANTAGES)).metrics
    assert metrics["train/on_policy_share"] == 0
    assert not [name for name in metrics if "mismatch" in name]


def test_a_run_whose_engines_disagree_says_so_once_on_its_progress_output(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(grpo={"mismatch_kl_warning": 0.02}, training={"max_steps": 6}))
    step = run.trainer.step

    async def disagree(batch: TrainBatch) -> StepResult:
        result = await step(batch)
        return replace(result, metrics={**result.metrics, "train/mismatch_kl": 0.03 * batch.step})

    run.trainer.step = disagree  # type: ignore[method-assign]
    run.train()
    lines = [line for line in run.output.getvalue().splitlines() if "mismatch_kl" in line]
    assert len(lines) == 1
    assert "step 3: generator and trainer disagree: train/mismatch_kl is 0.09" in lines[0]


@pytest.mark.parametrize("quantization", ["int8", "none"])
def test_int8_is_left_for_good_where_it_makes_another_policy(quantization: str, tmp_path: Path) -> None:
    config = make_config(
        grpo={"mismatch_kl_warning": 0.02},
        generation={"quantization": quantization},
        training={"max_steps": 4},
    )
    run = FakeRun(tmp_path, config)
    step, update_weights = run.trainer.step, run.generator.update_weights
    updates: list[bool] = []

    async def disagree(batch: TrainBatch) -> StepResult:
        result = await step(batch)
        mismatch = {1: {"train/mismatch_kl": 0.01}, 2: {"train/mismatch_kl": 0.03}}.get(batch.step, {})
        return replace(result, metrics={**result.metrics, **mismatch})

    async def watched(update: WeightUpdate) -> WeightsLoaded:
        updates.append(update.is_quantised)
        return await update_weights(update)

    run.trainer.step = disagree  # type: ignore[method-assign]
    run.generator.update_weights = watched  # type: ignore[method-assign]
    run.train()
    has_int8 = quantization == "int8"
    assert updates == [True, *[not has_int8] * 3]
    guards = guards_of(run.folder.db, config)
    said = [guard.partition(": with int8 ")[::2] for guard in guards if "16 bits" in guard]
    assert said == has_int8 * [
        (
            "generation.quantization: after step 2 the engine's next weights are in 16 bits",
            "train/mismatch_kl is 0.03, above grpo.mismatch_kl_warning (0.02); what was measured before that "
            "is of int8",
        )
    ]


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_run_that_cannot_learn_says_so_and_ends_where_that_is_asked_for(
    is_strict: bool, tmp_path: Path
) -> None:
    config = make_config(training={"max_steps": 5}, runtime={"strict": is_strict})
    run = FakeRun(tmp_path, config, score_of=lambda task, index: scored(0.5))
    words = "step 3: no program in the answers: no program is found in 100 %"
    if is_strict:
        with pytest.raises(StageError, match=rf"{words}.*runtime\.strict"):
            run.train()
    else:
        run.train()
    assert run.rows("SELECT MAX(step) FROM steps")[0][0] == (3 if is_strict else 5)
    assert f"alarm: {words}" in run.output.getvalue()
    alarms = [text for (text,) in run.rows("SELECT text FROM events WHERE kind = 'alarm'")]
    assert alarms[0].startswith(f"alarm: {words}") and len(alarms) == (1 if is_strict else 3)
    assert is_strict or "grpo.num_generations (4) to 8" in alarms[1]
    guards = guards_of(run.folder.db, config)
    assert [guard for guard in guards if guard.startswith("alarm: ")] == alarms


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_threshold_that_every_run_exceeds_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="mismatch_kl_warning"):
        Config.model_validate({"grpo": {"mismatch_kl_warning": value}})


class TwoAtOnce(Ranks):
    """Gathers what this rank gives, and what another one gives in the same call."""

    num_ranks = 2

    def __init__(self, *others: torch.Tensor) -> None:
        self._others = list(others)

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        other = self._others.pop(0)
        assert other.shape == tensor.shape, "ranks gather tensors of one shape"
        return [tensor, other]


def test_quantiles_are_those_of_the_tokens_of_all_ranks() -> None:
    ours = replace(LossSums.zeros("cpu"), ratio_max=torch.tensor(9.0), log_ratios=torch.tensor([3.0, 1.0]))
    theirs = torch.full((11,), 2.0)
    sums = sums_of_all(TwoAtOnce(torch.tensor([2.0, 0.0, 4.0, torch.inf, torch.inf]), theirs), ours, 5)
    assert sums.log_ratios.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert float(sums.ratio_max) == 9.0
    assert float(sums.mismatch_k3) == 2.0
