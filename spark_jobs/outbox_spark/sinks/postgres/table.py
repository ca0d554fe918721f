"""PostgreSQL: Spark stages the rows, the driver merges them and the offsets in one transaction.

Staging is an unlogged table of its own for every batch. Until the one transaction at the end commits, the target
is as it was; a staging table that a crashed run left is dropped by the next.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types.json import Jsonb
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from outbox_spark.decoding.columns import (
    DELETED_AT_COLUMN,
    KEY_COLUMN,
    METADATA_COLUMNS,
    STALE_COLUMN,
    VALID_TO_COLUMN,
    Column,
    Kind,
)
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.decoding.rows import defaults
from outbox_spark.decoding.type_widening import widens
from outbox_spark.errors import ConfigurationError, MaterializeError, OverlapError, RefusedError, SchemaError
from outbox_spark.jobs.model import Committed, Mode, PostgresTarget, Written
from outbox_spark.session.error_redaction import postgres_words
from outbox_spark.session.stage_metrics import OBSERVATION
from outbox_spark.sinks.postgres import maintenance
from outbox_spark.sinks.postgres.merge import apply_staged
from outbox_spark.sinks.postgres.session import APPLICATION_NAME, LOCK_WAIT, connect, lock, prepare_merge, unlock
from outbox_spark.sinks.postgres.staging import (
    STAGING_INFIX,
    STAGING_TOKEN_BYTES,
    Loaded,
    Place,
    Staged,
    Staging,
    Way,
    as_sent,
    chosen_way,
    settle,
    stage,
)
from outbox_spark.sinks.postgres.statements import OFFSETS_TABLE, STATE_TYPES, Statements, column_type
from outbox_spark.sinks.target_table import ANEW, QUARANTINE_SUFFIX, Batch, Sent

MAX_NAME_LENGTH = 63  # longer identifiers are cut by the server without an error
# \u0000 in JSON text, unless the backslash is itself escaped; jsonb refuses it as text refuses the character.
_NUL_IN_JSON = r"(?<!\\)(?:\\\\)*\\u0000"


class PostgresTable:
    """One table of a PostgreSQL schema; locked from `with` to its end."""

    def __init__(self, target: PostgresTarget, table: str, mode: Mode = Mode.HARD_DELETE) -> None:
        longest = len(table) + len(STAGING_INFIX) + 2 * STAGING_TOKEN_BYTES
        if longest > MAX_NAME_LENGTH:
            allowed = MAX_NAME_LENGTH - longest + len(table)
            raise ConfigurationError(f"table name {table} is {len(table)} characters long", f"at most {allowed} fit")
        self._target = target
        self._table = table
        self._mode = mode
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._seen_run: int | None = None
        self._sends_ahead = True

    def __enter__(self) -> Self:
        self._connection = connect(self._target)
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
            with suppress(psycopg.Error):
                # What a batch that failed has left; of the lock it is the holder's.
                self._drop_stale_staging()
            with suppress(psycopg.Error):
                unlock(self._connection, self._lock_key)
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
        self._check_mode(live)
        for column in columns:
            found, wanted = live.get(column.name), column_type(column)
            if found is not None and found != wanted and not widens(found, wanted):
                message = f"column {self._name}.{column.name} is {found}; the newest schema makes it {wanted}"
                raise SchemaError(message, f"undo the change of type, or {ANEW}")

    def _check_mode(self, live: dict[str, str]) -> None:
        if not live:
            return
        made = Mode.HISTORY if VALID_TO_COLUMN in live else Mode.HARD_DELETE
        made = Mode.SOFT_DELETE if DELETED_AT_COLUMN in live else made
        if made is not self._mode:
            message = f"table {self._name} was made with mode {made}; the pipeline file says {self._mode}"
            # Their keys differ, and a rebuild keeps the table's.
            keyed = Mode.HISTORY in {made, self._mode}
            anew = "drop the table, so that the next run makes it anew" if keyed else ANEW
            raise ConfigurationError(message, f"set the mode back to {made}, or {anew}")

    @staticmethod
    def limit(column: Column, value: Expression) -> Expression | None:
        """Text with the NUL character or that is no UTF-8; dates outside the years 1 to 9999: no common text form."""
        if column.kind is Kind.TEXT:
            return F.contains(value, F.lit("\x00")) | ~F.is_valid_utf8(value)
        if column.kind is Kind.JSON:
            text = F.to_json(value, JSON_OPTIONS)
            # What the pattern has in every match goes first: it is found without one.
            return F.contains(text, F.lit("\\u0000")) & F.rlike(text, F.lit(_NUL_IN_JSON))
        if column.kind in {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}:
            return ~F.year(value).between(1, 9999)
        return None

    def send_ahead(self, rows: DataFrame, columns: Sequence[Column], sums: Sequence[Expression]) -> Sent | None:
        """Into a staging table, by COPY, which tells which tries of tasks count."""
        way = chosen_way(rows.sparkSession)
        if way is not Way.COPY or not self._sends_ahead:
            return None
        sent = self._send(rows.observe(OBSERVATION, *sums), columns, way)
        if not sent.sums:  # an extension of Spark's has replaced what observes
            self.discard(sent, for_good=True)
            return None
        return sent

    def discard(self, sent: Sent, *, for_good: bool) -> None:
        """Drop the staging table; where a task that Spark gave up still holds it, at the end of the run."""
        self._sends_ahead = self._sends_ahead and not for_good
        with self._explained(), suppress(psycopg.errors.LockNotAvailable):
            self._drop([sent.place.staging.name])

    def write(self, batch: Batch) -> Written:
        """Stage, then merge in one transaction. Between the two a crash changes nothing."""
        live = self._live_columns()
        known = {KEY_COLUMN, *(column.name for column in batch.columns), *METADATA_COLUMNS, *STATE_TYPES[self._mode]}
        statements = self._sql(batch.columns, [name for name in live if name not in known])
        added = self._new_columns(batch, live)
        sent = batch.sent or self._send(batch.rows, batch.columns, chosen_way(batch.rows.sparkSession))
        staging, loaded = sent.place.staging, sent.place.loaded
        with self._explained(), self._open.transaction():
            prepare_merge(self._open)
            staged = self._settle(staging, loaded, batch)
            self._prepare(statements, batch, added)
            written = self._merge(statements, staged, batch)
            self._execute(SQL("drop table {}").format(staging.name))
        self._seen_run = batch.committed.run
        return written

    def versions(self) -> DataFrame:
        """Key and METADATA_COLUMNS of the rows that are there."""
        return maintenance.versions(self)

    def forget_deletions(self, before: datetime) -> int:
        """Remove older ledger entries; returns how many."""
        return maintenance.forget_deletions(self, before)

    def replace_by(self, shadow: Self) -> None:
        """Make the content of `shadow` this table's, in one step for readers."""
        maintenance.replace_by(self, shadow)

    def drop(self) -> None:
        """Remove the table and its ledger; the quarantine stays."""
        maintenance.drop(self)

    def maintain(self) -> str:
        """Compact files, expire what is no longer needed."""
        return maintenance.maintain(self)

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
            self._make(statements)
        else:
            self._upgrade(statements, batch.committed.topic_id)
            self._change_columns(statements, added)
        self._describe(statements, batch.committed.topic)

    def _make(self, statements: Statements) -> None:
        self._execute(statements.create_target())
        # A rebuild reads the whole topic, tombstones included; of a recreated topic old ones say nothing.
        for statement in statements.create_ledger():
            self._execute(statement)
        self._execute(statements.create_quarantine())
        self._upgrade_quarantine(statements)

    def _upgrade(self, statements: Statements, topic_id: str) -> None:
        """What layout 1 lacks."""
        self._upgrade_quarantine(statements)
        if STALE_COLUMN not in self._live_columns():
            for statement in statements.add_stale(topic_id):
                self._execute(statement)

    def _upgrade_quarantine(self, statements: Statements) -> None:
        if KEY_COLUMN not in self._live_columns(self._table + QUARANTINE_SUFFIX):
            for statement in statements.add_quarantine_key():
                self._execute(statement)

    def _change_columns(self, statements: Statements, added: dict[Column, object]) -> None:
        live = self._live_columns()
        for column in statements.columns:
            if column in added:
                for statement in statements.add_column(column, added[column]):
                    self._execute(statement)
            elif live[column.name] != column_type(column):
                self._execute(statements.widen_column(column))

    def _describe(self, statements: Statements, topic: str) -> None:
        """Comments that are not there yet, or are others."""
        rows = self._open.execute(
            "select coalesce(a.attname, ''), d.description from pg_description d "
            "left join pg_attribute a on a.attrelid = d.objoid and a.attnum = d.objsubid and d.objsubid > 0 "
            "where d.classoid = 'pg_class'::regclass and d.objoid = to_regclass(%s)",
            (self._regclass(self._table),),
        ).fetchall()
        found: dict[str, str] = dict(rows)
        for name, text in statements.comments(topic).items():
            if found.get(name) != text:
                self._execute(statements.comment(name, text))

    def _settle(self, staging: Staging, loaded: Loaded, batch: Batch) -> Staged:
        """A server that crashes empties unlogged tables; committing the offsets of lost rows would skip them."""
        staged = settle(self._open, staging, loaded)
        found = staged.rows + staged.tombstones + staged.quarantined
        if found != batch.counts.rows:
            message = (
                f"staging of {self._name} holds {found} of {batch.counts.rows} rows: the server lost or never got them"
            )
            raise MaterializeError(message, "nothing was changed; run again")
        return staged

    def _merge(self, statements: Statements, staged: Staged, batch: Batch) -> Written:
        progress, first = batch.committed, batch.previous is None
        written = apply_staged(self._open, statements, staged, progress.topic_id, first=first)
        upsert = SQL(
            "insert into {} (table_name, run, progress) values (%s, %s, %s) on conflict (table_name) "
            "do update set run = excluded.run, progress = excluded.progress, committed_at = now()"
        ).format(statements.offsets)
        self._open.execute(upsert, (self._table, progress.run, Jsonb(progress.to_json())))
        return written

    def _send(self, rows: DataFrame, columns: Sequence[Column], way: Way) -> Sent:
        name = f"{self._table}{STAGING_INFIX}{secrets.token_hex(STAGING_TOKEN_BYTES)}"
        staging = Staging(Identifier(self._target.schema, name), way)
        with self._explained():
            self._ensure_schema()
            self._execute(staging.create(columns))
        loaded, sums = self._stage(rows, columns, staging)
        return Sent(sums, Place(staging, loaded))

    def _stage(self, rows: DataFrame, columns: Sequence[Column], staging: Staging) -> tuple[Loaded, Mapping[str, Any]]:
        return stage(rows, columns, staging, self._target, staging.name.as_string(self._open))

    def _new_columns(self, batch: Batch, live: dict[str, str]) -> dict[Column, object]:
        """Columns that the table lacks, with the value that rows from before them show."""
        if not live:
            return {}
        new = [column for column in batch.columns if column.name not in live]
        filled = [column for column in new if column.has_default]
        values: dict[str, Any] = {}
        if filled:
            frame = defaults(batch.rows.sparkSession, filled, batch.reader)
            row = frame.select(*[as_sent(column).alias(column.name) for column in filled]).collect()[0]
            values = {name: bytes(v) if isinstance(v, bytearray) else v for name, v in row.asDict().items()}
        return {column: values.get(column.name) for column in new}

    def _lock(self) -> None:
        lock(self._open, self._lock_key, self._name)

    def _drop_stale_staging(self) -> None:
        """Of this table's crashed runs: their exact form, so that nobody's `book__staging_prev` is taken for one."""
        prefix = self._table + STAGING_INFIX
        rows = self._open.execute(
            "select relname from pg_class where relnamespace = to_regnamespace(%s) and relkind = 'r' "
            "and relpersistence = 'u' and starts_with(relname, %s) and right(relname, %s) ~ %s",
            (_quoted(self._target.schema), prefix, -len(prefix), f"^[0-9a-f]{{{2 * STAGING_TOKEN_BYTES}}}$"),
        ).fetchall()
        self._drop([Identifier(self._target.schema, name) for (name,) in rows])

    def _drop(self, names: Sequence[Identifier]) -> None:
        """Drop staging tables. Raises psycopg.errors.LockNotAvailable when a task writes on and on."""
        with self._open.transaction():
            self._execute(SQL("set local lock_timeout = {}").format(Literal(LOCK_WAIT)))
            for name in names:
                self._execute(SQL("drop table if exists {}").format(name))

    def _ensure_schema(self) -> None:
        # "if not exists" alone asks for the privilege to create even when there is nothing to create.
        schema = self._target.schema
        row = self._one(SQL("select to_regnamespace(%s) is not null"), _quoted(schema))
        if row is not None and not row[0]:
            self._execute(SQL("create schema if not exists {}").format(Identifier(schema)))

    def _live_columns(self, table: str = "") -> dict[str, str]:
        """Columns of the table, or the one that is named, as it is: name to type; empty when there is none."""
        rows = self._open.execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute "
            "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped order by attnum",
            (self._regclass(table or self._table),),
        ).fetchall()
        return dict(rows)

    def _exists(self, table: str) -> bool:
        row = self._one(SQL("select to_regclass(%s) is not null"), self._regclass(table))
        return row is not None and bool(row[0])

    def _regclass(self, table: str) -> str:
        return f"{_quoted(self._target.schema)}.{_quoted(table)}"

    def _sql(self, columns: Sequence[Column] = (), extra: Sequence[str] = ()) -> Statements:
        return Statements(self._target.schema, self._table, columns, extra, self._mode)

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


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
