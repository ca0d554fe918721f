"""ACLs of each Kafka user of the profile `secure`; the service `acls` creates them before a worker starts.

docs/containers.md has them as a table. `admin` is a superuser; other users have only the permissions listed here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

SECONDS = 30
PREFIX = os.environ["TOPIC_PREFIX"]
HEARTBEAT = f"__debezium-heartbeat.{PREFIX}"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
TRANSACTION, CLUSTER = ResourceType.TRANSACTIONAL_ID, ResourceType.BROKER
CLUSTER_NAME = "kafka-cluster"

GRANTS = {
    # The workers, and the producers of their connectors. With exactly-once support every task writes in transactions
    # of the id GROUP-CONNECTOR-TASK, the leader in one of connect-cluster-GROUP.
    "connect": [
        (TOPIC, "outbox-connect-", ["CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"]),
        (TOPIC, f"{PREFIX}.", ["DESCRIBE", "WRITE"]),
        (TOPIC, HEARTBEAT, ["DESCRIBE", "WRITE"]),
        (GROUP, "outbox-connect", ["DESCRIBE", "READ"]),
        (TRANSACTION, "outbox-connect-", ["DESCRIBE", "WRITE"]),
        (TRANSACTION, "connect-cluster-outbox-connect", ["DESCRIBE", "WRITE"]),
    ],
    # `outbox apply`, `verify`, `destroy`: topics and their settings, and reading the canary's record.
    "tool": [
        (TOPIC, f"{PREFIX}.", ["ALL"]),
        (TOPIC, HEARTBEAT, ["ALL"]),
        (TOPIC, "outbox-connect-", ["DESCRIBE", "DESCRIBE_CONFIGS", "READ"]),
        (GROUP, "outbox-kit", ["DESCRIBE", "READ"]),
        (CLUSTER, CLUSTER_NAME, ["DESCRIBE", "DESCRIBE_CONFIGS"]),
    ],
    # The jobs only read topics. Their offsets are stored in the tables.
    "spark": [
        (TOPIC, f"{PREFIX}.", ["DESCRIBE", "DESCRIBE_CONFIGS", "READ"]),
    ],
}


def bindings() -> Iterator[AclBinding]:
    """Yield one ACL binding for each operation."""
    for user, grants in GRANTS.items():
        for kind, name, operations in grants:
            # A literal name, because a prefix would include the heartbeat topic of `library2`.
            exact = kind is CLUSTER or name == HEARTBEAT
            pattern = ResourcePatternType.LITERAL if exact else ResourcePatternType.PREFIXED
            for operation in operations:
                yield AclBinding(
                    kind, name, pattern, f"User:{user}", "*", AclOperation[operation], AclPermissionType.ALLOW
                )


def main() -> None:
    """Create all ACLs; existing ACLs are not deleted."""
    admin = AdminClient(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": os.environ["KAFKA_ADMIN_PASSWORD"],
            "ssl.ca.location": "/run/secrets/ca.pem",
        }
    )
    for future in admin.create_acls(list(bindings()), request_timeout=SECONDS).values():
        future.result(SECONDS)


if __name__ == "__main__":
    main()
