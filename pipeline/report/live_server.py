"""The live page's server: lists runs, serves their reports and what is new in them, passes actions on.

Answers on 127.0.0.1 only, to a browser on this machine that was given the token, and no other page. Reads run
folders beside the runs that write them. Who may ask is told by ``Guard``, ASGI middleware:

- The Host header must be this server's own (another name that resolves to 127.0.0.1 is DNS rebinding).
- A request that another origin's page makes (Origin, Sec-Fetch-Site) is refused, whatever cookies it has.
- Every request needs the token: in the address printed at the start, then in a cookie that no script reads
  and no other site sends. So other users of the machine see nothing either.
- What changes something must be a POST with the token in a header, which a form cannot set.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import URL, Headers, QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.host.files import no_folder
from pipeline.report.live_control import RunControl, is_measuring
from pipeline.report.page import flat_settings, growing_data, render_page, run_data, series
from pipeline.report.reader import RunReader
from pipeline.report.samples import find_samples

_POLL_MS = 2000
_MAX_BODY = 64_000
_COMPARED = (
    "rollout/reward_mean",
    "rollout/pass_rate",
    "step/seconds",
    "step/samples_per_s",
    "rollout/completion_length",
    "train/staleness_mean",
)
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
TOKEN_HEADER = "x-watch-token"


class Pages:
    """The endpoints, for the run folders in ``root``; Starlette runs those that are not async in threads."""

    def __init__(self, root: Path, control: RunControl, token: str) -> None:
        self._root = root
        self._control = control
        self._token = token

    def routes(self) -> list[Route]:
        """All that can be asked for."""
        return [
            Route("/", self.runs_page),
            Route("/runs/{name}", self.run_page),
            Route("/api/runs", self.list_runs),
            Route("/api/jobs", self.list_jobs),
            Route("/api/runs/{name}/news", self.news),
            Route("/api/runs/{name}/samples", self.samples),
            Route("/api/runs/{name}/series", self.compared),
            Route("/api/runs/{name}/stop", self.stop, methods=["POST"]),
            Route("/api/runs/{name}/resume", self.resume, methods=["POST"]),
            Route("/api/start", self.start, methods=["POST"]),
        ]

    def runs_page(self, request: Request) -> Response:
        """The page with all runs."""
        return HTMLResponse(render_page(None, live=self._live()))

    def run_page(self, request: Request) -> Response:
        """The report of a run, live."""
        reader = self._reader(request)
        return HTMLResponse(render_page(run_data(reader, num_samples=0), live=self._live(reader.name)))

    def list_runs(self, request: Request) -> Response:
        """One line a run folder, newest first; one that cannot be read says why."""
        lines = [_line(path.parent) for path in self._root.glob("*/config.yaml")]
        return JSONResponse(sorted(lines, key=lambda line: line["started_s"], reverse=True))

    def list_jobs(self, request: Request) -> Response:
        """What was started from here, newest first."""
        return JSONResponse([job.as_json() for job in reversed(self._control.jobs)])

    def news(self, request: Request) -> Response:
        """Steps and spans above the given ones."""
        after_step, after_span = (_number(request, name) or 0 for name in ("after_step", "after_span"))
        return JSONResponse(growing_data(self._reader(request), after_step, after_span))

    def samples(self, request: Request) -> Response:
        """Completions that match the filter in the query, with their tasks."""
        reader = self._reader(request)
        limit = _number(request, "limit")
        found = find_samples(
            reader,
            task=request.query_params.get("task", ""),
            first_step=_number(request, "first_step"),
            last_step=_number(request, "last_step"),
            outcome=request.query_params.get("outcome", ""),
            draw_id=_number(request, "draw_id"),
            limit=100 if limit is None else limit,
            offset=_number(request, "offset") or 0,
        )
        tasks = reader.tasks(sorted({sample["task_id"] for sample in found}))
        return JSONResponse({"samples": found, "tasks": tasks})

    def compared(self, request: Request) -> Response:
        """The curves and the settings in which runs are compared."""
        reader = self._reader(request)
        columns = series(reader.steps(), reader.started_s())
        curves = {name: columns.get(name, []) for name in ("step", "time_s", *_COMPARED)}
        settings = {name: text for name, text, _ in flat_settings(reader.settings())}
        return JSONResponse({**curves, "settings": settings})

    def stop(self, request: Request) -> Response:
        """Ask a run to end in good order."""
        return JSONResponse({"message": self._control.stop(self._path(request))})

    def resume(self, request: Request) -> Response:
        """Go on with a run."""
        return JSONResponse({"message": self._control.resume(self._reader(request))})

    async def start(self, request: Request) -> Response:
        """Start a run with the settings in the body."""
        wanted = await _body(request)
        return JSONResponse({"message": await run_in_threadpool(self._control.start, wanted)})

    def _live(self, run: str | None = None) -> dict[str, Any]:
        return {"token": self._token, "run": run, "poll_ms": _POLL_MS, "root": str(self._root)}

    def _reader(self, request: Request) -> RunReader:
        return RunReader(self._path(request))

    def _path(self, request: Request) -> Path:
        name: str = request.path_params["name"]
        if name.startswith("."):
            raise ValueError(f"{name!r} is no run of {self._root}")
        return self._root / name


def make_app(root: Path, control: RunControl, token: str, port: int) -> Starlette:
    """The server's application, behind its guard."""
    return Starlette(
        routes=Pages(root, control, token).routes(),
        middleware=[Middleware(Guard, token=token, port=port)],
        exception_handlers={ValueError: _refused, OSError: _refused},
    )


