"""Model folders and adapters that cannot be loaded: evaluation, training, merging."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from configs.load import load_config
from pipeline.cli import evaluate_humaneval, train_accelerated
from pipeline.handover.command import merge_command as merge
from pipeline.models.files import refuse_misfit, refuse_untrainable
from tests.bad_input.harness import Case, refuse
from tests.bad_input.test_samples import TASKS


def safetensors(header: bytes, num_bytes: int = 8) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(num_bytes)


def layers(*numbers: int) -> bytes:
    """Weights of layers of these numbers."""
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return safetensors(
        json.dumps({f"model.layers.{number}.norm.weight": entry for number in numbers}).encode()
    )


HEADER = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
WEIGHTS = safetensors(HEADER)
CONFIG = b'{"model_type": "llama"}'
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 2048}


def config_with(**fields: object) -> bytes:
    return json.dumps({"model_type": "llama", **SIZES, **fields}).encode()


MODEL = {"config.json": CONFIG, "tokenizer.json": b'{"model": {}}', "model.safetensors": WEIGHTS}
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = {"peft_type": "LORA", "base_model_name_or_path": "/base", "r": 4, "lora_alpha": 8}
ADAPTER = {
    "adapter_config.json": json.dumps(ADAPTER_CONFIG).encode(),
    "adapter_model.safetensors": WEIGHTS,
}

# Files that take the place of good ones (None: the file is missing), what is said.
MODELS: dict[str, tuple[dict[str, bytes | None], tuple[str, ...]]] = {
    "no config.json": ({"config.json": None}, ("model' has no config.json",)),
    "empty config.json": ({"config.json": b""}, ("config.json", "not valid JSON")),
    "cut config.json": ({"config.json": b'{"model_type": "lla'}, ("config.json", "not valid JSON")),
    "config.json a list": ({"config.json": b"[]"}, ("config.json", "JSON object", "list")),
    "config.json not UTF-8": ({"config.json": b'{"a": "\xff"}'}, ("config.json", "not UTF-8")),
    "config.json a folder": (
        {"config.json": None, "config.json/": b""},
        ("has no config.json",),
    ),
    "no model_type": ({"config.json": b"{}"}, ("config.json", "'model_type'", "None")),
    "model_type a number": ({"config.json": b'{"model_type": 3}'}, ("config.json", "'model_type'", "3")),
    "model_type empty": ({"config.json": b'{"model_type": ""}'}, ("config.json", "'model_type'")),
    "a model_type that nobody knows": (
        {"config.json": config_with(model_type="foo")},
        ("config.json", "'model_type'", "value 'foo'", "installed Transformers"),
    ),
    "a model that writes no text": (
        {"config.json": config_with(architectures=["BertModel"])},
        ("config.json", "'architectures'", "['BertModel']", "causal language model"),
    ),
    "fewer layers than it says": (
        {"config.json": config_with(num_hidden_layers=3), "model.safetensors": layers(0, 1)},
        ("config.json", "'num_hidden_layers'", "value 3", "2 layers"),
    ),
    "no tokenizer": ({"tokenizer.json": None}, ("has no tokenizer", "tokenizer.json")),
    "cut tokenizer": ({"tokenizer.json": b'{"model": {'}, ("tokenizer.json", "cut off (11 bytes)")),
    "empty tokenizer": ({"tokenizer.json": b""}, ("tokenizer.json", "cut off (0 bytes)")),
    "tokenizer of text": ({"tokenizer.json": b"hello"}, ("tokenizer.json", "no JSON object")),
    "damaged tokenizer settings": (
        {"tokenizer_config.json": b'{"eos_token": '},
        ("tokenizer_config.json", "not valid JSON"),
    ),
    "no weights": ({"model.safetensors": None}, ("has no weights (model.safetensors)",)),
    "empty weights": ({"model.safetensors": b""}, ("model.safetensors", "(0 bytes)")),
    "seven bytes": ({"model.safetensors": b"1234567"}, ("model.safetensors", "(7 bytes)")),
    "a pointer to weights": (
        {"model.safetensors": b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n"},
        ("model.safetensors", "is no safetensors file"),
    ),
    "a header longer than the file": (
        {"model.safetensors": (10**6).to_bytes(8, "little") + HEADER},
        ("model.safetensors", "cut off"),
    ),
    "a header that is no JSON": (
        {"model.safetensors": safetensors(b"not a header at all")},
        ("model.safetensors", "its header is no JSON"),
    ),
    "a header not UTF-8": ({"model.safetensors": safetensors(b"\xff" * 20)}, ("header is no JSON",)),
    "a header that is a list": ({"model.safetensors": safetensors(b"[1, 2]")}, ("no JSON object",)),
    "a header without offsets": (
        {"model.safetensors": safetensors(b'{"w": {"dtype": "F32"}}')},
        ("model.safetensors", "no offsets"),
    ),
    "a header of texts": ({"model.safetensors": safetensors(b'{"w": "x"}')}, ("no offsets",)),
    "no tensor": ({"model.safetensors": safetensors(b'{"__metadata__": {}}')}, ("holds no tensor",)),
    "cut weights": (
        {"model.safetensors": WEIGHTS[:-3]},
        ("model.safetensors", f"has {len(WEIGHTS) - 3} bytes"),
    ),
    "too many bytes": ({"model.safetensors": WEIGHTS + b"x"}, (f"its header says {len(WEIGHTS)}",)),
    "a damaged index": ({INDEX: b"{"}, (INDEX, "not valid JSON")),
    "an index without a map": ({INDEX: b'{"metadata": {}}'}, (INDEX, "'weight_map'")),
    "an index with a list": ({INDEX: b'{"weight_map": ["a"]}'}, (INDEX, "'weight_map'")),
    "an index of nothing": ({INDEX: b'{"weight_map": {}}'}, (INDEX, "'weight_map'")),
    "a missing part": (
        {INDEX: b'{"weight_map": {"w": "model-00001-of-00002.safetensors"}}'},
        ("model-00001-of-00002.safetensors", "is missing"),
    ),
}


def changed_adapter(**fields: object) -> dict[str, bytes | None]:
    return {"adapter_config.json": json.dumps({**ADAPTER_CONFIG, **fields}).encode()}


ADAPTERS: dict[str, tuple[dict[str, bytes | None], tuple[str, ...]]] = {
    "a damaged adapter_config.json": ({"adapter_config.json": b"{"}, ("adapter_config.json", "not valid")),
    "an adapter_config.json that is a list": ({"adapter_config.json": b"[]"}, ("JSON object", "list")),
    "no base": (changed_adapter(base_model_name_or_path=None), ("'base_model_name_or_path'", "None")),
    "a base that is a number": (
        changed_adapter(base_model_name_or_path=7),
        ("'base_model_name_or_path'", "7"),
    ),
    "no rank": (changed_adapter(r=None), ("'r'", "None")),
    "a rank of zero": (changed_adapter(r=0), ("'r'", "value 0")),
    "a rank in words": (changed_adapter(r="four"), ("'r'", "'four'")),
    "no scale": (changed_adapter(lora_alpha=None), ("'lora_alpha'", "None")),
    "no adapter weights": ({"adapter_model.safetensors": None}, ("adapter_model.safetensors", "is missing")),
    "cut adapter weights": (
        {"adapter_model.safetensors": WEIGHTS[:-1]},
        ("adapter_model.safetensors", "bytes"),
    ),
}


def files_of(base: dict[str, bytes], changes: dict[str, bytes | None]) -> dict[str, bytes]:
    merged: dict[str, bytes | None] = {**base, **changes}
    return {f"model/{name}": data for name, data in merged.items() if data is not None}


evaluate = partial(Case, command=evaluate_humaneval, arguments=("--model", "model", "--tasks", "tasks.jsonl"))
train = partial(Case, command=train_accelerated)
merged = partial(Case, command=merge, arguments=("model", "out"))
ENGINE = ("--set", "generation.engine=transformers")
TRAIN = ("--model", "model", *ENGINE)
CASES = {
    f"evaluate: {name}": evaluate(
        files={"tasks.jsonl": TASKS, **files_of(base, changes)}, says=("--model: ", *says)
    )
    for base, table in ((MODEL, MODELS), (ADAPTER, ADAPTERS))
    for name, (changes, says) in table.items()
} | {
    f"train: {name}": train(
        arguments=TRAIN, files=files_of(MODEL, MODELS[name][0]), says=("model.name: ", *MODELS[name][1])
    )
    for name in ("no config.json", "cut weights", "no tokenizer", "a missing part")
}
CASES |= {
    f"merge: {name}": merged(files=files_of(ADAPTER, changes), says=("model", *says))
    for name, (changes, says) in ADAPTERS.items()
}
CASES |= {
    "a model that is a file": evaluate(
        files={"tasks.jsonl": TASKS, "model": b"weights"}, says=("--model: ", "'model' is a file")
    ),
    "a hub id that is none": train(
        arguments=(*TRAIN, "--push-to-hub", "coder"),
        files=files_of(MODEL, {}),
        says=("output.push_to_hub", "'coder' is no hub id", "OWNER/NAME"),
    ),
    "no such folder": train(
        arguments=("--model", "./none", *ENGINE), says=("model.name: no such folder: './none'",)
    ),
    "a context that is too long": train(
        arguments=(*TRAIN, "--set", "generation.max_prompt_length=2000"),
        files=files_of(MODEL, {"config.json": config_with()}),
        says=("generation.max_prompt_length + ", "2128", "config.json", "2048 tokens"),
    ),
    "a built-in name, misspelt": train(
        arguments=("--model", "smollm2-135-instruct", *ENGINE),
        says=("model.name", "'smollm2-135-instruct'", "did you mean smollm2-135m-instruct?"),
    ),
    "a draft model without weights": train(
        arguments=(
            *TRAIN,
            *("--set", "acceleration.speculative.enabled=true"),
            *("--set", "acceleration.speculative.method=draft_model"),
            *("--set", "acceleration.speculative.dynamic=false"),
            *("--set", "acceleration.speculative.draft_model=./draft"),
        ),
        files={**files_of(MODEL, {}), "draft/config.json": CONFIG, "draft/tokenizer.json": b"{}"},
        says=("acceleration.speculative.draft_model: ", "draft: has no weights"),
    ),
    "nowhere to merge to": merged(
        arguments=("model", "model", "model"),
        files=files_of(ADAPTER, {}),
        says=("model: exists already; give a folder that does not",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed_models_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(CASES[name], tmp_path, capsys)


def test_a_cache_for_less_than_one_sequence_is_refused_on_a_cpu(tmp_path: Path) -> None:
    """2 (keys, values) x 2 layers x 4 heads x 16 x 4 bytes x 640 tokens = 640 KiB."""
    (tmp_path / "config.json").write_bytes(config_with())
    kib = 640 / 2**20
    for size, dtype, device, is_enough in (
        (kib, "float32", "cpu", True),
        (0.99 * kib, "float32", "cpu", False),
        (0.51 * kib, "bfloat16", "cpu", True),
        (0.1 * kib, "float32", "cuda", True),
    ):
        config = load_config(overrides=[f"generation.kv_cache_gb={size}", f"generation.dtype={dtype}"])
        if is_enough:
            refuse_misfit(config, tmp_path, device)
        else:
            with pytest.raises(ValueError, match=r"kv_cache_gb: value .* 640 tokens .* at least 0\.00061"):
                refuse_misfit(config, tmp_path, device)


def test_measurements_that_are_longer_than_the_models_context_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(config_with())
    config = load_config(overrides=["evaluation.max_completion_length=10000"])
    with pytest.raises(ValueError, match=r"evaluation\.max_completion_length: value 10512: .*context of"):
        refuse_misfit(config, tmp_path, "cpu")


def test_positions_that_are_scaled_are_left_to_the_engine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(config_with(rope_scaling={"rope_type": "yarn", "factor": 4.0}))
    refuse_misfit(load_config(overrides=["generation.max_prompt_length=4000"]), tmp_path, "cpu")


@pytest.mark.parametrize("is_part", [False, True])
@pytest.mark.parametrize("name", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_a_mixture_of_experts_is_refused(name: str, is_part: bool, tmp_path: Path) -> None:
    fields = {"model_type": "qwen3_moe", name: 8}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": fields} if is_part else fields))
    with pytest.raises(ValueError, match=rf"model\.name: .*config\.json has {name} = 8.*a dense model"):
        refuse_misfit(load_config(), tmp_path, "cpu")


@pytest.mark.parametrize(
    ("fields", "reason", "works_without_vllm"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, r"quantization_config \(fp8\)", False),
        ({"final_logit_softcapping": 30.0}, r"final_logit_softcapping = 30\.0: models that change", False),
        ({"text_config": {"hidden_size": 64}}, "text_config: models of pictures", True),
        ({"model_type": "gpt_neox"}, "model_type 'gpt_neox': vLLM holds its weights", True),
    ],
)
def test_weights_that_an_engine_has_otherwise_than_they_are_trained_are_refused(
    fields: dict[str, object], reason: str, works_without_vllm: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes(config_with(**fields))
    with pytest.raises(ValueError, match=rf"model\.name: .*config\.json has {reason}"):
        refuse_untrainable(load_config(), tmp_path)
    if works_without_vllm:
        refuse_untrainable(load_config(overrides=["generation.engine=transformers"]), tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096},
        {"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 4096}},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 4096},
    ],
)
def test_positions_that_follow_the_longest_of_a_batch_are_trained_in_short_ones_only(
    fields: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes(config_with(**fields))
    for length in (2048, 2049):
        lengths = ("generation.max_prompt_length=2048", f"generation.max_completion_length={length}")
        config = load_config(overrides=[*lengths, "generation.engine=transformers"])
        if length == 2048:
            refuse_untrainable(config, tmp_path)
            continue
        with pytest.raises(ValueError, match=r"value 4097: .*config\.json has rope_type .* more than 4096"):
            refuse_untrainable(config, tmp_path)


def test_weights_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    """Transformers would load the one, vLLM the other."""
    (tmp_path / "config.json").write_bytes(config_with())
    (tmp_path / "model.safetensors").touch()
    refuse_untrainable(load_config(), tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "part.safetensors"}}')
    with pytest.raises(ValueError, match=r"there is a model\.safetensors beside it"):
        refuse_untrainable(load_config(), tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        ("lora.enabled=true",),
        ("lora.enabled=true", "generation.engine=transformers"),
        ("runtime.keep_alive=true",),
    ],
)
def test_weights_that_are_read_anew_have_to_be_safetensors(settings: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 8192}')
    (tmp_path / "pytorch_model.bin").touch()
    refuse_misfit(load_config(), tmp_path, "cuda")
    for device in ("cpu", "cuda"):
        with pytest.raises(ValueError, match=r"model\.name: .* holds no safetensors, which adapters"):
            refuse_misfit(load_config(overrides=list(settings)), tmp_path, device)
    (tmp_path / "model.safetensors").touch()
    refuse_misfit(load_config(overrides=[*settings, "generation.kv_cache_gb=20"]), tmp_path, "cpu")
