"""One pipeline in one environment, and the clients that reach its systems."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from outbox_kit.connect.client import ConnectClient
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import (
    Environment,
    Lock,
    Pipeline,
    load_environment,
    load_pipeline,
    read_lock,
    render_connector,
    write_lock,
)
from outbox_kit.registry.client import RegistryClient

DEPLOYED_SECTIONS = ("source", "kafka", "registry", "connect")


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
        return self.environment.lock_folder / f"{self.pipeline.name}.{self.environment.name}.lock.json"

    def lock(self) -> Lock | None:
        """The lock file as it is now; None before the first apply."""
        return read_lock(self.lock_file)

    def write_lock(self, lock: Lock) -> None:
        write_lock(self.lock_file, lock)

    def new_lock(self) -> Lock:
        return Lock(pipeline=self.pipeline.name, environment=self.environment.name)

    def render(self, lock: Lock | None) -> dict[str, str]:
        """The connector's config under `lock`."""
        return render_connector(self.pipeline, self.environment, lock, self.templates)


@contextmanager
def open_deployment(
    pipeline_file: Path, environment: str, *, needs: Collection[str] = DEPLOYED_SECTIONS
) -> Iterator[Deployment]:
    """Read the files of a deployment; its connections are closed at the end. Raises ConfigurationError.

    `needs` names the sections of the environment file whose variables must be set.
    """
    pipeline = load_pipeline(pipeline_file)
    found = load_environment(environment, pipeline_file, needs=needs)
    with (
        closing(RegistryClient(found.registry)) as registry,
        closing(ConnectClient(found.connect)) as connect,
    ):
        templates = pipeline_file.resolve().parent / "templates"
        yield Deployment(pipeline, found, templates, registry, connect)
