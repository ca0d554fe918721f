"""The Kafka cluster that was meant: any other is refused before anything is written."""

from __future__ import annotations

from collections.abc import Collection

from outbox_kit.deployment.context import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.pipeline import Lock


def refuse_other_cluster(deployment: Deployment, lock: Lock | None, systems: Collection[str]) -> str | None:
    """Compare the ids of the Kafka cluster that the file (or the first apply) names, that answers, and that Connect
    writes to; those of `systems` only. Returns the cluster's id where one was asked for.

    Raises RefusedError, UnreachableError.
    """
    kafka = deployment.environment.kafka
    found: dict[str, str] = {}
    if "kafka" in systems:
        found[f"kafka.bootstrap_servers ({kafka.bootstrap_servers})"] = deployment.kafka.cluster_id()
    if "connect" in systems:
        found[f"Kafka Connect ({deployment.connect.url})"] = str(deployment.connect.root()["kafka_cluster_id"])
    expected, source = kafka.cluster_id, "kafka.cluster_id of the environment file"
    if expected is None and lock is not None and lock.cluster_id is not None:
        expected, source = lock.cluster_id, f"the cluster of the first apply ({deployment.lock_file.name})"
    for what, seen in found.items():
        if expected is not None and seen != expected:
            raise RefusedError(
                f"{what} belongs to cluster {seen}; {source} is {expected}",
                "check the addresses in the environment file: nothing was written",
            )
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{what} to {seen}" for what, seen in found.items())
        raise RefusedError(
            f"Kafka and Connect belong to different clusters: {listed}",
            "check kafka.bootstrap_servers and connect.url in the environment file: nothing was written",
        )
    return next(iter(found.values()), None)
