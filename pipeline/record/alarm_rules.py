"""The rules that an alarm rings by: each with its threshold, the reason for it, and the setting to change.

Looks at numbers only: it does not know how they came about, and changes nothing. Thresholds stand where
recorded good runs never come near (tests/pipeline/record/good_runs); docs/when_it_does_not_learn.md has a
line on each rule.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from configs.conditions import may_leave_int8
from configs.schema import Config

Row = Mapping[str, float | None]
WINDOW: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``find`` says what is wrong, or None; its rows are the last steps, at least WINDOW, newest last.

    With ``is_of_measured`` they are all those steps, however long ago, that held-out tasks were measured in.
    """

    name: str
    find: Callable[[Sequence[Row], Config], str | None]
    # As it is then, the run cannot learn.
    is_fatal: bool = False
    # Where stages share a device, they wait for each other by design.
    is_of_own_devices: bool = False
    is_of_measured: bool = False
    is_of_all_tasks: bool = False  # Not told where a curriculum holds harder ones back: they come.


def _last(rows: Sequence[Row], name: str, num: int = WINDOW) -> list[float]:
    """The values of the last ``num`` steps; none where one of them was not measured."""
    values = [row.get(name) for row in rows[-num:]]
    known = [value for value in values if value is not None]
    return known if len(known) == num else []


def _cut_off(rows: Sequence[Row], config: Config) -> str | None:
    # Half: what is cut off earns little whatever it says, so most of what is paid for is then lost.
    shares, longest = _last(rows, "rollout/truncated_share"), config.generation.max_completion_length
    if not shares or min(shares) <= 0.5:
        return None
    return (
        f"{_percent(shares)} of the answers are cut off at generation.max_completion_length ({longest}): "
        f"set it to {2 * longest}, or ask for shorter answers"
    )


def _no_program(rows: Sequence[Row], config: Config) -> str | None:
    # A model that answers in prose at times is trained out of it; one that never shows a program is not.
    shares = _last(rows, "rollout/no_program_share")
    if not shares or min(shares) <= 0.9:
        return None
    return (
        f"no program is found in {_percent(shares)} of the completions: look at samples.jsonl; the model may "
        "be no instruct model, or need another opening of its answer (generation.assistant_prefill, "
        f"{config.generation.assistant_prefill!r})"
    )


def _nothing_compiles(rows: Sequence[Row], config: Config) -> str | None:
    # Even a base model's programs compile now and then, and cut-off ones have an alarm of their own.
    shares, cut_off = _last(rows, "rollout/syntax_failure_share"), _last(rows, "rollout/truncated_share")
    missing = _last(rows, "rollout/no_program_share")
    if not shares or min(shares) < 0.98 or max(cut_off, default=0.0) > 0.5 or max(missing, default=0.0) > 0.9:
        return None
    return (
        f"{_percent(shares)} of the completions do not compile: look at samples.jsonl; lower "
        f"generation.temperature ({config.generation.temperature:g}) to 0.7, or take a model that writes code"
    )


def _no_signal(rows: Sequence[Row], config: Config) -> str | None:
    # Without differences in a group there is no gradient at all.
    shares, num = _last(rows, "rollout/zero_signal_share"), config.grpo.num_generations
    if not shares or min(shares) < 1.0:
        return None
    steps, fits = config.training.gradient_accumulation_steps, config.completions_per_step % (2 * num) == 0
    also = "" if fits else f" and training.gradient_accumulation_steps ({steps}) to {2 * steps}"
    return (
        "in every group all rewards are equal, so there is nothing to learn from: raise grpo.num_generations "
        f"({num}) to {2 * num}{also}, or take tasks of other difficulty (dataset.name)"
    )


def _never_passes(rows: Sequence[Row], config: Config) -> str | None:
    # The tests' own score, which pays for each test: not one of all programs has passed a single test. Where
    # it pays for all of them only, it says nothing of single ones, and a hard start is no fault: more steps.
    modes = (config.rewards.tests, *(source.tests for source in config.rewards.per_source.values()))
    scores = _last(rows, "reward_part/tests", 5 * WINDOW if "all" in modes else WINDOW)
    if not scores or max(scores) > 0.0:
        return None
    passed = f"all tests of its task in {len(scores)} steps" if "all" in modes else "a single test"
    return (
        f"no completion has passed {passed}: the tasks are too hard for the model, or their tests are "
        "wrong; take easier ones (dataset.name), and check the references (docs/own_tasks.md)"
    )


