"""A step trained on part by part, as its groups come, is the step trained on at once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from configs.schema import Config
from pipeline.messages import TrainBatch
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_groups, parts_of
from tests.pipeline.training.builders import PADDED, FaultyAllocator, relative_error, weights

# Four groups of four; the third is without signal.
GROUPS = make_groups((7, 3, 4, 5), [[3, 9, 1, 6], [5, 2, 8, 4], [4, 4, 6, 2], [1, 1, 12, 7]])
WHOLE = replace(
    GROUPS,
    samples=tuple(
        replace(sample, advantage=0.0) if 8 <= index < 12 else sample
        for index, sample in enumerate(GROUPS.samples)
    ),
)
SHARED: Mapping[str, object] = {"token_packing": {"enabled": False}}
PACKED: Mapping[str, object] = {"shared_prompt": False, "token_packing": {"max_tokens": 48}}
LAYOUTS = {"padded": PADDED, "shared prompts": SHARED, "packed": PACKED, "both": {}}
Settings = Mapping[str, Mapping[str, object]]


def assert_parts_equal_the_whole(folder: Path, config: Config, batch: TrainBatch = WHOLE) -> None:
    trainer = Trainer(config, folder)
    loss, expected = trainer.gradients(batch)
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-4
    for sizes in ((4, 4, 4, 4), (4, 12), (12, 4)):
        ours_loss, ours = trainer.gradients(*parts_of(batch, sizes))
        assert ours_loss == pytest.approx(loss, rel=1e-5, abs=1e-6)
        assert relative_error(ours, expected) <= 1e-5


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "bnpo", "cispo"])
def test_parts_have_the_gradient_of_the_whole_step(
    folder: Path, loss_type: str, layout: Mapping[str, object]
) -> None:
    grpo: dict[str, object] = {"loss_type": loss_type}
    if loss_type == "cispo":
        grpo["epsilon_high"] = 5.0
    assert_parts_equal_the_whole(folder, make_config(grpo=grpo, acceleration=layout))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"grpo": {"importance_sampling_level": "sequence"}}, id="sequence ratios"),
        pytest.param({"grpo": {"importance_sampling_mode": "token_truncate"}}, id="token correction"),
        pytest.param({"grpo": {"importance_sampling_mode": "sequence_mask"}}, id="sequence correction"),
        pytest.param({"grpo": {"beta": 0.1, "loss_type": "grpo"}}, id="a reference model"),
        pytest.param({"acceleration": {"skip_zero_advantages": False}}, id="nothing skipped"),
        pytest.param({"lora": {"enabled": True, "r": 4}}, id="adapters"),
        pytest.param({"training": {"gradient_checkpointing": True}}, id="checkpointing"),
        pytest.param(
            {
                "training": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8},
                "grpo": {"loss_type": "bnpo"},
                "acceleration": PADDED,
            },
            id="many micro-batches",
        ),
    ],
)
def test_parts_have_the_gradient_of_the_whole_step_with(folder: Path, settings: Settings) -> None:
    assert_parts_equal_the_whole(folder, make_config(**settings))


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "bnpo"])
def test_truncated_completions_count_in_the_denominators_of_all_parts(folder: Path, loss_type: str) -> None:
    masked = replace(WHOLE.samples[1], loss_mask=(0,) * len(WHOLE.samples[1].token_ids))
    batch = replace(WHOLE, samples=(WHOLE.samples[0], masked, *WHOLE.samples[2:]))
    assert_parts_equal_the_whole(folder, make_config(grpo={"loss_type": loss_type}), batch)


@pytest.mark.parametrize("is_lora", [False, True])
def test_bf16_parts_that_are_cut_like_the_whole_round_like_it(folder: Path, is_lora: bool) -> None:
    # Micro-batches of one group each: their bf16 gradients are the same, and are summed in fp32.
    lora = {"lora": {"enabled": True, "r": 4}} if is_lora else {}
    trainer = Trainer(make_config(training={"bf16": True}, acceleration=SHARED, **lora), folder)
    _, expected = trainer.gradients(WHOLE)
    _, ours = trainer.gradients(*parts_of(WHOLE, (4, 4, 4, 4)))
    assert all(value.dtype == torch.float32 for value in ours.values())
    assert relative_error(ours, expected) <= 1e-5


def test_bf16_parts_are_as_near_to_fp32_as_the_whole(folder: Path) -> None:
    _, exact = Trainer(make_config(), folder).gradients(WHOLE)
    trainer = Trainer(make_config(training={"bf16": True}), folder)
    whole_error = relative_error(trainer.gradients(WHOLE)[1], exact)
    ours = trainer.gradients(*parts_of(WHOLE, (4, 4, 4, 4)))[1]
    assert relative_error(ours, exact) < 1.5 * whole_error


def test_weights_change_after_the_last_part_only_and_then_as_by_the_whole_step(folder: Path) -> None:
    config = make_config(training={"max_grad_norm": 0.1})
    whole, streamed = Trainer(config, folder), Trainer(config, folder)
    start = weights(whole)
    for step in (1, 2, 3):
        *earlier, last = parts_of(replace(WHOLE, step=step), (4, 8, 4))
        before = weights(streamed)
        for part in earlier:
            streamed.accumulate(part)
        assert all(torch.equal(value, before[name]) for name, value in weights(streamed).items())
        assert streamed.policy_version == step - 1
        ours, expected = streamed.step(last), whole.step(replace(WHOLE, step=step))
        assert (streamed.policy_version, ours.num_tokens) == (step, WHOLE.num_tokens)
        assert ours.metrics["train/parts"] == 3
        # How full the micro-batches are depends on how many there are.
        same = expected.metrics.keys() - {"train/parts", "train/micro_batches", "train/pack_ratio"}
        assert {name: ours.metrics[name] for name in same} == pytest.approx(
            {name: expected.metrics[name] for name in same}, rel=1e-4, abs=1e-6
        )
    # Adam takes a full step even where the gradient is all rounding, so one part in 1,000 may differ.
    ours_weights, whole_weights = weights(streamed), weights(whole)
    assert relative_error(ours_weights, whole_weights) < 1e-3 * relative_error(start, whole_weights)


def test_the_seconds_of_a_step_are_those_of_all_its_parts(folder: Path) -> None:
    trainer = Trainer(make_config(), folder)
    *earlier, last = parts_of(WHOLE, (12, 4))
    trainer.accumulate(earlier[0])
    earlier_s = trainer._earlier_s
    assert earlier_s > 0
    assert trainer.step(last).seconds > earlier_s
    trainer._earlier_s = 1e6
    trainer.accumulate(earlier[0])
    assert trainer._earlier_s < 1e6, "part 0 begins them anew"


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_part_that_runs_out_of_memory_goes_on_with_what_is_not_in_the_gradient(
    folder: Path, where: str, bf16: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _, expected = Trainer(make_config(), folder).gradients(WHOLE)
    config = make_config(training={"bf16": bf16}, acceleration={"skip_zero_advantages": False})
    trainer = Trainer(config, folder)
    fault = FaultyAllocator(trainer, 25, where)
    fault.is_on = False
    first, *others = parts_of(WHOLE, (4, 4, 4, 4))
    trainer._gradient.add(first)
    assert fault.sizes == [22]
    fault.is_on = True
    with caplog.at_level(logging.WARNING):
        trainer._gradient.add(others[0])
    # A second part of 18 tokens fits; the third too; the last, of 22 and its prompt, does not.
    assert caplog.records == [] and fault.sizes == [22, 18]
    trainer._gradient.add(others[1])
    fault.max_tokens = 20
    with caplog.at_level(logging.WARNING):
        trainer._gradient.add(others[2])
    found = trainer._gradient.finish()
    assert len(caplog.records) == 1 and "does not fit into memory" in caplog.text
    num_again = sum(fault.sizes[4:])
    if where == "forward":
        assert num_again < 2 * fault.sizes[3], "what was in the gradient is not trained on again"
    else:
        assert num_again > sum(fault.sizes[:3]), "the failed backward had begun to add its gradient"
    assert found.totals.num_trained_samples == 16 and found.totals.num_parts == 4
    master = dict(trainer.model.named_parameters())
    gradients = {name: master[name].grad for name in expected}
    ours = {name: gradient * found.scale for name, gradient in gradients.items() if gradient is not None}
    assert relative_error(ours, expected) <= (0.1 if bf16 else 1e-5)


def test_an_error_in_a_part_leaves_no_half_gradient_behind(folder: Path) -> None:
    trainer = Trainer(make_config(training={"memory": "fixed"}), folder)
    _, expected = trainer.gradients(WHOLE)
    fault = FaultyAllocator(trainer, 0, "backward")
    fault.is_on = False
    first, second = parts_of(WHOLE, (8, 8))
    trainer.accumulate(first)
    fault.is_on = True
    with pytest.raises(MemoryError):
        trainer.accumulate(second)
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    fault.is_on = False
    with pytest.raises(ValueError, match="part 1 of step 1 does not follow: no step is open"):
        trainer.accumulate(second)
    # The step that begins again, and one that takes the place of a step that was given up.
    assert relative_error(trainer.gradients(first, second)[1], expected) <= 1e-5
    trainer.accumulate(replace(second, part=0, step=7))
    with pytest.raises(ValueError, match="part 1 of step 1 does not follow: step 7 has had 1 parts"):
        trainer.accumulate(second)
    assert relative_error(trainer.gradients(WHOLE)[1], expected) <= 1e-5


def test_a_loaded_checkpoint_forgets_the_step_that_was_open(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(make_config(), folder)
    _, expected = trainer.gradients(WHOLE)
    first, second = parts_of(WHOLE, (8, 8))
    saved = trainer.save(tmp_path / "step-000000", 0)
    trainer.accumulate(first)
    trainer.load(saved)
    with pytest.raises(ValueError, match="no step is open"):
        trainer.accumulate(second)
    assert relative_error(trainer.gradients(first, second)[1], expected) <= 1e-5
