"""Compare the sequence of the outbox table's column `seq` with the rows, because the kit orders rows by `seq`."""

from __future__ import annotations

from typing import LiteralString

from psycopg import sql

from outbox_events.errors import RejectedError
from outbox_kit.pipeline import Source
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import DOCTOR_HINT, Connection
from outbox_kit.postgres.verify_queries import last_pages

SEQUENCE: LiteralString = """
    select is_readable, case when is_readable then coalesce(pg_sequence_last_value(name::regclass), 0) end as last
    from (select name, has_sequence_privilege(name, 'usage, select') as is_readable
          from (select pg_get_serial_sequence(%(table)s, attname) as name from pg_attribute
                where attrelid = to_regclass(%(table)s) and attname = 'seq' and not attisdropped) as column_sequence
          where name is not null) as sequence"""
HIGHEST: LiteralString = "select max(seq) as seq from {table} where ctid >= {first}::tid"


def last_number(connection: Connection, source: Source) -> int | None:
    """Return the last value of the sequence of `seq`; None if the table has no column `seq` with a sequence.

    Raises RejectedError if the sequence cannot be read.
    """
    row = connection.execute(SEQUENCE, {"table": ddl.quoted_text(source.table)}).fetchone()
    if row is not None and not row["is_readable"]:
        raise RejectedError(f"permission denied for the sequence of {source.table}.seq", DOCTOR_HINT)
    return None if row is None else int(row["last"])


def sequence_repair(connection: Connection, source: Source) -> str:
    """Return the statement that advances the sequence to the highest stored `seq`; empty if it is not behind.

    The sequence is compared with the rows of the last pages, which contain the newest rows. A restart, a logical
    replica or a restored table can leave it behind. Raises UnreachableError, RejectedError.
    """
    last = last_number(connection, source)
    pages = last_pages(connection, source.table)
    if last is None or not pages:
        return ""
    queries = [sql.SQL(HIGHEST).format(table=table, first=first) for table, first in pages]
    rows = connection.execute(sql.SQL(" union all ").join(queries)).fetchall()
    if max((row["seq"] or 0 for row in rows), default=0) <= last:
        return ""
    table = ddl.qualified_name(source.table)
    name = sql.SQL("pg_get_serial_sequence({}, 'seq')").format(sql.Literal(ddl.quoted_text(source.table)))
    return sql.SQL("select setval({}, (select max(seq) from {}))").format(name, table).as_string(None)
