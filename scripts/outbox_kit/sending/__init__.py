"""Library for services that write events: rows of the outbox table, in the service's own transaction.

    with connection.transaction():
        connection.execute("update ...")
        emit(connection, aggregate_type="book", aggregate_id=book_id, event_type="book_changed", payload=book)

The functions neither commit nor connect to Kafka: the connector reads committed rows from the WAL. They need no
pipeline file. See docs/sending.md.
"""

from outbox_kit.sending.event import InvalidEventError, OutboxEvent
from outbox_kit.sending.insert import emit, emit_async, emit_many
from outbox_kit.sending.outbox_table import OutboxTable

__all__ = ["InvalidEventError", "OutboxEvent", "OutboxTable", "emit", "emit_async", "emit_many"]
