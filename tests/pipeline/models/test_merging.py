from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from configs.schema import ModelConfig
from pipeline.handover.command import merge_command as main
from pipeline.host.files import locked
from pipeline.models import find
from pipeline.models.find import adapter_base, resolve_model
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.models.merging import adapter_scale, merge_adapter, merged_weights, read_adapter
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.tiny_model import make_model, save_model

IDS = torch.arange(3, 13)[None]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_model(tmp_path / "base")


@pytest.fixture
def adapted(base: Path, tmp_path: Path) -> PreTrainedModel:
    """The base with random factors, which lie in the folder ``adapter``."""
    return publish_random_adapter(base, tmp_path / "adapter", 1)[0]


@pytest.fixture
def adapter(adapted: PreTrainedModel, tmp_path: Path) -> Path:
    return tmp_path / "adapter"


def assert_answers_as(folder: Path, model: PreTrainedModel) -> None:
    with torch.no_grad():
        torch.testing.assert_close(load_model(folder)(IDS).logits, model(IDS).logits, atol=1e-4, rtol=1e-4)


def test_a_merged_folder_is_the_adapted_model(
    base: Path, adapted: PreTrainedModel, adapter: Path, tmp_path: Path
) -> None:
    merged = merge_adapter(adapter, base, tmp_path / "merged")
    assert_answers_as(merged, adapted)
    with torch.no_grad():
        assert float((load_model(base)(IDS).logits - adapted(IDS).logits).abs().max()) > 0.1
    assert load_tokenizer(merged).eos_token == "<eos>"
    assert not (merged / "adapter_config.json").exists()
    streamed = dict(merged_weights(read_adapter(adapter), base))
    assert all(
        torch.equal(streamed[name], value) for name, value in load_file(merged / "model.safetensors").items()
    )


def test_a_base_in_several_bf16_files_keeps_its_files_and_its_dtype(base: Path, tmp_path: Path) -> None:
    model = make_model()
    cast(torch.nn.Module, model).to(torch.bfloat16)
    model.save_pretrained(str(base), max_shard_size="5KB")
    (base / "model.safetensors").unlink()
    assert len(list(base.glob("*.safetensors"))) > 2
    adapted, update = publish_random_adapter(base, tmp_path / "adapter", 1)
    merged = merge_adapter(update.path, base, tmp_path / "merged")
    assert [path.name for path in sorted(merged.glob("*.safetensors"))] == [
        path.name for path in sorted(base.glob("*.safetensors"))
    ]
    loaded = load_model(merged, dtype=torch.bfloat16)
    assert load_file(next(merged.glob("*.safetensors"))).popitem()[1].dtype is torch.bfloat16
    with torch.no_grad():
        torch.testing.assert_close(loaded(IDS).logits.float(), adapted(IDS).logits, atol=0.3, rtol=0.1)


def test_an_adapter_folder_is_a_model_by_name_and_is_merged_once(
    adapted: PreTrainedModel, adapter: Path
) -> None:
    folder = resolve_model(ModelConfig(name=str(adapter)))
    assert folder == adapter / "merged"
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert resolve_model(ModelConfig(name=str(adapter))) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert_answers_as(folder, adapted)


def test_an_adapter_that_was_trained_again_is_merged_again(base: Path, adapter: Path) -> None:
    folder = resolve_model(ModelConfig(name=str(adapter)))
    again, update = publish_random_adapter(base, adapter.with_name("again"), 2, seed=1)
    weights, later = adapter / "adapter_model.safetensors", folder.stat().st_mtime + 10
    shutil.copyfile(Path(update.path) / weights.name, weights)
    os.utime(weights, (later, later))
    assert resolve_model(ModelConfig(name=str(adapter))) == folder
    assert_answers_as(folder, again)


def test_a_copied_adapter_is_not_merged_again(
    adapted: PreTrainedModel, base: Path, adapter: Path, tmp_path: Path
) -> None:
    resolve_model(ModelConfig(name=str(adapter)))
    copy = shutil.copytree(adapter, tmp_path / "copy", copy_function=shutil.copyfile)
    weights, later = copy / "adapter_model.safetensors", (copy / "merged").stat().st_mtime + 10
    os.utime(weights, (later, later))
    # Another machine's has no such folder.
    base.rename(tmp_path / "moved")
    assert resolve_model(ModelConfig(name=str(copy))) == copy / "merged"
    assert_answers_as(copy / "merged", adapted)


def test_whoever_waits_in_vain_for_another_process_that_merges_is_told_so(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.models.find.LOCK_TIMEOUT_S", 0.01)
    with locked(adapter / "merged.lock", timeout_s=1.0), pytest.raises(TimeoutError, match=r"merged\.lock"):
        resolve_model(ModelConfig(name=str(adapter)))


def test_an_adapter_without_weights_is_refused_by_name(adapter: Path) -> None:
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"adapter_model\.safetensors: is missing"):
        resolve_model(ModelConfig(name=str(adapter)))


