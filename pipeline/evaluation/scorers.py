"""Who scores: the tests alone (what pass@k needs), or reward workers, here or anywhere on a cluster.

``check_sandbox`` says before a model is loaded whether this host's sandbox will take model-written code: it
starts one (about a third of a second), looks at its level and ends it. What holds here may not hold on the
other machines of a cluster: there the sandbox itself refuses.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b

from configs.errors import ConfigError, Problem
from configs.schema import ClusterConfig, Config, ExecutionConfig
from configs.task_sets import BUILT_IN_DATASETS
from curriculum.task import Task
from pipeline.evaluation.samples import sample_program
from pipeline.host.files import cache_root, read_object, write_text_atomically
from pipeline.processes.local import LocalProcess
from rewards.digest import task_digest
from rewards.execution import Executor, execution_request, has_passed, start_sandbox
from rewards.extract import extract_code
from rewards.result import RewardResult, infra_error
from rewards.worker import StartWorker
from sandbox.advice import refusal
from sandbox.pool import SAFE_LEVELS
from sandbox.result import Outcome
from sandbox.worker import SandboxError

# Of a reference: slower here than elsewhere, or not judged at all.
_NO_VERDICT = (Outcome.TIMEOUT_CPU, Outcome.TIMEOUT_WALL, Outcome.INFRA_ERROR)
_MAX_NAMED = 5
_WORKER = "rewards.worker:RewardWorker"
# For a rewards.pool.RewardPool: each worker is a process of this machine.
local_reward_worker: StartWorker = partial(LocalProcess, _WORKER)


def reward_worker_starter(cluster: ClusterConfig) -> StartWorker:
    """As ``local_reward_worker``, or with an address each is an actor of a Ray that runs: see ``cluster``."""
    if cluster.address is None:
        return local_reward_worker
    # Imported here: most runs do without Ray.
    from pipeline.processes.ray_remote import RayProcess

    resources = {} if cluster.reward_resource is None else {cluster.reward_resource: 1}
    return partial(RayProcess, _WORKER, options={"scheduling_strategy": "SPREAD", "resources": resources})


class SandboxScorer:
    """Scores by the tests alone: reward 1 for a pass, else 0; the breakdown has the share of tests passed.

    The sandbox is the caller's.
    """

    def __init__(self, sandbox: Executor, execution: ExecutionConfig) -> None:
        self._sandbox = sandbox
        self._execution = execution

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict on an answer, whose program is extracted first."""
        return await self.score_program(task, extract_code(text, task.entry_point, task.prompt))

    async def score_program(self, task: Task, program: str) -> RewardResult:
        """The verdict on a program."""
        request = execution_request(task, program, self._execution)
        try:
            run = await asyncio.to_thread(self._sandbox.run, request)
        except ValueError as failure:
            # The task's own check cannot run: no answer's fault, and no reason to lose the other tasks.
            return infra_error(f"{task.task_id}: {failure}", 0.0)
        if run.outcome is Outcome.INFRA_ERROR:
            return infra_error(run.detail, run.wall_s)
        passed = has_passed(run)
        return RewardResult(
            reward=float(passed),
            breakdown={"tests": run.num_passed / max(1, run.num_tests)},
            outcome=run.outcome,
            passed=passed,
            detail=run.detail,
            cached=False,
            seconds=run.wall_s,
        )


class CompletionScorer:
    """Scores continuations of the prompt, where ``SandboxScorer`` scores answers of a chat."""

    def __init__(self, scorer: SandboxScorer) -> None:
        self._scorer = scorer

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict on the program that a completion stands for, as for samples in OpenAI's format."""
        return await self._scorer.score_program(task, sample_program(task, text))


