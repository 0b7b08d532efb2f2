"""Before a model is loaded: will this host's sandbox take model-written code?

Starts a sandbox once (about a third of a second), looks at its level and ends it; the run starts its
own. What holds here may not hold on the other machines of a cluster: there the sandbox itself refuses.
Called by pipeline.orchestrator, pipeline.baseline and pipeline.evaluation_command.
"""

from __future__ import annotations

import importlib.util
import sys

from configs.errors import ConfigError, Problem
from configs.schema import ExecutionConfig
from rewards.execution import start_sandbox
from sandbox.advice import refusal
from sandbox.pool import SAFE_LEVELS
from sandbox.worker import SandboxError


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
