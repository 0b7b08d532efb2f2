from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from configs.schema import Config, OutputConfig
from pipeline.errors import RunStoppedError, StageError
from pipeline.host.files import write_text_atomically
from pipeline.record.ledger import Ledger
from pipeline.record.run_folder import BASELINE_MARK, RunFolder, refuse_unusable_output
from rewards.breaker import RewardsBrokenError
from rewards.result import RewardResult
from sandbox.result import Outcome


@contextmanager
def started(program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of the Python text ``program`` and the first line that it prints; killed at the end."""
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_a_new_run_has_its_config_and_its_places(tmp_path: Path) -> None:
    with RunFolder.create(OutputConfig(dir=str(tmp_path / "runs"), name="first"), "a: 1\n") as run:
        assert run.path == tmp_path / "runs" / "first"
        assert run.config.read_text() == "a: 1\n"
        assert run.checkpoints.is_dir()
        assert run.db.name == "run.db"
        run.write_summary({"pass_at_1": 0.5})
        assert json.loads(run.summary.read_text()) == {"pass_at_1": 0.5}
        assert not [path for path in run.path.iterdir() if path.name.startswith(".summary")]


def test_a_taken_name_is_refused_and_nothing_is_overwritten(tmp_path: Path) -> None:
    output = OutputConfig(dir=str(tmp_path), name="x")
    RunFolder.create(output, "first").close()
    with pytest.raises(ValueError, match=r"output\.name: 'x' is taken.*--resume"):
        RunFolder.create(output, "second")
    assert (tmp_path / "x" / "config.yaml").read_text() == "first"


def test_a_taken_name_of_the_baselines_is_not_offered_to_be_resumed(tmp_path: Path) -> None:
    output = OutputConfig(dir=str(tmp_path), name="x")
    RunFolder.create(output, "first").close()
    (tmp_path / "x" / BASELINE_MARK).touch()
    with pytest.raises(ValueError, match=r"'x' is taken: .* cannot be resumed: give another name"):
        RunFolder.create(output, "second")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 201])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"output\.name"):
        Config.model_validate({"output": {"name": name}})


def test_an_output_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"output\.dir"):
        RunFolder.create(OutputConfig(dir=str(tmp_path / "file")), "")


def test_unnamed_runs_started_together_get_folders_of_their_own(tmp_path: Path) -> None:
    output = OutputConfig(dir=str(tmp_path))
    runs = [RunFolder.create(output, "") for _ in range(3)]
    assert len({run.name for run in runs}) == 3
    for run in runs:
        run.close()


def test_open_takes_an_earlier_run_up_and_refuses_what_is_none(tmp_path: Path) -> None:
    RunFolder.create(OutputConfig(dir=str(tmp_path), name="x"), "kept").close()
    with RunFolder.open(str(tmp_path / "x")) as run:
        assert run.config.read_text() == "kept"
    with pytest.raises(ValueError, match="does not exist"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"no config\.yaml"):
        RunFolder.open(tmp_path)


def test_a_second_process_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    run = RunFolder.create(OutputConfig(dir=str(tmp_path), name="x"), "")
    with pytest.raises(ValueError, match="in use by process"):
        RunFolder.open(run.path)
    run.close()
    program = (
        "import sys, time; from pipeline.record.run_folder import RunFolder;"
        "run = RunFolder.open(sys.argv[1]); print('ready', flush=True); time.sleep(60)"
    )
    with started(program, str(run.path)) as (child, line):
        assert line == "ready\n"
        with pytest.raises(ValueError, match=f"in use by process {child.pid}"):
            RunFolder.open(run.path)
    RunFolder.open(run.path).close()


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_could_not_be_made_does_not_block_its_name(tmp_path: Path) -> None:
    output = OutputConfig(dir=str(tmp_path), name="x")
    with pytest.raises(UnicodeEncodeError):
        RunFolder.create(output, "\ud800")
    RunFolder.create(output, "fine").close()


def test_an_evaluation_is_written_whole_and_checkpoints_sort_by_step(tmp_path: Path) -> None:
    @dataclass(frozen=True, slots=True)
    class Report:
        pass_at_1: float
        num_passed: tuple[int, ...]
        outcomes: Counter[str]
        results: tuple[RewardResult, ...]

    infra_error = RewardResult(
        reward=math.nan,
        breakdown={},
        outcome=Outcome.INFRA_ERROR,
        passed=False,
        detail="",
        cached=False,
        seconds=0.0,
    )

    with RunFolder.create(OutputConfig(dir=str(tmp_path), name="x"), "") as run:
        run.write_evaluation("before", Report(0.5, (1, 2), Counter("aab"), (infra_error,)))
        text = (run.path / "evaluation_before.json").read_text()
        written = json.loads(text)
        assert (written["pass_at_1"], written["num_passed"]) == (0.5, [1, 2])
        assert written["outcomes"] == {"a": 2, "b": 1}
        assert (written["results"][0]["reward"], written["results"][0]["outcome"]) == (None, "infra_error")
        assert sorted([run.checkpoint(100), run.checkpoint(20)]) == [run.checkpoint(20), run.checkpoint(100)]


def test_a_new_run_that_is_refused_leaves_its_name_free_and_work_is_kept(tmp_path: Path) -> None:
    output = OutputConfig(dir=str(tmp_path), name="run")
    for error in (
        ValueError("a prompt is too long"),
        StageError("vLLM failed to start"),
        RewardsBrokenError("a reward worker did not start"),
        TimeoutError("no answer"),
    ):
        with pytest.raises(type(error)), RunFolder.create(output, "{}") as folder:
            Ledger(folder.db).close()
            assert not folder.is_kept()
            raise error
        assert not (tmp_path / "run").exists()
    with pytest.raises(StageError), RunFolder.create(output, "{}") as folder:
        ledger = Ledger(folder.db)
        ledger.record_draw("task", 1, 0)
        ledger.close()
        assert folder.is_kept()
        raise StageError("later")
    with pytest.raises(StageError), RunFolder.open(tmp_path / "run") as folder:
        assert folder.is_kept()
        raise StageError("again")
    assert (tmp_path / "run" / "run.db").exists()


def measured(folder: RunFolder) -> None:
    folder.evaluation("before").touch()


def saved(folder: RunFolder) -> None:
    folder.checkpoint(1).mkdir(parents=True)


@pytest.mark.parametrize("work", [measured, saved])
def test_a_measurement_and_a_checkpoint_are_work_that_is_kept(
    work: Callable[[RunFolder], None], tmp_path: Path
) -> None:
    output = OutputConfig(dir=str(tmp_path), name="run")
    with pytest.raises(StageError), RunFolder.create(output, "{}") as folder:
        Ledger(folder.db).close()
        work(folder)
        raise StageError("vLLM failed to start")
    assert (tmp_path / "run").exists()


def test_a_run_that_was_asked_to_end_keeps_the_folder_that_its_hint_names(tmp_path: Path) -> None:
    output = OutputConfig(dir=str(tmp_path), name="run")
    with pytest.raises(RunStoppedError), RunFolder.create(output, "{}") as folder:
        Ledger(folder.db).close()
        raise RunStoppedError("stopped", signal.SIGINT)
    assert (tmp_path / "run").exists()


def test_an_output_that_cannot_be_had_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "runs" / "old").mkdir(parents=True)
    refuse_unusable_output(OutputConfig(dir=str(tmp_path / "runs" / "new"), name="run"))
    with pytest.raises(ValueError, match="is not a folder"):
        refuse_unusable_output(OutputConfig(dir=str(tmp_path / "file" / "x")))
    with pytest.raises(ValueError, match=r"output\.name: 'old' is taken"):
        refuse_unusable_output(OutputConfig(dir=str(tmp_path / "runs"), name="old"))
    assert not (tmp_path / "runs" / "new").exists()
