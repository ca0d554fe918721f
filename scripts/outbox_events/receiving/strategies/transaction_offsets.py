"""Offsets of a consumer group that are committed in Kafka transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from outbox_events.kafka import offsets
from outbox_events.kafka.client_errors import kafka_error
from outbox_events.producing.errors import NotCommittedError
from outbox_events.receiving.event import Event


class TransactionOffsets:
    """Adds offsets to transactions, and knows what was committed before the current position."""

    def __init__(self, consumer: Consumer, seconds: float) -> None:
        self._consumer = consumer
        self._seconds = seconds
        self._committed: dict[tuple[str, int], int] = {}

    def read_committed(self) -> None:
        """Read the committed offsets of the assigned partitions; waits for transactions that are being completed."""
        self._committed = offsets.committed(self._consumer, self._consumer.assignment(), self._seconds)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that were assigned or revoked."""
        for partition in partitions:
            self._committed.pop((partition.topic, partition.partition), None)

    def is_committed(self, event: Event) -> bool:
        """Return whether a transaction with this event had committed when the offsets were read."""
        return event.offset < self._committed.get(event.source, 0)

    def send(self, producer: Producer, events: Sequence[Event]) -> None:
        """Add the offsets after these events to the open transaction, with the consumer's generation of the group.

        Raises NotCommittedError, for example if the group has given the partitions to another consumer.
        """
        ends = {event.source: event.offset + 1 for event in events}
        places = [
            TopicPartition(*source, max(end, self._committed.get(source, 0)))  # a duplicate must not rewind
            for source, end in ends.items()
        ]
        metadata = self._consumer.consumer_group_metadata()
        # After a consumer has left the group its metadata names no member, so that nothing would be left to fence.
        # It joins again only while it polls: metadata read before this check belongs to a member, or is refused here.
        if not self._consumer.memberid():
            message = "the consumer has left the group, so the offsets cannot be committed"
            raise NotCommittedError(message, "raise max.poll.interval.ms, or set a smaller batch_size")
        try:
            producer.send_offsets_to_transaction(places, metadata, self._seconds)
        except KafkaException as error:
            message = f"offsets cannot be added to the Kafka transaction: {kafka_error(error).str()}"
            raise NotCommittedError(
                message, "the events are received again, by the current owner of the partitions"
            ) from error
