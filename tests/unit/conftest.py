"""The worked example as models, and a tiny HTTP server that plays a script: what unit tests share."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from outbox_kit.pipeline import (
    CANARY_AGGREGATE,
    Environment,
    Lock,
    LockedSchema,
    LockedSource,
    Pipeline,
    load_pipeline,
)
from outbox_kit.pipeline.avro import fingerprint, read_schema

REPOSITORY = Path(__file__).resolve().parents[2]
FIRST_AUTHOR = json.dumps(
    {
        "type": "record",
        "name": "Author",
        "namespace": "io.outboxkit.library",
        "fields": [{"name": "id", "type": "string"}, {"name": "name", "type": "string"}],
    }
)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder with pyproject.toml."""
    return REPOSITORY


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with the example's connectors/ and schemas/, for tests that edit them."""
    for name in ("connectors", "schemas"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def library() -> Pipeline:
    """The pipeline file of the worked example."""
    return load_pipeline(REPOSITORY / "connectors" / "library.yaml")


@pytest.fixture
def environment() -> Environment:
    """An environment with fixed values; nothing listens there."""
    return Environment.model_validate(
        {
            "name": "fixed",
            "source": {
                "host": "db.example.internal",
                "port": 5433,
                "database": "library",
                "admin": {"user": "owner", "password": "owner-secret"},
                "connector": {"user": "reader", "password": "${file:/secrets/db.properties:library.password}"},
            },
            "kafka": {"bootstrap_servers": "kafka.example.internal:9092", "min_insync_replicas": 2},
            "registry": {"url": "http://registry.example.internal/apis/ccompat/v7"},
            "connect": {"url": "http://connect.example.internal:8083"},
        }
    )


@pytest.fixture
def lock(library: Pipeline) -> Lock:
    """A lock file after the second version of one schema."""
    texts = {name: [read_schema(entry.schema_file)] for name, entry in library.routed.items()}
    texts["author"].append(FIRST_AUTHOR)
    ids = {"author": [12, 3], "book": [7], CANARY_AGGREGATE: [5]}
    return Lock(
        pipeline="library",
        environment="fixed",
        source_epoch=2,
        source=LockedSource(
            system_identifier="7301", slot="library_outbox", slot_lsn="16/B374D848", publication_oid=16500
        ),
        schemas={
            name: [
                LockedSchema(
                    subject=library.subject_of(name),
                    version=len(texts[name]) - age,
                    id=ids[name][age],
                    fingerprint=fingerprint(text),
                    text=text,
                )
                for age, text in enumerate(texts[name])
            ]
            for name in texts
        },
    )


class _Handler(BaseHTTPRequestHandler):
    """Answers every request with the next line of the script; the last line is repeated."""

    script: Sequence[tuple[int, object]]
    seen: list[dict[str, Any]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, answer = self.script[min(len(self.seen), len(self.script) - 1)]
        self.seen.append(
            {
                "method": self.command,
                "path": self.path,
                "body": json.loads(body) if body else None,
                "authorization": self.headers.get("Authorization"),
            }
        )
        content = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if isinstance(answer, bytes) else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names the base class looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[Sequence[tuple[int, object]]], tuple[str, list[dict[str, Any]]]]]:
    """Start a server that plays (status, answer) pairs; returns its URL and the list of requests it saw.

    An answer of bytes goes out as it is, None as an empty body, anything else as JSON.
    """
    servers: list[ThreadingHTTPServer] = []

    def start(script: Sequence[tuple[int, object]]) -> tuple[str, list[dict[str, Any]]]:
        seen: list[dict[str, Any]] = []
        handler = type("Handler", (_Handler,), {"script": script, "seen": seen})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}", seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
