"""Check that a relay can start: no connector sends the rows or has sent them, and the columns are supported."""

from __future__ import annotations

from typing import LiteralString

from psycopg import sql

from outbox_events.errors import ConfigurationError, RefusedError, UnreachableError
from outbox_events.text import plural
from outbox_kit.connect import state as connect_state
from outbox_kit.connect.client import LiveConnector
from outbox_kit.connect.config_diff import PIPELINE_KEY
from outbox_kit.connect.conflicts import DEBEZIUM_DEFAULTS, readers_of
from outbox_kit.deployment import Deployment
from outbox_kit.deployment.teardown import delivered_position
from outbox_kit.pipeline import Lock, Pipeline, SourceDatabase
from outbox_kit.postgres import client, ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.count_undelivered import count_undelivered
from outbox_kit.postgres.replication_slot import read_slot
from outbox_kit.relay.rows import JSON_TYPES, additional_columns, without_modifier
from outbox_kit.relay.tables import RelayTables

COUNT = sql.SQL(
    "select count(*) as rows, pg_current_wal_insert_lsn() - '0/0'::pg_lsn as lsn from {outbox} where {pending}"
)
TEXT_TYPES = (*JSON_TYPES, "text", "character varying")
# A publication of all tables is not specific to a pipeline.
OTHER_PUBLICATIONS: LiteralString = """
    select pubname as name, obj_description(p.oid, 'pg_publication') as comment
    from pg_publication p join pg_publication_rel on prpubid = p.oid
    where prrelid = to_regclass(%s) and p.oid <> %s order by pubname"""
NULLABLE: LiteralString = """
    select 1 from pg_attribute where attrelid = to_regclass(%s) and attname = %s and not attnotnull"""


def refuse_other_senders(deployment: Deployment) -> None:
    """Raise RefusedError if a connector of another pipeline reads the table, or if another connector is not stopped.

    A stopped connector of another pipeline would be resumed, and its pipeline would miss the rows that the relay sends.
    """
    pipeline, name = deployment.pipeline, deployment.pipeline.connector.name
    try:
        connectors = deployment.connect.listed_connectors()
    except UnreachableError as error:
        hint = "check connect.url; if no connector reads the table, run `outbox relay --no-connect`"
        raise UnreachableError(error.message, hint) from None
    readers = [
        reader
        for reader in readers_of(pipeline.source.table, deployment.environment.source.database, connectors)
        if _may_read_server(deployment.environment.source, connectors[reader].config)
    ]
    for reader in readers:
        _refuse_other_owner(pipeline, reader, connectors[reader])
    for reader in sorted({*readers, name} & connectors.keys()):
        status = connectors[reader].status
        if status is None or status.connector_state != "STOPPED":
            stop = "outbox stop" if reader == name else f"curl -X PUT {deployment.connect.url}/connectors/{reader}/stop"
            problem = f"connector {reader!r} can send rows of table {pipeline.source.table}, because it is not stopped"
            raise RefusedError(
                f"{problem}: {status.text}" if status else problem, f"run `{stop}`, then start the relay again"
            )


def _may_read_server(source: SourceDatabase, config: dict[str, str]) -> bool:
    """Return whether a connector has the address of this server, which can have several, or a slot of this server."""
    settings = {**DEBEZIUM_DEFAULTS, **config}
    host, port = source.connector_address
    if (settings.get("database.hostname"), settings["database.port"]) == (host, str(port)):
        return True
    with client.connected(source) as connection:
        return read_slot(connection, settings["slot.name"]) is not None


def _refuse_other_owner(pipeline: Pipeline, name: str, connector: LiveConnector) -> None:
    owner, prefix = connector.config.get(PIPELINE_KEY), connector.config.get("topic.prefix")
    if owner is not None and (owner, prefix) != (pipeline.name, pipeline.prefix):
        raise RefusedError(
            f"connector {name!r} of pipeline {owner!r} reads table {pipeline.source.table} and sends its rows to the "
            f"topics {prefix}.*, not {pipeline.prefix}.*: a row is sent only once",
            "use one pipeline per outbox table, or destroy the other one",
        )


def refuse_published_table(connection: Connection, deployment: Deployment, lock: Lock) -> None:
    """Raise RefusedError if a publication lists the table that is neither in the lock file nor marked as the own.

    Another pipeline may send the rows, also at another Connect cluster. A publication that this pipeline had before
    source.publication or source.slot was changed has its mark.
    """
    source = deployment.pipeline.source
    recorded = lock.source.publication_oid if lock.source else 0
    names = deployment.pipeline, deployment.environment, lock.cluster_id
    for found in connection.execute(OTHER_PUBLICATIONS, (ddl.quoted_text(source.table), recorded)).fetchall():
        if ddl.is_own_mark(found["comment"], *names):
            continue
        name = sql.Identifier(found["name"]).as_string(connection)
        table = ddl.qualified_name(source.table).as_string(connection)
        raise RefusedError(
            f"publication {found['name']!r} lists table {source.table}, so another pipeline may send its rows",
            "use one pipeline per outbox table; if the other is no longer used, run "
            f"`alter publication {name} drop table {table}` in the database",
        )


def refuse_delivered_rows(deployment: Deployment, connection: Connection, tables: RelayTables) -> None:
    """Raise RefusedError if the table has more rows than the slot of the stopped connector has undelivered events.

    The last sent event is counted as undelivered. This is safe, because the event contains its aggregate's newest
    state. If the slot does not exist, it is unknown which rows were delivered, and the relay sends all rows.
    """
    source = deployment.pipeline.source
    if read_slot(connection, source.slot) is None:
        return
    # Events after this LSN are not counted, because later inserts would compensate for rows that were sent.
    counted = connection.execute(COUNT.format(**tables.names)).fetchall()[0]
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
    payload_types = ("bytea",) if tables.pipeline.payload_type == "bytea" else TEXT_TYPES
    for name, allowed in ((source.columns.payload, payload_types), (optional, TEXT_TYPES)):
        if name in types and (actual := without_modifier(types[name])) not in allowed:
            raise _wrong(tables, f"has a column {name} of type {actual}; it must be {' or '.join(allowed)}")
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
