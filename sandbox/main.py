"""The main function of a sandbox process: build the jail from the outside in, then serve.

What the host refuses is left out; the canary finds out what that means. Runs none of the model's
code.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Callable
from typing import Final

from sandbox import canary, child, control, jail, mounts, randomness, seccomp, zygote
from sandbox.launcher import Launcher, watch_over

_ZONES: Final = ("/usr/share/zoneinfo", "/etc/localtime")
_DEVICES: Final = ("/dev/null", "/dev/urandom")
# Installed packages hold benchmark data with reference solutions.
_PACKAGES: Final = ("site-packages", "dist-packages")
_STANDARD_LIBRARY: Final = os.path.dirname(os.__file__)
_MAX_PROCESSES: Final = 64
# The modules that solutions import most, loaded once so that a child finds them warm; any other of the
# standard library can be imported, at its cost, wherever files can be opened. Each makes every fork dearer.
_WARM: Final = (
    *("bisect", "collections", "copy", "datetime", "functools", "heapq", "itertools", "json", "math"),
    *("operator", "random", "re", "string", "typing"),
)
# What else solutions and test programs are likely to import, for children that can open no file.
_REST: Final = (
    *("array", "base64", "calendar", "cmath", "dataclasses", "decimal", "fractions", "hashlib", "numbers"),
    *("statistics", "textwrap", "traceback", "unittest", "unittest.mock"),
)


def main(
    control_fd: int, workdir: str, without: frozenset[str], modules: tuple[str, ...], paths: tuple[str, ...]
) -> None:
    """Jail this process and serve the owner at ``control_fd`` until it hangs up.

    ``workdir`` is an empty private folder, removed at the end; ``without`` names walls to leave out;
    ``modules`` are imported from the folders ``paths`` and stay importable.
    """
    os.umask(0o022)
    control_fd, null = _clear_low_descriptors(control_fd)
    owner_line = socket.socket(fileno=control_fd)
    owner = os.getppid()
    line, far_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        extra = _import(modules, paths)
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        separate = "namespaces" not in without and _separate(proc)
    except Exception as error:
        _refuse(owner_line, error)
        return
    pid = os.fork()
    if pid > 0:
        # The owner must see EOF when the zygote ends, so no copy of the socket may stay here.
        owner_line.close()
        far_line.close()
        watch_over(pid, owner, line, workdir)
    line.close()
    try:
        prepared, network = _build(workdir, proc, separate, without, extra)
        launcher = Launcher(far_line)
        if launcher.is_gone():
            raise OSError("the launcher was killed while the jail was built")
        walls = _find_walls(prepared, network)
        owner_line.send(control.pack_hello(walls.to_bytes()))
        zygote.Zygote(owner_line, prepared, launcher, null).serve()
    except Exception as error:
        _refuse(owner_line, error)


def _clear_low_descriptors(control_fd: int) -> tuple[int, int]:
    """Put /dev/null in the places where children find their descriptors; returns ``control_fd`` and a
    /dev/null, both above these."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    while null < child.NUM_FDS:
        null = os.dup(null)
    moved = os.dup(control_fd)
    os.close(control_fd)
    for target in range(child.NUM_FDS):
        os.dup2(null, target, inheritable=False)
    return moved, null


def _refuse(owner_line: socket.socket, error: Exception) -> None:
    """Tell the owner why there will be no answer."""
    owner_line.send(f"{type(error).__name__}: {error}"[:500].encode("utf-8", "replace"))


def _import(modules: tuple[str, ...], paths: tuple[str, ...]) -> list[str]:
    """Import ``modules`` with what they need; the folders and files that these packages consist of."""
    _load(_WARM)
    before = set(sys.modules)
    sys.path += paths
    _load(modules)
    randomness.load()
    # Other packages, and this project's own source, are not to be found any more.
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [path for path in sys.path if path not in (*paths, root)]
    loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
    found = []
    for path in paths:
        for name in os.listdir(path) if os.path.isdir(path) else ():
            # Wheels keep their shared libraries in a folder beside the package.
            if name.partition(".")[0] in loaded and not name.endswith((".dist-info", ".pth", ".egg-info")):
                found.append(os.path.join(path, name))
    return found


