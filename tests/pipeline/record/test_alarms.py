"""Each alarm rings in the third step of its fault, names what to change, and never in a recorded good run."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from configs.load import MODES
from configs.schema import Config
from pipeline.record.alarm_rules import RULES, WINDOW
from pipeline.record.alarms import Alarms

ROOT = Path(__file__).parents[3]
GOOD_RUNS = sorted(Path(__file__).parent.glob("good_runs/*.json.gz"))
# What a good run of the built-in model shows in its first steps.
GOOD: dict[str, float | None] = {
    "rollout/reward_mean": 0.3,
    "rollout/pass_rate": 0.1,
    "rollout/completion_length": 60.0,
    "rollout/prompt_cached_share": 0.7,
    "rollout/truncated_share": 0.2,
    "rollout/syntax_failure_share": 0.4,
    "rollout/no_program_share": 0.1,
    "rollout/zero_signal_share": 0.25,
    "rollout/reward_tests_correlation": 0.8,
    "rollout/requeued_groups": 0.0,
    "rollout/wait_s": 2.0,
    "generation/seconds": 8.0,
    "step/seconds": 10.0,
    "reward_part/tests": 0.15,
    "train/entropy": 0.5,
    "train/grad_norm": 1.0,
    "train/capped_share": 0.0,
    "train/mismatch_kl": 0.001,
    "weights/changed_share": 0.9,
    "host/memory_used_share": 0.5,
}
# By alarm: what the metrics of a run with that fault are, and what its text must name.
FAULTS: Mapping[str, tuple[dict[str, float | None], tuple[str, ...]]] = {
    "answers are cut off": (
        {"rollout/truncated_share": 0.97},
        ("97 %", "generation.max_completion_length (128)", "256"),
    ),
    "no program in the answers": (
        {"rollout/no_program_share": 1.0, "rollout/syntax_failure_share": 1.0},
        ("100 %", "generation.assistant_prefill"),
    ),
    "nothing compiles": (
        {"rollout/syntax_failure_share": 1.0},
        ("100 %", "generation.temperature (1)", "0.7"),
    ),
    "no differences in any group": (
        {"rollout/zero_signal_share": 1.0, "rollout/reward_tests_correlation": None},
        ("grpo.num_generations (8)", "16"),
    ),
    "no test is ever passed": (
        {"reward_part/tests": 0.0, "rollout/pass_rate": 0.0, "rollout/reward_tests_correlation": None},
        ("no completion has passed a single test", "dataset.name"),
    ),
    "every test is passed": (
        {"rollout/pass_rate": 1.0, "reward_part/tests": 1.0, "rollout/reward_tests_correlation": None},
        ("harder tasks",),
    ),
    "the reward is not the tests": (
        {"rollout/reward_tests_correlation": 0.05},
        ("0.05", "rewards.weights.lint (0.1)"),
    ),
    "entropy has collapsed": (
        {"train/entropy": 0.004},
        ("0.004 nats", "training.learning_rate", "grpo.epsilon_high"),
    ),
    "answers have collapsed": (
        {"rollout/completion_length": 6.0, "rollout/pass_rate": 0.0},
        ("from 60 to 6 tokens", "training.learning_rate"),
    ),
    "generator and trainer disagree": (
        {"train/mismatch_kl": 0.2},
        ("0.2", "grpo.mismatch_kl_warning", "generation.dtype"),
    ),
    "importance weights are cut off": (
        {"train/capped_share": 0.4},
        ("40 %", "acceleration.max_staleness"),
    ),
    "the gradient explodes": ({"train/grad_norm": 300.0}, ("300 times", "training.learning_rate")),
    "updates have no effect": (
        {"weights/changed_share": 0.0},
        ("0 %", "training.learning_rate"),
    ),
    "work is thrown away as too old": (
        {"rollout/requeued_groups": 9.0},
        ("9.0 groups", "acceleration.max_staleness"),
    ),
    "the prompt cache never hits": (
        {"rollout/prompt_cached_share": 0.0},
        ("generation.kv_cache_gb (1)",),
    ),
    "a stage is idle": ({"rollout/wait_s": 7.0}, ("70 %", "generation.num_engines (1)")),
    "answers are not scored": ({"rollout/infra_error_share": 0.2}, ("20 %", "samples.jsonl")),
    "memory is nearly used up": ({"host/memory_used_share": 0.97}, ("97.0 %", "generation.kv_cache_gb")),
    "held-out falls while the reward rises": (
        {
            "eval/pass_at_1": 0.1,
            "eval/pass_at_1_low": 0.05,
            "eval/pass_at_1_high": 0.15,
            "rollout/reward_mean": 0.6,
        },
        ("from 30.0 to 10.0 %", "dataset.name"),
    ),
}
MEASURED: dict[str, float | None] = {
    "eval/pass_at_1": 0.3,
    "eval/pass_at_1_low": 0.25,
    "eval/pass_at_1_high": 0.35,
}


def test_every_alarm_has_a_case_and_a_line_in_the_documents() -> None:
    names = [rule.name for rule in RULES]
    assert set(names) == set(FAULTS) and len(names) >= 15
    page = (ROOT / "docs" / "when_it_does_not_learn.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE) == names


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_its_third_step_once_with_the_setting_to_change(name: str) -> None:
    metrics, words = FAULTS[name]
    alarms = Alarms(Config(), shares_device=False)
    for _ in range(5):
        assert alarms.step(GOOD | MEASURED) == []
    told = [alarms.step(GOOD | metrics) for _ in range(WINDOW + 2)]
    # What is measured now and then is known at once.
    first = 0 if name.startswith("held-out") else WINDOW - 1
    assert [len(found) for found in told] == [int(step == first) for step in range(WINDOW + 2)]
    ((rule, text),) = told[first]
    assert rule.name == name
    for word in words:
        assert word in text, text
    # It ends, and is told again when it comes back.
    for _ in range(WINDOW):
        assert alarms.step(GOOD | MEASURED) == []


def test_a_resumed_run_knows_what_came_before_and_says_once_more_what_goes_on() -> None:
    metrics, _ = FAULTS["answers are cut off"]
    before = [GOOD | MEASURED] + [GOOD | metrics] * WINDOW
    alarms = Alarms(Config(), before, shares_device=False)
    ((rule, _),) = alarms.step(GOOD | metrics)
    assert rule.name == "answers are cut off"
    assert alarms.step(GOOD | metrics) == []
    mended = Alarms(Config(), before, shares_device=False)
    assert mended.step(GOOD | MEASURED) == []


@pytest.mark.parametrize(
    "sections", [{"generation": {"quantization": "fp8"}}, {"lora": {"load_in_4bit": True}}]
)
def test_a_mismatch_of_weights_that_are_rounded_otherwise_is_told_as_that(sections: dict[str, Any]) -> None:
    alarms = Alarms(Config.model_validate(sections), shares_device=False)
    told = [text for _ in range(WINDOW) for _, text in alarms.step(GOOD | {"train/mismatch_kl": 0.2})]
    (text,) = told
    assert "generation.quantization to none" in text and "importance_sampling_mode" in text


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 40}])
def test_a_mismatch_of_a_generator_that_cuts_off_tokens_names_that_first(cut: dict[str, Any]) -> None:
    alarms = Alarms(Config.model_validate({"generation": cut}), shares_device=False)
    told = [text for _ in range(WINDOW) for _, text in alarms.step(GOOD | {"train/mismatch_kl": 0.2})]
    (text,) = told
    assert 0 < text.index("generation.top_p to 1") < text.index("generation.top_k to 0")
    assert text.index("generation.top_k") < text.index("generation.dtype")


def test_what_a_run_leaves_int8_for_is_no_alarm_and_what_is_measured_after_it_is_one() -> None:
    alarms = Alarms(Config.model_validate({"generation": {"quantization": "int8"}}), shares_device=False)
    high: dict[str, float | None] = {"train/mismatch_kl": 0.2}
    # Only the first step of a block is of the policy in training.
    rows = [GOOD | high, *[GOOD | {"train/mismatch_kl": None}] * 4]
    assert [alarm for row in rows for alarm in alarms.step(row)] == []
    told = [alarms.step(GOOD | high) for _ in range(WINDOW)]
    assert told[: WINDOW - 1] == [[]] * (WINDOW - 1)
    ((_, text),) = told[-1]
    assert "grpo.mismatch_kl_warning" in text and "generation.dtype" in text


def test_a_mismatch_of_one_step_is_no_alarm_where_it_is_not_measured_in_every_step() -> None:
    alarms = Alarms(Config(), shares_device=False)
    # In turn with a staleness of one: every second step, and one token of a sharp policy in one of them.
    values = [0.001, None, 0.0111, None, 0.001, None, 0.02, None, 0.02, None]
    assert [alarm for value in values for alarm in alarms.step(GOOD | {"train/mismatch_kl": value})] == []
    ((rule, _),) = alarms.step(GOOD | {"train/mismatch_kl": 0.02})
    assert rule.name == "generator and trainer disagree"


def test_a_fault_from_the_first_step_on_is_told_in_the_third() -> None:
    alarms = Alarms(Config(), shares_device=False)
    rows = [
        GOOD | {"rollout/truncated_share": 0.97, "weights/changed_share": None if step == 1 else 0.0}
        for step in (1, 2, 3)
    ]
    told = [[rule.name for rule, _ in alarms.step(row)] for row in rows]
    assert told == [[], [], ["answers are cut off", "updates have no effect"]]


def test_blocks_of_steps_that_send_their_weights_once_are_told_of_without_effect() -> None:
    alarms = Alarms(Config(), shares_device=False)
    told = []
    for step in range(1, 13):
        told += alarms.step(GOOD | {"weights/changed_share": 0.0 if step % 3 == 0 and step > 3 else None})
    assert [rule.name for rule, _ in told] == ["updates have no effect"]


@pytest.mark.parametrize(
    ("discount", "first_turn", "is_told"),
    [(0.8, 0.7, False), (0.8, None, True), (1.0, 0.7, True)],
    ids=["late passes earn less", "no answer went on", "all passes earn the same"],
)
def test_passes_throughout_are_no_fault_where_late_ones_earn_less(
    discount: float, first_turn: float | None, is_told: bool
) -> None:
    config = Config.model_validate({"rollouts": {"max_turns": 2, "turn_discount": discount}})
    faulty, _ = FAULTS["every test is passed"]
    row = GOOD | faulty | {"rollout/first_turn_pass_rate": first_turn}
    alarms = Alarms(config, shares_device=False)
    # In the last step all may have passed at once.
    last = row | {"rollout/first_turn_pass_rate": None}
    told = [rule.name for one in (*[row] * (WINDOW - 1), last) for rule, _ in alarms.step(one)]
    assert told == ["every test is passed"] * is_told


def test_one_odd_step_is_no_fault() -> None:
    alarms = Alarms(Config(), shares_device=False)
    for step in range(30):
        odd = {name: value for metrics, _ in FAULTS.values() for name, value in metrics.items()}
        assert alarms.step({**GOOD, **(odd if step % 3 == 2 else {}), "eval/pass_at_1": None}) == []


def test_measurements_far_apart_are_compared_too() -> None:
    alarms = Alarms(Config(), shares_device=False)
    worse, _ = FAULTS["held-out falls while the reward rises"]
    told = []
    for step in range(1, 76):
        measured = {25: MEASURED, 50: MEASURED, 75: worse}.get(step, {})
        told += [(step, rule.name) for rule, _ in alarms.step(GOOD | measured)]
    assert told == [(75, "held-out falls while the reward rises")]


def test_stages_that_share_a_device_may_wait_for_each_other() -> None:
    alarms = Alarms(Config(), shares_device=True)
    assert [alarms.step(GOOD | {"rollout/wait_s": 7.0}) for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize(("share_of_rate", "is_told"), [(1.0, True), (0.1, False), (None, True)])
def test_small_changes_are_a_fault_at_the_peak_of_a_schedule_and_none_at_its_ends(
    share_of_rate: float | None, is_told: bool
) -> None:
    config = Config()
    rate = None if share_of_rate is None else share_of_rate * config.training.learning_rate
    alarms = Alarms(config, shares_device=False)
    row = GOOD | {"weights/changed_share": 0.0005, "train/learning_rate": rate}
    told = [rule.name for _ in range(WINDOW) for rule, _ in alarms.step(row)]
    assert told == ["updates have no effect"] * is_told


def test_where_trainer_and_generators_both_wait_it_is_scoring_that_is_slow() -> None:
    alarms = Alarms(Config(), shares_device=False)
    row = GOOD | {"rollout/wait_s": 12.0, "generation/seconds": 1.0}
    ((_, text),) = [found for _ in range(WINDOW) for found in alarms.step(row)]
    assert "waits for rollouts in 100 % of the time, the generators are idle in 90 %" in text
    assert "acceleration.async_rewards.workers" in text


def test_steps_without_a_gradient_change_nothing_and_are_told_as_what_they_are() -> None:
    alarms = Alarms(Config(), shares_device=False)
    row = GOOD | {"weights/changed_share": 0.0, "rollout/zero_signal_share": 1.0, "train/grad_norm": 0.0}
    told = [rule.name for _ in range(WINDOW) for rule, _ in alarms.step(row)]
    assert told == ["no differences in any group"]


@pytest.mark.parametrize(
    ("rewards", "step"),
    [
        ({"tests": "fraction"}, WINDOW),
        ({"tests": "all"}, 5 * WINDOW),
        ({"tests": "fraction", "per_source": {"mbpp": {"tests": "all"}}}, 5 * WINDOW),
        ({"tests": "fraction", "per_source": {"mbpp": {"weights": {"lint": 0.0}}}}, WINDOW),
    ],
)
def test_a_score_that_pays_for_all_tests_only_says_nothing_of_single_ones(
    rewards: dict[str, object], step: int
) -> None:
    alarms = Alarms(Config.model_validate({"rewards": rewards}), shares_device=False)
    row = GOOD | FAULTS["no test is ever passed"][0]
    told = {number: [rule.name for rule, _ in alarms.step(row)] for number in range(1, 5 * WINDOW + 1)}
    assert [number for number, names in told.items() if names] == [step]
    assert told[step] == ["no test is ever passed"]


def test_steps_of_a_warm_start_in_which_no_answer_passes_are_no_groups_without_differences() -> None:
    alarms = Alarms(Config.model_validate({"grpo": {"warm_start_steps": 4}}), shares_device=False)
    row = GOOD | FAULTS["no differences in any group"][0]
    told = [[rule.name for rule, _ in alarms.step(row)] for _ in range(4 + WINDOW)]
    assert told == [[]] * (3 + WINDOW) + [["no differences in any group"]]


@pytest.mark.parametrize(
    ("grpo", "is_advised"),
    [
        ({}, True),
        ({"epsilon_high": 0.28}, False),
        ({"importance_sampling_mode": "token_truncate"}, False),
        ({"loss_type": "cispo", "epsilon_high": 5.0}, False),
    ],
)
def test_a_wider_clipping_range_is_advised_where_it_would_do_something(
    grpo: dict[str, object], is_advised: bool
) -> None:
    alarms = Alarms(Config.model_validate({"grpo": grpo}), shares_device=False)
    row = GOOD | FAULTS["entropy has collapsed"][0]
    *_, ((_, text),) = (alarms.step(row) for _ in range(WINDOW))
    assert ("grpo.epsilon_high" in text) == is_advised


@pytest.mark.parametrize(
    ("curriculum", "rings_in"),
    [
        ({"stages": [{"until_step": 6, "max_difficulty": 1}, {}], "enabled": True}, 9),
        ({"warmup_steps": 4, "enabled": True}, 7),
        ({"warmup_steps": 4, "enabled": False}, 3),
    ],
)
def test_what_a_curriculum_holds_back_is_not_missed(curriculum: dict[str, Any], rings_in: int) -> None:
    config = Config.model_validate({"acceleration": {"curriculum": curriculum}})
    alarms = Alarms(config, shares_device=False)
    row = GOOD | {"rollout/pass_rate": 1.0, "rollout/zero_signal_share": 1.0}
    told = [{rule.name for rule, _ in alarms.step(row)} for _ in range(10)]
    missed = {"every test is passed", "no differences in any group"}
    assert [step for step, names in enumerate(told, 1) if names & missed] == [rings_in]
    assert missed <= told[rings_in - 1]


def test_a_larger_group_is_advised_with_steps_that_hold_it() -> None:
    row = GOOD | {"rollout/zero_signal_share": 1.0}
    config = Config.model_validate(
        {"training": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 3}}
    )
    alarms = Alarms(config, shares_device=False)
    texts = [text for _ in range(3) for _, text in alarms.step(row)]
    advised = "grpo.num_generations (8) to 16 and training.gradient_accumulation_steps (3) to 6, or"
    assert len(texts) == 1 and advised in texts[0]


def test_what_was_not_measured_rings_nothing() -> None:
    alarms = Alarms(Config(), shares_device=False)
    assert [alarms.step({}) for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize("path", GOOD_RUNS, ids=lambda path: path.name.partition(".")[0])
def test_no_alarm_in_a_good_run(path: Path) -> None:
    """Recorded whole: metrics.jsonl and settings of runs that learnt; how they were made stands in them."""
    run: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    alarms = Alarms(Config.model_validate(run["config"]), shares_device=run["shares_device"])
    assert len(run["rows"]) >= 6
    assert [text for row in run["rows"] for _, text in alarms.step(row)] == []
    names = {name for row in run["rows"] for name in row}
    assert {
        name for metrics, _ in FAULTS.values() for name in metrics if name.partition("/")[0] != "eval"
    } <= names


def test_there_are_good_runs_of_every_mode_and_of_a_real_code_model() -> None:
    configs = [
        Config.model_validate(json.loads(gzip.decompress(path.read_bytes()))["config"]) for path in GOOD_RUNS
    ]
    assert {config.acceleration.mode for config in configs} == set(MODES)
    assert any("coder" in config.model.name for config in configs)
