"""Levels: what each promises is tried from inside; a weak host is refused unless it is allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from sandbox.canary import Walls
from sandbox.main import _check_readable
from sandbox.pool import SandboxPool
from sandbox.result import CallTest, ExecutionRequest, ExecutionResult, Outcome
from sandbox.worker import SandboxError


def _run(pool: SandboxPool, solution: str) -> ExecutionResult:
    test = CallTest(args=(1,), expected=2)
    return pool.run(ExecutionRequest(solution=solution, entry_point="f", call_tests=(test,)))


def _tries(action: str) -> str:
    return f"""
import os
def f(x):
    try:
        {action}
    except OSError:
        return x + 1
"""


def test_this_machine_gives_the_best_level(pool: SandboxPool) -> None:
    # A host without namespaces gives L2 at most, and CI's should not change unnoticed.
    assert pool.level == ("L3" if _has_namespaces() else "L2"), pool.walls


def _has_namespaces() -> bool:
    """Whether ``unshare`` works for a process that is not the sandbox's."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true"]
    return subprocess.run(command, capture_output=True, timeout=30).returncode == 0


@pytest.mark.parametrize(
    ("without", "level"),
    [
        ({"namespaces"}, "L2"),
        ({"namespaces", "landlock"}, "L1"),
        ({"namespaces", "seccomp"}, "L0"),
        ({"namespaces", "landlock", "seccomp"}, "L0"),
        ({"namespaces", "landlock", "seccomp", "user"}, "L0"),
    ],
)
def test_a_missing_wall_lowers_the_level(without: set[str], level: str) -> None:
    with SandboxPool(without=frozenset(without), allow_unsafe=True) as pool:
        assert pool.level == level
        assert pool.walls.landlock == ("landlock" not in without)
        result = _run(pool, "def f(x): return x + 1")
    assert (result.outcome, result.level) == (Outcome.PASS, level)


def test_below_level_2_a_pool_refuses_to_start() -> None:
    with pytest.raises(SandboxError, match=r"(?s)level L1 on this host.*selftest"):
        SandboxPool(without=frozenset({"namespaces", "landlock"}))


def test_level_1_opens_no_file_but_has_the_usual_modules() -> None:
    with SandboxPool(without=frozenset({"namespaces", "landlock"}), allow_unsafe=True) as pool:
        assert _run(pool, _tries("open(os.__file__).close()")).outcome is Outcome.PASS
        usual = "import collections, dataclasses, itertools, math, re, typing, heapq, functools\n"
        assert _run(pool, usual + "def f(x): return x + 1").outcome is Outcome.PASS
        assert _run(pool, "import sqlite3\ndef f(x): return x + 1").outcome is Outcome.EXCEPTION


def test_level_3_has_no_host_files_and_no_other_processes(pool: SandboxPool) -> None:
    if pool.level != "L3":
        pytest.skip(f"level {pool.level} does not promise this")
    paths = ["/proc", "/proc/self", "/etc/passwd", "/home", "/tmp", "/dev/shm", "/sys", str(Path.cwd())]
    source = f"""
import os
def f(x):
    seen = [path for path in {paths!r} if os.path.exists(path)]
    assert not seen, seen
    assert os.getppid() == 1 and os.getpid() < 10_000_000 and os.getuid() != 0
    return x + 1
"""
    result = _run(pool, source)
    assert result.outcome is Outcome.PASS, result


def test_the_level_follows_from_the_walls() -> None:
    every = b"\1" * len(fields(Walls))
    assert Walls.from_bytes(every).level() == "L3"
    assert Walls.from_bytes(every).to_bytes() == every
    with pytest.raises(ValueError, match="3 bytes are not"):
        Walls.from_bytes(b"\1\1\1")


@pytest.mark.parametrize("without", [frozenset(), frozenset({"namespaces"})], ids=["L3", "L2"])
def test_installed_modules_can_be_used_when_asked_for_and_only_then(without: frozenset[str]) -> None:
    source = """
import numpy as np
import numpy.polynomial
def f(x):
    a = np.ones((x + 1, 3)) @ np.ones((3, 1))
    return int(a.sum() / 3)
"""
    with SandboxPool(modules=("numpy",), without=without) as pool:
        assert _run(pool, source).outcome is Outcome.PASS
        assert _run(pool, source.replace("int(", "(")).outcome is Outcome.WRONG  # numpy.float64
        assert _run(pool, "import yaml\ndef f(x): return x + 1").outcome is Outcome.EXCEPTION
    with SandboxPool(without=without) as pool:
        assert _run(pool, source).outcome is Outcome.EXCEPTION


def test_numpys_draws_are_the_same_each_time_and_not_those_of_the_check() -> None:
    source = "import numpy as np\ndef f(x): return float(np.random.rand())\n"
    check = "import numpy as np\ndef check(candidate): assert candidate(1) == float(np.random.rand())\n"
    call = ExecutionRequest(
        solution=source,
        entry_point="f",
        call_tests=(CallTest(args=(1,), expected=1),),
        keep_values=True,
    )
    judged = ExecutionRequest(solution=source, entry_point="f", check_source=check)
    values = set()
    for _ in range(2):
        with SandboxPool(modules=("numpy",)) as pool:
            values.add(pool.run(call).values)
            assert pool.run(judged).outcome is Outcome.WRONG
    assert len(values) == 1


def test_a_package_that_programs_could_import_in_part_only_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir(mode=0o755)
    _check_readable([str(package)])
    package.chmod(0)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
            _check_readable([str(package)])
        except PermissionError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as said:
        assert said.read().startswith(f"{package} (of execution.modules, --module) cannot be read")
    os.waitpid(pid, 0)


def test_a_module_that_is_not_installed_is_named() -> None:
    with pytest.raises(SandboxError, match="no_such_package"):
        SandboxPool(modules=("no_such_package",))


def test_a_python_with_a_narrow_umask_still_gets_its_level() -> None:
    code = (
        "import os; os.umask(0o077); from sandbox.pool import SandboxPool\n"
        "with SandboxPool() as pool: print(pool.level)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    with SandboxPool() as pool:
        assert done.stdout.strip() == pool.level, done.stderr
