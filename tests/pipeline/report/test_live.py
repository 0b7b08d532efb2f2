from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from pipeline.cli import train_accelerated
from pipeline.report.live_control import RunControl
from pipeline.report.live_server import TOKEN_HEADER, make_app
from pipeline.report.reader import RunReader, lock_owner
from tests.pipeline.record.test_run_folder import started
from tests.pipeline.report_run import NUM_GENERATIONS, NUM_GROUPS, make_run

TOKEN, PORT = "let-me-in", 8763
HOST = f"127.0.0.1:{PORT}"
# Stands for a training run: holds the folder until it is asked to stop.
HOLD = """
import signal, sys, time
from pathlib import Path
from pipeline.record.run_folder import RunFolder
with RunFolder.open(sys.argv[1]) as folder:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    print("up", flush=True)
    time.sleep(600)
"""
COMMAND = "import sys; from pipeline.cli import train_accelerated; sys.exit(train_accelerated())"
# Stands for train_accelerated: says what it was asked for.
ECHO = (sys.executable, "-c", "import sys; print(sys.argv[1:])")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_run(tmp_path / "done", 12)
    make_run(tmp_path / "half", 6, max_steps=12)
    return tmp_path


@pytest.fixture
def control(root: Path) -> RunControl:
    return RunControl(root, ECHO)


@pytest.fixture
def client(root: Path, control: RunControl) -> Iterator[TestClient]:
    app = make_app(root, control, TOKEN, PORT)
    with TestClient(app, base_url=f"http://{HOST}", follow_redirects=False) as client:
        client.cookies.set(f"watch_{PORT}", TOKEN)
        yield client


@pytest.fixture
def running(root: Path) -> Iterator[subprocess.Popen[str]]:
    with started(HOLD, str(root / "half")) as (process, line):
        assert line == "up\n"
        yield process


def act(client: TestClient, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, str]]:
    answer = client.post(path, json=body or {}, headers={TOKEN_HEADER: TOKEN, **headers})
    return answer.status_code, answer.json()


def output_of(control: RunControl) -> str:
    job = control.jobs[-1]
    assert job.process.wait(20) == 0
    return str(job.as_json()["tail"])


def test_the_list_says_how_each_run_stands(client: TestClient, root: Path) -> None:
    broken = root / "broken"
    broken.mkdir()
    (broken / "config.yaml").write_text("{}")
    lines = {line["name"]: line for line in client.get("/api/runs").json()}
    assert (lines["done"]["status"], lines["half"]["status"]) == ("finished", "stopped")
    assert lines["half"]["step"] == 6 and lines["half"]["max_steps"] == 12
    assert lines["broken"]["status"] == "unreadable" and "no run.db" in lines["broken"]["error"]


