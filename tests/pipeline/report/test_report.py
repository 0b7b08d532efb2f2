from __future__ import annotations

import json
import math
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.host.spans import GENERATION, GIVEN_UP, REWARDS, STAGES, TRAINER, WAITING, Timeline
from pipeline.record.run_folder import RunFolder
from pipeline.report import samples
from pipeline.report.page import growing_data, main, run_data, series
from pipeline.report.reader import RunReader, SpanRow, StepRow, lock_owner
from pipeline.report.samples import find_samples, line_diff, spread_of_samples
from pipeline.report.waits import busy_shares, chrome_trace, step_times
from tests.pipeline.fake_stages import FakeRun, make_config, scored
from tests.pipeline.report_run import NUM_GENERATIONS, NUM_GROUPS, STEP_S, make_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "finished", 40)


def span(stage: str, started_s: float, ended_s: float, name: str = "step 1 waits") -> SpanRow:
    return SpanRow(
        span_id=1,
        step=1,
        stage=stage,
        name=name,
        draw_id=None,
        num_tokens=None,
        started_s=started_s,
        ended_s=ended_s,
    )


def page_data(page: str) -> dict[str, object]:
    match = re.search(r'id="data">(.*?)</script>', page)
    assert match is not None
    return dict(json.loads(match[1]))


def test_the_database_tells_what_was_written_for_a_task_at_two_steps_and_why_it_scored_so(
    finished: Path,
) -> None:
    reader = RunReader(finished)
    rows = reader.query(
        "SELECT task_id FROM draws JOIN steps USING (step_id) WHERE step IN (3, 39)"
        " GROUP BY task_id HAVING COUNT(DISTINCT step) = 2"
    )
    task_id = rows[0]["task_id"]
    for step in (3, 39):
        found = find_samples(reader, task=task_id, first_step=step, last_step=step)
        assert len(found) == NUM_GENERATIONS
        assert {sample["step"] for sample in found} == {step}
        for sample in found:
            assert f"step {step}</b>" in sample["completion"]
            assert sample["reward"] == (1.0 if sample["passed"] else 0.45)
            assert sample["detail"] == ("" if sample["passed"] else "test 0: wrong value")
            assert sample["breakdown"].keys() == {"syntax", "tests", "execution", "lint", "complexity"}
    task = reader.tasks([task_id])[task_id]
    assert task["prompt"].startswith("Write a function") and task["tests"].startswith("add_")


