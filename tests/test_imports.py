"""The arrows between packages and inside pipeline/, and who may import heavy libraries."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Each may import itself and what stands before it.
ARROWS = ("configs", "sandbox", "curriculum", "rewards", "pipeline")
# Inside pipeline/: each may import itself and what stands on a line before its own. Files of the root and
# sub-packages alike; those on one line do not know each other.
LADDER = (
    ("errors", "messages"),
    ("host",),
    ("processes",),
    ("cluster",),
    ("models",),
    ("weights",),
    ("record",),
    ("training", "generation"),
    ("rollouts",),
    ("evaluation",),
    ("handover",),
    ("report",),
    ("planning",),
    ("doctor",),
    ("baseline",),
    ("run",),
    ("flags",),
    ("cli",),
    ("__main__",),
)
FLOOR = {name: floor for floor, names in enumerate(LADDER) for name in names}
MAX_ROOT_FILES = 8
MAX_SUB_PACKAGES = 18
USERS = ("benchmarks", "tests")  # may import anything; nothing imports them

ALLOWED_IN = {
    "vllm": {
        "pipeline/generation/vllm/updates.py",
        "pipeline/generation/vllm/samplers.py",
        "pipeline/generation/vllm/cpu_kernels.py",
        "pipeline/generation/vllm/engine.py",
        "pipeline/generation/vllm/held_weights.py",
        "pipeline/generation/vllm/worker.py",
        "pipeline/generation/vllm/proposer.py",
        "pipeline/generation/vllm/transfer.py",
    },
    "ray": {
        "benchmarks/async_overlap/sleeping_stages.py",
        "pipeline/cluster.py",
        "pipeline/generation/node_actor.py",
        "pipeline/training/rank.py",
        "pipeline/processes/ray_remote.py",
    },
    "trl": {"pipeline/baseline/training.py"},
}
# What cli.py may import before it knows that there is something to run.
LIGHT = {*sys.stdlib_module_names, "configs", "configs.command_line", "pipeline.flags", "configs.errors"}


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


def floors_above(path: str, module: str) -> str:
    """Why a file of pipeline/ may not import a module of it; empty where it may."""
    room, other = Path(path).parts[1].removesuffix(".py"), [*module.split("."), ""][1]
    if other not in FLOOR or room in (other, "x") or FLOOR[other] < FLOOR[room]:
        return ""
    return f"pipeline/{room} stands below pipeline/{other} or beside it"


def circle(arrows: Mapping[str, set[str]]) -> list[str]:
    """Files that import each other, directly or through others; empty where there are none."""
    try:
        tuple(TopologicalSorter(arrows).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


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
            elif package == top == "pipeline" and (above := floors_above(path, module)):
                found.append(f"{where}: {above}")
            elif package == "sandbox" and top not in {*own, *sys.stdlib_module_names}:
                found.append(f"{where}: sandbox runs on the standard library alone")
            elif path not in ALLOWED_IN.get(top, {path}):
                found.append(f"{where}: only {', '.join(sorted(ALLOWED_IN[top]))} may")
    return found


def heavy_imports(source: str) -> list[str]:
    """The modules outside LIGHT that importing this source imports."""
    # Of ``from a import b``, b may be no module.
    modules = [
        module
        for node in at_run_of_module(ast.parse(source))
        for module in imported_modules(node)[: None if isinstance(node, ast.Import) else 1]
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


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports in functions and for types count too: a circle of names is a circle for the reader."""
    files = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in project_files()
    }
    arrows = {
        name: {
            module
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            for module in imported_modules(node)
            if module in files and module != name and not name.startswith(f"{module}.")
        }
        for name, path in files.items()
    }
    assert sum(map(len, arrows.values())) > 500
    assert circle(arrows) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_the_root_of_the_pipeline_has_few_files_and_each_room_says_what_it_is() -> None:
    root = ROOT / "pipeline"
    files = {path.stem for path in root.glob("*.py")}
    assert len(files) <= MAX_ROOT_FILES
    rooms = sorted(path.parent for path in root.rglob("__init__.py") if path.parent != root)
    assert len(rooms) <= MAX_SUB_PACKAGES
    for room in rooms:
        tree = ast.parse((room / "__init__.py").read_text())
        assert (ast.get_docstring(tree) or "").endswith("."), room
        assert len(tree.body) == 1, f"{room} has code in its __init__.py"
    assert {*files, *(room.name for room in rooms if room.parent == root)} == {*FLOOR, "__init__"}


@pytest.mark.parametrize("package", [*ARROWS, "benchmarks"])
def test_no_docstring_says_who_calls(package: str) -> None:
    """Nobody keeps such a line true: who calls is found by a search."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                assert "called by" not in text.lower(), f"{path.relative_to(ROOT)}: {text}"


def test_files_that_may_import_a_heavy_library_do_so() -> None:
    """An entry that is no longer needed would let the library back in unseen."""
    for library, paths in ALLOWED_IN.items():
        for path in paths:
            nodes = ast.walk(ast.parse((ROOT / path).read_text()))
            tops = {module.split(".")[0] for node in nodes for module in imported_modules(node)}
            assert library in tops, f"{path} does not import {library}: take it off the list"


def test_the_command_line_imports_only_what_is_light() -> None:
    files = ("pipeline/__main__.py", "pipeline/cli.py", "pipeline/flags.py", "configs/command_line.py")
    for file in (*files, "curriculum/__main__.py"):
        assert heavy_imports((ROOT / file).read_text()) == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("configs/x.py", "import sandbox.result", "configs may import configs only"),
        ("sandbox/x.py", "from curriculum.task import Task", "sandbox may import configs, sandbox only"),
        ("rewards/x.py", "def f():\n    import pipeline.record.metrics", "rewards may import"),
        ("curriculum/x.py", "if TYPE_CHECKING:\n    from rewards.result import R", "curriculum may import"),
        ("curriculum/x.py", "from pipeline import cli", "curriculum may import"),
        ("pipeline/x.py", "import benchmarks.speed", "pipeline may import"),
        ("pipeline/x.py", "from tests.pipeline import tiny_model", "pipeline may import"),
        ("sandbox/x.py", "import numpy as np", "standard library alone"),
        ("pipeline/x.py", "async def f():\n    from vllm import LLM", "pipeline/generation/vllm/engine.py"),
        ("pipeline/run/orchestrator.py", "import ray", "only benchmarks/async_overlap/sleeping_stages.py"),
        ("pipeline/x.py", "from . import cli", "imports are absolute"),
        ("pipeline/host/x.py", "from pipeline.record.ledger import Ledger", "pipeline/host stands below"),
        ("pipeline/training/x.py", "def f():\n    from pipeline.generation import start", "or beside it"),
        ("pipeline/errors.py", "from pipeline import messages", "or beside it"),
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
        ("pipeline/generation/vllm/engine.py", "from vllm import LLM"),
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
        ("from pipeline.run.orchestrator import run_training", ["pipeline.run.orchestrator"]),
        ("try:\n    import ray\nexcept ImportError:\n    pass", ["ray"]),
        ("class A:\n    import torch", ["torch"]),
        ("import json, torch", ["torch"]),
        ("if TYPE_CHECKING:\n    import torch\nelse:\n    import ray", ["ray"]),
        ("def f():\n    import torch", []),
        ("import argparse\nfrom configs.load import resolve", []),
    ],
)
def test_a_heavy_import_of_the_command_line_is_found(source: str, heavy: list[str]) -> None:
    assert heavy_imports(source) == heavy
