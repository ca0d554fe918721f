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

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer
from psycopg import sql

from outbox_events.kafka import offsets
from outbox_events.kafka.record import Record
from outbox_events.kafka.topic_requests import kafka_error
from outbox_events.producing import stored_record
from outbox_events.producing.database import Connection, roll_back, rows_of
from outbox_events.producing.delivered import READ_S, compacted_topics, find_delivered
from outbox_events.producing.deliveries import DELIVERY_S, Deliveries
from outbox_events.producing.errors import NotDeliveredError, is_unusable
from outbox_events.producing.locks import locked, recovery_lock, sending_lock, shared
from outbox_events.producing.stored_record import DELETE_DELIVERED, Recovered, message_event_id
from outbox_events.sending.event import InvalidEventError
from outbox_events.sending.psycopg_writer import refuse_autocommit
from outbox_events.waiting import Deadline

log = logging.getLogger("outbox_events.producing")
DEFAULT_TABLE = "public.unproven_record"
MIN_AGE_S = 60.0
MAX_RECORD_BYTES = 1_000_000
"""Default value of the producer's message.max.bytes. The default limit of brokers is higher."""
SAVE = sql.SQL(
    "insert into {table} (sender, {columns}) select %(sender)s::text, {columns} from {unnest}, {lock} order by number"
)
READ = sql.SQL(
    "select extract(epoch from created_at)::float8, topic, partition, key, value, headers from {table} "
    "where sender = %s::text and created_at <= clock_timestamp() - make_interval(secs => %s::float8) order by position"
)
REMAINING = sql.SQL("select count(*) from {table} where sender = %s::text and event_id <> all(%s::text[])")
STATES = sql.SQL(
    "select event_id, is_superseded or exists (select from {table} as newer where newer.topic = older.topic "
    "and newer.key = older.key and newer.position > older.position) from {table} as older "
    "where event_id = any(%s::text[])"
)


def create_table_sql(table: str = DEFAULT_TABLE) -> sql.Composed:
    """Return the statement that creates the table of unproven records if it does not exist."""
    return sql.SQL(
        "create table if not exists {} (event_id text primary key, position bigint generated always as identity, "
        "sender text not null, {})"
    ).format(stored_record.identifier(table), stored_record.COLUMN_DEFINITIONS)


