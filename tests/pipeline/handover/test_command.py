"""From a run's folder to a model that others load: export, merged adapters, the card, the hub."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from configs.finished import load_finished
from configs.load import render
from configs.schema import Config
from pipeline.errors import StageError
from pipeline.handover import command
from pipeline.handover.card import _chat_terms
from pipeline.handover.command import export, find_model_folder, finish_run, main
from pipeline.host.versions import source_commit
from pipeline.models.loading import load_model, load_tokenizer
from pipeline.record.checkpoints import find_fault, prune_checkpoints, save_checkpoint
from tests.pipeline.adapter_files import publish_random_adapter
from tests.pipeline.evaluation.test_summary import AFTER, BEFORE
from tests.pipeline.evaluation.test_summary import write as write_run_with_summary
from tests.pipeline.fake_hub import FakeHub, running_hub
from tests.pipeline.tiny_model import make_model, make_tokenizer, save_model

IDS = torch.arange(3, 13)[None]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that ended: summary, configuration, two checkpoints of a tiny model."""
    write_run_with_summary(tmp_path, BEFORE, AFTER)
    folder = tmp_path / "run"
    config = Config.model_validate({"training": {"max_steps": 5}})
    (folder / "config.yaml").write_text(render(config), encoding="utf-8")
    for step in (4, 5):
        save_checkpoint(
            folder / "checkpoints" / f"step-{step:06d}",
            make_model(seed=step),
            make_tokenizer(),
            {"optimizer": {}},
            {"step": step, "policy_version": step},
        )
    return folder


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_becomes_a_folder_that_transformers_loads_with_the_weights_of_its_last_step(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_below(run)
    assert main([str(run), str(tmp_path / "out"), "--dtype", "float32"]) == 0
    assert f"vllm serve {tmp_path / 'out'}" in capsys.readouterr().out
    assert files_below(run) == before
    with torch.no_grad():
        expected = make_model(seed=5)(IDS).logits
        torch.testing.assert_close(load_model(tmp_path / "out")(IDS).logits, expected)
    assert load_tokenizer(tmp_path / "out").eos_token == "<eos>"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
    assert not {"trainer.pt", "state.json"} & names


def test_the_weights_are_bf16_unless_told_otherwise_and_the_configuration_says_so(
    run: Path, tmp_path: Path
) -> None:
    assert main([str(run / "checkpoints" / "step-000004"), str(tmp_path / "out")]) == 0
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert {value.dtype for value in tensors.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    earlier = dict(make_model(seed=4).named_parameters())
    for name, value in tensors.items():
        torch.testing.assert_close(value, earlier[name].detach().bfloat16())


@pytest.mark.parametrize("place", ["step-000004", "../checkpoints/step-000004"])
def test_a_checkpoint_is_found_from_where_it_lies(
    place: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run / "checkpoints")
    assert main([place, str(tmp_path / "out")]) == 0
    assert "after 4 of 5 steps" in (tmp_path / "out" / "README.md").read_text()


def test_checkpoints_on_another_disk_are_those_of_the_run_that_links_to_them(
    run: Path, tmp_path: Path
) -> None:
    (run / "checkpoints").rename(tmp_path / "disk")
    (run / "checkpoints").symlink_to(tmp_path / "disk")
    folder, model = find_model_folder(run / "checkpoints" / "step-000004")
    assert folder.samefile(tmp_path / "disk" / "step-000004") and model.step == 4


def test_an_adapter_is_merged_into_its_base(run: Path, tmp_path: Path) -> None:
    base = save_model(tmp_path / "base", seed=1)
    checkpoint = run / "checkpoints" / "step-000005"
    adapted, update = publish_random_adapter(base, tmp_path / "adapter", 1)
    shutil.rmtree(checkpoint)
    shutil.copytree(update.path, checkpoint)
    sizes = {path.name: path.stat().st_size for path in checkpoint.iterdir()}
    (checkpoint / "state.json").write_text(json.dumps({"step": 5, "policy_version": 5, "files": sizes}))
    assert main([str(run), str(tmp_path / "out"), "--dtype", "float32"]) == 0
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    with torch.no_grad():
        torch.testing.assert_close(
            load_model(tmp_path / "out")(IDS).logits, adapted(IDS).logits, atol=1e-4, rtol=1e-4
        )
    assert not (checkpoint / "merged").exists(), "the run stays as it was"


def test_the_card_tells_data_rewards_settings_measurements_commit_and_versions(run: Path) -> None:
    finish_run(run, Config())
    checkpoint = run / "checkpoints" / "step-000005"
    card = ModelCard.load(checkpoint / "README.md")
    assert card.data.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert card.data.license == "apache-2.0"
    (result,) = card.data.eval_results
    assert result.metric_type == "pass@1" and result.metric_value == pytest.approx(0.8333)
    for part in (
        "after 5 of 5 steps",
        "Tasks: `ladder`, split `train`",
        "160 completions",
        "| tests | 0.5 |",
        "| before training | 50.0 % |",
        "| after training | 83.3 % |",
        "| difference, paired by task | +33.3 % |",
        "| training.learning_rate | 3e-05 |",
        f"| commit of code-grpo | {source_commit() or 'unknown'} |",
        f"torch {torch.__version__}",
        "level L3",
        "  num_generations: 8",
    ):
        assert part in card.text, part
    assert find_fault(checkpoint) is None, "a checkpoint with a card is still one to resume from"


@pytest.mark.parametrize("is_private", [True, False])
def test_a_run_that_is_over_is_uploaded_where_that_is_asked_for(
    is_private: bool, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[bool, str, bool]] = []

    def pushed(folder: Path, name: str, *, is_private: bool) -> str:
        asked.append(((folder / "config.json").is_file(), name, is_private))
        return "https://hub/jane/coder"

    monkeypatch.setattr(command, "push", pushed)
    output = {"push_to_hub": "jane/coder", "hub_private": is_private}
    finish_run(run, Config.model_validate({"output": output}))
    assert asked == [(True, "jane/coder", is_private)]
    assert "on the hub: https://hub/jane/coder" in capsys.readouterr().out


def test_a_run_whose_tasks_are_gone_can_still_be_handed_over(run: Path) -> None:
    config = render(Config.model_validate({"training": {"max_steps": 5}}))
    lost = config.replace("name: ladder\n", "name: gone.jsonl\n").replace(
        "tasks: ladder-heldout", "tasks: x.jsonl"
    )
    assert lost.count(".jsonl") == 2
    (run / "config.yaml").write_text(lost, encoding="utf-8")
    _, model = find_model_folder(run)
    assert (model.config.dataset.name, model.config.evaluation.tasks) == ("gone.jsonl", "x.jsonl")


def test_the_hub_takes_a_measurement_on_a_file_of_tasks(run: Path, tmp_path: Path) -> None:
    summary, own = run / "summary.json", str(tmp_path / "held out.jsonl")
    summary.write_text(summary.read_text().replace("ladder-heldout", own))
    finish_run(run, Config())
    (result,) = ModelCard.load(run / "checkpoints" / "step-000005" / "README.md").data.eval_results
    # What huggingface.co asks of it.
    assert re.fullmatch(r"(?:[\w-]+/)?[\w.-]+", result.dataset_type, re.ASCII)
    assert result.dataset_name == "held out.jsonl"


def test_a_card_says_how_a_chat_was_asked() -> None:
    assert _chat_terms(Config()) == ""
    asked = {"system_prompt": "Be terse.", "chat_template_kwargs": {"enable_thinking": False}}
    assert _chat_terms(Config.model_validate({"generation": asked})) == (
        "with the system prompt 'Be terse.' with its variables {\"enable_thinking\": false} "
    )


def test_a_card_says_nothing_of_where_its_machine_keeps_things(run: Path, tmp_path: Path) -> None:
    base, tasks = tmp_path / "acme" / "base", tmp_path / "acme" / "aufgäben.jsonl"
    base.mkdir(parents=True)
    tasks.touch()
    config, summary = run / "config.yaml", run / "summary.json"
    kept = load_finished(config).model_dump()
    kept["model"]["name"], kept["dataset"]["name"] = str(base), str(tasks)
    kept["evaluation"]["tasks"], kept["output"]["dir"] = str(tasks), str(tmp_path / "acme" / "runs")
    config.write_text(render(Config.model_validate(kept)), encoding="utf-8")
    summary.write_text(summary.read_text().replace("ladder-heldout", str(tasks)))
    finish_run(run, Config())
    text = (run / "checkpoints" / "step-000005" / "README.md").read_text(encoding="utf-8")
    assert "acme" not in text
    for shown in ("name: base", "`aufgäben.jsonl`", "type: aufg-ben.jsonl", "max_completion_length"):
        assert shown in text, shown


def test_a_run_that_did_not_end_says_so_in_its_card(run: Path) -> None:
    (run / "summary.json").unlink()
    finish_run(run, Config())
    text = (run / "checkpoints" / "step-000005" / "README.md").read_text()
    assert "Not measured: the run did not come to its end" in text
    assert "| commit of code-grpo | unknown |" in text


def test_a_card_claims_no_measurement_of_another_step(run: Path) -> None:
    (run / "checkpoints" / "step-000005" / "model.safetensors").write_bytes(b"cut")
    finish_run(run, Config())
    card = ModelCard.load(run / "checkpoints" / "step-000004" / "README.md")
    assert "Not measured: what the run measured is step 5, and this is step 4." in card.text
    assert card.data.eval_results is None and "83.3" not in card.text


def test_the_newest_whole_checkpoint_is_taken_and_the_baselines_final_model(run: Path) -> None:
    (run / "checkpoints" / "step-000005" / "model.safetensors").write_bytes(b"cut")
    assert find_model_folder(run)[0].name == "step-000004"
    final = save_model(run / "checkpoints" / "final")
    (run / "baseline.txt").touch()
    folder, model = find_model_folder(run)
    assert folder == final and model.is_baseline and model.step == 5


def test_a_folder_that_exists_is_never_written_to_and_a_failure_leaves_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_below(tmp_path)
    assert main([str(run), str(run)]) == 2
    assert "exists already" in capsys.readouterr().err
    folder, model = find_model_folder(run)
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(Exception, match="header"):
        export(folder, tmp_path / "out", model)
    (folder / "model.safetensors").write_bytes(before["run/checkpoints/step-000005/model.safetensors"])
    assert files_below(tmp_path) == before


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, online: None) -> FakeHub:
    """A hub on localhost, and a token for it."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    return FakeHub()


def test_a_model_is_uploaded_as_one_commit_without_the_optimisers_state(
    run: Path, tmp_path: Path, hub: FakeHub
) -> None:
    folder, model = find_model_folder(run)
    out = export(folder, tmp_path / "out", model)
    (out / "trainer.pt").write_bytes(b"moments")
    with running_hub() as found:
        url = command.push(out, "jane/coder", endpoint=found.endpoint)
        assert url.endswith("/jane/coder")
        assert found.tokens == {"Bearer hf_of_a_test"}
        assert found.repositories[0]["name"] == "coder"
        assert found.repositories[0]["visibility"] == "private"
        sent = files_below(out)
        del sent["trainer.pt"]
        assert found.files == sent


def test_an_upload_without_a_folder_has_the_wanted_type_and_outlives_a_save_of_the_run(
    run: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[set[torch.dtype], bool]] = []

    def push(folder: Path, name: str, *, is_private: bool) -> str:
        prune_checkpoints(run, 5, newest_step=5)
        tensors = load_file(folder / "model.safetensors")
        sent.append(({value.dtype for value in tensors.values()}, is_private))
        return name

    monkeypatch.setattr(command, "push", push)
    before = files_below(run)
    assert main([str(run), "--push-to-hub", "jane/coder", "--dtype", "float32", "--public"]) == 0
    assert main([str(run), "--push-to-hub", "jane/coder"]) == 0
    assert sent == [({torch.float32}, False), ({torch.bfloat16}, True)]
    assert files_below(run) == before


def test_public_without_an_upload_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), str(tmp_path / "out"), "--public"]) == 2
    assert "error: --public: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_hub_that_refuses_is_named_and_nothing_is_lost(run: Path, hub: FakeHub) -> None:
    folder, _ = find_model_folder(run)
    with running_hub() as found:
        found.refusal = 401
        with pytest.raises(StageError, match=r"'jane/coder' was not uploaded .*401.* the model is kept"):
            command.push(folder, "jane/coder", endpoint=found.endpoint)
    with pytest.raises(StageError, match="'jane/coder' was not uploaded"):
        command.push(folder, "jane/coder", endpoint=found.endpoint)


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("name", "token", "complaint"),
    [
        (
            "jane/coder",
            "",
            "there is no token for the hub; allowed: with a token that may write: hf auth login",
        ),
        ("coder", "hf_x", "'coder' is no hub id; allowed: OWNER/NAME"),
        ("jane/co der", "hf_x", "is no hub id"),
        ("a/b/c", "hf_x", "is no hub id"),
    ],
)
def test_an_upload_that_cannot_work_is_refused_before_anything_is_done(
    name: str,
    token: str,
    complaint: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    before = files_below(tmp_path)
    assert main([str(run), "--push-to-hub", name]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --push-to-hub: ") and complaint in error
    assert files_below(tmp_path) == before


def test_a_users_rewards_in_the_working_directory_does_not_stand_in_for_ours(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("raise AssertionError('imported')\n")
    command = [sys.executable, "-m", "pipeline", "hand-over", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "usage:" in done.stdout, done.stderr
