from __future__ import annotations

import subprocess
from pathlib import Path

from pipeline.host.versions import source_commit

RESULTS, CODE = Path("benchmarks/results/speed.json"), Path("code.py")


def _git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ["git", "-C", str(root), *who, *arguments], capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def test_a_commit_says_that_code_was_changed_and_nothing_of_results_or_new_files(tmp_path: Path) -> None:
    assert source_commit(tmp_path) is None
    (tmp_path / RESULTS).parent.mkdir(parents=True)
    for file in (RESULTS, CODE):
        (tmp_path / file).write_text("1\n")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-q", "-m", "all")
    commit = _git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / RESULTS).write_text("2\n")
    (tmp_path / "new.py").write_text("")
    assert source_commit(tmp_path) == commit
    (tmp_path / CODE).write_text("2\n")
    assert source_commit(tmp_path) == f"{commit}+changes"
    _git(tmp_path, "add", str(CODE))
    assert source_commit(tmp_path) == f"{commit}+changes"
