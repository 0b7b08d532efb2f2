"""Which rollouts of a group are trained on: against all subsets there are, and through a step."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from configs.schema import Config, GrpoConfig
from pipeline.messages import Completion, Rollout, RolloutGroup
from pipeline.rollouts.advantages import group_advantages, max_variance_subset
from pipeline.rollouts.batch import make_batch
from pipeline.training.trainer import Trainer
from rewards.result import RewardResult
from tests.pipeline import tiny_model
from tests.pipeline.fake_stages import GROUPS_PER_STEP, NUM_GENERATIONS, FakeRun, make_config, scored
from tests.pipeline.rollouts.test_batch import GRPO, TASK, group, rollout


def variance(rewards: list[float], places: tuple[int, ...]) -> float:
    return statistics.pvariance([rewards[place] for place in places])


@pytest.mark.parametrize("seed", range(60))
def test_no_other_subset_has_a_larger_variance(seed: int) -> None:
    rng = random.Random(seed)
    num = rng.randint(2, 9)
    values = rng.choice([[0.0, 1.0], [0.1, 0.35, 0.6, 1.0], [rng.gauss(1e3, 1e-3) for _ in range(5)]])
    rewards = [rng.choice(values) for _ in range(num)]
    size = rng.randint(2, num)
    chosen = max_variance_subset(rewards, size)
    assert len(set(chosen)) == size and list(chosen) == sorted(chosen)
    best = max(variance(rewards, places) for places in itertools.combinations(range(num), size))
    assert variance(rewards, chosen) == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_a_lone_success_is_always_kept_and_so_is_a_lone_failure() -> None:
    assert 5 in max_variance_subset([0.0] * 5 + [1.0] + [0.0] * 2, 2)
    assert 1 in max_variance_subset([1.0, 0.0, *[1.0] * 6], 4)


def test_of_equal_parts_the_most_even_and_the_first_are_taken() -> None:
    assert max_variance_subset([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], 4) == (0, 1, 3, 4)
    assert max_variance_subset([0.5] * 6, 4) == (0, 1, 2, 3)
    assert max_variance_subset([1.0, 0.0, 1.0, 0.0], 2) == (0, 1)


def test_what_has_no_score_is_never_chosen_and_few_scores_are_all_taken() -> None:
    nan = math.nan
    assert max_variance_subset([nan, 0.0, nan, 1.0, 0.5], 2) == (1, 3)
    assert max_variance_subset([nan, 0.0, nan, 1.0], 3) == (1, 3)
    assert max_variance_subset([nan, nan], 2) == ()


def test_advantages_are_those_of_the_whole_group() -> None:
    rewards = [0.0, 0.2, 0.5, 1.0, 1.0, 0.3]
    whole = group(*(rollout(reward, index=index) for index, reward in enumerate(rewards)))
    batch, report = make_batch(1, [whole], GRPO, 0, num_kept=3)
    expected = group_advantages([rewards], "group")[0]
    assert [sample.advantage for sample in batch.samples] == [expected[place] for place in (0, 3, 4)]
    assert report.num_samples == 3
    assert report.metrics["rollout/kept_share"] == 0.5
    assert report.metrics["rollout/reward_mean"] == pytest.approx(statistics.fmean(rewards)), "of all"
    assert batch.num_tokens == 6, "the loss is divided by what is trained on"
    untouched, _ = make_batch(1, [whole], GRPO, 0, num_kept=6)
    assert untouched == make_batch(1, [whole], GRPO, 0)[0]


def test_a_cut_completion_gives_way_to_one_that_has_a_loss() -> None:
    cut = [rollout(0.0, index=0, finish="length"), rollout(1.0, index=1, finish="length")]
    whole = [rollout(reward, index=2 + place) for place, reward in enumerate((0.1, 0.5, 0.9))]
    masking = GrpoConfig(mask_truncated_completions=True)
    batch, _ = make_batch(1, [group(*cut, *whole)], masking, 0, num_kept=2)
    assert [sum(sample.loss_mask) for sample in batch.samples] == [2, 2]
    advantages = group_advantages([[0.0, 1.0, 0.1, 0.5, 0.9]], "group")[0]
    assert [sample.advantage for sample in batch.samples] == [advantages[2], advantages[4]]
    too_few, _ = make_batch(1, [group(*cut, whole[0])], masking, 0, num_kept=2)
    assert len(too_few.samples) == 2, "then they are kept: their group has no better ones"


@pytest.mark.parametrize(
    ("num_generations", "keep", "num_kept"),
    [(8, 0.5, 4), (8, 0.3, 3), (2, 0.5, 2), (4, 0.1, 2), (10, 0.7, 7), (3, 0.99, 3)],
)
def test_a_share_of_each_group_is_kept_and_two_at_least(
    num_generations: int, keep: float, num_kept: int
) -> None:
    config = Config.model_validate(
        {
            "grpo": {"num_generations": num_generations},
            "training": {"per_device_train_batch_size": num_generations},
            "acceleration": {"rollout_downsampling": {"enabled": True, "keep": keep}},
        }
    )
    assert config.num_kept_generations == num_kept
    off = config.model_copy(update={"acceleration": Config().acceleration})
    assert off.num_kept_generations == num_generations


def test_ranks_must_find_a_trained_completion_each() -> None:
    values = {
        "runtime": {"trainer_ranks": 5},
        "grpo": {"num_generations": 8},
        "training": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
        "acceleration": {"rollout_downsampling": {"enabled": True}},
    }
    with pytest.raises(ValueError, match="at most the 4 completions of an optimiser step that are trained"):
        Config.model_validate(values)


@pytest.mark.parametrize("stream_steps", [True, False])
def test_a_run_trains_on_its_share_and_accounts_for_all(tmp_path: Path, stream_steps: bool) -> None:
    def by_task_and_index(task: object, index: int) -> RewardResult:
        return scored((0.2, 0.4, 0.0, 1.0)[index])

    acceleration = {
        "max_staleness": 0,
        "stream_steps": stream_steps,
        "rollout_downsampling": {"enabled": True, "keep": 0.5},
    }
    run = FakeRun(tmp_path, make_config(acceleration=acceleration), score_of=by_task_and_index)
    run.train()
    places = group_advantages([[0.2, 0.4, 0.0, 1.0]], "group")[0]
    for batch in run.trainer.batches:
        assert [sample.advantage for sample in batch.samples] == [places[2], places[3]] * GROUPS_PER_STEP
    query = "SELECT COUNT(*) FROM rollouts JOIN draws USING (draw_id) WHERE status = 'trained'"
    assert run.rows(query) == [(3 * GROUPS_PER_STEP * NUM_GENERATIONS,)]


def token_group(draw_id: int, rewards: list[float]) -> RolloutGroup:
    """A group of the tiny model's vocabulary: one prompt, completions of many lengths."""
    rng = random.Random(draw_id)
    prompt = tuple(rng.randint(3, tiny_model.VOCABULARY - 1) for _ in range(4 + draw_id))
    rollouts = []
    for index, reward in enumerate(rewards):
        length = rng.randint(1, 12)
        completion = Completion(
            index=index,
            token_ids=tuple(rng.randint(3, tiny_model.VOCABULARY - 1) for _ in range(length)),
            logprobs=tuple(rng.uniform(-5, -3) for _ in range(length)),
            text="x",
            finish_reason="stop",
            min_policy_version=0,
            max_policy_version=0,
        )
        rollouts.append(
            Rollout(
                rollout_id=f"{draw_id}/{index}",
                prompt_ids=prompt,
                completion=completion,
                result=scored(reward),
            )
        )
    return RolloutGroup(group_id=f"draw-{draw_id}", draw_id=draw_id, task=TASK, rollouts=tuple(rollouts))


def test_what_is_kept_has_one_gradient_in_rows_behind_shared_prompts_and_in_parts(tmp_path: Path) -> None:
    groups = [token_group(1, [0.0, 1.0, 0.4, 0.4, 0.2]), token_group(2, [1.0, 1.0, 1.0, 0.0, 0.9])]
    folder = tiny_model.save_model(tmp_path)
    plain = tiny_model.make_config(
        acceleration={"shared_prompt": False, "token_packing": {"enabled": False}, "stream_steps": False}
    )
    batch, _ = make_batch(1, groups, plain.grpo, 0, num_kept=3)
    assert len(batch.samples) == 6
    loss, expected = Trainer(plain, folder).gradients(batch)
    saving = tiny_model.make_config(acceleration={"token_packing": {"max_tokens": 24}})
    parts = [
        replace(make_batch(1, [group], saving.grpo, 0, num_kept=3)[0], part=number)
        for number, group in enumerate(groups)
    ]
    ours_loss, ours = Trainer(saving, folder).gradients(*parts)
    assert ours_loss == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-4
    for name, value in expected.items():
        assert float((ours[name] - value).norm()) <= 3e-5 * float(value.norm()) + 1e-9, name
