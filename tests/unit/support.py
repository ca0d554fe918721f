"""HTTP server with scripted responses, which is the only fake at the network boundary."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


@dataclass(frozen=True)
class Request:
    """One request as the server received it, with the body as JSON."""

    method: str
    path: str
    body: Any = None
    authorization: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Page:
    """Response with `text` as HTML and the name of the server in the header `Server`."""

    text: str
    server: str


@dataclass(frozen=True)
class Redirect:
    """Response without a body that redirects to `location`."""

    location: str


Script = Sequence[tuple[int, object]] | Callable[[Request], tuple[int, object]]
"""(status, answer) pairs, one per request, the last of which is repeated, or a function that answers a request.

Bytes and a Page are sent unchanged (text/html), None as an empty body, a Redirect as a header, others as JSON.
"""


class _Handler(BaseHTTPRequestHandler):
    """Responds to every request with the next entry of the script."""

    script: ClassVar[list[Callable[[Request, int], tuple[int, object]]]]
    seen: ClassVar[list[Request]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(
            self.command, self.path, json.loads(body) if body else None, self.headers.get("Authorization")
        )
        status, answer = self.script[0](request, len(self.seen))
        self.seen.append(request)
        self.server_version, self.sys_version = "Test", ""
        if isinstance(answer, Page):
            self.server_version, answer = answer.server, answer.text.encode()
        raw = isinstance(answer, bytes)
        empty = answer is None or isinstance(answer, Redirect)
        content = answer if isinstance(answer, bytes) else b"" if empty else json.dumps(answer).encode()
        self.send_response(status)
        if isinstance(answer, Redirect):
            self.send_header("Location", answer.location)
        self.send_header("Content-Type", "text/html" if raw else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - what the base class looks for

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class ScriptedServer:
    """Real HTTP server on a free port that returns `script` and records its requests."""

    def __init__(self, script: Script) -> None:
        self.seen: list[Request] = []

        def answer(request: Request, number: int) -> tuple[int, object]:
            return script(request) if callable(script) else script[min(number, len(script) - 1)]

        handler = type("Handler", (_Handler,), {"script": [answer], "seen": self.seen})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop responding."""
        self._server.shutdown()
        self._server.server_close()
