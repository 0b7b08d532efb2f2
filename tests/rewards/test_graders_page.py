"""The blocks of docs/graders.md that need no other package, and verl's, called as its trainer calls it."""

from __future__ import annotations

import inspect
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from curriculum.sources import load_named_tasks

PAGE = Path(__file__).parents[2] / "docs" / "graders.md"
TASK = load_named_tasks("ladder")[0]
RIGHT, WRONG = f"Here it is:\n```python\n{TASK.reference}\n```", "I do not know."


def block(name: str, folder: Path) -> Path:
    """The block called ``name``, as a file."""
    (source,) = re.findall(
        rf"^```python {re.escape(name)}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    path = folder / name
    path.write_text(source, encoding="utf-8")
    return path


def test_trls_block_makes_a_reward_function(tmp_path: Path) -> None:
    made = runpy.run_path(str(block("trl_reward.py", tmp_path)))
    reward: Any = made["reward"]
    first, second = reward(["p", "p"], [RIGHT, WRONG], task_id=[TASK.task_id] * 2)
    assert first > 0.8 > 0.3 > second
    with pytest.raises(ValueError, match="task_id"):
        reward(["p"], [RIGHT], task_id=["absent"])


def test_verls_block_scores_as_its_trainer_asks(tmp_path: Path) -> None:
    compute: Any = runpy.run_path(str(block("verl_reward.py", tmp_path)))["compute_score"]
    # The names by which verl's reward manager calls it.
    assert list(inspect.signature(compute).parameters)[:4] == [
        "data_source", "solution_str", "ground_truth", "extra_info",
    ]  # fmt: skip
    asked = {"data_source": "code", "ground_truth": TASK.task_id, "extra_info": {}}
    assert compute(solution_str=RIGHT, **asked) == 1.0
    assert compute(solution_str=WRONG, **asked) == 0.0


# Asks verl for the function in the file that comes first, and scores the texts that follow the id of a task.
_VERL = """
import json, sys
from omegaconf import OmegaConf
from verl.trainer.ppo.reward import get_custom_reward_fn

path, task_id, *texts = sys.argv[1:]
reward = {"custom_reward_function": {"path": path, "name": "compute_score"}}
score = get_custom_reward_fn(OmegaConf.create({"reward": reward}))
asked = {"data_source": "code", "ground_truth": task_id, "extra_info": {}}
print(json.dumps([score(solution_str=text, **asked) for text in texts]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_verls_own_loader_takes_the_block(tmp_path: Path) -> None:
    """verl, which wants another numpy, and what it imports that the project has not, in a folder apart."""
    packages = ("verl==0.9.1", "tensordict==0.15.3", "pyvers==0.2.3", "orjson==3.13.0", "omegaconf==2.4.0")
    install = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--python",
        sys.executable,
        "--no-deps",
    ]
    target = ["--target", str(tmp_path / "verl"), *packages, "antlr4-python3-runtime==4.9.3"]
    subprocess.run([*install, *target], check=True, timeout=200)
    done = subprocess.run(
        [sys.executable, "-c", _VERL, str(block("verl_reward.py", tmp_path)), TASK.task_id, RIGHT, WRONG],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "verl"), str(PAGE.parents[1])])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [1.0, 0.0]
