from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import huggingface_hub
import pytest

from configs.task_sets import task_set_problems
from curriculum.hub_file import fetch_hub_file, parse_address

_ROOT = Path(__file__).parents[2]
_COMMIT = "0" * 40
_LOAD = """
import sys
from curriculum.sources import load_named_tasks
try:
    print([task.task_id for task in load_named_tasks(sys.argv[1])])
except ValueError as error:
    print(f"refused: {error}")
"""


def _load(address: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, address],
        cwd=_ROOT,
        env={"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_an_address_has_owner_name_path_and_perhaps_a_revision() -> None:
    assert parse_address("hf://datasets/a/b/c/d.jsonl") == ("a/b", None, "c/d.jsonl")
    assert parse_address("hf://datasets/a/b@v1/d.jsonl") == ("a/b", "v1", "d.jsonl")


@pytest.mark.parametrize(
    "address",
    [
        "hf://datasets/a/b.jsonl",
        "hf://datasets//b/c.jsonl",
        "hf://datasets/a/@v1/c.jsonl",
        "hf://datasets/a/b@/c.jsonl",
        "http://x/a/b.jsonl",
    ],
)
def test_an_address_without_its_parts_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be hf://datasets/OWNER/NAME"):
        parse_address(address)
    assert len(task_set_problems("--tasks", address)) == 1


def test_a_file_that_was_fetched_is_read_without_a_network_and_another_one_is_refused(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "datasets--someone--tasks"
    snapshot = repository / "snapshots" / _COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(_COMMIT, encoding="utf-8")
    line = {"task_id": "t", "prompt": "p", "entry_point": "f", "tests": [{"args": [], "expected": 1}]}
    (snapshot / "mine.jsonl").write_text(json.dumps(line), encoding="utf-8")
    assert _load("hf://datasets/someone/tasks/mine.jsonl", tmp_path) == "['t']\n"
    missing = "hf://datasets/someone/tasks/other.jsonl"
    assert _load(missing, tmp_path).startswith(f"refused: {missing}: could not be had from the hub: ")


@pytest.mark.parametrize(("said", "reason"), [("403 Forbidden", "403 Forbidden"), ("", "ProxyError")])
def test_a_network_that_fails_is_a_file_that_cannot_be_had(
    said: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise httpx.ProxyError(said)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    address = "hf://datasets/someone/tasks/mine.jsonl"
    with pytest.raises(ValueError, match=f"^{address}: could not be had from the hub: {reason}$"):
        fetch_hub_file(address)
