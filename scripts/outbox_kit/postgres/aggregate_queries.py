"""Query the latest outbox rows of aggregates, and the keys and current states of the aggregates that exist."""

from __future__ import annotations

from collections.abc import Collection
from typing import LiteralString

from psycopg import errors, sql

from outbox_events.errors import ConfigurationError, RejectedError
from outbox_kit.pipeline import Aggregate, Backfill, Source
from outbox_kit.pipeline.key_columns import EVERY_ROW, aggregate_id, all_keys, identifiers
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import DOCTOR_HINT, Connection, Row, read_column_types

QUERY_TIMEOUT_S = 600

# For each aggregate, select the newest row that is due and the rows inserted after it. A row is due if it is old
# enough, or if its age is unknown because created_at is in the future. created_at never decides which row is newer.
# created_at is returned as text, because PostgreSQL allows infinite values and years after 9999, but Python does not.
LATEST_EVENTS: LiteralString = """
    select key, array_agg(id order by number) as event_ids, bool_or(deleted) as deleted,
           (array_agg(created_at order by number))[1] as created_at, bool_or(in_future) or count(*) > 1 as recent
    from (select key, id, deleted, created_at, in_future, number,
                 max(number) filter (where in_future or old) over (partition by key) as due
          from (select {key} as key, {id}::text as id, to_json({created_at}) #>> '{{}}' as created_at,
                       {is_null} or {event_type} = any(%(tombstones)s) as deleted, {created_at} > now() as in_future,
                       {created_at} < now() - make_interval(secs => %(seconds)s) as old,
                       row_number() over (partition by {key} order by {insertion_order}) as number
                from {table}
                where {type} = %(type)s and (%(keys)s::text[] is null or {key} = any(%(keys)s))) numbered) rows
    where number >= due group by key"""
# Insertion order of the rows of one aggregate. It equals the commit order, because a writer holds the aggregate's lock
# until it commits. Without seq, the transaction ids and the positions in the table are the best approximation.
BY_SEQ: LiteralString = "seq nulls first"
BY_TRANSACTION: LiteralString = "age(xmin) desc, ctid"
# Keys of the existing aggregates. A null payload means that the aggregate is deleted although it has a business row. A
# row with a null in its key has no aggregate_id.
LIVE_KEYS = """
    select {id} as key from (
    {query}
    ) as aggregates where {id} is not null and coalesce(payload::jsonb <> 'null'::jsonb, false)"""
# States, as text, of the aggregates whose keys are requested.
STATES = """
    select {id} as key, payload::jsonb::text as state from (
    {query}
    ) as aggregates where coalesce(payload::jsonb <> 'null'::jsonb, false)"""
# Foreign keys that delete rows of a table when the rows they reference in another table are deleted.
CASCADES: LiteralString = """
    select conname as name, confrelid::regclass::text as parent from pg_constraint
    where conrelid = to_regclass(%s) and contype = 'f' and confdeltype = 'c' order by 1"""
# Conditions under which an outbox row is a deletion. JSON null is a deletion only if the aggregate has `payload: json`.
IS_JSONB_NULL: LiteralString = "coalesce({payload} = 'null'::jsonb, true)"
IS_JSON_NULL: LiteralString = "coalesce({payload}::text ~ '^[ \t\n\r]*null[ \t\n\r]*$', true)"
IS_SQL_NULL: LiteralString = "{payload} is null"


class UnreadableStatesError(RejectedError):
    """The login lacks a privilege for a `backfill` query, or row security hides rows. No state was compared or sent."""


def latest_events(
    connection: Connection,
    source: Source,
    aggregate_type: str,
    aggregate: Aggregate,
    *,
    older_than: float,
    seconds: float = QUERY_TIMEOUT_S,
    keys: list[str] | None = None,
) -> list[Row]:
    """Return key, event_ids, created_at, recent and deleted for each aggregate that has a due outbox row.

    A row is due if it is older than `older_than` seconds, or if its created_at is in the future. `created_at` is the
    time of the newest due row. `event_ids` contains the ids of this row and of the rows inserted after it. `deleted` is
    true if one of these rows is a deletion. `recent` is true if one of these rows may have just been committed. If
    `keys` is set, the rows of other keys are ignored.
    """
    columns, types = source.columns, read_column_types(connection, source.table)
    is_json_null = IS_JSONB_NULL if types.get(columns.payload) == "jsonb" else IS_JSON_NULL
    is_null = is_json_null if aggregate.payload == "json" else IS_SQL_NULL
    query = sql.SQL(LATEST_EVENTS).format(
        key=sql.Identifier(columns.aggregate_id),
        id=sql.Identifier(columns.id),
        type=sql.Identifier(columns.aggregate_type),
        event_type=sql.Identifier(columns.event_type),
        is_null=sql.SQL(is_null).format(payload=sql.Identifier(columns.payload)),
        created_at=sql.Identifier(columns.created_at),
        insertion_order=sql.SQL(BY_SEQ if "seq" in types else BY_TRANSACTION),
        table=ddl.qualified_name(source.table),
    )
    with connection.transaction():
        _set_query_timeout(connection, seconds)
        parameters = {"type": aggregate_type, "seconds": older_than, "tombstones": aggregate.tombstone_event_types}
        return connection.execute(query, {**parameters, "keys": keys}).fetchall()


