"""--resume: the run as it was at its last whole checkpoint, with what is still sound of the time after it.

    checkpoint ─► weights, optimiser, random state (pipeline.training.trainer)
    run.db     ─► open draws, scored groups that are used again (the rule: pipeline.record.draw_states)
               ─► sampler: its state at that step, then all that it was asked and told since, once more

The sampler makes no draw twice: draws after the checkpoint are told to it (``Sampler.repeat``) in the order
in which they were made, so tasks, epochs and the numbers of draws go on where they were, and with them the
seeds of requests. Pass counts of groups that lost weights wrote are left out: they are not of this policy's
history. The reward cache is a file of its own (rewards.cache_file). Loads no weights.

A run that cannot be resumed is refused before a model is loaded or its folder is written to; one of other
tasks, which are known later, before its config.yaml or its steps change. A damaged checkpoint is passed over
where an earlier whole one is there (pipeline.record.checkpoints).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from configs.errors import ConfigError, Problem, show, wrong_value
from configs.finished import load_finished
from configs.schema import Config
from configs.section import Section
from configs.task_sets import is_fetched, is_task_file
from curriculum.sampler import Sampler
from curriculum.task import Task
from pipeline.evaluation.evaluate import tasks_digest
from pipeline.evaluation.heldout import earlier_measurement, heldout_tasks
from pipeline.models.find import absolute_name
from pipeline.models.prompts import training_sampling
from pipeline.record.checkpoints import find_faults, latest_checkpoint, step_of
from pipeline.record.draw_states import DrawState
from pipeline.record.ledger import Ledger, Terms
from pipeline.record.ledger_tables import glancing, known_checkpoints, reading
from pipeline.record.metrics import read_metrics
from pipeline.rollouts.draws import max_gated
from rewards.digest import task_digest

_DIGEST_BYTES = 16
# What a run is about: with others it would be another run.
_KEPT = ("model.", "lora.", "dataset.")
# What a checkpoint holds the state of: the sampler, and the optimiser, whose moments have a format.
_IN_CHECKPOINT = ("training.seed", "acceleration.curriculum.", "training.optim")
# What a measurement before training is of; the one after it must be of the same, for they are compared.
_MEASURED_BY = (
    *(
        f"evaluation.{name}"
        for name in ("tasks", "max_tasks", "num_samples", "temperature", "top_p", "max_completion_length")
    ),
    *("generation.system_prompt", "generation.chat_template_kwargs"),
    *("generation.assistant_prefill", "generation.stop_at_code_fence"),
    *(f"execution.{name}" for name in ("timeout", "max_memory", "modules")),
)
# What the ledger has before each of the changes that ``refuse_resume`` returns.
CHANGED = "other than before: "
# Where it lies: a resumed run stays there.
_PLACE = ("output.dir", "output.name")


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
            # At its commit: what a run began with is found by name, and stays (``with_commit_of``).
            "model": config.model.model_dump(mode="json") | {"revision": None},
            "rollouts": config.rollouts.model_dump(mode="json"),
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
    """The checkpoint to go on from, None for the start.

    ``tell`` hears of each that is passed over, and where all that the run had are gone.
    """
    names = ledger.checkpoints()
    checkpoint = latest_checkpoint(run_dir, names, tell)
    if checkpoint is None and names:
        tell(f"none of the run's checkpoints is left ({max(names)} was the last): it begins anew at step 1")
    return checkpoint


def begun_with(run: Path, tasks: Sequence[Task], config: Config) -> tuple[Task, ...] | None:
    """Those of ``tasks`` that the checkpoint in ``run`` is of; None where there is none, or it is not known.

    What of a data set is left out may be decided otherwise today: by references that ran out of time once, or
    benchmarks that could not be had.
    """
    state = _kept_state(run)
    if state is None:
        return None
    with glancing(run / "run.db") as database:
        known = {task_id for (task_id,) in database.execute("SELECT task_id FROM tasks")}
    own = tuple(task for task in tasks if task.task_id in known)
    return own if own and _sampler(own, config).state_dict()["tasks"] == state["tasks"] else None


def refuse_other_tasks(run: Path, tasks: Sequence[Task], config: Config) -> None:
    """Raise ValueError where ``tasks`` are others than those of the checkpoint in ``run``."""
    if (state := _kept_state(run)) is not None:
        _sampler(tasks, config).load_state_dict(state)


def _sampler(tasks: Sequence[Task], config: Config) -> Sampler:
    return Sampler(tasks, config.acceleration.curriculum, config.training.seed)


def _kept_state(run: Path) -> dict[str, Any] | None:
    """The sampler's state beside the newest checkpoint; None where there is none."""
    checkpoint = latest_checkpoint(run, known_checkpoints(run / "run.db"), tell=lambda _: None)
    if checkpoint is None:
        return None
    with glancing(run / "run.db") as database:
        query = "SELECT state FROM steps WHERE status = 'committed' AND step = ?"
        (text,) = database.execute(query, (step_of(checkpoint),)).fetchone()
    state: dict[str, Any] | None = json.loads(text).get("sampler")
    return state


