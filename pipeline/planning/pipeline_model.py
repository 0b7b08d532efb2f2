"""A discrete-event model of the pipeline: how long its steps take, from what each stage costs.

    slots ─► completions (so many at once) ─► scores (so many workers) ─► trainer ─► weights ─► slots

Admission is not modelled but asked of a real RolloutBuffer, so that slots, staleness and the order of groups
are those of a run. Generators keep what they are writing through a weight update, and stand still for its
pause. Time is simulated with simpy; nothing sleeps.

What the stages of a pipeline cost, and how many of each there are: plain numbers, measured elsewhere.

``benchmarks.async_overlap`` runs real stages with such costs, ``pipeline.planning.pipeline_model`` predicts
the run, and ``pipeline.planning.plan`` scales them to other numbers of GPUs. Measures and decides nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import cycle

import simpy

from curriculum.task import Task
from pipeline.messages import Completion, Rollout, RolloutGroup
from pipeline.planning.engine_model import ModelledEngine
from pipeline.rollouts.buffer import RolloutBuffer, Slot
from rewards.result import RewardResult
from sandbox.result import Outcome

STAGES = ("generation", "rewards", "training")
_TASK = Task(task_id="modelled", prompt="", entry_point="f", check_source="def check(f): pass")
_RESULT = RewardResult(
    reward=1.0, breakdown={}, outcome=Outcome.PASS, passed=True, detail="", cached=False, seconds=0.0
)

Process = Generator[simpy.Event, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the model says of a run.

    ``step_s`` is the mean step once the pipeline is full, ``total_s`` the whole run from its first slot.
    ``own_s`` is what a step would take of each stage if nothing else held it up, ``utilisation`` the share of
    its capacity that was at work in the steps of ``step_s``; both by name of STAGES.
    """

    step_s: float
    total_s: float
    own_s: dict[str, float]
    utilisation: dict[str, float]

    @property
    def bottleneck(self) -> str:
        """The stage whose own time is longest."""
        return max(self.own_s, key=lambda stage: self.own_s[stage])


def own_times(costs: StageCosts, shape: PipelineShape) -> dict[str, float]:
    """Seconds that one step takes of each stage by itself: no pipeline with these stages can be faster."""
    num_completions = shape.groups_per_step * shape.num_generations
    training_s = shape.groups_per_step * costs.train_group_s + costs.optimizer_s + costs.publish_s
    if not shape.is_update_beside:
        training_s += costs.update_s
    return {
        "generation": num_completions * _mean(costs.completion_s) / shape.num_generating + costs.pause_s,
        "rewards": num_completions * _mean(costs.reward_s) / shape.num_reward_workers,
        "training": training_s,
    }


def predict(
    costs: StageCosts,
    shape: PipelineShape,
    *,
    num_steps: int = 12,
    num_filling: int = 3,
    num_further: int = 0,
) -> Prediction:
    """Simulate ``num_steps`` steps; the first ``num_filling`` of them fill the pipeline and do not count.

    A run generates nothing for steps after its last, which is faster for it; with ``num_further`` the
    simulated one goes on generating for that many.
    """
    assert 0 <= num_filling < num_steps and num_further >= 0
    model = _Model(costs, shape, num_steps, num_further)
    return model.run(num_filling)


