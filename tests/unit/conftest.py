"""Fixtures of unit tests: the worked example as models, and an HTTP server with scripted responses."""

from __future__ import annotations

import json
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from tests.unit.fake_postgres import FakePostgres
from tests.unit.kafka_samples import locked_topics
from tests.unit.postgres.samples import LOCKED
from tests.unit.support import Script, ScriptedServer

from outbox_kit.connect.client import ConnectClient
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.state import desired_topics
from outbox_kit.pipeline import (
    CANARY_AGGREGATE,
    Environment,
    Kafka,
    Lock,
    LockedDatabase,
    LockedSchema,
    Pipeline,
    load_pipeline,
)
from outbox_kit.pipeline.avro import fingerprint, read_schema
from outbox_kit.registry.client import RegistryClient

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
    """An environment with fixed values. Nothing listens at its addresses."""
    return Environment.model_validate(
        {
            "name": "fixed",
            "source": {
                "host": "db.example.internal",
                "port": 5433,
                "database": "library",
                "admin": {"user": "owner", "password": "owner-secret"},
                "connector": {
                    "user": "reader",
                    "password": "${file:/secrets/db.properties:library.password}",
                },
            },
            "kafka": {"bootstrap_servers": "kafka.example.internal:9092", "min_insync_replicas": 2},
            "registry": {"url": "http://registry.example.internal/apis/ccompat/v7"},
            "connect": {"url": "http://connect.example.internal:8083"},
        }
    )


@pytest.fixture
def lock(library: Pipeline, environment: Environment) -> Lock:
    """A lock file after the second version of one schema."""
    texts = {name: [read_schema(entry.schema_file)] for name, entry in library.routed.items()}
    texts["author"].append(FIRST_AUTHOR)
    ids = {"author": [12, 3], "book": [7], CANARY_AGGREGATE: [5]}
    return Lock(
        pipeline="library",
        environment="fixed",
        source_epoch=2,
        topics=locked_topics(desired_topics(library, environment)),
        source=LOCKED,
        database=LockedDatabase(system_identifier=LOCKED.system_identifier, name="library", table=library.source.table),
        prefix=library.prefix,
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


@pytest.fixture
def serve() -> Iterator[Callable[[Script], ScriptedServer]]:
    """Start servers with scripted responses, which are stopped after the test."""
    servers: list[ScriptedServer] = []

    def start(script: Script) -> ScriptedServer:
        servers.append(ScriptedServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> FakePostgres:
    """The source database after the first apply. Every connection leads to this database."""
    fake = FakePostgres()
    monkeypatch.setattr(psycopg, "connect", fake.connect)
    return fake


@pytest.fixture
def deployed(
    library: Pipeline, environment: Environment, free_port: int, tmp_path: Path
) -> Iterator[Callable[..., Deployment]]:
    """Create deployments with changed sections. Nothing listens at other addresses."""
    with ExitStack() as stack:

        def made(**sections: object) -> Deployment:
            kafka = Kafka(bootstrap_servers=f"127.0.0.1:{free_port}")
            update = {"kafka": kafka, "lock_folder": tmp_path, **sections}
            actual = environment.model_copy(update=update)
            registry = stack.enter_context(closing(RegistryClient(actual.registry)))
            connect = stack.enter_context(closing(ConnectClient(actual.connect)))
            templates = REPOSITORY / "connectors" / "templates"
            return Deployment(library, actual, templates, registry, connect)

        yield made


@pytest.fixture
def kept_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers that main() sets for the remaining life of its process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections but never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


@pytest.fixture
def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