def restore(
    config: Config,
    ledger: Ledger,
    sampler: Sampler,
    step: int,
    tasks: Sequence[Task],
    prompt_ids: Callable[[Task], tuple[int, ...]],
) -> str:
    """Bring ``ledger`` and ``sampler``, fresh from ``tasks``, to where the checkpoint of ``step`` was.

    Returns what is used and issued again, in words.
    Raises ValueError when the ledger knows of no such step, or the sampler's state is of other tasks.
    """
    basis = GroupBasis(config).digest
    # Their code may be another than it was, and nothing that is kept tells.
    has_own_code = bool(config.rewards.custom) or config.rollouts.custom_feedback is not None
    ledger.rewind(step, config.acceleration.max_staleness)
    known = {task.task_id: task for task in tasks}
    for draw in ledger.unfinished_draws():
        task = known.get(draw.task_id)
        if draw.state is not DrawState.SCORED:
            continue
        if task is None or draw.basis != basis(task, prompt_ids(task)):
            ledger.requeue_draw(draw.draw_id, "prompt, task, sampling or rewards are others than they were")
        elif has_own_code:
            ledger.requeue_draw(
                draw.draw_id, "the user's own rewards or feedback may be others than they were"
            )
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
    return (
        f"resumed from step {step}: {num_reused} scored groups are used again, "
        f"{len(draws) - num_reused} draws are issued again"
    )


def refuse_resume(run: Path, config: Config) -> list[str]:
    """Refuse what cannot be resumed; returns the settings of ``config`` that differ from the run's, in words.

    Raises ValueError, naming the file or the field and what can be done, for a damaged run, one that has
    ended, one of another model or data set, or with checkpoints of another seed, curriculum or optimiser;
    nothing is written.
    """
    if _holds_anything(run / "run.db"):
        with reading(run / "run.db"):
            pass  # It is checked when it is opened.
    faults = find_faults(run)
    if faults and all(faults.values()):
        said = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise ValueError(
            f"{run}/checkpoints: none of its checkpoints is whole ({said}); put a copy of one back, or "
            "remove them all to begin the run anew from its first step"
        )
    checkpoint = latest_checkpoint(run, tell=lambda _: None)
    if checkpoint is not None and not _query(run / "run.db", "SELECT 1 FROM draws LIMIT 1"):
        raise ValueError(
            f"{run} has checkpoints but its run.db is lost: put a copy of it back, or start a new run with "
            f"--model {checkpoint}"
        )
    checkpoint = latest_checkpoint(run, known_checkpoints(run / "run.db"), tell=lambda _: None)
    if (run / "metrics.jsonl").exists():
        read_metrics(run / "metrics.jsonl")
    changes = _changes(run, config)
    kept = _KEPT if checkpoint is None else _KEPT + _IN_CHECKPOINT
    problems = [
        wrong_value(
            path, now, f"{show(before)}, as in {run / 'config.yaml'}; for another, --model CHECKPOINT"
        )
        for path, (before, now) in changes.items()
        if path.startswith(kept)
    ]
    problems += _otherwise_measured(run, config, changes)
    name = config.output.name
    if name not in (None, run.resolve().name) and name != _earlier(run).get("output.name"):
        allowed = f"nothing: a resumed run stays in its folder {run}"
        problems.append(wrong_value("output.name", name, allowed))
    if problems:
        raise ConfigError(problems)
    _refuse_ended(run, checkpoint, config.training.max_steps)
    return [f"{path} {show(before)} -> {show(now)}" for path, (before, now) in changes.items()]