def test_a_run_that_is_removed_while_runs_are_listed_is_no_fault(
    client: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> RunReader:
        if path.name == "half":
            shutil.rmtree(path)
        return RunReader(path)

    monkeypatch.setattr("pipeline.report.live_server.RunReader", read)
    done, half = client.get("/api/runs").json()
    assert (done["name"], done["status"]) == ("done", "finished")
    assert (half["name"], half["status"]) == ("half", "unreadable") and "does not exist" in half["error"]


def test_looking_at_runs_writes_nothing_and_the_latest_begun_comes_first(
    client: TestClient, root: Path
) -> None:
    before = sorted(root.rglob("*"))
    lines = client.get("/api/runs").json()
    begun = [line["started_s"] for line in lines]
    assert begun == sorted(begun, reverse=True)
    # What writes into a folder, such as a report, does not move its run.
    (root / lines[-1]["name"] / "report.html").write_text("x", encoding="utf-8")
    assert [line["name"] for line in client.get("/api/runs").json()] == [line["name"] for line in lines]
    assert client.get("/runs/done").status_code == 200
    assert sorted(path for path in root.rglob("*") if path.name != "report.html") == before


def test_a_run_is_served_with_its_samples_and_what_is_new(client: TestClient) -> None:
    page = client.get("/runs/done")
    assert page.status_code == 200 and "default-src 'none'" in page.headers["content-security-policy"]
    found = client.get("/api/runs/done/samples", params={"first_step": 3, "last_step": 3}).json()
    assert len(found["samples"]) == NUM_GROUPS * NUM_GENERATIONS
    assert {sample["task_id"] for sample in found["samples"]} == found["tasks"].keys()
    news = client.get("/api/runs/done/news", params={"after_step": 10, "after_span": 0}).json()
    assert news["series"]["step"] == [11, 12] and news["busy"]
    assert client.get("/api/runs/half/series").json()["step"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ({"host": f"evil.example:{PORT}"}, "own address only"),
        ({"host": "127.0.0.1:1"}, "own address only"),
        ({"origin": "http://evil.example"}, "another origin"),
        ({"origin": "null"}, "another origin"),
        ({"origin": "http://127.0.0.1:1"}, "another origin"),
        ({"sec-fetch-site": "cross-site"}, "another site"),
        ({"cookie": f"watch_{PORT}=guess"}, "open the address"),
        ({"cookie": ""}, "open the address"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/runs/done", "/api/runs", "/api/runs/done/samples"])
def test_nothing_is_told_to_another_origin_host_or_user(
    client: TestClient, path: str, headers: dict[str, str], complaint: str
) -> None:
    if "cookie" in headers:
        client.cookies.clear()
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403 and complaint in answer.json()["error"]


@pytest.mark.parametrize("other", ['theme={"dark": true}', "a b=c", "no equals sign", "caf\xe9=1"])
def test_cookies_of_other_servers_lock_nobody_out(client: TestClient, other: str) -> None:
    client.cookies.clear()
    for cookies in (f"{other}; watch_{PORT}={TOKEN}", f"watch_{PORT}={TOKEN}; {other}"):
        assert client.get("/api/runs", headers={b"cookie": cookies.encode("latin-1")}).status_code == 200
    assert client.get("/api/runs", headers={b"cookie": other.encode("latin-1")}).status_code == 403


def test_no_other_origin_starts_or_stops_a_run(
    client: TestClient, control: RunControl, running: subprocess.Popen[str]
) -> None:
    # The cookie alone does not do: another page's form would bring it along.
    refused: list[dict[str, str]] = [
        {TOKEN_HEADER: ""},
        {TOKEN_HEADER: "guess"},
        {"origin": "http://evil.example"},
        {"host": "evil.example"},
        {"sec-fetch-site": "same-site"},
    ]
    for path in ("/api/runs/half/stop", "/api/runs/half/resume", "/api/start"):
        for headers in refused:
            status, answer = act(client, path, **headers)
            assert status == 403 and answer["error"], (path, headers)
    assert control.jobs == [] and running.poll() is None


def test_an_action_is_a_post(client: TestClient) -> None:
    assert client.get("/api/runs/half/stop").status_code == 405


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_cannot_read(
    root: Path, control: RunControl
) -> None:
    app = make_app(root, control, TOKEN, PORT)
    with TestClient(app, base_url=f"http://{HOST}", follow_redirects=False) as client:
        answer = client.get("/runs/done", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, f"http://{HOST}/runs/done")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert client.get("/runs/done").status_code == 200
        assert client.get("/", params={"token": "guess"}).status_code == 403


@pytest.mark.parametrize("name", [".hidden", "none", "..%2fdone", "a%00b"])
def test_only_run_folders_in_the_folder_are_served(client: TestClient, root: Path, name: str) -> None:
    make_run(root / ".hidden", 2)
    assert client.get(f"/runs/{name}").status_code in (400, 404)


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ({"first_step": "x"}, "first_step: 'x' is not a whole number"),
        ({"limit": "1e9"}, "limit: '1e9' is not"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(
    client: TestClient, query: dict[str, str], complaint: str
) -> None:
    answer = client.get("/api/runs/done/samples", params=query)
    assert answer.status_code == 400 and complaint in answer.json()["error"]


def test_stop_asks_the_process_that_holds_the_folder_to_end_in_good_order(
    client: TestClient, running: subprocess.Popen[str], root: Path
) -> None:
    assert lock_owner(root / "half") == running.pid
    status, answer = act(client, "/api/runs/half/stop")
    assert status == 200 and "saves its last finished step" in answer["message"]
    assert running.wait(10) == 128 + signal.SIGTERM
    status, answer = act(client, "/api/runs/half/stop")
    assert status == 400 and answer["error"] == "half is not running"


def test_a_second_stop_sends_no_signal_which_would_end_the_run_unsaved(
    client: TestClient, running: subprocess.Popen[str], root: Path
) -> None:
    with closing(sqlite3.connect(root / "half" / "run.db")) as database, database:
        (started_at,) = database.execute("SELECT MAX(started_at) FROM runs").fetchone()
        # One that an earlier process was sent does not count.
        database.execute("INSERT INTO events (time, kind, text) VALUES (?, 'stop', '')", (started_at + 1,))
    status, answer = act(client, "/api/runs/half/stop")
    assert status == 200 and "was asked to stop before" in answer["message"]
    assert running.poll() is None
    with closing(sqlite3.connect(root / "half" / "run.db")) as database, database:
        database.execute("UPDATE events SET time = ? WHERE kind = 'stop'", (started_at - 1,))
    assert "was asked to stop:" in act(client, "/api/runs/half/stop")[1]["message"]
    assert running.wait(10) == 128 + signal.SIGTERM


def test_a_run_of_another_machine_is_not_stopped_from_here(
    client: TestClient, running: subprocess.Popen[str], root: Path
) -> None:
    with sqlite3.connect(root / "half" / "run.db") as database:
        database.execute("UPDATE runs SET host = 'elsewhere'")
    database.close()
    status, answer = act(client, "/api/runs/half/stop")
    assert status == 400 and answer["error"] == "half runs on elsewhere: stop it there"
    assert running.poll() is None


def test_a_run_that_could_not_be_resumed_is_not_stopped_from_here(
    client: TestClient, running: subprocess.Popen[str], root: Path
) -> None:
    (root / "half" / "baseline.txt").write_text("")
    status, answer = act(client, "/api/runs/half/stop")
    assert status == 400 and answer["error"] == (
        "half is a run of train_code_grpo, which saves nothing when it is stopped and cannot be resumed: "
        "end it where it was started"
    )
    assert running.poll() is None


def test_a_baseline_that_measures_before_training_is_listed_as_that_and_not_stopped_from_here(
    client: TestClient, root: Path
) -> None:
    folder = root / "baseline"
    folder.mkdir()
    (folder / "config.yaml").write_text("{}")
    with started(HOLD, str(folder)) as (process, line):
        assert line == "up\n"
        (folder / "baseline.txt").write_text("")
        lines = {line["name"]: line for line in client.get("/api/runs").json()}
        assert lines["baseline"]["status"] == "measuring"
        assert lines["baseline"]["error"] == "a run of train_code_grpo, before its first step"
        status, answer = act(client, "/api/runs/baseline/stop")
        assert status == 400 and "end it where it was started" in answer["error"]
        assert process.poll() is None
        process.terminate()
        process.wait(10)
    lines = {line["name"]: line for line in client.get("/api/runs").json()}
    assert lines["baseline"]["status"] == "unreadable" and "no run.db" in lines["baseline"]["error"]


def test_a_stopped_run_is_resumed_and_no_other(
    client: TestClient, control: RunControl, root: Path, running: subprocess.Popen[str]
) -> None:
    assert act(client, "/api/runs/half/resume") == (400, {"error": "half is running"})
    running.terminate()
    running.wait(10)
    assert act(client, "/api/runs/done/resume") == (400, {"error": "done has done all of its 12 steps"})
    (root / "half" / "baseline.txt").write_text("")
    status, answer = act(client, "/api/runs/half/resume")
    assert status == 400 and "cannot be resumed" in answer["error"]
    (root / "half" / "baseline.txt").unlink()
    assert act(client, "/api/runs/half/resume")[0] == 200
    # No setting is changed: the log is no terminal, and that is seen there.
    assert output_of(control) == f"['--resume', '{root / 'half'}']\n"
    (job,) = client.get("/api/jobs").json()
    assert job["title"] == "resume half" and job["exit_status"] == 0


def test_a_run_is_started_with_the_settings_of_the_form(
    client: TestClient, control: RunControl, root: Path
) -> None:
    wanted = {"max_steps": "5", "run_name": "mine", "mode": "conservative", "set": ["training.seed=3", ""]}
    assert act(client, "/api/start", wanted)[0] == 200
    said = output_of(control)
    assert f"'--output-dir', '{root}'" in said and "'--max-steps=5', '--run-name=mine'" in said
    assert "'--speedup-mode', 'conservative'" in said and "'--set=training.seed=3'" in said


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({"max_steps": "many"}, "training.max_steps"),
        ({"mode": "reckless"}, 'acceleration.mode: "reckless" is not allowed'),
        ({"set": ["training.sed=3"]}, "training.sed"),
        ({"set": "training.seed=3"}, "give a list"),
        ({"set": ["output.dir=/tmp"]}, "output.dir"),
        ({"set": ["acceleration.mode=aggressive"]}, "acceleration.mode: has a field of its own"),
        ({"max_steps": "5", "set": ["training.max_steps=9"]}, "training.max_steps: has a field of its own"),
        ({"command": "rm"}, "command: not known here"),
        ({"run_name": "../x"}, "output.name"),
    ],
)
def test_settings_that_cannot_be_used_start_nothing(
    client: TestClient, control: RunControl, wanted: dict[str, object], complaint: str
) -> None:
    status, answer = act(client, "/api/start", wanted)
    assert status == 400 and complaint in answer["error"] and control.jobs == []


@pytest.mark.parametrize("text", ["[]", "{", "x" * 70_000])
def test_a_body_that_is_no_small_object_is_refused(
    client: TestClient, control: RunControl, text: str
) -> None:
    answer = client.post("/api/start", content=text, headers={TOKEN_HEADER: TOKEN})
    assert answer.status_code == 400 and answer.json()["error"] and control.jobs == []


def test_a_body_that_is_too_long_is_not_read_to_its_end(client: TestClient, control: RunControl) -> None:
    answer = client.post("/api/start", json={"set": [""] * 40_000}, headers={TOKEN_HEADER: TOKEN})
    assert answer.status_code == 400 and "longer than" in answer.json()["error"] and control.jobs == []


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--watch", "no/such/folder"], "--watch: 'no/such/folder' does not exist"),
        (["--watch", ".", "--watch-port", "99999"], "--watch-port"),
        (["--watch", ".", "--watch-port", "x"], "--watch-port"),
        (["--watch-port", "80"], "--watch-port: used by --watch only"),
    ],
)
def test_a_wrong_command_line_is_refused(
    capsys: pytest.CaptureFixture[str], flags: list[str], complaint: str
) -> None:
    assert train_accelerated(flags) == 2
    assert complaint in capsys.readouterr().err


def test_the_command_serves_on_this_machine_only_and_ends_by_a_signal(root: Path) -> None:
    with started(COMMAND, "--watch", str(root), "--watch-port", "0") as (process, line):
        port = int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
        # 0100007F is 127.0.0.1, in the kernel's byte order; 0A: listening.
        rows = [text.split() for text in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
        assert listening == {f"0100007F:{port:04X}"}
        assert httpx.get(f"http://127.0.0.1:{port}/api/runs").status_code == 403, "it has no token"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(15) == 130
