"""One program of the red-team suite, as plain data, and how it becomes a request.

The task of every program is ``f(x) == x + 1`` (in stdio mode: read x, print x + 1) unless a case
brings tests of its own. Runs nothing. Called by the files of cases beside this one and by ``suite.py``.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Final

from sandbox.result import CallTest, ExecutionRequest, Limits, Outcome, StdioTest

CALL_AND_JUDGE: Final = ("call", "judge")
CALL: Final = ("call",)
JUDGE: Final = ("judge",)
STDIO: Final = ("stdio",)

# An attacker earns neither a pass nor a retry.
FAILS: Final = frozenset(Outcome) - {Outcome.PASS, Outcome.INFRA_ERROR}
PASSES: Final = frozenset({Outcome.PASS})

# Limits that no case runs into unless it means to.
ROOMY: Final = Limits(cpu_s=5.0, wall_s=20.0, memory_bytes=256 * 1024**2)
BRIEF_CPU: Final = Limits(cpu_s=0.25, wall_s=20.0, memory_bytes=256 * 1024**2)
BRIEF_WALL: Final = Limits(cpu_s=5.0, wall_s=0.25, memory_bytes=256 * 1024**2)
LITTLE_MEMORY: Final = Limits(cpu_s=5.0, wall_s=20.0, memory_bytes=96 * 1024**2)

_INPUTS: Final = (1, 5, -3)
TESTS: Final = tuple(CallTest(args=(x,), expected=x + 1) for x in _INPUTS)
STDIO_TESTS: Final = tuple(StdioTest(stdin=f"{x}\n", expected_stdout=f"{x + 1}\n") for x in _INPUTS[:2])
CHECK: Final = "def check(candidate):\n" + "".join(f"    assert candidate({x}) == {x + 1}\n" for x in _INPUTS)

_HEAD: Final = "import os, sys, socket, struct, threading, time\n"
_HONEST: Final = "def f(x): return x + 1"
_HONEST_PROGRAM: Final = "print(int(input()) + 1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program and the outcomes that are right for it.

    ``then`` is the program that runs next on the same zygote and must pass; the placeholders of
    ``targets.py`` are filled in both. ``harmless``: the deed may be done for real, to show that it
    is the walls that stop it.
    """

    name: str
    source: str
    modes: tuple[str, ...] = CALL_AND_JUDGE
    expected: frozenset[Outcome] = FAILS
    limits: Limits = ROOMY
    tests: tuple[CallTest, ...] = TESTS
    check: str = CHECK
    stdio_tests: tuple[StdioTest, ...] = STDIO_TESTS
    then: str = ""
    harmless: bool = False

    def request(self, mode: str) -> ExecutionRequest:
        """The request of this case in the mode "call", "judge" or "stdio"."""
        source = self.source if self.source.startswith("from __future__") else _HEAD + self.source
        return ExecutionRequest(
            solution=source,
            entry_point="" if mode == "stdio" else "f",
            call_tests=self.tests if mode == "call" else (),
            check_source=self.check if mode == "judge" else None,
            stdio_tests=self.stdio_tests if mode == "stdio" else (),
            limits=self.limits,
        )

    def next_request(self, mode: str) -> ExecutionRequest:
        """The request that comes next on the same zygote."""
        honest = _HONEST_PROGRAM if mode == "stdio" else _HONEST
        return Case(name="next", source=self.then or honest, expected=PASSES).request(mode)


def harm(
    name: str, body: str, *, setup: str = "", harmless: bool = False, modes: tuple[str, ...] = CALL
) -> Case:
    """A program that does its task rightly unless it manages a forbidden deed; so it must pass.

    ``body`` is the deed: it ends normally when it succeeded and raises OSError when it was stopped.
    Any other exception fails the case, which would not have tested what it says.
    """
    source = (
        f"{setup}\ndef attempt():\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
        "done = None\ndef f(x):\n    global done\n    if done is None:\n"
        "        try:\n            attempt()\n            done = 1\n        except OSError:\n"
        "            done = 0\n    return x + 1 + done\n"
    )
    return Case(name=name, source=source, expected=PASSES, modes=modes, harmless=harmless)
