"""How generation and training share the cores, the GPUs and their memory, and whether Ray hands them out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from configs.conditions import can_overlap
from configs.schema import Config
from pipeline.host.device import num_gpus

# Of processes that send weights to each other: left to itself torch ends the process in which a transfer is
# not through in time, and with a generator that died the trainer.
NCCL_ERRORS = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
# Where torch reads how it is to ask a card for memory.
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# Of a GPU's memory, what a generator takes by itself.
_SHARED, _OWN = 0.4, 0.9


def uses_ray(config: Config, device: str) -> bool:
    """Whether trainer ranks and generators are Ray's: where it is asked for, or there are several GPUs."""
    return config.cluster.address is not None or num_gpus(device) > 1


def check_tensor_parallel(config: Config, device: str) -> None:
    """Raises ValueError where a model cannot be split over so many GPUs."""
    generation = config.generation
    size = generation.tensor_parallel_size
    if size == 1:
        return
    field = f"generation.tensor_parallel_size: value {size}: must be"
    if device == "cpu":
        raise ValueError(f"{field} 1 on a CPU: a model is split over GPUs only")
    if generation.engine != "vllm":
        raise ValueError(f"{field} 1 with generation.engine {generation.engine!r}: only vllm splits a model")
    num_there = num_gpus(device)
    # On a cluster Ray finds a node for each engine.
    if size * generation.num_engines > num_there and not config.cluster.is_joined:
        allowed = num_there // generation.num_engines
        raise ValueError(
            f"{field} at most {max(1, allowed)}: this machine has {num_there} GPUs for "
            f"{generation.num_engines} engines (generation.num_engines)"
        )


def check_residence(config: Config, device: str) -> None:
    """Raises ValueError where Ray shares out several GPUs, for an engine that it does not know.

    That is a resident one, and Transformers', which is in the driver.
    """
    num_there = num_gpus(device)
    if num_there > 1 and config.generation.engine == "transformers" and not config.cluster.is_joined:
        raise ValueError(
            "generation.engine: value transformers: takes the first GPU, where a trainer may be, and there "
            f"are {num_there}; set it to vllm, or show one only (CUDA_VISIBLE_DEVICES=0)"
        )
    for field in ("keep_alive", "attach"):
        if num_there > 1 and getattr(config.runtime, field):
            raise ValueError(
                f"runtime.{field}: value true: a resident engine takes the first GPU, where a trainer may "
                f"be, and there are {num_there}; set it to false, or show one only (CUDA_VISIBLE_DEVICES=0)"
            )


def check_sleep(config: Config, device: str) -> None:
    """Raises ValueError where the engine is to give memory back and has none that a trainer could use."""
    if config.generation.sleep_while_training is not True or sleeps(config, device, num_gpus(device)):
        return
    if config.generation.engine != "vllm":
        reason = f"generation.engine {config.generation.engine!r} cannot"
    else:
        reason = "generator and trainer share no GPU here" if device != "cpu" else "there is no GPU to share"
    raise ValueError(
        f"generation.sleep_while_training: value true: must be auto or false: {reason}; only vLLM gives "
        "memory back, and only on a GPU that both use"
    )


def sleeps(config: Config, device: str, num_gpus: int) -> bool:
    """Whether the engine gives its memory back while the trainer works, where the two run in turn."""
    generation = config.generation
    wants_to = generation.sleep_while_training is not False and generation.engine == "vllm"
    return wants_to and device == "cuda" and is_shared(config, device, num_gpus)


def takes_turns(config: Config) -> bool:
    """Whether an engine that ``sleeps`` does so in every step: then the two never hold memory at once."""
    return config.generation.sleep_while_training is True or not can_overlap(config)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShares:
    """Of a GPU: what a trainer rank takes, and a generator (the number of its GPUs where it is split)."""

    rank: float
    generator: float


