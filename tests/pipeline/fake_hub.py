"""A hub on localhost that takes what huggingface_hub sends when a model is uploaded, and keeps the files."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# What the real hub calls itself in its answers; its library takes no other host there.
PUBLIC = "https://huggingface.co"


class FakeHub:
    """``files`` of all commits, ``repositories`` as they were asked for, ``tokens`` that were sent.

    With ``refusal`` every request is answered by that status.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.repositories: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.refusal: int | None = None
        self.endpoint = ""

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path == "/api/repos/create":
            self.repositories.append(json.loads(body))
            return {"url": f"{PUBLIC}/jane/coder"}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(body)["files"]]
            return {
                "files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            }
        assert path.endswith("/commit/main"), path
        for line in body.decode().splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        return {
            "success": True,
            "commitUrl": f"{PUBLIC}/jane/coder/commit/abc",
            "commitOid": "abc",
            "pullRequestUrl": None,
        }


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    """A hub that listens until the block ends."""
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            hub.tokens.add(self.headers.get("Authorization"))
            self.reply({} if hub.refusal else hub.answer(self.path, body))

        def do_GET(self) -> None:
            self.reply({"sha": "abc", "id": "jane/coder", "siblings": []})

        def reply(self, fields: dict[str, Any]) -> None:
            text = json.dumps(fields).encode()
            self.send_response(hub.refusal or 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
