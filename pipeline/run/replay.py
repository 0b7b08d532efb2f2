"""Do the training of a run again, from what its ledger holds: is it the same, bit for bit?

    python -m pipeline replay RUN_DIR [--from STEP] [--to STEP]

Nothing is generated and nothing scored: tokens, log-probabilities, rewards and the order of groups are those
of run.db, under whatever staleness, restarts and resumes they came about. A trainer of the same settings
computes the steps with the same parts, micro-batches and threads; where a resume changed settings another one
goes on from a checkpoint of the first. After each step its metrics, the digest of each tensor that it
publishes (pipeline.weights.receipts) and, where the run saved one, its checkpoint are compared with the
run's. The first difference ends it, with step and tensor. Begins at the last checkpoint before the first
step. Writes into a temporary folder only.

Bits are those of one kind of processor, one number of ranks and one version of torch; another rounds in other
places.

Exit status: 0 where all is the same, 1 where something differs, 2 for a run that cannot be replayed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any

from configs.command_line import make_parser, run_async, run_command
from configs.finished import load_finished
from configs.schema import ClusterConfig, Config
from curriculum.sources import load_tasks
from pipeline.errors import StageError
from pipeline.evaluation.forms import ChatForm
from pipeline.host.device import choose_device, for_device
from pipeline.host.files import passing_folder
from pipeline.host.shares import uses_ray
from pipeline.messages import RolloutGroup, TrainBatch
from pipeline.models.find import resolve_model
from pipeline.models.prompts import PromptTokenizer
from pipeline.record.checkpoints import find_faults, step_of
from pipeline.record.ledger_rows import ROLLOUT_COLUMNS, packed, rollout_of
from pipeline.record.ledger_tables import reading
from pipeline.record.metric_names import OF_THE_CARD
from pipeline.record.metrics import finite_or_none
from pipeline.rollouts.batch import make_batch
from pipeline.run.resume import GroupBasis, value_before
from pipeline.training.handle import TrainerHandle
from pipeline.weights.files import remove_weights
from pipeline.weights.receipts import NUM_TURNS

_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A committed step of the run, as its ledger has it."""

    step: int
    draw_ids: tuple[int, ...]
    parts: tuple[int, ...]
    layout: Mapping[str, int]
    metrics: Mapping[str, float | None]
    digests: bytes | None
    checkpoint: str | None
    committed_at: float


class Tasks:
    """The tasks of a run with these settings, as they are now."""

    def __init__(self, config: Config, model_path: Path) -> None:
        self.by_id = {task.task_id: task for task in load_tasks(config.dataset)}
        self.basis = GroupBasis(config).digest
        tokenizer = PromptTokenizer(model_path, trust_remote_code=config.model.trust_remote_code)
        self.prompt_ids = ChatForm(tokenizer=tokenizer, generation=config.generation).prompt_ids


class _Part:
    """Steps of the run in ``folder`` that one process trained, or several with the same settings."""

    def __init__(self, folder: Path, changes: Sequence[str], steps: Sequence[Step]) -> None:
        """``changes`` are those of settings since then, the newest first."""
        config = _settings(folder, changes, steps[0])
        self.steps = steps
        self.device = choose_device(config)
        self.config = for_device(config, self.device)
        self.model_path = resolve_model(config.model)
        self.tasks = Tasks(self.config, self.model_path)


class RunRecord:
    """The account of the run in ``folder``, whose ``database`` is open; only read."""

    def __init__(self, folder: Path, database: sqlite3.Connection) -> None:
        self.folder = folder
        self._database = database

    def steps(self) -> list[Step]:
        """All committed steps. Raises ValueError for a run that notes no layouts."""
        rows = self._database.execute(
            "SELECT step, draw_ids, layout, metrics, checkpoint, committed_at, ("
            " SELECT digests FROM weights WHERE weights.policy_version = steps.policy_version"
            " AND weights.run_id = steps.run_id)"
            " FROM steps WHERE status = 'committed' ORDER BY step"
        )
        found = []
        for step, draw_ids, layout, metrics, checkpoint, committed_at, digests in rows:
            kept = json.loads(layout)
            if "parts" not in kept:
                raise ValueError(f"{self.folder}: a run of train_code_grpo cannot be replayed")
            found.append(
                Step(
                    step=step,
                    draw_ids=tuple(json.loads(draw_ids)),
                    parts=tuple(kept.pop("parts")),
                    layout=kept,
                    metrics=json.loads(metrics),
                    digests=digests if kept.get("turns") == NUM_TURNS else None,  # else of other columns
                    checkpoint=checkpoint,
                    committed_at=committed_at,
                )
            )
        return found

    def later_changes(self, step: Step) -> tuple[str, ...]:
        """The changes of settings, as the run noted them, since ``step`` was trained; the newest first."""
        query = "SELECT text FROM events WHERE kind = 'settings' AND time > ? ORDER BY event_id DESC"
        return tuple(text for (text,) in self._database.execute(query, (step.committed_at,)))

    def group(self, draw_id: int, tasks: Tasks) -> RolloutGroup:
        """The group of that draw. Raises ValueError where its tokens are gone, or its task is another now."""
        query = "SELECT task_id, attempt, basis FROM draws WHERE draw_id = ?"
        task_id, attempt, noted = self._database.execute(query, (draw_id,)).fetchone()
        task = tasks.by_id.get(task_id)
        prompt_ids = () if task is None else tasks.prompt_ids(task)
        if task is None or tasks.basis(task, prompt_ids) != noted:
            raise ValueError(
                f"{self.folder}: task {task_id} of draw {draw_id} is not what it was in the run: its data "
                "set, the model's tokenizer or this program has changed"
            )
        rows = self._database.execute(
            f"SELECT {ROLLOUT_COLUMNS} FROM rollouts JOIN trained_tokens USING (draw_id, place)"
            " WHERE draw_id = ? AND attempt = ? ORDER BY place",
            (draw_id, attempt),
        )
        rollouts = tuple(rollout_of(row, prompt_ids) for row in rows)
        if not rollouts:
            raise ValueError(
                f"{self.folder}: the tokens of draw {draw_id} are not kept any more (output.text_steps); "
                "replay later steps with --from"
            )
        return RolloutGroup(draw_id=draw_id, task=task, rollouts=rollouts)


