from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from configs.schema import Config
from pipeline.record import tracking
from pipeline.record.metric_names import METRICS, as_markdown
from pipeline.record.tracking import Log, Tracking, start_tracking, tracker_names
from tests.pipeline.fake_stages import FakeRun, is_documented, make_config

ROOT = Path(__file__).parents[3]
# Totals of the reward pool, from which metrics are made; the axis of wandb's charts.
NO_METRICS = {"rewards/busy_s", "rewards/scored", "train/global_step"}


class Recorder:
    def __init__(self, fail_at: int | None = None) -> None:
        self.lines: list[tuple[int, Mapping[str, float]]] = []
        self.is_closed = False
        self.fail_at = fail_at

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == self.fail_at:
            raise ConnectionError("no such host")
        self.lines.append((step, metrics))

    def __enter__(self) -> Log:
        return self.log

    def __exit__(self, *_: object) -> None:
        self.is_closed = True


def config(report_to: object) -> Config:
    return Config.model_validate({"output": {"report_to": report_to}})


def test_every_step_is_handed_on_in_order_without_what_is_not_finite() -> None:
    recorder = Recorder()
    tracked = Tracking([("recorder", lambda: recorder)])
    for step in (1, 2, 3):
        tracked.log(step, {"train/loss": 0.5, "train/kl": math.nan})
    tracked.close()
    assert recorder.lines == [(step, {"train/loss": 0.5}) for step in (1, 2, 3)]
    assert recorder.is_closed


def test_a_tracker_that_fails_or_cannot_start_is_left_out_with_one_line_and_the_others_go_on() -> None:
    broken, sound, said = Recorder(fail_at=2), Recorder(), list[str]()

    def start() -> Recorder:
        raise OSError("no space")

    trackers = [("broken", lambda: broken), ("full", start), ("sound", lambda: sound)]
    tracked = Tracking(trackers, said.append)
    for step in range(1, 6):
        tracked.log(step, {"train/loss": 0.5})
    tracked.close()
    assert [step for step, _ in broken.lines] == [1]
    assert [step for step, _ in sound.lines] == [1, 2, 3, 4, 5]
    assert sorted(said) == [
        "broken gets no more metrics: ConnectionError: no such host",
        "full gets no more metrics: OSError: no space",
    ]


def test_a_run_tells_its_trackers_what_it_writes_to_its_folder(tmp_path: Path) -> None:
    recorder = Recorder()
    tracked = Tracking([("recorder", lambda: recorder)])
    config = make_config(output={"logging_steps": 2}, training={"max_steps": 4})
    FakeRun(tmp_path, config, tracking=tracked).train()
    tracked.close()
    assert [step for step, _ in recorder.lines] == [2, 4]
    assert "rollout/reward_mean" in recorder.lines[0][1]


def test_a_resume_goes_on_in_the_latest_run_of_wandb_in_its_folder_and_a_new_run_begins_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids: list[str | None] = []
    logged: list[dict[str, float]] = []

    class Wandb(ModuleType):
        def init(self, *, id: str | None, **_: object) -> Wandb:  # as wandb spells it
            ids.append(id)
            return self

        def log(self, values: dict[str, float], **_: object) -> None:
            logged.append(values)

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *args, **kwargs: None

    monkeypatch.setitem(sys.modules, "wandb", Wandb("wandb"))
    monkeypatch.setattr(tracking, "find_spec", lambda name: object())
    said: list[str] = []
    names = ("run-20260102_090000-new-1", "offline-run-20260101_100000-old2", "latest-run", "debug.log")
    for name in names:
        (tmp_path / "wandb" / name).mkdir(parents=True)
    for folder, first_step in ((tmp_path, 3), (tmp_path, 0), (tmp_path / "elsewhere", 3)):
        tracked = start_tracking(config("wandb"), "run", folder, first_step, said.append)
        tracked.log(first_step + 1, {"train/loss": 0.5})
        tracked.close()
    assert [values["train/loss"] for values in logged] == [0.5] * 3
    assert ids == ["new-1", None, None] and not said


