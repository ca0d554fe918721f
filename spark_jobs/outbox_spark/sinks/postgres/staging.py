"""Manage staging tables. Each batch has an unlogged table, which the executors fill by COPY.

Spark builds lines in COPY's text format, and CopyRows of outbox-spark.jar sends them. Executors do not run Python.
"""

from __future__ import annotations

import json
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

from outbox_events.errors import OutboxError
from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, OUTCOME_COLUMNS, Column, ColumnType
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.session.expressions import cached_expressions
from outbox_spark.session.persisted import DecodedCounts
from outbox_spark.session.stage_metrics import OBSERVATION
from outbox_spark.sinks.postgres.connection import LOCK_TIMEOUT, Connection, jdbc_settings, jdbc_url
from outbox_spark.sinks.postgres.statements import METADATA_TYPES, column_definitions, column_type

STAGING_INFIX = "__staging_"
_TOKEN_BYTES = 4
STAGING_SUFFIX_LENGTH = len(STAGING_INFIX) + 2 * _TOKEN_BYTES
_COPY_FAILED = "COPY failed, SQLSTATE "
"""This text must be equal to CopyRows.FAILED in outbox-spark.jar."""
_SQLSTATE_LENGTH = 5
_CONNECTION_EXCEPTION = "08"
_COUNT_AGGREGATES = SQL(
    "count(*), count(__outbox_reason), count(*) filter (where __outbox_reason is null and __outbox_deleted)"
)
"""Aggregates for the fields of DecodedCounts, in the order of the fields."""
_OUTCOME_TYPES = {
    "__outbox_deleted": "boolean",
    "__outbox_reason": "text",
    "__outbox_schema_id": "bigint",
    "__outbox_key": "bytea",
    "__outbox_value": "bytea",
    "__outbox_schema_header": "bytea",
}
# Types that copied_value() converts to text for PostgreSQL to parse, without an intermediate Java value.
_CAST_TO_TEXT = frozenset(
    {ColumnType.UUID, ColumnType.JSON, ColumnType.DATE, ColumnType.TIME, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ}
)
# Types whose text can contain characters that must be escaped in COPY's text format.
_ESCAPED = frozenset({ColumnType.TEXT, ColumnType.JSON})


@dataclass(frozen=True)
class StagingTable:
    """A filled staging table."""

    name: Identifier
    row_counts: Mapping[int, int]
    """Maps transaction ids to numbers of copied rows. Each task attempt that Spark accepted has its own transaction."""


def new_staging_name(schema: str, table: str) -> Identifier:
    return Identifier(schema, f"{table}{STAGING_INFIX}{secrets.token_hex(_TOKEN_BYTES)}")


def create_staging(name: Identifier, columns: Sequence[Column]) -> Composed:
    fields = {column.name: column_type(column) for column in columns}
    metadata = {name: sql_type.removesuffix(" not null") for name, sql_type in METADATA_TYPES.items()}
    types: Mapping[str, str] = {KEY_COLUMN: 'text collate "C"', **fields, **metadata, **_OUTCOME_TYPES}
    return SQL("create unlogged table {} ({})").format(name, column_definitions(types))


def copy_plan(rows: DataFrame, columns: Sequence[Column], target: PostgresTarget) -> Any:  # noqa: ANN401 - CopyRows
    """Return the plan that copies decoded rows to the target. It can be executed repeatedly (copy_rows)."""
    lines = rows.select(*_copied_columns(tuple(columns))).select(copy_line(tuple(columns)))
    jvm: Any = rows.sparkSession.sparkContext._jvm
    return jvm.io.outboxkit.spark.CopyRows(lines._jdf, jdbc_url(target), jdbc_settings(target))


def copy_rows(plan: Any, target: PostgresTarget, name: str) -> tuple[Mapping[int, int], Mapping[str, Any]]:  # noqa: ANN401 - as above
    """Execute a plan that copies rows into the staging table `name`, which is already quoted for SQL.

    Returns the number of rows per transaction id, and the metrics of the observation OBSERVATION by name. Raises
    OutboxError if COPY or an executor's connection fails.
    """
    try:
        copied = plan.into(name)
        observed = copied.observed().get(OBSERVATION)
        metrics = {} if observed is None else json.loads(observed.json())  # one call of the JVM for all metrics
        # As text, because Py4J would call the JVM for each number, and would end each list with a Java exception.
        return dict(json.loads(copied.attempts().toString())), metrics
    except (Py4JJavaError, PySparkException) as error:
        _, separator, text_after = str(error).partition(_COPY_FAILED)
        if not separator:
            raise
        sqlstate = text_after[:_SQLSTATE_LENGTH]
        is_connection_error = sqlstate.startswith(_CONNECTION_EXCEPTION)
        reason = "an executor has no connection" if is_connection_error else f"COPY failed, SQLSTATE {sqlstate}"
        message = f"PostgreSQL at {target.host}:{target.port}/{target.database}: {reason}"
        raise OutboxError(message, "check the logs of the server and executors, then run the command again") from error


