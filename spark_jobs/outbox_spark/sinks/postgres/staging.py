"""Staging: an unlogged table per batch, which the executors fill by COPY.

Spark builds the lines of COPY's text format, and CopyRows of outbox-spark.jar sends them. Executors run no Python.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from psycopg.sql import SQL, Composed, Identifier, Literal
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, OUTCOME_COLUMNS, Column, ColumnType
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.errors import OutboxKitError
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.session.expressions import cached_expressions
from outbox_spark.session.stage_metrics import OBSERVATION
from outbox_spark.sinks.postgres.connection import LOCK_TIMEOUT, Connection, jdbc_settings, jdbc_url
from outbox_spark.sinks.postgres.statements import METADATA_TYPES, column_definitions, column_type

STAGING_INFIX = "__staging_"
_TOKEN_BYTES = 4
STAGING_SUFFIX_LENGTH = len(STAGING_INFIX) + 2 * _TOKEN_BYTES
_COPY_FAILED = "COPY failed, SQLSTATE "
"""The same text as CopyRows.FAILED."""
_SQLSTATE_LENGTH = 5
_CONNECTION_EXCEPTION = "08"
_COUNTS = SQL(
    "count(*) filter (where _reason is null and not _deleted), "
    "count(*) filter (where _reason is null and _deleted), count(*) filter (where _reason is not null)"
)
"""Aggregates for the fields of StagedCounts, in their order."""
_OUTCOME_TYPES = {"_deleted": "boolean", "_reason": "text", "_schema_id": "bigint", "_key": "bytea", "_value": "bytea"}
# Types whose values are sent as text, because Java types do not represent years before 1582 and time zones exactly.
_CAST_TO_TEXT = frozenset(
    {ColumnType.UUID, ColumnType.JSON, ColumnType.DATE, ColumnType.TIME, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ}
)
# Types whose text can have a character that COPY's text format escapes.
_ESCAPED = frozenset({ColumnType.TEXT, ColumnType.JSON})


@dataclass(frozen=True)
class StagingTable:
    """A staging table that was filled."""

    name: Identifier
    loaded: Mapping[int, int]
    """Number of rows by transaction id, one transaction for each task attempt that Spark accepted."""


@dataclass(frozen=True)
class StagedCounts:
    """Number of staged records, each counted once."""

    rows: int
    """Decoded records with a value."""
    tombstones: int
    quarantined: int


def new_name(schema: str, table: str) -> Identifier:
    return Identifier(schema, f"{table}{STAGING_INFIX}{secrets.token_hex(_TOKEN_BYTES)}")


def create_staging(name: Identifier, columns: Sequence[Column]) -> Composed:
    fields = {column.name: column_type(column) for column in columns}
    metadata = {name: kind.removesuffix(" not null") for name, kind in METADATA_TYPES.items()}
    types: Mapping[str, str] = {KEY_COLUMN: 'text collate "C"', **fields, **metadata, **_OUTCOME_TYPES}
    return SQL("create unlogged table {} ({})").format(name, column_definitions(types))


def copy_rows(
    rows: DataFrame, columns: Sequence[Column], target: PostgresTarget, name: str
) -> tuple[Mapping[int, int], Mapping[str, Any]]:
    """Copy decoded rows into the staging table `name` (SQL text).

    Returns the number of rows by transaction id, and the metrics observed under OBSERVATION by name. Raises
    OutboxKitError when the server rejected the rows.
    """
    lines = rows.select(*_text_columns(tuple(columns))).select(copy_line(tuple(columns)))
    jvm: Any = rows.sparkSession.sparkContext._jvm
    try:
        copied = jvm.io.outboxkit.spark.CopyRows.into(name, lines._jdf, jdbc_url(target), jdbc_settings(target))
        observed = copied.observed().get(OBSERVATION)
        metrics = {} if observed is None else {key: observed.getAs(key) for key in observed.schema().fieldNames()}
        return {transaction: count for transaction, count in copied.attempts()}, metrics
    except (Py4JJavaError, PySparkException) as error:
        _, separator, text_after = str(error).partition(_COPY_FAILED)
        if not separator:
            raise
        state = text_after[:_SQLSTATE_LENGTH]
        no_connection = state.startswith(_CONNECTION_EXCEPTION)
        reason = "an executor has no connection" if no_connection else f"COPY failed, SQLSTATE {state}"
        message = f"PostgreSQL at {target.host}:{target.port}/{target.database}: {reason}"
        raise OutboxKitError(message, "nothing was changed; see the server's log") from error


@cached_expressions
def _text_columns(columns: tuple[Column, ...]) -> list[Expression]:
    values = [copied_value(column).alias(column.name) for column in columns]
    return [F.col(KEY_COLUMN), *values, *map(F.col, [*METADATA_COLUMNS, *OUTCOME_COLUMNS])]


def copied_value(column: Column) -> Expression:
    """Return a decoded column in the type that COPY's line is built from."""
    value = F.col(f"`{column.name}`")
    if column.kind not in _CAST_TO_TEXT:
        return value
    if column.kind is ColumnType.JSON:
        return F.to_json(value, JSON_OPTIONS)
    if column.kind is ColumnType.TIMESTAMPTZ:
        # The session's time zone is UTC, so the text is in UTC; the server needs the offset.
        return F.concat(value.cast("string"), F.lit("+00"))
    return value.cast("string")


