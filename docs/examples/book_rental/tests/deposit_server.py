"""The service of deposits, as the tests need it."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class DepositServer(ThreadingHTTPServer):
    """Charges once per key. Responds with the next of `failures` as long as there are some."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Request)
        self.failures: list[int] = []
        self.requests: list[str] = []
        """Keys of all requests."""
        self.charged: dict[str, Any] = {}
        """Readers by the key of the request that charged them."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, key: str, body: dict[str, Any]) -> int:
        """Return the status of the response."""
        self.requests.append(key)
        if self.failures:
            return self.failures.pop(0)
        self.charged.setdefault(key, body["reader"])
        return 200


class Request(BaseHTTPRequestHandler):
    server: DepositServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.answer(self.headers["Idempotency-Key"], body))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    DepositServer(int(sys.argv[1])).serve_forever()