def test_samples_are_filtered_paged_and_bounded(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RunReader(finished)
    everything = find_samples(reader, limit=10_000)
    assert len(everything) == 40 * NUM_GROUPS * NUM_GENERATIONS
    assert [one["draw_id"] for one in everything] == sorted(
        (one["draw_id"] for one in everything), reverse=True
    )
    assert find_samples(reader, limit=7, offset=5) == everything[5:12]
    wrong = find_samples(reader, outcome="wrong", limit=500)
    assert wrong == [one for one in everything if one["outcome"] == "wrong"]
    assert find_samples(reader, task="%") == [], "a percent sign stands for itself"
    assert {one["draw_id"] for one in find_samples(reader, draw_id=9)} == {9}
    monkeypatch.setattr(samples, "_MAX_ROWS", 10)
    assert find_samples(reader, limit=10_000) == everything[:10] and find_samples(reader, limit=-1) == []


def test_the_samples_of_a_page_are_whole_groups_spread_over_the_run(finished: Path) -> None:
    chosen = spread_of_samples(RunReader(finished), 40)
    steps = [sample["step"] for sample in chosen]
    assert len(chosen) == 40 and min(steps) == 1 and max(steps) == 40


def test_however_many_samples_are_asked_for_they_are_spread_over_the_run(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_MAX_ROWS", 10)
    for num_samples in (20 * NUM_GENERATIONS, 10_000):
        chosen = spread_of_samples(RunReader(finished), num_samples)
        steps = [sample["step"] for sample in chosen]
        assert len(chosen) == 10 * NUM_GENERATIONS and min(steps) == 1 and max(steps) == 40


def test_what_an_earlier_attempt_wrote_does_not_count_as_samples(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", 40)
    chosen = spread_of_samples(RunReader(path), 40)
    with sqlite3.connect(path / "run.db") as database:
        database.execute("UPDATE draws SET attempt = 1 WHERE draw_id = 1")
        database.execute("CREATE TEMP TABLE lost AS SELECT * FROM rollouts WHERE draw_id = 1")
        database.execute("UPDATE rollouts SET attempt = 1 WHERE draw_id = 1")
        database.execute("INSERT INTO rollouts SELECT * FROM lost")
    database.close()
    assert spread_of_samples(RunReader(path), 40) == chosen and len(chosen) == 40


def test_the_report_is_one_file_that_needs_nothing_else(finished: Path, tmp_path: Path) -> None:
    report, trace = tmp_path / "report.html", tmp_path / "trace.json"
    assert main([str(finished), "--output", str(report), "--trace", str(trace)]) == 0
    page = report.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page), "it loads something"
    assert page.count("</script>") == 3, "what a model wrote ended a script element"
    data = page_data(page)
    assert {"series", "spans", "waits", "examples", "samples", "settings", "hardware"} <= data.keys()
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}


def test_the_report_of_a_run_shows_all_that_is_promised(finished: Path) -> None:
    data = run_data(RunReader(finished), num_samples=100)
    assert data["series"]["step"] == list(range(1, 41))
    for name in ("rollout/reward_mean", "rollout/pass_rate", "reward_part/tests", "level_pass_rate/level_1"):
        assert len(data["series"][name]) == 40
    assert data["state"] == {"status": "finished", "step": 40, "max_steps": 40}
    assert {pair["kind"] for pair in data["examples"]} == {"training", "held-out"}
    assert data["evaluation"]["difference"]["mean"] == 0.17
    changed = {name for name, _, is_changed in data["settings"] if is_changed}
    assert changed == {"training.max_steps", "training.seed"}
    assert data["hardware"]["num_cores"] == 2
    assert len(data["waits"]) == 40 and data["busy"].keys() <= set(STAGES)


def test_a_run_that_has_still_to_be_measured_has_not_finished(tmp_path: Path) -> None:
    reader = RunReader(make_run(tmp_path / "run", 3))
    assert reader.state().status == "finished"
    (reader.path / "summary.json").unlink()
    assert reader.state().status == "stopped", "so that the page offers to resume it"


def test_only_what_is_new_is_read_for_a_page_that_is_live(finished: Path) -> None:
    reader = RunReader(finished)
    whole = growing_data(reader)
    news = growing_data(reader, after_step=38, after_span=whole["last_span"] - 3)
    assert news["series"]["step"] == [39, 40] and len(news["spans"]) == 3
    assert news["waits"] == whole["waits"][-3:], "those of step 38 too, whose spans may be entered after it"
    nothing = growing_data(reader, after_step=40, after_span=whole["last_span"])
    assert nothing["series"]["step"] == [] and nothing["last_span"] == whole["last_span"]
    assert nothing["waits"] == [] and nothing["busy"] == {}


def test_a_page_is_loaded_anew_after_a_rewind_a_measurement_and_an_end(tmp_path: Path) -> None:
    finished = make_run(tmp_path / "finished", 3)
    reader = RunReader(finished)
    editions = [growing_data(reader)["edition"]]

    def is_new() -> bool:
        editions.append(growing_data(reader)["edition"])
        return editions[-1] not in editions[:-1]

    assert not is_new()
    (finished / "summary.json").rename(finished / "kept.json")
    assert is_new()
    (finished / "evaluation_before.json").unlink()
    assert is_new()
    with closing(sqlite3.connect(finished / "run.db")) as database:
        columns = "started_at, pid, host, rewound_to"
        database.execute(f"INSERT INTO runs ({columns}) VALUES (1.0, 1, 'here', 3)")
        database.commit()
    assert is_new()


def test_lines_that_have_nothing_in_common_are_compared_soon() -> None:
    before, after = ("\n".join(f"    {name} += 1" for _ in range(3000)) for name in "xy")
    found = line_diff(before, after)
    assert len(found) == 6000 and found[0] == ("-", "    x += 1") and found[-1] == ("+", "    y += 1")


def test_a_wait_is_charged_to_generation_first_then_to_rewards_then_to_nobody() -> None:
    spans = [
        span(WAITING, 0, 10),
        span(GENERATION, 1, 5, "task"),
        span(REWARDS, 4, 8, "task"),
        span(TRAINER, 10, 13, "step 1: update"),
    ]
    (times,) = step_times(spans)
    assert (times.for_generation_s, times.for_rewards_s, times.for_nothing_s) == (4, 3, 3)
    assert (times.trained_s, times.other_s, times.ended_s) == (3, 0, 13)
    assert busy_shares(spans)[GENERATION] == (4, 4 / 13)


def test_a_pause_between_two_parts_of_a_run_makes_no_stage_idle() -> None:
    first = [span(GENERATION, 0, 5, "task"), span(TRAINER, 4, 10, "step 1: update")]
    later = [span(GENERATION, 1000, 1005, "task"), span(TRAINER, 1005, 1010, "step 2: update")]
    assert busy_shares(first + later) == {GENERATION: (10, 0.5), TRAINER: (11, 0.55)}
    assert busy_shares([]) == {}


def test_a_step_that_was_done_again_after_a_resume_is_timed_as_it_was_last() -> None:
    first = [span(WAITING, 0, 2), span(TRAINER, 2, 3, "step 1: update")]
    lost = [span(WAITING, 40, 42), span(TRAINER, 42, 43, f"step 1: update{GIVEN_UP}")]
    again = [span(WAITING, 100, 101), span(TRAINER, 101, 105, "step 1: update")]
    stopped = [span(WAITING, 200, 201, f"step 1 waits{GIVEN_UP}")]
    (times,) = step_times(first + lost + again + stopped)
    assert (times.started_s, times.ended_s, times.trained_s) == (100, 105, 4)
    assert step_times(lost + stopped) == [], "it was never finished"


def test_work_that_fails_is_marked_in_the_timeline() -> None:
    timeline = Timeline(clock=iter([1.0, 2.0, 3.0, 4.0]).__next__)
    with timeline.span(TRAINER, "step 1: update", num_tokens=7):
        pass
    with pytest.raises(OSError), timeline.span(TRAINER, "step 2: update"):
        raise OSError
    done, failed = timeline.drain()
    assert (done.name, done.started_s, done.ended_s, done.num_tokens) == ("step 1: update", 1.0, 2.0, 7)
    assert failed.name == "step 2: update (given up)" and timeline.drain() == ()


def test_the_waits_of_a_step_add_up_to_its_time(finished: Path) -> None:
    for times in step_times(RunReader(finished).spans()):
        parts = times.trained_s + times.for_generation_s + times.for_rewards_s
        parts += times.for_nothing_s + times.other_s
        assert parts == pytest.approx(times.ended_s - times.started_s, abs=1e-6)
        assert times.ended_s - times.started_s <= STEP_S


def test_spans_of_one_lane_of_the_trace_do_not_overlap(finished: Path) -> None:
    events = chrome_trace(RunReader(finished).spans(), "run")["traceEvents"]
    lanes: dict[tuple[int, int], float] = {}
    spans = sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"])
    for event in spans:
        lane = (event["pid"], event["tid"])
        # Times are rounded to microseconds.
        assert event["ts"] >= lanes.get(lane, 0) - 2 and event["dur"] >= 0
        lanes[lane] = event["ts"] + event["dur"]
    assert {event["args"].get("draw") for event in spans} > {1, 2}


def test_a_diff_marks_lines_of_one_side() -> None:
    assert line_diff("a\nb", "a\nc") == [(" ", "a"), ("-", "b"), ("+", "c")]


def test_a_run_leaves_spans_tasks_and_scores_by_reward_and_level(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(training={"max_steps": 3}))
    run.train()
    reader = RunReader(run.folder.path)
    spans = reader.spans()
    assert {GENERATION, REWARDS, WAITING, TRAINER, "weights", "checkpoint"} <= {one.stage for one in spans}
    assert all(one.started_s <= one.ended_s for one in spans)
    trained = {row["draw_id"] for row in reader.query("SELECT draw_id FROM draws WHERE status = 'trained'")}
    for stage in (GENERATION, REWARDS):
        assert trained <= {one.draw_id for one in spans if one.stage == stage}
    assert [times.step for times in step_times(spans)] == [1, 2, 3]
    families = {name.split("/")[0] for name in reader.steps()[-1].metrics}
    assert {"reward_part", "level_pass_rate"} <= families


@pytest.mark.parametrize(("num_kept", "steps"), [(2, {2, 3}), (0, set())])
def test_the_timeline_is_bounded_by_its_setting(tmp_path: Path, num_kept: int, steps: set[int]) -> None:
    output = {"timeline_steps": num_kept}
    run = FakeRun(tmp_path, make_config(training={"max_steps": 3}, output=output))
    run.train()
    assert {one.step for one in RunReader(run.folder.path).spans()} == steps


def test_completions_of_old_steps_are_dropped_where_that_is_asked_for(tmp_path: Path) -> None:
    output = {"text_steps": 2, "save_steps": 1}
    run = FakeRun(tmp_path, make_config(training={"max_steps": 5}, output=output))
    run.train()
    texts = RunReader(run.folder.path).query(
        "SELECT DISTINCT step, completion = '' AS is_gone FROM rollouts JOIN draws USING (draw_id, attempt)"
        " JOIN steps USING (step_id) ORDER BY step"
    )
    assert [(row["step"], row["is_gone"]) for row in texts] == [(1, 1), (2, 1), (3, 1), (4, 0), (5, 0)]
    tokens = "SELECT DISTINCT step FROM trained_tokens JOIN draws USING (draw_id) JOIN steps USING (step_id)"
    assert {row["step"] for row in RunReader(run.folder.path).query(tokens)} == {4, 5}


def test_steps_of_a_life_that_is_lost_hide_none_from_what_drops_completions(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, make_config(training={"max_steps": 6}, output={"text_steps": 1, "save_steps": 3}))
    with sqlite3.connect(run.folder.db) as database:
        database.execute(
            "INSERT INTO steps SELECT NULL, run_id, 5, 'rewound', 5, 'step-000005', '{}', '{}', '[]', '{}',"
            " 0, 0, 0, 0 FROM runs"
        )
    database.close()
    run.train()
    texts = RunReader(run.folder.path).query(
        "SELECT DISTINCT step, completion = '' AS is_gone FROM rollouts JOIN draws USING (draw_id, attempt)"
        " JOIN steps USING (step_id) ORDER BY step"
    )
    assert [(row["step"], row["is_gone"]) for row in texts] == [(n, int(n < 6)) for n in range(1, 7)]


def test_completions_that_were_replaced_are_dropped_as_well(tmp_path: Path) -> None:
    settings = make_config(
        training={"max_steps": 5},
        output={"text_steps": 2, "save_steps": 1},
        acceleration={"refill": {"enabled": True, "max_draws": 4}},
    )
    flat = {"t0", "t1"}
    run = FakeRun(
        tmp_path, settings, score_of=lambda task, index: scored(float(index % 2 and task.task_id not in flat))
    )
    run.train()
    texts = RunReader(run.folder.path).query(
        "SELECT step_issued, MIN(completion = '') AS is_gone, COUNT(*) AS num FROM rollouts"
        " JOIN draws USING (draw_id, attempt) WHERE status = 'dropped' GROUP BY step_issued"
    )
    assert texts and all(row["is_gone"] == (row["step_issued"] < 3) for row in texts)
    assert any(row["step_issued"] < 3 for row in texts)


def damaged(path: Path) -> None:
    (path / "run.db").write_bytes(b"no database at all" * 100)


def older(path: Path) -> None:
    with sqlite3.connect(path / "run.db") as database:
        database.execute("PRAGMA user_version = 1")
    database.close()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda path: (path / "run.db").unlink(), "has no run.db"),
        (lambda path: (path / "config.yaml").unlink(), "it has no config.yaml"),
        (lambda path: (path / "config.yaml").write_text("- a\n"), "config.yaml: not a mapping"),
        (lambda path: (path / "config.yaml").write_text("a: [\n"), "config.yaml: not valid YAML"),
        (
            lambda path: (path / "config.yaml").write_text("training: 5\n"),
            "config.yaml: training.max_steps: must",
        ),
        (
            lambda path: (path / "config.yaml").write_text("training: {max_steps: x}\n"),
            "config.yaml: training.",
        ),
        (lambda path: (path / "summary.json").write_text("{"), "summary.json: is not valid JSON"),
        (
            lambda path: (path / "summary.json").write_text('{"evaluation": 5}'),
            "summary.json: field 'evaluation'",
        ),
        (
            lambda path: (path / "summary.json").write_text('{"evaluation": {"after": 5}}'),
            "summary.json: field",
        ),
        (lambda path: (path / "evaluation_after.json").write_text("[]"), "evaluation_after.json: must hold"),
        (damaged, "run.db is not a run database, or is damaged"),
        (older, "run.db has schema version 1, this program reads 6"),
    ],
)
def test_a_folder_that_cannot_be_reported_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: object, complaint: str
) -> None:
    path = make_run(tmp_path / "run", 2)
    assert callable(spoil)
    spoil(path)
    assert main([str(path)]) == 2
    assert complaint in capsys.readouterr().err
    assert not (path / "report.html").exists() and not (path / "trace.json").exists()


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--samples", "-1"], "--samples: -1 is not allowed"),
        (["--output", "{run}/none/report.html"], "cannot be written"),
        (["--trace", "{run}"], "cannot be written"),
    ],
)
def test_a_wrong_flag_is_refused_before_anything_is_written(
    finished: Path, capsys: pytest.CaptureFixture[str], flags: list[str], complaint: str
) -> None:
    assert main([str(finished), *(flag.format(run=finished) for flag in flags)]) == 2
    assert complaint in capsys.readouterr().err
    assert not (finished / "report.html").exists()


def test_a_run_that_holds_its_folder_is_running(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", 2, max_steps=5)
    assert RunReader(path).state().status == "stopped"
    with RunFolder.open(path):
        state = RunReader(path).state()
    assert (state.status, state.step, state.max_steps) == ("running", 2, 5)


def test_curves_keep_five_digits_and_gaps() -> None:
    values = [0.1234567, -1234567.0, 3.0, 0.0, 1e-7, None, math.nan, math.inf]
    steps = [
        StepRow(step=number, ended_s=0.0, metrics={"a/b": value})
        for number, value in enumerate(values, start=1)
    ]
    assert series(steps, 0.0)["a/b"] == [0.12346, -1234600.0, 3.0, 0.0, 1e-7, None, None, None]


def test_looking_at_a_run_never_keeps_it_from_starting(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", 1)
    is_over = threading.Event()

    def look() -> None:
        # Without a pause, as no page looks, the lock might never be found free.
        while not is_over.wait(0.002):
            lock_owner(path)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(50):
            RunFolder.open(path).close()
    finally:
        is_over.set()
        watcher.join()
