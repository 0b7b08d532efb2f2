"""A draft model that learns from the policy's samples, and its way into the engine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from configs.acceleration_schema import DraftLearningConfig
from configs.schema import Config
from pipeline.generation.vllm_generator import VllmGenerator, start_vllm_generator
from pipeline.messages import GenerationRequest, SamplingSettings, TrainBatch, TrainingSample
from pipeline.training.draft_learning import DraftLearner, DraftModel, spread_texts
from pipeline.training.rank import TrainerRank
from pipeline.weights.files import remove_weights, write_weights
from tests.pipeline.generation.test_vllm_speculation import pointed_model
from tests.pipeline.tiny_model import make_byte_tokenizer, make_config, make_model, make_samples, save_model

LENGTHS = [(5, 9), (3, 16), (7, 1), (5, 4), (2, 12), (6, 6)]
BATCH = make_samples(LENGTHS, [0.0] * len(LENGTHS))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models as small as these only wait for a second thread."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("draft"), seed=1)


def make_draft(folder: Path, *, bf16: bool = False, **settings: float) -> DraftModel:
    draft_learning = DraftLearningConfig.model_validate({"enabled": True, **settings})
    return DraftModel(folder, draft_learning, "cpu", bf16=bf16)


def sampled_from(policy: LlamaForCausalLM, num_samples: int) -> tuple[TrainingSample, ...]:
    """Completions of 12 tokens that the policy drew, for prompts of 4."""
    torch.manual_seed(5)
    prompts = torch.randint(3, 53, (num_samples, 4))
    written = cast(Any, policy).generate(
        prompts, do_sample=True, max_new_tokens=12, min_new_tokens=12, top_k=0
    )
    return tuple(
        TrainingSample(
            token_ids=tuple(row),
            num_prompt_tokens=4,
            loss_mask=(0,) * 4 + (1,) * 12,
            old_logprobs=(0.0,) * 16,
            advantage=0.0,
            policy_version=0,
        )
        for row in written.tolist()
    )


@torch.no_grad()
def acceptance(policy: LlamaForCausalLM, draft: DraftModel, samples: Sequence[TrainingSample]) -> float:
    """The mean probability that the policy accepts what the draft model deems likeliest."""
    ids = torch.tensor([sample.token_ids for sample in samples])
    drafted = draft.model(input_ids=ids).logits[:, 3:-1].argmax(dim=-1)
    chances = policy(input_ids=ids).logits[:, 3:-1].softmax(dim=-1)
    return float(chances.gather(2, drafted[:, :, None]).mean())


def test_the_policy_accepts_more_of_a_draft_model_that_learns(folder: Path) -> None:
    policy = make_model(0)
    samples = sampled_from(policy, 32)
    draft = make_draft(folder, rate=1e-2)
    before = acceptance(policy, draft, samples)
    losses = [draft.learn(samples) for _ in range(20)]
    assert losses[-1] < 0.6 * losses[0]
    assert acceptance(policy, draft, samples) > 2 * before


def test_the_loss_is_the_cross_entropy_of_all_completion_tokens(folder: Path) -> None:
    draft = make_draft(folder)
    model = make_model(1)
    total, num_tokens = torch.zeros(()), 0
    for sample in BATCH.samples:
        ids = torch.tensor([sample.token_ids])
        first = sample.num_prompt_tokens
        logits = model(input_ids=ids).logits[0, first - 1 : -1]
        total = total + cross_entropy(logits, ids[0, first:], reduction="sum")
        num_tokens += ids.shape[1] - first
    (total / num_tokens).backward()  # type: ignore[no-untyped-call]
    expected = {name: weight.grad for name, weight in model.named_parameters()}
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert draft.learn(BATCH.samples) == pytest.approx(float(total.detach()) / num_tokens, rel=1e-4)
    for name, weight in draft.model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], atol=1e-4, rtol=1e-3)


def test_it_learns_in_bf16_too_and_its_weights_stay_fp32(folder: Path) -> None:
    exact, rounded = make_draft(folder), make_draft(folder, bf16=True)
    assert rounded.learn(BATCH.samples) == pytest.approx(exact.learn(BATCH.samples), rel=0.02)
    assert {weight.dtype for weight in rounded.model.parameters()} == {torch.float32}


def test_a_step_of_learning_is_bounded_and_draws_from_the_whole_batch() -> None:
    texts = spread_texts(BATCH.samples, 10_000)
    assert [text.token_ids for text in texts] == [sample.token_ids for sample in BATCH.samples]
    assert [text.num_prompt for text in texts] == [num_prompt for num_prompt, _ in LENGTHS]
    for max_tokens in (5, 20, 40):
        texts = spread_texts(BATCH.samples, max_tokens)
        assert sum(len(text.token_ids) for text in texts) <= max_tokens
        assert all(len(text.token_ids) > text.num_prompt for text in texts)
    # Of 76 tokens in six sequences 40 are wanted: every other sequence.
    assert [text.token_ids for text in texts] == [sample.token_ids for sample in BATCH.samples[::2]]


def test_nothing_is_learnt_from_prompts_alone_or_from_a_gradient_that_is_not_finite(folder: Path) -> None:
    draft = make_draft(folder, max_tokens=2)
    weights = {name: weight.clone() for name, weight in draft.model.named_parameters()}
    assert draft.learn(BATCH.samples) != draft.learn(BATCH.samples)  # NaN
    broken = make_draft(folder)
    with torch.no_grad():
        head = broken.model.get_output_embeddings().weight  # type: ignore[no-untyped-call]
        head[9] = float("inf")
    kept = {name: weight.clone() for name, weight in broken.model.named_parameters()}
    broken.learn(BATCH.samples)
    for model, before in ((draft.model, weights), (broken.model, kept)):
        assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


class HeldDraft(DraftModel):
    """Learns nothing, and not before it may."""

    may_go: threading.Event
    fault: Exception | None = None
    learnt: list[int]

    def learn(self, samples: Sequence[TrainingSample]) -> float:
        assert self.may_go.wait(20)
        if self.fault is not None:
            raise self.fault
        self.learnt.append(len(samples))
        return 1.5


def make_held(folder: Path) -> HeldDraft:
    draft = HeldDraft(folder, DraftLearningConfig(), "cpu", bf16=False)
    draft.may_go, draft.learnt = threading.Event(), []
    return draft


def settled(learner: DraftLearner) -> None:
    """Wait until the thread is done."""
    deadline = time.monotonic() + 20
    while learner._learning is not None and not learner._learning.done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_who_publishes_never_waits_and_what_is_learnt_travels_with_a_later_version(
    folder: Path, tmp_path: Path
) -> None:
    draft = make_held(folder)
    learner = DraftLearner(draft, torch.float32)
    assert learner.exchange(str(tmp_path), 0) is None
    # A step in two parts, after one that was begun and given up.
    for part, num in ((0, 5), (0, 2), (1, 1)):
        learner.take(TrainBatch(step=1, samples=BATCH.samples[:num], num_tokens=1, part=part))
    assert learner.exchange(str(tmp_path), 1) is None
    learner.take(TrainBatch(step=2, samples=BATCH.samples[:4], num_tokens=1))
    assert learner.exchange(str(tmp_path), 2) is None, "it is still learning"
    assert learner.metrics() == {}
    draft.may_go.set()
    settled(learner)
    learner.take(TrainBatch(step=3, samples=BATCH.samples, num_tokens=1))
    path = learner.exchange(str(tmp_path), 3)
    assert path == str(tmp_path / "draft-000001.safetensors")
    assert learner.metrics() == {"draft/loss": 1.5}
    settled(learner)
    assert draft.learnt == [3, 6], "the samples of step 2 came while it was learning"
    assert learner.exchange(str(tmp_path), 4) == str(tmp_path / "draft-000003.safetensors")
    assert learner.exchange(str(tmp_path), 5) is None, "each file is handed out once"


def test_the_file_holds_the_weights_and_goes_with_its_update(folder: Path, tmp_path: Path) -> None:
    draft = make_draft(folder)
    learner = DraftLearner(draft, torch.float32)
    learner.take(BATCH)
    learner.exchange(str(tmp_path), 1)
    settled(learner)
    path = learner.exchange(str(tmp_path), 2)
    assert path is not None
    written, named = load_file(path), dict(draft.model.named_parameters())
    assert written.keys() == named.keys()
    assert all(torch.equal(written[name], named[name]) for name in written)
    assert any(not torch.equal(written[name], weight) for name, weight in make_model(1).named_parameters())
    policy = write_weights(
        make_model(0).named_parameters(), str(tmp_path / "policy.safetensors"), 2, torch.bfloat16
    )
    remove_weights(replace(policy, draft_path=path))
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_while_learning_is_raised_where_the_weights_are_asked_for(
    folder: Path, tmp_path: Path
) -> None:
    draft = make_held(folder)
    draft.fault = OSError("no room")
    draft.may_go.set()
    learner = DraftLearner(draft, torch.float32)
    learner.take(BATCH)
    learner.exchange(str(tmp_path), 1)
    settled(learner)
    with pytest.raises(OSError, match="no room"):
        learner.exchange(str(tmp_path), 2)


def test_the_trainers_first_rank_learns_from_each_step_and_publishes_what_it_learnt(
    folder: Path, tmp_path: Path
) -> None:
    config = make_config(
        generation={"dtype": "float32"},
        acceleration={
            "speculative": {
                "enabled": True,
                "method": "draft_model",
                "dynamic": False,
                "draft_model": str(folder),
                "draft_learning": {"enabled": True, "rate": 1e-3},
            }
        },
    )
    policy = save_model(tmp_path / "policy", seed=0)
    rank = TrainerRank(config, str(policy), "cpu", 1, 0, 1)
    rank.start(None)
    first, second = BATCH.samples[:2], BATCH.samples[2:]
    rank.accumulate(TrainBatch(step=1, samples=first, num_tokens=25))
    assert rank.step(TrainBatch(step=1, samples=second, num_tokens=23, part=1)).policy_version == 1
    update = rank.publish(str(tmp_path))
    assert update is not None and update.draft_path is None
    assert rank._draft is not None
    settled(rank._draft)
    rank.step(replace(BATCH, step=2))
    update = rank.publish(str(tmp_path))
    assert update is not None and update.draft_path is not None
    assert (update.policy_version, Path(update.draft_path).name) == (2, "draft-000001.safetensors")
    metrics = rank.step(replace(BATCH, step=3)).metrics
    assert metrics["draft/loss"] == pytest.approx(make_draft(folder).learn(BATCH.samples), rel=1e-4)
    settled(rank._draft)


def config_with(device: str = "cpu", **other: object) -> Config:
    speculative = {"enabled": True, "method": "draft_model", "dynamic": False, "num_tokens": 4}
    return Config.model_validate(
        {
            "generation": {
                "dtype": "float32",
                "max_prompt_length": 32,
                "max_completion_length": 64,
                "kv_cache_gb": 0.1,
                "gpu_memory_utilization": 0.2,
                "enforce_eager": True,
            },
            "evaluation": {"max_completion_length": 64},
            "runtime": {"device": device},
            "acceleration": {
                "speculative": {**speculative, "draft_model": "x", "draft_learning": {"enabled": True}}
            },
            **other,
        }
    )


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        (
            {
                "acceleration": {
                    "speculative": {"enabled": True, "method": "ngram", "draft_learning": {"enabled": True}}
                }
            },
            "draft_learning.enabled: true is not allowed; allowed: false with method ngram",
        ),
        (
            {"generation": {"engine": "transformers"}},
            "acceleration.speculative.draft_learning.enabled: true is not allowed; "
            "allowed: false, or true with generation.engine: vllm",
        ),
        (
            {"cluster": {"address": "auto"}, "runtime": {"device": "cpu"}},
            "draft_learning.enabled: true is not allowed; allowed: false on a cluster",
        ),
    ],
)
def test_learning_without_a_draft_model_that_can_be_reached_is_refused(
    sections: dict[str, object], complaint: str
) -> None:
    config_with()
    with pytest.raises(ValueError, match=complaint):
        config_with("cpu", **sections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """A running engine that drafts with a model."""

    generator: VllmGenerator

    async def write(self, name: str) -> tuple[list[tuple[int, ...]], float]:
        """Greedy completions of a few prompts, and the share of drafted tokens that was accepted."""
        before = await self.generator.stats()
        written = []
        for start in (40, 50, 60, 70):
            request = GenerationRequest(
                request_id=f"{name}-{start}",
                prompt_ids=tuple(range(start, start + 12)),
                num_generations=1,
                sampling=SamplingSettings(temperature=0.0, max_completion_length=48),
            )
            written += [completion.token_ids async for completion in self.generator.generate(request)]
        after = await self.generator.stats()
        drafted = after["drafted"] - before["drafted"]
        assert drafted > 0
        return written, (after["accepted"] - before["accepted"]) / drafted


@pytest.mark.parametrize(
    "device",
    [pytest.param("cuda", marks=pytest.mark.gpu), pytest.param("cpu", marks=pytest.mark.slow)],
)
def test_an_engine_drafts_better_with_what_was_learnt_and_writes_the_same(
    device: str, tmp_path: Path
) -> None:
    policy, tokenizer = pointed_model(0), make_byte_tokenizer()
    for name, model in (("policy", policy), ("draft", pointed_model(1))):
        model.save_pretrained(str(tmp_path / name))
        tokenizer.save_pretrained(str(tmp_path / name))
    config = config_with(device)
    speculative = config.acceleration.speculative.model_copy(update={"draft_model": str(tmp_path / "draft")})
    acceleration = config.acceleration.model_copy(update={"speculative": speculative})
    config = config.model_copy(update={"acceleration": acceleration})

    async def run() -> None:
        generator = await start_vllm_generator(config, str(tmp_path / "policy"), device)
        try:
            engine = Drafting(generator=generator)
            tokens, before = await engine.write("before")
            draft = DraftModel(tmp_path / "draft", DraftLearningConfig(rate=3e-3), device, bf16=False)
            learner = DraftLearner(draft, torch.float32)
            samples = [
                TrainingSample(
                    token_ids=(*range(start, start + 12), *written),
                    num_prompt_tokens=12,
                    loss_mask=(0,) * 12 + (1,) * len(written),
                    old_logprobs=(0.0,) * (12 + len(written)),
                    advantage=0.0,
                    policy_version=0,
                )
                for start, written in zip((40, 50, 60, 70), tokens, strict=True)
            ]
            for _ in range(30):
                draft.learn(samples)
            learner.take(TrainBatch(step=1, samples=tuple(samples), num_tokens=1))
            learner.exchange(str(tmp_path), 1)
            settled(learner)
            # The policy's weights are the same, so whatever changes comes of the draft model.
            update = write_weights(policy.named_parameters(), str(tmp_path / "1"), 1, torch.float32)
            path = learner.exchange(str(tmp_path), 1)
            assert path is not None
            await generator.update_weights(replace(update, draft_path=path))
            again, learnt = await engine.write("learnt")
            assert again == tokens
            assert learnt > before + 0.3
            # A draft model with the policy's own weights is always right: what is written is what is loaded.
            own = write_weights(policy.named_parameters(), str(tmp_path / "own"), 2, torch.float32)
            update = write_weights(policy.named_parameters(), str(tmp_path / "2"), 2, torch.float32)
            await generator.update_weights(replace(update, draft_path=own.path))
            again, perfect = await engine.write("perfect")
            assert again == tokens
            assert perfect > 0.97
            await generator.reset()
            again, first = await engine.write("reset")
            assert again == tokens
            assert first == pytest.approx(before, abs=0.02), "the draft model is the first one again"
        finally:
            await generator.close()

    asyncio.run(run())
