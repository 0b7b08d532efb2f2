"""What the training-step benchmark compares: its variants, its batches, and the job of one worker process.

Light to import: the parent process needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from benchmarks.processes import Worker
from configs.errors import ConfigError
from configs.schema import Config
from pipeline.host.device import has_bf16, refuse_unusable_packages
from pipeline.host.limits import KEEPING_ALLOCATOR

Precision = Literal["float32", "bfloat16"]
WorkerTask = Literal["time", "check", "profile", "limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to do the step. ``settings`` differ from the job's; ``trl_weights`` makes it TRL's step."""

    name: str
    note: str
    settings: dict[str, Any]
    trl_weights: Precision | None = None

    @property
    def is_bf16(self) -> bool:
        """Whether forward and backward run in bf16; that gradient is told beside the one in fp32."""
        return bool(self.settings["training"]["bf16"])

    @property
    def has_adapters(self) -> bool:
        """Whether it trains adapters: other gradients than plain's, from two thirds of the products."""
        return "lora" in self.settings


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    """Which samples: a recording by name or file, or ``random`` token ids of the shape that the rest says.

    Prompts of a random batch have half to all of ``prompt_tokens``, completions a quarter to all of
    ``completion_tokens``, both drawn uniformly, or all of them where it ``is_full``; ``flat_groups`` of the
    groups have no signal.
    """

    name: str = "short"
    groups: int = 8
    generations: int = 8
    prompt_tokens: int = 256
    completion_tokens: int = 1024
    flat_groups: int = 0
    is_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepJob:
    """What a worker process is to do.

    ``model`` is the built-in name or a folder. The process runs on ``cores``, one thread each. A "time" job
    does one step more than ``num_steps``, the first not being timed.
    """

    task: WorkerTask
    variants: tuple[str, ...]
    model: str
    batch: BatchSpec
    num_steps: int
    cores: tuple[int, ...]
    device: Literal["cpu", "cuda"]
    trl_micro_batch: int

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"{self.task} {' '.join(self.variants)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCase:
    """A trainer of ``model``, its adapters or all weights, with rows of ``num_tokens``.

    Activations are checkpointed where ``is_checkpointed``, and where they would not fit otherwise.
    """

    model: str
    is_lora: bool
    num_tokens: int
    cores: tuple[int, ...]
    device: Literal["cpu", "cuda"] = "cpu"
    is_checkpointed: bool = False

    @property
    def name(self) -> str:
        """Of the case, in the file of results."""
        return f"{self.model}, {'LoRA' if self.is_lora else 'all weights'}, {self.num_tokens}"


def run_worker(job: StepJob | MemoryCase, timeout_s: float) -> dict[str, Any]:
    """What a fresh worker process makes of ``job``.

    Raises RuntimeError when it fails, or takes longer than ``timeout_s``.
    """
    # Set before torch is loaded, so that every library keeps to the cores. The last as in the trainer's
    # process; for TRL's as well.
    threads = {"OMP_NUM_THREADS": str(len(job.cores)), "HF_HUB_OFFLINE": "1", **KEEPING_ALLOCATOR}
    target = "benchmarks.train_step.worker:StepWorker"
    with Worker(job.name, target, job, environment=threads) as worker:
        found: dict[str, Any] = worker.ask("run", deadline_s=timeout_s)
    return found


TECHNIQUES: Final = {
    "packing": "token packing",
    "shared": "shared prompt",
    "prefix": "shared prefix",
    "skip": "zero-signal skip",
    "bf16": "bf16 copy with fp32 masters",
}

# Name, note, whether the forward is in bf16, how weights are held.
_TRL: Final[tuple[tuple[str, str, bool, Precision], ...]] = (
    ("trl-autocast", "TRL, bf16 autocast over fp32 weights", True, "float32"),
    ("trl-bf16", "TRL, weights and optimiser in bf16", True, "bfloat16"),
    ("trl-fp32", "TRL, all in fp32", False, "float32"),
)
# What a technique does nothing without.
_NEEDS: Final = {"prefix": "shared"}


# What only a GPU has, and some of it only with a package (``why_left_out``): name, note, settings.
_ON_A_GPU: Final[tuple[tuple[str, str, dict[str, object]], ...]] = (
    (
        "all-offloaded",
        "all + gradient checkpointing, offloaded",
        {"gradient_checkpointing": True, "activation_offloading": True},
    ),
    ("all-8bit", "all + AdamW with moments in 8 bits", {"optim": "adamw_8bit"}),
    ("all-liger", "all + Liger's fused kernels", {"use_liger_kernel": True}),
)
# Measured only where they are asked for, TRL in fp32 also on a processor without bf16.
ON_DEMAND: Final = frozenset({"trl-fp32", "all-compiled", "all-lora", *(name for name, *_ in _ON_A_GPU)})


def _ours(enabled: frozenset[str], **training: object) -> dict[str, Any]:
    return {
        "training": {"bf16": "bf16" in enabled, **training},
        "acceleration": {
            "token_packing": {"enabled": "packing" in enabled},
            "shared_prompt": "shared" in enabled,
            "shared_prefix": "prefix" in enabled,
            "skip_zero_advantages": "skip" in enabled,
        },
    }


def _variants() -> Iterator[Variant]:
    every = frozenset(TECHNIQUES)
    for name, note, is_bf16, weights in _TRL:
        settings = _ours(every if is_bf16 else every - {"bf16"})
        yield Variant(name=name, note=note, settings=settings, trl_weights=weights)
    yield Variant(name="plain", note="ours, every technique off", settings=_ours(frozenset()))
    for key, what in TECHNIQUES.items():
        needed = _NEEDS.get(key, key)
        note = f"plain + {what}" + (f", {TECHNIQUES[needed]}" if needed != key else "")
        yield Variant(name=f"only-{key}", note=note, settings=_ours(frozenset({key, needed})))
    for key, what in TECHNIQUES.items():
        yield Variant(name=f"no-{key}", note=f"all without {what}", settings=_ours(every - {key}))
    rows: tuple[tuple[str, str, dict[str, object]], ...] = (
        ("all", "ours, all of them (the default where the processor has bf16)", {}),
        ("all-compiled", "all + torch.compile", {"torch_compile": True}),
        ("all-checkpointed", "all + gradient checkpointing", {"gradient_checkpointing": True}),
        *_ON_A_GPU,
    )
    for name, note, training in rows:
        yield Variant(name=name, note=note, settings=_ours(every, **training))
    settings = {**_ours(every), "lora": {"enabled": True, "r": 32, "alpha": 64}}
    yield Variant(name="all-lora", note="all, adapters of rank 32 instead of all weights", settings=settings)


VARIANTS: Final = {variant.name: variant for variant in _variants()}


def precision_of(limit: Mapping[str, Any]) -> str:
    """Of the products that ``limit`` was measured with; results of an earlier version do not say it."""
    return str(limit.get("dtype", "bf16"))


def why_left_out(name: str, device: str) -> str | None:
    """Why the variant ``name`` cannot run on ``device`` of this machine, or None where it can.

    Emulated, products in bf16 would be those of no run.
    """
    if VARIANTS[name].is_bf16 and not has_bf16(device):
        return "there are no instructions for bf16 here; no-bf16 is what a run does"
    try:
        refuse_unusable_packages(
            Config.model_validate({"training": VARIANTS[name].settings["training"]}), device
        )
    except ConfigError as error:
        return " ".join(str(error).split())
    return None
