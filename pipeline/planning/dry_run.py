"""What a run would be, without loading a model: steps, batch shapes, memory, and what will go wrong.

What can be refused beforehand is refused by the run's own code. Tasks are loaded, hub data sets are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from configs.command_line import USER_ERROR, print_error
from configs.conditions import max_engine_length
from configs.errors import ConfigError, wrong_value
from configs.explanation import beyond_mode, states
from configs.load import COMMAND_LINE, Resolved
from configs.rollouts_schema import MAX_FEEDBACK_LENGTH
from configs.schema import Config
from configs.task_sets import is_fetched
from configs.yaml_text import parse_value
from curriculum.sources import load_tasks
from curriculum.task import Task
from pipeline.evaluation.heldout import heldout_tasks
from pipeline.evaluation.sound_tasks import Note, tasks_that_fit
from pipeline.host.device import choose_device, for_device, num_gpus, torch_sees_gpu
from pipeline.host.limits import memory
from pipeline.host.shares import engine_share, is_shared, takes_turns
from pipeline.models.find import local_folder
from pipeline.models.prompts import PromptTokenizer, TurnTokens
from pipeline.planning.memory_estimate import (
    ASLEEP,
    CUDA_CONTEXT,
    ProcessMemory,
    engine_parts,
    find_shape,
    kv_tokens,
    may_sleep,
    processes,
    shares_gpu,
)
from pipeline.training.memory import (
    MicroBatchLimit,
    ModelShape,
    fitting,
    limits,
    micro_batch_tokens,
    trainer_parts,
)
from sandbox.worker import SandboxError

# Says which tasks a run trains on, or raises ValueError: pipeline.run.job.choose_tasks.
ChooseTasks = Callable[
    [tuple[Task, ...], Sequence[Task], Config, PromptTokenizer | None, Note], tuple[Task, ...]
]

_GB = 1e9
# The memory that a card of so many GB has; --gpu-memory says another.
_USABLE = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a run would have: bytes of the host and of one GPU; None where it is not known.

    ``num_gpus`` is 0 where it is another machine's, of which one card is known.
    """

    host_bytes: float | None
    gpu_bytes: float | None
    num_gpus: int = 0


def run_dry(
    resolved: Resolved,
    gpu_memory: str | None,
    refusals: Callable[[Config, str, bool], list[str]],
    choose: ChooseTasks,
) -> int:
    """Print what the run of ``resolved`` would be; returns 2 where it would fail, else 0.

    ``gpu_memory`` are the GB of the card that it is meant for, as written by the user. ``refusals`` says for
    what a run would be refused on a device, and whether that is this machine's; ``choose`` says which tasks
    it would train on.
    """
    config = resolved.config
    machine = this_machine(_parsed(gpu_memory))
    if config.cluster.is_joined:
        # Its processes are spread over nodes that this one does not know.
        machine = Machine(host_bytes=None, gpu_bytes=machine.gpu_bytes)
    shape = find_shape(config.model)
    device = intended_device(config, machine)
    config = for_device(config, device, is_here=gpu_memory is None)
    if gpu_memory is None:
        config = _as_placed(config, device)
    limit = chosen_limit(config, shape, device, machine)
    is_here = gpu_memory is None and not config.cluster.is_joined
    print("\n".join(_head(config, device, limit)))
    faults = refusals(config, device, is_here)
    if not faults:
        faults = _tasks(config, choose)
    if shape is None:
        print(
            f"memory: not known: {config.model.name} has no config.json on this machine, and it could not be "
            "had from the hub; give a folder with one, or a hub id that this machine can reach"
        )
    else:
        every = processes(config, shape, device, limit, machine.gpu_bytes)
        print("\n".join(_memory(config, shape, device, machine, every)))
        faults += expected_faults(config, shape, device, machine, every)
    for note in beyond_mode(resolved):
        print(f"note: {note}")
    for state in states(resolved):
        if state.idle is not None:
            print(f"note: {state.technique.name} is on and will do nothing: {state.idle}")
    for fault in faults:
        print_error(fault)
    return USER_ERROR if faults else 0


def _parsed(gpu_memory: str | None) -> float | None:
    if gpu_memory is None:
        return None
    value = parse_value(gpu_memory)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    problem = wrong_value("--gpu-memory", gpu_memory, "a number of GB above 0, such as 24")
    raise ConfigError([replace(problem, where=COMMAND_LINE)])


def this_machine(gpu_memory_gb: float | None) -> Machine:
    """This machine; or another one, of which only the card of ``gpu_memory_gb`` is known."""
    if gpu_memory_gb is not None:
        return Machine(host_bytes=None, gpu_bytes=gpu_memory_gb * _GB * _USABLE)
    gpu_bytes = None
    if torch_sees_gpu():
        import torch

        gpu_bytes = float(torch.cuda.get_device_properties(0).total_memory)
    return Machine(host_bytes=memory()[0] * 2**30, gpu_bytes=gpu_bytes, num_gpus=num_gpus("cuda"))


