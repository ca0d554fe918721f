"""Write the outbox rows of dead letters again: move rows to the end of the table, or insert rows that were deleted."""

from __future__ import annotations

import json
import re
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from outbox_events.errors import RefusedError
from outbox_kit.dead_letters.dead_letter import DeadLetter
from outbox_kit.pipeline import Source
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection
from outbox_kit.recovery.resend_rows import move_to_end, written_columns

REPUBLISH_HINT = "send the latest state with `outbox dead-letter replay --republish`, or let the service write it"
# Types whose values PostgreSQL can read from the text in a dead letter. Debezium writes other types as numbers.
READABLE_TYPE = re.compile(
    r"text|character( varying)?(\(\d+\))?|uuid|jsonb?|smallint|integer|bigint|boolean|bytea"
    r"|timestamp(\(\d\))? with time zone"
)
INSERTION: LiteralString = """
    insert into {table} ({columns}) select {values}
    from json_populate_record(null::{table}, %(row)s::json) as populated"""
BYTES: LiteralString = "decode(%(row)s::json ->> {name}, 'base64')"


def insert_again(connection: Connection, source: Source, dead_letter: DeadLetter, *, has_row: bool) -> None:
    """Write a dead letter's row again, with the same event id, in the caller's transaction. Raises RefusedError.

    An existing row is moved unchanged, because it may have been corrected. A deleted row is read from the dead letter.
    """
    try:
        with connection.transaction():
            if has_row:
                move_to_end(connection, source, [dead_letter.event_id])
            else:
                _insert(connection, source, dead_letter)
    except (psycopg.DataError, psycopg.IntegrityError) as error:  # its text can contain values of the row
        message = (
            f"event {dead_letter.event_id}: PostgreSQL rejects the row of the dead letter ({type(error).__name__})"
        )
        raise RefusedError(message, REPUBLISH_HINT) from None


def _insert(connection: Connection, source: Source, dead_letter: DeadLetter) -> None:
    text, row = _parse_row(dead_letter)
    types = postgres_client.read_column_types(connection, source.table)
    names = [name for name in written_columns(connection, source) if name in row]
    if source.columns.payload not in names:
        raise RefusedError("the outbox row was deleted, and the dead letter has no payload", REPUBLISH_HINT)
    unreadable = [name for name in names if row[name] is not None and READABLE_TYPE.fullmatch(types[name]) is None]
    if unreadable:
        text = ", ".join(f"{name} ({types[name]})" for name in unreadable)
        raise RefusedError(f"the outbox row was deleted, and the dead letter does not contain {text}", REPUBLISH_HINT)
    values = [
        sql.SQL(BYTES).format(name=sql.Literal(name))
        if types[name] == "bytea"
        else sql.SQL("populated.{}").format(sql.Identifier(name))
        for name in names
    ]
    statement = sql.SQL(INSERTION).format(
        table=ddl.qualified_name(source.table),
        columns=sql.SQL(", ").join(map(sql.Identifier, names)),
        values=sql.SQL(", ").join(values),
    )
    connection.execute(statement, {"row": text})


def _parse_row(dead_letter: DeadLetter) -> tuple[str, dict[str, Any]]:
    """Return a dead letter's value both as text, from which PostgreSQL reads exact numbers, and as parsed columns."""
    try:
        text = (dead_letter.value or b"").decode()
        row = json.loads(text)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise RefusedError("the value of the dead letter is not a JSON object", REPUBLISH_HINT)
    return text, row
