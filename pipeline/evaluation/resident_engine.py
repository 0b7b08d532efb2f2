"""A resident engine for an evaluation: of the model it was started with, or of another with the same layers.

Training asks for the very engine that it would have started. An evaluation needs less: the same layers and
tokenizer, the same number format, room for its longest sequence; the weights are loaded as a training run's
are.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from configs.schema import Config
from pipeline.generation import resident
from pipeline.generation.client import EngineClient
from pipeline.generation.generator import Generator
from pipeline.generation.settings import engine_environment, engine_settings
from pipeline.generation.start import running_generator
from pipeline.generation.vllm_generator import VllmGenerator
from pipeline.host.device import choose_device, for_device
from pipeline.messages import WeightUpdate
from pipeline.processes.connection import ProcessGoneError

# They decide how fast an engine is, or which of many possible samples it draws: never what it draws from.
_INDIFFERENT = {
    f"engine.{name}"
    for name in (
        "model",
        "max_model_len",
        "max_num_seqs",
        "enforce_eager",
        "gpu_memory_utilization",
        "enable_prefix_caching",
        "kv_cache_memory_bytes",
        "seed",
        "tensor_parallel_size",
        "cores",
        "speculation",
        "max_num_batched_tokens",
        "shares_gpu",
        "sleeps",
        "weight_timeout_s",
    )
} | {
    # Of a compiled engine, or of one that is not.
    f"environment.{name}"
    for name in ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TORCH_COMPILE_DISABLE")
}
_LENGTH = "engine.max_model_len"


@asynccontextmanager
async def evaluation_generator(config: Config, model_path: str) -> AsyncIterator[Generator]:
    """A resident engine with this model's weights, if that is wished and there is one; else a new engine.

    Raises GeneratorError where neither works.
    """
    device = choose_device(config)
    config = for_device(config, device)
    attached = await _attached(config, model_path, device) if config.runtime.attach else None
    if attached is None:
        own = config.model_copy(update={"runtime": config.runtime.model_copy(update={"attach": False})})
        async with running_generator(own, model_path, device) as generator:
            yield generator
        return
    try:
        yield attached
    finally:
        await attached.close()


async def _attached(config: Config, model_path: str, device: str) -> VllmGenerator | None:
    """The resident engine with the weights in ``model_path``; None, with a note, where it is of no use."""
    settings, environment = engine_settings(config, model_path, device), engine_environment(config, device)
    found = await resident.find(0)
    if found is None:
        _say("there is none")
        return None
    wanted = await asyncio.to_thread(resident.engine_identity, settings, environment)
    if reasons := obstacles(wanted, found.identity):
        _say(f"process {found.pid} does not suit ({'; '.join(reasons)})")
        return None
    try:
        async with asyncio.timeout(config.runtime.startup_timeout_s):
            client = await EngineClient.connect(resident.socket_path(0))
    except (ProcessGoneError, TimeoutError) as error:
        _say(f"process {found.pid}: {error or 'no answer'}")
        return None
    # Its requests wait for the places that it has.
    num_places = int(found.identity["engine.max_num_seqs"])
    generation = config.generation.model_copy(update={"max_num_seqs": num_places})
    generator = VllmGenerator(client, config.model_copy(update={"generation": generation}))
    if all(wanted[name] == found.identity[name] for name in ("engine.model", "model files")):
        return generator
    update = WeightUpdate(policy_version=1, path=model_path, kind="base")
    try:
        await generator.update_weights(update)
    except BaseException:
        await generator.close()
        raise
    return generator


def obstacles(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Why an engine with the identity ``found`` cannot do what one with ``wanted`` could; empty if it can."""
    left_out = {*_INDIFFERENT, "model files"}
    reasons = resident.differences(
        {name: value for name, value in wanted.items() if name not in left_out},
        {name: value for name, value in found.items() if name not in left_out},
    )
    needed, there = int(wanted[_LENGTH]), int(found[_LENGTH])
    if there < needed:
        reasons.append(
            f"sequences of {there} tokens there, {needed} needed: give {needed - there} less of "
            "--max-completion-length, or keep an engine of an evaluation's with --keep-alive"
        )
    return reasons


def _say(reason: str) -> None:
    print(f"note: no resident engine to attach to: {reason}; starting one", file=sys.stderr)