def with_commit_of(run: Path, config: Config) -> Config:
    """``config`` with the revision that the model of ``run`` was fetched at, where it names none."""
    earlier = _earlier(run) if config.model.revision is None else {}
    if config.model.name != earlier.get("model.name"):
        return config
    revision = earlier["model.revision"]
    return config.model_copy(update={"model": config.model.model_copy(update={"revision": revision})})


def _otherwise_measured(
    run: Path, config: Config, changes: Mapping[str, tuple[object, object]]
) -> Iterator[Problem]:
    """Where the measurement after training would not be of what the one before it is of, if there is one."""
    measured = earlier_measurement(run / "evaluation_before.json")
    if measured is None:
        return
    for path, (before, now) in changes.items():
        if path in _MEASURED_BY:
            allowed = f"{show(before)}, as the run was measured before training; for another, a new run"
            yield wrong_value(path, now, allowed)
    # Of earlier versions it does not say which tasks, and the hub's are not fetched for this.
    is_said = not {"evaluation.tasks", "evaluation.max_tasks"}.isdisjoint(changes)
    # A file of the hub's has been fetched for the run itself.
    is_at_hand = not is_fetched(config.evaluation.tasks) or is_task_file(config.evaluation.tasks)
    if measured.tasks_digest and not is_said and is_at_hand:
        tasks = heldout_tasks(config)
        if tasks and tasks_digest(tasks) != measured.tasks_digest:
            allowed = "the tasks that it was measured on before training; put them back, or start a new run"
            yield wrong_value("evaluation.tasks", config.evaluation.tasks, allowed)


def value_before(change: str) -> tuple[str, object]:
    """The path of a setting and its value before, from a ``change`` as the ledger has it.

    Raises ValueError where that value was too long to be told whole.
    """
    path, _, values = change.removeprefix(CHANGED).partition(" ")
    try:
        return path, json.JSONDecoder().raw_decode(values)[0]
    except json.JSONDecodeError:
        raise ValueError(f"{path} was changed since, from a value that is not kept whole") from None


def _changes(run: Path, config: Config) -> dict[str, tuple[object, object]]:
    """The values, before and now, of every setting that differs from what the run had."""
    found = {}
    now = _flat(config)
    for path, before in {**_earlier(run), **_terms_before(run / "run.db")}.items():
        if path in now and _whole(path, now[path]) != _whole(path, before) and path not in _PLACE:
            found[path] = (before, now[path])
    return found


def _earlier(run: Path) -> dict[str, object]:
    """What the run's own file says, by path."""
    try:
        return _flat(load_finished(run / "config.yaml"))
    except ConfigError:
        return {}  # Of an older version of this program; --config has taken its place.


def _whole(path: str, value: object) -> object:
    return absolute_name(value) if path == "model.name" and isinstance(value, str) else value


def _flat(config: Config) -> dict[str, object]:
    """By path, with what is no section as one value: of a mapping entries may come and go."""

    def walk(section: Section, values: dict[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
        for key, value in values.items():
            if isinstance(inner := getattr(section, key), Section):
                yield from walk(inner, value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    return dict(walk(config, config.model_dump(mode="json"), ""))


def _terms_before(path: Path) -> dict[str, object]:
    """What the ledger says of the last process that trained, whatever became of config.yaml since."""
    fields = ("grpo.num_generations", "acceleration.max_staleness")
    query = "SELECT num_generations, max_staleness FROM steps JOIN runs USING (run_id) "
    query += "WHERE num_generations IS NOT NULL ORDER BY step_id DESC LIMIT 1"
    return dict(zip(fields, _query(path, query), strict=False))


def _refuse_ended(run: Path, checkpoint: Path | None, max_steps: int) -> None:
    step = 0 if checkpoint is None else step_of(checkpoint)
    if step > max_steps:
        allowed = f"at least the {step} steps of {checkpoint}"
        raise ConfigError([wrong_value("training.max_steps", max_steps, allowed)])
    if step == max_steps and (run / "summary.json").exists():
        raise ValueError(
            f"--resume: {run} has ended: all its {step} steps are done; to go on, give --max-steps with more"
        )


def _holds_anything(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _query(path: Path, query: str) -> tuple[Any, ...]:
    """The first row that ``query`` finds in the ledger; empty where there is none, or no ledger."""
    if not _holds_anything(path):
        return ()
    with glancing(path) as database:
        return database.execute(query).fetchone() or ()
