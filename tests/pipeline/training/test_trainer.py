from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.autograd.graph import save_on_cpu
from transformers import OPTConfig, OPTForCausalLM

from configs.schema import TrainingConfig
from pipeline.models.loading import load_model
from pipeline.training import trainer as module
from pipeline.training.loss import step_scale
from pipeline.training.precision import learning_rate_factor
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import VOCABULARY, make_config, make_groups, make_samples
from tests.pipeline.training.builders import (
    ADVANTAGES,
    LENGTHS,
    LORA,
    PADDED,
    assert_goes_on,
    assert_same,
    micro_plans,
    save_language_part,
    weights,
)


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "bnpo"])
def test_skipping_samples_without_signal_keeps_loss_and_gradient(folder: Path, loss_type: str) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    results = []
    for skip in (True, False):
        config = make_config(grpo={"loss_type": loss_type}, acceleration={"skip_zero_advantages": skip})
        results.append(Trainer(config, folder).gradients(batch))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
    assert_same(results[0][1], results[1][1])


def test_nothing_is_skipped_when_a_kl_term_has_a_gradient(folder: Path) -> None:
    trainer = Trainer(make_config(grpo={"beta": 0.1}), folder)
    result = trainer.step(make_samples(LENGTHS, ADVANTAGES))
    assert result.metrics["train/skipped_samples"] == 0
    assert result.metrics["train/reference_kl"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
def test_the_split_into_micro_batches_does_not_change_the_gradient(folder: Path, loss_type: str) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    results = []
    for size in (1, 3, 8):
        training = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8}
        config = make_config(grpo={"loss_type": loss_type}, training=training)
        results.append(Trainer(config, folder).gradients(batch)[1])
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])


