"""LoRA on a tiny model: gradients, precision, the reference model, checkpoints, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from configs.errors import ConfigError
from pipeline.host.device import refuse_unusable_packages
from pipeline.models.files import ADAPTER_WEIGHTS
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.merging import merge_adapter, read_adapter
from pipeline.training.adapters import (
    add_adapters,
    disabled_adapters,
    published_weights,
    refuse_unknown_layers,
)
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_groups, make_model, make_samples, save_model
from tests.pipeline.training.builders import (
    ADVANTAGES,
    LENGTHS,
    LORA,
    PADDED,
    assert_each_near,
    save_language_part,
    weights,
    with_reference,
)

Sections = dict[str, Mapping[str, object]]
PACKED: Mapping[str, object] = {"enabled": True, "min_pack_ratio": 0.0}


def make_trainer(folder: Path, **sections: Mapping[str, object]) -> Trainer:
    """A trainer whose adapters are no longer zero, the same at every call."""
    trainer = Trainer(make_config(lora={**LORA, **sections.pop("lora", {})}, **sections), folder)
    shake(trainer)
    return trainer


@torch.no_grad()
def shake(trainer: Trainer) -> None:
    random = torch.Generator().manual_seed(5)
    for _, weight in published_weights(trainer.model):
        weight.copy_(0.1 * torch.randn(weight.shape, generator=random))
    trainer._weights.refresh()


def assert_same(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor], error: float = 1e-5) -> None:
    assert_each_near(ours, expected, error)
    assert any(bool(value.any()) for value in expected.values())


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_gradients_are_those_of_the_merged_weights_by_the_chain_rule(
    folder: Path, tmp_path: Path, beta: float
) -> None:
    """With beta > 0 the merged policy has the base as a second model, the adapted one has no second."""
    sections: Sections = {"acceleration": {"shared_prompt": False}, "grpo": {"beta": beta}}
    batch = make_samples(LENGTHS, ADVANTAGES)
    trainer = make_trainer(folder, **sections)
    _, ours = trainer.gradients(batch)
    saved = trainer.save(tmp_path / "step-000000", 0)
    merged = merge_adapter(saved, folder, tmp_path / "merged")
    _, full = with_reference(make_config(**sections), merged, folder).gradients(batch)
    adapter, expected = read_adapter(saved), {}
    for name, (low, high) in adapter.factors.items():
        layer = name.removesuffix(".weight")
        expected[f"{layer}.lora_A.default.weight"] = adapter.scale * high.T @ full[name]
        expected[f"{layer}.lora_B.default.weight"] = adapter.scale * full[name] @ low.T
    # B (A x) and (B A) x round differently.
    assert_same(ours, expected, error=1e-4)


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param({"acceleration": {**PADDED, "shared_prompt": True}}, id="shared prompt"),
        pytest.param({"acceleration": {**PADDED, "token_packing": PACKED}}, id="packed"),
        pytest.param({"training": {"gradient_checkpointing": True}}, id="checkpointed"),
    ],
)
def test_what_saves_work_keeps_the_gradients_of_adapters(folder: Path, sections: Sections) -> None:
    batch = make_groups((5, 2), [[9, 16, 1, 4], [12, 6, 3, 8]])
    _, plain = make_trainer(folder, acceleration=PADDED).gradients(batch)
    trainer = make_trainer(folder, **{"acceleration": PADDED, **sections})
    _, ours = trainer.gradients(batch)
    assert_same(ours, plain)
    if "acceleration" in sections:
        metrics = trainer.step(batch).metrics
        assert metrics["train/shared_prompt_tokens"] > 0 or metrics["train/padding_share"] == 0


def test_the_base_is_frozen_in_bf16_and_shared_and_the_adapters_are_fp32(folder: Path) -> None:
    trainer = Trainer(make_config(training={"bf16": True}, lora=LORA), folder)
    frozen = {name: weight for name, weight in trainer.model.named_parameters() if not weight.requires_grad}
    assert {weight.dtype for weight in frozen.values()} == {torch.bfloat16}
    assert {weight.dtype for _, weight in published_weights(trainer.model)} == {torch.float32}
    computed = dict(trainer._weights.compute_model.named_parameters())
    assert all(computed[name] is weight for name, weight in frozen.items())
    before = {name: weight.clone() for name, weight in frozen.items()}
    result = trainer.step(make_samples(LENGTHS, ADVANTAGES))
    assert result.metrics["train/grad_norm"] > 0
    assert all(torch.equal(weight, before[name]) for name, weight in frozen.items())
    num_trained = sum(weight.numel() for weight in trainer._weights.trained)
    assert num_trained == sum(weight.numel() for _, weight in trainer.named_weights())
    assert num_trained < 0.5 * sum(weight.numel() for weight in frozen.values())


def test_the_first_step_starts_from_the_base_model(folder: Path) -> None:
    ids = torch.arange(3, 13)[None]
    trainer = Trainer(make_config(lora=LORA), folder)
    with torch.no_grad():
        torch.testing.assert_close(trainer.model(ids).logits, load_model(folder)(ids).logits, rtol=0, atol=0)


def test_adapters_learn(folder: Path) -> None:
    trainer = Trainer(make_config(training={"bf16": True, "learning_rate": 1e-2}, lora=LORA), folder)
    batch = make_samples([(5, 9), (5, 16), (5, 1), (5, 4), (2, 12), (2, 6), (2, 3), (2, 8)], [1.0] * 8)
    ratios = [trainer.step(batch).metrics["train/ratio_mean"] for _ in range(4)]
    assert ratios[-1] > ratios[0]


def test_the_reference_is_the_policy_without_its_adapters(folder: Path) -> None:
    trainer = make_trainer(folder, grpo={"beta": 0.1})
    assert trainer._reference is trainer._weights.compute_model
    ids = torch.arange(3, 13)[None]
    with torch.no_grad():
        adapted = trainer.model(ids).logits
        with disabled_adapters(trainer.model):
            bare = trainer.model(ids).logits
        torch.testing.assert_close(bare, load_model(folder)(ids).logits, rtol=0, atol=0)
        assert float((adapted - bare).abs().max()) > 0.1
        torch.testing.assert_close(trainer.model(ids).logits, adapted, rtol=0, atol=0)
    assert all(weight.requires_grad for weight in trainer._weights.trained)
    assert trainer.step(make_samples(LENGTHS, ADVANTAGES)).metrics["train/reference_kl"] > 0


def test_a_checkpoint_beside_the_references_forward_has_all_adapters(folder: Path, tmp_path: Path) -> None:
    trainer = make_trainer(folder, grpo={"beta": 0.1})
    expected = weights(trainer)
    # As in another thread: there the forward is under way.
    with disabled_adapters(trainer.model):
        saved = trainer.save(tmp_path / "step-000000", 0)
        published = dict(trainer.named_weights())
    found = load_file(saved / ADAPTER_WEIGHTS)
    assert found.keys() == published.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_checkpoint_holds_the_adapter_alone_and_both_libraries_load_it(
    folder: Path, tmp_path: Path
) -> None:
    trainer = make_trainer(folder)
    saved = trainer.save(tmp_path / "step-000000", 0)
    names = {path.name for path in saved.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "trainer.pt", "state.json"} <= names
    assert not {"config.json", "model.safetensors"} & names
    ids = torch.arange(3, 13)[None]
    with torch.no_grad():
        expected = trainer.model(ids).logits
        for library in (AutoModelForCausalLM, peft.AutoPeftModelForCausalLM):
            torch.testing.assert_close(library.from_pretrained(str(saved))(ids).logits, expected)
    assert load_tokenizer(saved).eos_token == "<eos>"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"r": 2}, r"its adapter has r = 4, this run 2"),
        ({"alpha": 8.0}, r"lora_alpha = 6\.0, this run 8\.0"),
        ({"target_modules": ["q_proj"]}, "target_modules"),
    ],
)
def test_a_checkpoint_of_another_adapter_is_refused(
    folder: Path, tmp_path: Path, change: Mapping[str, object], complaint: str
) -> None:
    saved = make_trainer(folder).save(tmp_path / "step-000000", 0)
    other = make_trainer(folder, lora=change)
    with pytest.raises(ValueError, match=complaint):
        other.load(saved)


def test_a_checkpoint_on_another_base_is_refused(folder: Path, tmp_path: Path) -> None:
    saved = make_trainer(folder).save(tmp_path / "step-000000", 0)
    other = make_trainer(save_model(tmp_path / "other-base", seed=3))
    with pytest.raises(ValueError, match="this run's model is other-base"):
        other.load(saved)


@pytest.mark.parametrize(
    "targets", [["q_proj", "quantum_proj"], "q_proj", [], ["lm_head"], ["embed_tokens"], ["proj"]], ids=str
)
def test_target_modules_that_do_not_exist_are_refused_with_those_that_do(
    folder: Path, targets: object
) -> None:
    config = make_config(lora={"enabled": True, "target_modules": targets})
    with pytest.raises(
        ConfigError, match=r"lora\.target_modules: .*allowed: all-linear, or a list of: down_proj, "
    ):
        refuse_unknown_layers(config, folder)
    with pytest.raises(ConfigError, match=r"lora\.target_modules"):
        Trainer(config, folder)


def test_only_the_named_layers_get_adapters(folder: Path) -> None:
    model = make_model()
    config = make_config(lora={"enabled": True, "target_modules": ["layers.1.self_attn.q_proj", "up_proj"]})
    add_adapters(model, config.lora)
    layers = {
        name.removeprefix("base_model.model.model.").split(".lora_")[0]
        for name, _ in published_weights(model)
    }
    assert layers == {"layers.1.self_attn.q_proj", "layers.0.mlp.up_proj", "layers.1.mlp.up_proj"}
    refuse_unknown_layers(config, folder)


def test_adapters_of_a_model_whose_files_name_its_layers_otherwise_are_refused(tmp_path: Path) -> None:
    """They have the model's names, and would be merged with none of its files' weights."""
    path = save_language_part(tmp_path / "model")
    refuse_unknown_layers(make_config(), path)
    with pytest.raises(ConfigError, match=r"lora\.enabled: .*name its layers otherwise than the model"):
        refuse_unknown_layers(make_config(lora={"enabled": True}), path)


def test_without_adapters_nothing_is_looked_up(tmp_path: Path) -> None:
    refuse_unknown_layers(make_config(), tmp_path / "not there")
    refuse_unusable_packages(make_config(), "cpu")