@pytest.mark.parametrize("report_to", ["trackio", "wandb", "tensorboard", ["trackio", "tensorboard"]])
def test_a_tracker_that_was_named_and_is_not_installed_is_an_error_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, report_to: object
) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"output: report_to: \w+ is not installed; .*pip install \w+"):
        tracker_names(config(report_to))


def test_by_default_a_run_without_trackio_says_so_in_one_line_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    tracked = start_tracking(Config(), "run", tmp_path, 0, said.append)
    tracked.log(1, {"train/loss": 0.5})
    tracked.close()
    assert len(said) == 1 and "pip install trackio" in said[0]
    assert tracker_names(config("none")) == ()


def test_by_default_metrics_go_to_trackio_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: object())
    assert tracker_names(Config()) == ("trackio",)
    assert tracker_names(config(["wandb", "tensorboard"])) == ("wandb", "tensorboard")


@pytest.mark.parametrize(
    "report_to", [[], ["auto", "wandb"], ["none", "trackio"], ["wandb", "wandb"], "mlflow"]
)
def test_a_list_of_trackers_that_makes_no_sense_is_refused(report_to: object) -> None:
    with pytest.raises(ValueError, match="report_to"):
        config(report_to)


@pytest.mark.skipif(find_spec("trackio") is None, reason="trackio is not installed")
def test_trackio_keeps_the_metrics_of_a_run_on_this_machine_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path)
    said: list[str] = []
    tracked = start_tracking(config("trackio"), "one", tmp_path, 0, said.append)
    for step in (1, 2):
        tracked.log(step, {"train/loss": step / 4})
    tracked.close()
    logs = SQLiteStorage.get_logs("code-grpo", "one")
    assert [(line["step"], line["train/loss"]) for line in logs] == [(1, 0.25), (2, 0.5)] and said == []
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(find_spec("trackio") is None, reason="trackio is not installed")
def test_a_new_run_of_an_old_name_is_another_one_in_trackio_and_a_resumed_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path)
    for first_step in (0, 1, 0):
        tracked = start_tracking(config("trackio"), "one", tmp_path, first_step, lambda text: None)
        tracked.log(first_step + 1, {"train/loss": 0.5})
        tracked.close()
    names = [record["name"] for record in SQLiteStorage.get_run_records("code-grpo")]
    assert names == ["one", "one"]


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_reads_the_metrics_of_a_run(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracked = start_tracking(config("tensorboard"), "one", tmp_path, 0, lambda text: None)
    for step in (1, 2):
        tracked.log(step, {"train/loss": step / 4})
    tracked.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("train/loss")] == [(1, 0.25), (2, 0.5)]


def metric_literals() -> set[str]:
    """Every text in the pipeline's code that has the form of a metric's name."""
    pattern = re.compile(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*")
    found = set()
    for path in (ROOT / "pipeline").rglob("*.py"):
        if path.name == "metric_names.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and pattern.fullmatch(node.value)
            ):
                found.add(node.value)
    return found


def test_every_metric_that_the_code_writes_is_in_the_table_and_every_one_in_it_is_written() -> None:
    names, literals = {metric.name for metric in METRICS}, metric_literals()
    stages = {name.split("/")[0] for name in names}
    written = {name for name in literals if name.split("/")[0] in stages} - NO_METRICS
    assert written - names == set(), "write them into pipeline/record/metric_names.py"
    assert names - literals == set(), "nothing writes these"
    assert literals >= NO_METRICS, "an excuse that is no longer needed"


def test_the_metrics_of_a_run_are_all_in_the_table(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config()).train()
    (line, *_) = run.rows("SELECT metrics FROM steps")
    written = json.loads(line[0])
    assert [name for name in written if not is_documented(name)] == []
    assert {"reward_part/syntax", "level_pass_rate/level_1"} <= written.keys()
    assert not is_documented("reward/loss") and not is_documented("train/los")


def test_the_page_of_the_metrics_is_the_table() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == as_markdown(), (
        "python -m pipeline metrics > docs/metrics.md"
    )