def intended_device(config: Config, machine: Machine) -> str:
    """Where the run would be: with a card given, there; else as the run itself chooses."""
    if machine.gpu_bytes is not None and config.runtime.device != "cpu":
        return "cuda"
    return config.runtime.device if config.runtime.device != "auto" else choose_device(config)


def _as_placed(config: Config, device: str) -> Config:
    """``config`` with runtime.placement split where on this machine no trainer shares a GPU."""
    try:
        if config.cluster.is_joined or is_shared(config, device, num_gpus(device)):
            return config
    except ValueError:  # It is refused for that, in the run's own words.
        return config
    return config.model_copy(update={"runtime": config.runtime.model_copy(update={"placement": "split"})})


def chosen_limit(config: Config, shape: ModelShape | None, device: str, machine: Machine) -> MicroBatchLimit:
    """What micro-batches a run would choose, were nothing else on ``machine``."""
    asked, *_ = every = limits(config)
    room = machine.host_bytes if device == "cpu" else machine.gpu_bytes
    if config.training.memory == "fixed" or shape is None or room is None:
        return asked
    found = processes(config, shape, device, asked, machine.gpu_bytes)
    if device != "cpu":
        others = CUDA_CONTEXT + _engine_bytes(config, shape, machine)
        return every[fitting(config, shape, device, room - others)]
    num_ranks = config.runtime.trainer_ranks
    others = _host_bytes(found) - num_ranks * sum(trainer_parts(config, shape, device, asked).values())
    return every[fitting(config, shape, device, (room - others) / num_ranks)]


def expected_faults(
    config: Config, shape: ModelShape, device: str, machine: Machine, every: Sequence[ProcessMemory]
) -> list[str]:
    """What would end the run for want of memory, and the settings to change."""
    faults = []
    host = _host_bytes(every)
    if machine.host_bytes is not None and host > machine.host_bytes:
        faults.append(
            f"memory: about {host / _GB:.1f} GB of this machine's {machine.host_bytes / _GB:.1f} GB would be "
            f"needed; {_smaller(config, device)}"
        )
    if device == "cpu" or machine.gpu_bytes is None:
        return faults
    trainer = next(process for process in every if process.name == "trainer")
    share = engine_share(config, beside_trainer=shares_gpu(config))
    left = machine.gpu_bytes - _engine_bytes(config, shape, machine)
    # Between its steps, that is.
    kept = sum(value for name, value in trainer.gpu.items() if name not in ("activations", "logits"))
    beside = (1.0 - share * _engines_on_a_card(config, machine)) * machine.gpu_bytes
    if trainer.gpu_bytes > left and not (shares_gpu(config) and config.generation.engine == "vllm"):
        faults.append(
            f"memory: the trainer needs about {trainer.gpu_bytes / _GB:.1f} GB of a GPU, and has "
            f"{left / _GB:.1f} GB; {_smaller(config, device)}"
        )
    elif trainer.gpu_bytes > left:
        faults.append(
            f"generation.gpu_memory_utilization: value {share:g}: it leaves the trainer "
            f"{left / _GB:.1f} GB of the GPU, and it needs about {trainer.gpu_bytes / _GB:.1f} GB; "
            f"{_smaller(config, device)}"
        )
    elif _takes_turns(config) and kept > beside:
        faults.append(
            f"generation.gpu_memory_utilization: value {share:g}: awake, the engine leaves the trainer "
            f"{beside / _GB:.1f} GB of the GPU, and it keeps {kept / _GB:.1f} GB between its steps; set "
            "it lower, or set lora.enabled: true"
        )
    longest = max_engine_length(config)
    reserves = config.generation.engine == "vllm"
    if reserves and kv_tokens(config, shape, _cache_bytes(every)) < longest:
        faults.append(
            f"generation.gpu_memory_utilization: value {share:g}: of {share * machine.gpu_bytes / _GB:.1f} "
            f"GB the weights leave no room for one sequence of {longest} tokens; set it higher"
        )
    return faults


def _takes_turns(config: Config) -> bool:
    """Whether engine and trainer never compute on one GPU at once, as far as the settings tell."""
    return may_sleep(config) and takes_turns(config)


def _engine_bytes(config: Config, shape: ModelShape, machine: Machine) -> float:
    """What engines hold of a trainer's GPU while that one works."""
    gpu_bytes = machine.gpu_bytes or 0.0
    if not shares_gpu(config):
        return 0.0
    if config.generation.engine != "vllm":
        one = sum(engine_parts(config, shape, "cuda", gpu_bytes).values())
    else:
        one = ASLEEP if _takes_turns(config) else engine_share(config, beside_trainer=True) * gpu_bytes
    return one * _engines_on_a_card(config, machine)


def _engines_on_a_card(config: Config, machine: Machine) -> int:
    """How many engines the fullest GPU has, where there is at least one for each rank."""
    num_cards = max(1, machine.num_gpus, config.runtime.trainer_ranks)
    return math.ceil(config.generation.num_engines / num_cards)


def _host_bytes(every: Sequence[ProcessMemory]) -> float:
    return sum(process.count * process.host_bytes for process in every)


