"""The messages between stages: frozen, typed, nothing else travels on a queue.

Shapes are given for one sequence: P prompt tokens, C completion tokens, T = P + C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from curriculum.task import Task
from rewards.result import RewardResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """What was replaced in one step: groups, those of them that passed all tests throughout, their tokens."""

    num_groups: int = 0
    num_solved: int = 0
    num_tokens: int = 0

    def __add__(self, other: Gated) -> Gated:
        return Gated(
            num_groups=self.num_groups + other.num_groups,
            num_solved=self.num_solved + other.num_solved,
            num_tokens=self.num_tokens + other.num_tokens,
        )


def is_flat(group: RolloutGroup) -> bool:
    """Whether the rewards of a group, two at least, are all equal; what could not be scored has none."""
    rewards = [r.result.reward for r in group.rollouts if not r.result.is_infra_error]
    return len(rewards) >= 2 and max(rewards) == min(rewards)


def gated_of(group: RolloutGroup) -> Gated:
    """The count of one group."""
    scored = [rollout.result for rollout in group.rollouts if not rollout.result.is_infra_error]
    return Gated(
        num_groups=1,
        num_solved=int(all(result.passed for result in scored)),
        num_tokens=sum(rollout.num_sampled for rollout in group.rollouts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How to sample, in vLLM's terms. ``stop`` strings end a completion and stay in its text."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_completion_length: int = 256
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """Ask a generator for ``num_generations`` completions of one prompt.

    ``abort_prefill`` switches early abort on and is the text that opens the answer: a completion whose
    program can no longer compile is ended (pipeline.generation.early_abort).
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    num_generations: int
    sampling: SamplingSettings
    seed: int | None = None
    abort_prefill: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRun:
    """``num_tokens`` tokens in a row that one policy version wrote."""

    policy_version: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a generator wrote.

    ``token_ids`` and ``logprobs`` have length C; a log-probability is the sampled token's under the
    distribution it was drawn from (after temperature). ``finish_reason`` is "stop", "length", or "abort":
    ended early, because no continuation of it compiles. The policy versions are those of the oldest and
    newest weights that wrote a token of it. ``version_runs`` says which wrote which, in order; it may be
    empty where one version wrote all, and is where more is not known than the two. ``num_cached_tokens`` of
    the prompt the generator had read before, for another completion (None: not known). ``receipt`` is the
    code of what the generator held of the newest weights (pipeline.weights.receipts); empty for those of the
    start.
    """

    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: str
    min_policy_version: int
    max_policy_version: int
    version_runs: tuple[VersionRun, ...] = ()
    num_cached_tokens: int | None = 0
    receipt: str = ""

    def __post_init__(self) -> None:
        versions = [run.policy_version for run in self.version_runs]
        if versions:
            assert sum(run.num_tokens for run in self.version_runs) == len(self.token_ids)
            assert (min(versions), max(versions)) == (self.min_policy_version, self.max_policy_version)

    @property
    def token_versions(self) -> tuple[int, ...]:
        """The version that wrote each token, length C; where that is not known, the oldest it can be."""
        if not self.version_runs:
            return (self.min_policy_version,) * len(self.token_ids)
        return tuple(run.policy_version for run in self.version_runs for _ in range(run.num_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTurn:
    """An answer that failed, and the feedback after it: ``num_tokens`` and ``num_feedback_tokens`` long."""

    text: str
    num_tokens: int
    feedback: str
    num_feedback_tokens: int
    reward: float
    outcome: str
    detail: str
    finish_reason: str = "stop"  # ledgers of earlier versions do not say

    @property
    def length(self) -> int:
        """Tokens of the answer and of the feedback on it."""
        return self.num_tokens + self.num_feedback_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A completion with its score.

    After ``earlier`` turns it is a whole conversation: the tokens of ``completion`` are those of all answers
    with the feedback between them, C in all, whose log-probabilities are 0; its text, ``finish_reason`` and
    ``result`` are the last answer's.
    """

    prompt_ids: tuple[int, ...]
    completion: Completion
    result: RewardResult
    earlier: tuple[EarlierTurn, ...] = ()

    @property
    def sampled(self) -> tuple[int, ...]:
        """For each token of ``completion``, length C: 1 where the policy sampled it, 0 for feedback."""
        return self.mask([1] * (len(self.earlier) + 1))

    def mask(self, answers: Sequence[int]) -> tuple[int, ...]:
        """For each token of ``completion``, length C, that of ``answers`` which it is in; 0 for feedback."""
        mask: tuple[int, ...] = ()
        for value, turn in zip(answers, self.earlier, strict=False):
            mask += (value,) * turn.num_tokens + (0,) * turn.num_feedback_tokens
        return mask + (answers[-1],) * (len(self.completion.token_ids) - len(mask))

    @property
    def finish_reasons(self) -> tuple[str, ...]:
        """That of each answer."""
        return (*(turn.finish_reason for turn in self.earlier), self.completion.finish_reason)

    @property
    def num_sampled(self) -> int:
        """Tokens that the policy sampled."""
        return len(self.completion.token_ids) - self.num_feedback_tokens

    @property
    def num_feedback_tokens(self) -> int:
        """Tokens between the answers: feedback, and the chat template's words around it."""
        return sum(turn.num_feedback_tokens for turn in self.earlier)

    @property
    def num_read(self) -> int:
        """Tokens of the prompts of all its turns: each later one has all that came before in it."""
        lengths = [len(self.prompt_ids)]
        for turn in self.earlier:
            lengths.append(lengths[-1] + turn.length)
        return sum(lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """All rollouts of one draw of one task."""

    draw_id: int
    task: Task
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One sequence to train on.

    ``token_ids`` has length T; ``loss_mask``, length T, is 1 on the completion tokens that are trained on;
    ``old_logprobs``, length T, holds the behaviour policy's log-probabilities there (and on what a mask
    leaves out), 0 elsewhere. ``num_prompt_tokens`` is P. ``policy_version`` is the oldest that wrote a token
    of it. ``on_policy``, length T, is 1 on the tokens behind the prompt that the version to be trained wrote;
    empty: on none.
    """

    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    loss_mask: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    advantage: float
    policy_version: int
    on_policy: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    """The samples of one optimiser step, or of a part of it.

    ``part`` counts the parts of the step that the trainer has had before this one.
    """

    step: int
    samples: tuple[TrainingSample, ...]
    part: int = 0

    @property
    def num_tokens(self) -> int:
        """The loss tokens in them."""
        return sum(sum(sample.loss_mask) for sample in self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What an optimiser step did: means over the step, and its cost. It made the weights ``step``.

    ``notes`` say what the trainer has decided since the last one, such as to go on uncompiled.
    """

    step: int
    metrics: Mapping[str, float]
    seconds: float
    num_tokens: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """New weights, ready to be loaded.

    ``kind`` says what ``path`` is: "full", a safetensors file of this host with all weights; "adapter", a
    folder in PEFT's layout whose base is the model that the generator was started with; "base", that model's
    folder; or "offer", the address of the trainer's pipeline.weights.exchange, which sends them.
    ``mode`` says what becomes of completions in flight: see ``generation.weight_update_mode``. ``receipt``
    has the digest of each tensor that was published (pipeline.weights.receipts); empty for a model's folder.
    ``changed_share`` of its numbers are others than in the update before. Without ``is_quantised`` an engine
    that can leave its 8 bits (int8) does so.
    """

    policy_version: int
    path: str
    kind: Literal["full", "adapter", "base", "offer"] = "full"
    mode: Literal["keep", "keep_cache", "drain", "abort"] = "keep"
    receipt: Mapping[str, int] = field(default_factory=dict)
    changed_share: float | None = None
    is_quantised: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsLoaded:
    """A generator's answer to a WeightUpdate: the version it writes with, and how long it stood still for it.

    ``receipt`` has the digests of what it holds, tensor by tensor; of an adapter, those of its factors.
    ``unread`` are the parts of its model that it cannot read for that.

    ``pause_s`` counts from the word to stop to the leave to go on; what it then takes to compute a dropped KV
    cache anew comes on top. Where running requests end first, they do so in it (vLLM), or before it
    (Transformers).
    """

    policy_version: int
    pause_s: float
    receipt: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
