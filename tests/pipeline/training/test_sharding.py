"""Two ranks compute what one computes, however the step's samples fall to them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from configs.schema import Config
from pipeline.messages import TrainBatch
from pipeline.models.loading import load_model
from pipeline.training.batching import MicroBatchPlan
from pipeline.training.ranks import Ranks, ShardedRanks
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_model, make_samples, parts_of, save_model
from tests.pipeline.training.builders import (
    ADVANTAGES,
    GROUP_ADVANTAGES,
    LENGTHS,
    PADDED,
    gradients,
    micro_plans,
    relative_error,
    weights,
)
from tests.pipeline.two_ranks import TwoRanks


def groups() -> TrainBatch:
    """Eight samples, four behind one prompt and four behind another."""
    batch = make_samples([(5, length) for length in (9, 2, 7, 12, 3, 16, 1, 6)], ADVANTAGES)
    prompts = [sample.token_ids[:5] for sample in (batch.samples[0], batch.samples[4])]
    samples = [
        replace(sample, token_ids=prompts[index // 4] + sample.token_ids[5:])
        for index, sample in enumerate(batch.samples)
    ]
    return replace(batch, samples=tuple(samples))


def three_steps(
    ranks: Ranks, config: Config, folder: Path, batches: Sequence[TrainBatch]
) -> tuple[list[dict[str, float]], dict[str, Tensor]]:
    trainer = Trainer(config, folder, ranks=ranks)
    metrics = [dict(trainer.step(batch).metrics) for batch in batches]
    return metrics, weights(trainer)


def assert_equals_one(
    pair: TwoRanks,
    folder: Path,
    batch: TrainBatch,
    settings: Mapping[str, Mapping[str, object]],
    sizes: Sequence[int] | None = None,
) -> set[str]:
    """Two ranks, given ``batch`` in parts of ``sizes``, have the loss and gradient of one; its names."""
    config = make_config(**settings)
    loss, expected = gradients(Ranks(), config, folder, batch)
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-3
    parts = parts_of(batch, sizes or [len(batch.samples)])
    for ours_loss, ours in pair.run(gradients, config, folder, *parts):
        assert ours_loss == pytest.approx(loss, abs=1e-5)
        assert relative_error(ours, expected) <= 1e-5
    return set(expected)


def assert_close(
    ours: Mapping[str, Tensor], expected: Mapping[str, Tensor], start: Mapping[str, Tensor]
) -> None:
    """Adam takes a full step even where the gradient is all rounding, so one part in 1,000 may differ."""
    assert relative_error(ours, expected) < 1e-3 * relative_error(start, expected)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="packed"),
        pytest.param({"acceleration": {"token_packing": {"max_tokens": 24}}}, id="many rows"),
        pytest.param({"acceleration": PADDED}, id="padded"),
        pytest.param(
            {"acceleration": {**PADDED, "skip_zero_advantages": False}, "grpo": {"loss_type": "dr_grpo"}},
            id="nothing skipped",
        ),
        pytest.param(
            {
                "acceleration": PADDED,
                "training": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
            },
            id="three micro-batches",
        ),
        pytest.param(
            {
                "acceleration": PADDED,
                "training": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
                "grpo": {"beta": 0.1, "loss_type": "grpo"},
            },
            id="a reference model",
        ),
        pytest.param({"training": {"gradient_checkpointing": True}}, id="checkpointing"),
        pytest.param({"grpo": {"importance_sampling_level": "sequence"}}, id="sequence ratios"),
        pytest.param({"lora": {"enabled": True, "r": 4}, "grpo": {"beta": 0.1}}, id="adapters"),
    ],
)
@pytest.mark.parametrize("batch", [make_samples(LENGTHS, ADVANTAGES), groups()], ids=["mixed", "groups"])
def test_two_ranks_have_the_gradient_of_one(
    pair: TwoRanks, folder: Path, settings: Mapping[str, Mapping[str, object]], batch: TrainBatch
) -> None:
    assert_equals_one(pair, folder, batch, settings)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="packed"),
        pytest.param({"acceleration": PADDED, "grpo": {"loss_type": "grpo"}}, id="padded"),
        pytest.param({"lora": {"enabled": True, "r": 4}}, id="adapters"),
        pytest.param({"grpo": {"importance_sampling_level": "sequence"}}, id="sequence ratios"),
    ],
)
def test_two_ranks_have_the_gradient_of_one_part_by_part(
    pair: TwoRanks, folder: Path, settings: Mapping[str, Mapping[str, object]]
) -> None:
    assert_equals_one(pair, folder, groups(), settings, (4, 1, 3))


def step_part_by_part(ranks: Ranks, config: Config, folder: Path) -> dict[str, float]:
    trainer = Trainer(config, folder, ranks=ranks)
    *earlier, last = parts_of(groups(), (4, 1, 3))
    for part in earlier:
        trainer.accumulate(part)
    return dict(trainer.step(last).metrics)


def test_two_ranks_report_of_a_step_in_parts_what_one_does(pair: TwoRanks, folder: Path) -> None:
    config = make_config(acceleration=PADDED)
    expected = step_part_by_part(Ranks(), config, folder)
    for ours in pair.run(step_part_by_part, config, folder):
        same = expected.keys() - {"train/micro_batches", "train/padding_share"}
        assert {name: ours[name] for name in same} == pytest.approx(
            {name: expected[name] for name in same}, rel=1e-4, abs=1e-6
        )


@pytest.mark.parametrize(
    ("num_samples", "is_tied"), [(1, True), (2, True), (3, True), (5, True), (3, False), (8, False)]
)
def test_any_number_of_samples_is_shared_out_and_an_output_head_of_its_own_too(
    pair: TwoRanks, tmp_path: Path, num_samples: int, is_tied: bool
) -> None:
    training = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    settings: dict[str, Mapping[str, object]] = {"training": training, "acceleration": PADDED}
    batch = make_samples(LENGTHS[:num_samples], GROUP_ADVANTAGES[:num_samples])
    folder = save_model(tmp_path, is_tied=is_tied)
    names = assert_equals_one(pair, folder, batch, settings)
    assert ("lm_head.weight" in names) is not is_tied


def test_bf16_ranks_are_as_near_to_fp32_as_one_bf16_trainer(pair: TwoRanks, folder: Path) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    _, exact = gradients(Ranks(), make_config(), folder, batch)
    bf16 = make_config(training={"bf16": True})
    _, one = gradients(Ranks(), bf16, folder, batch)
    for _, ours in pair.run(gradients, bf16, folder, batch):
        assert all(value.dtype == torch.float32 for value in ours.values())
        assert relative_error(ours, exact) < 1.5 * relative_error(one, exact)


def test_weights_and_metrics_agree_after_three_steps_one_without_signal(pair: TwoRanks, folder: Path) -> None:
    batches = [
        make_samples(LENGTHS, ADVANTAGES),
        make_samples(LENGTHS, [0.0] * 8, seed=2),
        make_samples(LENGTHS[:5], ADVANTAGES[:5], seed=3),
    ]
    config = make_config(training={"max_grad_norm": 0.5}, acceleration=PADDED)
    metrics, expected = three_steps(Ranks(), config, folder, batches)
    start = weights(Trainer(config, folder))
    assert metrics[1]["train/grad_norm"] == 0.0
    for ours_metrics, ours in pair.run(three_steps, config, folder, batches):
        assert_close(ours, expected, start)
        for ours_step, step in zip(ours_metrics, metrics, strict=True):
            # How full the micro-batches are depends on how many there are.
            same = step.keys() - {"train/padding_share", "train/pack_ratio", "train/micro_batches"}
            assert {name: ours_step[name] for name in same} == pytest.approx(
                {name: step[name] for name in same}, rel=1e-4, abs=1e-6
            )


def save_after_a_step(ranks: Ranks, config: Config, folder: Path, out: Path) -> dict[str, Tensor]:
    trainer = Trainer(config, folder, ranks=ranks)
    trainer.step(make_samples(LENGTHS, ADVANTAGES))
    trainer.save(out, 1)
    return weights(trainer)


def load_and_step(
    ranks: Ranks, config: Config, folder: Path, saved: Path
) -> tuple[int, dict[str, Tensor], dict[str, Tensor]]:
    trainer = Trainer(config, folder, ranks=ranks)
    step = trainer.load(saved)
    loaded = weights(trainer)
    trainer.step(make_samples(LENGTHS, ADVANTAGES, seed=5))
    return step, loaded, weights(trainer)


def test_a_checkpoint_of_adapters_goes_on_with_one_and_with_two(
    pair: TwoRanks, folder: Path, tmp_path: Path
) -> None:
    config = make_config(lora={"enabled": True, "r": 4})
    left, _ = pair.run(save_after_a_step, config, folder, tmp_path / "by-two")
    assert all("lora" in name for name in left)
    expected = load_and_step(Ranks(), config, folder, tmp_path / "by-two")
    for _, loaded, after in [expected, *pair.run(load_and_step, config, folder, tmp_path / "by-two")]:
        assert all(torch.equal(loaded[name], left[name]) for name in left)
        assert_close(after, expected[2], loaded)


def test_a_checkpoint_of_two_ranks_goes_on_with_one_and_with_two_and_back(
    pair: TwoRanks, folder: Path, tmp_path: Path
) -> None:
    config = make_config()
    by_two, by_one = tmp_path / "by-two", tmp_path / "by-one"
    left, right = pair.run(save_after_a_step, config, folder, by_two)
    one = save_after_a_step(Ranks(), config, folder, by_one)
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert (by_two / "model.safetensors").stat().st_size == (by_one / "model.safetensors").stat().st_size
    config_of = [json.loads((path / "config.json").read_text()) for path in (by_two, by_one)]
    assert config_of[0] == config_of[1]
    on_disk = dict(load_model(by_two).named_parameters())
    for saved, written in ((by_two, left), (by_one, one)):
        expected = load_and_step(Ranks(), config, folder, saved)
        for step, loaded, after in [expected, *pair.run(load_and_step, config, folder, saved)]:
            assert step == 1
            assert all(torch.equal(loaded[name], written[name]) for name in written)
            assert_close(after, expected[2], loaded)
    assert all(torch.equal(on_disk[name], left[name]) for name in left)


def load_without_a_whole_model(ranks: Ranks, config: Config, folder: Path) -> dict[str, Tensor]:
    """The weights as loaded and the buffers; fails where a rank has Transformers load the whole model."""
    with patch.object(AutoModelForCausalLM, "from_pretrained", None):
        trainer = Trainer(config, folder, ranks=ranks)
    local = sum(
        value.to_local().numel() for value in trainer.model.parameters() if isinstance(value, DTensor)
    )
    total = sum(value.numel() for value in trainer.model.parameters())
    assert 0 < local < 0.6 * total
    return weights(trainer) | dict(trainer.model.named_buffers())


@pytest.mark.parametrize("is_tied", [True, False])
def test_each_rank_reads_its_part_of_the_files_alone(pair: TwoRanks, tmp_path: Path, is_tied: bool) -> None:
    model = make_model(3, is_tied=is_tied)
    save_model(tmp_path, 3, is_tied=is_tied)
    expected = dict(model.named_parameters()) | dict(model.named_buffers())
    for loaded in pair.run(load_without_a_whole_model, make_config(), tmp_path):
        assert loaded.keys() == expected.keys()
        assert all(torch.equal(loaded[name], value) for name, value in expected.items())


def test_files_that_name_weights_otherwise_are_loaded_as_one_rank_loads_them(
    pair: TwoRanks, tmp_path: Path
) -> None:
    path = save_model(tmp_path, 3) / "model.safetensors"
    # As older files of a model without its head have them.
    renamed = {name.removeprefix("model."): value for name, value in load_file(path).items()}
    save_file(renamed, path, metadata={"format": "pt"})
    one = weights(Trainer(make_config(), tmp_path))
    for loaded in pair.run(weights_as_loaded, make_config(), tmp_path):
        assert all(torch.equal(loaded[name], one[name]) for name in one)
    assert all(torch.equal(one[name], value) for name, value in make_model(3).named_parameters())


def weights_as_loaded(ranks: Ranks, config: Config, folder: Path) -> dict[str, Tensor]:
    return weights(Trainer(config, folder, ranks=ranks))


def test_every_micro_batch_is_run_once_and_full_rounds_are_the_shortest() -> None:
    samples = make_samples([(1, length) for length in (9, 1, 7, 8, 2)], [1.0] * 5).samples
    training = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    plans = micro_plans(samples, training=training)
    meshes = [Mock(get_rank=lambda rank=rank: rank, size=lambda: 2) for rank in range(2)]
    shares = [ShardedRanks(mesh).share(plans) for mesh in meshes]
    assert [len(share) for share in shares] == [3, 2]
    assert [ShardedRanks(mesh).num_idle(len(plans)) for mesh in meshes] == [0, 1]

    def time(order: Sequence[MicroBatchPlan]) -> int:
        return sum(max(plan.num_tokens for plan in order[start : start + 2]) for start in range(0, 5, 2))

    rounds = [plan for pair in itertools.zip_longest(*shares) for plan in pair if plan is not None]
    assert sorted(map(id, rounds)) == sorted(map(id, plans))
    assert time(rounds) == min(time(order) for order in itertools.permutations(plans))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"runtime": {"trainer_ranks": 9}}, "at most the 8 completions of an optimiser step"),
        (
            {"runtime": {"trainer_ranks": 2}, "lora": {"enabled": True, "load_in_4bit": True}},
            "1 where the frozen weights are in 4 bits",
        ),
    ],
)
def test_ranks_that_cannot_work_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make_config(**settings)
