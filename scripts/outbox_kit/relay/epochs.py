"""Set the source epoch of the relay's records. It exceeds the connector's epoch, so the relay's states are newer.

The epoch is also raised after a restore or failover, because the server's last batch number can then be lower.
"""

from __future__ import annotations

from psycopg import sql

from outbox_events.contract.source_sequence import Version
from outbox_events.errors import UnreachableError, WaitTimeoutError
from outbox_kit.deployment import Deployment, connector_epoch
from outbox_kit.deployment.source_epochs import (
    epoch_above,
    highest_epoch,
    highest_version,
    refuse_relay_of_other_pipeline,
)
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client
from outbox_kit.postgres.client import Connection, Row
from outbox_kit.relay.tables import RelayTables

WRITE = sql.SQL("""
    insert into {schema}.outbox_relay as relay
      (outbox, source_epoch, prefix, system_identifier, timeline, cluster_id)
    values (%s, %s, %s, %s, %s, %s)
    on conflict (outbox) do update set source_epoch = excluded.source_epoch, cluster_id = excluded.cluster_id,
      system_identifier = excluded.system_identifier, timeline = excluded.timeline
    where relay.prefix = excluded.prefix and relay.cluster_id = excluded.cluster_id""")
READ = sql.SQL("select * from {schema}.outbox_relay where outbox = %s")
# Only the first of several sessions raises the epoch.
RAISE = sql.SQL("""
    update {schema}.outbox_relay set source_epoch = %s, system_identifier = %s, timeline = %s
    where outbox = %s and (system_identifier, timeline) <> (%s, %s)""")
LAST_NUMBER = sql.SQL("select last_value as number from {schema}.outbox_relay_batch_number")


def required_epoch(
    deployment: Deployment, lock: Lock, connection: Connection, tables: RelayTables, *, with_connect: bool
) -> int:
    """Return the current epoch, or a higher epoch if existing records can have a higher sequence than the next batch.

    Such records can be from the connector, or from the relay before the database was restored. Raises UnreachableError,
    WaitTimeoutError, and RefusedError if the epoch is already the highest possible epoch.
    """
    current = client.read_relay(connection, tables.outbox_name).source_epoch
    connector = connector_epoch(deployment) if with_connect else 0
    # The topics are read before the last batch number, because other processes continue to send.
    highest = highest_version(deployment)
    written = highest.source_epoch
    if max(lock.source_epoch, connector) < current >= written:
        last = connection.execute(LAST_NUMBER.format(schema=tables.schema)).fetchall()[0]["number"]
        if written < current or _number_of(highest) <= last:
            return current
    return epoch_above(max(lock.source_epoch, connector, written, current))


def _number_of(version: Version) -> int:
    return int(version.sequence.partition("_")[2].partition("-")[0], 16)


def write_epoch(connection: Connection, tables: RelayTables, epoch: int, cluster_id: str | None) -> None:
    """Store the epoch. Raises RefusedError if the relay of another pipeline stored its epoch first."""
    parameters = (tables.outbox_name, epoch, tables.pipeline.prefix, *_server(connection), cluster_id)
    if not connection.execute(WRITE.format(schema=tables.schema), parameters).rowcount:
        relay = client.read_relay(connection, tables.outbox_name)
        refuse_relay_of_other_pipeline(tables.pipeline, relay, cluster_id)


def raise_on_other_server(deployment: Deployment, connection: Connection, tables: RelayTables) -> int | None:
    """Increase the epoch after a restore or failover of the database. Return the new epoch, or None.

    The new server might lack the last batches, and would then assign their numbers again. Raises UnreachableError, and
    RefusedError if the epoch is already the highest possible epoch.
    """
    server, found = _server(connection), _read(connection, tables)
    if found is None or (found["system_identifier"], found["timeline"]) == server:
        return None
    try:
        epoch = epoch_above(max(found["source_epoch"], highest_epoch(deployment)))
    except WaitTimeoutError as error:  # unlike the timeout of `--once`, it is no reason to end the process
        raise UnreachableError(error.message, error.hint) from None
    parameters = (epoch, *server, tables.outbox_name, *server)
    raised = connection.execute(RAISE.format(schema=tables.schema), parameters).rowcount
    return epoch if raised else None


def _read(connection: Connection, tables: RelayTables) -> Row | None:
    """Return epoch, prefix and server of the relay; None if no relay has been started for this outbox table."""
    if not client.read_relay(connection, tables.outbox_name).source_epoch:
        return None
    return connection.execute(READ.format(schema=tables.schema), (tables.outbox_name,)).fetchone()


def _server(connection: Connection) -> tuple[str, int]:
    """Return the system identifier and timeline of the server."""
    return client.read_system_identifier(connection), client.read_server(connection)["timeline"]
