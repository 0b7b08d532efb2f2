"""Who may ask the live page's server: a browser on this machine that was given the token, and no other page.

- The Host header must be this server's own (another name that resolves to 127.0.0.1 is DNS rebinding).
- A request that another origin's page makes (Origin, Sec-Fetch-Site) is refused, whatever cookies it has.
- Every request needs the token: in the address printed at the start, then in a cookie that no script reads
  and no other site sends. So other users of the machine see nothing either.
- What changes something must be a POST with the token in a header as well, which a form cannot set.

ASGI middleware; holds no state but the token.
"""

from __future__ import annotations

import hmac

from starlette.datastructures import URL, Headers, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
