"""Spans of a start: noted by several processes, put together, and shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.host import spans
from pipeline.host.spans import LOG_VARIABLE, Span, process_started_s, read_spans
from pipeline.report.waits import chrome_trace
from pipeline.run.startup import as_record, as_table, moment, overlap_s

ROOT = Path(__file__).parents[3]


def a_span(process: str, name: str, started_s: float, ended_s: float) -> Span:
    return Span(stage=process, name=name, started_s=started_s, ended_s=ended_s, pid=1)


SPANS = (
    a_span("driver", "import <the run>", 100.0, 104.0),
    a_span("engine", "import vllm", 101.0, 103.0),
    a_span("trainer", "load", 102.0, 106.0),
    a_span("driver", spans.FIRST_TOKEN, 106.5, 106.5),
    a_span("driver", spans.FIRST_SCORE, 107.0, 107.0),
)


def test_overlap_counts_each_moment_once_and_no_span_of_its_own_process() -> None:
    assert overlap_s(SPANS[0], SPANS) == pytest.approx(3.0)
    assert overlap_s(SPANS[2], SPANS) == pytest.approx(2.0)
    assert overlap_s(SPANS[0], (SPANS[0], a_span("driver", "other", 100.0, 104.0))) == 0.0


def test_the_record_counts_from_the_start_of_the_first_process() -> None:
    record = as_record(SPANS, 99.0)
    assert record["first_completion_s"] == 7.5 and record["first_scored_rollout_s"] == 8.0
    assert record["spans"][0]["start_s"] == 1.0 and record["spans"][0]["end_s"] == 5.0
    json.dumps(record)
    assert moment(SPANS[:2], spans.FIRST_SCORE) is None
    assert as_record(SPANS[:2], 99.0)["first_scored_rollout_s"] is None


def test_the_table_says_who_worked_beside_whom() -> None:
    lines = as_table(SPANS, 100.0).splitlines()
    assert len(lines) == 1 + len(SPANS)
    assert lines[1].endswith("driver: import <the run> (engine, trainer)")
    assert lines[4].endswith(f"driver: {spans.FIRST_TOKEN}")


def test_the_trace_has_a_row_of_bars_for_each_process() -> None:
    trace = chrome_trace(SPANS, "a start")
    bars = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(bars) == len(SPANS)
    assert len({event["pid"] for event in bars}) == 3
    (vllm,) = (event for event in bars if event["name"] == "import vllm")
    assert (vllm["ts"], vllm["dur"], vllm["args"]) == (1_000_000, 2_000_000, {"process": 1})
    json.dumps(trace)
    assert chrome_trace((), "")["traceEvents"] == []


def test_a_process_knows_when_it_was_started() -> None:
    before_s = time.time()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert before_s - 0.05 <= process_started_s(child.pid) <= time.time() + 0.05
    finally:
        child.communicate(b"\n")
    assert process_started_s() < before_s


def test_spans_of_several_processes_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "startup.jsonl"
    monkeypatch.setenv(LOG_VARIABLE, str(log))
    with spans.span("driver", "wait for the child"):
        code = "from pipeline.host import spans\nwith spans.span('child', 'work'): sum(range(10**6))"
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    spans.mark("driver", spans.FIRST_SCORE)
    with log.open("a") as file:
        file.write('{"stage": "cut off')
    outer, inner, score = read_spans(log)
    assert (outer.name, inner.stage, score.seconds) == ("wait for the child", "child", 0.0)
    assert outer.started_s <= inner.started_s < inner.ended_s <= outer.ended_s
    assert inner.pid != outer.pid == os.getpid()
    assert inner.cpu_s is not None and 0 < inner.cpu_s < 5


def test_nothing_is_written_when_no_start_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LOG_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with spans.span("driver", "work"):
        spans.mark("driver", spans.FIRST_SCORE)
    assert list(tmp_path.iterdir()) == []


def test_a_span_that_fails_is_noted_and_the_error_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOG_VARIABLE, str(tmp_path / "log"))
    with pytest.raises(KeyError), spans.span("driver", "work"):
        raise KeyError
    assert [span.name for span in read_spans(tmp_path / "log")] == ["work"]
