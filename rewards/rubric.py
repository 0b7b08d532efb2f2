"""The Scorer: from a task and the text of an answer to one RewardResult.

Extract, then the fast tier (syntax, lint, complexity), then the tests in the sandbox; the reward is
the weighted sum. Owns the linter, borrows cache and sandbox. Not for several threads at once. Called
by rewards.pool, rewards.trl and evaluation.
"""

from __future__ import annotations

import math
import time
from types import TracebackType

from configs.schema import ExecutionConfig, RewardsConfig
from curriculum.task import Task
from rewards.cache import Verdict, VerdictCache, verdict_key
from rewards.execution import Executor, execution_request, has_passed, score_execution, score_tests
from rewards.extract import extract_code
from rewards.fast import FastVerdict, fast_configuration, score_fast
from rewards.lint import Linter, LintError
from rewards.result import RewardResult
from sandbox.result import ExecutionResult, Outcome

_NOT_RUN = "tests not run (execution.enabled: false)"


class Scorer:
    """Scores answers one at a time. ``close`` ends the linter; cache and sandbox are the caller's."""

    def __init__(
        self,
        rewards: RewardsConfig,
        execution: ExecutionConfig,
        cache: VerdictCache | None,
        sandbox: Executor | None,
    ) -> None:
        if execution.enabled and sandbox is None:
            raise ValueError("execution.enabled: value True: the scorer needs a sandbox to run tests in")
        self._rewards = rewards
        self._execution = execution
        self._cache = cache
        self._sandbox = sandbox if execution.enabled else None
        self._linter = Linter()
        self._fast_configuration = fast_configuration(self._linter)

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def score(self, task: Task, text: str) -> RewardResult:
        """Score ``text``, the prefill of the answer and the completion together.

        A program that does not compile gets the constant ``rewards.syntax_failure_reward`` and runs
        nowhere; its breakdown is all zeros and its detail begins with "syntax: ". An infrastructure
        error gives a reward of NaN. Without execution the breakdown lacks tests and execution, their
        weights count nothing, and no answer passes.
        """
        start = time.perf_counter()
        code = extract_code(text, task.entry_point, task.prompt)
        try:
            fast, is_cached = self._judge_fast(task, code)
        except LintError as error:
            return _infra_error(str(error), start)
        if fast.syntax == 0.0:
            return self._syntax_failure(fast, is_cached, start)
        breakdown = {"syntax": fast.syntax, "lint": fast.lint, "complexity": fast.complexity}
        if self._sandbox is None:
            return self._combine(breakdown, Outcome.WRONG, False, _NOT_RUN, is_cached, start)
        run, is_cached = self._judge_execution(self._sandbox, task, code)
        if run.outcome is Outcome.INFRA_ERROR:
            return _infra_error(run.detail, start)
        breakdown["tests"] = score_tests(run, self._rewards.tests)
        breakdown["execution"] = score_execution(run)
        return self._combine(breakdown, run.outcome, has_passed(run), run.detail, is_cached, start)

    def close(self) -> None:
        """End the linter's process."""
        self._linter.close()

    def _judge_fast(self, task: Task, code: str) -> tuple[FastVerdict, bool]:
        key = verdict_key("fast", (*self._fast_configuration, task.entry_point, code))
        known = self._look_up(key)
        if known is not None:
            assert isinstance(known, FastVerdict)
            return known, True
        verdict = score_fast(code, task.entry_point, self._linter)
        self._keep(key, verdict)
        return verdict, False

    def _judge_execution(self, sandbox: Executor, task: Task, code: str) -> tuple[ExecutionResult, bool]:
        request = execution_request(task, code, self._execution)
        python_version = self._fast_configuration[0]
        # The request's repr names source, tests, entry point, prelude and limits; sets print in an
        # order that holds within one process, which is as far as this cache goes.
        key = verdict_key("execution", (python_version, sandbox.level, repr(request)))
        known = self._look_up(key)
        if known is not None:
            assert isinstance(known, ExecutionResult)
            return known, True
        verdict = sandbox.run(request)
        self._keep(key, verdict)
        return verdict, False

    def _look_up(self, key: bytes) -> Verdict | None:
        return None if self._cache is None else self._cache.get(key)

    def _keep(self, key: bytes, verdict: Verdict) -> None:
        if self._cache is not None:
            self._cache.put(key, verdict)

    def _syntax_failure(self, fast: FastVerdict, is_cached: bool, start: float) -> RewardResult:
        names = ["syntax", "lint", "complexity"]
        if self._sandbox is not None:
            names += ["tests", "execution"]
        return RewardResult(
            reward=self._rewards.syntax_failure_reward,
            breakdown=dict.fromkeys(names, 0.0),
            outcome=Outcome.EXCEPTION,
            passed=False,
            detail=f"syntax: {fast.message}",
            cached=is_cached,
            seconds=time.perf_counter() - start,
        )

    def _combine(
        self,
        breakdown: dict[str, float],
        outcome: Outcome,
        passed: bool,
        detail: str,
        is_cached: bool,
        start: float,
    ) -> RewardResult:
        weights = self._rewards.weights.model_dump()
        return RewardResult(
            reward=math.fsum(weights[name] * score for name, score in breakdown.items()),
            breakdown=breakdown,
            outcome=outcome,
            passed=passed,
            detail=detail,
            cached=is_cached,
            seconds=time.perf_counter() - start,
        )


def _infra_error(detail: str, start: float) -> RewardResult:
    return RewardResult(
        reward=math.nan,
        breakdown={},
        outcome=Outcome.INFRA_ERROR,
        passed=False,
        detail=detail,
        cached=False,
        seconds=time.perf_counter() - start,
    )
