"""Give the ways of sending access to the drill's stack: project, addresses, proxy, and mode of the Connect worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from outbox_events.waiting import Observation, wait_for
from outbox_kit.pipeline import Kafka
from outbox_kit.results import Reporter
from outbox_kit.stack import Stack, StackState, health_checks
from outbox_lab.drill.components import ProcessComponent, ServiceComponent
from outbox_lab.drill.project import DrillProject
from outbox_lab.drill.proxy import Proxy
from outbox_lab.drill.spark_job import SparkJob

EXACTLY_ONCE = "exactly.once.source.support"
CONNECT_READY_S = 90
CONNECTION_S = 60
REGISTRY_REQUESTS, REGISTRY_S = 30, 60
SERVICES = ("connect", "kafka", "postgres")


@dataclass
class DrillStack:
    """A running stack, with the parts of the stack that the ways of sending use."""

    project: DrillProject
    stack: Stack
    state: StackState
    proxy: Proxy
    spark_job: SparkJob
    progress: Reporter
    services: dict[str, ServiceComponent] = field(init=False)
    followers: list[ProcessComponent] = field(default_factory=list)
    """Brokers that a fault adds to the one of the stack."""

    def __post_init__(self) -> None:
        self.services = {name: ServiceComponent(self.stack, name) for name in SERVICES}

    @property
    def kafka(self) -> Kafka:
        """Settings with which Kafka clients connect to the stack."""
        replicas = 1 + len(self.followers)
        minimum = (replicas + 1) // 2
        return Kafka(bootstrap_servers=self.state.kafka, replication_factor=replicas, min_insync_replicas=minimum)

    @property
    def logs(self) -> Path:
        """Folder for the logs of writers and relays."""
        return self.project.logs

    def proxied_dsn(self) -> str:
        """Return a DSN that connects to the source database through the proxy."""
        return self.state.postgres.replace(f":{self.state.postgres_port}/", f":{self.proxy.port}/")

    def connect_to_database(self) -> psycopg.Connection[tuple[object, ...]]:
        """Wait until the server of the source database accepts a connection. Return this connection."""

        def poll() -> Observation[psycopg.Connection[tuple[object, ...]]]:
            try:
                return Observation(psycopg.connect(self.state.postgres, autocommit=True, connect_timeout=2), "")
            except psycopg.OperationalError as error:
                return Observation(None, str(error).strip())

        return wait_for("PostgreSQL", poll, seconds=CONNECTION_S)

    def wait_for_registry(self) -> None:
        """Wait until the registry responds to REGISTRY_REQUESTS consecutive requests.

        After PostgreSQL is killed, the registry rejects one request for each broken connection in its pool.
        """
        answered = 0

        def poll() -> Observation[bool]:
            nonlocal answered
            observation = health_checks.check_registry(self.state.registry)
            answered = answered + 1 if observation.value else 0
            return Observation(answered >= REGISTRY_REQUESTS or None, observation.text)

        wait_for("the registry", poll, seconds=REGISTRY_S, interval=0.05)

    def set_exactly_once(self, *, enabled: bool) -> None:
        """Enable or disable exactly-once sources in the Connect worker. Restart the worker if the setting changes."""
        path = self.stack.layout.configuration / "connect.properties"
        value = "enabled" if enabled else "disabled"
        lines = path.read_text().splitlines()
        changed = [f"{EXACTLY_ONCE}={value}" if line.startswith(EXACTLY_ONCE) else line for line in lines]
        if changed == lines:
            return
        path.write_text("\n".join(changed) + "\n")
        self.services["connect"].restart()
        url, plugins = self.state.connect, self.stack.options.required_plugins
        wait_for("Connect", lambda: health_checks.check_connect(url, plugins), seconds=CONNECT_READY_S)


@contextmanager
def drill_stack(project: DrillProject, spark_job: SparkJob, progress: Reporter) -> Iterator[DrillStack]:
    """Start the drill's stack and a proxy for connections to PostgreSQL. Stop both at the end of the block."""
    with project.running_stack(progress) as (stack, state), Proxy(state.postgres_port) as proxy:
        project.write_environment(proxy.port)
        drill = DrillStack(project, stack, state, proxy, spark_job, progress)
        drill.logs.mkdir(parents=True, exist_ok=True)
        yield drill
