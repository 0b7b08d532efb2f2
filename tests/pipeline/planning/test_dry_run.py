"""A dry run: every profile fits the card that it is for, the estimate is near what was measured, errors."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import huggingface_hub
import pytest

from benchmarks.train_step.job import VARIANTS
from configs.load import profiles, resolve
from configs.schema import Config, ModelConfig
from pipeline.cli import _card_of, train_accelerated
from pipeline.host.device import for_device
from pipeline.models.packaged import QWEN_CODER
from pipeline.planning import dry_run
from pipeline.planning.dry_run import Machine, chosen_limit, expected_faults, this_machine
from pipeline.planning.memory_estimate import engine_parts, find_shape, kv_tokens, processes, read_shape
from pipeline.training.memory import (
    BYTES,
    MicroBatchLimit,
    ModelShape,
    limits,
    num_adapter_parameters,
    published_bytes,
    trainer_parts,
)
from tests.pipeline.tiny_model import make_model

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "train_step_cpu.json"
OWN_VARIANTS = [
    name
    for name in json.loads(MEASURED.read_text(encoding="utf-8"))["variants"]
    if not name.startswith("trl")
]
CARDS = {"gpu-16gb": "16", "gpu-24gb": "24", "gpu-24gb-7b": "24", "gpu-80gb": "80", "gpu-141gb": "141"}
# What each model's config.json on the hub says of sizes (arXiv:2412.15115, arXiv:2505.09388): hidden,
# layers, heads, key-value heads, feed-forward, vocabulary, tied head; and the published parameters in 10^9.
MODELS = {
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": ((896, 24, 14, 2, 4864, 151936, True), 0.49),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": ((1536, 28, 12, 2, 8960, 151936, True), 1.54),
    "Qwen/Qwen2.5-Coder-3B-Instruct": ((2048, 36, 16, 2, 11008, 151936, True), 3.09),
    "Qwen/Qwen2.5-Coder-7B-Instruct": ((3584, 28, 28, 4, 18944, 152064, False), 7.61),
    "Qwen/Qwen3-0.6B": ((1024, 28, 16, 8, 3072, 151936, True), 0.6),
    "Qwen/Qwen3-1.7B": ((2048, 28, 16, 8, 6144, 151936, True), 1.7),
    "Qwen/Qwen3-4B": ((2560, 36, 32, 8, 9728, 151936, True), 4.0),
    "Qwen/Qwen3-8B": ((4096, 36, 32, 8, 12288, 151936, False), 8.2),
}
PUBLISHED = {ModelConfig().name: 0.135} | {name: number for name, (_, number) in MODELS.items()}
_FIELDS = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "vocab_size", "tie_word_embeddings"),
)


@pytest.fixture
def known_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with the config.json of every model of MODELS, and of nothing else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, (sizes, _) in MODELS.items():
        values: dict[str, object] = dict(zip(_FIELDS, sizes, strict=True))
        values |= {"model_type": "qwen3", "head_dim": 128} if "Qwen3" in name else {"model_type": "qwen2"}
        folder = tmp_path / "code-grpo" / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")


def shape_of(model: ModelConfig | None = None) -> ModelShape:
    """The sizes of ``model``, by default the built-in one."""
    shape = find_shape(model or ModelConfig())
    assert shape is not None
    return shape


@pytest.mark.usefixtures("known_models")
@pytest.mark.parametrize("profile", profiles())
def test_every_profile_is_valid_and_fits(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    card = ("--gpu-memory", CARDS[profile]) if profile in CARDS else ("--set", "runtime.device=cpu")
    assert train_accelerated(["--profile", profile, "--dry-run", *card]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for expected in ("steps: ", "micro-batches: ", "tasks: ", "memory at most", "trainer", "generator"):
        assert expected in said.out


@pytest.mark.usefixtures("known_models")
def test_7_b_fits_on_24_gb_part_by_part_update_included(capsys: pytest.CaptureFixture[str]) -> None:
    config = for_device(resolve(profile="gpu-24gb-7b").config, "cuda")
    shape = shape_of(config.model)
    card = this_machine(24.0)
    limit = chosen_limit(config, shape, "cuda", card)
    every = processes(config, shape, "cuda", limit, card.gpu_bytes)
    assert expected_faults(config, shape, "cuda", card, every) == []
    parts = {process.name: process.gpu for process in every}
    engine, trainer = parts["generator"], parts["trainer"]
    head = 2 * 152064 * 3584
    # In bf16 the embedding and the head, in fp8 and in 4 bits all else.
    assert engine["weights"] == pytest.approx(2 * head + (shape.num_parameters - head), rel=0.001)
    assert 5.3e9 < trainer["weights"] < 5.9e9
    assert 0 < engine["an update"] < 0.2e9, "only adapters come"
    assert sum(engine.values()) + sum(trainer.values()) < 24e9 * 0.97
    # Without its 4 and 8 bits, and with all weights on their way, it does not fit.
    assert train_accelerated(
        [
            *("--profile", "gpu-24gb-7b", "--dry-run", "--gpu-memory", "24"),
            *("--set", "lora.load_in_4bit=false", "--set", "generation.quantization=none"),
        ]
    ) == 2  # fmt: skip
    assert "generation.gpu_memory_utilization" in capsys.readouterr().err


@pytest.mark.usefixtures("known_models")
def test_an_update_of_all_weights_is_counted_with_its_largest_tensor() -> None:
    config = for_device(resolve(profile="gpu-80gb").config, "cuda")
    shape = shape_of(config.model)
    assert not config.lora.enabled
    parts = engine_parts(config, shape, "cuda", 80e9)
    width = BYTES[config.generation.dtype]
    assert parts["an update"] == 2 * shape.vocabulary * shape.hidden * width
    assert sum(parts.values()) == pytest.approx(80e9 * 0.22)


def test_the_transformers_engine_holds_the_cache_of_one_request() -> None:
    def cache_of(**sections: object) -> float:
        config = Config.model_validate({"generation": {"engine": "transformers"}, **sections})
        config = for_device(config, "cpu")
        return engine_parts(config, shape_of(config.model), "cpu", None)["KV cache"]

    short = {"num_samples": 1, "max_completion_length": 16}
    group = cache_of(evaluation=short)
    # Groups wait for each other; a measurement's answers may be longer, and more.
    assert cache_of(evaluation=short, training={"gradient_accumulation_steps": 64}) == group
    assert cache_of(evaluation={"num_samples": 16, "max_completion_length": 2048}) > 2 * group
    assert cache_of(evaluation={**short, "enabled": False}) == group


@pytest.mark.usefixtures("known_models")
def test_what_a_card_costs_the_host_is_counted() -> None:
    """The optimiser on its way to a checkpoint, and pinned memory, which comes in powers of two."""
    for lora in (False, True):
        config = resolve(profile="gpu-80gb", overrides=[f"lora.enabled={lora}".lower()]).config
        config = for_device(config, "cuda")
        shape = shape_of(config.model)
        every = {one.name: one.host for one in processes(config, shape, "cuda", limits(config)[0], 80e9)}
        trained = num_adapter_parameters(config, shape) if lora else shape.num_parameters
        assert every["checkpoint"] == {"on its way": 8 * trained}
        sent = every["weights sent"]["to the generator"]
        assert sent == published_bytes(config, shape), "over a file"
        for name, value in (("weight_transport", "collective"), ("placement", "split")):
            runtime = config.runtime.model_copy(update={name: value})
            other = config.model_copy(update={"runtime": runtime})
            (offered,) = (
                one.host["to the generator"]
                for one in processes(other, shape, "cuda", limits(config)[0], 80e9)
                if one.name == "weights sent"
            )
            assert offered == (sent if lora else 2 * sent)
        asleep = every["generator"].get("weights, asleep", 0.0)
        assert asleep in (0.0, 2 * engine_parts(config, shape, "cuda", 80e9)["weights"])
    names = [one.name for one in processes(config, shape, "cpu", limits(config)[0])]
    assert "checkpoint" not in names


def test_only_the_first_of_several_ranks_holds_weights_for_the_generators() -> None:
    config = for_device(Config.model_validate({"runtime": {"trainer_ranks": 4}}), "cpu")
    counts = {one.name: one.count for one in processes(config, shape_of(), "cpu", limits(config)[0])}
    assert (counts["trainer"], counts["weights sent"]) == (4, 1)


def test_several_ranks_of_a_cpu_share_what_the_others_leave() -> None:
    """What the limit that is chosen needs, fits; the next larger one would not."""
    rows = {"token_packing": {"max_tokens": 4096}}
    config = Config.model_validate({"runtime": {"trainer_ranks": 2}, "acceleration": rows})
    config, shape = for_device(config, "cpu"), shape_of()
    every = limits(config)

    def needed(number: int) -> float:
        return sum(one.count * one.host_bytes for one in processes(config, shape, "cpu", every[number]))

    for number in range(1, 3):
        machine = Machine(host_bytes=(needed(number) + needed(number - 1)) / 2, gpu_bytes=None)
        assert chosen_limit(config, shape, "cpu", machine) == every[number]


def test_an_fp8_cache_holds_twice_the_tokens() -> None:
    shape = shape_of()
    plain = for_device(Config.model_validate({"generation": {"dtype": "bfloat16"}}), "cpu")
    changed = plain.generation.model_copy(update={"kv_cache_dtype": "fp8"})
    small = plain.model_copy(update={"generation": changed})
    assert kv_tokens(small, shape, 1e9) == pytest.approx(2 * kv_tokens(plain, shape, 1e9), abs=1)


def test_there_is_a_profile_for_each_card_and_each_purpose() -> None:
    assert set(profiles()) == {*CARDS, "quick", "development", "production"}


@pytest.mark.usefixtures("known_models")
def test_a_card_that_is_too_small_is_an_error_with_the_settings_to_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train_accelerated(["--profile", "gpu-80gb", "--dry-run", "--gpu-memory", "24"]) == 2
    said = capsys.readouterr().err
    assert "generation.gpu_memory_utilization" in said and "lora.enabled" in said


def _on_a_card(
    model: str, gpu_gb: float, *, address: str | None = None, **generation: object
) -> tuple[MicroBatchLimit, list[str], float]:
    """What a run that trains all weights would choose, its faults, the host memory of an engine asleep."""
    changes = {"generation": {"dtype": "bfloat16", **generation}, "training": {"bf16": True}}
    place = {"cluster": {"address": address}, "runtime": {"device": "cuda"}}
    config = Config.model_validate({"model": {"name": model}, **changes, **place})
    shape, machine = shape_of(config.model), Machine(host_bytes=None, gpu_bytes=gpu_gb * 1e9)
    limit = chosen_limit(config, shape, "cuda", machine)
    every = processes(config, shape, "cuda", limit, machine.gpu_bytes)
    engine = next(process for process in every if process.name == "generator")
    return (
        limit,
        expected_faults(config, shape, "cuda", machine, every),
        engine.host.get("weights, asleep", 0.0),
    )


@pytest.mark.usefixtures("known_models")
def test_a_trainer_that_has_the_card_to_itself_counts_on_what_the_sleeping_engine_gives_back() -> None:
    model = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
    asked = limits(Config())[0]
    # 9 GB stay on the card between steps, a step needs some more.
    both, faults, host = _on_a_card(model, 20.0, gpu_memory_utilization=0.5)
    # Weights of 1 GB, in pinned memory, which comes in powers of two.
    assert both != asked and host == pytest.approx(2e9, rel=0.1), "auto: at first they run beside each other"
    alone, faults, host = _on_a_card(model, 20.0, gpu_memory_utilization=0.5, sleep_while_training=True)
    assert alone == asked and faults == [] and host == pytest.approx(2e9, rel=0.1)
    never, _, host = _on_a_card(model, 20.0, gpu_memory_utilization=0.5, sleep_while_training=False)
    assert never == both and host == 0.0
    _, faults, _ = _on_a_card(model, 20.0, gpu_memory_utilization=0.8, sleep_while_training=True)
    assert len(faults) == 1 and "awake, the engine leaves the trainer 4.0 GB" in faults[0]
    # On a cluster each has a card of its own.
    own, faults, host = _on_a_card(model, 20.0, address="auto", gpu_memory_utilization=0.8)
    assert own == asked and faults == [] and host == 0.0


@pytest.mark.usefixtures("known_models")
def test_a_card_that_is_elsewhere_computes_in_bf16(capsys: pytest.CaptureFixture[str]) -> None:
    config = for_device(Config(), "cuda", is_here=False)
    assert config.training.bf16 and config.generation.dtype == "bfloat16"
    model = ("--model", "Qwen/Qwen2.5-Coder-7B-Instruct", "--set", "lora.enabled=true")
    assert train_accelerated([*model, "--dry-run", "--gpu-memory", "48"]) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("known_models")
def test_an_engine_that_reserves_nothing_leaves_its_trainer_the_rest() -> None:
    model = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
    shared, faults, _ = _on_a_card(model, 20.0, engine="transformers")
    assert shared == limits(Config())[0] and faults == []
    _, faults, _ = _on_a_card(model, 8.0, engine="transformers")
    assert len(faults) == 1 and faults[0].startswith("memory: the trainer needs about")
    assert "gpu_memory_utilization" not in faults[0]


@pytest.mark.usefixtures("known_models")
def test_several_engines_on_a_card_take_their_share_each() -> None:
    model = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
    one = _on_a_card(model, 20.0, sleep_while_training=False)[1]
    two = _on_a_card(model, 20.0, sleep_while_training=False, num_engines=2)[1]
    assert one == [] and len(two) == 1 and "it leaves the trainer 4.0 GB of the GPU" in two[0]


def test_on_cards_enough_of_this_machine_the_stages_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "num_gpus", lambda device: 2)
    assert dry_run._as_placed(Config(), "cuda").runtime.placement == "split"
    two = Config.model_validate({"generation": {"num_engines": 2}})
    assert dry_run._as_placed(two, "cuda").runtime.placement == "auto"


@pytest.mark.usefixtures("known_models")
def test_a_cache_without_room_for_the_longest_sequence_of_a_measurement_is_a_fault() -> None:
    generation = {"dtype": "bfloat16", "max_prompt_length": 1024, "max_completion_length": 1024}
    sections = {"generation": generation, "training": {"bf16": True}, "runtime": {"device": "cuda"}}
    config = Config.model_validate({**sections, "evaluation": {"max_completion_length": 4096}})
    shape, machine = shape_of(), this_machine(80.0)
    every = processes(config, shape, "cuda", limits(config)[0], machine.gpu_bytes)
    with pytest.MonkeyPatch.context() as patch:
        for tokens, is_fault in ((5119, True), (5120, False)):
            patch.setattr("pipeline.planning.dry_run.kv_tokens", lambda *_, tokens=tokens: tokens)
            faults = expected_faults(config, shape, "cuda", machine, every)
            assert any("no room for one sequence of 5120 tokens" in fault for fault in faults) == is_fault


@pytest.mark.usefixtures("known_models")
def test_an_engine_that_is_split_over_gpus_shares_with_nobody_and_has_the_cache_of_all_of_them() -> None:
    model = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
    limit, faults, host = _on_a_card(model, 20.0, tensor_parallel_size=2, gpu_memory_utilization=0.8)
    assert limit == limits(Config())[0] and faults == [] and host == 0.0
    shape = shape_of()
    whole, two = (
        Config.model_validate({"generation": {"dtype": "bfloat16", "tensor_parallel_size": size}})
        for size in (1, 2)
    )
    assert kv_tokens(two, shape, 1e9) == pytest.approx(2 * kv_tokens(whole, shape, 1e9), abs=1)
    reserved = [sum(engine_parts(config, shape, "cuda", 80e9).values()) for config in (whole, two)]
    assert reserved == pytest.approx([0.4 * 80e9, 0.9 * 80e9])


def test_more_cards_than_heads_hold_no_more_tokens() -> None:
    shape = shape_of()
    assert shape.kv_heads == 3
    one, *more = (
        kv_tokens(
            Config.model_validate({"generation": {"dtype": "bfloat16", "tensor_parallel_size": size}}),
            shape,
            1e9,
        )
        for size in (1, 3, 4, 9)
    )
    assert more == [pytest.approx(3 * one, abs=2)] * 3


@pytest.mark.usefixtures("known_models")
def test_a_host_that_is_too_small_is_an_error() -> None:
    config = for_device(resolve(overrides=["runtime.device=cpu"]).config, "cpu")
    shape = shape_of(ModelConfig(name="Qwen/Qwen3-8B"))
    every = processes(config, shape, "cpu", limits(config)[0])
    small, large = Machine(host_bytes=16e9, gpu_bytes=None), Machine(host_bytes=1e12, gpu_bytes=None)
    (fault,) = expected_faults(config, shape, "cpu", small, every)
    assert "16.0 GB" in fault and "max_completion_length" in fault
    assert expected_faults(config, shape, "cpu", large, every) == []


@pytest.mark.parametrize("lora", [False, True])
def test_all_weights_of_the_coder_train_with_512_token_answers_on_24_gb(lora: bool) -> None:
    settings = ["runtime.device=cpu", "generation.max_completion_length=512", f"lora.enabled={lora}".lower()]
    config = resolve(overrides=[f"model.name={QWEN_CODER.name}", *settings]).config
    config = for_device(config, "cpu")
    shape = shape_of(config.model)
    assert shape.num_parameters == QWEN_CODER.num_parameters
    machine = Machine(host_bytes=24e9, gpu_bytes=None)
    limit = chosen_limit(config, shape, "cpu", machine)
    every = processes(config, shape, "cpu", limit)
    assert expected_faults(config, shape, "cpu", machine, every) == []
    assert limit.max_tokens >= config.max_sequence_length
    # The test can fail: on a third of that it does not fit.
    third = Machine(host_bytes=8e9, gpu_bytes=None)
    every = processes(config, shape, "cpu", chosen_limit(config, shape, "cpu", third))
    assert expected_faults(config, shape, "cpu", third, every) != []


@pytest.mark.parametrize("address", [None, "local"])
def test_rays_servers_are_counted_where_a_run_starts_them(address: str | None) -> None:
    config = for_device(Config.model_validate({"cluster": {"address": address}}), "cpu")
    shape = shape_of()
    names = [process.name for process in processes(config, shape, "cpu", limits(config)[0])]
    assert names.count("Ray") == (address is not None)


@pytest.mark.parametrize("card", ["0", "-1", "much", "true", "inf"])
def test_a_card_without_a_size_is_refused(card: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_accelerated(["--dry-run", f"--gpu-memory={card}"]) == 2
    assert "--gpu-memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--profile", "gpu-8gb", "--dry-run"], "--profile"),
        (["--gpu-memory", "16"], "--gpu-memory"),
        (["--dry-run", "--set", "grpo.num_generations=5"], "grpo.num_generations"),
        (["--dry-run", "--dataset", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_a_run_would_refuse_a_dry_run_refuses(
    arguments: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_accelerated(arguments) == 2
    assert field in capsys.readouterr().err


def test_a_profile_lies_over_the_mode_and_under_file_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("training: {warmup_steps: 5}\n", encoding="utf-8")
    resolved = resolve(file, "conservative", ["training.max_steps=3"], profile="quick")
    assert resolved.config.training.max_steps == 3
    assert resolved.config.training.warmup_steps == 5
    assert resolved.config.grpo.num_generations == 4
    assert resolved.origins["grpo.num_generations"] == "profile quick"
    assert resolved.origins["acceleration.max_staleness"] == "mode conservative"


def test_a_profile_is_not_taken_for_a_run_that_has_its_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("{}", encoding="utf-8")
    for flag, value in (("--profile", "quick"), ("--speedup-mode", "aggressive")):
        assert train_accelerated(["--resume", str(tmp_path), flag, value]) == 2
        said = capsys.readouterr().err
        assert flag in said and "has its own config.yaml" in said


def test_the_card_of_a_profile_is_known_by_its_name() -> None:
    assert {profile: _card_of(profile) for profile in profiles()} == {
        profile: CARDS.get(profile) for profile in profiles()
    }


@pytest.mark.usefixtures("known_models")
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_config_gives_the_published_number_of_parameters(name: str) -> None:
    shape = shape_of(ModelConfig(name=name))
    assert shape.num_parameters / 1e9 == pytest.approx(PUBLISHED[name], rel=0.02)


@pytest.mark.parametrize("tied", [True, False])
def test_a_models_files_give_its_number_of_parameters(tied: bool, tmp_path: Path) -> None:
    model = make_model(is_tied=tied)
    model.config.save_pretrained(str(tmp_path))
    shape = read_shape(tmp_path / "config.json")
    assert shape.num_parameters == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"model_type": "llama", "hidden_size": "wide"},
        {"model_type": "llama", "num_experts": 8},
        {"model_type": "qwen3_moe"},
    ],
)
def test_a_config_without_sizes_is_refused_by_name(values: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json: gives no sizes of a dense decoder: "):
        find_shape(ModelConfig(name=str(tmp_path)))


@pytest.mark.parametrize("fault", [OSError("no route"), httpx.ConnectError("no such host")])
def test_a_model_that_cannot_be_had_has_a_dry_run_without_memory(
    fault: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(url: str, *, timeout: float) -> None:
        assert "someone/some-model-9B" in url and timeout <= 10.0
        raise fault

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", ask)
    assert train_accelerated(["--dry-run", "--model", "someone/some-model-9B"]) == 0
    said = capsys.readouterr().out
    assert "memory: not known: someone/some-model-9B" in said and "steps: 36" in said


@pytest.mark.parametrize("name", OWN_VARIANTS)
def test_the_trainers_estimate_is_near_the_measured_peak(name: str) -> None:
    """Peaks of processes that only train, of the built-in model (benchmarks.train_step)."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    shape = shape_of()
    batch = measured["batch"]
    num_groups, num_samples = batch["num_groups"], batch["num_samples"]
    prompt = (batch["num_tokens"] - batch["num_completion_tokens"]) // num_samples
    config = Config.model_validate(
        {
            **VARIANTS[name].settings,
            "training": {
                **VARIANTS[name].settings["training"],
                "per_device_train_batch_size": 8,
                "gradient_accumulation_steps": num_samples // 8,
            },
            "grpo": {"num_generations": num_samples // num_groups},
            # Packed rows hold what there is, padded ones as much as their longest.
            "generation": {
                "max_prompt_length": prompt,
                "max_completion_length": batch["num_completion_tokens"] // num_samples
                if VARIANTS[name].settings["acceleration"]["token_packing"]["enabled"]
                else 128,
            },
        }
    )
    parts = trainer_parts(config, shape, "cpu", limits(config)[0])
    estimate_mb = (sum(parts.values()) + 0.6e9) / 1024**2
    assert 1 / 1.5 < estimate_mb / measured["variants"][name]["peak_mb"] < 1.5