def live_keys(
    connection: Connection, backfill: Backfill, *, seconds: float = QUERY_TIMEOUT_S, limit: int | None = None
) -> set[str]:
    """Return the keys of all aggregates for which the backfill query returns a state, or of the first `limit` ones.

    Raises UnreadableStatesError. Raises ConfigurationError if PostgreSQL rejects the query or its values.
    """
    condition = EVERY_ROW if limit is None else sql.SQL(" limit {}").format(limit)
    query = _backfill_query(LIVE_KEYS, backfill, condition)
    return {row["key"] for row in _run_backfill_query(connection, backfill, query, seconds)}


def states(
    connection: Connection, backfill: Backfill, keys: Collection[str], *, seconds: float = QUERY_TIMEOUT_S
) -> dict[str, str]:
    """Return a mapping from each existing key in `keys` to its JSON state. Raises the same errors as live_keys()."""
    requested = sql.SQL(" where {} = any({})").format(aggregate_id(identifiers(backfill.key)), list(keys))
    query = _backfill_query(STATES, backfill, requested)
    return {row["key"]: row["state"] for row in _run_backfill_query(connection, backfill, query, seconds)}


def cascading_foreign_keys(connection: Connection, table: str) -> dict[str, str]:
    """Return a mapping from each foreign key of `table` with ON DELETE CASCADE to the table that it references."""
    rows = connection.execute(CASCADES, (ddl.quoted_text(table),))
    return {row["name"]: row["parent"] for row in rows}


def _backfill_query(template: str, backfill: Backfill, condition: sql.Composable) -> str:
    """Insert the backfill query, for the keys of all business rows that meet the condition, into a template."""
    keys = all_keys(backfill.key, ddl.qualified_name(backfill.table), condition)
    row_id = aggregate_id(identifiers(backfill.id_columns)).as_string(None)
    return template.replace("{id}", row_id).replace("{query}", backfill.query_for(keys.as_string(None)))


def _run_backfill_query(connection: Connection, backfill: Backfill, query: str, seconds: float) -> list[Row]:
    try:
        with connection.transaction():
            _set_query_timeout(connection, seconds)
            refuse_row_security(connection)
            # Without parameters, psycopg does not interpret `%` in the query.
            return connection.execute(query.encode()).fetchall()
    except errors.InsufficientPrivilege as error:
        raise privilege_error(connection, f"backfill of table {backfill.table}", error) from None
    except (errors.ProgrammingError, errors.DataError) as error:
        message = f"backfill of table {backfill.table}: {error.diag.message_primary}"
        hint = "correct `table`, `key` and `query` of this `backfill` in the pipeline file"
        raise ConfigurationError(message, hint) from None


def refuse_row_security(connection: Connection) -> None:
    """Make queries in this transaction fail if row security would omit rows from their results."""
    connection.execute("set local row_security = off")


def privilege_error(connection: Connection, subject: str, error: errors.InsufficientPrivilege) -> UnreadableStatesError:
    """Return the error to raise for a query that failed because of a missing privilege or row security."""
    message = f"{subject}: {error.diag.message_primary}"
    if "row-level security" not in message:
        return UnreadableStatesError(message, DOCTOR_HINT)
    statement = sql.SQL("alter role {} bypassrls").format(sql.Identifier(connection.info.user))
    return UnreadableStatesError(message, f"run `{statement.as_string(None)}` as a superuser")


def _set_query_timeout(connection: Connection, seconds: float) -> None:
    # PostgreSQL interprets 0 as no timeout.
    timeout_ms = max(1, round(min(seconds, QUERY_TIMEOUT_S) * 1000))
    connection.execute(sql.SQL("set local statement_timeout = {}").format(timeout_ms))
