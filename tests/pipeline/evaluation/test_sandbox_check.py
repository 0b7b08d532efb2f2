"""Whether the host's sandbox may run model code is settled before any model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from configs.schema import ExecutionConfig
from pipeline.cli import evaluate_humaneval, train_accelerated, train_code_grpo
from pipeline.evaluation.scorers import check_sandbox

_WEAK = frozenset({"namespaces", "landlock"})
_NO_MODEL = ["--model", "no-such-model"]
_NO_MODULE = "no_such_package"


def test_a_good_host_is_silently_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    check_sandbox(ExecutionConfig(modules=["json"]))
    check_sandbox(ExecutionConfig(), without=frozenset({"namespaces"}))
    assert capsys.readouterr() == ("", "")


def test_a_weak_host_is_refused_with_level_missing_walls_and_the_way_out() -> None:
    with pytest.raises(ValueError) as refused:
        check_sandbox(ExecutionConfig(), without=_WEAK)
    text = str(refused.value)
    for part in ("level L1", "L2", "missing: imports", "python -m sandbox selftest", "SECURITY.md"):
        assert part in text
    assert text.endswith("--set execution.allow_unsafe=true")
    with pytest.raises(ValueError, match=r"--allow-unsafe$"):
        check_sandbox(ExecutionConfig(), unsafe_flag="--allow-unsafe", without=_WEAK)


def test_a_weak_host_that_is_allowed_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    check_sandbox(ExecutionConfig(allow_unsafe=True), without=_WEAK)
    assert "sandbox level L1, as allowed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "arguments", "field"),
    [
        (train_accelerated, ["--set", f"execution.modules=[{_NO_MODULE}]"], "execution.modules"),
        (train_code_grpo, ["--set", f"execution.modules=[{_NO_MODULE}]"], "execution.modules"),
        (evaluate_humaneval, ["--module", _NO_MODULE], "--module"),
    ],
    ids=["train_accelerated", "train_code_grpo", "evaluate_humaneval"],
)
def test_every_command_checks_the_sandbox_before_it_looks_for_the_model(
    command: Callable[[Sequence[str]], int],
    arguments: list[str],
    field: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command([*_NO_MODEL, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {field}: {_NO_MODULE} is not installed; allowed: ")
    assert list(tmp_path.iterdir()) == [], "no run folder"
