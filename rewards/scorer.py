"""The Scorer: from a task and the text of an answer to one RewardResult.

Extract, then the fast tier (syntax, lint, complexity), then, side by side, the tests in the sandbox and
the type check, then what needs the run; the rubric makes one reward of it. Linter, type check, performance
and custom rewards run only where they have a weight. Owns the linter, the type checker and the custom
rewards, borrows the sandbox. Not for several threads at once.
"""

from __future__ import annotations

import platform
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.judging import Executor, execution_request, has_passed
from curriculum.task import Task
from rewards.custom import load_custom
from rewards.digest import judge_digest, module_versions
from rewards.execution import is_no_program, score_execution, score_tests
from rewards.extract import extract_code
from rewards.fast import FastVerdict, score_fast
from rewards.lint import Linter, LintError
from rewards.performance import ReferenceTimes, performance_score
from rewards.result import RewardResult, infra_error
from rewards.rubric import Rubric, Rules
from rewards.type_check import TypeChecker, TypeCheckError, type_score
from rewards.user_function import UserFunctionError
from sandbox.result import ExecutionResult, Outcome

_NOT_RUN = "tests not run (execution.enabled: false)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One answer on its way, with the rules that are in force for its task."""

    task: Task
    text: str
    code: str
    rules: Rules

    def needs(self, name: str) -> bool:
        return self.rules.weights[name] != 0.0