def sound_tasks(tasks: Sequence[Task], config: Config, note: Callable[[str, str], None]) -> tuple[Task, ...]:
    """``tasks`` but for those whose reference fails their own tests; ``note`` gets a kind and a text.

    Built-in sets are not looked at: the project's tests do that. Verdicts are kept in the user's cache. A
    reference that runs out of time is no reason: another machine may be faster. Raises ValueError where no
    task is left.
    """
    is_tested = config.dataset.name in BUILT_IN_DATASETS and config.dataset.name != "mbpp"
    if is_tested or not config.execution.enabled:
        return tuple(tasks)
    faults = _failing_references([task for task in tasks if task.reference], config.execution)
    if not faults:
        return tuple(tasks)
    named = "; ".join(f"{name}: {why}" for name, why in list(faults.items())[:_MAX_NAMED])
    more = f"; and {len(faults) - _MAX_NAMED} more" if len(faults) > _MAX_NAMED else ""
    said = f"the references of {len(faults)} of {len(tasks)} tasks fail their own tests ({named}{more})"
    if len(faults) == len(tasks):
        raise ValueError(f"dataset.name: value {config.dataset.name!r}: {said}: no task is left")
    note("wrong references", f"{said}: their tasks are left out")
    return tuple(task for task in tasks if task.task_id not in faults)


def _failing_references(tasks: Sequence[Task], execution: ExecutionConfig) -> dict[str, str]:
    """Why references fail, by task id."""
    path, settings = cache_root() / "references.json", execution.model_dump_json()
    keys = {task.task_id: _reference_key(task, settings) for task in tasks}
    try:
        known = read_object(path)
    except ValueError:
        known = {}  # None yet, or a damaged one.
    new = [task for task in tasks if keys[task.task_id] not in known]
    if new:
        num_workers = len(os.sched_getaffinity(0))
        with start_sandbox(execution, num_workers) as sandbox, ThreadPoolExecutor(num_workers) as threads:
            verdicts = list(threads.map(partial(_fault_of_reference, sandbox, execution), new))
        known |= {keys[task.task_id]: fault for task, fault in zip(new, verdicts, strict=True)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, json.dumps(known))
    faults = {task.task_id: known[keys[task.task_id]] for task in tasks}
    return {name: fault for name, fault in faults.items() if fault}


def _reference_key(task: Task, settings: str) -> str:
    digest = blake2b(task_digest(task), digest_size=16)
    digest.update(f"{task.reference}\n{settings}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _fault_of_reference(sandbox: Executor, execution: ExecutionConfig, task: Task) -> str:
    """Why the reference fails; empty where it passes, or nobody can tell here."""
    try:
        run = sandbox.run(execution_request(task, task.reference, execution))
    except ValueError as failure:
        return str(failure)
    if has_passed(run) or run.outcome in _NO_VERDICT:
        return ""
    return f"{run.outcome} {run.detail}".strip()


def check_sandbox(
    execution: ExecutionConfig,
    *,
    modules_flag: str = "execution.modules",
    unsafe_flag: str = "--set execution.allow_unsafe=true",
    without: frozenset[str] = frozenset(),
) -> None:
    """Return where the sandbox can be used as ``execution`` says; a level below L2 is then only noted.

    The flags are what the user knows these settings by. ``without`` leaves out walls, to test as on
    weaker hosts. Raises ConfigError for a module that is not installed, ValueError where the sandbox does
    not start or is weaker than L2 without leave; the message says what is missing.
    """
    _refuse_missing(execution.modules, modules_flag)
    allowed = execution.model_copy(update={"allow_unsafe": True})
    try:
        with start_sandbox(allowed, without=without) as sandbox:
            walls = sandbox.walls
    except SandboxError as error:
        raise ValueError(f"{error}; `python -m sandbox selftest` says more") from error
    if walls.level() in SAFE_LEVELS:
        return
    if not execution.allow_unsafe:
        raise ValueError(refusal(walls, unsafe_flag))
    print(
        f"note: model code runs at sandbox level {walls.level()}, as allowed; see SECURITY.md",
        file=sys.stderr,
    )


def _refuse_missing(modules: list[str], flag: str) -> None:
    problems = [
        Problem(field=flag, fault=f"{name} is not installed", allowed="packages of this Python environment")
        for name in modules
        if importlib.util.find_spec(name.partition(".")[0]) is None
    ]
    if problems:
        raise ConfigError(problems)
