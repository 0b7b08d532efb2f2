"""One rank of the trainer in a process of its own.

The actor dies with the driver that made it; it is not restarted, because its weights would be lost: the run
resumes from a checkpoint. Started and called by pipeline.trainer_group.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from configs.schema import Config
from pipeline.messages import StepResult, TrainBatch, WeightUpdate

# What needs torch is imported where it is used: the driver, which only names the actor, does not wait for it.
if TYPE_CHECKING:
    from pipeline.ranks import Ranks
    from pipeline.trainer import Trainer


@ray.remote(num_cpus=0, max_restarts=0, concurrency_groups={"probe": 1})
class TrainerActor:
    """One Trainer; calls run one after another, but for ``answer``. Every rank gets the same calls."""

    def __init__(
        self, config: Config, model_path: str, device: str, num_threads: int, rank: int, num_ranks: int
    ) -> None:
        import torch

        torch.set_num_threads(num_threads)
        self._config = config
        self._model_path = model_path
        self._device = torch.device(device)
        self._rank = rank
        self._num_ranks = num_ranks
        self._dtype: torch.dtype = getattr(torch, config.generation.dtype)
        self._store: Any = None
        self._trainer: Trainer | None = None

    def open(self) -> tuple[str, int]:
        """Open the meeting point of the ranks; returns its host and port."""
        from pipeline.sharding import open_store

        host = ray.util.get_node_ip_address()
        self._store = open_store(host, self._config.runtime.startup_timeout_s)
        return host, self._store.port

    def start(self, meeting_point: tuple[str, int] | None) -> int:
        """Meet the other ranks, if there are any, and load the model; returns the process id."""
        from pipeline.ranks import OneRank
        from pipeline.trainer import Trainer

        ranks: Ranks = OneRank() if meeting_point is None else self._join(*meeting_point)
        self._trainer = Trainer(self._config, self._model_path, self._device, ranks=ranks)
        return os.getpid()

    @ray.method(concurrency_group="probe")  # type: ignore[untyped-decorator]
    def answer(self) -> bool:
        """Answer beside whatever call is running: the process is there and is not stopped."""
        return True

    def step(self, batch: TrainBatch) -> StepResult:
        """See Trainer.step."""
        return self._loaded.step(batch)

    def publish(self, directory: str) -> WeightUpdate | None:
        """Write the current weights into ``directory``; the first rank does, the others take part."""
        from pipeline.weights import write_adapter, write_weights

        version = self._loaded.policy_version
        weights = self._loaded.named_weights()
        if self._rank > 0:
            for _ in weights:
                pass
            return None
        # On the host before the next one is gathered: the GPU never holds them all.
        on_host = ((name, weight.detach().to("cpu", self._dtype)) for name, weight in weights)
        name = str(Path(directory) / f"policy-{version:06d}")
        adapter = self._loaded.published_adapter
        if adapter is not None:
            return write_adapter(on_host, adapter, name, version, self._dtype)
        return write_weights(on_host, f"{name}.safetensors", version, self._dtype)

    def save(self, folder: str, step: int) -> str:
        """See Trainer.save."""
        return str(self._loaded.save(folder, step))

    def load(self, folder: str) -> int:
        """See Trainer.load."""
        return self._loaded.load(folder)

    @property
    def _loaded(self) -> Trainer:
        assert self._trainer is not None, "start comes first"
        return self._trainer

    def _join(self, host: str, port: int) -> Ranks:
        from pipeline.sharding import find_store, join

        runtime = self._config.runtime
        if self._store is None:
            self._store = find_store(host, port, runtime.startup_timeout_s)
        # The driver's own deadlines come first, and name who is late.
        timeout_s = 2 * max(runtime.startup_timeout_s, runtime.train_step_timeout_s)
        return join(self._store, self._rank, self._num_ranks, self._device, timeout_s)
