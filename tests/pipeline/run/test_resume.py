"""A run that ends at any moment goes on as if it had not: draws, sampler, seeds, scored groups."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from configs.schema import Config
from curriculum.sampler import Sampler
from pipeline.messages import GenerationRequest
from pipeline.models.prompts import refuse_useless_seeds, request_seed
from pipeline.record.audit import audit
from pipeline.record.ledger import Ledger
from pipeline.run.resume import GroupBasis, find_checkpoint, restore
from tests.pipeline.fake_stages import GROUPS_PER_STEP, NUM_GENERATIONS, TASKS, FakeRun, make_config

NUM_STEPS = 8
P = ParamSpec("P")
T = TypeVar("T")


def config_of(max_staleness: int, *, save_steps: int = 1, curriculum: bool = False) -> Config:
    return make_config(
        training={"max_steps": NUM_STEPS},
        output={"save_steps": save_steps},
        generation={"seed_requests": True},
        acceleration={
            "max_staleness": max_staleness,
            "curriculum": {"enabled": curriculum},
        },
    )


class AtOnce(ThreadPoolExecutor):
    """Does what it is given at once: in how many turns a thread is done is the machine's affair."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def end_after(run: FakeRun, num_turns: int) -> bool:
    """Let ``run`` live for so many turns of its event loop; whether it came to its end."""

    async def live() -> bool:
        asyncio.get_running_loop().set_default_executor(AtOnce(1))
        job = asyncio.create_task(run.attempt.run())
        for _ in range(num_turns):
            if job.done():
                break
            await asyncio.sleep(0)
        is_done = job.done()
        job.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await job
        return is_done

    try:
        return asyncio.run(asyncio.wait_for(live(), 60))
    finally:
        run.close()


def last_saved(path: Path) -> int:
    """The step of the last checkpoint that the ledger knows."""
    with contextlib.closing(ledger_of(path)) as ledger:
        return max((int(name.removeprefix("step-")) for name in ledger.checkpoints()), default=0)


def ledger_of(path: Path) -> Ledger:
    return Ledger(path / "run" / "run.db")


def write_checkpoint(folder: Path, step: int) -> None:
    """A whole one, of as little as can be."""
    folder.mkdir()
    (folder / "state.json").write_text(f'{{"step": {step}, "files": {{"weights": 3}}}}')
    (folder / "weights").write_text("abc")


def trained(run: FakeRun) -> list[tuple[object, ...]]:
    """The draws of each step with their tasks, in order."""
    return run.rows(
        "SELECT step, draw_id, task_id FROM draws JOIN steps USING (step_id) ORDER BY step, draw_id"
    )


