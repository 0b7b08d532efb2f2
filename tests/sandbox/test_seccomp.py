"""The system-call filters of both machines, run by a small interpreter of classic BPF, and in force."""

from __future__ import annotations

import errno
import os
import platform
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from sandbox import seccomp, syscalls

_ROOT = Path(__file__).parents[2]
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS, _ENOTTY = (0x00050000 | code for code in (errno.EPERM, errno.ENOSYS, errno.ENOTTY))
_TABLES = (syscalls.PLAIN, syscalls.OPENS, syscalls.ZYGOTE_ONLY, syscalls.CHECKED, syscalls.DENIED)
_POINTER = 0x7F00_0000_0000

# Written down here once more, on purpose: what a change of the tables must not move.
_NEEDED = (
    "read write close close_range fstat lseek getdents64 dup3 mmap munmap mremap mprotect madvise brk futex "
    "rseq set_robust_list gettid sched_yield sched_getaffinity exit exit_group rt_sigaction rt_sigprocmask "
    "rt_sigreturn clock_gettime clock_nanosleep setitimer getpid getppid getrandom uname pipe2 ppoll "
    "epoll_create1 epoll_ctl epoll_pwait eventfd2 recvfrom shutdown wait4"
)
_ZYGOTES = "kill pidfd_open pidfd_send_signal memfd_create sendmsg recvmsg setpgid setrlimit unlinkat"
_DANGEROUS = (
    "execve execveat ptrace process_vm_readv process_vm_writev pidfd_getfd tkill tgkill rt_sigqueueinfo "
    "rt_tgsigqueueinfo seccomp unshare setns personality socket connect bind listen accept accept4 "
    "setsockopt mount umount2 pivot_root chroot open_tree move_mount fsopen fsmount mount_setattr bpf "
    "perf_event_open io_uring_setup io_uring_enter io_uring_register userfaultfd memfd_secret shmget msgget "
    "semget mq_open add_key request_key keyctl name_to_handle_at open_by_handle_at fanotify_init "
    "inotify_init1 splice tee vmsplice fchmod fchmodat fchown fchownat utimensat setxattr removexattr "
    "truncate renameat2 linkat symlinkat mkdirat mknodat setuid setresuid setgroups capset setpriority "
    "sched_setaffinity sched_setscheduler ioprio_set timer_create init_module kexec_load reboot quotactl"
)
_THREAD_FLAGS = 0x3D0F00
_FORK_FLAGS = 0x1200011


