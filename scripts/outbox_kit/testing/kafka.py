"""Kafka in KRaft mode: one node that is broker and controller."""

from __future__ import annotations

from testcontainers.core.network import Network

from outbox_kit.stack import health_checks
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.properties import environment_variables
from outbox_kit.stack.services.kafka import single_node_settings
from outbox_kit.stack.state import kafka_cluster_id
from outbox_kit.testing.container import StackContainer
from outbox_kit.testing.images import Images
from outbox_kit.waiting import Seen

INNER = 9092
CONTROLLER = 9093


class KafkaContainer(StackContainer):
    """A broker: `bootstrap_servers` for this machine, `name:9092` for containers of its network."""

    inner_port = 19092

    def __init__(self, image: str = Images.kafka, *, network: Network | None = None, name: str = "kafka") -> None:
        super().__init__(image, name=name, network=network)
        host = name if network is not None else "localhost"  # the name resolves only in a network
        settings: dict[str, str | int | bool] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{host}:{CONTROLLER}",
            "controller.listener.names": "CONTROLLER",
            # Containers connect through INTERNAL, this machine through EXTERNAL; each gets a reachable address.
            "listeners": f"INTERNAL://:{INNER},EXTERNAL://:{self.inner_port},CONTROLLER://:{CONTROLLER}",
            "advertised.listeners": f"INTERNAL://{host}:{INNER},EXTERNAL://{self.bootstrap_servers}",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            **single_node_settings(),
        }
        self.with_envs(
            CLUSTER_ID=kafka_cluster_id(), KAFKA_HEAP_OPTS="-Xmx512m", **environment_variables("KAFKA_", settings)
        )

    @property
    def bootstrap_servers(self) -> str:
        """Address for this machine."""
        return f"{HOST}:{self.port}"

    @property
    def inner_bootstrap_servers(self) -> str:
        """Address for containers of the network."""
        return f"{self.alias}:{INNER}"

    def check(self) -> Seen[bool]:
        """Describe the cluster."""
        return health_checks.check_kafka(self.port, self.bootstrap_servers)
