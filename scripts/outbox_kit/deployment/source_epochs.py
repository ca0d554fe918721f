"""Read the source epochs of the connector, the relay and the records, and find an epoch that is higher than all."""

from __future__ import annotations

from psycopg import sql

from outbox_events.contract.source_sequence import MAX_EPOCH, UNVERSIONED, Version
from outbox_events.errors import RefusedError, UnreachableError
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment.deployment import Deployment
from outbox_kit.kafka import source_epoch
from outbox_kit.kafka.preconditions import MOVE_HINT
from outbox_kit.pipeline import Lock, Pipeline
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl
from outbox_kit.postgres.state import ActualDatabase
from outbox_kit.results.repair_commands import APPLY_RECOVER_HINT


def connector_epoch(deployment: Deployment) -> int:
    """Return the source epoch of the live connector; 0 if Connect does not respond, which plan_connect() reports."""
    try:
        return connect_state.epoch(deployment.connect.config(deployment.pipeline.connector.name))
    except UnreachableError:
        return 0


def refuse_relay_of_other_pipeline(pipeline: Pipeline, relay: postgres_client.Relay, cluster_id: str | None) -> None:
    """Raise RefusedError if the relay of the outbox table sends its rows to another prefix or cluster."""
    if relay.is_of_other(pipeline.prefix, cluster_id):
        table = pipeline.source.table
        delete = sql.SQL("delete from {}.outbox_relay where outbox = {}").format(ddl.schema_of(table), table)
        cluster = f" of Kafka cluster {relay.cluster_id}" if relay.cluster_id else ""
        raise RefusedError(
            f"a relay sends the rows of table {table} to the topics {relay.prefix}.*{cluster}, and a row is sent once",
            "check source.host and use one pipeline per outbox table; if that relay no longer sends the rows, run "
            f"`{delete.as_string(None)}` in the database",
        )


def refuse_running_relay(deployment: Deployment, database: ActualDatabase) -> None:
    """Raise RefusedError if a relay process is connected to the database: connector and relay would send each row."""
    table = deployment.pipeline.source.table
    if not database.relay.source_epoch:
        return
    with postgres_client.connected(deployment.environment.source) as connection:
        sessions = postgres_client.relay_sessions(connection, table)
    if sessions:
        message = f"a relay sends the rows of table {table}: sessions of the server: {', '.join(map(str, sessions))}"
        raise RefusedError(
            message, "stop every relay process; docs/relay-migration.md describes the move to the connector"
        )


def refuse_relayed_states(pipeline: Pipeline, lock: Lock | None, database: ActualDatabase) -> None:
    """Raise RefusedError if a relay sends the rows to other topics, or has a higher source epoch than the connector.

    The epoch of the connector is that of the lock file.
    """
    epoch, lock_epoch = database.relay.source_epoch, lock.source_epoch if lock else 1
    refuse_relay_of_other_pipeline(pipeline, database.relay, lock.cluster_id if lock else None)
    if epoch > lock_epoch:
        raise RefusedError(
            f"the relay has source epoch {epoch}, but the connector has {lock_epoch}: every consumer would ignore the "
            "states of the connector",
            f"stop the relay, then {APPLY_RECOVER_HINT}; docs/relay-migration.md describes the move",
        )


def highest_epoch(deployment: Deployment, *, complete: bool = False) -> int:
    """Return the source epoch of highest_version(); 0 if the topics have no records."""
    return highest_version(deployment, complete=complete).source_epoch


def highest_version(deployment: Deployment, *, complete: bool = False) -> Version:
    """Return the highest version among the last records of the topics; UNVERSIONED if the topics have no records.

    If `complete` is set, every record is read. Raises UnreachableError, WaitTimeoutError.
    """
    pipeline, kafka = deployment.pipeline, deployment.environment.kafka
    existing_topics = deployment.kafka.topics()
    written_topics = [*map(pipeline.topic_of, pipeline.routed), pipeline.dead_letter_topic]
    versions = [
        source_epoch.highest_version(kafka, topic, deployment.kafka.bounds(topic), complete=complete)
        for topic in written_topics
        if topic in existing_topics
    ]
    return max(versions, default=UNVERSIONED)


def next_epoch(deployment: Deployment, lock: Lock) -> int:
    """Return a source epoch that is higher than those of the lock file, the connector, the relay and every record.

    Every record is read, because another source's records can be at any offset. Raises RefusedError at MAX_EPOCH.
    """
    written = highest_epoch(deployment, complete=True)
    with postgres_client.connected(deployment.environment.source) as connection:
        relay = postgres_client.read_relay(connection, deployment.pipeline.source.table)
    return epoch_above(max(lock.source_epoch, written, connector_epoch(deployment), relay.source_epoch))


def epoch_above(epoch: int) -> int:
    """Return the next source epoch. Raises RefusedError at MAX_EPOCH."""
    if epoch >= MAX_EPOCH:
        raise RefusedError(f"the source epoch {epoch} is the highest possible epoch", MOVE_HINT)
    return epoch + 1