def _always_passes(rows: Sequence[Row], config: Config) -> str | None:
    rates = _last(rows, "rollout/pass_rate")
    late = [row for row in rows[-WINDOW:] if row.get("rollout/first_turn_pass_rate") is not None]
    if not rates or min(rates) < 1.0 or (late and config.rollouts.turn_discount < 1.0):
        return None
    return "every completion passes all tests: there is nothing left to learn here; take harder tasks"


def _pays_for_style(rows: Sequence[Row], config: Config) -> str | None:
    # In good runs they go together at 0.6 and more; by chance, in three steps, below 0.25 in 99 of 100.
    together = _last(rows, "rollout/reward_tests_correlation")
    if not together or statistics.fmean(together) >= 0.2:
        return None
    weights = config.rewards.weights.model_dump().items()
    parts = [f"rewards.weights.{name} ({weight:g})" for name, weight in weights if name != "tests" and weight]
    parts += ["rewards.custom_weights"] if config.rewards.custom else []
    return (
        f"the reward goes with passing tests at {statistics.fmean(together):.2f} only (1: it is the tests): "
        f"what is learnt is something else; lower {', '.join(parts) or 'rewards.custom_weights'}"
    )


def _entropy(rows: Sequence[Row], config: Config) -> str | None:
    # Below 0.01 nats the model writes the same answer again in a group of any usual size.
    values = _last(rows, "train/entropy")
    if not values or max(values) >= 0.01:
        return None
    rate, grpo = config.training.learning_rate, config.grpo
    clips = grpo.loss_type != "cispo" and grpo.importance_sampling_mode == "none"
    is_low = clips and max(grpo.epsilon, grpo.epsilon_high or 0.0) < 0.28
    return (
        f"the policy's entropy is {max(values):.3g} nats: it has stopped to try anything; lower "
        f"training.learning_rate ({rate:g}) to {rate / 3:.1g}{', or set grpo.epsilon_high to 0.28' * is_low}"
    )


def _length(rows: Sequence[Row], config: Config) -> str | None:
    # Answers may become brief as they become right; briefer and no better is a collapse.
    lengths, passed = _last(rows, "rollout/completion_length"), _last(rows, "rollout/pass_rate")
    before = [row for row in rows[:-WINDOW] if row.get("rollout/completion_length") is not None]
    if not lengths or not passed or not before:
        return None
    usual = statistics.median(_number(row, "rollout/completion_length") for row in before)
    best = max(_number(row, "rollout/pass_rate") for row in before)
    if max(lengths) >= usual / 5 or statistics.fmean(passed) > best / 2:
        return None
    rate = config.training.learning_rate
    return (
        f"completions have shrunk from {usual:.0f} to {max(lengths):.0f} tokens"
        f"{', and fewer pass' if best else ''}: lower training.learning_rate ({rate:g}) to {rate / 3:.1g}, "
        "and look at samples.jsonl for what is paid"
    )


def _mismatch(rows: Sequence[Row], config: Config) -> str | None:
    # Rounding differs between two engines; what is far beyond it is weights that did not arrive, another
    # temperature, a kernel. On a CPU with the built-in model (1,400 tokens) bf16 makes it 0.001, fp32 0 to
    # eight digits, and a division by a temperature of 0.9 instead of 1 makes it 0.008 and more.
    limit, generation = config.grpo.mismatch_kl_warning, config.generation
    if may_leave_int8(config):
        # At the first such step the run leaves int8 (pipeline.run.attempt): what counts is measured after it.
        in_int8 = (number for number, row in enumerate(rows) if _number(row, "train/mismatch_kl") > limit)
        rows = rows[next(in_int8, len(rows)) + 1 :]
    # Not measured in every step; where the policy is sharp, one token that bf16 rounds otherwise makes 0.01.
    values = [value for row in rows if (value := row.get("train/mismatch_kl")) is not None][-WINDOW:]
    if len(values) < WINDOW or min(values) <= limit:
        return None
    mend = "set generation.dtype to what training.bf16 says, and generation.weight_update_mode to keep"
    if (generation.quantization != "none" and not may_leave_int8(config)) or config.lora.load_in_4bit:
        mend = (
            "their weights are rounded otherwise (generation.quantization, lora.load_in_4bit): set "
            "grpo.importance_sampling_mode to token_truncate, or generation.quantization to none"
        )
    if generation.top_p < 1 or generation.top_k:
        mend = f"one alone leaves tokens out: set generation.top_p to 1, generation.top_k to 0; or {mend}"
    return (
        f"train/mismatch_kl is {max(values):.3g}, above grpo.mismatch_kl_warning ({limit:g}): generator and "
        f"trainer give the same tokens of the same weights different probabilities; {mend}"
    )


