"""Run the listener of DeliveryProof as the loop of a process.

listener = DeliveryListener(DeliveryProof(), lambda: psycopg.connect(dsn, connect_timeout=5), settings, [topic])
listener.run(stop)  # a signal handler sets the threading.Event `stop`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event as StopEvent
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaException

from outbox_events import limited_calls
from outbox_events.errors import ConfigurationError
from outbox_events.kafka import offsets
from outbox_events.limited_calls import ClientStuckError
from outbox_events.producing.database import Connection
from outbox_events.producing.delivery_proof import DeliveryProof

log = logging.getLogger("outbox_events.producing")
DEFAULTS: dict[str, Any] = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
FIXED: dict[str, Any] = {"enable.auto.offset.store": False, "enable.auto.commit": True}
RECONNECTED = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction, KafkaException)
"""Errors that a new connection can repair. A server that is read-only can be the old primary of a failover."""
BATCH = "process a batch with PostgreSQL and Kafka"
RETRY_S = 1.0
BATCH_S = 30.0
CLOSE_S = 10.0


@dataclass
class ListenerCounters:
    """Counters of a listener since it was created. `errors` counts the errors after which it connected again."""

    batches: int = 0
    proven: int = 0
    errors: int = 0


class DeliveryListener:
    """Deletes the rows of delivered records until it is stopped. Connects again after an outage of either server.

    `connect` opens a connection that only the listener uses. `settings` are consumer properties of confluent-kafka, at
    least bootstrap.servers and group.id. `counters` and `lag` may be read by another thread.
    """

    def __init__(
        self,
        proof: DeliveryProof,
        connect: Callable[[], Connection],
        settings: Mapping[str, Any],
        topics: Sequence[str],
    ) -> None:
        """Raises ConfigurationError if there are no topics or no group.id, or if `connect` is not a function."""
        if not callable(connect):
            raise ConfigurationError("`connect` is not a function", "pass a function such as lambda: psycopg.connect()")
        if isinstance(topics, str) or not topics or not settings.get("group.id"):
            raise ConfigurationError("the listener needs a list of topics and the setting group.id")
        self.counters = ListenerCounters()
        self.lag: Mapping[tuple[str, int], int] = {}
        """Number of offsets after the position of each assigned partition, as of the last batch."""
        self._proof = proof
        self._connect = connect
        self._settings = {**DEFAULTS, **settings, **FIXED}
        self._topics = list(topics)

    def run(self, stop_event: StopEvent, *, poll_s: float = 1.0) -> None:
        """Listen until `stop_event` is set. Then return within `poll_s` + BATCH_S + CLOSE_S seconds.

        Raises ClientStuckError, which is a WaitTimeoutError, if a batch takes longer than `poll_s` + BATCH_S, for
        example while the database is frozen: the process must then end. Raises ConfigurationError for consumer
        properties that the client rejects, and errors that a new connection does not repair, such as a missing table.
        """
        while not stop_event.is_set():
            try:
                self._run_connected(stop_event, poll_s)
            except RECONNECTED as error:
                self.counters.errors += 1
                log.warning("the listener of %s connects again: %s", ", ".join(self._topics), error)
                stop_event.wait(RETRY_S)

    def _run_connected(self, stop_event: StopEvent, poll_s: float) -> None:
        with ExitStack() as opened:
            connection = self._connect()
            if not isinstance(connection, psycopg.Connection):
                message = f"`connect` of the listener returned {type(connection).__name__}, not a psycopg connection"
                raise ConfigurationError(message)
            opened.callback(connection.close)
            consumer = opened.enter_context(self._subscribed())
            listen = partial(self._proof.listen_once, connection, consumer, seconds=poll_s)
            try:
                while not stop_event.is_set():
                    self.counters.proven += limited_calls.call(BATCH, listen, seconds=poll_s + BATCH_S)
                    self.counters.batches += 1
                    self.lag = offsets.lag(consumer)
            except ClientStuckError:
                opened.pop_all()  # the call that does not return still uses both, so closing them would block too
                raise

    @contextmanager
    def _subscribed(self) -> Iterator[Consumer]:
        try:
            consumer = Consumer(self._settings)
        except (KafkaException, TypeError) as error:
            raise ConfigurationError(f"the client rejects the settings of the listener: {error}") from None
        try:
            consumer.subscribe(self._topics)
            yield consumer
        finally:
            with suppress(ClientStuckError):  # the broker does not respond, and removes the member after a timeout
                limited_calls.call("leave the group", consumer.close, seconds=CLOSE_S)
