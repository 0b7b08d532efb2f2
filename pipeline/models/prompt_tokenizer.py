"""The tokenizer of a run's prompts: what was encoded before is looked up, without any library.

``from transformers import AutoTokenizer`` takes seconds of processor time, in which an attached run has its
first scored rollout; its prompts are those of the run before. The looked-up ids are the ones that the real
tokenizer gave: the file is named by the tokenizer's own files and the versions of the libraries. A miss loads
the real one. Offers what pipeline.models.prompts asks of a tokenizer, nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.schema import ModelConfig
from pipeline.host.files import cache_root, write_text_atomically

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_MAX_ENTRIES = 20_000
_LIBRARIES = ("transformers", "tokenizers", "jinja2")
_FILES = "*token*", "*.jinja", "vocab*", "merges*", "config.json"


def find_model(model: ModelConfig) -> Path:
    """As pipeline.models.find.resolve_model, without its libraries where the folder is there already."""
    folder = Path(model.name).expanduser()
    if not folder.is_absolute() and os.sep not in model.name and not folder.exists():
        folder = cache_root() / "models" / model.name
    if (folder / "config.json").is_file():
        return folder.resolve()
    # Imported here: it takes as long as what this file avoids.
    from pipeline.models.find import resolve_model

    return resolve_model(model)


class PromptTokenizer:
    """A tokenizer for pipeline.models.prompts; ``save`` keeps what was encoded for the next run."""

    def __init__(self, folder: Path, *, trust_remote_code: bool = False) -> None:
        self._folder = folder
        self._trust_remote_code = trust_remote_code
        self._real: PreTrainedTokenizerBase | None = None
        self._path = cache_root() / "prompts" / f"{_identity(folder)}.json"
        self._known: dict[str, Any] = {}
        self._num_new = 0
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
            self._known = known if isinstance(known, dict) else {}
        except (OSError, ValueError):
            pass  # None yet, or a damaged one: the real tokenizer fills it again.

    @property
    def chat_template(self) -> str | None:
        """As the real one's."""
        value: str | None = self._look_up("chat_template", lambda real: real.chat_template)
        return value

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """The text of ``messages``; ``tokenize`` must be False."""
        assert not tokenize
        text: str = self._look_up(
            f"template {add_generation_prompt} {json.dumps(list(messages))}",
            lambda real: real.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            ),
        )
        return text

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        """The ``input_ids`` of ``text``."""
        ids: list[int] = self._look_up(
            f"ids {add_special_tokens} {text}",
            lambda real: [int(i) for i in real(text, add_special_tokens=add_special_tokens)["input_ids"]],
        )
        return {"input_ids": ids}

    def save(self) -> None:
        """Write what is not in the file yet; where that cannot be done the next run encodes again."""
        if self._num_new == 0 or len(self._known) > _MAX_ENTRIES:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(self._path, json.dumps(self._known))
        except OSError:
            return
        self._num_new = 0

    def _look_up(self, key: str, ask: Callable[[PreTrainedTokenizerBase], Any]) -> Any:
        if key not in self._known:
            if self._real is None:
                # Imported here: see above.
                from pipeline.models.loading import load_tokenizer

                self._real = load_tokenizer(self._folder, trust_remote_code=self._trust_remote_code)
            self._known[key] = ask(self._real)
            self._num_new += 1
        return self._known[key]


def _identity(folder: Path) -> str:
    """Changes with the tokenizer's files (name, size, time) and with the libraries that read them."""
    files = sorted({path for pattern in _FILES for path in folder.glob(pattern) if path.is_file()})
    lines = [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]
    lines += [f"{name} {version(name)}" for name in _LIBRARIES]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]
