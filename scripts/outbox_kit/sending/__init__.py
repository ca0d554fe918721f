"""What a service imports to write events: rows of the outbox table, inside its own transaction.

    with connection.transaction():
        connection.execute("update ...")
        emit(connection, aggregate_type="book", aggregate_id=book_id, event_type="book_changed", payload=book)

Nothing here commits, and nothing here talks to Kafka: the relay reads committed rows from the
database log. See docs/sending.md.
"""

from outbox_kit.sending.event import InvalidEventError, OutboxEvent
from outbox_kit.sending.insert import emit, emit_async, emit_many

__all__ = ["InvalidEventError", "OutboxEvent", "emit", "emit_async", "emit_many"]
