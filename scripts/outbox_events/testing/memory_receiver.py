"""Run a Receiver on events in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, Self, TypeAlias, cast

from confluent_kafka import Consumer, TopicPartition

from outbox_events.errors import ConfigurationError, WaitTimeoutError
from outbox_events.receiving.event import Decode, Event
from outbox_events.receiving.handlers import Handlers
from outbox_events.receiving.receiver import Counters, Receiver
from outbox_events.receiving.recoverers import ReceiverStoppedError, Recoverer, stop
from outbox_events.receiving.retries import Reaction, Retries
from outbox_events.receiving.strategies.bloom.bloom_filter import BloomFilter
from outbox_events.receiving.strategies.kafka_transactions import KafkaTransactions
from outbox_events.receiving.strategies.stored_offsets import StoredOffsets
from outbox_events.receiving.strategy import Context, Strategy, Work
from outbox_events.testing.emitted_events import removed_after_error
from outbox_events.testing.events import DEFAULT_TOPIC
from outbox_events.testing.memory_consumer import MemoryConsumer

MAX_POLLS = 100
"""Number of polls, in addition to the attempts of the retries, in which at least one event must be finished."""


class TestReceiver(Generic[Context]):
    """Runs a Receiver with a strategy and handlers on events in memory, with the retries but without their delays.

        receiver = TestReceiver(ProcessedEvents(connect), handlers)
        receiver.deliver([event("book_lent", {"book": "b-1"})])

    Strategies whose state is in PostgreSQL use the database of the test. `InMemory` needs no database. StoredOffsets,
    BloomFilter and KafkaTransactions need brokers. `counters` contains the counters of the Receiver.
    """

    __test__ = False  # pytest would collect a class with this name

    def __init__(
        self,
        strategy: Strategy[Context],
        handlers: Handlers[Context],
        *,
        decode: Decode | None = None,
        retries: Retries | None = None,
        recoverer: Recoverer = stop,
        batch_size: int = 100,
        counters: Counters | None = None,
        group: str = "test",
    ) -> None:
        """`decode` decodes events that were made from bytes. The other arguments are those of Receiver.

        Raises ConfigurationError for a strategy that needs brokers.
        """
        if isinstance(strategy, BloomFilter | KafkaTransactions | StoredOffsets):
            message = f"{type(strategy).__name__} reads the state of topics from brokers"
            raise ConfigurationError(message, "pass ProcessedEvents or InMemory, or use Kafka: see docs/testing.md")
        self._consumer = MemoryConsumer()
        self._delivered: dict[str, Event] = {}
        self._decode_bytes = decode
        self._retries = retries or Retries()
        self._error: Exception | None = None
        self.receiver: Receiver[Context] = Receiver(
            {"bootstrap.servers": "memory", "group.id": group, "partition.assignment.strategy": "cooperative-sticky"},
            [DEFAULT_TOPIC, *handlers.topics],
            cast("Strategy[Context]", _WithRollback(strategy)),
            handlers,
            decode=self._decode,
            retries=replace(self._retries, first_delay_s=0, max_delay_s=0, reaction=self._reaction),
            recoverer=recoverer,
            batch_size=batch_size,
            counters=counters,
            create=lambda _: cast("Consumer", self._consumer),
        )
        self.counters = self.receiver.counters

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def committed(self) -> dict[tuple[str, int], int]:
        """Offset of the next event, by topic and partition."""
        return dict(self._consumer.stored)

    def deliver(self, events: Iterable[Event]) -> None:
        """Append the events to their partitions in this order, and poll until all of them are finished.

        To deliver an event twice, pass it twice. Raises ReceiverStoppedError, whose cause is the error of the handler,
        if the receiver stops before an event; the next call continues at this event. Raises WaitTimeoutError if an
        event is retried without a limit, for example because the database is unreachable.
        """
        for event in events:
            self._delivered[self._consumer.append(event)] = event
        polls, stored = 0, self.committed
        while self._consumer.has_unfinished:
            try:
                self.receiver.poll(0)
            except ReceiverStoppedError as stopped:
                raise stopped from stopped.__cause__ or self._error
            polls, stored = (polls + 1 if self.committed == stored else 0), self.committed
            if polls > MAX_POLLS + self._retries.attempts:
                raise WaitTimeoutError("the events are retried without a limit") from self._error

    def close(self) -> None:
        """Close the receiver and its strategy."""
        self.receiver.close()

    def _decode(self, event: Event) -> Any:  # noqa: ANN401 - the decoder decides
        decode = self._delivered[event.place].decode or self._decode_bytes
        return event.raw_value if decode is None else decode(event)

    def _reaction(self, error: Exception) -> Reaction:
        self._error = error
        return self._retries.reaction_to(error)


MakeReceiver: TypeAlias = Callable[..., TestReceiver[Any]]
"""Type of the fixture `make_receiver`."""


class _WithRollback:
    """A strategy after whose failed transactions the collected events are removed, and that needs no brokers."""

    def __init__(self, strategy: Strategy[Any]) -> None:
        self._strategy = strategy

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of the strategy
        return getattr(self._strategy, name)

    def assigned(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Start at the beginning, because the receiver would ask the brokers for committed offsets."""
        return partitions

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Any]]:
        with removed_after_error(), self._strategy.transaction(events) as work:
            yield work

    @contextmanager
    def recovery(self, event: Event) -> Iterator[Any]:
        with removed_after_error(), self._strategy.recovery(event) as context:
            yield context
