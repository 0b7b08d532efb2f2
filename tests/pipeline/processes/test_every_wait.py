"""Each wait for another process, and there: it hangs, dies, is late, answers twice, answers nonsense.

No silence is longer than the wait's deadline, the error names who it was, nothing is counted twice, and what
comes after the deadline disturbs nobody. docs/failures.md has the same list.
"""

from __future__ import annotations

import ast
import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from configs.rollouts_schema import RolloutsConfig
from configs.schema import Config
from pipeline.errors import StageError
from pipeline.generation.client import EngineEnd
from pipeline.generation.vllm_generator import VllmGenerator
from pipeline.messages import (
    GenerationRequest,
    SamplingSettings,
    StepResult,
    TrainBatch,
    WeightsLoaded,
    WeightUpdate,
)
from pipeline.training import handle
from pipeline.training.handle import TrainerHandle
from rewards.breaker import RewardsBrokenError
from rewards.feedback import FeedbackError
from rewards.result import RewardResult, infra_error
from rewards.worker import Scored, WorkerInfo
from rewards.workers import WorkerGroup
from sandbox.result import Outcome
from tests.pipeline.processes.liar import LATE_S, PID, Fault, Liar
from tests.pipeline.rollouts.groups import TASK, completion

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
DEADLINE_S = 0.6
# Where no deadline is to be met: what ends at once does so long before.
LONG_S = 60.0
# What a probe of those who are late takes, and the end of a process.
GRACE_S = 6.0
FAULTS: tuple[Fault, ...] = get_args(Fault)
SILENT: tuple[Fault, ...] = ("hangs", "is late")

BATCH = TrainBatch(step=1, samples=())
UPDATE = WeightUpdate(policy_version=1, path="x")
REQUEST = GenerationRequest(
    request_id="r", prompt_ids=(1,), num_generations=2, sampling=SamplingSettings(max_completion_length=4)
)
RUNTIME = ("generation", "weight_update", "train_step", "startup")


def config_of(deadline_s: float) -> Config:
    runtime = {f"{name}_timeout_s": deadline_s for name in RUNTIME}
    return Config.model_validate({"runtime": runtime, "training": {"memory": "auto"}})


