"""Numbers of the system calls that the filters know by name, on x86-64 and arm64.

Only tables: what becomes of a call that stands in none of them, and what an argument may be, is in
``seccomp.py``. A number is -1 where the architecture has no such call. Checked against the kernel's
headers by ``tests/sandbox/test_seccomp.py``.
"""

from __future__ import annotations

from typing import Final

Table = dict[str, tuple[int, int]]

PLAIN: Final[Table] = {
    # Files.
    "read": (0, 63), "write": (1, 64), "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65),
    "writev": (20, 66), "lseek": (8, 62), "close": (3, 57), "close_range": (436, 436), "fstat": (5, 80),
    "stat": (4, -1), "lstat": (6, -1), "newfstatat": (262, 79), "statx": (332, 291), "access": (21, -1),
    "faccessat": (269, 48), "faccessat2": (439, 439), "getcwd": (79, 17), "readlink": (89, -1),
    "readlinkat": (267, 78), "getdents64": (217, 61), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24),
    "umask": (95, 166),
    # Pipes and events.
    "pipe": (22, -1), "pipe2": (293, 59), "eventfd": (284, -1), "eventfd2": (290, 19), "poll": (7, -1),
    "ppoll": (271, 73), "select": (23, -1), "pselect6": (270, 72), "epoll_create": (213, -1),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, -1), "epoll_pwait": (281, 22),
    "shutdown": (48, 210), "getsockname": (51, 204),
    "getpeername": (52, 205), "getsockopt": (55, 209),
    # Memory. Without membarrier() musl signals its threads instead, for which there is no permission.
    "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226), "madvise": (28, 233),
    "brk": (12, 214), "membarrier": (324, 283),
    # Threads.
    "futex": (202, 98), "set_robust_list": (273, 99), "set_tid_address": (218, 96), "gettid": (186, 178),
    "rseq": (334, 293), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "getcpu": (309, 168), "exit": (60, 93), "exit_group": (231, 94),
    "restart_syscall": (219, 128),
    # Signals.
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136), "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132), "pause": (34, -1),
    # Time. Timers of these kinds only: timer_create() may send any signal, SIGKILL too.
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101), "gettimeofday": (96, 169), "time": (201, -1), "times": (100, 153),
    "getitimer": (36, 102), "setitimer": (38, 103), "alarm": (37, -1),
    # What it may ask about itself and the machine.
    "getpid": (39, 172), "getppid": (110, 173), "getpgid": (121, 155), "getpgrp": (111, -1),
    "getsid": (124, 156), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "getresuid": (118, 148), "getresgid": (120, 150), "getgroups": (115, 158),
    "getpriority": (140, 141), "getrlimit": (97, 163), "getrusage": (98, 165), "getrandom": (318, 278),
    "uname": (63, 160), "sysinfo": (99, 179), "wait4": (61, 260), "waitid": (247, 95),
}  # fmt: skip
"""Allowed to all, whatever the arguments: what a running interpreter and honest programs need."""

OPENS: Final[Table] = {"open": (2, -1), "openat": (257, 56)}
"""All allowed ways to open a file by its path."""

ZYGOTE_ONLY: Final[Table] = {
    "fork": (57, -1), "kill": (62, 129), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "memfd_create": (319, 279), "sendmsg": (46, 211), "recvmsg": (47, 212), "ftruncate": (77, 46),
    "chdir": (80, 49), "fchdir": (81, 50), "unlink": (87, -1), "unlinkat": (263, 35), "rmdir": (84, -1),
    "setpgid": (109, 154), "setsid": (112, 157), "setrlimit": (160, 164),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}  # fmt: skip
"""Allowed to the zygote, denied to its children: processes, signals, files of its own folder."""

CHECKED: Final[Table] = {
    "clone": (56, 220), "clone3": (435, 435), "fcntl": (72, 25), "ioctl": (16, 29), "prctl": (157, 167),
    "prlimit64": (302, 261), "recvfrom": (45, 207), "sendto": (44, 206), "socketpair": (53, 199),
}  # fmt: skip
"""Decided by their arguments; see ``seccomp.py``."""

DENIED: Final[Table] = {
    # Processes: new programs, signals to oneself (a SIGKILL reads as a fault of the host), others' memory.
    "vfork": (58, -1), "execve": (59, 221), "execveat": (322, 281), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "pidfd_getfd": (438, 438), "kcmp": (312, 272), "seccomp": (317, 277),
    "unshare": (272, 97), "setns": (308, 268), "personality": (135, 92), "arch_prctl": (158, -1),
    "modify_ldt": (154, -1),
    # Identity.
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setresuid": (117, 147), "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151),
    "setfsgid": (123, 152), "capset": (126, 91), "setpriority": (141, 140), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # Network; setsockopt() could load a BPF program.
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "setsockopt": (54, 208), "sendmmsg": (307, 269), "recvmmsg": (299, 243),
    # Files: changes (also of what Landlock has no say over), ways around paths, data without copies.
    "truncate": (76, 45), "fallocate": (285, 47), "rename": (82, -1), "renameat": (264, 38),
    "renameat2": (316, 276), "mkdir": (83, -1), "mkdirat": (258, 34), "mknod": (133, -1),
    "mknodat": (259, 33), "link": (86, -1), "linkat": (265, 37), "symlink": (88, -1), "symlinkat": (266, 36),
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1),
    "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54), "utime": (132, -1), "utimes": (235, -1),
    "futimesat": (261, -1), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469), "flock": (73, 32),
    "splice": (275, 76), "tee": (276, 77), "vmsplice": (278, 75), "sendfile": (40, 71),
    "copy_file_range": (326, 285), "creat": (85, -1), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "inotify_init": (253, -1), "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "chroot": (161, 51),
    # Mounts.
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "open_tree": (428, 428),
    "open_tree_attr": (467, 467), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "statmount": (457, 457),
    "listmount": (458, 458), "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89),
    # Memory.
    "memfd_secret": (447, 447), "userfaultfd": (323, 282), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "shmdt": (67, 197), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "semctl": (66, 191), "mq_open": (240, 180), "mq_unlink": (241, 181), "mlock": (149, 228),
    "mlock2": (325, 284), "mlockall": (151, 230), "mincore": (27, 232), "mbind": (237, 235),
    "set_mempolicy": (238, 237), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # Kernel.
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_setup": (206, 0),
    "io_submit": (209, 2), "timer_create": (222, 107), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, -1),
    "ioperm": (173, -1), "lookup_dcookie": (212, 18), "vhangup": (153, 58),
}  # fmt: skip
"""Denied with EPERM, so that a program sees a PermissionError. Calls that are in no table fail with
ENOSYS, as on a kernel that does not know them: a new call of a new kernel is closed before anybody
here has heard of it."""