def _ratio(rows: Sequence[Row], config: Config) -> str | None:
    # Every fifth token cut: the correction is then most of the gradient's bias.
    shares = _last(rows, "train/capped_share")
    if not shares or min(shares) <= 0.2:
        return None
    staleness = config.acceleration.max_staleness
    fresher = f"set acceleration.max_staleness ({staleness}) to {staleness - 1}, or " if staleness else ""
    return (
        f"the importance weights of {_percent(shares)} of the tokens are cut off: what trains has moved far "
        f"from what wrote; {fresher}lower training.learning_rate ({config.training.learning_rate:g})"
    )


def _gradient(rows: Sequence[Row], config: Config) -> str | None:
    # Norms of a run vary by a factor of three; ten times the median of all steps before is another regime.
    norms = _last(rows, "train/grad_norm")
    before = [_number(row, "train/grad_norm") for row in rows[:-WINDOW] if row.get("train/grad_norm")]
    if not norms or not before or min(norms) <= 10 * statistics.median(before):
        return None
    rate = config.training.learning_rate
    return (
        f"the gradient's norm is {max(norms):.3g}, {max(norms) / statistics.median(before):.0f} times what "
        f"it was: go back to an earlier checkpoint with training.learning_rate ({rate:g}) at {rate / 3:.1g}"
    )


def _no_effect(rows: Sequence[Row], config: Config) -> str | None:
    # Of the numbers that the generator is sent, in its precision; a block of steps in turn sends them once. A
    # healthy step changes nearly all of fp32's and every hundredth of bf16's; the first one is compared with
    # none. At a schedule's ends steps are small by intent. A step without a gradient changes nothing.
    rate = config.training.learning_rate
    changes = [
        (share, row.get("train/learning_rate") or rate)
        for row in rows
        if (share := row.get("weights/changed_share")) is not None
        and (row.get("train/grad_norm") or 0.0) > 0.0
    ][-WINDOW:]
    if len(changes) < WINDOW - 1 or max(share * rate / now for share, now in changes) >= 0.001:
        return None
    shares = [share for share, _ in changes]
    return (
        f"an update changes {_percent(shares)} of the weights that the generator gets, the others move by "
        f"less than one step of their precision: raise training.learning_rate ({rate:g}) to {100 * rate:.1g}"
    )


def _stale(rows: Sequence[Row], config: Config) -> str | None:
    # As many groups thrown away as trained on.
    thrown = _last(rows, "rollout/requeued_groups")
    if not thrown or min(thrown) <= config.prompts_per_step:
        return None
    return (
        f"{statistics.fmean(thrown):.1f} groups a step are too old to train on and are made again, for "
        f"{config.prompts_per_step} that are trained on: raise acceleration.max_staleness "
        f"({config.acceleration.max_staleness}) by one"
    )


def _no_cache(rows: Sequence[Row], config: Config) -> str | None:
    # A group's completions share their prompt, so that most of it is found unless no block of it is whole.
    shares = _last(rows, "rollout/prompt_cached_share")
    has_cache = config.generation.enable_prefix_caching and config.generation.engine != "transformers"
    if not shares or not has_cache or max(shares) > 0.0:
        return None
    return (
        "nothing of any prompt is found in the generator's cache, although a group shares its prompt: it may "
        f"hold too little, so raise generation.kv_cache_gb ({config.generation.kv_cache_gb:g}), on a GPU "
        "generation.gpu_memory_utilization"
    )