def gpu_shares(config: Config, num_gpus: int) -> GpuShares:
    """The shares on a machine with ``num_gpus``, such that no two ranks ever share a GPU.

    Split, a rank and a generator have their GPUs to themselves; colocated, each rank leaves
    ``generation.gpu_memory_utilization`` of its GPU to whole generators. A generator that is split over GPUs
    (``generation.tensor_parallel_size``) shares with nobody. ``runtime.placement`` auto splits where there
    are GPUs enough. Raises ValueError where that cannot be.
    """
    generation, num_ranks = config.generation, config.runtime.trainer_ranks
    num_generator_gpus = generation.num_engines * generation.tensor_parallel_size
    if num_ranks > num_gpus:
        raise ValueError(
            f"runtime.trainer_ranks: value {num_ranks}: there are {num_gpus} GPUs, and every rank needs one "
            f"of its own; set it to at most {num_gpus}"
        )
    placement, share = config.runtime.placement, engine_share(config, beside_trainer=True)
    is_enough = num_ranks + num_generator_gpus <= num_gpus
    must_split = placement == "split" or generation.tensor_parallel_size > 1
    if must_split and not is_enough:
        is_asked = placement == "split"
        setting = "runtime.placement: value split" if is_asked else "generation.tensor_parallel_size"
        raise ValueError(
            f"{setting}: {num_ranks} trainer ranks (runtime.trainer_ranks) and {num_generator_gpus} GPUs of "
            "generators (generation.num_engines times generation.tensor_parallel_size) do not share, so they "
            f"need {num_ranks + num_generator_gpus} GPUs; there are {num_gpus}"
        )
    if must_split or (placement == "auto" and is_enough):
        return GpuShares(rank=1.0, generator=float(generation.tensor_parallel_size))
    taken = share * math.ceil(generation.num_engines / num_gpus)
    if taken >= 1.0 or (num_ranks > 1 and taken >= 0.5):
        needed = "half of one each" if num_ranks > 1 else "some of one"
        raise ValueError(
            f"generation.gpu_memory_utilization: value {share}: generators would take {taken:g} of a GPU "
            f"that trainer ranks share with them, and these need more than {needed}; set it lower, or "
            "generation.num_engines or runtime.trainer_ranks"
        )
    return GpuShares(rank=1.0 - taken, generator=share)


def engine_share(config: Config, *, beside_trainer: bool) -> float:
    """What of a GPU's memory a generator takes."""
    return config.generation.gpu_memory_utilization or (_SHARED if beside_trainer else _OWN)


def sends_weights(config: Config, device: str, num_gpus: int) -> bool:
    """Whether the trainer sends new weights to the generators, instead of writing them to a file.

    Over NCCL, or where all are on one card by CUDA IPC, since NCCL cannot have two processes on one. Raises
    ValueError where ``runtime.weight_transport`` asks for it and neither can be.
    """
    transport = config.runtime.weight_transport
    if device == "cpu" or transport == "file":
        return transport == "collective"
    has_own_gpus = config.cluster.is_joined or gpu_shares(config, num_gpus).rank == 1.0
    if transport == "collective":
        if has_own_gpus or num_gpus == 1:
            return True
        raise ValueError(
            "runtime.weight_transport: value collective: generators share several GPUs with trainer ranks, "
            "and NCCL cannot have two processes on one; set it to auto or file, or runtime.placement to split"
        )
    return has_own_gpus and not config.lora.enabled and config.generation.engine == "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuThreads:
    """Threads of all generators together, and of all trainer ranks together."""

    generators: int
    trainer: int


def cpu_threads(config: Config, num_cores: int) -> CpuThreads:
    """The threads of the two on ``num_cores``: all cores for each, or each its half where they are split.

    ``runtime.generator_threads`` and ``runtime.trainer_threads`` go before; there are never more than cores
    for generators, since those wait for each other at every layer.
    """
    runtime = config.runtime
    own = max(1, num_cores // 2) if runtime.placement == "split" else num_cores
    rest = max(1, num_cores - own) if runtime.placement == "split" else num_cores
    return CpuThreads(
        generators=min(runtime.generator_threads or own, num_cores), trainer=runtime.trainer_threads or rest
    )


def are_apart(config: Config) -> bool:
    """Whether generation and training are told to have hardware of their own."""
    return config.cluster.is_joined or config.runtime.placement == "split"


def is_shared(config: Config, device: str, num_gpus: int) -> bool:
    """Whether generation and training compete for the same cores or the same GPU."""
    if are_apart(config):
        return False
    return device == "cpu" or gpu_shares(config, num_gpus).rank < 1.0
