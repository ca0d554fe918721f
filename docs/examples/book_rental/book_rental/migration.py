"""What the service needs besides its pipeline: tables, and a topic for requests that cannot be handled."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from book_rental.settings import Settings
from outbox_events import processed_table

TABLES = """
create schema if not exists rental;
create table if not exists rental.rental (
  id uuid primary key default gen_random_uuid(), book_id uuid not null, reader text not null,
  status text not null default 'REQUESTED', title text, author text, reason text
);
create table if not exists rental.author (id uuid primary key, name text not null);
create table if not exists rental.book (
  id uuid primary key, title text not null, author_id uuid not null, is_removed boolean not null default false,
  rental_id uuid unique  -- the rental that has the book; null while the book is available
);
"""
OUTBOX = "rental.outbox_event"  # created by `outbox apply`
PROCESSED = "rental.processed_event"
DEAD_LETTERS = "book-rental.dead-letter"
DEAD_LETTER_BYTES = 2_000_000  # the record and the headers that tell the cause


def migrate(settings: Settings) -> None:
    """Create what is missing."""
    with settings.connect() as connection:
        connection.execute(TABLES)
        connection.execute(processed_table.create_table_sql(PROCESSED))
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(DEAD_LETTER_BYTES)}
    topic = NewTopic(DEAD_LETTERS, num_partitions=1, config=config)
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    try:
        admin.create_topics([topic])[DEAD_LETTERS].result(30)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
