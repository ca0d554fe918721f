"""Read the event ids of the rows that a slot will send, without advancing the slot.

Before the first insert (I) into a relation, pgoutput sends a relation message (R) that contains the column names; see
the logical replication message formats in PostgreSQL's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import LiteralString

import psycopg

from outbox_kit.pipeline import Source
from outbox_kit.postgres.client import Connection

MAX_CHANGES = 200_000
TIMEOUT: LiteralString = "set local statement_timeout = '60s'"
CHANGES: LiteralString = """
    select data from pg_logical_slot_peek_binary_changes(%(slot)s, '0/0'::pg_lsn + %(upto)s::numeric, %(maximum)s,
        'proto_version', '1', 'publication_names', %(publication)s)"""
NULL_OR_UNCHANGED = (b"n", b"u")


def peek_event_ids(connection: Connection, source: Source, *, upto: int) -> set[str] | None:
    """Return the event ids of the outbox rows that the slot sends up to the LSN `upto`.

    Return None if the slot is active, the login lacks a privilege, reading takes too long, the slot has more than
    MAX_CHANGES changes, or the publication contains other tables.
    """
    parameters = {
        "slot": source.slot,
        "upto": upto,
        "maximum": MAX_CHANGES,
        "publication": f'"{source.publication}"',
    }
    try:
        with connection.transaction():
            connection.execute(TIMEOUT)
            messages = [bytes(row["data"]) for row in connection.execute(CHANGES, parameters)]
    except (psycopg.errors.ObjectInUse, psycopg.errors.QueryCanceled, psycopg.errors.InsufficientPrivilege):
        return None
    return None if len(messages) >= MAX_CHANGES else inserted_ids(messages, source)


def inserted_ids(messages: Iterable[bytes], source: Source) -> set[str] | None:
    """Return the event ids of the inserts in pgoutput messages; None if one of them inserts into another table."""
    columns: dict[bytes, int | None] = {}
    event_ids = set[str]()
    for message in messages:
        kind, relation = message[:1], message[1:5]
        if kind == b"R":
            columns[relation] = _id_column(message, source)
        elif kind == b"I":
            number = columns.get(relation)
            if number is None:
                return None
            event_ids.add(_column(message, number))
    return event_ids


def _id_column(message: bytes, source: Source) -> int | None:
    """Return the index of the id column if the relation is the outbox table, else None."""
    namespace, name, rest = message[5:].split(b"\0", maxsplit=2)
    if f"{namespace.decode()}.{name.decode()}" != source.table:
        return None
    (count,) = struct.unpack_from("!H", rest, 1)
    rest, names = rest[3:], []
    for _ in range(count):
        column, tail = rest[1:].split(b"\0", maxsplit=1)
        names.append(column.decode())
        rest = tail[8:]
    return names.index(source.columns.id) if source.columns.id in names else None


def _column(message: bytes, number: int) -> str:
    """Return the text of the column at index `number` in an insert message."""
    position = 8  # I, 4 bytes of relation, N, 2 bytes of column count
    for _ in range(number):
        if message[position : position + 1] in NULL_OR_UNCHANGED:
            position += 1
        else:
            position += 5 + int(struct.unpack_from("!I", message, position + 1)[0])
    (length,) = struct.unpack_from("!I", message, position + 1)
    return message[position + 5 : position + 5 + length].decode()