def test_an_adapter_whose_base_is_gone_is_refused_by_name(base: Path, adapter: Path, tmp_path: Path) -> None:
    base.rename(tmp_path / "moved")
    with pytest.raises(
        ValueError, match=r"model\.name: .*adapter' holds an adapter of .*base': .*no such folder"
    ):
        resolve_model(ModelConfig(name=str(adapter)))


def test_a_base_that_is_there_is_the_base_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuned copy of a built-in model keeps that one's name."""
    monkeypatch.setattr("pipeline.models.find.BUILT_IN", {"known": None})
    tuned = save_model(tmp_path / "known", 1)
    _, update = publish_random_adapter(tuned, tmp_path / "adapter", 1)
    assert adapter_base(Path(update.path)) == tuned


def test_a_change_below_the_last_bit_of_a_bf16_base_is_kept_in_fp32(base: Path, tmp_path: Path) -> None:
    model = make_model()
    cast(torch.nn.Module, model).to(torch.bfloat16)
    model.save_pretrained(str(base))
    _, update = publish_random_adapter(base, tmp_path / "adapter", 1)
    adapter = read_adapter(update.path)
    merged = load_file(
        merge_adapter(update.path, base, tmp_path / "merged", torch.float32) / "model.safetensors"
    )
    for name, weight in load_file(base / "model.safetensors").items():
        assert torch.equal(merged[name], adapter.merged(name, weight, torch.float32))
    assert any((merged[name] != merged[name].bfloat16()).any() for name in adapter.factors)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"use_dora": True}, "only plain LoRA can be merged, not LORA, use_dora"),
        ({"peft_type": "IA3"}, "only plain LoRA can be merged, not IA3"),
        ({"fan_in_fan_out": True}, "only plain LoRA can be merged"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights=pissa_niter_4"),
    ],
)
def test_what_is_no_plain_lora_is_refused(adapter: Path, change: dict[str, object], complaint: str) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=complaint):
        read_adapter(adapter)


def test_the_scale_of_rslora_goes_by_the_root_of_the_rank() -> None:
    assert adapter_scale({"r": 4, "lora_alpha": 6}) == 1.5
    assert adapter_scale({"r": 4, "lora_alpha": 6, "use_rslora": True}) == 3.0


def test_damaged_adapters_are_refused_by_name(adapter: Path) -> None:
    path = adapter / "adapter_model.safetensors"
    tensors = load_file(path)
    layer = "base_model.model.model.layers.0.mlp.up_proj"
    save_file({name: value for name, value in tensors.items() if name != f"{layer}.lora_B.weight"}, path)
    with pytest.raises(ValueError, match=r"layers\.0\.mlp\.up_proj has an A and no B"):
        read_adapter(adapter)
    save_file({**tensors, f"{layer}.magnitude": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="magnitude is no A or B"):
        read_adapter(adapter)
    path.unlink()
    with pytest.raises(ValueError, match=r"adapter_model\.safetensors: is missing"):
        read_adapter(adapter)


def test_an_adapter_of_another_model_leaves_nothing_behind(base: Path, adapter: Path, tmp_path: Path) -> None:
    path = adapter / "adapter_model.safetensors"
    tensors = load_file(path)
    renamed = {name.replace("layers.1.", "layers.7."): value for name, value in tensors.items()}
    save_file(renamed, path)
    with pytest.raises(ValueError, match=r"has no model\.layers\.7\.mlp\.down_proj\.weight"):
        merge_adapter(adapter, base, tmp_path / "merged")
    with pytest.raises(ValueError, match=r"has no model\.layers\.7"):
        dict(merged_weights(read_adapter(adapter), base))
    narrow = {name: value[:, :8] if "lora_A" in name else value for name, value in tensors.items()}
    save_file({name: value.contiguous() for name, value in narrow.items()}, path)
    with pytest.raises(ValueError, match=r"has shape \(.*, 8\), the base model"):
        merge_adapter(adapter, base, tmp_path / "merged")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["adapter", "base"]


def test_the_command_says_of_a_folder_without_an_adapter_what_to_do(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {base: ": holds no adapter (adapter_config.json)", tmp_path / "none": " does not exist"}
    for folder, complaint in wrong.items():
        assert main([str(folder), str(tmp_path / "merged")]) == 2
        assert f"{folder}{complaint}" in capsys.readouterr().err


def test_the_command_finds_a_base_that_is_no_folder(
    adapted: PreTrainedModel, base: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": "OWNER/NAME"}))
    monkeypatch.setattr(find, "_from_hub", lambda model: {"OWNER/NAME": base}[model.name])
    assert main([str(adapter), str(tmp_path / "merged")]) == 0
    assert_answers_as(tmp_path / "merged", adapted)


def test_the_command_merges_with_the_base_that_the_adapter_names_and_overwrites_nothing(
    adapted: PreTrainedModel, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    merged = tmp_path / "merged"
    assert main([str(adapter), str(merged)]) == 0
    assert capsys.readouterr().out.strip() == str(merged)
    assert_answers_as(merged, adapted)
    assert main([str(adapter), str(merged)]) == 2
    assert "exists already" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "ADAPTER_DIR" in capsys.readouterr().err
