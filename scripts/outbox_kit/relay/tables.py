"""Create the relay's tables and index in the source database, in the schema of the outbox table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import LiteralString
from zlib import crc32

from psycopg import sql

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_kit.pipeline import Pipeline
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection, read_column_types
from outbox_kit.relay.buckets import bucket_of_row

ORDER_COLUMN = "seq"
MARK_COLUMN = "relayed_at"
INTEGER_TYPES = ("smallint", "integer", "bigint")
MAX_NAME = 63

STATE_TABLES = sql.SQL("""
    create table if not exists {schema}.outbox_relay (
      outbox text primary key, source_epoch int not null, prefix text not null,
      system_identifier text not null, timeline int not null, cluster_id text not null);
    create table if not exists {schema}.outbox_relay_batch (
      outbox text, bucket int, number bigint not null, ids uuid[] not null, primary key (outbox, bucket));
    create table if not exists {schema}.outbox_relay_progress (
      outbox text primary key, seq bigint not null, deleted bigint not null, batches bigint not null);
    create sequence if not exists {schema}.outbox_relay_batch_number""")
STATE_NAMES = ("outbox_relay", "outbox_relay_batch", "outbox_relay_progress", "outbox_relay_batch_number")
MISSING: LiteralString = "select 1 from unnest(%s::text[]) as name where to_regclass(name) is null"
# An index whose creation was interrupted remains in the catalog as invalid, and PostgreSQL does not use it.
INDEX: LiteralString = "select indisvalid as is_valid from pg_index where indexrelid = to_regclass(%s)"
# On a large table, creating the index takes minutes and waits for open transactions. Writers are not blocked.
INDEX_SETTINGS: LiteralString = """
    select set_config('statement_timeout', '1h', false), set_config('lock_timeout', '1h', false)"""
# With a sequence cache, each session takes its own range of numbers, so a later insert can get a lower number.
SEQUENCE_CACHE: LiteralString = """
    select seqcache as cache from pg_sequence
    where seqrelid = pg_get_serial_sequence(%s, %s)::regclass"""
LAST_NUMBER: LiteralString = """
    select case when has_sequence_privilege(oid, 'select, usage') then coalesce(pg_sequence_last_value(oid), 0)
                else 0 end as last from (select pg_get_serial_sequence(%s, %s)::regclass as oid) as owned"""


@dataclass(frozen=True)
class RelayTables:
    """Names and expressions of one outbox table, for use in the relay's statements."""

    pipeline: Pipeline
    marks: bool
    """Whether sent rows are marked in MARK_COLUMN. If not, they are deleted."""

    @property
    def outbox_name(self) -> str:
        return self.pipeline.source.table

    @property
    def outbox(self) -> sql.Identifier:
        return ddl.qualified_name(self.outbox_name)

    @property
    def schema(self) -> sql.Identifier:
        return ddl.schema_of(self.outbox_name)

    @cached_property
    def names(self) -> dict[str, sql.Composable]:
        """Placeholders of statements. `bucket` is a row's bucket, and `pending` selects the unsent rows."""
        mark = sql.Identifier(MARK_COLUMN)
        return {
            "outbox": self.outbox,
            "schema": self.schema,
            "id": sql.Identifier(self.pipeline.source.columns.id),
            "bucket": bucket_of_row(self.pipeline),
            "pending": sql.SQL("{} is null").format(mark) if self.marks else sql.SQL("true"),
            "order": sql.Identifier(ORDER_COLUMN),
            "mark": mark,
        }


def last_number(connection: Connection, tables: RelayTables) -> int:
    """Return the last value of the order column's sequence; 0 if the login may not read the sequence."""
    parameters = (ddl.quoted_text(tables.outbox_name), ORDER_COLUMN)
    last: int = connection.execute(LAST_NUMBER, parameters).fetchall()[0]["last"]
    return last


def create_outbox(connection: Connection, tables: RelayTables) -> None:
    """Create the outbox table, which `outbox apply` creates only together with the objects of the connector."""
    with connection.transaction():
        connection.execute(ddl.create_schema(tables.schema))
        connection.execute(ddl.create_table(tables.pipeline))


