"""One pipeline in one environment, and the clients that reach its systems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from outbox_kit.connect.client import ConnectClient
from outbox_kit.errors import ConfigurationError
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
from outbox_kit.postgres.dba_script import script
from outbox_kit.registry.client import RegistryClient

DEPLOYED_SECTIONS = ("source", "kafka", "registry", "connect")
# The keys of the environment file that stand in a connector config.
RENDERED_KEYS = ("source.host", "source.port", "source.database", "source.connector")
# ... and those that stand in the SQL for a DBA.
SQL_KEYS = (
    *("source.host", "source.port", "source.database"),
    *("source.admin.user", "source.connector.user", "source.verifier.user"),
    *(f"targets.*.{key}" for key in ("kind", "host", "port", "database", "user", "schema")),
)


def lock_file(pipeline: Pipeline, environment: Environment) -> Path:
    """Where the lock of a pipeline in an environment is kept."""
    return environment.lock_folder / f"{pipeline.name}.{environment.name}.lock.json"


def templates(pipeline_file: Path) -> Path:
    """The folder of connector templates that belongs to a pipeline file."""
    return pipeline_file.resolve().parent / "templates"


def render_files(
    pipeline_file: Path, environment: str, overrides: Overrides | None = None
) -> tuple[str, dict[str, str]]:
    """Name and config of the connector; from the files alone, without any secret. Raises ConfigurationError."""
    pipeline, found = load_files(pipeline_file, environment, overrides, needs=RENDERED_KEYS)
    lock = read_lock(lock_file(pipeline, found))
    return pipeline.connector.name, render_connector(pipeline, found, lock, templates(pipeline_file))


def render_sql(pipeline_file: Path, environment: str, overrides: Overrides | None = None) -> str:
    """The database part as SQL; from the files alone, without any secret. Raises ConfigurationError."""
    return script(*load_files(pipeline_file, environment, overrides, needs=SQL_KEYS))


@dataclass(frozen=True)
class Deployment:
    """One pipeline in one environment. The clients connect when first used."""

    pipeline: Pipeline
    environment: Environment
    templates: Path
    registry: RegistryClient
    connect: ConnectClient

    @cached_property
    def kafka(self) -> KafkaClient:
        """Connects in the background as soon as it is there, so it is made when first asked for."""
        return KafkaClient(self.environment.kafka)

    @property
    def lock_file(self) -> Path:
        return lock_file(self.pipeline, self.environment)

    def lock(self) -> Lock | None:
        """The lock file as it is now; None before the first apply."""
        lock = read_lock(self.lock_file)
        if lock and (lock.pipeline, lock.environment) != (self.pipeline.name, self.environment.name):
            message = f"lock file {self.lock_file} is of {lock.pipeline!r} in {lock.environment!r}"
            raise ConfigurationError(message, "a copied lock file carries another database's identity: remove it")
        return lock

    def write_lock(self, lock: Lock) -> None:
        write_lock(self.lock_file, lock)

    def new_lock(self) -> Lock:
        return Lock(pipeline=self.pipeline.name, environment=self.environment.name)

    def render(self, lock: Lock | None) -> dict[str, str]:
        """The connector's config under `lock`."""
        return render_connector(self.pipeline, self.environment, lock, self.templates)


@contextmanager
def open_deployment(pipeline_file: Path, environment: str, overrides: Overrides | None = None) -> Iterator[Deployment]:
    """Read the files of a deployment; its connections are closed at the end. Raises ConfigurationError."""
    pipeline, found = load_files(pipeline_file, environment, overrides, needs=DEPLOYED_SECTIONS)
    with deployment_of(pipeline, found, templates(pipeline_file)) as deployment:
        yield deployment


@contextmanager
def deployment_of(pipeline: Pipeline, found: Environment, folder: Path) -> Iterator[Deployment]:
    """A pipeline in an environment that no file describes; `folder` holds the templates."""
    with (
        closing(RegistryClient(found.registry)) as registry,
        closing(ConnectClient(found.connect, found.connect.addresses)) as connect,
    ):
        yield Deployment(pipeline, found, folder, registry, connect)
