"""Source epoch of the relay's records. It is above that of the connector, so that no earlier state replaces a later."""

from __future__ import annotations

from psycopg import sql

from outbox_kit.deployment import Deployment, connector_epoch
from outbox_kit.deployment.source_epochs import highest_epoch
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.dangers import MOVE_HINT
from outbox_kit.kafka.source_epoch import MAX_EPOCH
from outbox_kit.pipeline import Lock
from outbox_kit.postgres.client import Connection
from outbox_kit.relay.tables import RelayTables

WRITE = sql.SQL("""
    insert into {schema}.outbox_relay (outbox, source_epoch) values (%s, %s)
    on conflict (outbox) do update set source_epoch = excluded.source_epoch""")


def required_epoch(deployment: Deployment, lock: Lock, current: int, *, with_connect: bool) -> int:
    """Return `current`, or a higher epoch if the connector was started, or has sent records, since it was set.

    Raises UnreachableError, WaitTimeoutError, and RefusedError if there is no higher epoch.
    """
    connector = connector_epoch(deployment) if with_connect else 0
    written = highest_epoch(deployment)
    if max(lock.source_epoch, connector) < current >= written:
        return current
    highest = max(lock.source_epoch, connector, written, current)
    if highest == MAX_EPOCH:
        raise RefusedError(f"the source epoch {highest} is the highest possible one", MOVE_HINT)
    return highest + 1


def write_epoch(connection: Connection, tables: RelayTables, epoch: int) -> None:
    connection.execute(WRITE.format(schema=tables.schema), (tables.outbox_name, epoch))
