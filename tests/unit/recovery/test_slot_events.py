"""Event ids in pgoutput messages."""

from __future__ import annotations

import struct

from outbox_kit.pipeline import Source
from outbox_kit.recovery.slot_events import inserted_ids

SOURCE = Source(table="public.outbox_event", publication="p", slot="s")
COMMIT = b"C" + bytes(25)


def relation(number: int, name: str, *columns: str) -> bytes:
    described = b"".join(b"\0" + column.encode() + b"\0" + bytes(8) for column in columns)
    return (
        b"R"
        + struct.pack("!I", number)
        + b"public\0"
        + name.encode()
        + b"\0d"
        + struct.pack("!H", len(columns))
        + described
    )


def insert(number: int, *values: str | None) -> bytes:
    columns = b"".join(
        b"n" if value is None else b"t" + struct.pack("!I", len(value)) + value.encode() for value in values
    )
    return b"I" + struct.pack("!I", number) + b"N" + struct.pack("!H", len(values)) + columns


def test_reads_the_id_wherever_its_column_is() -> None:
    messages = [relation(7, "outbox_event", "payload", "seq", "id"), insert(7, "{}", None, "a"), COMMIT]
    assert inserted_ids([*messages, insert(7, None, "2", "b")], SOURCE) == {"a", "b"}


def test_ignores_transactions_without_rows() -> None:
    assert inserted_ids([b"B" + bytes(20), COMMIT], SOURCE) == set()


def test_an_insert_of_another_table_is_unknown() -> None:
    """An example is a partition whose rows are not published as rows of the outbox table."""
    messages = [relation(7, "outbox_event", "id"), relation(8, "outbox_event_2026", "id"), insert(7, "a")]
    assert inserted_ids(messages, SOURCE) == {"a"}
    assert inserted_ids([*messages, insert(8, "b")], SOURCE) is None
