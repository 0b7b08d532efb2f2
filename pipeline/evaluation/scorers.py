"""Who scores: the tests alone (what pass@k needs), or reward workers, here or anywhere on a cluster.

``check_sandbox`` says before a model is loaded whether this host's sandbox will take model-written code: it
starts one (about a third of a second), looks at its level and ends it. What holds here may not hold on the
other machines of a cluster: there the sandbox itself refuses.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from configs.errors import ConfigError, Problem
from configs.schema import ClusterConfig, Config, ExecutionConfig
from curriculum.judging import Executor, start_sandbox
from curriculum.task import Task
from pipeline.evaluation.samples import sample_program
from pipeline.processes.local import LocalProcess
from rewards.execution import judge_by_tests
from rewards.extract import extract_code
from rewards.pool import RewardPool
from rewards.result import RewardResult
from rewards.worker import StartWorker
from sandbox.advice import refusal
from sandbox.pool import SAFE_LEVELS
from sandbox.worker import SandboxError, unusable_modules

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
    """Scores as ``rewards.execution.judge_by_tests`` does. The sandbox is the caller's."""

    def __init__(self, sandbox: Executor, execution: ExecutionConfig) -> None:
        self._sandbox = sandbox
        self._execution = execution

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict on an answer, whose program is extracted first."""
        return await self.score_program(task, extract_code(text, task.entry_point, task.prompt))

    async def score_program(self, task: Task, program: str) -> RewardResult:
        """The verdict on a program."""
        return await asyncio.to_thread(judge_by_tests, task, program, self._sandbox, self._execution)


class PoolScorer:
    """Scores as ``SandboxScorer`` does, in the workers of ``pool``, whatever its rewards are."""

    def __init__(self, pool: RewardPool) -> None:
        self._pool = pool

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict of the tests on an answer."""
        return await self._pool.score(task, text, by_tests=True)


class CompletionScorer(SandboxScorer):
    """Scores continuations of the prompt, where ``SandboxScorer`` scores answers of a chat."""

    async def score(self, task: Task, text: str) -> RewardResult:
        """The verdict on the program that a completion stands for, as for samples in OpenAI's format."""
        return await self.score_program(task, sample_program(task, text))


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


def refuse_unusable_sandbox(config: Config, _: str) -> None:
    """Raise what ``check_sandbox`` raises, where a run executes programs."""
    if config.execution.enabled:
        check_sandbox(config.execution)


def _refuse_missing(modules: list[str], flag: str) -> None:
    problems = [
        Problem(field=flag, fault=fault, allowed="packages of this Python environment")
        for fault in unusable_modules(modules)
    ]
    if problems:
        raise ConfigError(problems)
