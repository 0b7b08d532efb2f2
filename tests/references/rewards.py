"""A second opinion on every reward: slow, plain, and written from the definitions alone.

Starts a fresh ``ruff`` process for each program, a fresh ``mypy`` process where type_safety has weight,
and runs the tests anew; caches nothing. Many programs may be shown to one process of each beforehand.
Shares with ``rewards`` only the extraction of the program and the weights. Does no performance and no
custom reward.
"""

from __future__ import annotations

import ast
import json
import math
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruff import find_ruff_bin  # type: ignore[import-untyped]

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.task import Task
from rewards.extract import extract_code
from sandbox.job import parse
from sandbox.pool import SandboxPool
from sandbox.result import ExecutionRequest, ExecutionResult, Limits, Outcome
from tests.references.complexity import makes_code, reference_complexity
from tests.references.type_safety import reference_type_safety, type_safety_of_all

_MAX_SOURCE_BYTES = 64 * 1024
_PROCESS_TIMEOUT_S = 60.0
_RUFF = [
    *("check", "--isolated", "--no-cache", "--ignore-noqa", "--quiet"),
    *("--select", "E,F,W,B,C4,PLE,S102,S307", "--line-length", "110", "--target-version", "py311"),
    *("--output-format", "json"),
]
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceScore:
    """What a completion is worth.

    ``reward`` is NaN, and the breakdown empty, where nobody can judge: the task's own check is broken.
    """

    reward: float
    breakdown: dict[str, float]
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Beforehand:
    """What one ruff and one mypy said of many programs, by prelude and program; others have their own."""

    lint: Mapping[tuple[str, str], float] = field(default_factory=dict)
    type_safety: Mapping[tuple[str, str], float] = field(default_factory=dict)


NOTHING = Beforehand()


def judge_beforehand(answers: Iterable[tuple[Task, str]], rewards: RewardsConfig) -> Beforehand:
    """Show the programs in ``answers`` that can earn anything to one process of each tool."""
    found = {
        (task.prelude, extract_code(text, task.entry_point, task.prompt), task.entry_point)
        for task, text in answers
    }
    compiled = [one for one in found if _compiles(one[1])]
    programs = sorted({one[:2] for one in compiled if one[2] in _names_bound(parse(one[1]).body)})
    types = type_safety_of_all(programs) if rewards.weights.type_safety > 0 else {}
    lint: dict[tuple[str, str], float] = {}
    for prelude in {prelude for prelude, _ in programs}:
        lint |= _lint_of_all(prelude, [code for before, code in programs if before == prelude])
    return Beforehand(lint=lint, type_safety=types)


def reference_score(
    task: Task,
    text: str,
    rewards: RewardsConfig,
    execution: ExecutionConfig,
    sandbox: SandboxPool,
    beforehand: Beforehand = NOTHING,
) -> ReferenceScore:
    """Score ``text`` (prefill and completion) as an answer to ``task``."""
    weights: dict[str, float] = rewards.weights.model_dump()
    code = extract_code(text, task.entry_point, task.prompt)
    if not _compiles(code):
        names = ["tests", "execution", "syntax", "lint", "complexity"]
        names += ["type_safety"] if weights["type_safety"] > 0 else []
        breakdown = dict.fromkeys(names, 0.0)
        reward = rewards.syntax_failure_reward
        return ReferenceScore(reward=reward, breakdown=breakdown, outcome=Outcome.EXCEPTION)
    tree = parse(code)
    is_answer = task.entry_point in _names_bound(tree.body)
    try:
        run = sandbox.run(_request(task, code, execution))
    except ValueError:
        return ReferenceScore(reward=math.nan, breakdown={}, outcome=Outcome.INFRA_ERROR)
    breakdown = {
        "syntax": 1.0,
        "lint": _lint(task.prelude, code, beforehand.lint) if is_answer and not makes_code(tree) else 0.0,
        "complexity": reference_complexity(code, tree) if is_answer else 0.0,
        "tests": _tests(run, rewards.tests),
        "execution": _execution(run),
    }
    if weights["type_safety"] > 0:
        known = beforehand.type_safety.get((task.prelude, code))
        score = reference_type_safety(code, task.prelude) if known is None and is_answer else known
        breakdown["type_safety"] = score if score is not None and is_answer else 0.0
    reward = 0.0
    for name, score in breakdown.items():
        reward += weights[name] * score
    return ReferenceScore(reward=reward, breakdown=breakdown, outcome=run.outcome)


