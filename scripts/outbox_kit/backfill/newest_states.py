"""Latest states of aggregates, read from the business tables and written as outbox rows.

A state written here cannot overwrite a newer event: the service changes an aggregate under its row lock and writes the
event in the same transaction. `publish` takes that lock first and reads the state in a later statement, whose snapshot
(READ COMMITTED) includes all transactions that were committed before the lock was granted. A later change of the
aggregate waits for this transaction, so its event follows in the WAL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_kit.errors import ConfigurationError, RefusedError
from outbox_kit.pipeline import Backfill, Pipeline, Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.aggregate_queries import KEYS_PLACEHOLDER
from outbox_kit.postgres.client import Connection

EMPTY_SQL = sql.SQL("").format()
# Partial and expression indexes do not make the column unique. Partitioned tables have an entry in pg_index as well.
UNIQUE_KEY_SQL: LiteralString = """
    select format_type(a.atttypid, a.atttypmod) as type,
           exists (select 1 from pg_index i
                   where i.indrelid = a.attrelid and i.indisunique and i.indisvalid and i.indpred is null
                     and i.indnkeyatts = 1 and i.indkey[0] = a.attnum) as is_unique
    from pg_attribute a
    where a.attrelid = to_regclass(%s) and a.attname = %s and a.attnum > 0 and not a.attisdropped"""


@dataclass(frozen=True)
class PublishedKeys:
    """Result of publish(): keys whose business row exists, and keys for which a state was written."""

    locked_keys: list[str]
    written_keys: list[str]


@dataclass(frozen=True)
class AggregateStates:
    """Latest states of one aggregate type, read from its table and written to the outbox.

    Every method runs in the open transaction. Keys are text in PostgreSQL's format of the key column.
    """

    aggregate_type: str
    source: Source
    backfill: Backfill
    key_type: str
    partition_field: str | None
    delete: bool
    """Whether each outbox row is deleted in the transaction that inserted it."""

    def next_keys(self, connection: Connection, after: str | None, size: int) -> list[str]:
        """Return the next `size` keys in order, without locking; `after` is the last key of the previous batch."""
        identifiers = self._identifiers()
        condition = EMPTY_SQL if after is None else sql.SQL("where {key} > %(after)s::{type}").format(**identifiers)
        query = sql.SQL("select {key}::text as key from {table} {condition} order by {key} limit %(size)s")
        rows = connection.execute(query.format(**identifiers, condition=condition), {"after": after, "size": size})
        return [row["key"] for row in rows]

    def normalize_keys(self, connection: Connection, keys: Sequence[str]) -> list[str]:
        """Return keys given by the user in the format of the key column, in their order and without duplicates."""
        query = sql.SQL("select k::{type}::text as key from unnest(%s::text[]) with ordinality as u (k, n) order by n")
        rows = connection.execute(query.format(**self._identifiers()), (list(keys),))
        return list(dict.fromkeys(row["key"] for row in rows))

    def publish(self, connection: Connection, keys: Sequence[str], event_type: str) -> PublishedKeys:
        """Lock the rows of `keys`, then write their states to the outbox."""
        lock = sql.SQL(
            "select {key}::text as key from {table} where {key} = any(%s::text[]::{type}[]) order by {key} for update"
        )
        locked = [row["key"] for row in connection.execute(lock.format(**self._identifiers()), (list(keys),))]
        values = {"keys": locked, "type": self.aggregate_type, "event": event_type}
        return PublishedKeys(locked, self._insert(connection, self._states(), values) if locked else [])

    def write_tombstones(self, connection: Connection, keys: Sequence[str], event_type: str) -> list[str]:
        """Write tombstones for the `keys` that have no business row; return the keys that were written.

        A missing row cannot be locked, so the table is locked against all writers. If a row was inserted meanwhile,
        its state is written instead of a tombstone.
        """
        connection.execute(sql.SQL("lock table {table} in share mode").format(**self._identifiers()))
        published = self.publish(connection, keys, event_type)
        missing = [key for key in keys if key not in set(published.locked_keys)]
        values = {"keys": missing, "type": self.aggregate_type, "event": event_type}
        return [*published.written_keys, *(self._insert(connection, self._tombstones(), values) if missing else [])]

    def check_query(self, connection: Connection) -> None:
        """Run the query with an empty list of keys. Raises ConfigurationError if it fails or lacks a column."""
        try:
            query = sql.SQL("select * from {query} limit 0").format(query=self._query())
            columns = connection.execute(query, {"keys": []}).description or []
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigurationError(f"{self._config_key}.query: {reason}", "run the query in psql") from None
        required = ["aggregate_id", "payload", *([self.partition_field] if self.partition_field else [])]
        missing = [name for name in required if name not in {column.name for column in columns}]
        if missing:
            message = f"{self._config_key}.query returns no column {', '.join(missing)}"
            raise ConfigurationError(message, f"the query must return {', '.join(required)}")

    def _insert(self, connection: Connection, rows: sql.Composed, values: Mapping[str, object]) -> list[str]:
        """Insert `rows`; return the aggregate ids. Raises RefusedError if the query returns an id more than once."""
        columns = self.source.columns
        partition_columns = [self.partition_field] if self.partition_field else []
        statement = sql.SQL("{insert} returning {id} as id, {aggregate_id} as key").format(
            insert=ddl.insertion(self.source, rows, *partition_columns),
            id=sql.Identifier(columns.id),
            aggregate_id=sql.Identifier(columns.aggregate_id),
        )
        inserted = connection.execute(statement, values).fetchall()
        written = [row["key"] for row in inserted]
        if len(set(written)) < len(written):
            raise RefusedError(
                f"{self._config_key}.query returns an aggregate_id more than once: its latest state is ambiguous",
                "change the query to return one row per aggregate",
            )
        if self.delete and inserted:
            deletion = sql.SQL("delete from {} where {} = any(%s)")
            ids = [row["id"] for row in inserted]
            connection.execute(deletion.format(ddl.qualified(self.source.table), sql.Identifier(columns.id)), (ids,))
        return written

    def _states(self) -> sql.Composed:
        field = sql.SQL(", q.{}").format(sql.Identifier(self.partition_field)) if self.partition_field else EMPTY_SQL
        return sql.SQL(
            "select gen_random_uuid(), %(type)s::text, q.aggregate_id::text, %(event)s::text, q.payload::jsonb{field}"
            " from {query} where q.aggregate_id::text = any(%(keys)s::text[])"
        ).format(field=field, query=self._query())

    def _tombstones(self) -> sql.Composed:
        """Return a query for tombstones. The partition field is read from an earlier outbox row of the same key."""
        field = partition = EMPTY_SQL
        if self.partition_field:
            field = sql.SQL(", p.field").format()
            partition = sql.SQL(
                " join lateral (select {field} as field from {outbox} where {aggregate_type} = %(type)s"
                " and {aggregate_id} = k and {field} is not null limit 1) p on true"
            ).format(
                field=sql.Identifier(self.partition_field),
                outbox=ddl.qualified(self.source.table),
                aggregate_type=sql.Identifier(self.source.columns.aggregate_type),
                aggregate_id=sql.Identifier(self.source.columns.aggregate_id),
            )
        return sql.SQL(
            "select gen_random_uuid(), %(type)s::text, k, %(event)s::text, null::jsonb{field}"
            " from unnest(%(keys)s::text[]) as k{partition}"
        ).format(field=field, partition=partition)

    def _query(self) -> sql.Composed:
        """Return the query of the pipeline file as `(...) q`, with a typed parameter in place of `:keys`."""
        text = self.backfill.query.strip().rstrip(";").replace("%", "%%")
        text = KEYS_PLACEHOLDER.sub(lambda _: f"%(keys)s::text[]::{self.key_type}[]", text)
        # The line break after the query ends an SQL comment in its last line.
        return sql.SQL("(\n{}\n) q").format(sql.SQL(text))

    def _identifiers(self) -> dict[str, sql.Composable]:
        return {
            "table": ddl.qualified(self.backfill.table),
            "key": sql.Identifier(self.backfill.key),
            "type": sql.SQL(self.key_type),
        }

    @property
    def _config_key(self) -> str:
        return f"aggregates.{self.aggregate_type}.backfill"


def open_states(connection: Connection, pipeline: Pipeline, aggregate_type: str, *, delete: bool) -> AggregateStates:
    """Check the `backfill` of an aggregate type, and return access to its states. Raises ConfigurationError."""
    aggregate = pipeline.aggregates.get(aggregate_type)
    if aggregate is None:
        hint = f"known aggregates: {', '.join(sorted(pipeline.aggregates))}"
        raise ConfigurationError(f"pipeline {pipeline.name} has no aggregate {aggregate_type!r}", hint)
    if aggregate.backfill is None:
        message = f"aggregate {aggregate_type!r} has no `backfill` in the pipeline file"
        raise ConfigurationError(message, f"set aggregates.{aggregate_type}.backfill; see docs/backfill.md")
    config_key = f"aggregates.{aggregate_type}.backfill"
    table, key = aggregate.backfill.table, aggregate.backfill.key
    column = connection.execute(UNIQUE_KEY_SQL, (ddl.qualified(table).as_string(), key)).fetchone()
    if column is None:
        message = f"{config_key}: there is no table {table} with a column {key}"
        raise ConfigurationError(message, "correct the pipeline file")
    if not column["is_unique"]:
        message = f"{config_key}.key: {table} has no unique index on {key} alone"
        hint = "set `key` to a column with a unique index; backfill orders and locks rows by it"
        raise ConfigurationError(message, hint)
    partition_field = aggregate.partition_field
    states = AggregateStates(
        aggregate_type, pipeline.source, aggregate.backfill, column["type"], partition_field, delete
    )
    states.check_query(connection)
    return states
