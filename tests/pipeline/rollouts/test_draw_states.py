"""One life of a draw: random walks on which ledger, buffer and producer must agree, and illegal moves."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curriculum.task import Task
from pipeline.host.spans import TRAINER, WAITING, Span
from pipeline.messages import Completion, GenerationRequest, RolloutGroup, StepResult
from pipeline.record import draw_states
from pipeline.record.audit import audit
from pipeline.record.draw_states import (
    FOLLOWING,
    FOLLOWING_STORED,
    RESUMED,
    DrawState,
    DrawStateError,
    check_move,
)
from pipeline.record.ledger import Ledger
from pipeline.report.reader import RunReader
from pipeline.report.waits import step_times
from pipeline.rollouts.producer import make_group
from rewards.result import RewardResult
from tests.pipeline.fake_stages import GROUPS_PER_STEP, NUM_GENERATIONS, TASKS, FakeRun, make_config, scored
from tests.pipeline.report_run import START_S, make_run
from tests.pipeline.rollouts.groups import completion

NUM_STEPS = 4
AT_WORK = (DrawState.GENERATING, DrawState.SCORING)


@pytest.mark.parametrize(("state", "target"), list(itertools.product(DrawState, DrawState)))
def test_a_move_is_legal_or_says_draw_state_and_what_would_be(state: DrawState, target: DrawState) -> None:
    for following in [FOLLOWING, FOLLOWING_STORED] if state.stored is state else [FOLLOWING]:
        legal = following[state]
        if target in legal:
            check_move(7, state, target, following)
            continue
        with pytest.raises(DrawStateError, match=f"draw 7 cannot become {target}: it is {state}, ") as caught:
            check_move(7, state, target, following)
        said = str(caught.value).split(", and ")[1]
        assert said == ("may become " + " or ".join(sorted(legal)) if legal else "stays that")


def test_a_draw_goes_these_ways_and_no_others() -> None:
    one = DrawState
    assert {state: set(following) for state, following in FOLLOWING.items()} == {
        one.ISSUED: {one.GENERATING, one.DROPPED},
        one.GENERATING: {one.SCORING, one.DROPPED},
        one.SCORING: {one.SCORED, one.DROPPED, one.FAILED},
        one.SCORED: {one.TRAINING, one.ISSUED, one.DROPPED},
        one.TRAINING: {one.TRAINED},
        one.TRAINED: set(),
        one.DROPPED: set(),
        one.FAILED: set(),
    }


def test_what_is_stored_goes_the_way_of_what_it_stands_for() -> None:
    assert {state: set(following) for state, following in FOLLOWING_STORED.items()} == {
        DrawState.ISSUED: {DrawState.SCORED, DrawState.DROPPED, DrawState.FAILED},
        DrawState.SCORED: {DrawState.TRAINED, DrawState.DROPPED, DrawState.ISSUED},
        DrawState.TRAINED: set(),
        DrawState.DROPPED: set(),
        DrawState.FAILED: set(),
    }
    assert all(state.name in str(draw_states.__doc__) for state in DrawState), "the diagram shows all"


class Walk:
    """A run whose generator and scorer wait for the walk, draw by draw; the walk itself is the trainer."""

    def __init__(self, path: Path, max_staleness: int, data: st.DataObject) -> None:
        self.data = data
        acceleration = {"max_staleness": max_staleness, "refill": {"enabled": True, "max_draws": 2.0}}
        config = make_config(training={"max_steps": NUM_STEPS}, acceleration=acceleration)
        self.max_staleness = max_staleness
        self.run = FakeRun(path, config)
        self.run.generator.generate = self.generate  # type: ignore[method-assign]
        self.run.scorer.score = self.score  # type: ignore[method-assign]
        self.written: dict[str, asyncio.Event] = defaultdict(asyncio.Event)  # by request
        self.judged: dict[int, asyncio.Event] = defaultdict(asyncio.Event)  # by draw
        self.left_as: dict[int, DrawState] = {}  # by draw: what the buffer released it as
        leave = self.run.buffer._leave

        def noting(draw_id: int, state: DrawState) -> None:
            leave(draw_id, state)
            self.left_as[draw_id] = state

        self.run.buffer._leave = noting  # type: ignore[method-assign]
        self.reward_of: Callable[[int], float] = float
        self.lag = 0
        self.version = 0
        self.num_errors = 0

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        await self.written[request.request_id].wait()
        version = max(0, self.version - self.lag)
        for index in range(request.num_generations):
            yield completion(index, version)

    async def score(
        self, task: Task, text: str, *, priority: float = 0, by_tests: bool = False
    ) -> RewardResult:
        await self.judged[int(priority)].wait()
        return scored(self.reward_of(int(text.split()[-1])), detail="no sandbox")

    def statuses(self) -> dict[int, DrawState]:
        rows = self.run.rows("SELECT draw_id, status FROM draws")
        assert len(rows) == len(dict(rows))
        return {draw_id: DrawState(status) for draw_id, status in rows}

    async def settle(self) -> None:
        for _ in range(25):
            await asyncio.sleep(0)
        self.check()

    def check(self) -> None:
        """Ledger, buffer and producer agree on every draw."""
        stored, held = self.statuses(), self.run.buffer.states
        assert set(held) <= set(stored)
        assert {draw_id: state.stored for draw_id, state in held.items()} == {
            draw_id: stored[draw_id] for draw_id in held
        }
        assert all(state.has_slot for state in held.values())
        without = {draw_id: state for draw_id, state in stored.items() if draw_id not in held}
        assert without == {draw_id: self.left_as[draw_id] for draw_id in without}
        waiting = sorted(draw.draw_id for draw in self.run.producer._draws._waiting)
        assert waiting == sorted(
            draw_id for draw_id, state in without.items() if state is DrawState.ISSUED
        ), "what is to be made again waits for a slot, once"
        assert set(self.run.producer._running) == {
            draw_id for draw_id, state in held.items() if state in AT_WORK
        }

    async def play(self) -> None:
        producing = asyncio.create_task(self.run.producer.run())
        try:
            await self.settle()
            for _ in range(self.data.draw(st.integers(20, 120))):
                if self.version == NUM_STEPS:
                    break
                event = self.data.draw(
                    st.sampled_from(("write", "write", "judge", "judge", "train", "spoil", "turn"))
                )
                getattr(self, event)()
                await self.settle()
                assert not producing.done()
        finally:
            producing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producing

    def pick(self, state: DrawState) -> int | None:
        found = sorted(draw_id for draw_id, other in self.run.buffer.states.items() if other is state)
        return self.data.draw(st.sampled_from(found)) if found else None

    def write(self) -> None:
        draw_id = self.pick(DrawState.GENERATING)
        if draw_id is None:
            return
        ((attempt,),) = self.run.rows(f"SELECT attempt FROM draws WHERE draw_id = {draw_id}")
        self.lag = self.data.draw(st.sampled_from((0, 0, 0, 1, 3)))
        self.judged[draw_id].clear()
        self.written[f"draw-{draw_id}" + (f".{attempt}" if attempt else "")].set()

    def judge(self) -> None:
        draw_id = self.pick(DrawState.SCORING)
        if draw_id is None:
            return
        kind = self.data.draw(st.sampled_from(("signal", "signal", "flat", "error")))
        self.num_errors += kind == "error"
        if kind == "error" and self.num_errors < 8:
            self.reward_of = lambda index: math.nan
        elif kind == "flat":
            self.reward_of = lambda index: 1.0
        else:
            self.reward_of = lambda index: float(index % 2)
        self.judged[draw_id].set()

    def turn(self) -> None:
        self.run.buffer.alternate(self.data.draw(st.booleans()))

    def train(self) -> None:
        taken = self.run.buffer.take_now(GROUPS_PER_STEP)
        if not taken:
            return
        self.check()
        self.version += 1
        result = StepResult(step=self.version, metrics={}, seconds=1.0, num_tokens=2)
        self.run.ledger.commit_step(result, [group.draw_id for group in taken], {})
        if self.version == NUM_STEPS:
            self.run.producer.finish()
        self.run.buffer.trained(self.version)
        self.run.buffer.weights_loaded(self.version)

    def spoil(self) -> None:
        """An illegal move of some draw, in the buffer and in the ledger: refused, and nothing has changed."""
        before = self.statuses(), self.run.buffer.states
        draw_id = self.data.draw(st.sampled_from(sorted(before[0])))
        state, stored = before[1].get(draw_id), before[0][draw_id]
        legal = FOLLOWING[state] if state else frozenset({DrawState.GENERATING})
        target = self.data.draw(
            st.sampled_from([one for one in DrawState if one not in {*legal, DrawState.TRAINING}])
        )
        # A draw without a slot may be given one: there is nothing to refuse.
        if state or target is not DrawState.GENERATING:
            with pytest.raises(
                DrawStateError, match=f"draw {draw_id} cannot become {target}: it is {state or ''}"
            ):
                self.in_buffer(draw_id, target)
        wrong = [one for one in DrawState if one.stored is one and one not in FOLLOWING_STORED[stored]]
        target = self.data.draw(st.sampled_from(wrong))
        with pytest.raises(DrawStateError, match=f"draw {draw_id} cannot become {target}: it is {stored}"):
            self.in_ledger(draw_id, target)
        assert (self.statuses(), self.run.buffer.states) == before

    def in_buffer(self, draw_id: int, target: DrawState) -> None:
        if target is DrawState.GENERATING:
            # Refused before a slot is asked for.
            self.run.buffer.issue(draw_id)
        elif target is DrawState.SCORING:
            self.run.buffer.generated(draw_id)
        elif target is DrawState.SCORED:
            self.run.buffer.put(group_of(draw_id))
        else:
            self.run.buffer.release(draw_id, target)

    def in_ledger(self, draw_id: int, target: DrawState) -> None:
        ledger = self.run.ledger
        if target is DrawState.SCORED:
            ledger.record_group(group_of(draw_id))
        elif target is DrawState.FAILED:
            ledger.fail_group(group_of(draw_id), "spoilt")
        elif target is DrawState.DROPPED:
            ledger.drop_draw(draw_id, "spoilt")
        elif target is DrawState.ISSUED:
            ledger.requeue_draw(draw_id, "spoilt")
        else:
            step = ledger.last_step() + 1
            result = StepResult(step=step, metrics={}, seconds=1.0, num_tokens=2)
            ledger.commit_step(result, [draw_id], {})

    def check_end(self) -> None:
        """Every draw is accounted for once; a resume makes of each what it may."""
        stored = self.statuses()
        assert list(stored.values()).count(DrawState.TRAINED) == self.version * GROUPS_PER_STEP
        if self.version == NUM_STEPS:
            assert not {DrawState.ISSUED, DrawState.SCORED} & set(stored.values())
        assert audit(self.run.folder.path).violations == ()
        self.run.ledger.rewind(self.data.draw(st.integers(0, self.version)), self.max_staleness)
        for draw_id, state in self.statuses().items():
            before = stored[draw_id]
            assert state is before or state in RESUMED[before], (draw_id, before, state)
        assert audit(self.run.folder.path).violations == ()


def group_of(draw_id: int) -> RolloutGroup:
    completions = [completion(index, 0) for index in range(NUM_GENERATIONS)]
    task = replace(TASKS[0], task_id="another")
    return make_group(draw_id, task, (1, 2, 3), completions, [scored(1.0) for _ in completions])


@settings(max_examples=30, derandomize=True)
@given(max_staleness=st.sampled_from((0, 1, 2)), data=st.data())
def test_ledger_buffer_and_producer_agree_on_every_walk(max_staleness: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(Path(folder), max_staleness, data)
        try:
            asyncio.run(asyncio.wait_for(walk.play(), 60))
            walk.check_end()
        finally:
            walk.run.close()


def test_what_a_killed_process_had_begun_is_no_part_of_the_step_that_is_done_again(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", 3, max_steps=5)

    def wait(step: int, started_s: float) -> Span:
        name = f"step {step} waits for rollouts"
        return Span(stage=WAITING, name=name, started_s=START_S + started_s, ended_s=START_S + started_s + 1)

    with contextlib.closing(Ledger(path / "run.db")) as ledger:
        ledger.note_spans(3, [wait(4, 22), wait(5, 23)], 40)
        before = step_times(RunReader(path).spans())
        ledger.rewind(2)
        kept, lost = step_times(RunReader(path).spans()), before[-1]
        assert [times.step for times in before] == [1, 2, 3] and kept == before[:-1]
        for step in (3, 4):
            update = replace(wait(step, 101 + 10 * step), stage=TRAINER, name=f"step {step}: update")
            ledger.note_spans(step, [wait(step, 100 + 10 * step), update], 40)
    again = step_times(RunReader(path).spans())[2:]
    assert [(times.step, times.started_s - START_S, times.ended_s - START_S) for times in again] == [
        (3, 130, 132),
        (4, 140, 142),
    ]
    assert again[0].started_s > lost.ended_s
