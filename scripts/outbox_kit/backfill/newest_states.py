"""Read the latest states of aggregates from the business tables, and write them as outbox rows.

A state written by this module cannot overwrite a newer event. A service changes an aggregate while it holds the row
lock, and writes the event in the same transaction. write_states() first takes the row lock. It reads the state in a
later statement, whose READ COMMITTED snapshot includes all transactions that committed before the lock was granted. A
later change waits for the transaction of write_states(), so the event of that change is later in the WAL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_common.error_text import postgres_message
from outbox_events.errors import ConfigurationError, RefusedError
from outbox_kit.pipeline import Backfill, Pipeline, Source
from outbox_kit.pipeline.key_columns import COMMA, aggregate_id, has_all_parts, identifiers, key_values
from outbox_kit.postgres import ddl
from outbox_kit.postgres.aggregate_queries import privilege_error, refuse_row_security
from outbox_kit.postgres.client import Connection, read_column_types

EMPTY_SQL = sql.SQL("").format()
IS_DELETED = sql.SQL("coalesce(q.payload::jsonb = 'null'::jsonb, true)")
# Partial and expression indexes do not make the columns unique. pg_index also contains indexes of partitioned tables.
UNIQUE_INDEX_SQL: LiteralString = """
    select array_agg(a.attname::text order by k.position) as columns
    from pg_index i cross join unnest(i.indkey::int2[]) with ordinality as k (number, position)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
    where i.indrelid = to_regclass(%(table)s) and i.indisunique and i.indisvalid and i.indpred is null
      and i.indnkeyatts = cardinality(%(columns)s::text[]) and k.position <= i.indnkeyatts
    group by i.indexrelid having array_agg(a.attname::text) @> %(columns)s::text[] limit 1"""
TOMBSTONES: LiteralString = """
    select gen_random_uuid(), %(type)s::text, k, %(event)s::text, null::jsonb from unnest(%(keys)s::text[]) as k"""
PARTITIONED_TOMBSTONES: LiteralString = """
    select gen_random_uuid(), %(type)s::text, k, %(event)s::text, null::jsonb, field
    from (select k, coalesce((select {field}::text from {outbox} where {aggregate_type} = %(type)s
                              and {aggregate_id} = k and {field}::text <> '' limit 1), v) as field
          from unnest(%(keys)s::text[], %(values)s::text[]) as given (k, v)) as tombstone
    where field is not null"""


@dataclass(frozen=True)
class AggregateStates:
    """Reads the latest states of one aggregate type from its business table, and writes them to the outbox table.

    The methods do not open transactions. Keys are aggregate ids. `key_types` maps each key column, in the order of
    `backfill.key`, to its type. `index_columns` contains the key columns in the order of their unique index.
    """

    aggregate_type: str
    source: Source
    backfill: Backfill
    key_types: Mapping[str, str]
    index_columns: Sequence[str]
    partition_field: str | None
    deletes_rows: bool
    """Whether each outbox row is deleted again in the transaction that inserts it."""

    def next_keys(self, connection: Connection, after: str | None, limit: int) -> list[str]:
        """Return at most `limit` keys after the key `after`, or the first keys if it is None. Rows are not locked."""
        order, condition = COMMA.join(identifiers(self.index_columns)), EMPTY_SQL
        if after is not None:
            values = key_values(self.key_types, sql.SQL("%(after)s"))
            start = COMMA.join(values[name] for name in self.index_columns)
            condition = sql.SQL("and ({}) > ({})").format(order, start)
        query = sql.SQL(
            "select {id} as key from {table} where ({key}) is not null {condition} order by {order} limit %(limit)s"
        ).format(**self._parts(), condition=condition, order=order)
        return [row["key"] for row in connection.execute(query, {"after": after, "limit": limit})]

    def normalize_keys(self, connection: Connection, keys: Sequence[str]) -> list[str]:
        """Cast `keys` to the types of the key columns and back to text. Keep their order, and remove duplicates.

        Keys that are not valid for the types are returned unchanged, because a topic can contain any key.
        """
        normalized = self._cast_keys(connection, keys)
        return list(dict.fromkeys(normalized.get(key, key) for key in keys))

    def row_keys(self, connection: Connection, keys: Sequence[str]) -> list[str]:
        """Return those `keys` that a business row can have, because they equal the text of valid column values."""
        normalized = self._cast_keys(connection, keys)
        return [key for key in keys if normalized.get(key) == key]

    def write_states(self, connection: Connection, keys: Sequence[str], event_type: str) -> list[str]:
        """Lock the business rows of `keys`, then write the states of the locked rows. Return the written keys.

        A null payload means that the aggregate was deleted. Only write_tombstones() writes such payloads.
        """
        locked_keys = self._lock_rows(connection, keys)
        return self._write_locked(connection, locked_keys, event_type, sql.SQL(" and not {}").format(IS_DELETED))

    def write_tombstones(
        self, connection: Connection, keys: Sequence[str], event_type: str, partition_values: Mapping[str, str]
    ) -> list[str]:
        """Write a tombstone for each key without a business row. Return the keys for which an outbox row was written.

        The value of the partition field comes from an earlier outbox row or else from `partition_values`. Keys without
        a value are omitted.

        The business table is locked against all writers, because a missing row cannot be locked. If the row of a key
        was inserted before the lock was granted, its state is written instead of a tombstone.
        """
        connection.execute(sql.SQL("lock table {table} in share mode").format(**self._parts()))
        locked_keys = self._lock_rows(connection, self.row_keys(connection, keys))
        written_keys = self._write_locked(connection, locked_keys, event_type, EMPTY_SQL)
        missing_keys = [key for key in keys if key not in set(locked_keys)]
        values = [partition_values.get(key) for key in missing_keys]
        parameters = {"keys": missing_keys, "values": values, "type": self.aggregate_type, "event": event_type}
        tombstone_keys = self._insert(connection, self._tombstone_rows(), parameters) if missing_keys else []
        return [*written_keys, *tombstone_keys]

    def deleted_keys(self, connection: Connection, keys: Sequence[str]) -> list[str]:
        """Return those `keys` that do not have a business row, or for which the query returns a null payload.

        write_tombstones() writes tombstones for these keys.
        """
        row_keys = self.row_keys(connection, keys)
        query = sql.SQL(
            "select k as key from unnest(%(keys)s::text[]) as requested (k)"
            " where not exists (select from {table} as existing where ({existing_key}) = ({values}))"
            " union all select {row_id} from {query} where {row_id} = any(%(keys)s::text[]) and {is_deleted}"
        ).format(
            **self._parts(),
            existing_key=COMMA.join(identifiers(self.backfill.key, "existing")),
            query=self._subquery(),
            is_deleted=IS_DELETED,
        )
        rows = connection.execute(query, {"keys": row_keys})
        live_keys = set(row_keys) - {row["key"] for row in rows}
        return [key for key in keys if key not in live_keys]

    def table_is_empty(self, connection: Connection) -> bool:
        """Return whether the business table is empty."""
        query = sql.SQL("select not exists (select from {table}) as is_empty").format(**self._parts())
        return bool(connection.execute(query).fetchall()[0]["is_empty"])

    def check_query(self, connection: Connection) -> None:
        """Run the query without keys. Raises ConfigurationError if it fails, or if a required column is missing."""
        try:
            query = sql.SQL("select * from {query} limit 0").format(query=self._subquery())
            with connection.transaction():
                refuse_row_security(connection)
                columns = connection.execute(query, {"keys": []}).description or []
                # This fails if row security hides rows, because the aggregates of hidden rows would look deleted.
                connection.execute(sql.SQL("select from {table} limit 0").format(**self._parts()))
        except psycopg.errors.InsufficientPrivilege as error:
            raise privilege_error(connection, self._config_key, error) from None
        except psycopg.Error as error:
            message = f"{self._config_key}.query: {postgres_message(error)}"
            raise ConfigurationError(message, "run the query in psql, and correct it in the pipeline file") from None
        required_columns = [*self.backfill.id_columns, "payload", *filter(None, [self.partition_field])]
        missing_columns = [name for name in required_columns if name not in {column.name for column in columns}]
        if missing_columns:
            message = f"{self._config_key}.query does not return column {', '.join(missing_columns)}"
            raise ConfigurationError(message, f"change the query to return {', '.join(required_columns)}")

    def _cast_keys(self, connection: Connection, keys: Sequence[str]) -> dict[str, str]:
        """Return the normalized text of each key that is valid for the types of the key columns.

        PostgreSQL rejects all keys if one key is invalid. The keys are therefore halved until the invalid key is found.
        """
        query = sql.SQL(
            "select k as given, {id_of_values} as key from unnest(%s::text[]) as requested (k) where {has_all_parts}"
        )
        try:
            with connection.transaction():
                rows = connection.execute(query.format(**self._parts()), (list(keys),)).fetchall()
        except psycopg.DataError:
            middle = len(keys) // 2
            halves = (keys[:middle], keys[middle:]) if middle else ()
            return {given: key for half in halves for given, key in self._cast_keys(connection, half).items()}
        return {row["given"]: row["key"] for row in rows}

    def _lock_rows(self, connection: Connection, keys: Sequence[str]) -> list[str]:
        """Lock the business rows of `keys`. Return the keys that have a row."""
        query = sql.SQL("select {id} as key from {table} where ({key}) in ({values_of_keys}) order by {key} for update")
        return [row["key"] for row in connection.execute(query.format(**self._parts()), {"keys": list(keys)})]

    def _write_locked(
        self, connection: Connection, keys: Sequence[str], event_type: str, condition: sql.Composed
    ) -> list[str]:
        parameters = {"keys": keys, "type": self.aggregate_type, "event": event_type}
        return self._insert(connection, self._state_rows(condition), parameters) if keys else []

    def _insert(self, connection: Connection, query: sql.Composed, parameters: Mapping[str, object]) -> list[str]:
        """Insert the rows of `query`. Return their aggregate ids. Raises RefusedError for a repeated aggregate id."""
        columns = self.source.columns
        partition_columns = [self.partition_field] if self.partition_field else []
        statement = sql.SQL("{insert} returning {id} as id, {aggregate_id} as key").format(
            insert=ddl.insertion(self.source, query, *partition_columns),
            id=sql.Identifier(columns.id),
            aggregate_id=sql.Identifier(columns.aggregate_id),
        )
        rows = connection.execute(statement, parameters).fetchall()
        written_keys = [row["key"] for row in rows]
        if len(set(written_keys)) < len(written_keys):
            raise RefusedError(
                f"{self._config_key}.query returns an aggregate_id more than once: its latest state is ambiguous",
                "change the query to return one row per aggregate",
            )
        if self.deletes_rows and rows:
            deletion = sql.SQL("delete from {} where {} = any(%s)")
            identifiers = (ddl.qualified_name(self.source.table), sql.Identifier(columns.id))
            connection.execute(deletion.format(*identifiers), ([row["id"] for row in rows],))
        return written_keys

    def _state_rows(self, condition: sql.Composed) -> sql.Composed:
        field = sql.SQL(", q.{}").format(sql.Identifier(self.partition_field)) if self.partition_field else EMPTY_SQL
        return sql.SQL(
            "select gen_random_uuid(), %(type)s::text, {row_id}, %(event)s::text, q.payload::jsonb{field}"
            " from {query} where {row_id} = any(%(keys)s::text[]){condition}"
        ).format(**self._parts(), field=field, query=self._subquery(), condition=condition)

    def _tombstone_rows(self) -> sql.Composed:
        """Return the query for tombstones. If there is a partition field, keys without a value for it are excluded."""
        if self.partition_field is None:
            return sql.SQL(TOMBSTONES).format()
        return sql.SQL(PARTITIONED_TOMBSTONES).format(
            field=sql.Identifier(self.partition_field),
            outbox=ddl.qualified_name(self.source.table),
            aggregate_type=sql.Identifier(self.source.columns.aggregate_type),
            aggregate_id=sql.Identifier(self.source.columns.aggregate_id),
        )

    def _subquery(self) -> sql.Composed:
        """Return the query of the pipeline file as a subquery `(...) q`, with a typed parameter in place of `:keys`."""
        escaped = self.backfill.model_copy(update={"query": self.backfill.query.replace("%", "%%")})
        text = escaped.query_for(self._parts()["requested_keys"].as_string(None))
        # The line break after the query ends a `--` comment in the last line of the query.
        return sql.SQL("(\n{}\n) q").format(sql.SQL(text))

    def _parts(self) -> dict[str, sql.Composable]:
        """Return parts of queries. `values` are the values of the key in the column requested.k.

        `requested_keys` replaces `:keys`. It is an array, or a subquery if there are several key columns.
        """
        text = sql.Identifier("requested", "k")
        values = list(key_values(self.key_types, text).values())
        subquery = sql.SQL("select {} from unnest(%(keys)s::text[]) as requested (k)").format(COMMA.join(values))
        array = sql.SQL("%(keys)s::text[]::{}[]").format(sql.SQL(next(iter(self.key_types.values()))))
        return {
            "table": ddl.qualified_name(self.backfill.table),
            "key": COMMA.join(identifiers(self.backfill.key)),
            "id": aggregate_id(identifiers(self.backfill.key)),
            "row_id": aggregate_id(identifiers(self.backfill.id_columns, "q")),
            "values": COMMA.join(values),
            "id_of_values": aggregate_id(values),
            "has_all_parts": has_all_parts(self.key_types, text),
            "values_of_keys": subquery,
            "requested_keys": subquery if len(values) > 1 else array,
        }

    @property
    def _config_key(self) -> str:
        return f"aggregates.{self.aggregate_type}.backfill"


def open_states(connection: Connection, pipeline: Pipeline, aggregate_type: str, *, delete: bool) -> AggregateStates:
    """Check the setting `backfill` of an aggregate type, and return its AggregateStates. Raises ConfigurationError."""
    aggregate = pipeline.aggregates.get(aggregate_type)
    if aggregate is None:
        hint = f"use an aggregate type of the pipeline: {', '.join(sorted(pipeline.aggregates))}"
        raise ConfigurationError(f"pipeline {pipeline.name} has no aggregate type {aggregate_type!r}", hint)
    if aggregate.backfill is None:
        message = f"aggregate type {aggregate_type!r} has no `backfill` in the pipeline file"
        raise ConfigurationError(message, f"set aggregates.{aggregate_type}.backfill; see docs/backfill.md")
    config_key = f"aggregates.{aggregate_type}.backfill"
    source, backfill, partition_field = pipeline.source, aggregate.backfill, aggregate.partition_field
    types = read_column_types(connection, backfill.table)
    missing_columns = [name for name in backfill.key if name not in types]
    if missing_columns:
        message = f"{config_key}: there is no table {backfill.table} with a column {', '.join(missing_columns)}"
        raise ConfigurationError(message, f"correct {config_key}.table or {config_key}.key in the pipeline file")
    parameters = {"table": ddl.quoted_text(backfill.table), "columns": backfill.key}
    index = connection.execute(UNIQUE_INDEX_SQL, parameters).fetchone()
    if index is None:
        key = ", ".join(backfill.key)
        message = f"{config_key}.key: {backfill.table} has no unique index on {key} alone"
        hint = f"create a unique index on {key}, or set {config_key}.key to the columns of a unique index"
        raise ConfigurationError(message, hint)
    key_types = {name: types[name] for name in backfill.key}
    states = AggregateStates(
        aggregate_type, source, backfill, key_types, index["columns"], partition_field, deletes_rows=delete
    )
    states.check_query(connection)
    return states
