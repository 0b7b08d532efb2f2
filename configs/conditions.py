"""What several settings say together: why a technique that is on cannot act, and what is derived of them."""

from __future__ import annotations

from configs.schema import Config


def why_not_streamed(config: Config) -> str | None:
    """The setting for which a step is trained on when all its groups are there; None if there is none."""
    if config.grpo.scale_rewards == "batch":
        return "grpo.scale_rewards: batch divides by the standard deviation of the whole step's rewards"
    if config.grpo.loss_type == "bnpo":
        return "grpo.loss_type: bnpo divides by the tokens of sequences that follow each other in the step"
    return None


def can_overlap(config: Config) -> bool:
    """Whether anything could run beside the trainer: a later step, or the rest of its own."""
    acceleration = config.acceleration
    return acceleration.max_staleness > 0 or (acceleration.stream_steps and why_not_streamed(config) is None)


# A trial of overlap costs a few steps in the slower order: not worth it in a shorter run.
LEAST_TRIAL_STEPS = 20


def why_no_overlap_trial(config: Config) -> str | None:
    """The setting for which a run has nothing to try out about overlap, whatever its hardware."""
    if config.runtime.placement != "auto":
        return f"runtime.placement: {config.runtime.placement} is a choice of the user's"
    if not can_overlap(config):
        return "nothing overlaps: acceleration.max_staleness is 0 and steps are not streamed"
    if config.cluster.is_joined:
        return "on a cluster the stages have hardware of their own"
    if config.training.max_steps < LEAST_TRIAL_STEPS:
        return f"training.max_steps: fewer than {LEAST_TRIAL_STEPS}, a trial would take most of the run"
    return None


def why_not_cached(config: Config) -> str | None:
    """The reward for which no verdict is kept: it may come out otherwise for the same program."""
    if any(config.rewards.custom_weights):
        return "rewards.custom: what users' functions say of a program may change"
    weights = [source.weights.get("performance") for source in config.rewards.per_source.values()]
    if config.rewards.weights.performance > 0 and 0 not in weights:
        return "rewards.weights.performance is above 0: a measurement differs from one run to the next"
    return None


def needs_no_kl(config: Config) -> str | None:
    """The setting for which a group without signal has a gradient all the same."""
    if config.grpo.beta > 0:
        return "grpo.beta is above 0: such groups feel the KL term"
    return None


def needs_shared_prompt(config: Config) -> str | None:
    """The setting for which every sequence goes through the model by itself."""
    if not config.acceleration.shared_prompt:
        return "acceleration.shared_prompt is false: sequences share nothing"
    return None


def needs_asynchrony(config: Config) -> str | None:
    """The setting for which nothing is being written when the weights change."""
    if config.acceleration.max_staleness == 0:
        return "acceleration.max_staleness is 0: nothing is being written when the weights change"
    return None


def needs_curriculum(config: Config) -> str | None:
    """The setting for which tasks are drawn uniformly."""
    if not config.acceleration.curriculum.enabled:
        return "acceleration.curriculum.enabled is false: tasks are drawn uniformly"
    return None


def needs_vllm(config: Config) -> str | None:
    """The setting for which there are no drafts, no prefix cache and no weights in 8 bits."""
    if config.generation.engine != "vllm":
        return f"generation.engine: {config.generation.engine} cannot; vllm can"
    return None


def why_not_quantised(config: Config) -> str | None:
    """The setting for which the engine's weights stay as they are."""
    if (why := needs_vllm(config)) is not None:
        return why
    generation = config.generation
    if config.cluster.is_joined and generation.quantization == "auto":
        return "on a cluster what its nodes have is not known: generation.quantization names it"
    is_compiled = generation.enforce_eager is False
    if config.runtime.device == "cpu" and generation.quantization == "auto" and is_compiled:
        return "generation.enforce_eager is false: what is compiled cannot leave int8"
    return None


def may_leave_int8(config: Config) -> bool:
    """Whether a run whose generator is too far from the trained policy leaves int8: nothing else explains it.

    What leaves tokens out makes a mismatch of its own; from fp8 vLLM cannot go back.
    """
    generation = config.generation
    return generation.quantization == "int8" and generation.top_p == 1.0 and not generation.top_k


def max_engine_length(config: Config) -> int:
    """Tokens of one sequence at most that the generator is asked for, by rollouts or measurements."""
    longest = max(config.max_trajectory_length, config.evaluation.max_completion_length)
    return config.generation.max_prompt_length + longest


def held_up_s(config: Config) -> float:
    """For how long an update of the weights may hold up a request that is there already, or comes meanwhile.

    What drains is waited for, besides the update; what is aborted is begun again behind it.
    """
    runtime = config.runtime
    is_held_up = config.generation.weight_update_mode in ("drain", "abort")
    return runtime.generation_timeout_s + runtime.weight_update_timeout_s if is_held_up else 0.0
