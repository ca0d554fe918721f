"""Embedded stack of the benchmarks: a deployed outbox, and temporary slots, topics and connectors.

with benchmark_stack() as bench, bench.slot(name) as lsn, bench.connector(name, config, lsn): ...
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

from outbox_events.contract.lsn import parse as parse_lsn
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect import offset_seeding
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.offset_seeding import StartPosition
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.pipeline.environment import ConnectorSettings
from outbox_kit.pipeline.overrides import Overrides
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.replication_slot import wait_inactive
from outbox_kit.stack import Options, Stack, StackState
from outbox_kit.stack.health_checks import send_get
from outbox_kit.stack.ports import HOST, choose_ports
from outbox_kit.stack.services.connect import PASSWORD_VARIABLE, plugin_folders, worker_settings
from outbox_kit.stack.services.jvm import write_properties

NAME = "bench"
TABLE = "public.bench_event"
PUBLICATION = "bench_p"
PARTITIONS = 4
# The default, which production uses; local.yaml polls less often.
DEFAULT_POLL_INTERVAL = Overrides((f"environment.connector.poll_interval_ms={ConnectorSettings().poll_interval_ms}",))
PLUGINS = REPOSITORY / "build" / "bench" / "plugins"


def print_progress(message: str) -> None:
    """Print progress to stderr, because stdout is for the report."""
    sys.stderr.write(message + "\n")


@dataclass(frozen=True)
class BenchmarkStack:
    """A running stack with an outbox table, a publication and a schema. Only connector() starts connectors."""

    stack: Stack
    state: StackState
    deployment: Deployment

    def config(self, template: str) -> dict[str, str]:
        """Return the connector config that outbox-kit renders from a template."""
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
        """Open an autocommit connection to the source database as the administrator."""
        return psycopg.connect(self.state.postgres, autocommit=True)

    @contextmanager
    def slot(self, name: str, *, copy_of: str | None = None) -> Iterator[str]:
        """Create a logical slot, or copy the slot `copy_of`. Yield its confirmed LSN, and drop the slot at the end."""
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
        """Create a topic with the broker's default settings, because compaction would run during the measurement."""
        self.deployment.kafka.create(name, partitions=PARTITIONS, replication_factor=1, config={})
        try:
            yield name
        finally:
            self.deployment.kafka.delete(name)

    @contextmanager
    def connector(
        self, name: str, config: dict[str, str], lsn: str, *, client: ConnectClient | None = None
    ) -> Iterator[None]:
        """Run a connector from `lsn`, seeded as `outbox apply` does. Delete it and its offsets at the end."""
        client = client or self.deployment.connect
        client.create_stopped(name, config)
        connect_lifecycle.wait_stopped(client, name)
        start = StartPosition(self.deployment.pipeline.prefix, parse_lsn(lsn), ignore_stored_offset=True)
        offset_seeding.ensure_offset(client, name, start, print_progress, was_stopped=True)
        client.resume(name)
        try:
            yield
        finally:
            connect_lifecycle.remove(client, name, with_offsets=True)

    def raise_if_failed(self, name: str, client: ConnectClient | None = None) -> None:
        """Raise FailedError with the cause if the connector or its task is FAILED."""
        connect_lifecycle.raise_if_failed(name, (client or self.deployment.connect).status(name))


@contextmanager
def benchmark_stack(*, plugins: tuple[Path, ...] = ()) -> Iterator[BenchmarkStack]:
    """Start a separate stack with the aggregate `book` of the worked example, and delete the stack at the end."""
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        project = make_project(Path(folder) / "project")
        stack = Stack(project, Options(plugin_folders=plugins))
        try:
            state = stack.up(print_progress)
            with open_deployment(_pipeline(project), "local", DEFAULT_POLL_INTERVAL) as deployment:
                apply(deployment, print_progress)
                connect_lifecycle.remove(deployment.connect, NAME, with_offsets=True)
                yield BenchmarkStack(stack, state, deployment)
        finally:
            stack.down(print_progress, purge=True)


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
def worker_without_exactly_once(bench: BenchmarkStack) -> Iterator[ConnectClient]:
    """Run a second worker whose settings differ only in exactly.once.source.support, which connectors cannot override.

    Its process is a child of this one, and is terminated at the end of the block.
    """
    layout = bench.stack.layout
    port = choose_ports({}, {})["connect"]
    folders = plugin_folders(layout, bench.stack.options)
    settings = worker_settings(bench.state, folders, "service_load", layout.secrets)
    settings |= {
        "group.id": "bench-at-least-once",
        "listeners": f"http://{HOST}:{port}",
        "rest.advertised.port": port,
        "exactly.once.source.support": "disabled",
        **{f"{store}.storage.topic": f"bench-at-least-once-{store}" for store in ("config", "offset", "status")},
    }
    file = layout.configuration / "at-least-once.properties"
    write_properties(file, settings)
    pid = bench.stack.pid("connect")
    assert pid is not None
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    log = layout.log("at-least-once")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command[:-1], str(file)],
            env={**os.environ, PASSWORD_VARIABLE: bench.state.connector_password},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://{HOST}:{port}"

    def poll() -> Observation[bool]:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            return Observation(send_get(f"{url}/health").ok or None, "not healthy")
        except OSError as error:
            return Observation(None, type(error).__name__)

    try:
        wait_for("the second worker", poll, seconds=120)
        yield bench.deployment.connect.for_worker(url)
    finally:
        process.terminate()
        process.wait(timeout=60)
