"""A file system of our own for a sandbox process: only what an interpreter reads, all of it read-only.

Works in a mount namespace that the caller has entered, through the mount calls of Linux 5.12 and
later. Does not stop use of descriptors that are already open, and does not limit anything but files.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from typing import Final

from sandbox.jail import check_call, libc

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH: Final = 2
_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
# The newer calls have the same numbers on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}


def hide_host(
    root: str, paths: Iterable[str], devices: Iterable[str], masked: Iterable[str], extra: Iterable[str]
) -> None:
    """Replace the file system that this process sees; the working directory is then its root.

    ``root`` is an empty folder that serves as the mount point. ``paths`` (files or folders) and
    ``devices`` stay visible, where they exist, at the same place and read-only; the folders
    ``masked``, below them, read as empty, but for ``extra``. There is no /proc, no /dev but
    ``devices``, no /tmp. Raises OSError where the host refuses, with the old file system still in place.
    """
    if (pivot_root := _PIVOT_ROOT.get(platform.machine())) is None:
        raise OSError(f"pivot_root has no known number on {platform.machine()}")
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, None)
    trees = [(path, _clone(path, _ATTR_NODEV)) for path in paths if os.path.exists(path)]
    trees += [(path, _clone(path, 0)) for path in devices if os.path.exists(path)]
    extra_trees = [(path, _clone(path, _ATTR_NODEV)) for path in extra]
    # A library's file stands by itself, and takes an inode.
    options = f"size=256k,nr_inodes={512 + len(trees)},mode=755".encode()
    _mount(b"tmpfs", root, b"tmpfs", _MS_NOSUID | _MS_NODEV, options)
    try:
        for path, tree in trees:
            _attach(tree, path, root + path)
        covers = [root + path for path in masked if os.path.isdir(root + path)]
        for cover in covers:
            _mount(b"tmpfs", cover, b"tmpfs", _MS_NOSUID | _MS_NODEV, options)
        for path, tree in extra_trees:
            _attach(tree, path, root + path)
        for made in (*covers, root):
            _mount(None, made, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None)
        os.chdir(root)
        # The old root lands on top of the new one, where it can be taken off without a folder for it.
        check_call(libc.syscall(pivot_root, b".", b"."), "pivot_root")
    except OSError:
        os.chdir("/")
        libc.umount2(os.fsencode(root), _MNT_DETACH)
        raise
    finally:
        for _, tree in (*trees, *extra_trees):
            os.close(tree)
    check_call(libc.umount2(b".", _MNT_DETACH), "umount2")
    os.chdir("/")


def _clone(path: str, attributes: int) -> int:
    """A detached copy of the tree at ``path``, read-only; its descriptor."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    tree: int = libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(path), flags)
    check_call(tree, f"open_tree({path})")
    wanted = struct.pack("<QQQQ", _ATTR_RDONLY | _ATTR_NOSUID | attributes, 0, 0, 0)
    result = libc.syscall(
        _MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, wanted, ctypes.c_size_t(len(wanted))
    )
    check_call(result, f"mount_setattr({path})")
    return tree


def _attach(tree: int, source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "xb"):
            pass
    result = libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    check_call(result, f"move_mount({target})")


def _mount(source: bytes | None, target: str, kind: bytes | None, flags: int, data: bytes | None) -> None:
    result = libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), data)
    check_call(result, f"mount({target})")
