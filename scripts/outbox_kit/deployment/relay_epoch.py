"""Source epoch of the polling relay, in the table outbox_relay of the outbox table's schema (docs/relay.md)."""

from __future__ import annotations

from psycopg import sql

from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection


def read_relay_epoch(connection: Connection, outbox: str) -> int:
    """Return the source epoch of the relay; 0 if the relay was never started for this outbox table."""
    schema = ddl.schema_of(outbox)
    table = f"{schema.as_string(connection)}.outbox_relay"
    if connection.execute("select to_regclass(%s)::oid as oid", (table,)).fetchall()[0]["oid"] is None:
        return 0
    statement = sql.SQL("select source_epoch from {}.outbox_relay where outbox = %s").format(schema)
    found = connection.execute(statement, (outbox,)).fetchone()
    return 0 if found is None else int(found["source_epoch"])
