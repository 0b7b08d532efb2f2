"""The project without its models: sandbox, tasks and rewards in an environment of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).parent / "uv"
# Of packages that train and sample; the rest of the project does without them.
HEAVY = ("torch", "transformers", "ray", "vllm", "trl", "peft")
# What they import is not ours to bring.
OTHERS = ("rewards.openenv", "rewards.verifiers")
PROGRAM = f"""
import importlib, importlib.util, pkgutil
assert not [name for name in {HEAVY!r} if importlib.util.find_spec(name)]
for name in ("configs", "sandbox", "curriculum", "rewards"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        is_other = module.name in {OTHERS!r} or ".ladder.tasks" in module.name
        if not is_other and not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs are of an environment with this project and what it asks for by itself."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    # Of a build before, which may have files that are gone by now.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, ROOT], check=True)
    return python.parent


def run(bin_folder: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program, *rest = words
    return subprocess.run(
        [bin_folder / program, *rest], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_every_module_but_the_pipelines_can_be_imported(bin_folder: Path, tmp_path: Path) -> None:
    done = run(bin_folder, tmp_path, "python", "-c", PROGRAM)
    assert done.returncode == 0, done.stderr


def test_programs_are_judged_and_tasks_are_audited(bin_folder: Path, tmp_path: Path) -> None:
    assert "\nLevel L" in run(bin_folder, tmp_path, "python", "-m", "sandbox", "selftest").stdout
    audit = ("audit", "ladder", "--limit", "3", "--against", "humaneval")
    done = run(bin_folder, tmp_path, "python", "-m", "curriculum", *audit)
    assert done.returncode == 0 and "mutants killed" in done.stdout, done.stderr
    rubric = "from rewards.trl import make_reward_function"
    assert run(bin_folder, tmp_path, "python", "-c", rubric).returncode == 0


def test_training_says_what_is_missing(bin_folder: Path, tmp_path: Path) -> None:
    done = run(bin_folder, tmp_path, "train_accelerated", "--max-steps", "1")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "is not installed" in line and "`make install`" in line
