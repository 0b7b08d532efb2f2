"""The engines that a GPU would get, built on a CPU with vLLM's CUDA platform in the place of the CPU's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from configs.load import load_config
from pipeline.generation import settings
from tests.pipeline.generation.fake_cuda import CARD_BYTES, CONFIGURATIONS, WITH
from tests.pipeline.tiny_model import save_byte_model
from tests.processes import is_running, none_runs

_ROOT = Path(__file__).parents[3]
# Of the rows, and of the profiles' own.
_NUM_DRAFTS = 8


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = save_byte_model(tmp_path_factory.mktemp("model"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    command = [sys.executable, "-m", "tests.pipeline.generation.fake_cuda", str(folder)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("what", WITH)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_configuration_for_gpus_builds_an_engine(
    engines: dict[str, dict[str, Any]], name: str, what: str
) -> None:
    found = engines[f"{name}, {what}"]
    assert "fault" not in found, found["fault"]
    has_drafts, has_adapters = what in ("speculation", "both"), what in ("lora", "both", "fp8 and adapters")
    # Our own drafter is for vLLM's first runner; everything else has its second one.
    assert found["runner"] == ("V1" if has_drafts else "V2")
    assert found["is_async"] is not has_drafts
    assert ("PIECEWISE" if has_drafts else "FULL_AND_PIECEWISE") in found["graphs"]
    least = found["max_num_seqs"] * (_NUM_DRAFTS + 1) if has_drafts else found["max_num_seqs"]
    assert found["batched_tokens"] == max(4096 if name.endswith("-7b.yaml") else 8192, least)
    assert (found["lora_rank"] is not None) is has_adapters
    assert found["lora_rank"] is None or found["lora_rank"] >= 32
    assert found["ranks"] == (2 if what == "split over two" or name == "cluster.yaml" else 1)
    is_small = "fp8" in what or name.endswith("-7b.yaml")
    assert found["quantization"] == ("fp8_per_channel" if is_small else None)
    if what == "own arguments":
        assert (found["backend"], found["policy"], found["long_prefill"]) == ("TRITON_ATTN", "priority", 64)
    if what == "fp8":
        assert found["cache_dtype"] == "fp8"


def test_weights_in_fp8_leave_more_of_a_shared_card_for_the_cache(engines: dict[str, dict[str, Any]]) -> None:
    plain, small = (engines[f"gpu.yaml, {what}"]["cache_bytes"] for what in ("plain", "fp8"))
    assert plain < small < plain + 1e9


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_cache_is_asked_for_by_size_where_a_trainer_shares_the_card(
    engines: dict[str, dict[str, Any]], name: str
) -> None:
    found = engines[f"{name}, plain"]["cache_bytes"]
    if name == "cluster.yaml":
        assert found is None, "what has its card to itself measures what it can have"
    else:
        assert 0 < found < 0.6 * CARD_BYTES


@pytest.mark.parametrize("what", WITH)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_an_engine_can_sleep_where_a_trainer_shares_its_card_and_nobody_forbids_it(
    engines: dict[str, dict[str, Any]], name: str, what: str
) -> None:
    shares = name != "cluster.yaml" and what != "split over two"
    assert engines[f"{name}, {what}"]["sleeps"] is (shares and what != "no sleep")


SMALL = ["generation.max_num_batched_tokens=64", "generation.max_num_seqs=512"]


@pytest.mark.parametrize(
    ("overrides", "device", "expected"),
    [
        ([], "cpu", None),
        ([], "cuda", 8192),
        (["generation.max_num_batched_tokens=4096"], "cpu", 4096),
        (["generation.max_num_batched_tokens=4096"], "cuda", 4096),
        ([*SMALL, "acceleration.speculative.enabled=false"], "cuda", 512),
        # Each sequence with the 8 tokens that were drafted for it.
        (SMALL, "cuda", 512 * 9),
    ],
)
def test_the_tokens_of_a_forward_are_as_set_and_enough_for_all_sequences(
    overrides: list[str], device: str, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "num_gpus", lambda device: 1)
    config = load_config(overrides=["generation.dtype=bfloat16", *overrides])
    made = settings.engine_settings(config, "model", device)
    assert made.arguments["max_num_batched_tokens"] == expected


@pytest.mark.parametrize(
    ("overrides", "num_gpus", "expected"),
    [
        ([], 1, 0.4),
        ([], 2, 0.9),
        (["runtime.placement=colocated"], 2, 0.4),
        (["generation.gpu_memory_utilization=0.6"], 1, 0.6),
        (["generation.gpu_memory_utilization=0.6"], 2, 0.6),
    ],
)
def test_a_generator_takes_nearly_all_of_a_card_of_its_own_unless_it_is_told(
    overrides: list[str], num_gpus: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "num_gpus", lambda device: num_gpus)
    config = load_config(overrides=["generation.dtype=bfloat16", *overrides])
    made = settings.engine_settings(config, "model", "cuda")
    assert made.arguments["gpu_memory_utilization"] == expected


# As vLLM starts its processes on a GPU: fresh interpreters, which load the plugin first.
_PARENT = """
import multiprocessing, os, time

def child():
    from pipeline.generation.vllm.transfer import register
    register()
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=child).start()
    time.sleep(60)
"""


def test_what_vllm_starts_dies_with_the_process_that_began_it(tmp_path: Path) -> None:
    """An engine that outlived it would keep its share of the card."""
    program = tmp_path / "parent.py"
    program.write_text(_PARENT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.send_signal(signal.SIGKILL)
        assert none_runs([child], 10.0)
