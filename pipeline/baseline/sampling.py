"""What a baseline run's training is given: what generates, its prompts as a data set, what ends a completion.

And what it gives back. Needs no TRL.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from configs.schema import Config
from curriculum.task import Task
from pipeline.generation.settings import compile_cache, runs_eagerly
from pipeline.models.prompts import encode_prompt, render_prompt, stop_strings
from pipeline.record.run_folder import RunPaths

FENCE = "```"


def baseline_engine(config: Config, device: str) -> Literal["vllm", "transformers"]:
    """What generates on ``device``. Raises ValueError where that cannot be."""
    generation = config.generation
    engine = generation.baseline_engine
    if engine == "auto":
        # Who measures with Transformers has no vLLM.
        engine = "vllm" if device == "cuda" and generation.engine == "vllm" else "transformers"
    if engine == "transformers":
        return engine
    where = f"generation.baseline_engine: value {generation.baseline_engine!r}"
    if importlib.util.find_spec("vllm") is None:
        raise ValueError(f"{where}: vLLM is not installed; give transformers")
    if config.grpo.mask_truncated_completions and stop_strings(generation):
        raise ValueError(
            f"{where}: TRL takes a completion that vLLM ended at a stop string for a truncated one, and "
            "grpo.mask_truncated_completions would leave it out; set that to false, or give transformers"
        )
    return engine


def vllm_environment(config: Config, device: str) -> dict[str, str]:
    """Variables for TRL's process, to be set before vLLM is imported; of several GPUs it sees the first."""
    generation = config.generation
    variables = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    if device == "cuda":
        # TRL refuses several that no launcher has shared out.
        variables["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    if device == "cpu":
        # The trainer, which works in turn with it, has the same threads and cores.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        variables["VLLM_CPU_KVCACHE_SPACE"] = str(math.ceil(generation.kv_cache_gb))
    if not runs_eagerly(config, device):
        variables |= compile_cache()
    elif device == "cpu":
        variables["TORCH_COMPILE_DISABLE"] = "1"
    return variables


def prompt_dataset(tasks: Sequence[Task], tokenizer: PreTrainedTokenizerBase, config: Config) -> Dataset:
    """Rows with ``prompt`` (the text that the model continues, prefill included) and ``task_id``.

    The prompts are plain text, not messages, so that TRL's tokens are those of the main job. Raises
    ValueError for a prompt that TRL would tokenise differently.
    """
    rows = []
    for task in tasks:
        token_ids = encode_prompt(tokenizer, task, config.generation)
        text = render_prompt(tokenizer, task, config.generation)
        rows.append({"prompt": _as_trl_reads_it(text, token_ids, tokenizer, task), "task_id": task.task_id})
    # TRL leaves out what does not fill a step: all of a data set that is smaller than one.
    return Dataset.from_list(rows * math.ceil(config.prompts_per_step / len(rows)))


def end_token_ids(tokenizer: PreTrainedTokenizerBase, eos_token_id: int | list[int] | None) -> list[int]:
    """The model's end tokens."""
    known = [] if eos_token_id is None else [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id
    return sorted({tokenizer.eos_token_id, *known})


def stop_token_ids(
    tokenizer: PreTrainedTokenizerBase, eos_token_id: int | list[int] | None, config: Config
) -> list[int]:
    """For Transformers: the model's end tokens and those of a closing code fence, where the main job stops.

    TRL gives Transformers' ``generate`` no tokenizer, so stop strings cannot be used with it; but it
    ends a completion at every end token that the model declares. This differs from stopping at a line
    that begins with a fence in two rare cases: a fence in mid-line ends the completion too, and one
    spelled with shorter tokens does not. Raises ValueError when no single token is a fence.
    """
    known = end_token_ids(tokenizer, eos_token_id)
    if not stop_strings(config.generation):
        return known
    fences = [
        token_id
        for token, token_id in tokenizer.get_vocab().items()
        if FENCE in token and tokenizer.convert_tokens_to_string([token]).strip() == FENCE
    ]
    if not fences:
        raise ValueError(
            "generation.stop_at_code_fence: value True: the model's tokenizer has no token for a code fence, "
            "so TRL cannot stop there; set it to false for the baseline"
        )
    return sorted({*known, *fences})


def _as_trl_reads_it(
    text: str, token_ids: Sequence[int], tokenizer: PreTrainedTokenizerBase, task: Task
) -> str:
    """``text`` such that the tokenizer's defaults, which TRL uses, give ``token_ids``."""
    candidates = [text]
    if tokenizer.bos_token is not None:
        # A chat template may write the BOS that the tokenizer adds by itself.
        candidates.append(text.removeprefix(tokenizer.bos_token))
    for candidate in candidates:
        if tuple(tokenizer(text=candidate)["input_ids"]) == tuple(token_ids):
            return candidate
    raise ValueError(
        f"model.name: the tokenizer adds special tokens to a rendered chat prompt ({task.task_id}), so TRL "
        "would train on another prompt than the main job; the baseline does not support this model"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """Train ``model`` on ``tasks`` as ``config`` says; ``is_verbose`` also prints what TRL logs."""

    config: Config
    folder: RunPaths
    model: Path
    tasks: tuple[Task, ...]
    device: str
    is_verbose: bool

    @property
    def final(self) -> Path:
        """Where the trained model will lie."""
        return self.folder.checkpoints / "final"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The sandbox's level, and seconds by name."""

    level: str
    seconds: dict[str, float]