def _idle(rows: Sequence[Row], config: Config) -> str | None:
    # A device that is paid for and waits for half of the time.
    waited, steps = _last(rows, "rollout/wait_s"), _last(rows, "step/seconds")
    busy = _last(rows, "generation/seconds")
    if not waited or not steps or not busy:
        return None
    # A wait may have begun in the step before.
    trainer_idle = [min(1.0, wait / step) for wait, step in zip(waited, steps, strict=True)]
    generator_idle = [1 - work / step for work, step in zip(busy, steps, strict=True)]
    trainer = f"the trainer waits for rollouts in {_percent(trainer_idle)} of the time"
    generators = f"the generators are idle in {_percent(generator_idle)} of the time"
    if min(trainer_idle) > 0.5 and min(generator_idle) > 0.5:
        workers = config.acceleration.async_rewards.workers
        return f"{trainer}, {generators}: raise acceleration.async_rewards.workers ({workers})"
    if min(trainer_idle) > 0.5:
        engines = config.generation.num_engines
        return f"{trainer}: raise generation.num_engines ({engines}) by one, or generation.max_num_seqs"
    if min(generator_idle) > 0.5:
        return f"{generators}: raise runtime.trainer_ranks, or acceleration.max_staleness"
    return None


def _unscored(rows: Sequence[Row], config: Config) -> str | None:
    # A worker that dies now and then costs a few of many; a custom reward that raises for some answers more.
    shares = _last(rows, "rollout/infra_error_share")
    if not shares or min(shares) <= 0.05:
        return None
    own = ", ".join(filter(None, (*config.rewards.custom, config.rollouts.custom_feedback)))
    return (
        f"{_percent(shares)} of the completions could not be scored, so nothing is learnt from them: look at "
        f"their detail in samples.jsonl; it is the sandbox{own and f', or your own code: {own}'}"
    )


def _memory(rows: Sequence[Row], config: Config) -> str | None:
    # What a longer answer or a checkpoint takes for a moment is more than that.
    shares = _last(rows, "host/memory_used_share")
    if not shares or min(shares) <= 0.95:
        return None
    return (
        f"{100 * min(shares):.1f} % of the machine's memory is used: lower generation.kv_cache_gb "
        f"({config.generation.kv_cache_gb:g}), on a CPU, or acceleration.token_packing.max_tokens"
    )


def _held_out_falls(rows: Sequence[Row], config: Config) -> str | None:
    # Its interval lies below an earlier one's, and the reward has risen: what is learnt does not carry over.
    if len(rows) < 2:
        return None
    *earlier, newest = rows
    best = max(earlier, key=lambda row: _number(row, "eval/pass_at_1_low"))
    falls = _number(newest, "eval/pass_at_1_high") < _number(best, "eval/pass_at_1_low")
    if not falls or _number(newest, "rollout/reward_mean") <= _number(best, "rollout/reward_mean"):
        return None
    return (
        f"held-out pass@1 has fallen from {100 * _number(best, 'eval/pass_at_1'):.1f} to "
        f"{100 * _number(newest, 'eval/pass_at_1'):.1f} % while the reward rose: stop and take an earlier "
        "checkpoint (output.save_total_limit), or train on more tasks (dataset.name) at a lower learning rate"
    )


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * statistics.fmean(shares):.3g} %"


def _number(row: Row, name: str) -> float:
    return math.nan if (value := row.get(name)) is None else value


RULES: Final = (
    Rule(name="answers are cut off", find=_cut_off, is_fatal=True),
    Rule(name="no program in the answers", find=_no_program, is_fatal=True),
    Rule(name="nothing compiles", find=_nothing_compiles, is_fatal=True),
    Rule(name="no differences in any group", find=_no_signal, is_fatal=True, is_of_all_tasks=True),
    Rule(name="no test is ever passed", find=_never_passes, is_fatal=True),
    Rule(name="every test is passed", find=_always_passes, is_fatal=True, is_of_all_tasks=True),
    Rule(name="the reward is not the tests", find=_pays_for_style, is_fatal=True),
    Rule(name="entropy has collapsed", find=_entropy, is_fatal=True),
    Rule(name="answers have collapsed", find=_length, is_fatal=True),
    Rule(name="generator and trainer disagree", find=_mismatch),
    Rule(name="importance weights are cut off", find=_ratio),
    Rule(name="the gradient explodes", find=_gradient, is_fatal=True),
    Rule(name="updates have no effect", find=_no_effect, is_fatal=True),
    Rule(name="work is thrown away as too old", find=_stale),
    Rule(name="the prompt cache never hits", find=_no_cache),
    Rule(name="a stage is idle", find=_idle, is_of_own_devices=True),
    Rule(name="answers are not scored", find=_unscored),
    Rule(name="memory is nearly used up", find=_memory),
    Rule(name="held-out falls while the reward rises", find=_held_out_falls, is_of_measured=True),
)