@pytest.mark.parametrize("seed", range(24))
def test_a_run_that_ends_again_and_again_adds_up(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = config_of(rng.choice((0, 1, 2, 4)), save_steps=rng.choice((1, 2, 3)))
    num_lives = 0
    while True:
        run = FakeRun(tmp_path, config, done_steps=last_saved(tmp_path) if num_lives else 0)
        num_lives += 1
        is_done = end_after(run, rng.randint(30, 900))
        assert audit(run.folder.path).violations == (), num_lives
        assert max(run.trainer.staleness, default=0) <= config.acceleration.max_staleness
        if is_done:
            break
        assert num_lives < 60
    assert [
        step for (step,) in run.rows("SELECT step FROM steps WHERE status = 'committed' ORDER BY step")
    ] == [*range(1, NUM_STEPS + 1)]
    assert run.rows("SELECT COUNT(*) FROM draws WHERE status = 'trained'") == [(NUM_STEPS * GROUPS_PER_STEP,)]
    # Whatever was lost: no draw was made twice, so that the draws are numbered as the sampler counts them.
    assert run.rows("SELECT COUNT(*) FROM draws") == [(run.sampler.state_dict()["num_draws"],)]
    assert run.rows("SELECT COUNT(*) FROM tokens") == [(0,)]


def test_an_interrupted_run_on_policy_asks_for_what_an_uninterrupted_one_does(tmp_path: Path) -> None:
    """The same tasks in the same steps, with the same seeds, wherever it was interrupted."""

    def play(folder: Path, *, turns: list[int]) -> tuple[list[tuple[object, ...]], dict[str, int | None]]:
        folder.mkdir()
        seeds: dict[str, int | None] = {}

        def note(request: GenerationRequest) -> None:
            draw = request.request_id.split(".")[0]
            assert seeds.setdefault(draw, request.seed) == request.seed

        config = config_of(0, save_steps=2)
        for num_turns in turns:
            done_steps = last_saved(folder) if (folder / "run").exists() else 0
            end_after(FakeRun(folder, config, fault=note, done_steps=done_steps), num_turns)
        run = FakeRun(folder, config, fault=note, done_steps=last_saved(folder) if turns else 0).train()
        return trained(run), seeds

    whole = play(tmp_path / "whole", turns=[])
    assert len(set(whole[1].values())) == NUM_STEPS * GROUPS_PER_STEP
    for number, turns in enumerate(([100], [450, 20, 300], [200, 200, 200, 600])):
        assert play(tmp_path / str(number), turns=turns) == whole


def test_the_sampler_knows_all_that_it_knew(tmp_path: Path) -> None:
    """Ended within the step after a checkpoint: all weights still exist, so nothing it was told is lost."""
    config = config_of(0, curriculum=True)
    run = FakeRun(tmp_path, config).die_in(5)
    resumed = FakeRun(tmp_path, config, done_steps=4)
    assert resumed.sampler.state_dict() == run.sampler.state_dict()
    assert [draw.state for draw in resumed.ledger.unfinished_draws()] == ["scored"] * GROUPS_PER_STEP
    resumed.close()


def test_pass_counts_of_lost_weights_are_forgotten(tmp_path: Path) -> None:
    config = config_of(0, save_steps=4, curriculum=True)
    FakeRun(tmp_path, config).die_in(8)
    resumed = FakeRun(tmp_path, config, done_steps=4)
    told = resumed.ledger.sampler_calls(4)
    counted = [call for call in told if call.kind == "record"]
    assert {call.max_policy_version for call in counted} == {4, 5, 6, 7}
    counts = resumed.sampler.state_dict()["counts"]
    assert isinstance(counts, dict)
    # Steps 1 to 5 had their groups from weights 0 to 4, four answers each; all later weights are lost.
    undecayed = Sampler(TASKS, config.acceleration.curriculum, 0)
    undecayed.load_state_dict(resumed.ledger.load_state(4)["sampler"])
    for call in told:
        if call.kind == "draw":
            undecayed.repeat(call.task_id, call.step)
        elif call.max_policy_version <= 4:
            undecayed.record(call.task_id, call.num_passed, call.num_samples)
    assert counts == undecayed.state_dict()["counts"]
    assert resumed.sampler.state_dict()["num_draws"] == NUM_STEPS * GROUPS_PER_STEP, "but no draw is"
    resumed.close()


def test_scored_groups_are_trained_on_without_being_generated_again(tmp_path: Path) -> None:
    config = config_of(2)
    FakeRun(tmp_path, config).die_in(5)
    resumed = FakeRun(tmp_path, config, done_steps=4)
    reused = [draw.draw_id for draw in resumed.ledger.unfinished_draws() if draw.state == "scored"]
    assert len(reused) >= GROUPS_PER_STEP
    resumed.train()
    asked = {line.split()[1].split(".")[0] for line in resumed.log if line.startswith("generate ")}
    assert not asked & {f"draw-{draw_id}" for draw_id in reused}
    ids = ", ".join(str(draw_id) for draw_id in reused)
    assert resumed.rows(f"SELECT DISTINCT status, attempt FROM draws WHERE draw_id IN ({ids})") == [
        ("trained", 0)
    ]
    first = resumed.trainer.batches[0]
    assert len(first.samples) == GROUPS_PER_STEP * NUM_GENERATIONS
    assert first.samples[0].old_logprobs == (0.0, 0.0, 0.0, -0.5, -0.25)
    assert audit(resumed.folder.path).violations == ()


def test_groups_scored_by_other_rewards_are_made_again(tmp_path: Path) -> None:
    FakeRun(tmp_path, config_of(1)).die_in(5)
    changed = Config.model_validate(
        config_of(1).model_dump(mode="json") | {"rewards": {"preset": "tests_only"}}
    )
    resumed = FakeRun(tmp_path, changed, done_steps=4)
    draws = resumed.ledger.unfinished_draws()
    assert draws and {draw.state for draw in draws} == {"issued"}
    reasons = [text for (text,) in resumed.rows("SELECT text FROM events WHERE kind = 'requeued'")]
    assert any("prompt, task, sampling or rewards are others than they were" in str(text) for text in reasons)
    resumed.train()
    assert audit(resumed.folder.path).violations == ()


def test_groups_that_a_users_own_code_had_a_part_in_are_made_again(tmp_path: Path) -> None:
    # Its text may have changed in between, and the settings only name it.
    config = Config.model_validate(
        config_of(1).model_dump(mode="json") | {"rewards": {"custom": ["my_rewards:short"]}}
    )
    FakeRun(tmp_path, config).die_in(5)
    resumed = FakeRun(tmp_path, config, done_steps=4)
    assert {draw.state for draw in resumed.ledger.unfinished_draws()} == {"issued"}
    resumed.train()
    assert audit(resumed.folder.path).violations == ()


def test_groups_that_smaller_steps_cannot_take_in_time_are_made_again(tmp_path: Path) -> None:
    FakeRun(tmp_path, config_of(3)).die_in(5)
    smaller = {"max_steps": NUM_STEPS, "gradient_accumulation_steps": 1}
    config = make_config(1, training=smaller, output={"save_steps": 1})
    resumed = FakeRun(tmp_path, config, done_steps=4)
    num_scored = sum(draw.state == "scored" for draw in resumed.ledger.unfinished_draws())
    assert num_scored > 2, "more than two steps of one group can take"
    resumed.train()
    reasons = resumed.rows("SELECT text FROM events WHERE kind = 'requeued'")
    assert len(reasons) >= num_scored - 2
    assert {str(text).split(": ")[1] for (text,) in reasons} == {"no step is left that could take it in time"}
    assert max(resumed.trainer.staleness) <= 1
    assert audit(resumed.folder.path).violations == ()


def test_a_run_that_is_made_longer_goes_on_in_its_epoch(tmp_path: Path) -> None:
    """What was dropped because the last step had its groups is still to come: six tasks, six groups."""
    acceleration = {"max_staleness": 2}
    output = {"save_steps": 1}
    run = FakeRun(tmp_path, make_config(acceleration=acceleration, output=output)).die_in(2)
    for max_steps, done_steps in ((2, 1), (3, 2)):
        config = make_config(training={"max_steps": max_steps}, acceleration=acceleration, output=output)
        run = FakeRun(tmp_path, config, done_steps=done_steps).train()
    assert run.rows("SELECT COUNT(*) FROM draws WHERE status = 'dropped'") > [(0,)]
    assert len({task_id for _, _, task_id in trained(run)}) == len(TASKS)
    assert audit(run.folder.path).violations == ()


def test_what_a_group_rests_on_is_told_apart_by_all_of_it() -> None:
    task, other = TASKS[0], TASKS[1]
    digest = GroupBasis(make_config()).digest(task, (1, 2))
    pinned = make_config(model={"revision": "0123abc"})
    assert digest == GroupBasis(pinned).digest(task, (1, 2)), "config.yaml names it from the start on"
    assert digest == GroupBasis(make_config(training={"learning_rate": 0.1})).digest(task, (1, 2))
    different = [
        GroupBasis(make_config()).digest(task, (1, 3)),
        GroupBasis(make_config()).digest(other, (1, 2)),
        GroupBasis(make_config(generation={"temperature": 0.5})).digest(task, (1, 2)),
        GroupBasis(make_config(execution={"timeout": 1.5})).digest(task, (1, 2)),
        GroupBasis(make_config(rewards={"preset": "tests_only"})).digest(task, (1, 2)),
        GroupBasis(make_config(grpo={"num_generations": 8})).digest(task, (1, 2)),
    ]
    assert len({digest, *different}) == 1 + len(different)


def test_an_open_draw_of_a_task_that_is_gone_is_not_used_again(tmp_path: Path) -> None:
    config = config_of(1, curriculum=True)
    FakeRun(tmp_path, config).die_in(1)
    ledger = ledger_of(tmp_path)
    draws = ledger.unfinished_draws()
    gone = draws[0].task_id
    tasks = [task for task in TASKS if task.task_id != gone]
    sampler = Sampler(tasks, config.acceleration.curriculum, 0)
    resumed = restore(config, ledger, sampler, 0, tasks, lambda task: (1, 2, 3))
    ledger.close()
    num_gone = sum(draw.task_id == gone for draw in draws)
    assert resumed == (
        f"resumed from step 0: {len(draws) - num_gone} scored groups are used again, "
        f"{num_gone} draws are issued again"
    )


def test_the_last_good_checkpoint_is_taken_and_it_is_said_where_none_is_left(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, config_of(0, save_steps=4)).train()
    for step in (4, 8):
        write_checkpoint(run.folder.checkpoint(step), step)
    told: list[str] = []
    with contextlib.closing(ledger_of(tmp_path)) as ledger:
        assert find_checkpoint(run.folder.path, ledger, told.append) == run.folder.checkpoint(8)
        (run.folder.checkpoint(8) / "weights").write_text("ab")
        assert find_checkpoint(run.folder.path, ledger, told.append) == run.folder.checkpoint(4)
        assert told == [
            f"checkpoint {run.folder.checkpoint(8)} is passed over: weights has 2 bytes, expected 3"
        ]
        (run.folder.checkpoint(4) / "weights").unlink()
        assert find_checkpoint(run.folder.path, ledger, told.append) is None
        assert "weights is missing" in told[-2]
        assert told[-1].startswith("none of the run's checkpoints is left (step-000008 was the last)")


def test_seeds_of_requests_are_far_apart_and_refused_where_they_do_nothing() -> None:
    seeds = [request_seed(seed, f"draw/{draw_id}") for seed in range(3) for draw_id in range(100)]
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert min(b - a for a, b in zip(sorted(seeds), sorted(seeds)[1:], strict=False)) > 64
    config = make_config(generation={"seed_requests": True})
    with pytest.raises(ValueError, match=r"generation\.seed_requests: value True: vLLM on a CPU"):
        refuse_useless_seeds(config, "cpu")
    refuse_useless_seeds(config, "cuda")
    refuse_useless_seeds(make_config(generation={"seed_requests": True, "engine": "transformers"}), "cpu")
    refuse_useless_seeds(make_config(), "cpu")
