"""The names of all metrics, with unit and meaning: docs/metrics.md is this table.

    python -m pipeline metrics > docs/metrics.md

Measures nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from configs.command_line import make_parser, run_command


class Metric(NamedTuple):
    """A metric's name, its unit ("" for a share or a plain number) and what it says."""

    name: str
    unit: str
    meaning: str


METRICS = (
    Metric("rollout/reward_mean", "", "mean reward of the step's rollouts, infrastructure errors left out"),
    Metric("rollout/reward_std", "", "standard deviation of those rewards"),
    Metric("rollout/pass_rate", "", "share of rollouts that passed all tests"),
    Metric("rollout/completion_length", "tokens", "mean completion length"),
    Metric("rollout/prompt_cached_share", "", "share of the prompts' tokens found in the generator's cache"),
    Metric("rollout/truncated_share", "", "share of answers that hit the length limit"),
    Metric("rollout/turns", "", "mean number of answers of a rollout (rollouts.max_turns)"),
    Metric("rollout/feedback_tokens", "tokens", "mean length of a rollout's feedback, template included"),
    Metric("rollout/first_turn_pass_rate", "", "share of rollouts whose first answer passed"),
    Metric("rollout/repaired_share", "", "of rollouts with a later answer, the share that passed in the end"),
    Metric("rollout/no_program_share", "", "share of completions in which no program was found"),
    Metric(
        "rollout/reward_tests_correlation",
        "",
        "correlation of the reward with the share of tests that passed",
    ),
    Metric(
        "rollout/zero_signal_share",
        "",
        "share of groups with one reward; in a warm start: where none passed",
    ),
    Metric("rollout/syntax_failure_share", "", "share of completions that do not compile"),
    Metric("rollout/infra_error_share", "", "share of rollouts that could not be scored"),
    Metric(
        "rollout/requeued_groups", "groups", "groups too old to train on, since the last step; made again"
    ),
    Metric("rollout/gated_groups", "groups", "groups without signal that were replaced in the step (refill)"),
    Metric("rollout/gated_solved_groups", "groups", "those of them in which every completion passed"),
    Metric("rollout/gated_tokens", "tokens", "completion tokens that were spent on them"),
    Metric("rollout/refill_budget_used", "", "share of the step's refill budget that was used; 1: spent"),
    Metric("rollout/surplus_groups", "groups", "groups drawn ahead in turn for nothing, since the last step"),
    Metric("rollout/wait_s", "s", "how long the trainer waited for the step's rollouts"),
    Metric("generation/tokens_per_s", "tokens/s", "completion tokens over the seconds generation was busy"),
    Metric("generation/seconds", "s", "seconds generation was busy"),
    Metric("generation/tokens", "tokens", "completion tokens generated since the last step"),
    Metric("generation/aborted", "completions", "completions ended because they could no longer compile"),
    Metric("generation/tokens_saved", "tokens", "estimate: what those would have written on average"),
    Metric("generation/asleep_s", "s", "how long the engine had given its memory to the trainer"),
    Metric("generation/sleep_wake_s", "s", "what giving it and taking it again took"),
    Metric("rewards/seconds_mean", "s", "mean cost of scoring one completion, with feedback on it"),
    Metric("rewards/seconds", "s", "seconds the reward workers were busy"),
    Metric("rewards/cache_hit_rate", "", "share of verdicts found in the cache or in flight"),
    Metric("rewards/cache_hits", "verdicts", "verdicts found in the cache since the last step"),
    Metric("rewards/cache_misses", "verdicts", "verdicts looked up and not there, since the last step"),
    Metric("rewards/cache_joins", "verdicts", "verdicts shared with an identical program in flight"),
    Metric("rewards/cache_evictions", "verdicts", "verdicts that left the cache for newer ones"),
    Metric("rewards/cache_saved_s", "s", "what the verdicts found had cost when they were made"),
    Metric("rewards/in_flight", "completions", "completions in reward workers at the end of the step"),
    Metric("rewards/waiting", "completions", "completions waiting for a reward worker then"),
    Metric("rewards/infra_errors", "completions", "judgements that failed since the last step"),
    Metric("rewards/worker_restarts", "workers", "reward workers replaced since the last step"),
    Metric("train/loss", "", "GRPO loss"),
    Metric("train/grad_norm", "", "gradient norm before clipping"),
    Metric("train/learning_rate", "", "learning rate of the step"),
    Metric("train/tokens_per_s", "tokens/s", "train/tokens over the seconds training was busy"),
    Metric("train/seconds", "s", "seconds of forward, backward and optimiser"),
    Metric(
        "train/tokens",
        "tokens",
        "tokens of the step that are not masked; groups without signal, which are left out exactly, included",
    ),
    Metric("train/clipped_share", "", "share of tokens whose ratio was clipped"),
    Metric("train/capped_share", "", "share of tokens whose importance weight was cut or masked"),
    Metric("train/ratio_mean", "", "mean ratio of trained to behaviour policy"),
    Metric("train/ratio_max", "", "largest of those ratios"),
    Metric("train/ratio_p01", "", "1 % of the tokens have a smaller ratio"),
    Metric("train/ratio_p50", "", "median of those ratios"),
    Metric("train/ratio_p99", "", "1 % of the tokens have a larger ratio"),
    Metric("train/kl", "", "mean KL from the behaviour policy (k3 estimate)"),
    Metric("train/on_policy_share", "", "share of trained tokens that the version in training wrote itself"),
    Metric("train/mismatch_kl", "", "KL of generator to trainer on those tokens (k3): engines that differ"),
    Metric("train/mismatch_kl_k1", "", "the same, estimated without bias by the mean log-ratio (k1)"),
    Metric("train/parts", "parts", "parts in which the step was trained on, as its groups came"),
    Metric("train/micro_batches", "micro-batches", "forward and backward passes of the step"),
    Metric("train/entropy", "nats", "mean entropy of the policy's distribution over the next token"),
    Metric("train/reference_kl", "nats", "mean KL from the reference policy, where beta is above 0"),
    Metric("train/num_trained_tokens", "tokens", "those of train/tokens that the loss was computed on"),
    Metric("train/padding_share", "", "share of the computed tokens that were padding"),
    Metric(
        "train/shared_prompt_tokens", "tokens", "prompt tokens not computed again, being shared by a group"
    ),
    Metric(
        "train/shared_prefix_tokens",
        "tokens",
        "completion tokens not computed again: their group begins with them, or has the same completion",
    ),
    Metric(
        "train/skipped_samples",
        "samples",
        "samples without advantage, or all masked: not computed",
    ),
    Metric("train/skipped_share", "", "share of the samples that were skipped so"),
    Metric("train/pack_ratio", "", "share of the row length in force that rows hold; 0: nothing packed"),
    Metric("train/gpu_memory_gb", "GB", "most memory that the trainer held on its (first) GPU in the step"),
    Metric("train/mfu", "", "share of the GPUs' bf16 peak that the step's needed operations are (MFU)"),
    Metric("train/staleness_mean", "steps", "mean age of a sample's oldest token"),
    Metric("train/staleness_max", "steps", "age of the oldest token of the step"),
    Metric("train/token_staleness_mean", "steps", "mean age of a token"),
    Metric("rollout/mixed_version_share", "", "share of completions that more than one version wrote"),
    Metric("generation/drafted_tokens", "tokens", "tokens that speculation proposed since the last step"),
    Metric("generation/draft_acceptance", "", "share of those that the model kept"),
    Metric("weights/update_s", "s", "from the end of the step to new weights in the generator"),
    Metric("weights/pause_s", "s", "of that, how long the engines were told to stand still"),
    Metric("weights/changed_share", "", "share of the published numbers that the step changed (a sample)"),
    Metric("host/memory_used_share", "", "share of the machine's or container's memory that is not free"),
    Metric("step/seconds", "s", "wall time of the step"),
    Metric("step/samples_per_s", "samples/s", "trained completions over that time"),
    Metric("step/per_s", "steps/s", "steps since the run began or was resumed, over that time"),
    Metric("step/per_s_recent", "steps/s", "the same over the last six steps"),
    Metric("eval/pass_at_1", "", "pass@1 on the held-out tasks, measured while training goes on"),
    Metric("eval/pass_at_1_low", "", "lower end of its 95 % interval"),
    Metric("eval/pass_at_1_high", "", "upper end of its 95 % interval"),
    Metric("eval/num_tasks", "tasks", "held-out tasks of that measurement"),
    Metric("eval/policy_version", "", "the version that it was started for"),
    Metric("eval/newest_policy_version", "", "the newest version that wrote a token of it"),
)

