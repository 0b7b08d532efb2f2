"""The blocks of docs/graders.md that need no other package, and verl's, called as its trainer calls it."""

from __future__ import annotations

import inspect
import re
import runpy
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