RESULT = RewardResult(
    reward=1.0, breakdown={}, outcome=Outcome.PASS, passed=True, detail="", cached=False, seconds=0.0
)
ANSWERS: Mapping[str, Any] = {
    "generate": [completion(0), completion(1)],
    "update_weights": WeightsLoaded(policy_version=1, pause_s=0.0),
    "reset": None,
    "sleep": None,
    "wake": None,
    "release_memory": None,
    "stats": {"drafted": 4.0},
    "open": ("127.0.0.1", 1),
    "start": PID,
    "answer": True,
    "fit_memory": 1,
    "adopt_limit": "one row at a time",
    "accumulate": None,
    "step": StepResult(step=1, metrics={}, seconds=0.1, num_tokens=1),
    "publish": UPDATE,
    "offer": UPDATE,
    "save": "folder",
    "load": 3,
    "describe": WorkerInfo(level="L3", configuration=(), pid=PID),
    "score": Scored(result=RESULT, num_sandbox_failures=0),
    "judge": Scored(result=RESULT, num_sandbox_failures=0),
    "tell": Scored(result="a hint", num_sandbox_failures=0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Who waits for ``method`` of which process, and what it does about a fault.

    ``do`` makes the caller of the ends that the function gives, with so many seconds as its deadline, and has
    it wait once, and then once more. A fault that is ``mended`` is told, and the right answer comes from
    another process.
    """

    who: str
    method: str
    do: Callable[[Callable[[], Liar], float], Awaitable[list[Any]]]
    names: str = f"process {PID}"
    mended: tuple[Fault, ...] = ()


def of_the_engine(ask: Callable[[VllmGenerator], Awaitable[Any]]) -> Callable[..., Awaitable[list[Any]]]:
    async def do(end: Callable[[], Liar], deadline_s: float) -> list[Any]:
        liar = end()

        class Client:
            """Awaits its calls, as that of the engine does."""

            pid = PID
            stream = staticmethod(liar.stream)

            @staticmethod
            async def call(method: str, *arguments: object) -> Any:
                return await asyncio.wrap_future(liar.call(method, *arguments))

        generator = VllmGenerator(cast(EngineEnd, Client()), config_of(deadline_s))
        return [await ask(generator), await ask(generator)]

    return do


async def generated(generator: VllmGenerator) -> list[int]:
    return [one.index async for one in generator.generate(REQUEST)]


def of_the_trainer(
    ask: Callable[[TrainerHandle], Awaitable[Any]] | None, *, others: int = 0
) -> Callable[..., Awaitable[list[Any]]]:
    """One rank that is bad, and ``others`` that are well."""

    async def do(end: Callable[[], Liar], deadline_s: float) -> list[Any]:
        class Handle(TrainerHandle):
            def _make_ranks(self) -> list[Any]:
                return [end(), *[Liar(ANSWERS) for _ in range(others)]]

        trainer = Handle(config_of(deadline_s), "model", "cpu")
        await trainer.start()
        try:
            return [] if ask is None else [await ask(trainer), await ask(trainer)]
        finally:
            trainer.close()

    return do


def of_the_rewards(
    ask: Callable[[WorkerGroup], Awaitable[Any]], right: object
) -> Callable[..., Awaitable[list[Any]]]:
    """One worker that is bad, and whatever is started in its place."""

    async def do(end: Callable[[], Liar], deadline_s: float) -> list[Any]:
        config, made = config_of(deadline_s), [end()]
        workers = WorkerGroup(
            config.rewards,
            config.execution,
            1,
            start_worker=lambda *_: made.pop() if made else Liar(ANSWERS),
            timeout_s=deadline_s,
            startup_timeout_s=deadline_s,
        )
        try:
            results = [await ask(workers), await ask(workers)]
        finally:
            workers.close()
        lost = results[0]
        if isinstance(lost, RewardResult) and lost.outcome is Outcome.INFRA_ERROR:
            assert results[1] == right, "the next one has a worker that is well"
            raise StageError(lost.detail)
        return results

    return do


async def told(workers: WorkerGroup) -> str | RewardResult:
    """Feedback, or the infrastructure error that a rollout gets in its place."""
    try:
        return await workers.tell(TASK, "", RESULT, RolloutsConfig(feedback="verdict"))
    except FeedbackError as error:
        return infra_error(str(error), 0.0)


of_scores = of_the_rewards(lambda workers: workers.score(TASK, ""), RESULT)


async def nap(generator: VllmGenerator) -> None:
    await generator.sleep()
    await generator.wake()


async def offer(trainer: TrainerHandle) -> WeightUpdate:
    trainer._sends = True
    return await trainer.publish("folder")


async def fit(trainer: TrainerHandle) -> None:
    await trainer.fit_memory()  # what it says is of the first time


def load(trainer: TrainerHandle) -> Awaitable[Any]:
    return trainer.load(Path("folder"))


FOLDER = Path("folder")
WAITS = (
    Wait(who="engine", method="generate", do=of_the_engine(generated)),
    Wait(who="engine", method="update_weights", do=of_the_engine(lambda one: one.update_weights(UPDATE))),
    Wait(who="engine", method="reset", do=of_the_engine(lambda one: one.reset())),
    Wait(who="engine", method="sleep", do=of_the_engine(nap)),
    Wait(who="engine", method="wake", do=of_the_engine(nap)),
    Wait(who="engine", method="stats", do=of_the_engine(lambda one: one.stats())),
    Wait(who="trainer", method="start", do=of_the_trainer(None), names="the trainer"),
    Wait(who="trainer", method="fit_memory", do=of_the_trainer(fit)),
    Wait(who="trainer", method="release_memory", do=of_the_trainer(lambda one: one.release_memory())),
    Wait(who="trainer", method="adopt_limit", do=of_the_trainer(lambda one: one.adopt(1))),
    Wait(who="trainer", method="accumulate", do=of_the_trainer(lambda one: one.accumulate(BATCH))),
    Wait(who="trainer", method="step", do=of_the_trainer(lambda one: one.step(BATCH))),
    Wait(who="trainer", method="publish", do=of_the_trainer(lambda one: one.publish("folder"))),
    Wait(who="trainer", method="save", do=of_the_trainer(lambda one: one.save(FOLDER, 1))),
    Wait(who="trainer", method="load", do=of_the_trainer(load)),
    Wait(who="trainer", method="open", do=of_the_trainer(None, others=1), names="the trainer (rank 0 of 2"),
    Wait(who="trainer", method="offer", do=of_the_trainer(offer)),
    Wait(who="trainer", method="answer", do=of_the_trainer(lambda one: one.require_all())),
    Wait(who="reward worker", method="describe", do=of_scores, names="reward worker"),
    Wait(
        who="reward worker",
        method="score",
        do=of_scores,
        names="reward worker 0",
        mended=("dies", "answers nonsense"),
    ),
    Wait(
        who="reward worker",
        method="judge",
        do=of_the_rewards(lambda workers: workers.score(TASK, "", by_tests=True), RESULT),
        names="reward worker 0",
        mended=("dies", "answers nonsense"),
    ),
    Wait(
        who="reward worker",
        method="tell",
        do=of_the_rewards(told, "a hint"),
        names="reward worker 0",
        mended=("dies", "answers nonsense"),
    ),
)
# By method: the test that shows the end of its wait.
ELSEWHERE = {
    "prepare": "test_an_engine_that_is_not_prepared_in_time_did_not_start_and_is_closed",
    "close": "test_a_generator_on_a_node_that_does_not_close_in_time_is_killed",
}


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the trainer's waits that no setting gives."""
    monkeypatch.setattr(handle, "_SAVE_LIMIT_S", 0.0)
    monkeypatch.setattr(handle, "_FIT_LIMIT", (DEADLINE_S, "fixed"))
    monkeypatch.setattr(handle, "_PROBE_TIMEOUT_S", 0.3)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in SILENT])