@cached_expressions
def _copied_columns(columns: tuple[Column, ...]) -> list[Expression]:
    values = [copied_value(column).alias(column.name) for column in columns]
    return [F.col(KEY_COLUMN), *values, *map(F.col, [*METADATA_COLUMNS, *OUTCOME_COLUMNS])]


def copied_value(column: Column) -> Expression:
    """Return the value of a decoded column, as text if its type is in _CAST_TO_TEXT."""
    value = F.col(f"`{column.name}`")
    if column.kind not in _CAST_TO_TEXT:
        return value
    if column.kind is ColumnType.JSON:
        return F.to_json(value, JSON_OPTIONS)
    if column.kind is ColumnType.TIMESTAMPTZ:
        # The time zone of Spark's session is UTC, but the text has no UTC offset, which the server requires.
        return F.concat(value.cast("string"), F.lit("+00"))
    return value.cast("string")


@cached_expressions
def copy_line(columns: tuple[Column, ...]) -> Expression:
    """Return the line of a staging row in COPY's text format, as bytes."""
    escaped_names = [KEY_COLUMN, "_sequence", *(column.name for column in columns if column.kind in _ESCAPED)]
    binary_names = [
        "__outbox_key",
        "__outbox_value",
        "__outbox_schema_header",
        *(column.name for column in columns if column.kind is ColumnType.BYTES),
    ]
    names = [KEY_COLUMN, *(column.name for column in columns), *METADATA_COLUMNS, *OUTCOME_COLUMNS]
    fields = []
    for name in names:
        value = F.col(f"`{name}`")
        if name in binary_names:
            value = F.concat(F.lit("\\\\x"), F.hex(value))
        elif name == "_timestamp":
            value = F.concat(value.cast("string"), F.lit("+00"))
        elif name in escaped_names:
            value = _escaped(value)
        fields.append(F.coalesce(value.cast("string"), F.lit("\\N")))
    return F.concat(F.concat_ws("\t", *fields), F.lit("\n")).cast("binary")


def _escaped(value: Expression) -> Expression:
    # Most values have no special characters, and contains() is much faster than replace().
    escape_sequences = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
    escaped = value
    for raw, escape_sequence in escape_sequences:
        escaped = F.replace(escaped, F.lit(raw), F.lit(escape_sequence))
    return F.when(reduce(or_, [F.contains(value, F.lit(raw)) for raw, _ in escape_sequences]), escaped).otherwise(value)


def count_staged(connection: Connection, staging: StagingTable) -> DecodedCounts:
    """Delete the rows of task attempts that Spark did not accept, and count the other rows.

    Call this in the transaction of the merge. Each attempt copies in a separate transaction, which xmin identifies. A
    crash of the server empties unlogged tables, so the caller must compare the counts with the counts of the batch.
    """
    # Task attempts that Spark has abandoned may still be writing. LOCK TABLE waits until they end.
    connection.execute(SQL("lock table {} in exclusive mode").format(staging.name))
    query = SQL("select xmin::text::bigint, {} from {} group by 1").format(_COUNT_AGGREGATES, staging.name)
    counts_by_transaction = {transaction: values for transaction, *values in connection.execute(query).fetchall()}
    if set(counts_by_transaction) - set(staging.row_counts):
        statement = SQL("delete from {} where xmin::text::bigint <> all(%s)").format(staging.name)
        connection.execute(statement, (list(staging.row_counts),))
    accepted_counts = [values for key, values in counts_by_transaction.items() if key in staging.row_counts]
    return DecodedCounts(*(sum(values[index] for values in accepted_counts) for index in range(3)))


def analyze(connection: Connection, name: Identifier) -> None:
    """Update the statistics of a staging table. Without statistics, the planner would expect only a few rows."""
    connection.execute(SQL("analyze {} ({}, __outbox_deleted, __outbox_reason)").format(name, Identifier(KEY_COLUMN)))


def drop_staging(connection: Connection, names: Sequence[Identifier]) -> None:
    """Drop staging tables. Raises psycopg.errors.LockNotAvailable if a task keeps its lock beyond LOCK_TIMEOUT."""
    with connection.transaction():
        connection.execute(SQL("set local lock_timeout = {}").format(Literal(LOCK_TIMEOUT)))
        for name in names:
            connection.execute(SQL("drop table if exists {}").format(name))


def abandoned_staging(connection: Connection, schema: str, table: str) -> list[Identifier]:
    """Return the staging tables of earlier runs, but not tables of users, such as `book__staging_prev`."""
    prefix = table + STAGING_INFIX
    rows = connection.execute(
        "select relname from pg_class where relnamespace = to_regnamespace(%s) and relkind = 'r' "
        "and relpersistence = 'u' and starts_with(relname, %s) and right(relname, %s) ~ %s",
        (Identifier(schema).as_string(connection), prefix, -len(prefix), f"^[0-9a-f]{{{2 * _TOKEN_BYTES}}}$"),
    ).fetchall()
    return [Identifier(schema, name) for (name,) in rows]