# What they say of a step is of the card and the moment, not of what was computed.
OF_THE_CARD = ("train/gpu_memory_gb", "train/mfu")

# One metric for each reward, or each level, that a run has.
FAMILIES = (
    Metric("curriculum/offered_level_N", "draws", "draws of tasks of difficulty N since the run began"),
    Metric("curriculum/visited_level_N", "groups", "scored groups of such tasks since the run began"),
    Metric("reward_part/NAME", "", "mean unweighted score of one reward (tests, syntax, lint, a custom one)"),
    Metric("level_pass_rate/level_N", "", "share of rollouts of tasks of difficulty N that passed all tests"),
)


def as_markdown() -> str:
    """The text of docs/metrics.md."""
    rows = [
        f"| `{metric.name}` | {metric.unit or '1'} | {metric.meaning} |" for metric in (*METRICS, *FAMILIES)
    ]
    return "\n".join([_HEAD, *rows]) + "\n"


_HEAD = """\
# Metrics

One line a step in `RUN/metrics.jsonl` (with `output.logging_steps` one for so many), of every step in
`steps.metrics` of `RUN/run.db`, and the lines under the same names in trackio, wandb and TensorBoard. "1"
is a share or a plain number. Made by `python -m pipeline metrics`; a test holds this table against the code.

`output.report_to` says which of those: `auto` (the default: trackio where it is installed), `none`, a name,
or a list of names. To see the curves while a run trains: `trackio show --project code-grpo`, or
`tensorboard --logdir RUN/tensorboard`, or the run's own page, `train_accelerated --watch RUN`.

| name | unit | meaning |
|---|---|---|"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the page of the metrics; returns the exit status."""
    return run_command(make_parser("python -m pipeline metrics", "Print docs/metrics.md."), argv, _print)


def _print(_: argparse.Namespace) -> int:
    print(as_markdown(), end="")
    return 0
