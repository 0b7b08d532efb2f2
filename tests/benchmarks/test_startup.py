"""The benchmark of starts: it waits for the first score, and says why there was none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import startup
from benchmarks.startup import _wait_for_score, main, table
from pipeline.host.spans import FIRST_SCORE, LOG_VARIABLE

ROOT = Path(__file__).parents[2]


def started(code: str, log: Path, said: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, LOG_VARIABLE: str(log)}
    with said.open("wb") as errors:
        return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stderr=errors)


def test_the_first_score_is_found_while_the_run_goes_on(tmp_path: Path) -> None:
    code = "import time; from pipeline.host.spans import *; mark('driver', FIRST_SCORE); time.sleep(99)"
    log, said = tmp_path / "log", tmp_path / "said"
    process = started(code, log, said)
    try:
        assert [span.name for span in _wait_for_score(process, log, said)] == [FIRST_SCORE]
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_run_that_ends_without_a_score_is_an_error_with_its_words(tmp_path: Path) -> None:
    log, said = tmp_path / "log", tmp_path / "said"
    process = started("import sys; sys.exit('no such model')", log, said)
    with pytest.raises(RuntimeError, match="no such model"):
        _wait_for_score(process, log, said)


def test_the_table_has_a_line_for_each_case() -> None:
    case = {"first_scored_rollout_s": 3.25, "rounds_s": [3.0, 3.25, 4.0], "limit_s": 4.0}
    result = {
        "hardware": {"cpu": "a CPU"},
        "settings": {"rounds": 3, "cores": 2},
        "cases": {"attached": case, "trl": {**case, "limit_s": None}},
    }
    attached, trl = table(result).splitlines()[-2:]
    assert attached.startswith("| attached | 3.2 s (limit 4 s) | 3.0, 3.2, 4.0 |")
    assert trl.startswith("| trl | 3.2 s | ")


@pytest.mark.parametrize(("seconds", "status"), [(4.0, 0), (4.01, 1)])
def test_a_start_above_its_limit_is_a_failure(
    seconds: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(startup, "_case", lambda name, folder, environment: seconds)
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: None)
    monkeypatch.setattr(startup, "end_on_sigterm", lambda: None)
    # TRL's trainer has no limit.
    assert main(["--rounds", "1", "--cores", "1", "--cases", "attached", "trl"]) == status
    assert ("error: attached: above its limit" in capsys.readouterr().err) == bool(status)