@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: f"{wait.who} {wait.method}")
def test_a_wait_ends_at_once_and_names_who_it_was_for(
    wait: Wait, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    begun = time.monotonic()
    if fault == "answers twice" or fault in wait.mended:
        first, *more = asyncio.run(_done(wait, fault))
        assert more == [first] * len(more), "the second answer to the first call is no answer to the second"
        told = caplog.text
    else:
        told = _raised(wait, fault)
    assert time.monotonic() - begun < LONG_S / 2
    assert fault == "answers twice" or wait.names in told
    assert fault != "answers nonsense" or "sent what is no answer" in told


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize("fault", SILENT)
def test_a_wait_ends_by_its_deadline_and_names_who_it_was_for(fault: Fault) -> None:
    def check(wait: Wait) -> None:
        begun = time.monotonic()
        assert wait.names in _raised(wait, fault)
        assert time.monotonic() - begun < DEADLINE_S + GRACE_S + (LATE_S if fault == "is late" else 0.0)

    # Some at a time: nearly all of it is waiting.
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(check, WAITS))


def _raised(wait: Wait, fault: Fault) -> str:
    with pytest.raises((StageError, RewardsBrokenError)) as raised:
        asyncio.run(_done(wait, fault))
    return str(raised.value)


async def _done(wait: Wait, fault: Fault) -> list[Any]:
    liars: list[Liar] = []

    def end() -> Liar:
        liars.append(Liar(ANSWERS, wait.method, fault))
        return liars[-1]

    try:
        return await wait.do(end, DEADLINE_S if fault in SILENT else LONG_S) or [None]
    finally:
        if fault == "is late":
            # What comes then finds nobody, and harms nobody.
            await asyncio.sleep(LATE_S)
        for liar in liars:
            liar.close()


def test_without_a_fault_every_wait_ends_well() -> None:
    for wait in WAITS:
        liar = Liar(ANSWERS)
        done = cast(Any, wait.do(lambda liar=liar: liar, LONG_S))  # type: ignore[misc]
        first, *more = asyncio.run(done) or [None]
        assert more == [first] * len(more)
        assert wait.method in liar.calls
        liar.close()


def test_every_method_that_is_called_in_another_process_is_in_the_list() -> None:
    known = {wait.method for wait in WAITS} | set(ELSEWHERE)
    called = {
        method
        for package in ("pipeline", "rewards")
        for path in (ROOT / package).rglob("*.py")
        for method in _methods(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert called == known
    source = (ROOT / "tests" / "pipeline" / "generation" / "test_start.py").read_text(encoding="utf-8")
    assert all(f"def {name}(" in source for name in ELSEWHERE.values())


def _methods(tree: ast.AST) -> set[str]:
    """The methods that are named where something is called, streamed or asked of all ranks."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in ("call", "stream", "_all", "_ask") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.add(first.value)
    return found


def test_the_documents_have_the_same_list() -> None:
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (engine|trainer|reward worker) \| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [(wait.who, wait.method) for wait in WAITS]
    tests = re.findall(r"\| `(\S+)::(\w+)` \|$", page, re.MULTILINE)
    assert len(tests) >= 9
    for path, name in tests:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name
