"""The newest state of aggregates, out of the business tables, as outbox rows.

Why a state written here cannot pass a newer event: the service changes an aggregate under its row lock and
writes the event in the same transaction. `publish` takes that lock first and reads the state in a later
statement, whose snapshot (READ COMMITTED) has everything that was committed before the lock was granted. Who
changes the aggregate afterwards waits for this transaction, so its event is behind ours in the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_kit.errors import ConfigurationError, RefusedError
from outbox_kit.pipeline import Backfill, Pipeline, Source
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.outbox_row import insertion, outbox_table

# Not the second colon of a cast: `x::keys`.
KEYS_MARK = re.compile(r"(?<!:):keys\b")

NOTHING = sql.SQL("").format()

# Partial and expression indexes leave rows out, or are of something else. A partitioned table has them too.
UNIQUE_KEY: LiteralString = """
    select format_type(a.atttypid, a.atttypmod) as type,
           exists (select 1 from pg_index i
                   where i.indrelid = a.attrelid and i.indisunique and i.indisvalid and i.indpred is null
                     and i.indnkeyatts = 1 and i.indkey[0] = a.attnum) as is_unique
    from pg_attribute a
    where a.attrelid = to_regclass(%s) and a.attname = %s and a.attnum > 0 and not a.attisdropped"""


@dataclass(frozen=True)
class Published:
    """What became of some keys: those whose row was there, and those of which a state was written."""

    locked: list[str]
    written: list[str]


@dataclass(frozen=True)
class States:
    """One aggregate type: where its states are, and the outbox that they go to. Every method joins the open
    transaction. Keys are text, as PostgreSQL writes the key column."""

    aggregate_type: str
    source: Source
    backfill: Backfill
    key_type: str
    partition_field: str | None
    delete: bool
    """Whether each outbox row is deleted in the transaction that inserted it."""

    def page(self, connection: Connection, after: str | None, size: int) -> list[str]:
        """The next keys in order; nothing is locked yet, so a row that goes meanwhile cannot shift the page."""
        names = self._names()
        beyond = NOTHING if after is None else sql.SQL("where {key} > %(after)s::{type}").format(**names)
        query = sql.SQL("select {key}::text as key from {table} {beyond} order by {key} limit %(size)s")
        found = connection.execute(query.format(**names, beyond=beyond), {"after": after, "size": size})
        return [row["key"] for row in found]

    def canonical(self, connection: Connection, keys: Sequence[str]) -> list[str]:
        """Keys as a person wrote them, as the column writes them; each once, in their order."""
        query = sql.SQL("select k::{type}::text as key from unnest(%s::text[]) with ordinality as u (k, n) order by n")
        rows = connection.execute(query.format(**self._names()), (list(keys),))
        return list(dict.fromkeys(row["key"] for row in rows))

    def publish(self, connection: Connection, keys: Sequence[str], event_type: str) -> Published:
        """Lock the rows of `keys`, then write their states into the outbox."""
        lock = sql.SQL(
            "select {key}::text as key from {table} where {key} = any(%s::text[]::{type}[]) order by {key} for update"
        )
        locked = [row["key"] for row in connection.execute(lock.format(**self._names()), (list(keys),))]
        values = {"keys": locked, "type": self.aggregate_type, "event": event_type}
        return Published(locked, self._insert(connection, self._states(), values) if locked else [])

    def bury(self, connection: Connection, keys: Sequence[str], event_type: str) -> list[str]:
        """Write tombstones of `keys` whose rows are gone; returns those that were written.

        A row that is not there cannot be locked: so the table is, against every writer. One that came back
        meanwhile gets its state instead.
        """
        connection.execute(sql.SQL("lock table {table} in share mode").format(**self._names()))
        back = self.publish(connection, keys, event_type)
        gone = [key for key in keys if key not in set(back.locked)]
        values = {"keys": gone, "type": self.aggregate_type, "event": event_type}
        return [*back.written, *(self._insert(connection, self._tombstones(), values) if gone else [])]

    def describe(self, connection: Connection) -> None:
        """Try the query without any key. Raises ConfigurationError where it fails or lacks a column."""
        try:
            query = sql.SQL("select * from {query} limit 0").format(query=self._query())
            found = connection.execute(query, {"keys": []}).description or []
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigurationError(f"{self._where()}.query: {reason}", "try it in psql") from None
        needed = ["aggregate_id", "payload", *([self.partition_field] if self.partition_field else [])]
        lacking = [name for name in needed if name not in {column.name for column in found}]
        if lacking:
            message = f"{self._where()}.query yields no column {', '.join(lacking)}"
            raise ConfigurationError(message, f"it must yield {', '.join(needed)}")

    def _insert(self, connection: Connection, rows: sql.Composed, values: Mapping[str, object]) -> list[str]:
        """Run the insert; aggregate ids as written. Raises RefusedError when the query yields one of them twice."""
        columns = self.source.columns
        further = [self.partition_field] if self.partition_field else []
        statement = sql.SQL("{insert} returning {id} as id, {aggregate_id} as key").format(
            insert=insertion(self.source, rows, *further),
            id=sql.Identifier(columns.id),
            aggregate_id=sql.Identifier(columns.aggregate_id),
        )
        inserted = connection.execute(statement, values).fetchall()
        written = [row["key"] for row in inserted]
        if len(set(written)) < len(written):
            raise RefusedError(
                f"{self._where()}.query yields an aggregate_id more than once: which state is its newest is not known",
                "let it yield one row per aggregate",
            )
        if self.delete and inserted:
            deletion = sql.SQL("delete from {} where {} = any(%s)")
            deleted = [row["id"] for row in inserted]
            connection.execute(deletion.format(outbox_table(self.source), sql.Identifier(columns.id)), (deleted,))
        return written

    def _states(self) -> sql.Composed:
        field = sql.SQL(", q.{}").format(sql.Identifier(self.partition_field)) if self.partition_field else NOTHING
        return sql.SQL(
            "select gen_random_uuid(), %(type)s::text, q.aggregate_id::text, %(event)s::text, q.payload::jsonb{field}"
            " from {query} where q.aggregate_id::text = any(%(keys)s::text[])"
        ).format(field=field, query=self._query())

    def _tombstones(self) -> sql.Composed:
        """With a partition field the tombstone must follow its states, so an earlier outbox row has to know it."""
        field = partition = NOTHING
        if self.partition_field:
            field = sql.SQL(", p.field").format()
            partition = sql.SQL(
                " join lateral (select {field} as field from {outbox} where {aggregate_type} = %(type)s"
                " and {aggregate_id} = k and {field} is not null limit 1) p on true"
            ).format(
                field=sql.Identifier(self.partition_field),
                outbox=outbox_table(self.source),
                aggregate_type=sql.Identifier(self.source.columns.aggregate_type),
                aggregate_id=sql.Identifier(self.source.columns.aggregate_id),
            )
        return sql.SQL(
            "select gen_random_uuid(), %(type)s::text, k, %(event)s::text, null::jsonb{field}"
            " from unnest(%(keys)s::text[]) as k{partition}"
        ).format(field=field, partition=partition)

    def _query(self) -> sql.Composed:
        """The query of the pipeline file as `(...) q`; `:keys` in it becomes the locked keys, of the column's type."""
        text = self.backfill.query.strip().rstrip(";").replace("%", "%%")
        text = KEYS_MARK.sub(lambda _: f"%(keys)s::text[]::{self.key_type}[]", text)
        # On lines of its own: the query may end in a comment.
        return sql.SQL("(\n{}\n) q").format(_written(text))

    def _names(self) -> dict[str, sql.Composable]:
        return {
            "table": sql.Identifier(*self.backfill.table.split(".")),
            "key": sql.Identifier(self.backfill.key),
            "type": _written(self.key_type),
        }

    def _where(self) -> str:
        return f"aggregates.{self.aggregate_type}.backfill"


