"""Query the newest outbox rows of aggregates. The cost does not depend on the size of the table."""

from __future__ import annotations

from collections.abc import Collection
from typing import LiteralString

from psycopg import errors, sql

from outbox_events.errors import RejectedError
from outbox_kit.pipeline import Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.aggregate_queries import refuse_row_security
from outbox_kit.postgres.client import Connection, Row, read_column_types
from outbox_kit.postgres.verify_queries import last_pages

MAX_ROWS, MAX_AGE = 1000, "7 days"
# For each aggregate, select its newest row that is due and the rows inserted after it, as latest_events() does. The
# limit applies to the same number of aggregates of each type, as far as a type has as many.
RECENT_EVENTS: LiteralString = """
    select aggregate_type, key, array_agg(id order by seq) as event_ids, (array_agg(seconds order by seq))[1] as seconds
    from (select *, max(seq) filter (where due) over (partition by aggregate_type, key) as first
          from ({rows}) as sampled) as numbered
    where seq >= first group by aggregate_type, key
    order by row_number() over (partition by aggregate_type order by max(first) desc), aggregate_type limit %(limit)s"""
LAST_ROWS: LiteralString = """
    select {type} as aggregate_type, {key} as key, {id}::text as id, {seq} as seq,
           extract(epoch from {created_at})::float8 as seconds,
           {created_at} between now() - %(max_age)s::interval and now() - make_interval(secs => %(older_than)s) as due
    from {table} where {type} = any(%(types)s) and {ctid} >= {first}::tid"""
RECENT_EVENT: LiteralString = """
    select exists (select from {table} where {type} = %(type)s and {ctid} >= {first}::tid
                   and {created_at} > now() - %(max_age)s::interval) as found"""


def recent_events(
    connection: Connection, source: Source, aggregate_types: Collection[str], *, older_than: float
) -> list[Row]:
    """Return aggregate_type, key, event_ids and seconds for the aggregates of the newest due rows.

    A row is due if it is older than `older_than` seconds, but not older than MAX_AGE. `event_ids` contains the ids of
    the newest due row of an aggregate and of the rows inserted after it, and `seconds` its created_at as a Unix time.
    Only the last pages of the table are read. Raises RejectedError.
    """
    if "seq" not in read_column_types(connection, source.table):
        raise RejectedError(
            f"table {source.table} has no column seq", "compare the states with `outbox verify --states`"
        )
    names, pages = _names(source), last_pages(connection, source.table)
    rows = [sql.SQL(LAST_ROWS).format(**names, table=table, first=first) for table, first in pages]
    parameters = {"types": [*aggregate_types], "older_than": older_than, "max_age": MAX_AGE, "limit": MAX_ROWS}
    try:
        with connection.transaction():
            refuse_row_security(connection)
            query = sql.SQL(RECENT_EVENTS).format(rows=sql.SQL(" union all ").join(rows))
            return connection.execute(query, parameters).fetchall()
    except errors.InsufficientPrivilege as error:
        columns, role = sql.SQL(", ").join(names.values()), sql.Identifier(connection.info.user)
        grant = sql.SQL("grant select ({}) on {} to {}").format(columns, ddl.qualified_name(source.table), role)
        raise RejectedError(str(error.diag.message_primary), f"run `{grant.as_string(None)}`") from None


def has_recent_event(connection: Connection, source: Source, aggregate_type: str) -> bool:
    """Return whether there is a row of this type that recent_events() returns once it is due."""
    names, parameters = _names(source), {"type": aggregate_type, "max_age": MAX_AGE}
    queries = [
        sql.SQL(RECENT_EVENT).format(**names, table=table, first=first)
        for table, first in last_pages(connection, source.table)
    ]
    return any(connection.execute(query, parameters).fetchall()[0]["found"] for query in queries)


def _names(source: Source) -> dict[str, sql.Identifier]:
    columns = source.columns
    names = {"id": columns.id, "type": columns.aggregate_type, "key": columns.aggregate_id}
    names |= {"created_at": columns.created_at, "seq": "seq", "ctid": "ctid"}
    return {name: sql.Identifier(column) for name, column in names.items()}
