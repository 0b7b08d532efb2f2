"""The red-team suite: no attack passes, does harm or earns a retry; every honest oddity passes.

The programs are in ``attacks/``. They run at the level that the host gives, without namespaces, and
as an unprivileged user.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.pool import SandboxPool
from sandbox.result import Outcome
from tests.sandbox.attacks.case import Case
from tests.sandbox.attacks.suite import ATTACKS, ODDITIES, run_case
from tests.sandbox.attacks.targets import Targets

pytestmark = pytest.mark.slow

_NOBODY = 65534
_ROOT = Path(__file__).parents[2]
_ALL_WALLS = frozenset({"namespaces", "landlock", "seccomp", "user"})


def _runs(cases: tuple[Case, ...]) -> list[tuple[Case, str]]:
    return [(case, mode) for case in cases for mode in case.modes]


def _names(cases: tuple[Case, ...]) -> list[str]:
    return [f"{case.name}-{mode}" for case, mode in _runs(cases)]


@pytest.fixture(scope="module", params=["L3", "L2"])
def level_pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    without = frozenset({"namespaces"}) if request.param == "L2" else frozenset[str]()
    with SandboxPool(without=without) as pool:
        if pool.level != request.param:
            pytest.skip(f"this host gives level {pool.level}, not {request.param}")
        yield pool


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    with Targets() as made:
        yield made


@pytest.mark.parametrize(("case", "mode"), _runs(ATTACKS), ids=_names(ATTACKS))
def test_no_attack_passes_does_harm_or_spoils_the_next_run(
    level_pool: SandboxPool, targets: Targets, case: Case, mode: str
) -> None:
    assert run_case(level_pool, targets, case, mode) == ""


@pytest.mark.parametrize(("case", "mode"), _runs(ODDITIES), ids=_names(ODDITIES))
def test_honest_oddities_pass(level_pool: SandboxPool, targets: Targets, case: Case, mode: str) -> None:
    assert run_case(level_pool, targets, case, mode) == ""


def test_the_suite_is_large_and_every_name_is_its_own() -> None:
    names = [case.name for case in (*ATTACKS, *ODDITIES)]
    assert len(set(names)) == len(names)
    assert len(ATTACKS) >= 130
    assert len(ODDITIES) >= 35
    assert all(Outcome.INFRA_ERROR not in case.expected for case in ATTACKS)


def test_an_unprivileged_user_gets_the_same_verdicts() -> None:
    if os.geteuid() != 0:
        pytest.skip("not root: the tests above run as an unprivileged user already")
    python = _interpreter_of_nobody()
    if python is None:
        pytest.skip("no Python of this version is readable for an unprivileged user")
    if _as_nobody([python, "-c", "import tests.sandbox.attacks.suite"]).returncode != 0:
        pytest.skip("the project's folder is not readable for an unprivileged user")
    done = _as_nobody([python, "-m", "tests.sandbox.attacks"])
    assert done.stdout, done.stderr[-1000:]
    report = json.loads(done.stdout)
    assert report["failures"] == {}
    assert report["num_cases"] == len(_runs(ATTACKS)) + len(_runs(ODDITIES))
    has_namespaces = _as_nobody(["unshare", "--user", "--net", "true"]).returncode == 0
    assert report["level"] == ("L3" if has_namespaces else "L2")


def test_the_walls_are_what_stops_harmless_deeds(targets: Targets) -> None:
    with SandboxPool(without=_ALL_WALLS, allow_unsafe=True) as pool:
        assert pool.level == "L0"
        outcomes = {case.name: _outcome(pool, targets, case) for case in ATTACKS if case.harmless}
    targets.touched()
    done = [name for name, outcome in outcomes.items() if outcome is Outcome.WRONG]
    # Some need privileges, or what this host may not have; without most of them the suite is blind.
    assert len(done) > len(outcomes) // 2, outcomes


def test_without_any_wall_no_cheat_passes_and_no_file_stays() -> None:
    with SandboxPool(without=_ALL_WALLS, allow_unsafe=True) as pool:
        for name in ("os._exit in the call", "always equal", "frame walk", "one surplus result"):
            case = next(case for case in ATTACKS if case.name == name)
            for mode in case.modes:
                result = pool.run(case.request(mode))
                assert result.outcome not in (Outcome.PASS, Outcome.INFRA_ERROR), result
                assert result.level == "L0"
        source = "assert not os.listdir('.')\nopen('poison', 'w').close()\ndef f(x): return x + 1"
        poison = Case(name="poison", source=source)
        for _ in range(2):
            assert pool.run(poison.request("call")).outcome is Outcome.PASS


def _outcome(pool: SandboxPool, targets: Targets, case: Case) -> Outcome:
    filled = Case(name=case.name, source=targets.fill(case.source), limits=case.limits)
    return pool.run(filled.request("call")).outcome


def _interpreter_of_nobody() -> str | None:
    """This interpreter, or where it lies in somebody's home another of the same version."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(name, path=os.defpath)):
        if python is not None:
            try:
                if _as_nobody([python, "-c", "import sqlite3, ctypes, lzma"]).returncode == 0:
                    return python
            except PermissionError:
                continue
    return None


def _as_nobody(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=[],
        cwd=_ROOT,
        env={"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