def run_watch(folder: str, port: int) -> int:
    """Serve the runs in ``folder``, of a run those beside it, until interrupted; returns the exit status.

    ``port`` 0 takes any that is free. Raises ValueError for what is no folder of runs, or a port that is
    taken.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ValueError(f"--watch: {str(path)!r} {no_folder(path)}; give a run folder, or a folder of them")
    path = path.resolve()
    is_run = (path / "config.yaml").is_file()
    root, page = (path.parent, f"/runs/{quote(path.name, safe='')}") if is_run else (path, "/")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            raise ValueError(f"--watch-port: {port} cannot be used ({error}); give another, or 0") from error
        # From here on the address that is printed answers, if only after the server's first breath.
        listener.listen()
        port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
        app = make_app(root, RunControl(root), token, port)
        print(f"watching {root}: http://127.0.0.1:{port}{page}?token={token}  (Ctrl-C ends it)", flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
        server.run(sockets=[listener])
    return 0


def _refused(request: Request, error: Exception) -> Response:
    """A user's mistake is an answer."""
    return JSONResponse({"error": str(error)}, status_code=400)


async def _body(request: Request) -> dict[str, Any]:
    text = b""
    async for chunk in request.stream():
        text += chunk
        if len(text) > _MAX_BODY:
            raise ValueError(f"the request is longer than {_MAX_BODY} bytes")
    value = json.loads(text or b"{}")
    if not isinstance(value, dict):
        raise ValueError("the request holds no JSON object")
    return value


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not text.lstrip("-").isdecimal() or len(text) > 18:
        raise ValueError(f"{name}: {text[:40]!r} is not a whole number")
    return int(text)


def _line(path: Path) -> dict[str, Any]:
    """What the list says of one run."""
    try:
        reader = RunReader(path)
        state, settings = reader.state(), reader.settings()
        last = reader.query("SELECT metrics FROM steps WHERE status = 'committed' ORDER BY step DESC LIMIT 5")
        evaluation = reader.evaluation()
        return {
            "name": reader.name,
            "status": state.status,
            "step": state.step,
            "max_steps": state.max_steps,
            "started_s": reader.started_s(),
            "model": _at(settings, "model", "name"),
            "dataset": _at(settings, "dataset", "name"),
            "mode": _at(settings, "acceleration", "mode"),
            "reward": _mean_of([row["metrics"] for row in last], "rollout/reward_mean"),
            "pass_rate": _mean_of([row["metrics"] for row in last], "rollout/pass_rate"),
            "after": (evaluation.get("after") or {}).get("pass_at_1"),
            "difference": evaluation.get("difference"),
        }
    except ValueError as error:
        file = path / "config.yaml"
        began_s = file.stat().st_mtime if file.exists() else 0.0  # removed meanwhile
        line = {"name": path.name, "status": "unreadable", "error": str(error), "started_s": began_s}
        if is_measuring(path):
            line |= {"status": "measuring", "error": "a run of train_code_grpo, before its first step"}
        return line


def _at(settings: dict[str, Any], section: str, name: str) -> Any:
    values = settings.get(section)
    return values.get(name) if isinstance(values, dict) else None


def _mean_of(metrics: list[str], name: str) -> float | None:
    values = [value for value in (json.loads(text).get(name) for text in metrics) if value is not None]
    return sum(values) / len(values) if values else None


class Guard:
    """Lets pass to ``app`` what may; answers the rest with 403 and one line."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        # Cookies know no ports: each server on this machine has its own.
        self._cookie = f"watch_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the module."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        assert scope["type"] == "http"
        headers = Headers(scope=scope)
        fault = self._fault(scope, headers)
        if fault is not None:
            await JSONResponse({"error": fault}, status_code=403)(scope, receive, send)
            return
        given = QueryParams(scope["query_string"]).get("token")
        if given is not None and self._is_token(given):
            # On to the same page without the token in its address, where a history would keep it.
            answer = RedirectResponse(str(URL(scope=scope).remove_query_params("token")), status_code=303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            await answer(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS.items()]
            await send(message)

        await self._app(scope, receive, send_safely)

    def _fault(self, scope: Scope, headers: Headers) -> str | None:
        if headers.get("host", "").lower() not in self._hosts:
            return "this server answers under its own address only"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in tuple(f"http://{host}" for host in self._hosts):
            return "another origin may not ask this server"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "another site may not ask this server"
        if scope["method"] in ("GET", "HEAD"):
            given = QueryParams(scope["query_string"]).get("token") or self._cookie_of(headers)
            is_allowed = self._is_token(given)
        else:
            is_allowed = self._is_token(headers.get(TOKEN_HEADER, ""))
        return None if is_allowed else "open the address that train_accelerated --watch printed"

    def _cookie_of(self, headers: Headers) -> str:
        # Of all servers on this host's name; what others set may be in no strict form.
        return cookie_parser(headers.get("cookie", "")).get(self._cookie, "")

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())
