"""The schema registry: Apicurio with its Confluent API, stored in PostgreSQL."""

from __future__ import annotations

from testcontainers.core.network import Network

from outbox_kit.stack import health_checks
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.registry import storage
from outbox_kit.testing.container import StackContainer
from outbox_kit.testing.images import Images
from outbox_kit.testing.postgres import PostgresContainer
from outbox_kit.waiting import Seen

API = "/apis/ccompat/v7"


class RegistryContainer(StackContainer):
    """A registry that retains schemas and their ids over a restart."""

    inner_port = 8080

    def __init__(
        self, image: str = Images.registry, *, postgres: PostgresContainer, network: Network, name: str = "registry"
    ) -> None:
        super().__init__(image, name=name, network=network)
        address = f"{postgres.alias}:{postgres.inner_port}"
        self.with_envs(QUARKUS_HTTP_HOST="0.0.0.0", **storage(address, postgres.logins))  # noqa: S104 - in a container

    @property
    def url(self) -> str:
        """URL of the Confluent API for this machine."""
        return f"http://{HOST}:{self.port}{API}"

    @property
    def inner_url(self) -> str:
        """URL of the Confluent API for containers of the network."""
        return f"http://{self.alias}:{self.inner_port}{API}"

    def check(self) -> Seen[bool]:
        """List the subjects."""
        return health_checks.check_registry(self.url)
