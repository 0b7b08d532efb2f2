"""An object in a process of its own, asked one thing at a time, so that it is measured alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pipeline.errors import StageError
from pipeline.processes.local import LocalProcess


class Worker:
    """See pipeline.processes.local.LocalProcess; ``name`` is what errors call it."""

    def __init__(
        self, name: str, target: str, *arguments: object, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._process = LocalProcess(target, *arguments, environment=environment)

    def ask(self, method: str, *arguments: object, deadline_s: float) -> Any:
        """What ``method`` returns. Raises RuntimeError where it fails or is not done in ``deadline_s``."""
        try:
            return self._process.call(method, *arguments).result(deadline_s)
        except TimeoutError as error:
            raise RuntimeError(f"{self.name}: not done within {deadline_s:g} s") from error
        except StageError as error:
            raise RuntimeError(f"{self.name}: the worker failed:\n{error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
