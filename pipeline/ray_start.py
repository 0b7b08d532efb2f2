"""Start Ray on this machine, or connect to one. Called by every process that uses Ray as a driver."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray


def start_ray() -> None:
    """Start a private Ray on this machine, unless this process is already connected to one."""
    if ray.is_initialized():
        return
    # Ray's note that the thread which starts it is not the main one is for programs without a handler.
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Left to itself Ray counts the machine's cores, and starts that many idle workers; ours claim none. Of a
    # cluster that runs already it may not be told.
    num_cpus = None if os.environ.get("RAY_ADDRESS") else len(os.sched_getaffinity(0))
    ray.init(
        num_cpus=num_cpus,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        configure_logging=False,
    )


@contextmanager
def running_ray() -> Iterator[None]:
    """Ray for a block; what it started is gone afterwards."""
    start_ray()
    try:
        yield
    finally:
        ray.shutdown()
