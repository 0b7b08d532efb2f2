"""Two trainer ranks in processes of their own, without Ray: for tests of what they compute together."""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed import FileStore  # type: ignore[attr-defined]

from pipeline.training.ranks import Ranks, join

_TIMEOUT_S = 90.0


class TwoRanks:
    """Runs a function of the ranks, at the top level of a module, in both processes at once."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``function(ranks, *arguments)`` of rank 0 and of rank 1. Raises AssertionError where one fails."""
        for connection in self._connections:
            connection.send_bytes(pickle.dumps((function, arguments)))
        answers, failures = [], []
        # Of both: what is not read would be taken for an answer to the next call.
        for rank, connection in enumerate(self._connections):
            if not connection.poll(_TIMEOUT_S):
                failures.append(f"rank {rank}: no answer within {_TIMEOUT_S:.0f} s")
                continue
            failure, answer = pickle.loads(connection.recv_bytes())
            failures += [] if failure is None else [f"rank {rank}: {failure}"]
            answers.append(answer)
        assert not failures, "\n".join(failures)
        return answers


@contextmanager
def two_ranks(folder: Path) -> Iterator[TwoRanks]:
    """The processes of two ranks on the CPU, ended on the way out."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    processes = [
        context.Process(target=_serve, args=(rank, str(folder / "meeting-point"), far), daemon=True)
        for rank, (_, far) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    try:
        yield TwoRanks([near for near, _ in pipes])
    finally:
        for process in processes:
            process.kill()
            process.join()


def _serve(rank: int, meeting_point: str, connection: Connection) -> None:
    torch.set_num_threads(1)
    ranks: Ranks = join(FileStore(meeting_point, 2), rank, 2, torch.device("cpu"), _TIMEOUT_S)
    while True:
        try:
            function, arguments = pickle.loads(connection.recv_bytes())
        except EOFError:
            distributed.destroy_process_group()
            return
        failure, answer = None, None
        try:
            answer = function(ranks, *arguments)
        except Exception:
            failure = traceback.format_exc()
        connection.send_bytes(pickle.dumps((failure, answer)))
