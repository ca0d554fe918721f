"""Environment of both source benchmarks: an embedded stack with the outbox deployed, temporary connectors.

with stage() as place:  →  place.slot("name", copy_of="base")  →  with place.connector(name, config, slot): ...
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml
from tests.conftest import REPOSITORY, make_project

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect import offset_seeding
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.lsn import parse as parse_lsn
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import wait_inactive
from outbox_kit.stack import Options, Stack, StackState
from outbox_kit.stack.health_checks import get
from outbox_kit.stack.ports import HOST, choose_ports
from outbox_kit.stack.properties import write_properties
from outbox_kit.stack.services.connect import PASSWORD_VARIABLE, worker_settings
from outbox_kit.waiting import Observation, wait_for

NAME = "bench"
TABLE = "public.bench_event"
PUBLICATION = "bench_p"
PARTITIONS = 4
PLUGINS = REPOSITORY / "build" / "bench" / "plugins"


def say(words: str) -> None:
    """Print progress to stderr: stdout is for the report."""
    sys.stderr.write(words + "\n")


@dataclass(frozen=True)
class Stage:
    """A running stack with table, publication and schema; no connector runs unless connector() started it."""

    stack: Stack
    state: StackState
    deployment: Deployment

    def config(self, template: str) -> dict[str, str]:
        """The connector config that the kit renders from a template."""
        pipeline = self.deployment.pipeline
        connector = pipeline.connector.model_copy(update={"template": template})
        changed = Deployment(
            pipeline.model_copy(update={"connector": connector}),
            self.deployment.environment,
            self.deployment.templates,
            self.deployment.registry,
            self.deployment.connect,
        )
        return changed.render(self.deployment.lock())

    def database(self) -> psycopg.Connection[Any]:
        """An autocommit connection to the source, as administrator."""
        return psycopg.connect(self.state.postgres, autocommit=True)

    @contextmanager
    def slot(self, name: str, *, copy_of: str | None = None) -> Iterator[str]:
        """Create a logical slot, as a copy of another one where named; drop it at the end. Yields its LSN."""
        with self.database() as connection:
            if copy_of is None:
                connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
            else:
                connection.execute("select pg_copy_logical_replication_slot(%s, %s)", [copy_of, name])
            row = connection.execute(
                "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", [name]
            ).fetchone()
        assert row is not None
        try:
            yield row[0]
        finally:
            with postgres_client.connected(self.deployment.environment.source) as connection:
                wait_inactive(connection, name)
                postgres_client.drop_slot(connection, name)

    @contextmanager
    def topic(self, name: str) -> Iterator[str]:
        """Create a topic with the broker's default settings: compaction would run during the measurement."""
        self.deployment.kafka.create(name, partitions=PARTITIONS, replication_factor=1, config={})
        try:
            yield name
        finally:
            self.deployment.kafka.delete(name)

    @contextmanager
    def connector(
        self, name: str, config: dict[str, str], lsn: str, *, client: ConnectClient | None = None
    ) -> Iterator[None]:
        """Run a connector from `lsn`, seeded as by `outbox apply`; delete it and its offsets at the end."""
        client = client or self.deployment.connect
        client.create_stopped(name, config)
        connect_lifecycle.wait_stopped(client, name)
        start = StartPosition(self.deployment.pipeline.prefix, parse_lsn(lsn), ignore_stored=True)
        offset_seeding.ensure_offset(client, name, start, say, was_stopped=True)
        client.resume(name)
        try:
            yield
        finally:
            connect_lifecycle.remove(client, name, offsets=True)

    def refuse_failed(self, name: str, client: ConnectClient | None = None) -> None:
        """Raises FailedError with the cause where the connector or its task FAILED."""
        connect_lifecycle.raise_if_failed(name, (client or self.deployment.connect).status(name))


@contextmanager
def stage(*, plugins: tuple[Path, ...] = ()) -> Iterator[Stage]:
    """Start a separate stack with the worked example's book; delete it at the end."""
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        project = make_project(Path(folder) / "project")
        stack = Stack(project, Options(plugin_folders=(*Options().plugin_folders, *plugins)))
        try:
            state = stack.up(say)
            with open_deployment(_pipeline(project), "local") as deployment:
                apply(deployment, say)
                connect_lifecycle.remove(deployment.connect, NAME, offsets=True)
                yield Stage(stack, state, deployment)
        finally:
            stack.down(say, purge=True)


def _pipeline(project: Path) -> Path:
    example = yaml.safe_load((project / "connectors" / "library.yaml").read_text())
    changes = {
        "name": NAME,
        "prefix": NAME,
        "source": {"table": TABLE, "publication": PUBLICATION, "slot": "bench_s"},
        "aggregates": {"book": {"schema": "schemas/book.avsc", "partitions": PARTITIONS}},
        "connector": {"name": NAME, "template": "outbox-postgres"},
        "materializations": [],
    }
    path = project / "connectors" / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump(example | changes))
    return path


@contextmanager
def worker_without_exactly_once(place: Stage) -> Iterator[ConnectClient]:
    """A second worker of the same settings but exactly.once.source.support, which is the worker's to decide.

    Its process is a child of this one, and ends with the block.
    """
    layout = place.stack.layout
    port = choose_ports({}, {})["connect"]
    settings = worker_settings(place.state, place.stack.options.plugin_folders, "service_load", layout.secrets)
    settings |= {
        "group.id": "bench-at-least-once",
        "listeners": f"http://{HOST}:{port}",
        "rest.advertised.port": port,
        "exactly.once.source.support": "disabled",
        "plugin.path": ",".join(str(layout.root / folder) for folder in place.stack.options.plugin_folders),
        **{f"{what}.storage.topic": f"bench-at-least-once-{what}" for what in ("config", "offset", "status")},
    }
    file = layout.configuration / "at-least-once.properties"
    write_properties(file, settings)
    pid = place.stack.pid("connect")
    assert pid is not None
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    log = layout.log("at-least-once")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command[:-1], str(file)],
            env={**os.environ, PASSWORD_VARIABLE: place.state.connector_password},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://{HOST}:{port}"

    def poll() -> Observation[bool]:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            return Observation(get(f"{url}/health").ok or None, "not healthy")
        except OSError as error:
            return Observation(None, type(error).__name__)

    try:
        wait_for("the second worker", poll, seconds=120)
        yield place.deployment.connect.at(url)
    finally:
        process.terminate()
        process.wait(timeout=60)
