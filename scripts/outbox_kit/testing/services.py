"""Define the containers of PostgreSQL, Kafka, the registry and Connect."""

from __future__ import annotations

from collections.abc import Iterable

from testcontainers.core.network import Network

from outbox_events.waiting import Observation
from outbox_kit.stack import health_checks
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.services.connect import PASSWORD_VARIABLE, common_settings
from outbox_kit.stack.services.databases import Logins
from outbox_kit.stack.services.java import FAST_START_OPTIONS
from outbox_kit.stack.services.jvm import environment_variables
from outbox_kit.stack.services.kafka import NODE_ID, single_node_settings
from outbox_kit.stack.services.postgres import SERVER_SETTINGS
from outbox_kit.stack.services.registry import storage_variables
from outbox_kit.stack.services.service import Options
from outbox_kit.stack.state import kafka_cluster_id
from outbox_kit.testing.container import StackContainer
from outbox_kit.testing.images import Images

INTERNAL_PORT, CONTROLLER_PORT = 9092, 9093
REGISTRY_API = "/apis/ccompat/v7"


class PostgresContainer(StackContainer):
    """A server with wal_level=logical and the stack's roles and databases."""

    container_port = 5432

    def __init__(
        self,
        image: str = Images.postgres,
        *,
        network: Network | None = None,
        name: str = "postgres",
        source_database: str = "library",
        target_database: str = "warehouse",
    ) -> None:
        super().__init__(image, name=name, network=network)
        self.logins = Logins(source_database=source_database, target_database=target_database)
        self.admin_password = self.logins.admin_password
        self.with_envs(POSTGRES_USER=self.logins.admin_user, POSTGRES_PASSWORD=self.admin_password)
        self.with_command(["postgres", *(f"-c{key}={value}" for key, value in SERVER_SETTINGS.items())])

    @property
    def source_dsn(self) -> str:
        """DSN with which the administrator logs in to the source database, including the password."""
        return self.dsn(self.logins.admin_user, self.admin_password, self.logins.source_database)

    @property
    def target_dsn(self) -> str:
        """DSN with which the owner of the tables logs in to the target database, including the password."""
        return self.dsn(self.logins.materializer_user, self.logins.materializer_password, self.logins.target_database)

    def dsn(self, user: str, secret: str, database: str) -> str:
        """Return the libpq URI of one login, for clients on this machine."""
        return f"postgresql://{user}:{secret}@{HOST}:{self.port}/{database}"

    def check(self) -> Observation[bool]:
        return health_checks.check_postgres(
            self.dsn(self.logins.admin_user, self.admin_password, "postgres"), self.logins
        )


class KafkaContainer(StackContainer):
    """Broker. Clients on this machine use `bootstrap_servers`; containers use `inner_bootstrap_servers`."""

    container_port = 19092

    def __init__(self, image: str = Images.kafka, *, network: Network | None = None, name: str = "kafka") -> None:
        super().__init__(image, name=name, network=network)
        host = name if network is not None else "localhost"  # the name resolves only in a network
        settings: dict[str, str | int | bool] = {
            "controller.quorum.voters": f"{NODE_ID}@{host}:{CONTROLLER_PORT}",
            # Containers use the listener INTERNAL, and clients on this machine use the listener EXTERNAL.
            "listeners": f"INTERNAL://:{INTERNAL_PORT},EXTERNAL://:{self.container_port},CONTROLLER://:{CONTROLLER_PORT}",
            "advertised.listeners": f"INTERNAL://{host}:{INTERNAL_PORT},EXTERNAL://{self.bootstrap_servers}",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            **single_node_settings(),
        }
        self.with_envs(
            CLUSTER_ID=kafka_cluster_id(),
            KAFKA_HEAP_OPTS=f"-Xmx512m {FAST_START_OPTIONS}",
            **environment_variables("KAFKA_", settings),
        )

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients on this machine."""
        return f"{HOST}:{self.port}"

    @property
    def inner_bootstrap_servers(self) -> str:
        """Address for clients in containers of the network."""
        return f"{self.alias}:{INTERNAL_PORT}"

    def check(self) -> Observation[bool]:
        return health_checks.check_kafka(self.port, self.bootstrap_servers)


class RegistryContainer(StackContainer):
    """A registry that retains schemas and their ids across restarts."""

    container_port = 8080

    def __init__(
        self, image: str = Images.registry, *, postgres: PostgresContainer, network: Network, name: str = "registry"
    ) -> None:
        super().__init__(image, name=name, network=network)
        variables = storage_variables(f"{postgres.alias}:{postgres.container_port}", postgres.logins)
        self.with_envs(QUARKUS_HTTP_HOST="0.0.0.0", **variables)  # noqa: S104 - in a container

    @property
    def url(self) -> str:
        """URL of the registry's Confluent-compatible API, for clients on this machine."""
        return f"http://{HOST}:{self.port}{REGISTRY_API}"

    @property
    def inner_url(self) -> str:
        """URL of the registry's Confluent-compatible API, for containers of the network."""
        return f"http://{self.alias}:{self.container_port}{REGISTRY_API}"

    def check(self) -> Observation[bool]:
        return health_checks.check_registry(self.url)


class ConnectContainer(StackContainer):
    """One Connect worker in distributed mode. All workers of one Kafka cluster form one Connect cluster."""

    container_port = 8083

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
            "listeners": f"http://0.0.0.0:{self.container_port}",
            "rest.advertised.host.name": name,
            **common_settings(),
        }
        self.with_envs(KAFKA_HEAP_OPTS=f"-Xmx768m {FAST_START_OPTIONS}", **environment_variables("CONNECT_", settings))
        # Debezium's image has separate variables for these settings, whose defaults would override the properties.
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
        """URL of the REST API, for clients on this machine."""
        return f"http://{HOST}:{self.port}"

    def check(self) -> Observation[bool]:
        return health_checks.check_connect(self.url, self.required_plugins)
