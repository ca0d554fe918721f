"""Staging: an unlogged table of its own for every batch, and the two ways in which Spark fills it.

COPY is the faster, and needs a class of our jar; JDBC needs nothing but the driver. A task that is tried again may
stage its rows a second time: `settle` leaves every row once, so that the merge need not look for copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS, OUTCOME_COLUMNS, Column, Kind
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.session.expression_cache import reused
from outbox_spark.session.jar_fallback import AUTO, Choice
from outbox_spark.sinks.postgres.copy import CLASS, copy_rows
from outbox_spark.sinks.postgres.session import jdbc_settings, jdbc_url
from outbox_spark.sinks.postgres.statements import METADATA_TYPES, column_type, typed

STAGING_INFIX = "__staging_"
STAGING_TOKEN_BYTES = 4
SETTING = "spark.outbox.postgres.staging"
VARIABLE = "OUTBOX_POSTGRES_STAGING"
_BATCH_ROWS = 10_000
_COUNTS = SQL(
    "count(*) filter (where _reason is null and not _deleted), "
    "count(*) filter (where _reason is null and _deleted), count(*) filter (where _reason is not null)"
)
"""What a Staged counts."""
_OUTCOME_TYPES = {
    "_deleted": "boolean",
    "_reason": "text",
    "_schema_id": "bigint",
    "_key": "bytea",
    "_value": "bytea",
}
# What is sent as text, because the server reads it more exactly than Java types carry it (years before 1582,
# zones) or because JDBC has no such type.
_SENT_AS_TEXT = frozenset({Kind.UUID, Kind.JSON, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})


class Way(StrEnum):
    """How rows get into the staging table."""

    AUTO = AUTO
    COPY = "copy"
    JDBC = "jdbc"


@dataclass(frozen=True)
class Staging:
    """The staging table of one batch."""

    name: Identifier
    way: Way

    def create(self, columns: Sequence[Column]) -> Composed:
        """COPY lets the server read the text of a value as its type at once; after JDBC the merge casts it."""
        text = _SENT_AS_TEXT if self.way is Way.JDBC else ()
        fields = {c.name: "text" if c.kind in text else column_type(c) for c in columns}
        rest = {name: kind.removesuffix(" not null") for name, kind in METADATA_TYPES.items()}
        types: Mapping[str, str] = {KEY_COLUMN: 'text collate "C"', **fields, **rest, **_OUTCOME_TYPES}
        return SQL("create unlogged table {} ({})").format(self.name, typed(types))

    def value(self, column: Column) -> Composed:
        """A staged column of alias `s` as the target takes it."""
        value = SQL("s.{}").format(Identifier(column.name))
        if self.way is Way.JDBC and column.kind in _SENT_AS_TEXT:
            return SQL("{}::{}").format(value, SQL(column_type(column)))
        return value


@dataclass(frozen=True)
class Staged:
    """What is in the staging table, each record once."""

    staging: Staging
    rows: int
    """Records with a value that could be read."""
    tombstones: int
    quarantined: int

    @property
    def name(self) -> Identifier:
        return self.staging.name


Loaded = Mapping[int, int]
"""What COPY reports: rows by the transaction that staged them. Empty after JDBC, which reports nothing."""


@dataclass(frozen=True)
class Place:
    """Where rows were sent."""

    staging: Staging
    loaded: Loaded


def chosen_way(spark: SparkSession) -> Way:
    """COPY where executors can, unless a setting of Spark or a variable says otherwise.

    Raises ConfigurationError when it says `copy` and that cannot be, or says what is none of the three.
    """
    return Choice(SETTING, VARIABLE, Way.COPY, Way.JDBC, CLASS).made(spark)


def stage(
    rows: DataFrame, columns: Sequence[Column], staging: Staging, target: PostgresTarget, name: str
) -> tuple[Loaded, Mapping[str, Any]]:
    """Fill the staging table, whose full name as SQL text is `name`. Returns what COPY reports."""
    sent = rows.select(*_sent(tuple(columns)))
    if staging.way is Way.COPY:
        return copy_rows(sent, columns, target, name)
    _write_jdbc(sent, target, name)
    return {}, {}


@reused
def _sent(columns: tuple[Column, ...]) -> list[Expression]:
    values = [as_sent(column).alias(column.name) for column in columns]
    return [F.col(KEY_COLUMN), *values, *map(F.col, [*METADATA_COLUMNS, *OUTCOME_COLUMNS])]


def _write_jdbc(rows: DataFrame, target: PostgresTarget, name: str) -> None:
    rows.write.format("jdbc").mode("append").options(
        **jdbc_settings(target),
        url=jdbc_url(target),
        driver="org.postgresql.Driver",
        dbtable=name,
        reWriteBatchedInserts="true",
        batchsize=_BATCH_ROWS,
    ).save()


def as_sent(column: Column) -> Expression:
    """A decoded column as it is sent to the server."""
    value = F.col(f"`{column.name}`")
    if column.kind not in _SENT_AS_TEXT:
        return value
    if column.kind is Kind.JSON:
        return F.to_json(value, JSON_OPTIONS)
    if column.kind is Kind.TIMESTAMPTZ:
        # The session's zone is UTC, so the text is in UTC; the offset says so to the server.
        return F.concat(value.cast("string"), F.lit("+00"))
    return value.cast("string")


def settle(connection: psycopg.Connection[TupleRow], staging: Staging, loaded: Loaded) -> Staged:
    """Count what is staged, and remove what a task staged twice. Inside the transaction of the merge.

    A server that crashes empties unlogged tables: the caller compares the count with what was sent.
    """
    # A task that Spark gave up may still be writing.
    connection.execute(SQL("lock table {} in exclusive mode").format(staging.name))
    counts = _of_reported if staging.way is Way.COPY else _of_each_once
    rows, tombstones, quarantined = counts(connection, staging.name, loaded)
    return Staged(staging, rows, tombstones, quarantined)


def analyze(connection: psycopg.Connection[TupleRow], staging: Staging) -> None:
    """The planner takes staging for a handful of rows, and 10,000 rows for the whole table, unless told."""
    connection.execute(SQL("analyze {} ({}, _deleted, _reason)").format(staging.name, Identifier(KEY_COLUMN)))


def _of_reported(connection: psycopg.Connection[TupleRow], name: Identifier, loaded: Loaded) -> tuple[int, int, int]:
    """Rows are of one transaction of one try of one task, which xmin names: Spark says which tries count."""
    count = SQL("select xmin::text::bigint, {} from {} group by 1").format(_COUNTS, name)
    found = {row[0]: row[1:] for row in connection.execute(count).fetchall()}
    if set(found) - set(loaded):
        delete = SQL("delete from {} where xmin::text::bigint <> all(%s)").format(name)
        connection.execute(delete, (list(loaded),))
    reported = [counts for transaction, counts in found.items() if transaction in loaded]
    return sum(each[0] for each in reported), sum(each[1] for each in reported), sum(each[2] for each in reported)


def _of_each_once(connection: psycopg.Connection[TupleRow], name: Identifier, _: Loaded) -> tuple[int, int, int]:
    _remove_copies(connection, name)
    return connection.execute(SQL("select {} from {}").format(_COUNTS, name)).fetchone() or (0, 0, 0)


def _remove_copies(connection: psycopg.Connection[TupleRow], name: Identifier) -> None:
    """JDBC does not say which tries count; two of them staged the same records."""
    # One number per record: counting pairs takes four times as long.
    record = SQL("(_partition::bigint << 48) + _offset")
    count = SQL("select count(*), count(distinct {}) from {}").format(record, name)
    every, distinct = connection.execute(count).fetchone() or (0, 0)
    if every != distinct:
        copies = SQL("select ctid as place, row_number() over (partition by {}) as copy from {}").format(record, name)
        delete = SQL("delete from {} s using ({}) c where s.ctid = c.place and c.copy > 1").format(name, copies)
        connection.execute(delete)
