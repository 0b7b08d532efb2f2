"""--resume: the run as it was at its last whole checkpoint, with what is still sound of the time after it.

    checkpoint ─► weights, optimiser, random state (pipeline.training.trainer)
    run.db     ─► open draws, scored groups that are used again (the rule: pipeline.record.draw_states)
               ─► sampler: its state at that step, then all that it was asked and told since, once more

The sampler makes no draw twice: draws after the checkpoint are told to it (``Sampler.repeat``) in the order
in which they were made, so tasks, epochs and the numbers of draws go on where they were, and with them the
seeds of requests. Pass counts of groups that lost weights wrote are left out: they are not of this policy's
history. The reward cache is a file of its own (rewards.cache_file). Loads no weights.

A run that cannot be resumed is refused before anything is started or written. A damaged checkpoint is passed
over where an earlier whole one is there (pipeline.record.checkpoints).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from configs.schema import Config
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.evaluation.heldout import earlier_measurement
from pipeline.models.prompts import training_sampling
from pipeline.record.checkpoints import find_faults, latest_checkpoint
from pipeline.record.draw_states import DrawState
from pipeline.record.ledger import Ledger, Terms
from pipeline.record.ledger_tables import check_database
from pipeline.record.metrics import read_metrics
from pipeline.rollouts.draws import max_gated
from rewards.digest import task_digest

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Where a run goes on: after ``step``, with so many scored groups used again and draws issued again."""

    step: int
    num_reused: int
    num_again: int

    def __str__(self) -> str:
        return (
            f"resumed from step {self.step}: {self.num_reused} scored groups are used again, "
            f"{self.num_again} draws are issued again"
        )


def terms_of(config: Config) -> Terms:
    """What a run of ``config`` promises of each step."""
    return Terms(
        groups_per_step=config.prompts_per_step,
        num_generations=config.grpo.num_generations,
        max_staleness=config.acceleration.max_staleness,
        max_gated=max_gated(config),
    )


class GroupBasis:
    """What the rollouts of a group rest on besides the weights: prompt, task, sampling and rewards.

    A resume with another configuration or other tasks uses no group of before.
    """

    def __init__(self, config: Config) -> None:
        parts = {
            "sampling": asdict(training_sampling(config)),
            "num_generations": config.grpo.num_generations,
            "early_abort": config.acceleration.early_abort.model_dump(mode="json"),
            "model": config.model.model_dump(mode="json"),
            "rewards": config.rewards.model_dump(mode="json"),
            "execution": config.execution.model_dump(mode="json"),
        }
        self._settings = json.dumps(parts, sort_keys=True).encode()

    def digest(self, task: Task, prompt_ids: tuple[int, ...]) -> str:
        """A digest of all of it, for groups of ``task`` with the encoded prompt ``prompt_ids``."""
        digest = blake2b(self._settings, digest_size=_DIGEST_BYTES)
        digest.update(task_digest(task))
        digest.update(json.dumps(prompt_ids).encode())
        return digest.hexdigest()


def find_checkpoint(run_dir: Path, ledger: Ledger, tell: Callable[[str], None]) -> Path | None:
    """The checkpoint to go on from, None for the start; ``tell`` hears of each that is passed over.

    Raises ValueError where there are checkpoints and the ledger, being new, knows of no run that made them.
    """
    checkpoint = latest_checkpoint(run_dir, ledger.checkpoints(), tell)
    orphan = latest_checkpoint(run_dir, tell=tell) if checkpoint is None and ledger.is_new() else None
    if orphan is not None:
        raise ValueError(
            f"{run_dir} has checkpoints but its run.db is lost: put a copy of it back, or start a new run "
            f"with --model {orphan}"
        )
    return checkpoint


def restore(
    config: Config,
    ledger: Ledger,
    sampler: Sampler,
    step: int,
    tasks: Sequence[Task],
    prompt_ids: Callable[[Task], tuple[int, ...]],
) -> Resumed:
    """Bring ``ledger`` and ``sampler``, fresh from ``tasks``, to where the checkpoint of ``step`` was.

    Raises ValueError when the ledger knows of no such step, or the sampler's state is of other tasks.
    """
    basis = GroupBasis(config).digest
    ledger.rewind(step, config.acceleration.max_staleness)
    known = {task.task_id: task for task in tasks}
    for draw in ledger.unfinished_draws():
        task = known.get(draw.task_id)
        if draw.state is DrawState.SCORED and (task is None or draw.basis != basis(task, prompt_ids(task))):
            ledger.requeue_draw(draw.draw_id, "prompt, task, sampling or rewards are others than they were")
    state = ledger.load_state(step)
    if state:
        sampler.load_state_dict(state["sampler"])
    for call in ledger.sampler_calls(step):
        if call.kind == "draw":
            sampler.repeat(call.task_id, call.step, call.skipped)
        elif call.kind == "release":
            sampler.release(call.task_id)
        elif call.task_id in known and call.max_policy_version <= step:
            sampler.record(call.task_id, call.num_passed, call.num_samples, call.has_signal, call.step)
    draws = ledger.unfinished_draws()
    num_reused = sum(draw.state is DrawState.SCORED for draw in draws)
    return Resumed(step=step, num_reused=num_reused, num_again=len(draws) - num_reused)


def refuse_damaged_run(run: Path) -> None:
    """Raise ValueError, naming the file and what can be done, where the run in ``run`` cannot be resumed."""
    _check_ledger(run / "run.db")
    faults = find_faults(run)
    if faults and all(faults.values()):
        said = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise ValueError(
            f"{run}/checkpoints: none of its checkpoints is whole ({said}); put a copy of one back, or "
            "remove them all to begin the run anew from its first step"
        )
    if (run / "metrics.jsonl").exists():
        read_metrics(run / "metrics.jsonl")
    earlier_measurement(run / "evaluation_before.json")


def _check_ledger(path: Path) -> None:
    if not path.exists() or path.stat().st_size == 0:
        return
    # Not read-only: a killed process may have left its last steps in the log beside the file.
    database = sqlite3.connect(path)
    try:
        check_database(database, path)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} is not a run database, or is damaged: {error}") from None
    finally:
        database.close()