@pytest.mark.parametrize("bf16", [False, True])
def test_offloaded_activations_are_those_of_the_layers_and_keep_the_gradient(
    folder: Path, bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU the host is the device: what goes there and comes back is all that can be seen."""
    batch = make_groups((7, 1, 4), [[3, 9, 1, 6], [5, 2, 8, 4], [1, 1, 12, 7]])
    checkpointed = {"gradient_checkpointing": True, "bf16": bf16}
    _, plain = Trainer(make_config(training=checkpointed), folder).gradients(batch)
    moved: list[bool] = []

    def watched(*, pin_memory: bool) -> save_on_cpu:
        hooks = save_on_cpu(pin_memory=pin_memory)
        pack = hooks.pack_hook

        def to_host(tensor: Tensor) -> object:
            moved.append(tensor.dim() == 3 and tensor.shape[-1] == 24)
            return pack(tensor)

        hooks.pack_hook = to_host
        return hooks

    trainer = Trainer(make_config(training={**checkpointed, "activation_offloading": True}), folder)
    monkeypatch.setattr(module, "save_on_cpu", watched)
    _, offloaded = trainer.gradients(batch)
    # The inputs of two layers, and what the last norm keeps.
    assert sum(moved) >= 3
    for name, value in plain.items():
        assert torch.equal(offloaded[name], value), name


def test_a_model_that_drops_by_its_code_drops_nothing_where_layers_are_checkpointed(
    folder: Path, tmp_path: Path
) -> None:
    dropping = Path(shutil.copytree(folder, tmp_path / "dropping"))
    settings = json.loads((dropping / "config.json").read_text(encoding="utf-8"))
    settings["attention_dropout"] = 0.5
    (dropping / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    config = make_config(training={"gradient_checkpointing": True}, acceleration=PADDED)
    batch = make_samples(LENGTHS, ADVANTAGES)
    trainer = Trainer(config, dropping)
    assert trainer.model.training and trainer.model.config.attention_dropout == 0.5
    assert_same(trainer.gradients(batch)[1], Trainer(config, folder).gradients(batch)[1])


def test_whole_layers_are_not_dropped_either() -> None:
    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=8,
        ffn_dim=8,
        num_hidden_layers=6,
        num_attention_heads=2,
        dropout=0.5,
        layerdrop=0.5,
    )
    model = OPTForCausalLM(config)  # type: ignore[no-untyped-call]
    module._disable_dropout(model)
    model.train()
    ids = torch.arange(3, 20)[None]
    assert torch.equal(model(ids).logits, model(ids).logits)


def test_bf16_gradients_point_where_fp32_gradients_do(folder: Path) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    _, exact = Trainer(make_config(), folder).gradients(batch)
    _, rounded = Trainer(make_config(training={"bf16": True}), folder).gradients(batch)
    assert all(value.dtype == torch.float32 for value in rounded.values())
    a = torch.cat([exact[name].flatten() for name in exact])
    b = torch.cat([rounded[name].flatten() for name in exact])
    assert float(torch.cosine_similarity(a, b, dim=0)) > 0.99


def test_masters_keep_updates_that_bf16_weights_would_lose(folder: Path) -> None:
    trainer = Trainer(make_config(training={"bf16": True, "learning_rate": 1e-6}), folder)
    before = weights(trainer)
    trainer.step(make_samples(LENGTHS, ADVANTAGES))
    assert all(bool((value != before[name]).any()) for name, value in trainer.named_weights())


@pytest.mark.parametrize("bf16", [True, False])
def test_steps_raise_the_likelihood_of_good_samples(folder: Path, bf16: bool) -> None:
    trainer = Trainer(make_config(training={"bf16": bf16, "learning_rate": 3e-3}), folder)
    batch = make_samples(LENGTHS, [1.0] * 8)
    ratios = [trainer.step(batch).metrics["train/ratio_mean"] for _ in range(4)]
    assert ratios[-1] > ratios[0]
    assert trainer.policy_version == 4


def test_a_step_without_any_signal_still_counts(folder: Path) -> None:
    trainer = Trainer(make_config(), folder)
    result = trainer.step(make_samples(LENGTHS, [0.0] * 8))
    assert trainer.policy_version == 1
    assert result.metrics["train/skipped_samples"] == 8
    assert result.metrics["train/grad_norm"] == 0


def test_a_gradient_that_is_not_finite_stops_the_run(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(make_config(), folder)
    saved = trainer.save(tmp_path / "step-000000", 0)
    with pytest.raises(FloatingPointError, match="gradient norm"):
        trainer.step(make_samples(LENGTHS, [float("inf")] * 8))
    with pytest.raises(RuntimeError, match="past step 0"):
        trainer.save(tmp_path / "spoilt", 0)
    assert trainer.load(saved) == 0
    trainer.save(tmp_path / "again", 0)


@pytest.mark.parametrize("lora", [{}, LORA], ids=["all weights", "adapters"])
def test_a_resumed_trainer_continues_as_if_never_stopped(
    folder: Path, tmp_path: Path, lora: Mapping[str, object]
) -> None:
    schedule = {"lr_scheduler_type": "linear", "warmup_steps": 2}
    config = make_config(training={"bf16": True, **schedule}, lora=lora)
    place = tmp_path / "checkpoints" / "step-000002"
    saved = assert_goes_on(Trainer(config, folder), Trainer(config, folder), place)
    assert lora or load_model(saved).dtype == torch.float32


def test_a_model_whose_files_name_weights_otherwise_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = save_language_part(tmp_path / "model") / "model.safetensors"
    first = Trainer(make_config(), path.parent)
    assert load_file(path).keys().isdisjoint(name for name, _ in first.named_weights())
    saved = assert_goes_on(first, Trainer(make_config(), path.parent), tmp_path / "step-000002")
    assert load_file(saved / path.name).keys() == load_file(path).keys()


def test_a_resumed_trainer_takes_settings_of_adamw_that_were_changed(folder: Path, tmp_path: Path) -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    first = Trainer(make_config(training={"learning_rate": 0.01, "weight_decay": 0.0}), folder)
    first.step(batch)
    saved, before = first.save(tmp_path / "step-000001", 1), weights(first)
    changed = {"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-5}
    resumed = Trainer(make_config(training={"weight_decay": 0.3, **changed}), folder)
    resumed.load(saved)
    (group,) = resumed._optimizer.param_groups
    found = (group["betas"], group["eps"], group["weight_decay"])
    assert found == ((0.8, 0.95), 1e-5, 0.3)
    decayed = Trainer(make_config(training={"learning_rate": 0.01, "weight_decay": 0.3}), folder)
    decayed.load(saved)
    first.step(batch)
    rate = decayed.step(batch).metrics["train/learning_rate"]
    plain = weights(first)
    for name, value in weights(decayed).items():
        torch.testing.assert_close(plain[name] - value, 0.3 * rate * before[name], atol=1e-7, rtol=1e-3)


def test_a_checkpoint_beside_an_open_step_is_of_the_step_before_and_of_no_other(
    folder: Path, tmp_path: Path
) -> None:
    trainer = Trainer(make_config(), folder)
    batch = make_samples([(5, 9), (3, 16), (7, 4), (5, 4)], [1.2, -0.7, 0.4, -1.5])
    trainer.accumulate(batch)
    saved = trainer.save(tmp_path / "step-000000", 0)
    before = dict(load_model(folder).named_parameters())
    for name, weight in load_model(saved).named_parameters():
        assert torch.equal(weight, before[name])
    trainer.step(replace(batch, part=1))
    with pytest.raises(RuntimeError, match="past step 0"):
        trainer.save(tmp_path / "late", 0)
    assert not (tmp_path / "late").exists()
    trainer.save(tmp_path / "step-000001", 1)
    assert Trainer(make_config(), folder).load(tmp_path / "step-000001") == 1


def test_published_names_leave_out_the_tied_head(folder: Path) -> None:
    names = [name for name, _ in Trainer(make_config(), folder).named_weights()]
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names


@pytest.mark.parametrize(("acceleration", "is_asked"), [({}, True), (PADDED, False)])
def test_a_kernel_over_rows_is_chosen_where_there_are_rows_and_nowhere_else(
    acceleration: Mapping[str, object], is_asked: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Mock(return_value="cpu")
    monkeypatch.setattr(module, "row_kernel", kernel)
    Trainer(make_config(acceleration=acceleration), folder)
    assert kernel.called is is_asked


def test_padding_is_counted_and_sorting_saves_it(folder: Path) -> None:
    batch = make_samples([(2, 2), (2, 10), (2, 2), (2, 10)], [1.0] * 4)
    plans = micro_plans(batch.samples, training={"per_device_train_batch_size": 2})
    # The last token predicts nothing and does not go through the model.
    assert [plan.num_tokens for plan in plans] == [2 * 11, 2 * 3]
    assert [plan.num_padding for plan in plans] == [0, 0]
    assert [plan.build().input_ids.shape for plan in plans] == [(2, 11), (2, 3)]
    unequal = make_samples([(2, 2), (2, 10)], [1.0] * 2)
    (plan,) = micro_plans(unequal.samples, training={"per_device_train_batch_size": 2})
    assert (plan.num_tokens, plan.num_padding) == (2 * 11, 8)
    plain = {"token_packing": {"enabled": False}, "shared_prompt": False}
    trainer = Trainer(make_config(acceleration=plain), folder)
    assert trainer.step(unequal).metrics["train/padding_share"] == pytest.approx(8 / 22)


def test_masked_completions_change_nothing_but_the_denominator_of_grpo() -> None:
    batch = make_samples(LENGTHS, ADVANTAGES)
    masked = replace(batch.samples[1], loss_mask=(0,) * len(batch.samples[1].token_ids))
    (plan,) = micro_plans(
        [batch.samples[0], masked],
        training={"per_device_train_batch_size": 2},
        grpo={"loss_type": "grpo"},
        acceleration={"skip_zero_advantages": False},
    )
    part = plan.build()
    assert part.input_ids.shape[0] == 1
    scale = step_scale(num_sequences=2, num_tokens=9, loss_type="grpo", batch_size=2)
    assert (part.weights * scale).tolist() == pytest.approx([1 / 18] * 9)


def test_the_schedule_warms_up_and_falls() -> None:
    training = TrainingConfig(lr_scheduler_type="linear", warmup_steps=2, max_steps=6)
    factors = [learning_rate_factor(step, training) for step in range(7)]
    assert factors == pytest.approx([1 / 3, 2 / 3, 1.0, 0.75, 0.5, 0.25, 0.0])
    cosine = training.model_copy(update={"lr_scheduler_type": "cosine"})
    assert learning_rate_factor(4, cosine) == pytest.approx(0.5)
