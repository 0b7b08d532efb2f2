"""Where a process writes what is its own: the temporary folder and the cache, also for unusual users."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

import pytest

from pipeline.host import files
from pipeline.host.files import cache_root, own_temporary_folder, write_text_atomically

UUID_SOCKET = "/01234567-0123-0123-0123-0123456789ab"
LONGEST_SOCKET = 107


def no_entry(*_: object) -> str:
    raise KeyError("getpwuid(): uid not found: 12345")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first: of a name that is not there nothing would be undone.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("temporary")
def test_a_user_without_an_entry_in_passwd_has_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", no_entry)
    with own_temporary_folder():
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(f"torchinductor_{os.getuid()}")


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("length", [20, files._LONGEST_BASE, files._LONGEST_BASE + 1, 200])
def test_vllms_sockets_have_room_in_it_whatever_tmpdir_is(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def own_folder(base: Path, prefix: str) -> tuple[Path, object]:
        asked.append(base / f"{prefix}12345678-4194304")
        return tmp_path, None

    monkeypatch.setattr(files, "own_folder", own_folder)
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * (length - 5))
    own_temporary_folder()
    (folder,) = asked
    assert len(f"{folder}{UUID_SOCKET}") <= LONGEST_SOCKET
    assert (folder.parent == Path("/tmp")) == (length > files._LONGEST_BASE)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_root() == Path("/somewhere/code-grpo")
    monkeypatch.delenv("XDG_CACHE_HOME")
    with pytest.raises(ValueError, match=r"no home directory .* set XDG_CACHE_HOME"):
        cache_root()


def test_what_a_link_leads_to_is_replaced_and_a_pipe_is_refused(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    os.mkfifo(pipe)
    write_text_atomically(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    with pytest.raises(ValueError, match="is a device or a pipe"):
        write_text_atomically(pipe, "new")
    assert pipe.is_fifo() and sorted(tmp_path.iterdir()) == [link, pipe, target]
