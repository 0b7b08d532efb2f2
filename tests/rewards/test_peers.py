"""The tasks in other projects' hands: verifiers and OpenEnv, from their packages, whole rollouts."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from curriculum.sources import load_named_tasks
from tests.rewards.test_graders_page import PAGE, block

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
TASKS = load_named_tasks("ladder")[:3]
PEERS = ("verifiers==0.4.0", "openenv-core==0.3.0")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs are of a new environment with this project and the others' packages."""
    folder = tmp_path_factory.mktemp("peers") / "env"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, ROOT, *PEERS], check=True)
    return folder / "bin"


class Model(BaseHTTPRequestHandler):
    """An endpoint as OpenAI's: knows the references, and answers the second task with nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = json.dumps(asked["messages"])
        (task,) = [task for task in TASKS if json.dumps(task.prompt)[1:-1] in prompt]
        text = "I do not know." if task is TASKS[1] else f"```python\n{task.reference}\n```"
        assert asked["stream"] is True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._write(asked["model"], {"role": "assistant", "content": text}, None)
        self._write(asked["model"], {}, "stop")
        self.wfile.write(b"data: [DONE]\n\n")

    def _write(self, model: str, delta: dict[str, str], reason: str | None) -> None:
        piece = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "finish_reason": reason, "delta": delta}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        self.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()


VALIDATION = """
import asyncio, json, sys
from rewards.verifiers import CodeTaskset, CodeTasksetConfig
tasks = CodeTaskset(CodeTasksetConfig(tasks=sys.argv[1])).load()
print(json.dumps([asyncio.run(task.validate(None)) for task in tasks]))
"""


def test_verifiers_validates_references_as_they_stand(tmp_path: Path, programs: Path) -> None:
    references = (
        "MOD = 7\n\n\ndef f(x):\n    return x % MOD\n",
        # As an answer of a chat it would be the block in its docstring.
        "def f(x):\n    '''Gives x.\n\n   ```\n   f(1)\n   ```\n    '''\n    return x\n",
        "def f(x):\n    return 2\n",
        "",
    )
    task = {"prompt": "Write f(x).", "entry_point": "f", "tests": [{"args": [1], "expected": 1}]}
    lines = [{**task, "task_id": str(index), "reference": one} for index, one in enumerate(references)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = subprocess.run(
        [programs / "python", "-c", VALIDATION, "tasks.jsonl"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == [True, True, False, None]


def test_verifiers_evaluates_a_model_on_our_tasks(tmp_path: Path, programs: Path) -> None:
    block("code_grpo_tasks.py", tmp_path)
    path = os.pathsep.join([str(programs), str(UV.parent), os.environ["PATH"]])
    variables = {**os.environ, "PATH": path, "PYTHONPATH": ".", "A_KEY": "none"}
    page = PAGE.read_text(encoding="utf-8")
    shown = re.search(r"^    PYTHONPATH=\. (vf-eval .*\\\n.*)$", page, re.MULTILINE)
    assert shown is not None
    command = shown[1].replace("\\\n", " ").replace("-m MODEL -n 20", "-m tiny -n 3")
    with endpoint() as url:
        command += f" --client.base-url {url} --client.api-key-var A_KEY --no-push --no-rich --output-dir out"
        done = subprocess.run(
            command.split(), cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (traces,) = (tmp_path / "out").rglob("traces.jsonl")
    text = traces.read_text(encoding="utf-8")
    rollouts = [trace for line in text.splitlines() for trace in json.loads(line)["traces"]]
    found = {
        trace["task"]["data"]["id"]: (trace["rewards"]["passed"]["score"], trace["metrics"]["tests"])
        for trace in rollouts
    }
    assert found == {task.task_id: (0.0, 0.0) if task is TASKS[1] else (1.0, 1.0) for task in TASKS}
    # What is right stays with us.
    assert TASKS[1].reference not in text and "expected" not in text


CLIENT = """
import json, sys
from openenv.core.generic_client import GenericEnvClient
url, tasks = sys.argv[1], json.loads(sys.argv[2])
found = []
with GenericEnvClient(base_url=url).sync() as client:
    for index, (prompt, answer) in enumerate(tasks):
        assert client.reset(index=index).observation["prompt"] == prompt
        result = client.step({"answer": answer})
        found.append([result.reward, result.done, result.observation["outcome"]])
print(json.dumps(found))
"""


STEPS = """
from configs.schema import ExecutionConfig
from curriculum.sources import load_named_tasks
from rewards.openenv import Answer, CodeEnvironment
from sandbox.result import Outcome
from tests.fake_sandbox import make_run

class Sandbox:
    level = "fake"
    def run(self, request):
        return make_run(outcomes.pop(0), 4)

outcomes = [Outcome.INFRA_ERROR, Outcome.PASS]
environment = CodeEnvironment(load_named_tasks("ladder"), Sandbox(), ExecutionConfig(), partial=False)
environment.reset(index=0)
for _ in range(3):
    try:
        print(environment.step(Answer(answer="x = 1")).reward)
    except (RuntimeError, ValueError) as error:
        print(error)
"""


def test_a_task_of_openenv_that_nobody_could_judge_stays_for_another_step(programs: Path) -> None:
    done = subprocess.run(
        [programs / "python", "-c", STEPS], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == [
        "not judged: because",
        "1.0",
        "step: there is no task yet; reset first",
    ], done.stderr[-3000:]


def test_a_port_that_cannot_be_had_is_refused_before_anything_starts(tmp_path: Path, programs: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], 70_000):
            command = [str(programs / "python"), "-m", "rewards.openenv", "ladder", "--port", str(port)]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
            assert done.returncode == 2, done.stderr[-3000:]
            assert f"127.0.0.1:{port} cannot be used" in done.stderr and "Traceback" not in done.stderr


def test_openenv_serves_our_tasks(tmp_path: Path, programs: Path) -> None:
    python, errors = str(programs / "python"), tmp_path / "errors.txt"
    with socket.socket() as free, errors.open("wb") as stderr:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [python, "-m", "rewards.openenv", "ladder", "--port", str(port)]
        server = subprocess.Popen(command, cwd=tmp_path, stderr=stderr)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline and server.poll() is None, errors.read_text()[-3000:]
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        answers = [f"```python\n{TASKS[0].reference}\n```", "def nothing(): pass"]
        tasks = [(task.prompt, answer) for task, answer in zip(TASKS, answers, strict=False)]
        done = subprocess.run(
            [python, "-c", CLIENT, f"http://127.0.0.1:{port}", json.dumps(tasks)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout) == [[1.0, True, "pass"], [0.0, True, "exception"]]
    finally:
        server.terminate()
        server.wait(30)