def _load(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


def _separate(proc: int) -> bool:
    """Enter namespaces: with privileges if we have them, else as the root of a user namespace."""
    if os.geteuid() == 0 and _works(jail.unshare_system):
        return True
    return _works(lambda: jail.unshare_user(proc)) and _works(jail.unshare_system)


def _build(
    workdir: str, proc: int, separate: bool, without: frozenset[str], extra: list[str]
) -> tuple[child.Jail, bool]:
    """The jail, and whether the network is closed."""
    os.chdir(workdir)
    base_bytes = jail.address_space_bytes()
    hidden = separate and _works(jail.unshare_mounts) and _works(lambda: _hide_host(workdir, extra))
    nobody = (
        "user" not in without and os.geteuid() == 0 and _works(lambda: jail.become_nobody(_STANDARD_LIBRARY))
    )
    if nobody:
        _check_readable(extra)
    counted = separate and (not nobody or _works(lambda: jail.unshare_user(proc)))
    os.close(proc)
    # After the last change of user, which would undo these.
    jail.die_with_parent()
    jail.set_no_new_privs()
    _works(jail.drop_capabilities)
    jail.forbid_inspection()
    os.environ.clear()
    jail.set_lasting_rlimits(_MAX_PROCESSES if counted else 0)
    network = canary.network_is_closed()
    landlocked = "landlock" not in without and _works(lambda: _enter_landlock(extra))
    if not (landlocked or hidden):
        # Where children may open no file at all, what they may need must be there.
        _load(_REST)
    child_filter = None
    if "seccomp" not in without and _works(lambda: seccomp.install(seccomp.zygote_filter())):
        child_filter = seccomp.prepare(seccomp.child_filter(allow_opens=landlocked or hidden))
    writable = not (landlocked or hidden or child_filter) and os.access(workdir, os.W_OK)
    if not writable:
        # The owner removes a folder that nobody can write to.
        os.chdir("/")
    prepared = child.Jail(
        child_filter=child_filter,
        init=os.getpid() == 1,
        workdir=workdir if writable else None,
        base_bytes=base_bytes,
    )
    return prepared, network


def _check_readable(packages: list[str]) -> None:
    """Raises PermissionError for one of which programs could import only what is loaded already."""
    for path in packages:
        if not os.access(path, os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK):
            raise PermissionError(
                f"{path} (of execution.modules, --module) cannot be read without the rights of root, which "
                "programs do not have: open it and the folders above it to all (chmod o+rX)"
            )


def _hide_host(workdir: str, extra: list[str]) -> None:
    readable = [_STANDARD_LIBRARY, *jail.shared_library_paths(), *_ZONES]
    masked = [os.path.join(_STANDARD_LIBRARY, name) for name in _PACKAGES]
    mounts.hide_host(workdir, readable, _DEVICES, masked, extra)


def _enter_landlock(extra: list[str]) -> None:
    names = [name for name in os.listdir(_STANDARD_LIBRARY) if name not in _PACKAGES]
    readable = [os.path.join(_STANDARD_LIBRARY, name) for name in names]
    paths = [*readable, *jail.shared_library_paths(), *_ZONES, *extra, "/dev/urandom"]
    jail.enter_landlock(paths, folders=[_STANDARD_LIBRARY])


def _find_walls(prepared: child.Jail, network: bool) -> canary.Walls:
    """Fork a child, jail it, let it try the walls."""
    reader, writer = os.pipe()
    calls = child.limit_calls(prepared, 2.0, 256 * 1024**2, 4096)
    pid = child.fork()
    if pid == 0:
        try:
            if all(call.function(*call.arguments) == 0 for call in calls):
                os.write(writer, canary.probe(network=network).to_bytes())
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, 64)
    os.close(reader)
    os.waitpid(pid, 0)
    zygote.remove_traces(prepared)
    if not answer:
        raise OSError("the canary child died before it could report")
    return canary.Walls.from_bytes(answer)


def _works(wall: Callable[[], None]) -> bool:
    try:
        wall()
    except OSError:
        return False
    return True
