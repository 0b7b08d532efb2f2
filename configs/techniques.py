"""Every technique that may make a run faster: its class, its settings, where its gain comes from, its proof.

One table for all who speak of techniques: ``train_accelerated --explain``, the benchmark that switches each
on alone and off, the guide's table. A test holds it against the settings and the tests that there are.
Switches nothing itself.

The classes are those of the three modes: ``exact`` leaves the expected gradient as it is, ``rounds`` does so
but for rounding, ``corrected`` changes what is sampled or by whom and corrects the gradient for it or changes
only which tasks are asked, ``approximate`` changes the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from configs.conditions import (
    needs_asynchrony,
    needs_curriculum,
    needs_no_kl,
    needs_shared_prompt,
    needs_vllm,
    why_no_overlap_trial,
    why_not_cached,
    why_not_quantised,
    why_not_streamed,
)
from configs.schema import Config

Exactness = Literal["exact", "rounds", "corrected", "approximate"]
# What a mode may switch on (configs/modes).
PROMISES: Final[Mapping[str, tuple[Exactness, ...]]] = {
    "conservative": ("exact", "rounds"),
    "balanced": ("exact", "rounds", "corrected"),
    "aggressive": ("exact", "rounds", "corrected", "approximate"),
}
Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """One technique.

    ``off`` maps dotted settings to the values at which it is off, ``on`` to those that switch it on by
    itself; it is on when any of ``off`` has another value. ``proof`` names a test, FILE::FUNCTION. ``guard``
    says how a run finds out that it does not pay here, ``idle`` the reason why it does nothing in a
    configuration.
    """

    key: str
    name: str
    exactness: Exactness
    off: Mapping[str, Scalar]
    on: Mapping[str, Scalar]
    gain: str
    proof: str
    guard: str
    idle: Callable[[Config], str | None] = field(default=lambda config: None)

    def is_on(self, config: Config) -> bool:
        """Whether ``config`` asks for it."""
        return any(value_at(config, path) != value for path, value in self.off.items())

    def deciding_setting(self, config: Config) -> str:
        """The setting by which it is on, or off."""
        first, *_ = self.off
        return next((path for path, value in self.off.items() if value_at(config, path) != value), first)


def value_at(config: Config, path: str) -> object:
    """The value of a dotted setting. Raises AttributeError for one that is not there."""
    value: object = config
    for key in path.split("."):
        value = getattr(value, key)
    return value


_NO_NEED = "none needed: it does less work for the same result"
_TASKS = "none: it chooses tasks, it does not change what a step costs"

TECHNIQUES: Final = (
    Technique(
        key="asynchrony",
        name="asynchrony (bounded staleness)",
        exactness="corrected",
        off={"acceleration.max_staleness": 0},
        on={"acceleration.max_staleness": 1},
        gain="generation does not wait for the trainer; an importance ratio corrects for older weights",
        proof="tests/pipeline/rollouts/test_buffer.py::test_a_group_that_is_too_old_is_counted_and_its_slot_is_free",
        guard="the overlap trial: in turn by blocks of steps, where that is faster",
    ),
    Technique(
        key="streaming",
        name="streamed steps",
        exactness="exact",
        off={"acceleration.stream_steps": False},
        on={"acceleration.stream_steps": True},
        gain="the trainer works on the first groups of a step while later ones are written",
        proof="tests/pipeline/training/test_streamed_gradient.py::test_parts_have_the_gradient_of_the_whole_step",
        guard="the overlap trial",
        idle=why_not_streamed,
    ),
    Technique(
        key="placement",
        name="overlap trial",
        exactness="exact",
        off={"runtime.placement": "colocated"},
        on={"runtime.placement": "auto"},
        gain="on shared hardware the stages run at once or in turn, as the first steps show to be faster",
        proof="tests/pipeline/run/test_overlap_trial.py::test_the_faster_order_is_kept_and_the_steps_after_a_change_do_not_count",
        guard="it is one: both orders are measured",
        idle=why_no_overlap_trial,
    ),
    Technique(
        key="in_flight",
        name="weights that change between two tokens",
        exactness="corrected",
        off={"generation.weight_update_mode": "drain"},
        on={"generation.weight_update_mode": "keep"},
        gain="no completion has to end before the generator takes new weights",
        proof="tests/pipeline/generation/test_weight_updates_in_flight.py::test_each_token_has_the_version_and_the_probability_of_the_weights_that_wrote_it",
        guard=_NO_NEED,
        idle=needs_asynchrony,
    ),
    Technique(
        key="packing",
        name="token packing",
        exactness="exact",
        off={"acceleration.token_packing.enabled": False},
        on={"acceleration.token_packing.enabled": True},
        gain="no padding goes through the model; fewer, larger matrix products",
        proof="tests/pipeline/training/test_exact_step.py::test_each_technique_keeps_the_gradient",
        guard="none: rows are as long as memory allows (training.memory)",
    ),
    Technique(
        key="shared_prompt",
        name="shared prompt",
        exactness="exact",
        off={"acceleration.shared_prompt": False},
        on={"acceleration.shared_prompt": True},
        gain="a prompt goes through the trained model once a group, not once a completion",
        proof="tests/pipeline/training/test_shared_prompt.py::test_a_shared_prompt_keeps_loss_and_gradient",
        guard=_NO_NEED,
    ),
    Technique(
        key="shared_prefix",
        name="shared prefix",
        exactness="exact",
        off={"acceleration.shared_prefix": False},
        on={"acceleration.shared_prefix": True},
        gain="what all answers of a group begin with is trained once, and so are equal answers",
        proof="tests/pipeline/training/test_shared_prefix.py::test_shared_beginnings_keep_loss_and_gradient",
        guard=_NO_NEED,
        idle=needs_shared_prompt,
    ),
    Technique(
        key="zero_skip",
        name="groups without signal skipped",
        exactness="exact",
        off={"acceleration.skip_zero_advantages": False},
        on={"acceleration.skip_zero_advantages": True},
        gain="a group whose rewards are equal has no gradient and is left out of the forward",
        proof="tests/pipeline/training/test_exact_step.py::test_each_technique_keeps_the_gradient",
        guard=_NO_NEED,
        idle=needs_no_kl,
    ),
    Technique(
        key="bf16",
        name="bf16 copy with fp32 masters",
        exactness="rounds",
        off={"training.bf16": False},
        on={"training.bf16": True},
        gain="forward and backward in bf16; trained weights, gradient sums and optimiser stay fp32",
        proof="tests/pipeline/training/test_precision.py::test_gradients_of_the_bf16_copy_are_summed_in_fp32",
        guard="off by itself where the processor has no bf16 instructions",
    ),
    Technique(
        key="async_rewards",
        name="scoring beside generation",
        exactness="exact",
        off={"acceleration.async_rewards.enabled": False},
        on={"acceleration.async_rewards.enabled": True},
        gain="a completion is scored when it is finished, not when its group is",
        proof="tests/pipeline/rollouts/test_producer.py::test_a_completion_is_scored_before_its_group_is_finished_only_with_score_each",
        guard=_NO_NEED,
    ),
    Technique(
        key="reward_cache",
        name="reward cache",
        exactness="exact",
        off={"acceleration.reward_cache.enabled": False},
        on={"acceleration.reward_cache.enabled": True},
        gain="identical programs run once, also while the first one still runs",
        proof="tests/rewards/test_cache.py::test_a_kept_verdict_comes_back_whole_and_its_seconds_count_as_saved",
        guard="rewards/cache_saved_s says what it saved; a lookup is a hash",
        idle=why_not_cached,
    ),
    Technique(
        key="prefix_caching",
        name="prefix caching",
        exactness="exact",
        off={"generation.enable_prefix_caching": False},
        on={"generation.enable_prefix_caching": True},
        gain="the generator reads the prompt of a group once, but for its last block",
        proof="tests/pipeline/generation/test_vllm_engine.py::test_a_group_reads_its_prompt_once_but_for_the_end",
        guard=_NO_NEED,
        idle=needs_vllm,
    ),
    Technique(
        key="speculative",
        name="speculative decoding",
        exactness="exact",
        off={"acceleration.speculative.enabled": False},
        on={"acceleration.speculative.enabled": True},
        gain="several tokens a forward, drafted from earlier answers to the same task and verified",
        proof="tests/pipeline/generation/test_vllm_samplers.py::test_all_tokens_of_a_draft_jointly_follow_the_distribution",
        guard="dynamic: the length of drafts follows measured costs and acceptance, down to none; a sampler "
        "that fails its self-test is not drafted for",
        idle=needs_vllm,
    ),
    Technique(
        key="quantization",
        name="low-precision rollouts",
        exactness="approximate",
        off={"generation.quantization": "none"},
        on={"generation.quantization": "auto"},
        gain="engine weights in 8 bits (fp8 on a GPU, int8 on a CPU): half the bytes to read for a token, "
        "faster products; the ratio to the generator's probabilities corrects",
        proof="tests/pipeline/generation/test_low_precision.py::test_an_update_quantises_the_new_weights_as_a_start_does",
        guard="auto: off where processor or card has no such products; int8 is left where "
        "train/mismatch_kl is above grpo.mismatch_kl_warning, without top_p and top_k",
        idle=why_not_quantised,
    ),
    Technique(
        key="compile",
        name="compiled training step",
        exactness="rounds",
        off={"training.torch_compile": False},
        on={"training.torch_compile": True},
        gain="elementwise work of a layer in fewer passes over memory",
        proof="tests/pipeline/training/test_compilation.py::test_the_compiled_gradient_equals_the_plain_one",
        guard="a run whose compiler is missing, or fails with one trainer rank, goes on uncompiled",
    ),
    Technique(
        key="curriculum",
        name="curriculum",
        exactness="corrected",
        off={"acceleration.curriculum.enabled": False},
        on={"acceleration.curriculum.enabled": True},
        gain="tasks that are sometimes solved are asked more often: more signal a sample",
        proof="tests/curriculum/test_sampler.py::test_tasks_of_middling_pass_rate_are_drawn_more_than_solved_or_hopeless_ones",
        guard=_TASKS,
    ),
    Technique(
        key="skip_ahead",
        name="solved and hopeless tasks skipped",
        exactness="corrected",
        off={"acceleration.curriculum.skip_ahead.enabled": False},
        on={"acceleration.curriculum.enabled": True, "acceleration.curriculum.skip_ahead.enabled": True},
        gain="a task whose last groups taught nothing is asked less often",
        proof="tests/curriculum/test_skip_ahead.py::test_a_task_without_signal_becomes_rare_and_comes_back_at_the_floor",
        guard=_TASKS,
        idle=needs_curriculum,
    ),
    Technique(
        key="refill",
        name="groups without signal drawn anew",
        exactness="corrected",
        off={"acceleration.refill.enabled": False},
        on={"acceleration.refill.enabled": True},
        gain="every group of a step has something to teach; what it replaces had no gradient",
        proof="tests/pipeline/rollouts/test_gate.py::test_steps_are_full_of_groups_with_signal",
        guard="a budget a step (refill.max_draws)",
    ),
    Technique(
        key="early_abort",
        name="early abort",
        exactness="approximate",
        off={"acceleration.early_abort.enabled": False},
        on={"acceleration.early_abort.enabled": True},
        gain="no tokens are written for a program that can no longer compile",
        proof="tests/pipeline/generation/test_early_abort_gradient.py::test_with_constant_token_weights_the_expected_gradient_is_the_same",
        guard="a balance: it ends where watching costs more than the tokens that it saves",
    ),
)
BY_KEY: Final = {technique.key: technique for technique in TECHNIQUES}
