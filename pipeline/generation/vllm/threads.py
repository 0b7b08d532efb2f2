"""Binds each thread of an OpenMP team to a core of its own, without torch.

Threads that meet at a barrier hundreds of times a token lose much where the kernel moves two of them to one
core. vLLM binds them by environment variables, which only a fresh interpreter reads; the engine's processes
are forked.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

_Region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def bind_threads(cores: Sequence[int]) -> str:
    """Bind this thread's OpenMP team, itself included, to one of ``cores`` each; returns why not, or "".

    The team keeps its threads until this thread ends. Needs GNU's OpenMP as the process's first library, see
    pipeline.generation.settings: a second copy would have threads of its own.
    """
    program = ctypes.CDLL(None)
    try:
        parallel, thread_number = program.GOMP_parallel, program.omp_get_thread_num
    except AttributeError:
        return "torch's GNU OpenMP was not preloaded"

    def bind(_: object) -> None:
        os.sched_setaffinity(0, {cores[thread_number()]})

    # What a compiler makes of "#pragma omp parallel".
    parallel(_Region(bind), None, ctypes.c_uint(len(cores)), ctypes.c_uint(0))
    return ""
