"""Save records in the business transaction, and delete them when they are read from the topic, as proof of delivery.

    with connection.transaction():
        connection.execute("update ...")
        proof.save(connection, [record])
    deliveries.send(record)

A listener on the topic deletes the rows of delivered records. The recovery sends the records of the remaining rows
again, so each record is delivered at least once. The table can also be used without Kafka. For example, a row can be
deleted when a mail server has accepted a mail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaException, Message, Producer
from psycopg import sql
from psycopg.rows import tuple_row

from outbox_events.kafka import offsets
from outbox_events.kafka.record import Record
from outbox_events.producing import stored_record
from outbox_events.producing.database import Connection
from outbox_events.producing.deliveries import DELIVERY_S, Deliveries
from outbox_events.producing.stored_record import READ_S, delivered_event_ids, message_event_id
from outbox_events.sending.psycopg_writer import refuse_autocommit

DEFAULT_TABLE = "public.unproven_record"
MIN_AGE_S = 60.0


def create_table_sql(table: str = DEFAULT_TABLE) -> sql.Composed:
    """Return the statement that creates the table of unproven records if it does not exist."""
    return sql.SQL(
        "create table if not exists {} (event_id text primary key, position bigint generated always as identity, {})"
    ).format(stored_record.identifier(table), stored_record.COLUMN_DEFINITIONS)


class DeliveryProof:
    """Table of records whose delivery is not yet proven. The object does not keep a connection."""

    def __init__(self, table: str = DEFAULT_TABLE) -> None:
        self._table = stored_record.identifier(table)

    def save(self, connection: Connection, records: Sequence[Record]) -> None:
        """Save records in the open business transaction with one statement. Send the records after the commit.

        Raises RefusedError if the rows would be committed separately from the business rows.
        """
        refuse_autocommit(connection)
        statement = sql.SQL(
            "insert into {} ({}) select event_id, topic, partition, key, value, headers from {} "
            "with ordinality as record(event_id, topic, partition, key, value, headers, number) order by number"
        )
        insert = statement.format(self._table, stored_record.COLUMNS, stored_record.UNNEST)
        with psycopg.Cursor(connection) as cursor:
            cursor.execute(insert, stored_record.parameters(records))

    def delete(self, connection: Connection, event_ids: Iterable[str]) -> int:
        """Delete the rows of proven records with one statement, and return their number. Unknown ids are ignored."""
        ids = list(event_ids)
        if not ids:
            return 0
        with psycopg.Cursor(connection) as cursor:
            statement = sql.SQL("delete from {} where event_id = any(%s::text[])")
            return cursor.execute(statement.format(self._table), [ids]).rowcount

    def unproven(self, connection: Connection, *, min_age_s: float = MIN_AGE_S) -> list[Record]:
        """Return the records that were saved at least `min_age_s` seconds ago, in the order they were saved."""
        statement = sql.SQL(
            "select topic, partition, key, value, headers from {} "
            "where created_at <= clock_timestamp() - make_interval(secs => %s::float8) order by position"
        )
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            rows = cursor.execute(statement.format(self._table), [min_age_s]).fetchall()
        return [stored_record.from_row(*row) for row in rows]

    def listen_once(
        self, connection: Connection, consumer: Consumer, *, max_records: int = 500, seconds: float = 1.0
    ) -> int:
        """Read up to `max_records` records, delete their rows and commit. Return the number of deleted rows.

        Call it in a loop. The connection must be in autocommit mode or be used only for this purpose. The consumer must
        set enable.auto.offset.store=False. Offsets are stored after the delete, and the consumer commits them
        periodically. If the delete fails, the next call reads the same records; reading a record again has no effect.
        If the consumer reports an error, raises KafkaException after deleting the rows of the records that were read.
        Raises ConfigurationError if the consumer stores offsets automatically.
        """
        polled = consumer.consume(max_records, timeout=seconds)
        messages = [message for message in polled if message.error() is None]
        deleted = self._delete_read(connection, consumer, messages) if messages else 0
        for message in polled:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        return deleted

    def _delete_read(self, connection: Connection, consumer: Consumer, messages: Sequence[Message]) -> int:
        try:
            deleted = self.delete(connection, filter(None, map(message_event_id, messages)))
            if not connection.autocommit:
                connection.commit()
        except BaseException:
            offsets.rewind(consumer, messages)
            raise
        offsets.store(consumer, messages)
        return deleted

    def recover(
        self,
        connection: Connection,
        producer: Producer,
        settings: Mapping[str, Any],
        *,
        min_age_s: float = MIN_AGE_S,
        seconds: float = READ_S,
    ) -> tuple[int, int]:
        """Read the topics, delete the rows of proven records and resend the other records. Return (proven, resent).

        Rows younger than `min_age_s` are skipped, because a running process might be about to send their records. The
        rows of resent records remain until the listener or the next recovery reads the records. `settings` are consumer
        properties of confluent-kafka, at least bootstrap.servers.
        """
        records = self.unproven(connection, min_age_s=min_age_s)
        topics = {record.topic for record in records}
        delivered = delivered_event_ids(settings, topics, map(stored_record.event_id, records), seconds=seconds)
        proven = self.delete(connection, delivered)
        if not connection.autocommit:
            connection.commit()
        missing = [record for record in records if stored_record.event_id(record) not in delivered]
        deliveries = Deliveries(producer, seconds=DELIVERY_S)
        for record in missing:
            deliveries.send(record)
        deliveries.wait()
        return proven, len(missing)
