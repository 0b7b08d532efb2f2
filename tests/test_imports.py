"""The arrows between packages, and who may import the heavy libraries, read from the source text."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Each may import itself and what stands before it.
ARROWS = ("configs", "sandbox", "curriculum", "rewards", "pipeline")
USERS = ("benchmarks", "tests")  # may import anything; nothing imports them

ALLOWED_IN = {
    "vllm": {
        "pipeline/vllm_adapter.py",
        "pipeline/vllm_cpu_sampler.py",
        "pipeline/vllm_draft_sampler.py",
        "pipeline/vllm_cpu_kernels.py",
        "pipeline/vllm_engine.py",
        "pipeline/vllm_pressure.py",
        "pipeline/vllm_sampler_check.py",
        "pipeline/vllm_speculation.py",
        "pipeline/vllm_updates.py",
        "pipeline/vllm_weights.py",
    },
    "ray": {
        "benchmarks/async_overlap/sleeping_stages.py",
        "pipeline/baseline.py",
        "pipeline/cluster.py",
        "pipeline/engine_actor.py",
        "pipeline/node_actor.py",
        "pipeline/ray_start.py",
        "pipeline/trainer_actor.py",
        "pipeline/trainer_group.py",
        "pipeline/weight_courier.py",
        "rewards/ray_worker.py",
    },
    "trl": {"pipeline/baseline.py", "pipeline/trl_setup.py"},
}
# What cli.py may import before it knows that there is something to run.
LIGHT = {*sys.stdlib_module_names, "configs", "pipeline.cli_flags", "pipeline.errors"}


def imported_modules(node: ast.AST) -> list[str]:
    """The modules one import statement names; ``from . import x`` names ".", which no rule allows."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.level:
            return ["."]
        # ``from pipeline import orchestrator`` may name a module, so both are given.
        assert node.module is not None
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def at_run_of_module(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: not function bodies, not ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from at_run_of_module(other)
            continue
        yield child
        yield from at_run_of_module(child)


def offences(path: str, source: str) -> list[str]:
    """The rules that a file of the project breaks, one line each; ``path`` is relative to the root."""
    package = path.split("/")[0]
    if package in USERS:
        return []
    own = ARROWS[: ARROWS.index(package) + 1]
    found = []
    for node in ast.walk(ast.parse(source)):
        for module in imported_modules(node):
            top = module.split(".")[0]
            where = f"{path}:{getattr(node, 'lineno', 0)} imports {module}"
            if not top:
                found.append(f"{where}: imports are absolute")
            elif top in (*ARROWS, *USERS) and top not in own:
                found.append(f"{where}: {package} may import {', '.join(own)} only")
            elif package == "sandbox" and top not in {*own, *sys.stdlib_module_names}:
                found.append(f"{where}: sandbox runs on the standard library alone")
            elif path not in ALLOWED_IN.get(top, {path}):
                found.append(f"{where}: only {', '.join(sorted(ALLOWED_IN[top]))} may")
    return found


def heavy_imports(source: str) -> list[str]:
    """The modules outside LIGHT that importing this source imports."""
    modules = [
        module for node in at_run_of_module(ast.parse(source)) for module in imported_modules(node)[:1]
    ]
    return [module for module in modules if not {module, module.split(".")[0]} & LIGHT]


def project_files() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for package in ARROWS for path in (ROOT / package).rglob("*.py")
    )


def test_imports_follow_the_arrows() -> None:
    files = project_files()
    assert len(files) > 50
    assert [line for path in files for line in offences(path, (ROOT / path).read_text())] == []


def test_files_that_may_import_a_heavy_library_do_so() -> None:
    """An entry that is no longer needed would let the library back in unseen."""
    for library, paths in ALLOWED_IN.items():
        for path in paths:
            nodes = ast.walk(ast.parse((ROOT / path).read_text()))
            tops = {module.split(".")[0] for node in nodes for module in imported_modules(node)}
            assert library in tops, f"{path} does not import {library}: take it off the list"


def test_the_command_line_imports_only_what_is_light() -> None:
    for file in ("cli.py", "cli_flags.py"):
        assert heavy_imports((ROOT / "pipeline" / file).read_text()) == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("configs/x.py", "import sandbox.result", "configs may import configs only"),
        ("sandbox/x.py", "from curriculum.task import Task", "sandbox may import configs, sandbox only"),
        ("rewards/x.py", "def f():\n    import pipeline.metrics", "rewards may import"),
        ("curriculum/x.py", "if TYPE_CHECKING:\n    from rewards.result import R", "curriculum may import"),
        ("curriculum/x.py", "from pipeline import cli", "curriculum may import"),
        ("pipeline/x.py", "import benchmarks.speed", "pipeline may import"),
        ("pipeline/x.py", "from tests.pipeline import tiny_model", "pipeline may import"),
        ("sandbox/x.py", "import numpy as np", "standard library alone"),
        ("pipeline/x.py", "async def f():\n    from vllm import LLM", "pipeline/vllm_engine.py"),
        ("pipeline/orchestrator.py", "import ray", "only benchmarks/async_overlap/sleeping_stages.py"),
        ("pipeline/x.py", "from . import cli", "imports are absolute"),
    ],
)
def test_an_import_against_the_rules_is_found(path: str, source: str, complaint: str) -> None:
    found = offences(path, source)
    assert found
    assert all(complaint in line for line in found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("pipeline/x.py", "import json\nimport torch\nfrom rewards.result import RewardResult"),
        ("pipeline/vllm_engine.py", "from vllm import LLM"),
        ("tests/x.py", "import pipeline.cli, vllm, ray"),
        ("benchmarks/x.py", "import ray"),
    ],
)
def test_an_import_by_the_rules_is_no_offence(path: str, source: str) -> None:
    assert offences(path, source) == []


@pytest.mark.parametrize(
    ("source", "heavy"),
    [
        ("import torch", ["torch"]),
        ("from pipeline.orchestrator import run_training", ["pipeline.orchestrator"]),
        ("try:\n    import ray\nexcept ImportError:\n    pass", ["ray"]),
        ("class A:\n    import torch", ["torch"]),
        ("if TYPE_CHECKING:\n    import torch\nelse:\n    import ray", ["ray"]),
        ("def f():\n    import torch", []),
        ("import argparse\nfrom configs.load import resolve", []),
    ],
)
def test_a_heavy_import_of_the_command_line_is_found(source: str, heavy: list[str]) -> None:
    assert heavy_imports(source) == heavy