def create(connection: Connection, tables: RelayTables) -> None:
    """Create the missing tables, columns and indexes of the relay.

    Raises ConfigurationError. Raises RefusedError if rows would be sent again or in an undefined order.

    Existing objects are looked up in the catalog, because a statement with `if not exists` requires the privileges of
    the owner and waits for locks, such as the lock of a VACUUM.
    """
    if not tables.pipeline.source.uses_table:
        problem = "the pipeline has no outbox table, because source.message_prefix is set"
        raise ConfigurationError(problem, "remove source.message_prefix, or send the messages with the connector")
    types = read_column_types(connection, tables.outbox_name)
    if not types:
        raise ConfigurationError(f"table {tables.outbox_name} does not exist", "run `outbox apply`")
    _create_state_tables(connection, tables)
    _require_order(connection, tables, types)
    if not tables.marks and MARK_COLUMN in types:
        _refuse_marked_rows(connection, tables)
    if tables.marks and MARK_COLUMN not in types:
        column = sql.Identifier(MARK_COLUMN)
        connection.execute(sql.SQL("alter table {} add {} timestamptz").format(tables.outbox, column))
    _create_index(connection, tables)


def _create_state_tables(connection: Connection, tables: RelayTables) -> None:
    schema = tables.schema.as_string(None)
    if connection.execute(MISSING, ([f"{schema}.{name}" for name in STATE_NAMES],)).fetchone() is not None:
        connection.execute(STATE_TABLES.format(schema=tables.schema))


def _require_order(connection: Connection, tables: RelayTables, types: dict[str, str]) -> None:
    if ORDER_COLUMN not in types:
        _add_order(connection, tables)
    elif types[ORDER_COLUMN] not in INTEGER_TYPES:
        problem = f"column {ORDER_COLUMN} of table {tables.outbox_name} has type {types[ORDER_COLUMN]}, not bigint"
        raise ConfigurationError(problem, "rename the column; the relay then adds an identity column with this name")
    parameters = (ddl.quoted_text(tables.outbox_name), ORDER_COLUMN)
    found = connection.execute(SEQUENCE_CACHE, parameters).fetchone()
    if found is None or found["cache"] != 1:
        detail = "does not own a sequence" if found is None else f"has a sequence with cache {found['cache']}"
        raise ConfigurationError(
            f"column {ORDER_COLUMN} of table {tables.outbox_name} {detail}, so its values are not in insertion order",
            "make it an identity column without a cache",
        )


def _add_order(connection: Connection, tables: RelayTables) -> None:
    """Add the order column to an empty table. In a table with rows, PostgreSQL would number them in physical order."""
    column = sql.Identifier(ORDER_COLUMN)
    with connection.transaction():
        connection.execute(sql.SQL("lock table {} in access exclusive mode").format(tables.outbox))
        if connection.execute(sql.SQL("select 1 from {} limit 1").format(tables.outbox)).fetchone() is not None:
            raise RefusedError(
                f"table {tables.outbox_name} has rows but not the column {ORDER_COLUMN}, so their order is unknown",
                f"delete the sent rows, or add {ORDER_COLUMN} in the order of the inserts, as bigint identity",
            )
        connection.execute(
            sql.SQL("alter table {} add {} bigint generated always as identity").format(tables.outbox, column)
        )


def _refuse_marked_rows(connection: Connection, tables: RelayTables) -> None:
    """Raise RefusedError if rows are marked, because a relay that deletes rows would send them again as new states."""
    condition = sql.SQL("from {} where {} is not null").format(tables.outbox, sql.Identifier(MARK_COLUMN))
    if connection.execute(sql.SQL("select 1 {} limit 1").format(condition)).fetchone() is not None:
        raise RefusedError(
            f"table {tables.outbox_name} has rows that the relay has sent and marked in {MARK_COLUMN}: a relay "
            "that does not use marks would send them again",
            f"use --after-send mark, or delete these rows (`delete {condition.as_string(connection)}`)",
        )


def _create_index(connection: Connection, tables: RelayTables) -> None:
    """Create the index concurrently, because services insert rows at the same time."""
    suffix = "_relay_mark" if tables.marks else "_relay"
    if tables.pipeline.partition_fields:
        # The index of other partition fields has another expression, and could not be used.
        suffix += f"_{crc32(tables.names['bucket'].as_string(connection).encode()):08x}"
    schema, table = tables.outbox_name.split(".", maxsplit=1)
    name = table[: MAX_NAME - len(suffix)] + suffix
    index = sql.Identifier(schema, name)
    found = connection.execute(INDEX, (index.as_string(None),)).fetchone()
    if found is not None and found["is_valid"]:
        return
    connection.execute(INDEX_SETTINGS)
    if found is not None:
        connection.execute(sql.SQL("drop index concurrently {}").format(index))
    connection.execute(
        sql.SQL("create index concurrently {name} on {outbox} ({bucket}, {order}) where {pending}").format(
            name=sql.Identifier(name), **tables.names
        )
    )
    connection.execute("reset statement_timeout")
    connection.execute("reset lock_timeout")
