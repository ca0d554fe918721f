"""Send events by outbox rows or logical decoding messages, for ways in which the connector reads the WAL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import LiteralString

from outbox_events import OutboxEvent, OutboxTable, emit_many
from outbox_lab.drill.senders.sender import Connection, Send, Sender

EMIT_MESSAGE: LiteralString = "select pg_logical_emit_message(true, %s, %s)"


class OutboxSender(Sender):
    """Inserts rows into the outbox table."""

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[Send]:
        table = OutboxTable(self.options["table"])
        with connection.transaction():
            yield lambda events: emit_many(connection, events, table=table)


class MessageSender(Sender):
    """Emits logical decoding messages, without an outbox table."""

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[Send]:
        def send(events: Sequence[OutboxEvent]) -> None:
            for event in events:
                connection.execute(EMIT_MESSAGE, (self.options["prefix"], _message(event)))

        with connection.transaction():
            yield send


def _message(event: OutboxEvent) -> str:
    created_at = datetime.now(UTC).isoformat()
    return json.dumps({**event.to_row(), "payload": event.payload, "created_at": created_at})