@cached_expressions
def copy_line(columns: tuple[Column, ...]) -> Expression:
    """Return a staging row as one line of COPY's text format, in bytes."""
    text = [KEY_COLUMN, "_sequence", *(column.name for column in columns if column.kind in _ESCAPED)]
    binary = ["_key", "_value", *(column.name for column in columns if column.kind is ColumnType.BYTES)]
    names = [KEY_COLUMN, *(column.name for column in columns), *METADATA_COLUMNS, *OUTCOME_COLUMNS]
    fields = []
    for name in names:
        value = F.col(f"`{name}`")
        if name in binary:
            value = F.concat(F.lit("\\\\x"), F.hex(value))
        elif name == "_timestamp":
            value = F.concat(value.cast("string"), F.lit("+00"))
        elif name in text:
            value = _escaped(value)
        fields.append(F.coalesce(value.cast("string"), F.lit("\\N")))
    return F.concat(F.concat_ws("\t", *fields), F.lit("\n")).cast("binary")


def _escaped(value: Expression) -> Expression:
    # Most values need no escapes, and contains() costs far less than replace().
    special = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
    escaped = value
    for raw, sequence in special:
        escaped = F.replace(escaped, F.lit(raw), F.lit(sequence))
    return F.when(reduce(or_, [F.contains(value, F.lit(raw)) for raw, _ in special]), escaped).otherwise(value)


def count_staged(connection: Connection, staging: StagingTable) -> StagedCounts:
    """Delete the rows of task attempts that Spark did not accept, and count the other rows.

    Called in the transaction of the merge. Each attempt copies in its own transaction, which xmin identifies. A
    crash of the server empties unlogged tables, so the caller compares the counts with the rows that were sent.
    """
    # The lock waits for task attempts that Spark has abandoned, which may still be writing.
    connection.execute(SQL("lock table {} in exclusive mode").format(staging.name))
    count = SQL("select xmin::text::bigint, {} from {} group by 1").format(_COUNTS, staging.name)
    counts = {row[0]: row[1:] for row in connection.execute(count).fetchall()}
    if set(counts) - set(staging.loaded):
        delete = SQL("delete from {} where xmin::text::bigint <> all(%s)").format(staging.name)
        connection.execute(delete, (list(staging.loaded),))
    loaded = [values for transaction, values in counts.items() if transaction in staging.loaded]
    return StagedCounts(*(sum(values[index] for values in loaded) for index in range(3)))


def analyze(connection: Connection, name: Identifier) -> None:
    """Update the planner's statistics: without them it expects only a few staged rows."""
    connection.execute(SQL("analyze {} ({}, _deleted, _reason)").format(name, Identifier(KEY_COLUMN)))


def drop_staging(connection: Connection, names: Sequence[Identifier]) -> None:
    """Drop staging tables. Raises psycopg.errors.LockNotAvailable while a task writes to one."""
    with connection.transaction():
        connection.execute(SQL("set local lock_timeout = {}").format(Literal(LOCK_TIMEOUT)))
        for name in names:
            connection.execute(SQL("drop table if exists {}").format(name))


def abandoned_staging(connection: Connection, schema: str, table: str) -> list[Identifier]:
    """Return the staging tables that earlier runs left; tables of users, such as `book__staging_prev`, do not match."""
    prefix = table + STAGING_INFIX
    rows = connection.execute(
        "select relname from pg_class where relnamespace = to_regnamespace(%s) and relkind = 'r' "
        "and relpersistence = 'u' and starts_with(relname, %s) and right(relname, %s) ~ %s",
        (Identifier(schema).as_string(connection), prefix, -len(prefix), f"^[0-9a-f]{{{2 * _TOKEN_BYTES}}}$"),
    ).fetchall()
    return [Identifier(schema, name) for (name,) in rows]
