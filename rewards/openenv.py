"""The tasks and the sandbox as an OpenEnv server (openenv-core 0.3): one task an episode, one answer a task.

    python -m rewards.openenv ladder --port 8000

``reset`` gives a prompt (of the task at ``index``, or one drawn by ``seed``), ``step`` takes the answer of a
model and gives the reward: 1 for a program that passes all tests, the share of tests passed where
``--partial`` is given. openenv-core comes with none of this project's extras: ``pip install openenv-core``.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

try:
    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State
except ModuleNotFoundError as missing:
    if __name__ != "__main__":
        raise
    print(f"error: {missing.name} is not installed: pip install openenv-core", file=sys.stderr)
    sys.exit(2)

from configs.command_line import make_parser, run_command
from configs.schema import ExecutionConfig
from curriculum.judging import Executor, execution_request, start_sandbox
from curriculum.sources import load_named_tasks
from curriculum.task import Task
from rewards.execution import score_tests
from rewards.extract import extract_code
from sandbox.result import Outcome
from sandbox.worker import SandboxError


class Answer(Action):
    """What a model wrote: the program, alone or in a block of a chat's answer."""

    answer: str


class Told(Observation):
    """The ``prompt`` of a task; after an answer its ``outcome`` (see sandbox.result) and ``detail``."""

    task_id: str = ""
    prompt: str = ""
    outcome: str = ""
    detail: str = ""


class CodeEnvironment(Environment[Answer, Told, State]):
    """One session: a task after another, each with one answer. Sessions share ``sandbox``."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self, tasks: Sequence[Task], sandbox: Executor, execution: ExecutionConfig, *, partial: bool
    ):
        super().__init__()
        self._tasks, self._sandbox, self._execution = tasks, sandbox, execution
        self._mode: Any = "fraction" if partial else "all"
        self._task: Task | None = None
        self._state = State(episode_id=None, step_count=0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Told:
        """Begin with the task at ``index``, or one drawn by ``seed``. Raises ValueError for no such index."""
        index = kwargs.get("index")
        if index is None:
            index = random.Random(seed).randrange(len(self._tasks))
        if not isinstance(index, int) or not 0 <= index < len(self._tasks):
            raise ValueError(f"index: value {index!r}: there are the tasks 0 to {len(self._tasks) - 1}")
        self._task = self._tasks[index]
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return Told(task_id=self._task.task_id, prompt=self._task.prompt)

    def step(self, action: Answer, timeout_s: float | None = None, **kwargs: Any) -> Told:
        """Judge the answer. Raises ValueError before ``reset``, RuntimeError where nobody can judge it."""
        if self._task is None:
            raise ValueError("step: there is no task yet; reset first")
        task = self._task
        program = extract_code(action.answer, task.entry_point, task.prompt)
        run = self._sandbox.run(execution_request(task, program, self._execution))
        if run.outcome is Outcome.INFRA_ERROR:
            raise RuntimeError(f"not judged: {run.detail}")
        self._task = None
        self._state.step_count += 1
        reward = score_tests(run, self._mode)
        return Told(
            task_id=task.task_id, outcome=run.outcome.value, detail=run.detail, reward=reward, done=True
        )

    @property
    def state(self) -> State:
        """The episode, and whether it has been answered (``step_count`` 1)."""
        return self._state

    def list_splits(self) -> list[str]:
        """One: what the server was started with."""
        return ["tasks"]

    def num_tasks(self, split: str) -> int:
        """How many there are."""
        return len(self._tasks)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """The id of the task at ``index``; its tests stay here."""
        return {"id": self._tasks[index].task_id, "index": index}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted; returns the exit status."""
    parser = make_parser("python -m rewards.openenv", "Serve tasks to models, in OpenEnv's way.")
    parser.add_argument("tasks", metavar="TASKS", help="a name that dataset.name takes, or a file")
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8000, help="default: %(default)s")
    parser.add_argument("--partial", action="store_true", help="pay for the share of tests passed")
    parser.add_argument(
        "--allow-unsafe",
        action="store_true",
        help="run model code even where the sandbox is weaker than level L2",
    )
    return run_command(parser, argv, _serve)


def _serve(arguments: argparse.Namespace) -> int:
    tasks, execution = load_named_tasks(arguments.tasks), ExecutionConfig(allow_unsafe=arguments.allow_unsafe)
    listener = _listener(arguments.host, arguments.port)
    try:
        sandbox = start_sandbox(execution, len(os.sched_getaffinity(0)))
    except SandboxError as error:
        raise ValueError(str(error)) from None
    with listener, sandbox:

        def session() -> CodeEnvironment:
            return CodeEnvironment(tasks, sandbox, execution, partial=arguments.partial)

        application = create_fastapi_app(session, Answer, Told, max_concurrent_envs=256)
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
        server.run(sockets=[listener])
    return 0


def _listener(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises ValueError where none can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ValueError(f"--host, --port: {host}:{port} cannot be used ({error}); give another") from error


if __name__ == "__main__":
    sys.exit(main())
