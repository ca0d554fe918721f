"""Check that a relay can start: the connector is stopped and has not sent the rows, and the columns are supported."""

from __future__ import annotations

from typing import LiteralString

from psycopg import sql

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_events.text import plural
from outbox_kit.connect import state as connect_state
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.teardown import delivered_position
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.count_undelivered import count_undelivered
from outbox_kit.postgres.replication_slot import read_slot
from outbox_kit.relay.rows import JSON_TYPES, additional_columns, without_modifier
from outbox_kit.relay.tables import RelayTables

COUNT = sql.SQL(
    "select count(*) as rows, pg_current_wal_insert_lsn() - '0/0'::pg_lsn as lsn from {outbox} where {pending}"
)
TEXT_TYPES = (*JSON_TYPES, "text", "character varying")
NULLABLE: LiteralString = """
    select 1 from pg_attribute where attrelid = to_regclass(%s) and attname = %s and not attnotnull"""


def refuse_running_connector(deployment: Deployment) -> None:
    """Raise RefusedError if the connector exists and is not stopped."""
    name = deployment.pipeline.connector.name
    status = deployment.connect.status(name)
    if status is not None and status.connector_state != "STOPPED":
        problem = f"the connector of the same table is not stopped: {name}, {status.text}"
        raise RefusedError(problem, "run `outbox stop`, then start the relay again")


def refuse_delivered_rows(deployment: Deployment, connection: Connection, tables: RelayTables) -> None:
    """Raise RefusedError if the table has more rows than the slot of the stopped connector has undelivered events.

    The last sent event is counted as undelivered. This is safe, because the event contains its aggregate's newest
    state. If the slot does not exist, it is unknown which rows were delivered, and the relay sends all rows.
    """
    source = deployment.pipeline.source
    if read_slot(connection, source.slot) is None:
        return
    # Events after this LSN are not counted, because later inserts would compensate for rows that were sent.
    counted = connection.execute(COUNT.format(outbox=tables.outbox, pending=tables.pending)).fetchall()[0]
    rows = counted["rows"]
    actual = connect_state.read_actual(deployment.connect, deployment.pipeline.connector.name)
    undelivered = count_undelivered(connection, source, delivered_position(actual), upto=int(counted["lsn"]))
    if rows > undelivered:
        raise RefusedError(
            f"the connector has sent at least {plural(rows - undelivered, 'row')} of the {rows} rows in table "
            f"{tables.outbox_name}: the relay would send their states again, as new states",
            "run `outbox resume`, `outbox prune --older-than 0s --all`, `outbox stop`, then start the relay again",
        )


def require_columns(connection: Connection, tables: RelayTables, types: dict[str, str]) -> None:
    """Raise ConfigurationError if a column is missing or has a type that the relay cannot send."""
    source = tables.pipeline.source
    names = source.columns.model_dump()
    optional = names.pop("headers")
    for name in [*names.values(), *additional_columns(tables.pipeline)]:
        if name not in types:
            raise _wrong(tables, f"does not have the column {name}")
    payload = without_modifier(types[source.columns.payload])
    if tables.pipeline.payload_type == "bytea":
        if payload != "bytea":
            raise _wrong(tables, f"has a column {source.columns.payload} of type {payload}; it must be bytea")
    elif payload not in TEXT_TYPES:
        raise _wrong(tables, f"has a column {source.columns.payload} of type {payload}; it must be jsonb, json or text")
    headers = without_modifier(types.get(optional, "jsonb"))
    if headers not in TEXT_TYPES:
        raise _wrong(tables, f"has a column {optional} of type {headers}; it must be jsonb, json or text")
    if not types[source.columns.created_at].startswith("timestamp"):
        raise _wrong(tables, f"has a column {source.columns.created_at} that is neither timestamptz nor timestamp")
    if types[source.columns.id] != "uuid" or _is_nullable(connection, tables):
        raise _wrong(tables, f"has a column {source.columns.id} that is not `uuid not null`, so rows cannot be deleted")


def _is_nullable(connection: Connection, tables: RelayTables) -> bool:
    parameters = (ddl.quoted_text(tables.outbox_name), tables.pipeline.source.columns.id)
    return connection.execute(NULLABLE, parameters).fetchone() is not None


def _wrong(tables: RelayTables, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"table {tables.outbox_name} {problem}", "correct the table, or `source.columns` in the pipeline file"
    )
