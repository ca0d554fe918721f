"""PostgreSQL: Spark stages the rows, the driver merges them and the offsets in one transaction.

Staging is an unlogged table of its own for every run, filled by Spark's JDBC writer: executors need no
compiled Python package. Until the one transaction at the end commits, the target is as it was; a staging
table that a crashed run left is dropped by the next.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composed, Identifier
from psycopg.types.json import Jsonb
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from outbox_spark.columns import KEY_COLUMN, METADATA_COLUMNS, OUTCOME_COLUMNS, Column, Kind
from outbox_spark.decode import defaults
from outbox_spark.errors import (
    ConfigurationError,
    MaterializeError,
    OverlapError,
    RefusedError,
    SchemaError,
    UnreachableError,
)
from outbox_spark.model import Committed, PostgresTarget, Written
from outbox_spark.sinks import postgres_upkeep
from outbox_spark.sinks.base import Batch
from outbox_spark.sinks.postgres_sql import (
    OFFSETS_TABLE,
    STAGING_INFIX,
    Statements,
    column_type,
    sent_as_text,
)
from outbox_spark.unexpected import postgres_words

APPLICATION_NAME = "outbox-materialize"
CONNECT_SECONDS = 10
LOCK_WAIT = "60s"
MAX_NAME_LENGTH = 63  # longer identifiers are cut by the server without an error
_STAGING_TOKEN_BYTES = 4
_BATCH_ROWS = 10_000

# Exact text forms: to_json cuts timestamps to milliseconds and leaves out nulls unless told otherwise.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# \u0000 in JSON text, unless the backslash is itself escaped; jsonb refuses it as text refuses the character.
_NUL_IN_JSON = r"(?<!\\)(?:\\\\)*\\u0000"


class PostgresTable:
    """One table of a PostgreSQL schema; locked from `with` to its end."""

    def __init__(self, target: PostgresTarget, table: str) -> None:
        longest = len(table) + len(STAGING_INFIX) + 2 * _STAGING_TOKEN_BYTES
        if longest > MAX_NAME_LENGTH:
            allowed = MAX_NAME_LENGTH - longest + len(table)
            raise ConfigurationError(f"table name {table} is {len(table)} characters long", f"at most {allowed} fit")
        self._target = target
        self._table = table
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._seen_run: int | None = None

    def __enter__(self) -> Self:
        target = self._target
        try:
            # Autocommit: no transaction stays open, and holds back vacuum, while Spark works.
            self._connection = psycopg.connect(
                host=target.host,
                port=target.port,
                dbname=target.database,
                user=target.user,
                password=target.password,
                connect_timeout=CONNECT_SECONDS,
                application_name=APPLICATION_NAME,
                autocommit=True,
            )
        except psycopg.Error as error:
            message = f"PostgreSQL at {target.host}:{target.port}/{target.database}: {postgres_words(error)}"
            raise UnreachableError(message, "check the target in the environment file") from error
        try:
            self._lock()
            self._drop_stale_staging()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            # The server ends the session some time after the close: without this a next run at once is refused.
            with suppress(psycopg.Error):
                self._one(SQL("select pg_advisory_unlock(hashtextextended(%s, 0))"), self._lock_key)
            self._connection.close()

    def committed(self) -> Committed | None:
        """How far the table is. A table that was dropped is rebuilt from the beginning of the topic."""
        exists = self._exists(self._table)
        progress = None
        if self._exists(OFFSETS_TABLE):
            row = self._one(
                SQL("select run, progress from {} where table_name = %s").format(self._sql().offsets),
                self._table,
            )
            if row is not None:
                self._seen_run, progress = row
        if not exists:
            return None
        if progress is None:
            message = f"table {self._name} exists, but {OFFSETS_TABLE} has no row for it: the job did not make it"
            raise RefusedError(message, "materialize into another table, or drop this one")
        return Committed.from_json(progress, f"the progress of {self._name}")

    def check(self, columns: Sequence[Column], schema: StructType) -> None:  # noqa: ARG002 - nested types are jsonb
        """Raise SchemaError when a column of the table has another type than the schema now asks for."""
        too_long = [column.name for column in columns if len(column.name.encode()) > MAX_NAME_LENGTH]
        if too_long:
            raise SchemaError(f"field {too_long[0]} is longer than {MAX_NAME_LENGTH} bytes", "shorten its name")
        live = self._live_columns()
        for column in columns:
            found, wanted = live.get(column.name), column_type(column)
            if found is not None and found != wanted:
                message = f"column {self._name}.{column.name} is {found}; the newest schema makes it {wanted}"
                raise SchemaError(
                    message, "undo the change of type, or drop the table so that the next run rebuilds it"
                )

    def limit(self, column: Column, value: Expression) -> Expression | None:
        """The NUL character, and dates outside the years 1 to 9999, which have no common text form."""
        if column.kind is Kind.TEXT:
            return F.contains(value, F.lit("\x00"))
        if column.kind is Kind.JSON:
            return F.rlike(F.to_json(value, _JSON), F.lit(_NUL_IN_JSON))
        if column.kind in {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}:
            return ~F.year(value).between(1, 9999)
        return None

    def write(self, batch: Batch) -> Written:
        """Stage, then merge in one transaction. Between the two a crash changes nothing."""
        live = self._live_columns()
        known = {column.name for column in batch.columns} | {KEY_COLUMN, *METADATA_COLUMNS}
        statements = self._sql(batch.columns, [name for name in live if name not in known])
        added = self._new_columns(batch, live)
        staging = Identifier(
            self._target.schema, f"{self._table}{STAGING_INFIX}{secrets.token_hex(_STAGING_TOKEN_BYTES)}"
        )
        with self._explained():
            self._ensure_schema()
            self._execute(statements.create_staging(staging))
        self._stage(batch, staging)
        with self._explained(), self._open.transaction():
            self._execute(SQL("select set_config('lock_timeout', {}, true)").format(LOCK_WAIT))
            self._check_complete(statements, staging, batch)
            self._prepare(statements, batch, added)
            written = self._merge(statements, staging, batch)
            self._execute(SQL("drop table {}").format(staging))
        self._seen_run = batch.committed.run
        return written

    def versions(self) -> DataFrame:
        """Key and METADATA_COLUMNS of the rows that are there."""
        return postgres_upkeep.versions(self)

    def forget_deletions(self, before: datetime) -> int:
        """Remove older ledger entries; returns how many."""
        return postgres_upkeep.forget_deletions(self, before)

    def replace_by(self, shadow: Self) -> None:
        """Make the content of `shadow` this table's, in one step for readers."""
        postgres_upkeep.replace_by(self, shadow)

    def drop(self) -> None:
        """Remove the table and its ledger; the quarantine stays."""
        postgres_upkeep.drop(self)

    def maintain(self) -> str:
        """Compact files, expire what is no longer needed."""
        return postgres_upkeep.maintain(self)

    def _prepare(self, statements: Statements, batch: Batch, added: dict[Column, object]) -> None:
        """Tables and columns, as part of the transaction, and the check that nobody else went on meanwhile."""
        if not self._exists(OFFSETS_TABLE):
            self._execute(statements.create_offsets())
        row = self._one(
            SQL("select run from {} where table_name = %s for update").format(statements.offsets), self._table
        )
        if (row[0] if row else None) != self._seen_run:
            message = f"another run has committed to {self._name} meanwhile"
            raise OverlapError(message, "run again; schedule one run per table at a time")
        if batch.previous is None:
            self._execute(statements.create_target())
            for statement in statements.create_companions():
                self._execute(statement)
            # A rebuild reads the whole topic, tombstones included; of a recreated topic old ones say nothing.
            self._execute(SQL("delete from {}").format(statements.tombstones))
        for column, default in added.items():
            for statement in statements.add_column(column, default):
                self._execute(statement)

    def _check_complete(self, statements: Statements, staging: Identifier, batch: Batch) -> None:
        """A server that crashes empties unlogged tables; committing the offsets of lost rows would skip them."""
        staged = self._one(statements.count_staged(staging))
        if staged is None or staged[0] != batch.keys:
            found = 0 if staged is None else staged[0]
            message = f"staging of {self._name} holds {found} of {batch.keys} rows: the server lost or never got them"
            raise RefusedError(message, "nothing was changed; run again")

    def _merge(self, statements: Statements, staging: Identifier, batch: Batch) -> Written:
        tombstones = self._execute(statements.merge_tombstones(staging))
        deletes = self._execute(statements.delete_rows(staging))
        upserts = self._execute(statements.merge_rows(staging))
        self._execute(statements.forget_revived(staging))
        quarantined = self._execute(statements.merge_quarantine(staging, batch.committed.topic_id))
        upsert = SQL(
            "insert into {} (table_name, run, progress) values (%s, %s, %s) on conflict (table_name) "
            "do update set run = excluded.run, progress = excluded.progress, committed_at = now()"
        ).format(statements.offsets)
        progress = batch.committed
        self._open.execute(upsert, (self._table, progress.run, Jsonb(progress.to_json())))
        return Written(upserts, deletes, tombstones, quarantined)

    def _stage(self, batch: Batch, staging: Identifier) -> None:
        target = self._target
        rows = batch.rows.select(
            KEY_COLUMN,
            *[_staged(column).alias(column.name) for column in batch.columns],
            *METADATA_COLUMNS,
            *OUTCOME_COLUMNS,
        )
        url = f"jdbc:postgresql://{target.host}:{target.port}/{target.database}"
        rows.write.format("jdbc").mode("append").options(
            # Without the detail, because the driver's own message prints the rows of a failed batch.
            url=f"{url}?reWriteBatchedInserts=true&logServerErrorDetail=false&ApplicationName={APPLICATION_NAME}",
            driver="org.postgresql.Driver",
            dbtable=staging.as_string(self._open),
            user=target.user,
            password=target.password,
            batchsize=_BATCH_ROWS,
        ).save()

    def _new_columns(self, batch: Batch, live: dict[str, str]) -> dict[Column, object]:
        """Columns that the table lacks, with the value that rows from before them show."""
        if not live:
            return {}
        new = [column for column in batch.columns if column.name not in live]
        filled = [column for column in new if column.has_default]
        values: dict[str, Any] = {}
        if filled:
            frame = defaults(batch.rows.sparkSession, filled, batch.reader)
            row = frame.select(*[_staged(column).alias(column.name) for column in filled]).collect()[0]
            values = {name: bytes(v) if isinstance(v, bytearray) else v for name, v in row.asDict().items()}
        return {column: values.get(column.name) for column in new}

    def _lock(self) -> None:
        """One run per table: a session lock, which the server lets go of when this connection ends."""
        row = self._one(SQL("select pg_try_advisory_lock(hashtextextended(%s, 0))"), self._lock_key)
        if row is None or not row[0]:
            message = f"another run holds table {self._name}"
            hint = f"wait for it; the server shows it in pg_stat_activity as {APPLICATION_NAME}"
            raise OverlapError(message, hint)

    def _drop_stale_staging(self) -> None:
        """Of this table's crashed runs: their exact form, so that nobody's `book__staging_prev` is taken for one."""
        prefix = self._table + STAGING_INFIX
        rows = self._open.execute(
            "select relname from pg_class where relnamespace = to_regnamespace(%s) and relkind = 'r' "
            "and relpersistence = 'u' and starts_with(relname, %s) and right(relname, %s) ~ %s",
            (_quoted(self._target.schema), prefix, -len(prefix), f"^[0-9a-f]{{{2 * _STAGING_TOKEN_BYTES}}}$"),
        ).fetchall()
        for (name,) in rows:
            self._execute(SQL("drop table if exists {}").format(Identifier(self._target.schema, name)))

    def _ensure_schema(self) -> None:
        # "if not exists" alone asks for the privilege to create even when there is nothing to create.
        schema = self._target.schema
        row = self._one(SQL("select to_regnamespace(%s) is not null"), _quoted(schema))
        if row is not None and not row[0]:
            self._execute(SQL("create schema if not exists {}").format(Identifier(schema)))

    def _live_columns(self) -> dict[str, str]:
        """Columns of the table as it is: name to type; empty when there is no table."""
        rows = self._open.execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute "
            "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped order by attnum",
            (self._regclass(self._table),),
        ).fetchall()
        return dict(rows)

    def _exists(self, table: str) -> bool:
        row = self._one(SQL("select to_regclass(%s) is not null"), self._regclass(table))
        return row is not None and bool(row[0])

    def _regclass(self, table: str) -> str:
        return f"{_quoted(self._target.schema)}.{_quoted(table)}"

    def _sql(self, columns: Sequence[Column] = (), extra: Sequence[str] = ()) -> Statements:
        return Statements(self._target.schema, self._table, columns, extra)

    def _one(self, query: SQL | Composed, *parameters: str) -> TupleRow | None:
        return self._open.execute(query, parameters).fetchone()

    def _execute(self, statement: Composed) -> int:
        return self._open.execute(statement).rowcount

    @property
    def _open(self) -> psycopg.Connection[TupleRow]:
        if self._connection is None:
            message = "PostgresTable is used outside of `with`"
            raise AssertionError(message)
        return self._connection

    @property
    def _lock_key(self) -> str:
        return f"{APPLICATION_NAME} {self._name}"

    @property
    def _name(self) -> str:
        return f"{self._target.schema}.{self._table}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            message = f"PostgreSQL refused to write {self._name}: {postgres_words(error)}"
            raise MaterializeError(message, "nothing was changed; correct it and run again") from error


def _staged(column: Column) -> Expression:
    """A decoded column as the staging table takes it."""
    value = F.col(f"`{column.name}`")
    if not sent_as_text(column):
        return value
    if column.kind is Kind.JSON:
        return F.to_json(value, _JSON)
    if column.kind is Kind.TIMESTAMPTZ:
        # The session's zone is UTC, so the text is in UTC; the offset says so to the server.
        return F.concat(value.cast("string"), F.lit("+00"))
    return value.cast("string")


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