def open_states(connection: Connection, pipeline: Pipeline, aggregate_type: str, *, delete: bool) -> States:
    """The states of one aggregate type, checked against the database.

    Raises ConfigurationError, and RefusedError where there is no outbox table.
    """
    if not pipeline.source.uses_table:
        message = (
            f"pipeline {pipeline.name} has messages (source.message_prefix) and no outbox table to write states to"
        )
        raise RefusedError(message, "let the service write them again, as messages")
    aggregate = pipeline.aggregates.get(aggregate_type)
    if aggregate is None:
        known = ", ".join(sorted(pipeline.aggregates))
        raise ConfigurationError(f"pipeline {pipeline.name} has no aggregate {aggregate_type!r}", f"it has: {known}")
    if aggregate.backfill is None:
        message = f"aggregate {aggregate_type!r} has no `backfill` in the pipeline file"
        raise ConfigurationError(message, "give it table, key and query; see docs/backfill.md")
    where = f"aggregates.{aggregate_type}.backfill"
    table, key = aggregate.backfill.table, aggregate.backfill.key
    quoted = sql.Identifier(*table.split(".")).as_string()
    found = connection.execute(UNIQUE_KEY, (quoted, key)).fetchone()
    if found is None:
        raise ConfigurationError(f"{where}: there is no table {table} with a column {key}", "correct the pipeline file")
    if not found["is_unique"]:
        message = f"{where}.key: {table} has no unique index on {key} alone"
        raise ConfigurationError(message, "name the table's unique column; it decides the order and the locks")
    states = States(
        aggregate_type, pipeline.source, aggregate.backfill, found["type"], aggregate.partition_field, delete
    )
    states.describe(connection)
    return states


def _written(text: str) -> sql.SQL:
    """SQL that the pipeline file or the catalog holds, as it is."""
    return sql.SQL(text)
