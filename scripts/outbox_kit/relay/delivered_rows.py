"""Rows of the table that the connector has sent. The relay would send them again, and bring old states back."""

from __future__ import annotations

from psycopg import sql

from outbox_events.text import plural
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.teardown import delivered_position
from outbox_kit.errors import RefusedError
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.count_undelivered import count_undelivered
from outbox_kit.postgres.replication_slot import read_slot
from outbox_kit.relay.tables import RelayTables

COUNT = sql.SQL(
    "select count(*) as rows, pg_current_wal_insert_lsn() - '0/0'::pg_lsn as lsn from {outbox} where {pending}"
)


def refuse_delivered_rows(deployment: Deployment, connection: Connection, tables: RelayTables) -> None:
    """Raise RefusedError if the table has more rows than the slot of the stopped connector has undelivered events.

    The last sent event counts as undelivered. It is the newest state of its aggregate, so it does no harm.
    Without a slot nothing is known about the rows, and all of them are sent.
    """
    source = deployment.pipeline.source
    if read_slot(connection, source.slot) is None:
        return
    # Events up to the LSN of the count only: those of rows that are inserted later would hide rows that were sent.
    counted = connection.execute(COUNT.format(outbox=tables.outbox, pending=tables.pending)).fetchall()[0]
    rows = counted["rows"]
    actual = connect_state.read_actual(deployment.connect, deployment.pipeline.connector.name)
    undelivered = count_undelivered(connection, source, delivered_position(actual), upto=int(counted["lsn"]))
    if rows > undelivered:
        raise RefusedError(
            f"the connector has sent at least {plural(rows - undelivered, 'row')} of the {rows} rows in table "
            f"{tables.outbox_name}: the relay would send their states again, as new ones",
            "run `outbox resume`, `outbox prune --older-than 0s --all`, `outbox stop`, then start the relay again",
        )
