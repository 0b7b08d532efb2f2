"""The tasks and the sandbox as a verifiers taskset (verifiers 0.4), for its evaluations and for prime-rl.

verifiers finds a taskset as a module of its own name: one that says

    from rewards.verifiers import CodeTaskset
    __all__ = ["CodeTaskset"]

The reward ``passed`` is 1 for an answer whose program passes all tests, else 0; ``tests`` is a metric, the
share of tests passed. What the sandbox cannot judge is an error of the rollout, never a reward. The tests of
a task stay in this process: no trace has them. verifiers comes with none of this project's extras.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import cache

import verifiers.v1 as vf

from configs.schema import ExecutionConfig
from curriculum.judging import execution_request, has_passed, start_sandbox
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from rewards.extract import extract_code
from sandbox.pool import SandboxPool
from sandbox.result import ExecutionResult, Outcome


class CodeTaskConfig(vf.TaskConfig):
    """The limits of a run."""

    timeout: float = 2.0
    """CPU seconds."""
    max_memory: int = 512
    """MiB beyond the interpreter's own."""


class CodeTasksetConfig(vf.TasksetConfig):
    """Which tasks: a name that this project's ``dataset.name`` takes, or a file."""

    tasks: str = "ladder"
    split: str | None = None
    task: CodeTaskConfig = CodeTaskConfig()


class CodeTask(vf.Task[vf.TaskData, vf.State, CodeTaskConfig]):
    """One programming task; the program in the model's last answer is judged."""

    task: Task

    @classmethod
    def of(cls, task: Task, config: CodeTaskConfig) -> CodeTask:
        """``task`` with what verifiers wants to know of it."""
        made = cls(vf.TaskData(id=task.task_id, name=task.task_id, prompt=task.prompt), config)
        made.task = task
        return made

    @property
    def key(self) -> str:
        """The task's id, which is unique in its set."""
        return self.task.task_id

    @vf.reward
    async def passed(self, trace: vf.Trace) -> float:
        """1 for an answer that passes all tests."""
        # Not ``last_reply``, which strips the indentation of a body that continues the prompt.
        said = [message.content for message in trace.assistant_messages]
        reply = said[-1] if said and isinstance(said[-1], str) else ""
        run = await self._run(extract_code(reply, self.task.entry_point, self.task.prompt))
        trace.record_metric("tests", run.num_passed / max(1, run.num_tests))
        return float(has_passed(run))

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Whether the reference passes; None where there is none."""
        return has_passed(await self._run(self.task.reference)) if self.task.reference else None

    async def _run(self, program: str) -> ExecutionResult:
        execution = ExecutionConfig(timeout=self.config.timeout, max_memory=self.config.max_memory)
        run = await asyncio.to_thread(_sandbox().run, execution_request(self.task, program, execution))
        if run.outcome is Outcome.INFRA_ERROR:
            raise vf.TaskError(f"{self.task.task_id}: not judged: {run.detail}")
        return run


class CodeTaskset(vf.Taskset[CodeTask, CodeTasksetConfig]):
    """The tasks of a set, in its order."""

    def load(self) -> Iterator[CodeTask]:
        """See verifiers.v1.Taskset."""
        for task in load_named_tasks(self.config.tasks, self.config.split):
            yield CodeTask.of(task, self.config.task)


@cache
def _sandbox() -> SandboxPool:
    """One for this process, with a place for each core; it ends with the process."""
    return start_sandbox(ExecutionConfig(), len(os.sched_getaffinity(0)))


__all__ = ["CodeTaskset"]
