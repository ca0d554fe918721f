"""A Connect worker with Debezium and the transforms of outbox-kit."""

from __future__ import annotations

from collections.abc import Iterable

from testcontainers.core.network import Network

from outbox_kit.stack import health_checks
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.properties import environment_variables
from outbox_kit.stack.services.connect import PASSWORD_VARIABLE, common_settings
from outbox_kit.stack.services.service import Options
from outbox_kit.testing.container import StackContainer
from outbox_kit.testing.images import Images
from outbox_kit.testing.kafka import KafkaContainer
from outbox_kit.waiting import Seen


class ConnectContainer(StackContainer):
    """One worker in distributed mode; workers of the same Kafka share their connectors."""

    inner_port = 8083

    def __init__(
        self,
        images: Images,
        *,
        kafka: KafkaContainer,
        connector_password: str,
        network: Network,
        name: str = "connect",
        required_plugins: Iterable[str] = Options.required_plugins,
    ) -> None:
        super().__init__(images.connect, name=name, network=network)
        self.required_plugins = tuple(required_plugins)
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": kafka.inner_bootstrap_servers,
            "listeners": f"http://0.0.0.0:{self.inner_port}",
            "rest.advertised.host.name": name,
            **common_settings(),
        }
        self.with_envs(KAFKA_HEAP_OPTS="-Xmx768m", **environment_variables("CONNECT_", settings))
        # Debezium's image has its own variables for these, whose defaults would override the properties.
        self.with_envs(
            BOOTSTRAP_SERVERS=kafka.inner_bootstrap_servers,
            GROUP_ID=str(settings["group.id"]),
            **{
                f"{store}_STORAGE_TOPIC": str(settings[f"{store.lower()}.storage.topic"])
                for store in ("CONFIG", "OFFSET", "STATUS")
            },
        )
        self.with_env(PASSWORD_VARIABLE, connector_password)
        for folder, path in images.connect_plugins.items():
            self.with_volume_mapping(folder.resolve(), path)

    @property
    def url(self) -> str:
        """URL of the REST API for this machine."""
        return f"http://{HOST}:{self.port}"

    def check(self) -> Seen[bool]:
        """Check the worker's health and its plugins."""
        return health_checks.check_connect(self.url, self.required_plugins)
