"""Settings of the trainer that need a GPU or a package end a run before anything loads, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from configs.errors import ConfigError
from configs.load import load_config
from pipeline.cli import train_accelerated
from pipeline.host.device import refuse_conflicts, refuse_unusable_packages
from pipeline.run.job import faults_of, prepare
from tests.pipeline.tiny_model import make_config

ROOT = Path(__file__).parents[3]
Sections = Mapping[str, Mapping[str, object]]
EIGHT_BIT: Sections = {"training": {"optim": "adamw_8bit"}}
LIGER: Sections = {"training": {"use_liger_kernel": True}}
OFFLOADED: Sections = {"training": {"gradient_checkpointing": True, "activation_offloading": True}}
LORA: Sections = {"lora": {"enabled": True}}
FOUR_BIT: Sections = {"lora": {"enabled": True, "load_in_4bit": True}}
UNSLOTH: Sections = {"model": {"loader": "unsloth"}}
NO_ROWS: Sections = {"acceleration": {"shared_prompt": False}}


@pytest.mark.parametrize(
    ("sections", "device", "complaints"),
    [
        (EIGHT_BIT, "cpu", ['training.optim: "adamw_8bit" is not allowed', "needs a CUDA GPU"]),
        (EIGHT_BIT, "cuda", ["bitsandbytes, which is not installed: pip install bitsandbytes"]),
        (
            {**EIGHT_BIT, "runtime": {"trainer_ranks": 2}},
            "cuda",
            ["adamw_8bit with runtime.trainer_ranks: 1"],
        ),
        (LIGER, "cpu", ["training.use_liger_kernel: true is not allowed", "needs a CUDA GPU"]),
        (LIGER, "cuda", ["liger_kernel, which is not installed: pip install liger-kernel"]),
        (
            {**LIGER, **UNSLOTH, **LORA},
            "cuda",
            ["true with model.loader: transformers"],
        ),
        (OFFLOADED, "cpu", ["training.activation_offloading: true is not allowed", "needs a CUDA GPU"]),
        (FOUR_BIT, "cpu", ["lora.load_in_4bit: true is not allowed", "needs a CUDA GPU"]),
        (FOUR_BIT, "cuda", ["bitsandbytes, which is not installed: pip install bitsandbytes"]),
        ({"lora": {"load_in_4bit": True}}, "cpu", ["false, or true with lora.enabled: true"]),
        (
            {**UNSLOTH, **LORA},
            "cpu",
            ['model.loader: "unsloth"', "needs a CUDA GPU", "acceleration.shared_prompt: false"],
        ),
        ({**UNSLOTH, **LORA, **NO_ROWS}, "cuda", ["pip install -e '.[unsloth]'"]),
        (UNSLOTH, "cpu", ["unsloth with lora.enabled: true"]),
    ],
)
def test_what_cannot_work_here_is_refused_by_name(
    sections: Sections, device: str, complaints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config, said = make_config(**sections), []
    for refuse in (refuse_conflicts, refuse_unusable_packages):
        try:
            refuse(config, device)
        except ConfigError as error:
            said.append(str(error))
    for complaint in complaints:
        assert complaint in "\n".join(said)


@pytest.mark.parametrize("sections", [EIGHT_BIT, LIGER, OFFLOADED, FOUR_BIT])
def test_on_a_gpu_with_the_packages_all_of_it_may_be_asked_for(
    sections: Sections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    refuse_conflicts(make_config(**sections), "cuda")
    refuse_unusable_packages(make_config(**sections), "cuda")


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"lora": {"load_in_4bit": True}}, "true with lora.enabled: true"),
        ({**EIGHT_BIT, "runtime": {"trainer_ranks": 2}}, "adamw_8bit with runtime.trainer_ranks: 1"),
    ],
)
def test_a_dry_run_for_another_card_names_what_does_not_go_together(
    sections: Sections, complaint: str
) -> None:
    assert any(complaint in one for one in faults_of(make_config(**sections), "cuda", False, resume=None))


def test_activations_are_offloaded_with_checkpointing_only() -> None:
    with pytest.raises(ConfigError, match=r"true with gradient_checkpointing: true"):
        load_config(overrides=["training.activation_offloading=true"])


@pytest.mark.parametrize("setting", ["optim=adamw_8bit", "use_liger_kernel=true"])
def test_a_dry_run_on_a_cpu_says_the_same(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = train_accelerated(["--dry-run", "--set", f"training.{setting}", "--set", "runtime.device=cpu"])
    assert status == 2
    error = capsys.readouterr().err
    assert f"training.{setting.partition('=')[0]}: " in error and "needs a CUDA GPU" in error


def test_a_run_with_a_loader_that_cannot_work_here_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"lora\.load_in_4bit: true is not allowed"):
        prepare(make_config(**FOUR_BIT, runtime={"device": "cpu"}))


def test_unsloth_comes_before_what_it_changes(tmp_path: Path) -> None:
    """In a fresh process, as a trainer rank is: a package of that name that looks at what is there."""
    (tmp_path / "unsloth.py").write_text(
        "import sys\nprint(sorted({'transformers', 'peft'} & set(sys.modules)))\n"
    )
    code = (
        "from configs.schema import Config\n"
        "from pipeline.training.rank import TrainerRank\n"
        "sections = {'model': {'loader': 'unsloth'}, 'lora': {'enabled': True}}\n"
        "config = Config.model_validate({**sections, 'generation': {'dtype': 'bfloat16'}})\n"
        "rank = TrainerRank(config, 'nowhere', 'cpu', 1, 0, 1)\n"
        "rank.start(None)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    # Loading fails: there is no model.
    assert done.returncode == 1 and "nowhere" in done.stderr
    assert done.stdout == "[]\n"
