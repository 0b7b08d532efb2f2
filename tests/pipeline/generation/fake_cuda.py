"""Prints the engine configurations that an H100 would get, one JSON object; run by test_gpu_engines.

    python -m tests.pipeline.generation.fake_cuda MODEL_FOLDER

vLLM's CUDA platform is put in place of the CPU's, with the answers of such a card; its kernels are empty
modules. An engine is built up to where it would load its model.
"""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from configs.schema import Config

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ["HF_HUB_OFFLINE"] = "1"

_CONFIGS = Path(__file__).parents[3] / "configs"
NUM_GPUS = 2
CARD_BYTES = 80 * 2**30
CARDS = ("16gb", "24gb", "24gb-7b", "80gb", "141gb")
CONFIGURATIONS = ("gpu.yaml", "cluster.yaml", *(f"profiles/gpu-{card}.yaml" for card in CARDS))
_LORA = ["lora.enabled=true", "lora.r=32"]
_DRAFTS = ["acceleration.speculative.enabled=true"]
WITH: dict[str, list[str]] = {
    "plain": ["lora.enabled=false"],
    "lora": _LORA,
    "speculation": ["lora.enabled=false", *_DRAFTS],
    "both": [*_LORA, *_DRAFTS],
    "no sleep": ["lora.enabled=false", "generation.sleep_while_training=false"],
    "split over two": ["lora.enabled=false", "generation.tensor_parallel_size=2"],
    "fp8": ["lora.enabled=false", "generation.quantization=fp8", "generation.kv_cache_dtype=fp8"],
    "fp8 and adapters": [
        *(*_LORA, "lora.load_in_4bit=true", "runtime.trainer_ranks=1"),
        "generation.quantization=fp8",
    ],
    "own arguments": [
        *("lora.enabled=false", "generation.attention_backend=TRITON_ATTN"),
        *("generation.engine_kwargs.long_prefill_token_threshold=64",),
        *("generation.engine_kwargs.scheduling_policy=priority",),
    ],
}


class _Kernels(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: True


class _BuiltError(Exception):
    """The engine's configuration is there."""


def use_fake_cuda() -> None:
    """Have vLLM believe that it runs on H100s, before it is imported anywhere else."""
    # Before any module of vLLM looks for its kernels.
    import torch  # noqa: F401

    for name in ("_C_stable_libtorch", "_vllm_fa2_C", "_vllm_fa3_C"):
        sys.modules[f"vllm.{name}"] = types.ModuleType(f"vllm.{name}")
    sys.modules["vllm.vllm_flash_attn"] = _Kernels("vllm.vllm_flash_attn")
    from vllm import platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class H100(NonNvmlCudaPlatform):  # type: ignore[misc]
        get_device_capability = classmethod(lambda cls, device_id=0: DeviceCapability(9, 0))
        get_device_name = classmethod(lambda cls, device_id=0: "NVIDIA H100 80GB HBM3")
        get_device_total_memory = classmethod(lambda cls, device_id=0: CARD_BYTES)
        device_count = classmethod(lambda cls: NUM_GPUS)
        is_fully_connected = classmethod(lambda cls, ids: True)
        check_if_supports_dtype = classmethod(lambda cls, dtype: None)

        # Its library is not in a CPU build.
        def is_cumem_allocator_available(self) -> bool:
            return True

    platforms._current_platform = H100()
    from vllm import _custom_ops

    for product in ("fp8", "block_fp8"):
        setattr(_custom_ops, f"cutlass_scaled_mm_supports_{product}", lambda capability: capability >= 89)
    import vllm.config.vllm

    vllm.config.vllm.HAS_TRITON = True


def built(config: Config, folder: str) -> dict[str, Any]:
    """What vLLM is told for ``config``, or why there is nothing."""
    from pipeline.generation import settings
    from pipeline.generation.vllm import engine

    found: list[Any] = []

    def take(config: Any, **_: object) -> None:
        found.append(config)
        raise _BuiltError

    engine.AsyncLLM.from_vllm_config = take  # type: ignore[attr-defined]
    # A process has one engine, and a folder with it; of several folders here, others would remove the first.
    cast("Any", engine).own_temporary_folder = lambda: None
    # The shares of a machine are asked of torch, which sees no card here: one, or enough of them.
    ranks = config.generation.tensor_parallel_size
    settings.num_gpus = lambda device: 1 if ranks == 1 else ranks + 1  # type: ignore[attr-defined]
    os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)
    try:
        engine.VllmEngine(settings.engine_settings(config, folder, "cuda"))
    except _BuiltError:
        (one,) = found
        return {
            "runner": "V2" if one.use_v2_model_runner else "V1",
            "is_async": bool(one.scheduler_config.async_scheduling),
            "batched_tokens": one.scheduler_config.max_num_batched_tokens,
            "graphs": str(one.compilation_config.cudagraph_mode),
            "cache_bytes": one.cache_config.kv_cache_memory_bytes,
            "sleeps": one.model_config.enable_sleep_mode,
            "lora_rank": one.lora_config and one.lora_config.max_lora_rank,
            "ranks": one.parallel_config.tensor_parallel_size,
            "max_num_seqs": one.scheduler_config.max_num_seqs,
            "quantization": one.model_config.quantization,
            "cache_dtype": one.cache_config.cache_dtype,
            "backend": one.attention_config.backend and one.attention_config.backend.name,
            "policy": one.scheduler_config.policy,
            "long_prefill": one.scheduler_config.long_prefill_token_threshold,
        }
    except Exception as error:
        return {"fault": f"{type(error).__name__}: {error}"}
    raise AssertionError("the engine did not ask for a model")


def main(folder: str) -> None:
    """Build every configuration with everything in ``WITH``."""
    use_fake_cuda()
    from configs.load import resolve

    # Chosen by the card, which torch does not see.
    precision = "generation.dtype=bfloat16"
    result: dict[str, Any] = {}
    for name in CONFIGURATIONS:
        for what, more in WITH.items():
            config = resolve(_CONFIGS / name, overrides=[precision, *more]).config
            result[f"{name}, {what}"] = built(config, folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
