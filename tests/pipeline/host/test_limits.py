"""Freed memory: kept by a process that is told to, and given back where the machine has little."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from pipeline.host import limits
from pipeline.host.limits import KEEPING_ALLOCATOR, anonymous_bytes, return_freed_memory

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this machine has no glibc")

# The pages that come from the kernel while 20 tensors of 80 MB follow each other, not in the first thread.
COUNT = """
import ctypes, resource, threading
allocator = ctypes.CDLL(None)
allocator.malloc.restype = ctypes.c_void_p
allocator.free.argtypes = [ctypes.c_void_p]
def once():
    block = allocator.malloc(80_000_000)
    ctypes.memset(block, 1, 80_000_000)
    allocator.free(block)
def count():
    once()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        once()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=count)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_the_memory_of_large_tensors_is_used_again_by_any_thread(keeps: bool) -> None:
    plain = {name: value for name, value in os.environ.items() if name not in KEEPING_ALLOCATOR}
    environment = {**plain, **(KEEPING_ALLOCATOR if keeps else {})}
    command = [sys.executable, "-c", COUNT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    # All of them anew are 390,000 pages of 4 kB.
    assert (int(done.stdout) < 2_000) == keeps


@pytest.mark.parametrize(("free", "is_returned"), [(4.7, True), (4.9, False)])
def test_freed_memory_is_given_back_where_the_machine_has_little(
    free: float, is_returned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memory", lambda: (24.0, free))
    # Each below what malloc takes from the kernel by itself: they leave their pages in the heap.
    blocks = [bytearray(b"x") * 100_000 for _ in range(2_000)]
    last = bytearray(b"x") * 100_000
    held = anonymous_bytes()
    blocks.clear()
    freed = held - anonymous_bytes()
    return_freed_memory()
    assert (held - anonymous_bytes() - freed > 50e6) == is_returned
    assert last
