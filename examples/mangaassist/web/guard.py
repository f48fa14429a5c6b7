"""Middleware that checks requests, and sets the security headers of responses."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    # Should hostile text ever get into the page as markup, the browser still runs none of it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src"
        " data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Middleware that passes only requests of this server's own page.

    ``Host`` must be this machine; otherwise a foreign name that resolves to it could read
    everything (DNS rebinding). A request that changes something must have this origin, and be JSON,
    which no foreign form can send.

    Args:
        app: The guarded application.
        port: Port of the server.
    """

    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self._app = app
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"only HTTP is served, got {scope['type']!r}")
        problem = self._problem(scope["method"], Headers(scope=scope))
        if problem:
            await PlainTextResponse(problem, status_code=403, headers=_HEADERS)(
                scope, receive, send
            )
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _problem(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if host not in self._hosts:
            return "This host is not served here."
        if (
            headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            return "Another site may not ask this one."
        if method not in ("GET", "HEAD"):
            if headers.get("origin") != f"http://{host}":
                return "Another site may not change anything here."
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return "Requests must be JSON."
        return None
