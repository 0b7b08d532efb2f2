"""The first thing a run does: start what takes long, then import the rest of the run beside it.

The engine's process imports vLLM while this process imports, reads its configuration's tasks and looks at the
sandbox. Ray, where a run wants it, is started with the stages. Nothing of it holds a model yet: a run that is
refused costs no more than before.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from configs.schema import Config
from pipeline.errors import StageError
from pipeline.generation.client import launch
from pipeline.generation.resident import socket_path
from pipeline.generation.settings import engine_environment
from pipeline.host import spans
from pipeline.host.device import may_have_gpu
from pipeline.host.orphan_guard import guarded
from pipeline.processes.local import ChildProcess

_CLOSE_TIMEOUT_S = 20.0


class Launched:
    """What was started early: the engine's host, None but for vLLM on a CPU of our own."""

    def __init__(self, config: Config) -> None:
        self._host = _launch_host(config)
        self._startup_timeout_s = config.runtime.startup_timeout_s
        self._ray_address = config.cluster.address
        self._fault: BaseException | None = None
        self._is_up, self._is_over = threading.Event(), threading.Event()
        # Ray's servers die with the thread that started them, so it lives as long as the run.
        self._ray = threading.Thread(target=self._hold_ray, name="Ray", daemon=True)
        self._starting = threading.Lock()

    def take_host(self) -> ChildProcess | None:
        """The host, for the caller to use or to kill."""
        host, self._host = self._host, None
        return host

    def wait_for_ray(self) -> None:
        """Start Ray, once, and return when it runs.

        Raises what its start raised, and StageError when it takes too long.
        """
        with self._starting:
            if not self._is_over.is_set():
                self._ray.start()
        if not self._is_up.wait(self._startup_timeout_s):
            limit = f"{self._startup_timeout_s:g} s (runtime.startup_timeout_s)"
            raise StageError(f"Ray did not start on this machine within {limit}")
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        """End Ray, and the host if nobody has taken it."""
        if (host := self.take_host()) is not None:
            host.end(0.0)
        self._is_over.set()
        # What of it does not end in time ends with this process.
        with self._starting:
            if self._ray.ident is not None:
                self._ray.join(_CLOSE_TIMEOUT_S)

    def _hold_ray(self) -> None:
        try:
            # Imported here, beside the imports of the main thread.
            from pipeline.cluster import running_ray

            with ExitStack() as stack:
                with spans.span("driver", "start Ray"):
                    stack.enter_context(running_ray(self._ray_address))
                self._is_up.set()
                self._is_over.wait()
        except BaseException as error:
            self._fault = error
        finally:
            self._is_up.set()


@contextmanager
def launched(config: Config) -> Iterator[Launched]:
    """Start early what ``config`` needs; what is not taken is ended on the way out."""
    # Ray does this where it is started by the main thread: leave in good order.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # Read when torch is loaded. The portable engine is of this process and shares the cores with the trainer;
    # threads that spin at a barrier would take them from it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # The processes of this machine end with this one; some of Ray's do not.
    may_use_ray = config.cluster.address is not None or may_have_gpu()
    with guarded() if may_use_ray else nullcontext():
        early = Launched(config)
        try:
            yield early
        finally:
            early.close()
            signal.signal(signal.SIGTERM, before)


def _launch_host(config: Config) -> ChildProcess | None:
    """A host that imports vLLM, where this run will surely want one and it can be known without torch."""
    runtime = config.runtime
    is_cpu = runtime.device == "cpu" or (runtime.device == "auto" and not may_have_gpu())
    if config.generation.engine != "vllm" or not is_cpu or config.cluster.address is not None:
        return None
    if runtime.attach and socket_path(0).exists():
        return None
    with spans.span("driver", "launch the engine's process"):
        return launch(engine_environment(config, "cpu"))
