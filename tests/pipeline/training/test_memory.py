"""Micro-batches that fit into memory: which are chosen, that the gradient stays, and what a shortage does."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from configs.schema import Config
from pipeline.errors import TrainerError
from pipeline.messages import TrainBatch
from pipeline.models.loading import load_model
from pipeline.processes.connection import OutOfMemoryError
from pipeline.training import handle, memory
from pipeline.training.batching import StepPlanner
from pipeline.training.handle import TrainerHandle
from pipeline.training.memory import (
    TRAINER_LIBRARIES,
    MicroBatchLimit,
    fitting,
    free_bytes,
    limits,
    micro_batch_tokens,
    published_bytes,
    shape_of,
    trainer_parts,
)
from pipeline.training.micro_batch import MicroBatch
from pipeline.training.trainer import Trainer
from tests.pipeline.tiny_model import make_config, make_groups, make_model, make_tokenizer, save_model
from tests.pipeline.training.builders import assert_each_near


def config_of(
    *,
    packs: bool = True,
    min_pack_ratio: float = 0.0,
    kv_cache_gb: float = 1,
    lora: bool = False,
    **training: object,
) -> Config:
    packing = {"enabled": packs, "max_tokens": 512, "min_pack_ratio": min_pack_ratio}
    return make_config(
        training={"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, **training},
        grpo={"num_generations": 8},
        generation={"max_prompt_length": 24, "max_completion_length": 40, "kv_cache_gb": kv_cache_gb},
        acceleration={"token_packing": packing},
        lora={"enabled": lora},
    )


def test_rows_are_halved_down_to_the_longest_sequence_and_then_checkpointed() -> None:
    found = [(limit.max_tokens, limit.checkpoints) for limit in limits(config_of())]
    sizes = [512, 256, 128, 64]
    assert found == [(size, False) for size in sizes] + [(size, True) for size in sizes]
    assert all(limit.checkpoints for limit in limits(config_of(gradient_checkpointing=True)))


def test_padded_batches_have_half_the_sequences_each_time() -> None:
    found = [limit.max_sequences for limit in limits(config_of(packs=False)) if not limit.checkpoints]
    assert found == [8, 4, 2, 1]


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("lora", [True, False])
def test_each_limit_takes_less_than_the_one_before_it_and_the_first_that_fits_is_taken(
    packs: bool, lora: bool
) -> None:
    config = config_of(packs=packs, lora=lora)
    shape = shape_of(make_model(), "here")
    every = limits(config)
    for checkpoints in (False, True):
        rows = [limit for limit in every if limit.checkpoints is checkpoints]
        tokens = [micro_batch_tokens(config, limit) for limit in rows]
        assert tokens == sorted(tokens, reverse=True) and tokens[-1] < tokens[0]
    needed = [sum(trainer_parts(config, shape, "cpu", limit).values()) for limit in every]
    for number, room in enumerate(needed):
        chosen = fitting(config, shape, "cpu", room)
        assert chosen <= number and needed[chosen] <= room
    assert fitting(config, shape, "cpu", min(needed) - 1) == len(every) - 1
    assert fitting(config, shape, "cpu", 1e12, at_least=2) == 2


def test_checkpointing_and_bf16_lower_the_estimate() -> None:
    shape = shape_of(make_model(), "here")

    def total(limit: MicroBatchLimit, **sections: Any) -> float:
        parts = trainer_parts(make_config(**sections), shape, "cpu", limit, num_tokens=4096)
        return sum(parts.values())

    plain = MicroBatchLimit(max_sequences=8, max_tokens=4096)
    checkpointed = MicroBatchLimit(max_sequences=8, max_tokens=4096, checkpoints=True)
    assert total(checkpointed) < total(plain)
    assert total(plain, training={"bf16": True}) < total(plain, training={"bf16": False})


def test_moments_in_8_bits_and_offloaded_activations_lower_the_estimate() -> None:
    shape = replace(shape_of(make_model(), "here"), layers=10)
    limit = MicroBatchLimit(max_sequences=8, max_tokens=4096, checkpoints=True)

    def parts(**training: Any) -> dict[str, float]:
        config = make_config(training={"bf16": True, "gradient_checkpointing": True, **training})
        return trainer_parts(config, shape, "cuda", limit, num_tokens=4096)

    plain, eight, away = parts(), parts(optim="adamw_8bit"), parts(activation_offloading=True)
    # Two moments of a byte, and a scale of 4 bytes for each 256 of them.
    assert eight["optimiser"] == pytest.approx(shape.num_parameters * 2 * (1 + 1 / 64))
    assert {**eight, "optimiser": plain["optimiser"]} == plain
    # The inputs of the layers, but for the one that is computed and the next.
    assert plain["activations"] - away["activations"] == (shape.layers - 2) * 4096 * shape.hidden * 2
    assert {**away, "activations": plain["activations"]} == plain


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("lora", [False, True])
def test_the_estimate_of_a_layer_is_what_a_backward_keeps(bf16: bool, lora: bool, tmp_path: Path) -> None:
    """Counted by PyTorch's hooks for saved tensors, as the difference of two layers to one."""
    config = make_config(training={"bf16": bf16}, lora={"enabled": lora, "r": 4})
    batch = make_groups((8, 6), [[5, 3, 7, 4], [2, 7, 6, 3]])
    kept: dict[int, int] = {}
    for num_layers in (1, 2):
        folder = tmp_path / str(num_layers)
        model = make_model()
        model.config.num_hidden_layers = num_layers
        type(model)(model.config).save_pretrained(str(folder))
        trainer = Trainer(config, _with_tokenizer(folder))
        kept[num_layers], num_tokens = _kept_bytes(trainer, batch)
    shape = shape_of(load_model(tmp_path / "2"), "here")
    limit = MicroBatchLimit(max_sequences=8, max_tokens=4096)
    # Of a GPU: on a CPU the gaps of its allocator are in it as well.
    estimate = (
        trainer_parts(config, shape, "cuda", limit, num_tokens=num_tokens)["activations"] / shape.layers
    )
    # Attention keeps its sums besides, and tables of places that do not grow with the layers.
    assert (kept[2] - kept[1]) / estimate == pytest.approx(1.0, abs=0.1)