def _compiles(code: str) -> bool:
    if not code.strip() or len(code.encode("utf-8", "surrogatepass")) > _MAX_SOURCE_BYTES:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "<reference>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return False
    return True


def _names_bound(body: list[ast.stmt]) -> set[str]:
    """The names that running a module binds at its top level, whichever branch it takes."""
    names: set[str] = set()
    nodes: list[ast.AST] = [*body]
    while nodes:
        node = nodes.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.ExceptHandler(name=str(name)):
                names.add(name)
        inner = isinstance(node, (*_SCOPES, ast.Lambda, *_COMPREHENSIONS))
        nodes += [] if inner else list(ast.iter_child_nodes(node))
    return names


def _lint(prelude: str, code: str, beforehand: Mapping[tuple[str, str], float]) -> float:
    """What was said of ``code`` beforehand, or what a process of its own says."""
    if (prelude, code) in beforehand:
        return beforehand[prelude, code]
    source = _encoded(code)
    return _lint_score(_ruff(*_defining(prelude), "--stdin-filename", "solution.py", "-", source=source))


def _defining(prelude: str) -> list[str]:
    """Tells ruff that names of ``prelude`` are there, or that any may be."""
    names = _names_bound(parse(prelude).body)
    if "*" in names:
        return ["--ignore", "F821"]
    return ["--config", f"builtins = {json.dumps(sorted(names))}"] if names else []


def _lint_of_all(prelude: str, codes: Iterable[str]) -> dict[tuple[str, str], float]:
    """What one process says of each of ``codes``, before which ``prelude`` runs."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {code: Path(folder).resolve() / str(n) / "solution.py" for n, code in enumerate(codes)}
        if not paths:
            return {}
        for code, path in paths.items():
            path.parent.mkdir()
            path.write_bytes(_encoded(code))
        findings: dict[Path, list[dict[str, Any]]] = {path: [] for path in paths.values()}
        for one in _ruff(*_defining(prelude), "--no-respect-gitignore", folder):
            findings[Path(one["filename"])].append(one)
    return {(prelude, code): _lint_score(findings[path]) for code, path in paths.items()}


def _encoded(code: str) -> bytes:
    return code.encode("utf-8", "replace")


def _ruff(*arguments: str, source: bytes = b"") -> list[dict[str, Any]]:
    done = subprocess.run(
        [find_ruff_bin(), *_RUFF, *arguments],
        input=source,
        capture_output=True,
        timeout=_PROCESS_TIMEOUT_S,
        check=False,
    )
    findings: list[dict[str, Any]] = json.loads(done.stdout)
    return findings


def _lint_score(findings: list[dict[str, Any]]) -> float:
    """1 - issues / 20, at least 0; 0 where ruff cannot read what Python compiles."""
    if any(one["code"] == "invalid-syntax" and not one["message"].startswith("Cannot ") for one in findings):
        return 0.0
    return max(0.0, 1.0 - len(findings) / 20)


def _request(task: Task, code: str, execution: ExecutionConfig) -> ExecutionRequest:
    wall_s = max(10.0, 5 * execution.timeout)
    return ExecutionRequest(
        solution=code,
        entry_point=task.entry_point,
        call_tests=task.call_tests,
        check_source=task.check_source,
        prelude=task.prelude,
        limits=Limits(
            cpu_s=execution.timeout,
            wall_s=wall_s,
            wall_cap_s=max(60.0, 2 * wall_s),
            memory_bytes=execution.max_memory * 1024 * 1024,
        ),
    )


def _tests(run: ExecutionResult, mode: str) -> float:
    """The share of tests passed, or all or nothing; an attack earns nothing, only a pass earns 1."""
    if run.outcome is Outcome.PASS and run.num_tests > 0 and run.num_passed == run.num_tests:
        return 1.0
    if mode == "all" or run.outcome is Outcome.VIOLATION or run.num_passed >= run.num_tests:
        return 0.0
    return run.num_passed / run.num_tests


def _execution(run: ExecutionResult) -> float:
    """1 for a clean run, 0.5 for one that wrote to stderr, 0 for one that crashed."""
    if run.outcome not in (Outcome.PASS, Outcome.WRONG):
        return 0.0
    return 1.0 if run.clean else 0.5
