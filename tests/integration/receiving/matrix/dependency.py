"""HTTP service that handlers call. The test decides how long it takes and what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

import requests

SECONDS = 60


class Dependency:
    """Counts the calls by event. `answer` gets an event id and the number of its call, and returns the status."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.answer: Callable[[str, int], int] = lambda _event_id, _number: 200
        self.url = ""
        self._lock = Lock()

    def call(self, event_id: str) -> None:
        """Call the service. Raises requests.HTTPError for a status of 400 and above."""
        requests.post(f"{self.url}/{event_id}", timeout=SECONDS).raise_for_status()

    def respond(self, event_id: str) -> int:
        """Count a call; return its status."""
        with self._lock:
            self.calls[event_id] += 1
            number = self.calls[event_id]
        return self.answer(event_id, number)

    @contextmanager
    def running(self) -> Iterator[Dependency]:
        """Serve on a free port of the loopback interface."""
        dependency = self

        class Call(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(dependency.respond(self.path.strip("/")))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Calls are counted, not logged."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Call) as server:
            self.url = f"http://127.0.0.1:{server.server_port}"
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join(SECONDS)