class Scorer:
    """Scores answers one at a time. ``close`` ends what it owns; the sandbox is the caller's.

    Raises ConfigError for a custom reward that cannot be loaded, ValueError without a sandbox to run in,
    LintError and TypeCheckError where ruff and mypy are not there.
    """

    def __init__(
        self,
        rewards: RewardsConfig,
        execution: ExecutionConfig,
        sandbox: Executor | None,
    ) -> None:
        if execution.enabled and sandbox is None:
            raise ValueError("execution.enabled: value True: the scorer needs a sandbox to run tests in")
        self._rewards = rewards
        self._execution = execution
        self._sandbox = sandbox if execution.enabled else None
        self._rubric = Rubric(rewards)
        self._stack = ExitStack()
        self._customs = load_custom(rewards.custom, rewards.custom_timeout_s)
        for custom in self._customs:
            self._stack.callback(custom.close)
        self._linter = self._stack.enter_context(Linter())
        self._types: TypeChecker | None = None
        if self._rubric.is_used("type_safety"):
            self._types = self._stack.enter_context(TypeChecker())
        # Ends before the type checker does: what it runs asks that.
        self._beside = self._stack.enter_context(ThreadPoolExecutor(1, "type check"))
        self._times: ReferenceTimes | None = None
        if self._sandbox is not None and self._rubric.is_used("performance"):
            self._times = ReferenceTimes(self._sandbox, execution)
        self.configuration = self._describe()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def score(self, task: Task, text: str) -> RewardResult:
        """Score ``text``, the prefill of the answer and the completion together.

        A program that does not compile gets the constant ``rewards.syntax_failure_reward``, whether the fast
        tier finds that or the sandbox; its breakdown is all zeros and its detail begins with "syntax: ". An
        infrastructure error gives a reward of NaN; ``detail`` names what failed. Without execution the
        breakdown lacks what a run would tell, those weights count nothing, and no answer passes.
        """
        start = time.perf_counter()
        code = extract_code(text, task.entry_point, task.prompt)
        item = _Item(task=task, text=text, code=code, rules=self._rubric.rules(task.source))
        return replace(self._judge(item), seconds=time.perf_counter() - start)

    def close(self) -> None:
        """End the processes of linter and type checker. Safe to call twice."""
        self._stack.close()

    def _judge(self, item: _Item) -> RewardResult:
        """The verdict, made anew; ``seconds`` is not filled in."""
        try:
            linter = self._linter if item.needs("lint") else None
            fast = score_fast(item.code, item.task.entry_point, linter, item.task.prelude)
            if fast.syntax == 0.0:
                return self._syntax_failure(item, fast.message)
            return self._judge_program(item, fast)
        except (LintError, TypeCheckError, UserFunctionError) as error:
            return infra_error(str(error), 0.0)

    def _judge_program(self, item: _Item, fast: FastVerdict) -> RewardResult:
        task = item.task
        lint = {} if fast.lint is None else {"lint": fast.lint}
        breakdown = {"syntax": fast.syntax, **lint, "complexity": fast.complexity}
        checking = self._start_type_check(item, fast)
        outcome, passed, detail = Outcome.WRONG, False, _NOT_RUN
        try:
            if self._sandbox is not None:
                run = self._sandbox.run(execution_request(task, item.code, self._execution))
                if run.outcome is Outcome.INFRA_ERROR:
                    return infra_error(run.detail, 0.0)
                if is_no_program(run):
                    return self._syntax_failure(item, run.detail)
                breakdown |= self._score_run(item, run)
                outcome, passed, detail = run.outcome, has_passed(run), run.detail
        except ValueError as error:
            # The task's own check cannot run, on the answer or on the reference: no answer's fault.
            return infra_error(f"{task.task_id}: {error}", 0.0)
        finally:
            # Nothing of this item goes on when its score is out.
            num_errors = None if checking is None else checking.result()
        if num_errors is not None:
            breakdown["type_safety"] = type_score(num_errors)
        elif item.needs("type_safety"):
            breakdown["type_safety"] = 0.0
        for custom in self._customs:
            score = custom.score(task, item.text, item.code) if item.needs(custom.name) else None
            if score is not None:
                breakdown[custom.name] = score
        if not any(item.needs(name) for name in breakdown):
            return infra_error(f"{task.task_id}: no reward with a weight has an opinion on this answer", 0.0)
        return RewardResult(
            reward=item.rules.combine(breakdown),
            breakdown=breakdown,
            outcome=outcome,
            passed=passed,
            detail=detail,
        )

    def _start_type_check(self, item: _Item, fast: FastVerdict) -> Future[int] | None:
        """The type check under way; None where it has no weight, or the program is no answer at all."""
        if self._types is None or not item.needs("type_safety") or not fast.is_answer:
            return None
        return self._beside.submit(self._types.count_errors, item.code, item.task.prelude)

    def _score_run(self, item: _Item, run: ExecutionResult) -> dict[str, float]:
        scores = {"tests": score_tests(run, item.rules.tests_mode), "execution": score_execution(run)}
        if self._times is not None and item.needs("performance"):
            # For a failure too: without a time none of a group can be scored, and not the failures alone.
            scores["performance"] = performance_score(run, self._times.cpu_s(item.task))
        return scores

    def _syntax_failure(self, item: _Item, message: str) -> RewardResult:
        # Without a sandbox nothing is said of these.
        of_run = ("tests", "execution", "performance") if self._sandbox is None else ()
        names = ["syntax", "complexity", *(("tests", "execution") if self._sandbox is not None else ())]
        names += [name for name in item.rules.weights if item.needs(name) and name not in of_run]
        return RewardResult(
            reward=item.rules.syntax_failure_reward,
            breakdown=dict.fromkeys(names, 0.0),
            outcome=Outcome.EXCEPTION,
            passed=False,
            detail=f"syntax: {message}",
        )

    def _describe(self) -> tuple[str, ...]:
        """All that a verdict depends on besides the task and the program.

        Rules, flags and limits that stand in the source are in its digest.
        """
        return (
            judge_digest(),
            platform.python_version(),
            self._linter.version,
            "no types" if self._types is None else self._types.version,
            "no sandbox" if self._sandbox is None else self._sandbox.level,
            *module_versions(self._execution.modules),
            *(custom.fingerprint for custom in self._customs),
            self._rewards.model_dump_json(),
            self._execution.model_dump_json(),
        )