def _run(program: bytes, arch: int, number: int, args: tuple[int, ...]) -> int:
    """What the kernel would return for one call: the few instructions that our filters use."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    instructions = list(struct.iter_unpack("<HBBI", program))
    counter = accumulator = 0
    for _ in range(len(instructions)):
        code, if_true, if_false, value = instructions[counter]
        counter += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            assert value % 4 == 0
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x05:
            counter += value
        else:
            tests = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            counter += if_true if tests[code] else if_false
    raise AssertionError("a filter that does not return")


def _zygote(machine: str, name: str, *args: int) -> int:
    column, arch = _MACHINES[machine]
    return _run(seccomp.zygote_filter(machine), arch, _number(name, column), args)


def _child(machine: str, name: str, *args: int, allow_opens: bool = True) -> int:
    """Both filters are in force in a child; here neither of two errors hides an allowed call."""
    column, arch = _MACHINES[machine]
    programs = (seccomp.zygote_filter(machine), seccomp.child_filter(machine, allow_opens=allow_opens))
    results = [_run(program, arch, _number(name, column), args) for program in programs]
    return next((result for result in results if result != _ALLOW), _ALLOW)


def _number(name: str, column: int) -> int:
    number = next(table[name][column] for table in _TABLES if name in table)
    assert number >= 0, f"{name} does not exist there"
    return number


@pytest.mark.parametrize("machine", _MACHINES)
def test_what_an_interpreter_needs_is_allowed_to_both(machine: str) -> None:
    for name in _NEEDED.split():
        assert (_zygote(machine, name), _child(machine, name)) == (_ALLOW, _ALLOW), name
    assert _child(machine, "openat") == _ALLOW


@pytest.mark.parametrize("machine", _MACHINES)
def test_what_only_the_zygote_needs_is_denied_to_its_children(machine: str) -> None:
    for name in _ZYGOTES.split():
        assert (_zygote(machine, name), _child(machine, name)) == (_ALLOW, _EPERM), name
    # PR_SET_SECCOMP, and PR_SET_NAME, which no child needs either.
    for option in (22, 15):
        assert (_zygote(machine, "prctl", option), _child(machine, "prctl", option)) == (_ALLOW, _EPERM)
    assert _zygote(machine, "prctl", 23) == _EPERM


@pytest.mark.parametrize("machine", _MACHINES)
def test_known_dangers_fail_with_a_permission_error(machine: str) -> None:
    for name in _DANGEROUS.split():
        assert (_zygote(machine, name), _child(machine, name)) == (_EPERM, _EPERM), name


@pytest.mark.parametrize("machine", _MACHINES)
def test_every_number_is_decided_as_its_table_says_and_all_others_are_unknown(machine: str) -> None:
    column, arch = _MACHINES[machine]
    zygote = seccomp.zygote_filter(machine)
    child = seccomp.child_filter(machine)
    allowed = _numbers(column, syscalls.PLAIN, syscalls.OPENS, syscalls.ZYGOTE_ONLY)
    denied = _numbers(column, syscalls.DENIED)
    checked = _numbers(column, syscalls.CHECKED)
    for number in chain(range(601), (0x7FFF_FFFF, 0xFFFF_FFFF)):
        result = _run(zygote, arch, number, ())
        if number in allowed:
            assert result == _ALLOW, number
        elif number not in checked:
            assert result == (_EPERM if number in denied else _ENOSYS), number
        only_zygote = number in _numbers(column, syscalls.ZYGOTE_ONLY)
        if number not in checked:
            assert _run(child, arch, number, ()) == (_EPERM if only_zygote else _ALLOW), number


@pytest.mark.parametrize("machine", _MACHINES)
def test_x32_calls_are_unknown_and_foreign_machines_are_killed(machine: str) -> None:
    _, arch = _MACHINES[machine]
    program = seccomp.zygote_filter(machine)
    for number in range(601):
        assert _run(program, arch, number | 0x4000_0000, ()) == _ENOSYS
        # i386, arm, and the other machine of ours.
        for foreign in {0x40000003, 0x40000028, 0xC000003E, 0xC00000B7} - {arch}:
            assert _run(program, foreign, number, ()) == _KILL


@pytest.mark.parametrize("machine", _MACHINES)
def test_clone_makes_threads_in_children_processes_in_the_zygote_and_namespaces_nowhere(machine: str) -> None:
    assert _zygote(machine, "clone", _FORK_FLAGS) == _ALLOW
    assert _child(machine, "clone", _FORK_FLAGS) == _EPERM
    assert _child(machine, "clone", 0x4111) == _EPERM  # CLONE_VM | CLONE_VFORK | SIGCHLD
    assert _child(machine, "clone", _THREAD_FLAGS) == _ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert _zygote(machine, "clone", _FORK_FLAGS | flag) == _EPERM
        assert _child(machine, "clone", _THREAD_FLAGS | flag) == _EPERM
    assert (_zygote(machine, "clone3"), _child(machine, "clone3")) == (_ENOSYS, _ENOSYS)


@pytest.mark.parametrize("machine", _MACHINES)
def test_children_change_no_limit_but_their_stacks_and_none_of_another_process(machine: str) -> None:
    for resource in range(16):
        assert _zygote(machine, "prlimit64", 0, resource, _POINTER) == _ALLOW
        assert _child(machine, "prlimit64", 0, resource, 0) == _ALLOW
        # A pointer whose low half is zero is a pointer all the same.
        for pointer in (_POINTER, 1 << 32, 1):
            expected = _ALLOW if resource == 3 else _EPERM
            assert _child(machine, "prlimit64", 0, resource, pointer) == expected
        assert _zygote(machine, "prlimit64", 1, resource, 0) == _EPERM
        assert _child(machine, "prlimit64", 1, resource, 0) == _EPERM


@pytest.mark.parametrize("machine", _MACHINES)
def test_descriptors_send_no_signals_and_no_datagrams_to_others(machine: str) -> None:
    for command, expected in (
        (1, _ALLOW), (4, _ALLOW), (1030, _ALLOW),  # F_GETFD, F_SETFL, F_DUPFD_CLOEXEC
        (8, _EPERM), (10, _EPERM), (15, _EPERM), (1024, _EPERM), (1026, _EPERM), (1033, _EPERM),
    ):  # fmt: skip
        assert _child(machine, "fcntl", 3, command) == expected
    # TCGETS, TIOCGWINSZ, FIONBIO; then TIOCSTI, FIOASYNC, FIOSETOWN.
    for request in (0x5401, 0x5413, 0x5421):
        assert _child(machine, "ioctl", 1, request) == _ALLOW
    for request in (0x5412, 0x5452, 0x8901):
        assert _child(machine, "ioctl", 1, request) == _ENOTTY
    assert _child(machine, "socketpair", 1, 1) == _ALLOW
    for family in (2, 10, 16, 17, 30, 38, 40):
        assert _child(machine, "socketpair", family, 1) == _EPERM
    assert _child(machine, "sendto", 3, _POINTER, 10, 0, 0, 0) == _ALLOW
    for address in (_POINTER, 1 << 32, 1):
        assert _child(machine, "sendto", 3, _POINTER, 10, 0, address, 16) == _EPERM
    for name in ("sendto", "recvfrom"):
        # MSG_DONTWAIT, MSG_OOB.
        assert _child(machine, name, 3, _POINTER, 10, 0x40, 0, 0) == _ALLOW
        assert _child(machine, name, 3, _POINTER, 10, 0x41, 0, 0) == _EPERM


@pytest.mark.parametrize("machine", _MACHINES)
def test_without_opens_no_call_opens_a_file(machine: str) -> None:
    column, _ = _MACHINES[machine]
    names = [name for name in ("open", "openat") if syscalls.OPENS[name][column] >= 0]
    for name in names:
        assert _child(machine, name) == _ALLOW
        assert _child(machine, name, allow_opens=False) == _EPERM
    assert _child(machine, "open_by_handle_at", allow_opens=False) == _EPERM
    # openat2, which no library needs.
    assert _run(seccomp.zygote_filter(machine), _MACHINES[machine][1], 437, ()) == _ENOSYS
    assert _child(machine, "read", allow_opens=False) == _ALLOW


@pytest.mark.parametrize("machine", _MACHINES)
def test_a_filter_is_small_and_jumps_only_to_its_own_instructions(machine: str) -> None:
    for program in (seccomp.zygote_filter(machine), seccomp.child_filter(machine)):
        instructions = list(struct.iter_unpack("<HBBI", program))
        assert len(instructions) <= 1024
        for index, (code, if_true, if_false, value) in enumerate(instructions):
            furthest = value if code == 0x05 else max(if_true, if_false)
            assert index + furthest + 1 < len(instructions) or code == 0x06


def test_no_call_stands_in_two_tables() -> None:
    names = [name for table in _TABLES for name in table]
    assert len(names) == len(set(names))
    for column in (0, 1):
        numbers = [n for table in _TABLES for name, pair in table.items() if (n := pair[column]) >= 0]
        assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    ("column", "header", "num_least"),
    [
        (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 200),
        (1, "/usr/include/asm-generic/unistd.h", 150),
    ],
)
def test_the_tables_agree_with_the_kernels_headers(column: int, header: str, num_least: int) -> None:
    if not Path(header).exists():
        pytest.skip(f"no {header}")
    known = dict(_header_numbers(Path(header).read_text(encoding="utf-8")))
    compared = 0
    for table in _TABLES:
        for name, pair in table.items():
            if name in known:
                assert pair[column] == known[name], name
                compared += 1
            else:
                # Younger than the header, or not there on this machine.
                assert pair[column] == -1 or pair[column] > max(known.values()), name
    assert compared >= num_least


@pytest.mark.parametrize("machine", ["riscv64", "i686", "armv7l", "arm64", "aarch64_be", ""])
def test_an_unknown_machine_is_refused_with_the_names_of_the_known_ones(machine: str) -> None:
    for make in (seccomp.zygote_filter, seccomp.child_filter):
        with pytest.raises(OSError, match=f"'{machine}'; known: x86_64, aarch64") as caught:
            make(machine)
        assert caught.value.errno == errno.ENOSYS


@pytest.mark.skipif(platform.machine() not in _MACHINES, reason="no table for this machine")
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("try: os.fork()\nexcept PermissionError: print('denied')", "denied"),
        ("try: os.kill(os.getpid(), 9)\nexcept PermissionError: print('denied')", "denied"),
        ("try: socket.socket()\nexcept PermissionError: print('denied')", "denied"),
        ("try: subprocess.run(['true'])\nexcept PermissionError: print('denied')", "denied"),
        ("try: os.mkdir('never')\nexcept PermissionError: print('denied')", "denied"),
        (
            "try: resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nexcept ValueError: print('denied')",
            "denied",
        ),
        ("try: fcntl.fcntl(0, 10, 9)\nexcept PermissionError: print('denied')", "denied"),
        ("t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()", "thread"),
        ("async def f(): return await asyncio.to_thread(str, 3)\nprint(asyncio.run(f()))", "3"),
        ("print(sqlite3.connect(':memory:').execute('select 1 + 1').fetchone()[0])", "2"),
        (
            "hits = []\nsignal.signal(signal.SIGALRM, lambda *_: hits.append(1))\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(0.2)\nprint(hits)",
            "[1]",
        ),
        ("print(decimal.Decimal(4).sqrt(), zoneinfo.ZoneInfo('UTC').key, bool(uuid.uuid4()))", "2 UTC True"),
    ],
)
def test_programs_in_a_process_with_both_filters(program: str, expected: str) -> None:
    head = (
        "import asyncio, decimal, fcntl, os, resource, signal, socket, sqlite3, subprocess\n"
        "import threading, time, uuid, zoneinfo\nfrom sandbox import jail, seccomp\n"
        "jail.set_no_new_privs()\nseccomp.install(seccomp.zygote_filter())\n"
        "seccomp.install(seccomp.child_filter())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + program],
        cwd=_ROOT, env=os.environ | {"PYTHONPATH": str(_ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == (expected, 0), done.stderr[-2000:]


def _numbers(column: int, *tables: syscalls.Table) -> set[int]:
    return {pair[column] for table in tables for pair in table.values()}


def _header_numbers(text: str) -> Iterator[tuple[str, int]]:
    """``#define __NR_name 12``, and the generic header's names with two spellings."""
    plain = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)\s*$", text, re.MULTILINE))
    shared = dict(re.findall(r"#define __NR3264_(\w+)\s+(\d+)\s*$", text, re.MULTILINE))
    for name, number in plain.items():
        yield name, int(number)
    for name, alias in re.findall(r"#define __NR_(\w+)\s+__NR3264_(\w+)", text):
        if alias in shared and name not in plain:
            yield name, int(shared[alias])