class _Model:
    """One simulated run."""

    def __init__(self, costs: StageCosts, shape: PipelineShape, num_steps: int, num_further: int) -> None:
        self._costs, self._shape, self._num_steps = costs, shape, num_steps
        self._num_groups = (num_steps + num_further) * shape.groups_per_step
        self._env = simpy.Environment()
        self._engine = ModelledEngine(self._env, shape.num_generating, costs.spare_speed)
        self._workers = simpy.PriorityResource(self._env, shape.num_reward_workers)
        self._buffer = RolloutBuffer(groups_per_step=shape.groups_per_step, max_staleness=shape.max_staleness)
        self._completion_s: Iterator[float] = cycle(costs.completion_s)
        self._reward_s: Iterator[float] = cycle(costs.reward_s)
        self._changed = self._env.event()
        self._busy_s = dict.fromkeys(STAGES, 0.0)
        self._filled_at_s, self._busy_filled_s = 0.0, dict(self._busy_s)

    def run(self, num_filling: int) -> Prediction:
        env, shape = self._env, self._shape
        env.process(self._produce())
        training = env.process(self._train(num_filling))
        env.run(until=training)
        elapsed_s = env.now - self._filled_at_s
        num_places = {
            "generation": shape.num_generating,
            "rewards": shape.num_reward_workers,
            "training": 1,
        }
        busy_s = self._busy_so_far()
        return Prediction(
            step_s=elapsed_s / (self._num_steps - num_filling),
            total_s=env.now,
            own_s=own_times(self._costs, shape),
            utilisation={
                stage: (busy_s[stage] - self._busy_filled_s[stage]) / (num_places[stage] * elapsed_s)
                for stage in STAGES
            },
        )

    def _busy_so_far(self) -> dict[str, float]:
        """Seconds at work of each stage, over all its places."""
        self._engine.settle()
        return self._busy_s | {"generation": self._engine.busy_s}

    def _produce(self) -> Process:
        """Issue a group for every slot, as RolloutProducer does."""
        for draw_id in range(self._num_groups):
            while (slot := self._buffer.take_slot()) is None:
                yield self._changed
            self._buffer.issue(slot, draw_id)
            self._env.process(self._group(draw_id, slot))

    def _group(self, draw_id: int, slot: Slot) -> Process:
        yield self._env.all_of(
            [self._env.process(self._completion(draw_id)) for _ in range(self._shape.num_generations)]
        )
        self._buffer.generated(draw_id)
        self._buffer.put(_group_of(draw_id, slot.policy_version))
        self._wake()

    def _completion(self, draw_id: int) -> Process:
        yield self._engine.write(next(self._completion_s))
        with self._workers.request(priority=draw_id) as place:
            yield place
            seconds = next(self._reward_s)
            yield self._env.timeout(seconds)
            self._busy_s["rewards"] += seconds

    def _train(self, num_filling: int) -> Process:
        shape, costs = self._shape, self._costs
        num_at_once = 1 if shape.is_streamed else shape.groups_per_step
        updating: simpy.Event = self._env.timeout(0)
        for step in range(1, self._num_steps + 1):
            if step == num_filling + 1:
                self._filled_at_s, self._busy_filled_s = self._env.now, self._busy_so_far()
            for _ in range(0, shape.groups_per_step, num_at_once):
                while self._buffer.take_now(num_at_once) is None:
                    yield self._changed
                yield from self._at_work(num_at_once * costs.train_group_s)
            # One update after the other: until the last is loaded, weights do not change.
            yield updating
            yield from self._at_work(costs.optimizer_s)
            self._buffer.trained(step)
            self._wake()
            yield from self._at_work(costs.publish_s)
            updating = self._env.process(self._update(step))
            if not shape.is_update_beside:
                yield updating

    def _at_work(self, seconds: float) -> Process:
        yield self._env.timeout(seconds)
        self._busy_s["training"] += seconds

    def _update(self, version: int) -> Process:
        """New weights in the generators; they stand still for the last ``pause_s`` of it."""
        costs = self._costs
        yield self._env.timeout(costs.update_s - costs.pause_s)
        self._engine.pause()
        yield self._env.timeout(costs.pause_s)
        self._engine.resume()
        self._buffer.weights_loaded(version)
        self._wake()

    def _wake(self) -> None:
        self._changed.succeed()
        self._changed = self._env.event()


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def _group_of(draw_id: int, version: int) -> RolloutGroup:
    """What the buffer looks at in a group: its draw, and the version of its oldest token."""
    completion = Completion(
        index=0,
        token_ids=(),
        logprobs=(),
        text="",
        finish_reason="stop",
        min_policy_version=version,
        max_policy_version=version,
    )
    rollout = Rollout(rollout_id="", prompt_ids=(), completion=completion, result=_RESULT)
    return RolloutGroup(group_id="", draw_id=draw_id, task=_TASK, rollouts=(rollout,))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Seconds that each piece of work takes. Lists are gone through in turn, and begun again at their end.

    ``completion_s``: one completion in an engine that is as full as it shall be. ``reward_s``: one score in
    one reward worker. ``train_group_s``: forward and backward of one group over all trainer ranks.
    ``optimizer_s``: what an optimiser step costs besides, once. ``publish_s``: the trainer writes its
    weights. ``update_s``: the generators take them, of which generation stands still for ``pause_s``.
    ``spare_speed``: how much faster a completion is where the engine is not full, see ModelledEngine.
    """

    completion_s: tuple[float, ...]
    reward_s: tuple[float, ...]
    train_group_s: float
    optimizer_s: float = 0.0
    publish_s: float = 0.0
    update_s: float = 0.0
    pause_s: float = 0.0
    spare_speed: float = 0.0

    def __post_init__(self) -> None:
        assert self.completion_s and self.reward_s
        assert 0.0 <= self.pause_s <= self.update_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """How much runs beside each other.

    ``num_generating``: completions that all engines together write at once. ``is_streamed``: a group goes to
    the trainer as soon as it can, instead of when its whole step is there. ``is_update_beside``: the trainer
    goes on with the next step while the generators take its weights.
    """

    groups_per_step: int
    num_generations: int
    max_staleness: int
    num_generating: int
    num_reward_workers: int
    is_streamed: bool = False
    is_update_beside: bool = False
