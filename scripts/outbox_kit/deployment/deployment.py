"""Combine one pipeline and one environment with clients for the systems to which the pipeline is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from outbox_events.errors import ConfigurationError, OutboxError
from outbox_kit.connect.client import ConnectClient
from outbox_kit.dead_letters.dead_letter_topic import DeadLetterTopic
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import (
    Environment,
    Lock,
    Overrides,
    Pipeline,
    load_files,
    read_lock,
    render_connector,
    write_lock,
)
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.advisory_lock import pipeline_lock
from outbox_kit.postgres.dba_script import script, target_script
from outbox_kit.postgres.state import ActualDatabase, read_actual
from outbox_kit.registry.client import RegistryClient
from outbox_kit.results import Reporter

DEPLOYED_SECTIONS = ("source", "kafka", "registry", "connect")
# Keys of the environment file whose values a connector config contains.
RENDERED_KEYS = ("source.host", "source.port", "source.database", "source.connector")
# Keys of the environment file whose values the SQL script for a DBA contains.
SQL_KEYS = (
    *("source.host", "source.port", "source.database"),
    *("source.admin.user", "source.connector.user", "source.verifier.user"),
    *(f"targets.*.{key}" for key in ("kind", "host", "port", "database", "user", "schema")),
)


def lock_file(pipeline: Pipeline, environment: Environment) -> Path:
    return environment.lock_folder / f"{pipeline.name}.{environment.name}.lock.json"


def templates_of(pipeline_file: Path) -> Path:
    return pipeline_file.resolve().parent / "templates"


def render_config(
    pipeline_file: Path, environment: str, overrides: Overrides | None = None
) -> tuple[str, dict[str, str]]:
    """Return the connector's name and config, without secrets. Only files are read. Raises ConfigurationError."""
    pipeline, settings = load_files(pipeline_file, environment, overrides, needs=RENDERED_KEYS)
    lock = read_lock(lock_file(pipeline, settings))
    return pipeline.connector.name, render_connector(pipeline, settings, lock, templates_of(pipeline_file))


def render_sql(
    pipeline_file: Path, environment: str, overrides: Overrides | None = None, *, target: str | None = None
) -> str:
    """Return the SQL script for the source database, or for a target, without secrets. Only files are read.

    Raises ConfigurationError.
    """
    pipeline, settings = load_files(pipeline_file, environment, overrides, needs=SQL_KEYS)
    return script(pipeline, settings) if target is None else target_script(settings, target)


@dataclass(frozen=True)
class Deployment:
    """One pipeline in one environment. Clients connect on first use.

    `read_seconds` limits each request that `kafka` sends, and each statement on connections that `verify` opens.
    """

    pipeline: Pipeline
    environment: Environment
    templates: Path
    registry: RegistryClient
    connect: ConnectClient
    read_seconds: float | None = None

    @cached_property
    def kafka(self) -> KafkaClient:
        """Kafka client. It is created on first use, because a new client immediately connects in the background."""
        return KafkaClient(self.environment.kafka, seconds=self.read_seconds)

    def dead_letters(self, topic: str | None = None) -> DeadLetterTopic:
        """Return a consumer's dead letter topic, or the connector's if `topic` is None or names the connector's."""
        own_topic = self.pipeline.dead_letter_topic
        name, acknowledgements = own_topic if topic is None else topic, self.pipeline.acknowledgement_topic
        return DeadLetterTopic(self.kafka, name, acknowledgements, of_connector=name == own_topic)

    @contextmanager
    def bounded(self, seconds: float) -> Iterator[Deployment]:
        """Open a copy of this deployment that limits each read to `seconds`. Commands that only report use the copy."""
        with closing(self.registry.bounded(seconds)) as registry, closing(self.connect.bounded(seconds)) as connect:
            yield replace(self, registry=registry, connect=connect, read_seconds=seconds)

    @property
    def lock_file(self) -> Path:
        return lock_file(self.pipeline, self.environment)

    def lock(self) -> Lock | None:
        """Return the content of the lock file; None if there is no lock file. Raises ConfigurationError."""
        lock = read_lock(self.lock_file)
        if lock and (lock.pipeline, lock.environment) != (self.pipeline.name, self.environment.name):
            message = f"{self.lock_file} is the lock file of {lock.pipeline!r} in environment {lock.environment!r}"
            hint = "restore the lock file of this pipeline from version control"
            raise ConfigurationError(message, f"{hint}; a deployed pipeline or environment cannot be renamed")
        return lock

    def write_lock(self, lock: Lock) -> None:
        write_lock(self.lock_file, lock)

    def new_lock(self) -> Lock:
        return Lock(pipeline=self.pipeline.name, environment=self.environment.name)

    def render(self, lock: Lock | None) -> dict[str, str]:
        """Return the connector's config with the schema ids and the source epoch from `lock`."""
        return render_connector(self.pipeline, self.environment, lock, self.templates)

    def render_without_schemas(self, lock: Lock | None) -> dict[str, str]:
        """Return the connector's config without schema versions and ids, which are known only after registration."""
        return self.render(lock.model_copy(update={"schemas": {}}) if lock else None)

    @contextmanager
    def exclusive(self, command: str, progress: Reporter, *, seconds: float = 0) -> Iterator[None]:
        """Open a context in which no other command changes this pipeline. If interrupted, report the connector's state.

        Raises the same errors as pipeline_lock().
        """
        with (
            pipeline_lock(self.environment.source, self.pipeline.name, command=command, seconds=seconds),
            report_interruption(self.connect, self.pipeline.connector.name, command, progress),
        ):
            yield

    def read_database(self) -> ActualDatabase:
        """Read the actual state of the source database. Raises UnreachableError, RejectedError."""
        with postgres_client.connected(self.environment.source) as connection:
            return read_actual(connection, self.pipeline, self.environment)


@contextmanager
def report_interruption(client: ConnectClient, connector: str, command: str, progress: Reporter) -> Iterator[None]:
    """If the body of the `with` statement is interrupted, report the connector's state and the `command` to rerun."""
    try:
        yield
    except KeyboardInterrupt:
        progress(f"{_state(client, connector)}; to continue, run `outbox {command}`")
        raise


def _state(client: ConnectClient, connector: str) -> str:
    try:
        status = client.status(connector)
    except OutboxError as error:
        return f"the state of connector {connector} is unknown ({error.message})"
    return f"connector {connector} {f'is {status.connector_state}' if status else 'does not exist'}"


@contextmanager
def open_deployment(pipeline_file: Path, environment: str, overrides: Overrides | None = None) -> Iterator[Deployment]:
    """Open a deployment from its files, and close its connections at the end. Raises ConfigurationError."""
    pipeline, settings = load_files(pipeline_file, environment, overrides, needs=DEPLOYED_SECTIONS)
    with deployment_of(pipeline, settings, templates_of(pipeline_file)) as deployment:
        yield deployment


@contextmanager
def deployment_of(pipeline: Pipeline, environment: Environment, template_folder: Path) -> Iterator[Deployment]:
    """Open a deployment from its models, and close its connections at the end."""
    with (
        closing(RegistryClient(environment.registry)) as registry,
        closing(ConnectClient(environment.connect, environment.connect.addresses)) as connect,
    ):
        yield Deployment(pipeline, environment, template_folder, registry, connect)
