"""Start Ray on this machine, or connect to one."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from pipeline.errors import StageError

_CONNECT_TIMEOUT_S = 10.0
_MAX_STARTS = 3


def start_ray(address: str | None = None) -> None:
    """Start a private Ray on this machine, unless this process is already connected to one.

    With ``address`` (HOST:PORT, or "auto") connect to the cluster there instead, and without any to one that
    RAY_ADDRESS names; "local" starts one in any case. Raises StageError where none answers.
    """
    if ray.is_initialized():
        return
    # Ray's note that the thread which starts it is not the main one is for programs without a handler.
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Left to itself Ray counts the machine's cores, and starts that many idle workers; ours claim none. Of a
    # cluster that runs already it may not be told.
    address = address or os.environ.get("RAY_ADDRESS")
    if address not in (None, "local"):
        _refuse_silence(address)
        try:
            _init(address, None)
        except ConnectionError as error:
            raise StageError(f"no Ray cluster answers at {address} (cluster.address): {error}") from error
        return
    fault: Exception | None = None
    for _ in range(_MAX_STARTS):
        try:
            # Without an address Ray would take a cluster of somebody else's on this machine.
            _init("local", len(os.sched_getaffinity(0)))
            return
        except Exception as error:
            # Ray gives its servers 30 s, which a busy machine may not keep, and has no error type for it.
            fault = error
            ray.shutdown()
    raise StageError(f"Ray did not start on this machine, {_MAX_STARTS} times: {fault}") from fault


def _init(address: str, num_cpus: int | None) -> None:
    ray.init(
        address=address,
        num_cpus=num_cpus,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        configure_logging=False,
    )


def _refuse_silence(address: str) -> None:
    """Ray itself waits for minutes, and then ends the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise StageError(f"no Ray cluster answers at {address} (cluster.address): {error}") from error


@contextmanager
def running_ray(address: str | None = None) -> Iterator[None]:
    """Ray for a block; what it started is gone afterwards. See ``start_ray``."""
    start_ray(address)
    try:
        yield
    finally:
        ray.shutdown()
