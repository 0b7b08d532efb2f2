"""One task under examination: its reference, its mutants, programs without an idea, its words.

Everything that runs, runs in the sandbox. A task whose reference does not pass its own tests, each time, is
at fault, and nothing else of it is measured.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from configs.schema import ExecutionConfig
from curriculum.audit.cheats import constant_programs, empty_program, is_constant, look_up_program
from curriculum.audit.mutants import Mutant, mutants_of
from curriculum.audit.overlap import Overlap
from curriculum.judging import Executor, execution_request, has_passed
from curriculum.task import Task
from sandbox.result import ExecutionResult, Outcome

MAX_MUTANTS: Final = 30  # a task
NO_REFERENCE: Final = "no reference"
NO_TASK: Final = "no task"
NOT_JUDGED: Final = "not judged"
NUM_RUNS: Final = 5  # of the reference, to see whether it always passes
_MAX_SURVIVORS: Final = 5
_SLOWER: Final = 10.0  # how much longer than the reference a mutant may take
_LEAST_CPU_S: Final = 0.3
_NEVER_ENDS: Final = (Outcome.TIMEOUT_CPU, Outcome.TIMEOUT_WALL)
_TYPE_WORDS = re.compile(
    r"\b(int(?:eger)?s?|floats?|numbers?|str(?:ings?)?|texts?|words?|lists?|tuples?|sets?|dict(?:ionar(?:y|ies))?s?|"
    r"bool(?:ean)?s?|arrays?|True|False|None|sequence|iterable|pairs?|bytes)\b"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAudit:
    """What is known of a task.

    ``fault`` says in words why nothing was measured, after a kind and a colon; empty for a sound task.
    ``num_killed`` of ``num_mutants`` failed the tests; ``survivors`` are some of the others, each as
    "line: operator: text". ``passed_by`` names the programs without an idea that passed, ``constant_share``
    is the largest share of the tests that a constant passes. ``nearest`` is a task of a benchmark,
    ``similarity`` to it is from 0 to 1. ``pass_rate`` is a model's, where one was asked. The last two are of
    ``--add-tests``.
    """

    task_id: str
    fault: str = ""
    num_tests: int = 0
    test_s: float = 0.0
    num_mutants: int = 0
    num_killed: int = 0
    survivors: tuple[str, ...] = ()
    passed_by: tuple[str, ...] = ()
    constant_share: float = 0.0
    nearest: str = ""
    similarity: float = 0.0
    names_entry_point: bool = True
    names_types: bool = True
    pass_rate: float | None = None
    num_tests_added: int = 0
    num_killed_by_added: int = 0

    @property
    def killed_share(self) -> float:
        """The share of mutants that the tests fail; 1 where there are none."""
        return self.num_killed / self.num_mutants if self.num_mutants else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Examiner:
    """Examines tasks on ``sandbox``, each with at most ``max_mutants`` mutants; for many threads at once."""

    sandbox: Executor
    execution: ExecutionConfig
    max_mutants: int
    overlap: Overlap | None = None

    def examine(self, task: Task) -> TaskAudit:
        """All but ``pass_rate`` and what is said of added tests."""
        num_tests = len(task.call_tests) + len(task.stdio_tests)
        # Of a test program a run tells how many there are.
        found = replace(_of_words(task), num_tests=num_tests)
        if self.overlap is not None:
            nearest, similarity = self.overlap.nearest(task)
            found = replace(found, nearest=nearest, similarity=similarity)
        try:
            runs = self._reference_runs(task)
        except _Fault as fault:
            return replace(found, fault=str(fault))
        living, num_mutants = self.living_mutants(task, max(run.cpu_s for run in runs))
        if num_mutants == 0 and mutants_of(task.reference, self.max_mutants):
            return replace(found, fault=f"{NOT_JUDGED}: the sandbox could run none of its mutants")
        passed_by, constant_share = self._cheats(task, self._bound(task, 0.0))
        return replace(
            found,
            num_tests=runs[0].num_tests,
            test_s=statistics.median(run.wall_s for run in runs),
            num_mutants=num_mutants,
            num_killed=num_mutants - len(living),
            survivors=tuple(f"{one.line}: {one.operator}: {one.text}" for one in living[:_MAX_SURVIVORS]),
            passed_by=passed_by,
            constant_share=constant_share,
        )

    def living_mutants(
        self, task: Task, reference_cpu_s: float, mutants: Sequence[Mutant] | None = None
    ) -> tuple[list[Mutant], int]:
        """Those of ``mutants``, or of all, that pass the tests, and of how many.

        One that the sandbox could not judge is none.
        """
        cpu_s = self._bound(task, reference_cpu_s)
        living: list[Mutant] = []
        num_judged = 0
        for mutant in mutants_of(task.reference, self.max_mutants) if mutants is None else mutants:
            try:
                run = self.run(task, mutant.source, cpu_s)
            except ValueError:
                # The check program failed before it asked for anything.
                continue
            num_judged += run.outcome is not Outcome.INFRA_ERROR
            if has_passed(run):
                living.append(mutant)
        return living, num_judged

    def _bound(self, task: Task, reference_cpu_s: float) -> float:
        """Seconds of CPU that are enough for a program like the reference, which took so many.

        They are those of a check program too, whose own work may be more: where the reference does not pass
        in half of them, all have what the settings allow.
        """
        bound = min(self.execution.timeout, max(_LEAST_CPU_S, _SLOWER * reference_cpu_s))
        if not task.check_source:
            return bound
        try:
            is_enough = has_passed(self.run(task, task.reference, bound / 2))
        except ValueError:
            is_enough = False
        return bound if is_enough else self.execution.timeout

    def run(self, task: Task, program: str, cpu_s: float | None = None) -> ExecutionResult:
        """The verdict on ``program``, within ``cpu_s`` where given. Raises ValueError for a broken task."""
        request = execution_request(task, program, self.execution)
        if cpu_s is not None:
            request = replace(request, limits=replace(request.limits, cpu_s=cpu_s))
        return self.sandbox.run(request)

    def _reference_runs(self, task: Task) -> list[ExecutionResult]:
        if not task.reference:
            raise _Fault(f"{NO_REFERENCE}: nothing to measure the tests with")
        runs = []
        for index in range(NUM_RUNS):
            # What programs draw is the same in each run, unless they say otherwise.
            seed = f"\n__import__('random').seed({index})\n" if index and task.entry_point else ""
            try:
                run = self.run(task, task.reference + seed)
            except ValueError as failure:
                raise _Fault(f"broken tests: {failure}") from None
            runs.append(run)
            if run.outcome in _NEVER_ENDS:
                raise _Fault(f"never ends: {run.outcome.value} after {run.cpu_s:.1f} s of CPU time")
            if run.outcome is Outcome.INFRA_ERROR:
                raise _Fault(f"{NOT_JUDGED}: {run.detail}")
            if not has_passed(run) and len(runs) == 1:
                raise _Fault(f"wrong reference: {run.outcome.value} {run.detail}".rstrip())
            if not has_passed(run):
                raise _Fault(
                    f"flaky: passed {len(runs) - 1} times, then {run.outcome.value} {run.detail}".rstrip()
                )
        return runs

    def _cheats(self, task: Task, cpu_s: float) -> tuple[tuple[str, ...], float]:
        """The programs without an idea that pass, and the most that a constant gets."""
        passed: dict[str, None] = {}
        constant_share = 0.0
        for name, program in _programs(task):
            try:
                run = self.run(task, program, cpu_s)
            except ValueError:
                continue
            if has_passed(run):
                passed[name] = None
            if name == "constant":
                constant_share = max(constant_share, run.num_passed / max(1, run.num_tests))
        return tuple(passed), constant_share


class _Fault(Exception):
    """Why a task cannot be examined, in words."""


def _programs(task: Task) -> Iterator[tuple[str, str]]:
    yield "empty", empty_program(task)
    if not is_constant(task):
        for program in constant_programs(task):
            yield "constant", program
    if (table := look_up_program(task)) is not None:
        yield "look-up", table


def _of_words(task: Task) -> TaskAudit:
    """Whether the prompt says what the tests need: the function's name, and what it takes or gives."""
    name = task.entry_point.rpartition(".")[2]
    return TaskAudit(
        task_id=task.task_id,
        names_entry_point=not name or re.search(rf"\b{re.escape(name)}\b", task.prompt) is not None,
        names_types=bool(task.stdio_tests) or _TYPE_WORDS.search(task.prompt) is not None,
    )
