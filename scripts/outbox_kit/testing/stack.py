"""Run the entire stack in containers: PostgreSQL, Kafka, registry and Connect."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self, TypeVar

from pydantic import SecretStr
from testcontainers.core.network import Network

from outbox_events.errors import ConfigurationError
from outbox_events.text import plural
from outbox_kit.deployment import Deployment, apply, deployment_of
from outbox_kit.pipeline import Environment, load_pipeline
from outbox_kit.pipeline.environment import (
    Connect,
    ConnectorLogin,
    ConnectorSettings,
    Kafka,
    Login,
    PostgresTarget,
    Registry,
    SourceDatabase,
)
from outbox_kit.results import Reporter, silent
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.connect import PASSWORD_VARIABLE
from outbox_kit.testing.container import StackContainer
from outbox_kit.testing.images import Images, provide_image
from outbox_kit.testing.services import ConnectContainer, KafkaContainer, PostgresContainer, RegistryContainer

Container = TypeVar("Container", bound=StackContainer)


class OutboxStack:
    """Stack of containers in one network. At the end of the `with` block, containers, data and network are removed."""

    def __init__(
        self,
        images: Images | None = None,
        *,
        workers: int = 1,
        source_database: str = "library",
        target_database: str = "warehouse",
        progress: Reporter = silent,
    ) -> None:
        """Set the images, the number of Connect workers and the database names. No container is started."""
        if workers < 1:
            raise ConfigurationError(f"`workers` must be at least 1, not {workers}", "set `workers` to 1 or more")
        self.images = images or Images()
        self.workers = workers
        self.source_database = source_database
        self.target_database = target_database
        self.progress = progress
        self.postgres: PostgresContainer
        self.kafka: KafkaContainer
        self.registry: RegistryContainer
        self.connects: list[ConnectContainer]
        """Containers of the Connect workers."""
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        """Start all containers, and return when every service is ready.

        Raises StackError if an engine or image is missing or a service exits. Raises WaitTimeoutError.
        """
        try:
            self._start()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the containers, their data and their network."""
        self._cleanup.close()

    @property
    def source_dsn(self) -> str:
        """DSN of the source database for the administrator, who owns the outbox table, including the password."""
        return self.postgres.source_dsn

    @property
    def target_dsn(self) -> str:
        """DSN of the target database for the owner of its tables, including the password."""
        return self.postgres.target_dsn

    @property
    def bootstrap_servers(self) -> str:
        """Address of Kafka for clients on this machine."""
        return self.kafka.bootstrap_servers

    @property
    def registry_url(self) -> str:
        """URL of the registry's Confluent-compatible API."""
        return self.registry.url

    @property
    def connect_url(self) -> str:
        """URL of the first worker's REST API."""
        return self.connects[0].url

    def apply(self, pipeline_file: Path) -> None:
        """Deploy a pipeline as `outbox apply` does, and return when its connector is running. Raises OutboxError."""
        with self.deployment(pipeline_file) as deployment:
            apply(deployment, self.progress)

    @contextmanager
    def deployment(self, pipeline_file: Path) -> Iterator[Deployment]:
        """Yield the deployment of a pipeline in this stack. The functions of outbox_kit.deployment accept it."""
        pipeline = load_pipeline(pipeline_file)
        with deployment_of(pipeline, self.environment(), pipeline_file.resolve().parent / "templates") as deployment:
            yield deployment

    def environment(self) -> Environment:
        """Return the environment with this stack's addresses. The target `warehouse` is the target database."""
        logins = self.postgres.logins
        return Environment(
            name="testing",
            source=SourceDatabase(
                host=HOST,
                port=self.postgres.port,
                database=logins.source_database,
                admin=Login(user=logins.admin_user, password=SecretStr(self.postgres.admin_password)),
                connector=ConnectorLogin(
                    host=self.postgres.alias,
                    port=self.postgres.container_port,
                    user=logins.connector_user,
                    password=f"${{env:{PASSWORD_VARIABLE}}}",
                ),
            ),
            kafka=Kafka(bootstrap_servers=self.bootstrap_servers, replication_factor=1, min_insync_replicas=1),
            registry=Registry(url=self.registry_url, connector_url=self.registry.inner_url),
            connect=Connect(url=self.connect_url, workers=[worker.url for worker in self.connects]),
            connector=ConnectorSettings(heartbeat_interval_ms=1000, poll_interval_ms=50, stability_seconds=1.0),
            targets={
                "warehouse": PostgresTarget(
                    kind="postgres",
                    host=HOST,
                    port=self.postgres.port,
                    database=logins.target_database,
                    user=logins.materializer_user,
                    password=SecretStr(logins.materializer_password),
                )
            },
            lock_folder=self._folder,
        )

    def _start(self) -> None:
        images = self.images
        # All images are provided before the first container starts, so that a missing image is reported early.
        for image in (images.postgres, images.kafka, images.registry, images.connect):
            provide_image(image)
        self._folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="outbox-stack-")))
        network = self._cleanup.enter_context(Network())
        self.progress("starting postgres, kafka")
        self.postgres = self._start_container(
            PostgresContainer(
                images.postgres,
                network=network,
                source_database=self.source_database,
                target_database=self.target_database,
            )
        )
        self.kafka = self._start_container(KafkaContainer(images.kafka, network=network))
        self.postgres.wait_ready()
        self.progress("starting registry")
        self.registry = self._start_container(
            RegistryContainer(images.registry, postgres=self.postgres, network=network)
        )
        self.kafka.wait_ready()
        self.progress(f"starting {plural(self.workers, 'Connect worker')}")
        self.connects = [
            self._start_container(
                ConnectContainer(
                    images,
                    kafka=self.kafka,
                    connector_password=self.postgres.logins.connector_password,
                    network=network,
                    name=f"connect-{number}",
                )
            )
            for number in range(1, self.workers + 1)
        ]
        for container in (self.registry, *self.connects):
            container.wait_ready()

    def _start_container(self, container: Container) -> Container:
        # Register the cleanup before the start, to remove a container that was created but did not start.
        self._cleanup.callback(container.stop)
        return container.start()
