"""Loading: precedence, origins, the modes, the examples, and YAML as the project reads it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import configs
from configs.errors import ConfigError
from configs.evaluation_options import EvaluationOptions
from configs.finished import load_finished
from configs.load import MODES, Resolved, load_config, profiles, render, resolve
from configs.schema import Config
from configs.yaml_text import dump_value, parse_value

FOLDER = Path(configs.__file__).parent
EXAMPLES = ("quickstart.yaml", "code_config.yaml", "gpu.yaml", "cluster.yaml", "recipes/coder.yaml")


def _file(folder: Path, text: str) -> Path:
    file = folder / "run.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def _shown(resolved: Resolved) -> dict[str, str]:
    """The lines of the rendered configuration, by what stands before their comments."""
    lines = render(resolved.config, resolved.origins).splitlines()
    return {line.split("#")[0].strip(): line for line in lines}


def test_nothing_given_is_the_defaults_with_mode_balanced() -> None:
    expected = Config().model_dump()
    expected["acceleration"]["curriculum"]["enabled"] = True
    expected["acceleration"]["refill"]["enabled"] = True
    expected["acceleration"]["speculative"]["enabled"] = True
    assert load_config().model_dump() == expected


def test_each_layer_wins_over_those_before_it(tmp_path: Path) -> None:
    file = _file(
        tmp_path, "acceleration: {max_staleness: 0, curriculum: {warmup_steps: 3}}\ntraining: {seed: 1}"
    )
    sets = ["training.seed=2", "training.max_steps=7", "training.max_steps=8"]
    path = "acceleration.max_staleness"
    assert Config().acceleration.max_staleness == 1
    assert load_config(mode="conservative").acceleration.max_staleness == 0
    assert load_config(file, mode="balanced").acceleration.max_staleness == 0
    assert load_config(file, overrides=[f"{path}=1"]).acceleration.max_staleness == 1
    assert load_config(file, overrides=[f"{path}=1"], flags={path: 0}).acceleration.max_staleness == 0
    config = load_config(file, overrides=sets, flags={"training.seed": 3})
    assert (config.training.seed, config.training.max_steps) == (3, 8)
    assert config.acceleration.curriculum.enabled and config.acceleration.curriculum.warmup_steps == 3


def test_the_mode_is_taken_from_flag_then_set_then_file(tmp_path: Path) -> None:
    file = _file(tmp_path, "acceleration: {mode: conservative}")
    from_file = load_config(file)
    assert (from_file.acceleration.mode, from_file.acceleration.max_staleness) == ("conservative", 0)
    from_set = load_config(file, overrides=["acceleration.mode=aggressive"])
    assert (from_set.acceleration.mode, from_set.acceleration.max_staleness) == ("aggressive", 2)
    from_flag = load_config(file, "balanced", ["acceleration.mode=aggressive"])
    assert (from_flag.acceleration.mode, from_flag.acceleration.max_staleness) == ("balanced", 1)


def test_the_origin_of_each_value_is_known(tmp_path: Path) -> None:
    file = _file(tmp_path, "training: {max_steps: 3, seed: 1}")
    resolved = resolve(file, None, ["training.seed=2"], {"model.name": "m"})
    assert dict(resolved.origins) == {
        "acceleration.max_staleness": "mode balanced",
        "acceleration.curriculum.enabled": "mode balanced",
        "acceleration.curriculum.strategy": "mode balanced",
        "acceleration.refill.enabled": "mode balanced",
        "acceleration.speculative.enabled": "mode balanced",
        "training.max_steps": str(file),
        "training.seed": "--set training.seed=2",
        "model.name": "command line",
    }
    shown = _shown(resolved)
    assert shown["max_steps: 3"].endswith(f"# {file}")
    assert shown["seed: 2"].endswith("# --set training.seed=2")
    assert shown["name: m"].endswith("# command line")
    assert shown["learning_rate: 3.0e-05"].endswith("# default")


def test_a_preset_over_a_file_that_names_all_it_sets_counts_and_one_over_a_shorter_file_fills_it(
    tmp_path: Path,
) -> None:
    whole = _file(tmp_path, render(load_config(overrides=["rewards.weights.lint=0.25"])))
    rewards = resolve(whole, None, ["rewards.preset=tests_only"]).config.rewards
    assert rewards == load_config(overrides=["rewards.preset=tests_only"]).rewards
    assert resolve(whole, None, ["grpo.beta=0.5"]).config.rewards.weights.lint == 0.25
    tests_only = tmp_path / "tests_only.yaml"
    tests_only.write_text(render(load_config(overrides=["rewards.preset=tests_only"])), encoding="utf-8")
    assert resolve(tests_only, None, ["rewards.preset=default"]).config.rewards == load_config().rewards
    sets = ["rewards.weights.lint=0.5", "rewards.preset=tests_only"]
    assert resolve(whole, None, sets).config.rewards.weights.lint == 0.5
    short = tmp_path / "short.yaml"
    short.write_text("rewards: {weights: {lint: 0.25}}", encoding="utf-8")
    weights = resolve(short, None, ["rewards.preset=tests_only"]).config.rewards.weights
    assert (weights.lint, weights.tests) == (0.25, 1.0)


def test_custom_rewards_over_a_file_bring_their_weights_of_one(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(render(load_config(overrides=["rewards.custom=[a:f]"])))
    for custom, weights in (("[a:f, b:g]", [1.0, 1.0]), ("[]", []), ("[b:g]", [1.0])):
        assert load_config(file, overrides=[f"rewards.custom={custom}"]).rewards.custom_weights == weights
    file.write_text(render(load_config(overrides=["rewards.custom=[a:f]", "rewards.custom_weights=[0.5]"])))
    with pytest.raises(ConfigError, match="one weight for each of the 2"):
        load_config(file, overrides=["rewards.custom=[a:f, b:g]"])
    file.write_text("rewards: {custom: [a:f], custom_weights: [[0.5]]}")
    with pytest.raises(ConfigError, match="custom_weights"):
        load_config(file, overrides=["rewards.custom=[b:g]"])


def test_a_run_that_had_another_preset_before_had_its_own_values_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    before = load_config(overrides=["rewards.tests=all", "rewards.weights.lint=0"])
    after = ["rewards.tests=all", "rewards.weights.lint=0", "rewards.preset=tests_only"]
    file.write_text(render(load_config(overrides=after)))
    changed = {
        f"rewards.weights.{name}": value
        for name, value in before.rewards.weights.model_dump().items()
        if value != load_config(file).rewards.weights.model_dump()[name]
    }
    assert load_config(file).rewards.syntax_failure_reward != before.rewards.syntax_failure_reward
    changed["rewards.syntax_failure_reward"] = before.rewards.syntax_failure_reward
    found = load_finished(file, {"rewards.preset": "default", **changed})
    assert found.rewards == before.rewards


def test_a_preset_of_the_rewards_is_shown_with_the_weights_it_stands_for(tmp_path: Path) -> None:
    sets = [
        "rewards.preset=tests_only",
        "rewards.weights.lint=0.25",
        "rewards.per_source.mbpp.tests=fraction",
    ]
    resolved = resolve(None, None, sets)
    shown = _shown(resolved)
    assert shown["execution: 0.0"].endswith("# rewards.preset tests_only")
    assert shown["syntax_failure_reward: 0.0"].endswith("# rewards.preset tests_only")
    assert shown["tests: all"].endswith("# rewards.preset tests_only")
    assert shown["lint: 0.25"].endswith("# --set rewards.weights.lint=0.25")
    assert shown["tests: fraction"].endswith("# --set rewards.per_source.mbpp.tests=fraction")
    assert shown["type_safety: 0.0"].endswith("# default")
    assert load_config(_file(tmp_path, render(resolved.config))) == resolved.config


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_loads_and_a_mode_is_named_after_its_file(mode: str) -> None:
    config = load_config(mode=mode)
    assert config.acceleration.mode == mode
    assert (FOLDER / "modes" / f"{mode}.yaml").is_file()
    exact_only = mode == "conservative"
    assert config.acceleration.max_staleness == {"conservative": 0, "balanced": 1, "aggressive": 2}[mode]
    assert config.acceleration.curriculum.enabled is not exact_only


def test_files_for_cards_leave_drafts_off_in_every_mode_until_a_card_has_run_them() -> None:
    mode = "aggressive"
    on_cards = [load_config(FOLDER / name, mode) for name in ("gpu.yaml", "cluster.yaml")]
    on_cards += [load_config(profile=name, mode=mode) for name in profiles() if name.startswith("gpu")]
    assert len(on_cards) > 5
    assert not any(config.acceleration.speculative.enabled for config in on_cards)


def test_int8_is_refused_where_the_engine_is_compiled() -> None:
    with pytest.raises(ConfigError, match=r"enforce_eager: false is not allowed; allowed: true with int8"):
        load_config(overrides=["generation.quantization=int8", "generation.enforce_eager=false"])


def test_there_are_no_modes_but_those_of_the_schema() -> None:
    assert sorted(file.stem for file in (FOLDER / "modes").iterdir()) == sorted(MODES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_loads_in_every_mode(example: str) -> None:
    for mode in (None, *MODES):
        load_config(FOLDER / example, mode)


def test_the_example_that_says_it_shows_the_defaults_does() -> None:
    assert load_config(FOLDER / "code_config.yaml") == load_config()


def test_the_quickstart_changes_what_it_says_and_nothing_else() -> None:
    sets = ["rewards.preset=tests_only", "grpo.epsilon_high=0.28", "training.max_steps=100"]
    assert load_config(FOLDER / "quickstart.yaml") == load_config(overrides=sets)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_rendered_configuration_reads_back_as_it_was(example: str, tmp_path: Path) -> None:
    sets = ["generation.assistant_prefill='a\n# b: 1e-5'", 'output.name="1e5"', 'model.revision="2026-01-31"']
    resolved = resolve(FOLDER / example, "conservative", sets)
    assert resolved.config.output.name == "1e5"
    for text in (render(resolved.config), render(resolved.config, resolved.origins)):
        assert load_config(_file(tmp_path, text)) == resolved.config


def _fields(model: type[BaseModel], prefix: str = "") -> list[tuple[str, str | None]]:
    fields = []
    for name, field in model.model_fields.items():
        fields.append((prefix + name, field.description))
        # Those of list[...] and dict[...] as well.
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                fields += _fields(kind, f"{prefix}{name}.")
    return fields


def test_every_field_has_a_description() -> None:
    fields = _fields(Config)
    assert {"acceleration.curriculum.strategy", "rewards.per_source.weights"} <= dict(fields).keys()
    assert [path for path, description in fields if not description] == []


def test_the_full_example_names_every_section_and_every_acceleration_switch() -> None:
    resolved = resolve(FOLDER / "code_config.yaml")
    named = [path for path, origin in resolved.origins.items() if origin.endswith("code_config.yaml")]
    assert {path.split(".")[0] for path in named} == set(Config.model_fields) - {"runtime"}
    guide = (
        "mode async_rewards.enabled async_rewards.workers reward_cache.enabled reward_cache.max_size "
        "curriculum.enabled curriculum.strategy curriculum.warmup_steps speculative.enabled "
        "speculative.num_tokens speculative.dynamic speculative.draft_model token_packing.enabled "
        "token_packing.min_pack_ratio"
    )
    assert {f"acceleration.{path}" for path in guide.split()} <= set(named)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("1_000", 1000),
        ("-3", -3),
        ("0x10", 16),
        ("010", "010"),
        ("12:30", "12:30"),
        ("2026-01-31", "2026-01-31"),
        ("1e", "1e"),
        ("e5", "e5"),
        ("true", True),
        ("null", None),
        ("'8'", "8"),
        ("[a, 1e-3]", ["a", 1e-3]),
        ("", ""),
        ("```python", "```python"),
        ("[open", "[open"),
    ],
)
def test_a_value_is_read_as_users_mean_it(text: str, value: object) -> None:
    read = parse_value(text)
    assert read == value and type(read) is type(value)


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.one_of(_TEXTS, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), st.lists(_TEXTS))
)
def test_a_written_value_reads_back_as_it_was(value: object) -> None:
    text = dump_value(value)
    assert "\n" not in text
    assert parse_value(text) == value


def test_a_number_without_a_point_in_a_file_is_a_number(tmp_path: Path) -> None:
    config = load_config(
        _file(tmp_path, "training: {learning_rate: 3e-6, adam_epsilon: 1}\nlora: {alpha: 16}")
    )
    assert (config.training.learning_rate, config.training.adam_epsilon, config.lora.alpha) == (
        3e-6,
        1.0,
        16.0,
    )


def test_a_section_whose_lines_are_all_comments_keeps_its_defaults(tmp_path: Path) -> None:
    file = _file(
        tmp_path, "training:\n  # seed: 1\nacceleration:\n  reward_cache:\ndataset:\n  columns:\n    # a: b\n"
    )
    with pytest.raises(ValueError, match=r"dataset\.columns: null"):
        load_config(file)
    assert load_config(_file(tmp_path, "training:\nacceleration:\n  reward_cache:\n")) == load_config()


def test_merge_keys_and_anchors_work(tmp_path: Path) -> None:
    text = "training: &t {seed: 4}\nevaluation: {num_samples: 2}\nruntime: {}\n"
    assert load_config(_file(tmp_path, text)).training.seed == 4
    merged = "generation: {<<: {top_p: 0.9, top_k: 5}, top_k: 7}\n"
    generation = load_config(_file(tmp_path, merged)).generation
    assert (generation.top_p, generation.top_k) == (0.9, 7)


def test_a_key_of_columns_can_be_set_beside_those_of_the_file(tmp_path: Path) -> None:
    file = _file(tmp_path, "dataset: {name: someone/some-set, columns: {prompt: question}}")
    config = load_config(file, overrides=["dataset.columns.entry_point=name"])
    assert config.dataset.columns == {"prompt": "question", "entry_point": "name"}


def test_an_evaluation_set_may_be_trained_on_when_it_is_named() -> None:
    assert load_config(overrides=["dataset.allow_evaluation_sets=[mbpp]", "dataset.name=mbpp"])
    assert load_config(overrides=["dataset.allow_evaluation_sets=[ladder-heldout]", "dataset.split=all"])


@pytest.mark.parametrize("name", ["data/sets/mine", "mine", ""])
def test_a_folder_with_a_data_set_is_taken_by_its_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data/sets/mine", "mine"):
        (tmp_path / folder).mkdir(parents=True)
    path = name or str(tmp_path / "mine")
    config = load_config(overrides=[f"dataset.name={path}", f"evaluation.tasks={path}"])
    assert (config.dataset.name, config.evaluation.tasks) == (path, path)
    for other in (f"{path}/none/here", f"{'x' * 5000}"):
        for setting in ("dataset.name", "evaluation.tasks"):
            with pytest.raises(ConfigError, match=r"OWNER/NAME.* or a folder of one"):
                load_config(overrides=[f"{setting}={other}"])


def test_a_file_of_tasks_in_the_home_directory_is_found_and_one_in_another_form_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("mine.jsonl", "data/train.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    config = load_config(overrides=["dataset.name=~/mine.jsonl", "evaluation.tasks=~/mine.jsonl"])
    assert config.dataset.name == config.evaluation.tasks == str(tmp_path / "mine.jsonl")
    for setting in ("dataset.name", "evaluation.tasks"):
        with pytest.raises(ConfigError, match=r"data/train.json.*\.jsonl file.* or a folder of one"):
            load_config(overrides=[f"{setting}=data/train.json"])


def test_a_kl_term_needs_no_other_setting() -> None:
    assert load_config(overrides=["grpo.beta=0.04"]).acceleration.skip_zero_advantages


def test_ks_left_out_are_one_and_the_number_of_samples(tmp_path: Path) -> None:
    assert EvaluationOptions(model="m").ks == (1, 10)
    assert EvaluationOptions(model="m", num_samples=1).ks == (1,)
    samples = tmp_path / "samples.jsonl"
    samples.touch()
    assert EvaluationOptions(samples=str(samples)).ks == (1,)
    assert EvaluationOptions(samples=str(samples), ks=(100,)).ks == (100,)
