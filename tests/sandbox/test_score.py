"""What scoring keeps on the disk while it is under way."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest

from sandbox.result import ExecutionRequest, ExecutionResult, Limits
from sandbox.score import Terms, part_of
from tests.sandbox.test_tools import FixedRunner, line, score_with, write_lines


def test_verdicts_of_an_earlier_run_survive_a_disk_that_is_full_when_they_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    names = ["pass", "wrong", "exception"]
    write_lines(source, [line(name, f"def up(x): pass  # {name}") for name in names])
    runner, terms = FixedRunner(), Terms(limits=Limits())
    score_with(source, target, runner, io.StringIO(), terms)
    kept = target.read_text(encoding="utf-8")
    # As an interrupted run leaves them.
    target.rename(part_of(target))
    write = Path.write_text

    def half(path: Path, text: str, **terms: str) -> int:
        write(path, text[: len(text) // 2], encoding="utf-8")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", half)
        with pytest.raises(OSError, match="No space left"):
            score_with(source, target, runner, io.StringIO(), terms)
    assert part_of(target).read_text(encoding="utf-8") == kept
    _, num_judged = score_with(source, target, runner, io.StringIO(), terms)
    assert num_judged == 0 and target.read_text(encoding="utf-8") == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_a_second_process_is_refused_at_the_start_and_takes_nothing_from_the_first(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_lines(source, [line(name, f"def up(x): pass  # {name}") for name in ("pass", "wrong")])
    terms = Terms(limits=Limits())

    class Second(FixedRunner):
        """Scores the same lines to the same place, while the first is at work."""

        def run(self, request: ExecutionRequest) -> ExecutionResult:
            with pytest.raises(ValueError, match="another process writes it just now"):
                score_with(source, target, FixedRunner(), io.StringIO(), terms)
            return super().run(request)

    counts, num_judged = score_with(source, target, Second(), io.StringIO(), terms)
    assert (counts.num_passed, num_judged) == (1, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
