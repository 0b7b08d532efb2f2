"""One rank of the trainer in a process of its own.

The process dies with the driver that made it. Nobody restarts it alone, because its weights would be lost:
the run goes back to a checkpoint with new ranks.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.schema import Config
from pipeline.messages import StepResult, TrainBatch, WeightUpdate

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.training.ranks import Ranks
    from pipeline.training.trainer import Trainer
    from pipeline.weights.exchange import WeightServer


# Numbers of a tensor that are looked at.
_SAMPLE = 256


class _Notes(logging.Handler):
    """What this project's code warns of here, for the run: of what a process prints only the end is read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()
        self._new: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler; the same words count once."""
        if (text := record.getMessage()) not in self._said:
            # For the words of a process that dies in this step.
            print(text, file=sys.stderr, flush=True)
            self._said.add(text)
            self._new.append(text)

    def drain(self) -> tuple[str, ...]:
        """What is new since the last call."""
        new, self._new = tuple(self._new), []
        return new


class TrainerRank:
    """One Trainer; every rank gets the same calls. ``answer`` and ``save`` may run beside another."""

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
        self._server: WeightServer | None = None
        self._samples: dict[str, Tensor] = {}  # of the weights that were published last, by name
        self._num_changed = self._num_compared = 0
        self._notes = _Notes()
        logging.getLogger("pipeline").addHandler(self._notes)

    def open(self) -> tuple[str, int]:
        """Open the meeting point of the ranks; returns its host and port."""
        from pipeline.weights.exchange import open_store

        host = self._host()
        self._store = open_store(host, self._config.runtime.startup_timeout_s)
        return host, self._store.port

    def start(self, meeting_point: tuple[str, int] | None) -> int:
        """Meet the other ranks, if there are any, and load the model; returns the process id."""
        if self._config.model.loader == "unsloth":
            # It changes Transformers and PEFT, which only what it finds unused so far takes part in.
            import unsloth  # type: ignore[import-not-found]  # noqa: F401
        from pipeline.models.find import path_on_this_node
        from pipeline.training.ranks import Ranks
        from pipeline.training.trainer import Trainer

        ranks = Ranks() if meeting_point is None else self._join(*meeting_point)
        model_path = self._model_path
        if self._config.cluster.is_joined:
            model_path = path_on_this_node(self._config.model, model_path)
        self._trainer = Trainer(self._config, model_path, self._device, ranks=ranks)
        return os.getpid()

    def answer(self) -> bool:
        """Answer beside whatever call is running: the process is there and is not stopped."""
        return True

    def fit_memory(self, at_least: int) -> int:
        """See Trainer.fit_memory."""
        return self._loaded.fit_memory(at_least)

    def adopt_limit(self, number: int) -> str:
        """See Trainer.adopt_limit."""
        return self._loaded.adopt_limit(number)

    def release_memory(self) -> None:
        """Give back what the allocator of a GPU keeps for the next step: it is another process's turn."""
        import torch

        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def accumulate(self, batch: TrainBatch) -> None:
        """See Trainer.accumulate."""
        self._loaded.accumulate(batch)

    def step(self, batch: TrainBatch) -> StepResult:
        """See Trainer.step."""
        return replace(self._loaded.step(batch), notes=self._notes.drain())

    def publish(self, directory: str) -> WeightUpdate | None:
        """Write the current weights into ``directory``; the first rank does, the others take part."""
        from pipeline.weights.files import write_adapter, write_weights

        weights, version = self._weights_to_publish(), self._loaded.policy_version
        if weights is None:
            return None
        name = str(Path(directory) / f"policy-{version:06d}")
        adapter = self._loaded.published_adapter
        if adapter is not None:
            update = write_adapter(weights, adapter, name, version, self._dtype)
        else:
            update = write_weights(weights, f"{name}.safetensors", version, self._dtype)
        return replace(update, changed_share=self._changed_share())

    def offer(self, is_one_card: bool) -> WeightUpdate | None:
        """As ``publish``, for generators to fetch; ``is_one_card``: they are on this rank's own card."""
        from pipeline.weights.exchange import WeightServer

        weights = self._weights_to_publish()
        if weights is None:
            return None
        if self._server is None:
            timeout_s = self._config.runtime.weight_update_timeout_s
            self._server = WeightServer(self._host(), self._device, timeout_s, is_one_card=is_one_card)
        update = self._server.offer(weights, self._loaded.policy_version, self._dtype)
        return replace(update, changed_share=self._changed_share())

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

    def _weights_to_publish(self) -> Iterator[tuple[str, Tensor]] | None:
        """The weights to publish one by one; on ranks behind the first none, after their part in it."""
        weights = self._loaded.named_weights()
        if self._rank == 0:
            return self._compared(weights)
        for _ in weights:
            pass
        return None

    def _compared(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """``weights`` as they are; counts how many of a sample, rounded, are others than last time."""
        self._num_changed = self._num_compared = 0
        for name, weight in weights:
            flat = weight.detach().flatten()
            sample = flat[:: max(1, len(flat) // _SAMPLE)].to(device="cpu", dtype=self._dtype, copy=True)
            if (last := self._samples.get(name)) is not None:
                self._num_changed += int((sample != last).sum())
                self._num_compared += len(sample)
            self._samples[name] = sample
            yield name, weight

    def _changed_share(self) -> float | None:
        """None where there was nothing to compare with."""
        return self._num_changed / self._num_compared if self._num_compared else None

    def _host(self) -> str:
        """Where the other ranks and the generators find this process."""
        if not self._config.cluster.is_joined:
            return "127.0.0.1"
        # Imported here: on one machine there may be no Ray.
        import ray

        return str(ray.util.get_node_ip_address())

    def _join(self, host: str, port: int) -> Ranks:
        from pipeline.training.ranks import join
        from pipeline.weights.exchange import find_store

        runtime = self._config.runtime
        if self._store is None:
            self._store = find_store(host, port, runtime.startup_timeout_s)
        # The driver's own deadlines come first, and name who is late.
        timeout_s = 2 * max(runtime.startup_timeout_s, runtime.train_step_timeout_s)
        return join(self._store, self._rank, self._num_ranks, self._device, timeout_s)