def _cache_bytes(every: Sequence[ProcessMemory]) -> float:
    parts = {name: value for process in every for name, value in {**process.host, **process.gpu}.items()}
    return parts.get("KV cache", parts.get("KV cache and the rest", 0.0))


def _smaller(config: Config, device: str) -> str:
    is_fixed = config.training.memory == "fixed"
    words = ["set training.memory: auto"] if is_fixed else []
    words.append(f"lower generation.max_completion_length ({config.generation.max_completion_length})")
    if not config.lora.enabled:
        words.append("set lora.enabled: true")
    if device == "cpu":
        words.append(f"lower generation.kv_cache_gb ({config.generation.kv_cache_gb:g})")
    return ", or ".join(words)


def _head(config: Config, device: str, limit: MicroBatchLimit) -> list[str]:
    training, generation, grpo = config.training, config.generation, config.grpo
    ahead = config.acceleration.max_staleness
    packing = config.acceleration.token_packing
    how = f"rows of up to {limit.max_tokens} tokens" if packing.enabled else "padded batches"
    if limit != limits(config)[0]:
        how += f", chosen to fit into memory (asked for: {limits(config)[0]})"
    if limit.checkpoints:
        how += ", activations computed anew in the backward"
    return [
        f"dry run: nothing is loaded; {config.model.name} on {device}, mode {config.acceleration.mode}",
        f"steps: {training.max_steps}, each on {config.prompts_per_step} prompts with {grpo.num_generations} "
        f"completions = {config.completions_per_step} completions; "
        f"{training.max_steps * config.completions_per_step} in all",
        f"sequences: prompts up to {generation.max_prompt_length}, completions up to "
        f"{generation.max_completion_length} tokens; {generation.max_num_seqs} written at once, up to "
        f"{config.completions_per_step * (1 + ahead)} wanted ({ahead} steps ahead)",
        f"micro-batches: {how}; at most {micro_batch_tokens(config, limit)} tokens go through the trained "
        f"model together (a sequence has up to {config.max_sequence_length})",
    ]


def _tasks(config: Config, choose: ChooseTasks) -> list[str]:
    """Print what there is to train on; returns what is wrong with the prompts, as far as it can be known."""
    if is_fetched(config.dataset.name):
        print(f"tasks: {config.dataset.name}, not looked at")
        tasks: tuple[Task, ...] = ()
    else:
        tasks = load_tasks(config.dataset)
        print(f"tasks: {len(tasks)} of {config.dataset.name}")
    folder = local_folder(config.model)

    def note(kind: str, text: str) -> None:
        print(f"{kind}: {text}")

    tokenizer = None
    try:
        if folder is None or not any(folder.glob("*token*")):
            print(f"prompts: not counted: there is no tokenizer of {config.model.name} on this machine")
        else:
            tokenizer = PromptTokenizer(folder, trust_remote_code=config.model.trust_remote_code)
        heldout = () if is_fetched(config.evaluation.tasks) else heldout_tasks(config)
        if tokenizer is not None and config.rollouts.max_turns > 1 and (known := (*tasks, *heldout)):
            TurnTokens(tokenizer.real(), config.generation, MAX_FEEDBACK_LENGTH, known[0])
        if not tasks:
            if tokenizer is not None:
                tasks_that_fit(tokenizer, (), heldout, config, note)
            return []
        try:
            tasks = choose(tasks, heldout, config, tokenizer, note)
        except SandboxError as error:
            # Meant for another machine, whose sandbox is not this one's.
            print(f"references: not run here: {error}")
        epochs = config.training.max_steps * config.prompts_per_step / len(tasks)
        print(f"trained on: {len(tasks)} of them, {epochs:.2f} passes over them")
    except ValueError as error:
        return [str(error)]
    return []


def _memory(
    config: Config, shape: ModelShape, device: str, machine: Machine, every: Sequence[ProcessMemory]
) -> list[str]:
    lines = [
        f"memory at most, in GB, estimated from {shape.num_parameters / 1e6:.0f} M parameters "
        f"({shape.origin}):"
    ]
    for process in every:
        name = process.name if process.count == 1 else f"{process.count} x {process.name}"
        for place, parts in (("host", process.host), ("GPU", process.gpu)):
            if parts:
                each = ", ".join(f"{what} {value / _GB:.2f}" for what, value in parts.items() if value > 0)
                lines.append(f"  {name + ', ' + place:<22} {sum(parts.values()) / _GB:6.2f}  ({each})")
    of = "" if machine.host_bytes is None else f"  of {machine.host_bytes / _GB:.1f}"
    lines.append(f"  {'all on the host':<22} {_host_bytes(every) / _GB:6.2f}{of}")
    if device != "cpu":
        card = "not given (--gpu-memory)" if machine.gpu_bytes is None else f"{machine.gpu_bytes / _GB:.1f}"
        lines.append(f"  a card's memory: {card}")
    if (cache := _cache_bytes(every)) > 0:
        number = min(config.generation.max_num_seqs, config.completions_per_step)
        lines.append(
            f"  the KV cache holds about {kv_tokens(config, shape, cache)} tokens; {number} sequences of "
            f"full length are {number * config.max_sequence_length}"
        )
    return lines