async def replay(record: RunRecord, first: int, last: int | None, tell: Callable[[str], None]) -> str | None:
    """Do the steps ``first`` to ``last`` (default: all) of the run again; returns what differs, if anything.

    Raises ValueError for steps that the run has not, or whose tokens are gone, and StageError where the
    trainer fails.
    """
    steps = record.steps()
    if not steps:
        raise ValueError(f"{record.folder} has no step yet that could be done again")
    last = len(steps) if last is None else last
    if not 1 <= first <= last <= len(steps):
        wanted = f"{first} to {last}" if first <= last else f"those from {first} on that end with {last}"
        raise ValueError(f"{record.folder} has the steps 1 to {len(steps)}, not {wanted}")
    start = _start(record.folder, first - 1, {step.checkpoint for step in steps})
    begun = 0 if start is None else step_of(start)
    parts = []
    own_steps = steps[begun:last]
    # What a trainer has learnt of memory stays, so that a lower number (larger micro-batches) takes another.
    limits = [step.layout["limit"] for step in own_steps]
    falls = accumulate((int(now < before) for before, now in pairwise(limits)), initial=0)
    settings = groupby(
        zip(own_steps, falls, strict=True),
        lambda pair: (record.later_changes(pair[0]), pair[0].layout["threads"], pair[1]),
    )
    for (changes, *_), own in settings:
        part = _Part(record.folder, changes, [step for step, _ in own])
        # Before anything is loaded.
        for step in part.steps:
            record.group(step.draw_ids[0], part.tasks)
        parts.append(part)
    # What one that was killed left goes first.
    with passing_folder(Path(tempfile.gettempdir()), "code-grpo-replay-") as folder, _ray(parts[0]):
        for part in parts:
            trainer = TrainerHandle(part.config, str(part.model_path), part.device)
            await trainer.start()
            try:
                if start is not None:
                    await trainer.load(start)
                for step in part.steps:
                    groups = [record.group(draw_id, part.tasks) for draw_id in step.draw_ids]
                    batches = list(_batches(part.config, step, groups))
                    fault = await _replay_step(trainer, step, batches, record.folder, folder)
                    if fault is not None:
                        return f"step {step.step} differs: {fault}"
                    tell(f"step {step.step}: the same{'' if step.digests else ' (weights not compared)'}")
                if part is not parts[-1]:
                    start = await trainer.save(folder / "last", part.steps[-1].step)
            finally:
                trainer.close()
    return None


async def _replay_step(
    trainer: TrainerHandle, step: Step, batches: Sequence[TrainBatch], run: Path, folder: Path
) -> str | None:
    """What differs between the run's step and the same one now; None for nothing."""
    await trainer.adopt(step.layout["limit"])
    *earlier, final = batches
    for batch in earlier:
        await trainer.accumulate(batch)
    result = await trainer.step(final)
    update = await trainer.publish(str(folder))
    await asyncio.to_thread(remove_weights, update)
    names = [
        name
        for name, value in result.metrics.items()
        if name in step.metrics and name not in OF_THE_CARD and step.metrics[name] != finite_or_none(value)
    ]
    told = [f"{name} is {result.metrics[name]!r}, was {step.metrics[name]!r}" for name in names]
    if step.digests is not None and packed(update.receipt) != step.digests:
        told = [*_tensors(update.receipt, step.digests), *told]
    if not told and step.checkpoint is not None and (saved := run / "checkpoints" / step.checkpoint).is_dir():
        again = await trainer.save(folder / "again", step.step)
        told = _files_that_differ(saved, again)
    return f"{len(told)} things, first {'; '.join(told[:_MAX_SHOWN])}" if told else None


