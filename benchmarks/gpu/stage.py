"""What every stage of the battery has: its terms, its parts, the card, and models of random weights.

A stage runs in a process of its own, and is asked for one part after another. Imports nothing heavy: the
models' libraries are loaded where they are needed. What the card is nvidia-smi tells: no context is made on
it for that.
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from benchmarks.report import circumstances

Figures = dict[str, Any]
Device = Literal["cpu", "cuda"]

_PACKAGES = ("torch", "transformers", "vllm", "trl", "ray", "peft", "pydantic", "triton")
_END = "<end>"
_FENCE = "```"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """``is_tiny``: sizes that a CPU does in seconds, whose figures say nothing; ``work`` holds files.

    ``task_set`` is what whole runs train on, as ``--dataset`` takes it.
    """

    device: Device
    is_tiny: bool
    work: Path
    cores: tuple[int, ...]
    task_set: str = "ladder"


class Geometry(NamedTuple):
    """Sizes of a Qwen2; the vocabulary is at least that of the tokenizer, 259."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    is_tied: bool = True


# As Qwen2.5-Coder's of that size.
GEOMETRIES: Final[Mapping[str, Geometry]] = {
    "random-tiny": Geometry(128, 2, 4, 2, 192, 320),
    "random-0.5b": Geometry(896, 24, 14, 2, 4864, 151936),
    "random-1.5b": Geometry(1536, 28, 12, 2, 8960, 151936),
    "random-3b": Geometry(2048, 36, 16, 2, 11008, 151936),
    "random-7b": Geometry(3584, 28, 28, 4, 18944, 152064, is_tied=False),
}


class Stage:
    """One stage. ``all_parts`` gives the parts by name, in the order in which they are measured."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def all_parts(self) -> Mapping[str, Callable[[], Figures]]:
        """What there is to measure."""
        raise NotImplementedError

    def parts(self) -> list[str]:
        """The names of the parts."""
        return list(self.all_parts())

    def measure(self, part: str) -> Figures:
        """The figures of one part; raises whatever it fails with.

        What it leaves on the card is the next part's (``close`` ends it).
        """
        # Imported here, as below.
        import torch

        try:
            return self.all_parts()[part]()
        finally:
            # The next part may have processes of its own.
            gc.collect()
            torch.cuda.empty_cache()

    def close(self) -> None:
        """End what parts have left to each other."""

    def model(self, name: str) -> str:
        """The folder of the random model ``name``, or of the tiny one in its place."""
        return str(random_model(self.terms.work, "random-tiny" if self.terms.is_tiny else name))


def random_model(work: Path, name: str) -> Path:
    """The folder in ``work`` of the model ``name`` with random weights in bf16; made once."""
    # Imported here: the driver needs no torch.
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    folder, sizes = work / name, GEOMETRIES[name]
    if (folder / "config.json").is_file():
        return folder
    tokenizer = make_byte_tokenizer()
    settings = Qwen2Config(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        max_position_embeddings=32768,
        tie_word_embeddings=sizes.is_tied,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    partial = work / f".partial-{name}"
    shutil.rmtree(partial, ignore_errors=True)
    torch.manual_seed(0)
    with torch.device("cuda") if torch.cuda.is_available() else contextlib.nullcontext():
        model = AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    model.save_pretrained(str(partial))
    tokenizer.save_pretrained(str(partial))
    partial.rename(folder)
    return folder


def make_byte_tokenizer() -> Any:
    """Bytes, one token for a code fence, and an end token: any program can be written with it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate([*alphabet, "``", _FENCE, _END])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[("`", "`"), ("``", "`")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=_END, pad_token=_END)  # type: ignore[no-untyped-call]


def gpu_circumstances() -> dict[str, Any]:
    """``hardware`` and ``versions`` of benchmarks.report, with the cards, their memory and CUDA's version."""
    # Imported here: it takes seconds.
    import torch

    found = circumstances(*_PACKAGES)
    cards = [
        dict(zip(("name", "driver", "memory_mb"), line.split(", "), strict=True))
        for line in _ask("name,driver_version,memory.total")
    ]
    found["hardware"]["gpus"] = cards
    found["versions"] |= {"torch": torch.__version__, "cuda": torch.version.cuda or "none"}
    return found


def used_mb() -> int:
    """Memory of all cards that is in use."""
    return sum(int(line) for line in _ask("memory.used"))


def _ask(fields: str) -> list[str]:
    try:
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in said.stdout.splitlines() if line.strip()] if said.returncode == 0 else []