def _with_tokenizer(folder: Path) -> Path:
    make_tokenizer().save_pretrained(str(folder))
    return folder


def _kept_bytes(trainer: Trainer, batch: Any) -> tuple[int, int]:
    """What the forward of ``batch`` keeps for its backward, weights not counted, and its tokens."""
    planner = trainer._planner
    (plan,) = planner.plan(planner.weighted(batch.samples), planner.limit)
    model = trainer._weights.compute_model
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    seen: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            seen.setdefault(place, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        trainer._gradient._backward._forward(model, plan.build("cpu"))
    return sum(tensor.untyped_storage().nbytes() for tensor in seen.values()), plan.num_tokens


def test_every_limit_has_the_gradient_of_the_first(folder: Path) -> None:
    config = config_of(bf16=False)
    batch = make_groups((4, 6), [[5, 3, 9, 30], [2, 7, 8, 6]])
    _, expected = Trainer(config, folder).gradients(batch)
    trainer = Trainer(config, folder)
    for number, limit in enumerate(limits(config)):
        assert trainer.adopt_limit(number) == str(limit)
        _, found = trainer.gradients(batch)
        assert_each_near(found, expected)
    assert trainer._weights.compute_model.is_gradient_checkpointing


@pytest.mark.parametrize("packs", [True, False])
def test_micro_batches_keep_to_what_was_adopted_also_where_rows_would_be_too_empty(
    packs: bool, folder: Path
) -> None:
    config = config_of(packs=packs, min_pack_ratio=0.99, bf16=False)
    trainer = Trainer(config, folder)
    trainer.adopt_limit(2)
    limit = limits(config)[2]
    batch = make_groups((4, 6), [[5, 30, 9, 30], [20, 7, 8, 26]])
    seen = micro_batches_of(trainer, batch)
    if packs:
        assert max(one.input_ids.numel() for one in seen) <= limit.max_tokens
        full = Trainer(config_of(min_pack_ratio=0.0, bf16=False), folder)
        full.adopt_limit(2)
        assert len(micro_batches_of(full, batch)) < len(seen), "rows too empty are not packed"
    assert max(one.num_sequences for one in seen) <= limit.max_sequences or packs
    assert len(seen) > len(micro_batches_of(Trainer(config, folder), batch))


def micro_batches_of(trainer: Trainer, batch: TrainBatch) -> list[MicroBatch]:
    """What goes through the model for the gradient of ``batch``."""
    backward, seen = trainer._gradient._backward, []
    forward = backward._forward

    def see(model: PreTrainedModel, micro_batch: MicroBatch) -> torch.Tensor:
        seen.append(micro_batch)
        return forward(model, micro_batch)

    backward._forward = see
    trainer.gradients(batch)
    return seen


def test_what_a_step_has_learnt_of_memory_is_not_given_up_for_a_larger_limit(folder: Path) -> None:
    config = config_of(bf16=False)
    trainer = Trainer(config, folder)
    first, second, *_ = limits(config)
    learnt = replace(first, max_tokens=second.max_tokens // 2, checkpoints=True)
    trainer._gradient.limit = learnt
    said = trainer.adopt_limit(1)
    sequences = min(first.max_sequences, second.max_sequences)
    assert trainer._gradient.limit == replace(learnt, max_sequences=sequences)
    assert said == str(trainer._gradient.limit)
    trainer._gradient.limit = replace(learnt, checkpoints=False)
    assert trainer.adopt_limit(len(limits(config)) - 1) == str(limits(config)[-1])


@pytest.mark.parametrize(("packs", "sizes"), [(True, [2, 3, 3]), (False, [8])])
def test_padded_batches_of_a_model_without_rows_have_no_more_tokens_than_a_row_would(
    packs: bool, sizes: list[int]
) -> None:
    config = make_config(
        training={"per_device_train_batch_size": 8},
        acceleration={"token_packing": {"enabled": packs, "max_tokens": 64}, "skip_zero_advantages": False},
    )
    planner = StepPlanner(config, supports_rows=False, pad_token_id=0, num_ranks=1)
    batch = make_groups((4, 4), [[5, 16, 16, 5], [5, 16, 5, 5]])
    plans = planner.plan(planner.weighted(batch.samples), planner.limit)
    assert not any(plan.is_packed for plan in plans)
    assert sorted(plan.num_sequences for plan in plans) == sizes
    assert max(plan.num_tokens for plan in plans) <= 64 or not packs


@pytest.mark.parametrize(("packs", "shares"), [(True, True), (True, False), (False, True), (False, False)])
def test_every_rank_has_something_to_do_where_the_samples_suffice(packs: bool, shares: bool) -> None:
    config = make_config(
        acceleration={
            "token_packing": {"enabled": packs, "max_tokens": 4096, "min_pack_ratio": 0.0},
            "shared_prompt": shares,
            "skip_zero_advantages": False,
        }
    )
    planner = StepPlanner(config, supports_rows=True, pad_token_id=0, num_ranks=2)
    batch = make_groups((4,), [[5, 6, 7, 8]])
    assert len(planner.plan(planner.weighted(batch.samples), planner.limit)) >= 2


def test_shorter_groups_may_fill_a_row_to_its_end() -> None:
    """Of three groups of up to 344 tokens two fit into a row of 768, of 256 tokens all three."""
    config = config_of(per_device_train_batch_size=24, gradient_accumulation_steps=1)
    limit = MicroBatchLimit(max_sequences=8, max_tokens=768)
    assert micro_batch_tokens(config, limit) == 768
    planner = StepPlanner(config, supports_rows=True, pad_token_id=0, num_ranks=1)
    batch = make_groups((24,) * 3, [[29] * 8] * 3)
    plans = planner.plan(planner.weighted(batch.samples), limit)
    assert 2 * 344 < max(plan.num_tokens for plan in plans) <= 768


def test_what_other_processes_will_take_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "anonymous_bytes", lambda: TRAINER_LIBRARIES)
    shape, gib = shape_of(make_model(), "here"), 2.0**30

    def free(total: float = 64.0, **sections: Any) -> float:
        monkeypatch.setattr(memory, "memory", lambda: (total, 40.0))
        return free_bytes(make_config(**sections), shape, torch.device("cpu"))

    workers = {"async_rewards": {"workers": 2}}
    everything = free(
        generation={"kv_cache_gb": 3, "num_engines": 2},
        acceleration=workers,
        execution={"max_memory": 512},
    )
    others = published_bytes(make_config(), shape) + 2 * 3 * gib + 0.05 * 64 * gib + 2 * 0.5 * gib
    assert everything == pytest.approx(40 * gib - others)
    assert published_bytes(make_config(), shape) > 0
    # Programs that nobody runs take nothing.
    assert free(acceleration=workers, execution={"max_memory": 512, "enabled": False}) == pytest.approx(
        free(acceleration=workers, execution={"max_memory": 512}) + gib
    )


def test_ranks_of_one_host_share_what_is_free_and_keep_what_each_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory", lambda: (64.0, 40.0))
    monkeypatch.setattr(memory, "anonymous_bytes", lambda: TRAINER_LIBRARIES + 1e9)
    shape = shape_of(make_model(), "here")

    def free(num_ranks: int, **sections: Any) -> float:
        runtime = {"device": "cpu", "trainer_ranks": num_ranks}
        return free_bytes(make_config(runtime=runtime, **sections), shape, torch.device("cpu"))

    assert free(1) > 20 * 2**30
    assert free(4) - 1e9 == pytest.approx((free(1) - 1e9) / 4)
    # On a cluster each may be on a node of its own.
    assert free(4, cluster={"address": "auto"}) == free(1, cluster={"address": "auto"})


def test_there_is_nothing_below_the_smallest(folder: Path) -> None:
    trainer = Trainer(config_of(), folder)
    assert trainer.fit_memory(1) >= 1
    with pytest.raises(MemoryError, match=r"smallest micro-batches.*max_completion_length"):
        trainer.fit_memory(len(limits(config_of())))


class Counter:
    """Stands for the kernel's count of processes that it has ended for want of memory."""

    def __init__(self) -> None:
        self.num = 3

    def __call__(self) -> int:
        return self.num


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Counter:
    counter = Counter()
    monkeypatch.setattr(handle, "num_oom_kills", counter)
    return counter


def test_after_an_end_for_want_of_memory_a_run_goes_on_with_less_and_never_with_the_same(
    kills: Counter, tmp_path: Path
) -> None:
    config = config_of(bf16=False)

    async def go_on() -> list[str | None]:
        trainer = TrainerHandle(config, str(save_model(tmp_path)), "cpu")
        await trainer.start()
        try:
            said = [await trainer.fit_memory(), await trainer.fit_memory()]
            kills.num += 1
            said += [await trainer.fit_memory(), await trainer.fit_memory()]
            await trainer.start()
            trainer._is_short = True
            said += [await trainer.fit_memory(), await trainer.fit_memory()]
        finally:
            trainer.close()
        return said

    said = asyncio.run(go_on())
    assert [words is not None for words in said] == [False, False, True, False, True, False]
    assert said[2] is not None and "at most 256 tokens" in said[2] and "a process lacked memory" in said[2]
    assert said[4] is not None and "at most 128 tokens" in said[4]


def test_fixed_micro_batches_are_not_tried_again_unchanged(kills: Counter, tmp_path: Path) -> None:
    async def go_on() -> None:
        trainer = TrainerHandle(config_of(memory="fixed"), str(tmp_path), "cpu")
        assert await trainer.fit_memory() is None
        kills.num += 1
        with pytest.raises(TrainerError, match=r"training\.memory is fixed"):
            await trainer.fit_memory()

    asyncio.run(go_on())


def test_a_rank_that_ray_has_ended_for_want_of_memory_counts_as_a_shortage(kills: Counter) -> None:
    async def lose() -> bool:
        trainer = TrainerHandle(config_of(), "nowhere", "cpu")
        call: Future[Any] = Future()
        call.set_exception(OutOfMemoryError("Ray has ended its process for want of memory: node full"))
        with pytest.raises(TrainerError, match="want of memory"):
            await trainer._wait([call], "step 1", 5.0, "runtime.train_step_timeout_s")
        return trainer._is_short

    assert asyncio.run(lose())