def _batches(config: Config, step: Step, groups: Sequence[RolloutGroup]) -> Iterator[TrainBatch]:
    """The parts in which the run trained on ``groups``."""
    done = 0
    for part, num_groups in enumerate(step.parts):
        own = groups[done : done + num_groups]
        done += num_groups
        if own:
            yield make_batch(step.step, own, config.grpo, part)
        else:
            yield TrainBatch(step=step.step, samples=(), part=part)


def _tensors(receipt: Mapping[str, int], digests: bytes) -> list[str]:
    """Those whose digest is another now."""
    names = sorted(receipt)
    if len(digests) != 8 * len(names):
        return [f"{len(names)} tensors are published, {len(digests) // 8} were"]
    now = packed(receipt)
    return [
        f"{name} has other bits"
        for index, name in enumerate(names)
        if now[8 * index : 8 * index + 8] != digests[8 * index : 8 * index + 8]
    ]


def _files_that_differ(saved: Path, again: Path) -> list[str]:
    """Names of tensors in the two checkpoints that are not the same, weights and optimiser."""
    # Imported here: a replay that is refused does without torch.
    import torch
    from safetensors.torch import load_file

    told = []
    for path in sorted(saved.glob("*.safetensors")):
        before, now = load_file(path), load_file(again / path.name)
        told += [f"{path.name}: {name}" for name in before if not torch.equal(before[name], now[name])]
    before, now = (torch.load(folder / "trainer.pt", weights_only=True) for folder in (saved, again))
    return told + [f"trainer.pt: {name}" for name in _differing(before["optimizer"], now["optimizer"])]


def _differing(before: Any, now: Any, name: str = "optimizer") -> Iterator[str]:
    if isinstance(before, dict):
        for key in before:
            yield from _differing(before[key], now[key], f"{name}.{key}")
    elif isinstance(before, list | tuple):
        for index, (left, right) in enumerate(zip(before, now, strict=True)):
            yield from _differing(left, right, f"{name}.{index}")
    elif hasattr(before, "dtype"):
        if not bool((before == now).all()):
            yield name
    elif before != now:
        yield name


def _ray(part: _Part) -> AbstractContextManager[None]:
    """Ray, where the ranks are its actors."""
    if not uses_ray(part.config, part.device):
        return nullcontext()
    # Imported here: on one card or a CPU a replay does without it.
    from pipeline.cluster import running_ray

    return running_ray("local")


def _start(folder: Path, step: int, known: Collection[str | None]) -> Path | None:
    """The newest whole checkpoint up to ``step``, of those ``known`` to steps; None for the run's start."""
    found = find_faults(folder).items()
    whole = [folder / "checkpoints" / name for name, fault in found if fault is None and name in known]
    return max([path for path in whole if step_of(path) <= step], key=step_of, default=None)


def _settings(folder: Path, changes: Sequence[str], step: Step) -> Config:
    """The run's as they were before ``changes``, the newest first, on as many threads as ``step`` had.

    Raises ValueError where a value of before is not kept whole.
    """
    try:
        # The oldest change of a setting comes last, and has the value of then.
        before = dict(map(value_before, changes))
    except ValueError as error:
        said = f"{folder}: step {step.step} cannot be replayed: {error}; replay later steps with --from"
        raise ValueError(said) from error
    config = load_finished(folder / "config.yaml", before)
    # Whoever's cluster the run was on, its steps are done again on this machine, without an engine.
    threads = {"trainer_threads": step.layout["threads"], "placement": "auto", "weight_transport": "file"}
    alone = {"num_engines": 1, "tensor_parallel_size": 1, "gpu_memory_utilization": None}
    runtime = config.runtime.model_copy(update=threads)
    generation = config.generation.model_copy(update=alone)
    return config.model_copy(
        update={"runtime": runtime, "generation": generation, "cluster": ClusterConfig()}
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = make_parser("python -m pipeline replay", str(__doc__).partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="the folder of a run")
    parser.add_argument("--from", type=int, default=1, metavar="STEP", dest="first", help="default: 1")
    parser.add_argument("--to", type=int, metavar="STEP", dest="last", help="default: the last one")
    return run_command(parser, argv, _main)


def _main(arguments: argparse.Namespace) -> int:
    def tell(text: str) -> None:
        print(text, flush=True)

    with reading(arguments.run / "run.db") as database:
        database.execute("PRAGMA query_only = ON")
        record = RunRecord(arguments.run, database)
        try:
            differs = run_async(replay(record, arguments.first, arguments.last, tell))
        except StageError as error:
            raise ValueError(str(error)) from error
    print(differs or "the same, bit for bit: metrics, weights and checkpoints")
    return 1 if differs else 0
