"""samples.jsonl: a few rollouts of each step, for people to read.

Called by pipeline.training_loop and pipeline.baseline_account.
"""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.messages import RolloutGroup

NUM_SAMPLED_ROLLOUTS = 2


def log_samples(path: Path, step: int, group: RolloutGroup) -> None:
    """Append the first rollouts of ``group``, one line each; the reward of one not scored is null."""
    with path.open("a", encoding="utf-8") as file:
        for rollout in group.rollouts[:NUM_SAMPLED_ROLLOUTS]:
            result = rollout.result
            line = {
                "step": step,
                "task_id": group.task.task_id,
                "prompt": group.task.prompt,
                "completion": rollout.completion.text,
                "reward": None if result.is_infra_error else result.reward,
                "outcome": str(result.outcome),
                "detail": result.detail,
                "breakdown": dict(result.breakdown),
            }
            file.write(json.dumps(line) + "\n")