class DeliveryProof:
    """Table of records whose delivery is not yet proven. The object does not keep a connection.

    `sender` is the name of the service. A recovery sends only the rows that were saved with the same name, so services
    with different names can share the table. A record of more than `max_record_bytes` is refused before the commit.
    Pass the producer's message.max.bytes or the topic's max.message.bytes, if one of them is lower.
    """

    def __init__(
        self, table: str = DEFAULT_TABLE, *, sender: str = "", max_record_bytes: int = MAX_RECORD_BYTES
    ) -> None:
        self.sender = sender
        self._max_record_bytes = max_record_bytes
        self._locks = recovery_lock(table, sender), sending_lock(table)
        self._table = stored_record.identifier(table)

    def save(self, connection: Connection, records: Sequence[Record]) -> None:
        """Save records in the open business transaction with one statement. Send the records after the commit.

        While a recovery sends records again, the statement waits for it. Raises RefusedError if the rows would be
        committed separately from the business rows, and InvalidEventError if a record is too large to be sent later.
        """
        refuse_autocommit(connection)
        for record in records:
            self._refuse_too_large(record)
        values = {"sender": self.sender, "sending_lock": self._locks[1], **stored_record.parameters(records)}
        parts = {"columns": stored_record.COLUMNS, "unnest": stored_record.UNNEST, "table": self._table}
        rows_of(connection, SAVE.format(lock=sql.SQL(shared("sending_lock")), **parts), values)

    def _refuse_too_large(self, record: Record) -> None:
        if record.size > self._max_record_bytes:
            limit = f"the limit is {self._max_record_bytes} (max_record_bytes of DeliveryProof)"
            message = f"a record for topic {record.topic} has {record.size} bytes; {limit}"
            raise InvalidEventError(message, "send a smaller value, for example a reference to a file")

    def delete(self, connection: Connection, event_ids: Iterable[str]) -> int:
        """Delete the rows of proven records with one statement, and return their number. Unknown ids are ignored.

        Older rows of the same keys are marked, so that a recovery does not send them to a compacted topic.
        """
        condition = sql.SQL("event_id = any(%s::text[])")
        ids = list(event_ids)
        if not ids:
            return 0
        [(count,)] = rows_of(connection, DELETE_DELIVERED.format(table=self._table, condition=condition), [ids])
        return int(count)

    def unproven(self, connection: Connection, *, min_age_s: float = MIN_AGE_S) -> list[Record]:
        """Return the sender's records that were saved at least `min_age_s` seconds ago, in the order of the rows."""
        return [record for _, record in self._read(connection, min_age_s)]

    def _read(self, connection: Connection, min_age_s: float) -> list[tuple[float, Record]]:
        """Return the time and the record of each row that is old enough."""
        rows = rows_of(connection, READ.format(table=self._table), [self.sender, min_age_s])
        return [(saved_at, stored_record.from_row(*columns)) for saved_at, *columns in rows]

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
            if not connection.autocommit:
                roll_back(connection)  # otherwise, each later statement would fail
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
    ) -> Recovered:
        """Read the topics, delete the rows of proven records, resend the other records, and return the counts.

        Rows younger than `min_age_s` are skipped, because a running process might be about to send their records. The
        rows of resent records remain until the listener or the next recovery reads the records. A missing record is not
        sent but deleted if its topic is compacted and a newer record of its key was sent or is saved. `settings` are
        consumer properties of confluent-kafka, at least bootstrap.servers. While records are sent again, `save` waits.
        Raises WaitTimeoutError if a wait takes longer than `seconds`, for example for a recovery by another process.
        Raises RefusedError if the connection has an open transaction.
        """
        with locked(connection, self._locks[0], seconds=seconds):
            with connection.transaction():
                rows = self._read(connection, min_age_s)
            records = {stored_record.event_id(record): record for _, record in rows}
            searched = [(record.topic, event_id) for event_id, record in records.items()]
            since = min((saved_at for saved_at, _ in rows), default=0.0)
            found = find_delivered(settings, searched, since, seconds=seconds)
            with connection.transaction():
                proven = self.delete(connection, found.event_ids)
            missing = {
                event_id: record
                for event_id, record in records.items()
                if event_id not in found.event_ids and record.topic not in found.missing_topics
            }
            resent = Recovered()
            if missing:
                with locked(connection, self._locks[1], seconds=seconds):
                    resent = self._resend(connection, producer, settings, missing)
            with connection.transaction():
                [(skipped,)] = rows_of(connection, REMAINING.format(table=self._table), [self.sender, [*records]])
        missing_topics = tuple(sorted(found.missing_topics))
        return replace(resent, proven=proven, missing_topics=missing_topics, skipped=skipped)

    def _resend(
        self, connection: Connection, producer: Producer, settings: Mapping[str, Any], missing: Mapping[str, Record]
    ) -> Recovered:
        """Send the missing records, except superseded records of compacted topics, whose rows are deleted.

        The caller's lock ensures that a newer record is either saved or sent afterwards. DELIVERY_S limits all waits
        for the brokers together.
        """
        deadline = Deadline(DELIVERY_S)
        with connection.transaction():
            states = dict(rows_of(connection, STATES.format(table=self._table), [[*missing]]))
        older = [event_id for event_id, is_superseded in states.items() if is_superseded]
        compacted = compacted_topics(settings, {missing[event_id].topic for event_id in older}, deadline.seconds_left)
        superseded = [event_id for event_id in older if missing[event_id].topic in compacted]
        sent = {key: record for key, record in missing.items() if key in states and key not in superseded}
        try:
            rejected = _deliver_all(Deliveries(producer, seconds=DELIVERY_S, deadline=deadline), sent)
        except BaseException:
            producer.purge()  # otherwise it could deliver an old state after the lock is released
            raise
        with connection.transaction():
            self.delete(connection, superseded)
        return Recovered(resent=len(sent) - len(rejected), superseded=tuple(superseded), rejected=tuple(rejected))


def _deliver_all(deliveries: Deliveries, records: Mapping[str, Record]) -> list[str]:
    """Send all records. Return the ids of the records that the client rejects, for example because of their size.

    Otherwise, such a record would prevent the delivery of all later records in each recovery.
    """
    rejected = []
    for event_id, record in records.items():
        try:
            deliveries.send(record)
        except NotDeliveredError as error:
            if not isinstance(error.__cause__, KafkaException) or is_unusable(kafka_error(error.__cause__)):
                raise
            log.error("event %s was not sent again, and its row remains: %s", event_id, error.message)
            rejected.append(event_id)
    deliveries.wait()
    return rejected
