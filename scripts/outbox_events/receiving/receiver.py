"""Run the loop of a consumer: poll events, apply them with a strategy, retry, and commit offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from threading import Event as StopEvent
from threading import current_thread, main_thread
from typing import Any, Generic, Self, TypeVar
from weakref import WeakValueDictionary

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from outbox_events import limited_calls
from outbox_events.errors import ConfigurationError, RejectedError
from outbox_events.kafka import offsets
from outbox_events.limited_calls import ClientStuckError
from outbox_events.receiving.client_log import ClientLog
from outbox_events.receiving.event import Decode, Event, from_message
from outbox_events.receiving.exit_limit import exit_limit
from outbox_events.receiving.function_bodies import require_body
from outbox_events.receiving.handler_loop import HandlerLoop
from outbox_events.receiving.handlers import Handlers
from outbox_events.receiving.observed import Observe, committed
from outbox_events.receiving.partition_states import Partition
from outbox_events.receiving.partitions import Assignments, Attempt, PausedPartitions
from outbox_events.receiving.recoverers import (
    AlreadyAppliedError,
    Failure,
    ReceiverStoppedError,
    Recoverer,
    describe,
    stop,
    stopped_error,
)
from outbox_events.receiving.retries import Reaction, Retries, is_kafka_outage, require_at_least
from outbox_events.receiving.status import Progress, ReceiverStatus
from outbox_events.receiving.strategies.database import max_poll_interval_ms
from outbox_events.receiving.strategy import Context, Strategy

log = logging.getLogger("outbox_events.receiving")
Argument = TypeVar("Argument")
DEFAULTS: dict[str, Any] = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
# The receiver stores offsets, and the client commits the stored offsets. The client reports the end of a partition,
# because its position is before the markers of transactions.
FIXED: dict[str, Any] = {"enable.auto.offset.store": False, "enable.auto.commit": True, "enable.partition.eof": True}
CLOSE_S = 20.0
JOIN_S = 10.0
BROKERS = ("bootstrap.servers", "metadata.broker.list")
# Not a reason to stop: after a batch that exceeded max.poll.interval.ms, the client rejoins the group.
EXPECTED = KafkaError._MAX_POLL_EXCEEDED
HINTS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic first; `outbox apply` creates those of a pipeline",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant Read and Describe on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant Read on the group",
    KafkaError._AUTO_OFFSET_RESET: "restart the receiver, which names the missing records; "
    "if the topic was created again, set the group's offsets with kafka-consumer-groups.sh --reset-offsets",
}
IN_USE = WeakValueDictionary[int, Strategy[Any]]()
"""Strategies by identity, whose connection, group and state belong to a receiver that is not closed."""
Hook = Callable[[str, int], None]
"""Called with the name of a counter and the number that was added to it."""


class Receiver(Generic[Context]):
    """Joins a consumer group, and applies events with a strategy. Not thread-safe.

        with Receiver(settings, ["library.book"], ProcessedEvents(connect), handlers) as receiver:
            receiver.run(stop)

    `settings` are the properties of a confluent-kafka Consumer. Without `decode`, the value of an event is its raw
    bytes. Up to `batch_size` events share one transaction. If the transaction fails, each event is applied in a
    separate transaction, and its handler is called again. Set `batch_size` to 1 if handlers have effects outside the
    transaction. A batch must end within max.poll.interval.ms. `counters` counts events, and `paused` contains the
    partitions that wait for a retry.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Sequence[str],
        strategy: Strategy[Context],
        handlers: Handlers[Context],
        *,
        decode: Decode | None = None,
        retries: Retries | None = None,
        recoverer: Recoverer = stop,
        batch_size: int = 100,
        counters: Counters | None = None,
        create: Callable[[dict[str, Any]], Consumer] = Consumer,
    ) -> None:
        """Subscribe. Raises ConfigurationError if a setting conflicts with the strategy.

        `create` creates the consumer from its settings.
        """
        require_body(decode)
        require_body(recoverer, can_be_async=True)
        require_at_least(1, "batch_size", batch_size)
        if isinstance(topics, str) or not all(topics) or not topics:
            raise ConfigurationError(f"topics must be a non-empty list of topic names, not {topics!r}")
        unread = handlers.topics - set(topics)
        if unread and not any(name.startswith("^") for name in topics):  # a pattern
            raise ConfigurationError(f"handlers are registered for topics that are not received: {sorted(unread)}")
        self.counters = counters or Counters()
        self._strategy = strategy
        self._handlers = handlers
        self._decode = decode
        self._retries = retries or Retries()
        self._recoverer = recoverer
        self._batch_size = batch_size
        self._loop = HandlerLoop()
        merged = _merged(settings, strategy.settings)
        self._group = str(merged["group.id"])
        self._stores_offsets = bool(merged["enable.auto.commit"])
        self._unfinished: dict[Partition, int] = {}
        self._revoked_now: set[Partition] = set()
        self._revocation_error: Exception | None = None
        self._ends: dict[Partition, int] = {}
        self._is_closed = self._is_polling = False
        self._max_poll_interval_s = max_poll_interval_ms(merged) / 1000
        self._client_log = ClientLog()
        self._created_at = self._polled_at = time.monotonic()
        self._has_warned = False
        self._progress = Progress(merged)
        # `Assignments` chooses the start. A reset by the client would skip records that retention has removed.
        self.consumer = create({"logger": self._client_log, **merged, "auto.offset.reset": "error"})
        self.paused = PausedPartitions(self.consumer)
        self._assignments = Assignments(self.consumer, merged, strategy, self._retries)
        if id(strategy) in IN_USE:
            message = f"the strategy {type(strategy).__name__} already belongs to another receiver"
            raise ConfigurationError(message, "create a strategy for each Receiver")
        strategy.bind(self.consumer, merged)
        self.consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        IN_USE[id(strategy)] = strategy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, stop_event: StopEvent, *, poll_s: float = 1.0, exit_s: float | None = None) -> None:
        """Receive events until `stop_event` is set, and finish the current batch.

        The process ends with exit code 75 if the batch has not finished `exit_s` seconds later, for example because the
        database is frozen. The default is max.poll.interval.ms in the main thread. In another thread, which the main
        thread can join with a time limit, there is no default.
        """
        if exit_s is None and current_thread() is main_thread():
            exit_s = self._max_poll_interval_s
        with exit_limit(stop_event, exit_s, self._loop.stacks):
            while not stop_event.is_set():
                self.poll(poll_s)

    def poll(self, seconds: float = 1.0) -> int:
        """Wait up to `seconds` for events, and apply one batch. Return the number of received events.

        Raises ReceiverStoppedError if the recoverer stops the receiver, if the reaction to an error is STOP, or if a
        Kafka client does not respond and the process must be restarted. Raises RejectedError for an error from which
        the client does not recover, such as a missing topic. Raises the strategy's errors when partitions are assigned
        or revoked.
        """
        self._require_not_polling("poll")
        self._polled_at = time.monotonic()
        self._is_polling = True
        try:
            return self._poll_and_apply(seconds)
        except ClientStuckError as error:
            raise ReceiverStoppedError(error.message, error.hint) from error
        finally:
            self._is_polling = False

    def _poll_and_apply(self, seconds: float) -> int:
        self._raise_revocation_error()
        self._warn_unjoined()
        self._progress.check(self._positions, has_joined=self._assignments.has_joined)
        self._assignments.assign_due()
        self.paused.resume_due()
        events, error = self._receive(self._assignments.seconds_left(self.paused.seconds_left(seconds)))
        ends, self._ends = self._ends, {}
        if events:
            self.counters.add("received", len(events))
            self._apply(events)
        self._store_ends({source: end for source, end in ends.items() if end > 0 and source not in self.paused})
        if error is not None:
            hint = HINTS.get(error.code(), "")
            raise RejectedError(f"group {self._group} cannot receive: {error.str()}", hint) from KafkaException(error)
        return len(events)

    def close(self, seconds: float = CLOSE_S) -> None:
        """Commit the stored offsets, leave the group and close the strategy. Calling it again has no effect.

        Raises ClientStuckError if that takes longer than `seconds`, for example because a broker is frozen. The
        process should then end. The group assigns the partitions to other consumers after session.timeout.ms.
        """
        self._require_not_polling("close")
        if self._is_closed:
            return
        self._is_closed = True
        try:
            limited_calls.call(f"leave group {self._group}", self._leave, seconds=seconds)
        finally:
            self._loop.close()
            self._strategy.close()
            IN_USE.pop(id(self._strategy), None)
        self._raise_revocation_error()

    def _require_not_polling(self, method: str) -> None:
        """Raise ReceiverStoppedError if a handler or another thread calls the receiver during poll()."""
        if self._is_polling:
            message = f"{method}() was called while poll() of the same receiver had not returned"
            raise ReceiverStoppedError(message, "set the stop event in handlers, and use a receiver in one thread")

    def _leave(self) -> None:
        try:
            self._assignments.leave()
        finally:
            self.consumer.close()

    def status(self) -> ReceiverStatus:
        """Return what the receiver is doing, for example for a health check. Any thread can call this method."""
        now, progress = time.monotonic(), self._progress
        progress.is_watched = True
        return ReceiverStatus(
            is_closed=self._is_closed,
            seconds_since_poll=now - self._polled_at,
            max_poll_interval_s=self._max_poll_interval_s,
            has_joined=self._assignments.has_joined,
            seconds_unjoined=progress.seconds_unjoined,
            assigned=frozenset(self._assignments.owned),
            waiting=frozenset(self._assignments.waiting),
            paused=frozenset(attempt.event.source for attempt in self.paused),
            seconds_since_check=None if progress.checked_at is None else now - progress.checked_at,
            unread=progress.unread,
            stalled=progress.stalled,
        )

    def lag(self) -> dict[tuple[str, int], int]:
        """Return how many records follow the position of each partition, as last known to the client.

        The position of a paused partition is the position of the event that waits for a retry.
        """
        return offsets.lag(self.consumer, {attempt.event.source: attempt.event.offset for attempt in self.paused})

    def _positions(self) -> dict[Partition, int]:
        """Return the positions of the partitions that are not paused. An unknown position is negative."""
        places = self.consumer.position(self.consumer.assignment())
        positions = {(place.topic, place.partition): place.offset for place in places}
        return {source: offset for source, offset in positions.items() if source not in self.paused}

    def _warn_unjoined(self) -> None:
        """Warn once if the receiver could not join its group, for example because the address is wrong."""
        if not (self._has_warned or self._assignments.has_joined) and self._polled_at - self._created_at > JOIN_S:
            self._has_warned = True
            cause = self._client_log.last_problem or "the brokers have not assigned partitions"
            log.warning("group %s has not been joined within %g s: %s", self._group, JOIN_S, cause)

    def _receive(self, seconds: float) -> tuple[list[Event], KafkaError | None]:
        """Return the next events, and an error from which the client does not recover, if any."""
        events, failure = list[Event](), None
        for message in self._poll(seconds):
            error = message.error()
            if error is None:
                events.append(from_message(message, self._decode))
                self._progress.reached.pop(events[-1].source, None)
                self._ends.pop(events[-1].source, None)
            elif error.code() == KafkaError._PARTITION_EOF:
                source = offsets.source_of(message)
                self._progress.reached[source] = self._ends[source] = message.offset() or 0
            elif error.code() != EXPECTED and not is_kafka_outage(error):
                failure = error
        return [event for event in events if event.source not in self.paused], failure

    def _store_ends(self, ends: Mapping[Partition, int]) -> None:
        """Store the ends that were reached, which can be after the offset of a transaction marker.

        Otherwise, after retention has removed all records, the marker would look like a record that was not received.
        """
        if not ends:
            return
        error = _error_of(self._strategy.reached, ends)
        if error is not None:
            log.warning("the ends of partitions were not stored: %s", describe(error))
        places = [TopicPartition(*source, end) for source, end in ends.items()]
        if self._stores_offsets:
            offsets.store_positions(self.consumer, places)
        else:
            self.consumer.commit(offsets=places, asynchronous=True)

    def _poll(self, seconds: float) -> list[Message]:
        """Poll messages one by one, because `Consumer.consume` can return messages from a revoked partition."""
        messages: list[Message] = []
        try:
            message = self.consumer.poll(seconds)
            while message is not None:  # a message with a null value is falsy
                messages.append(message)
                if len(messages) >= self._batch_size:
                    break
                self._revoked_now.clear()
                message = self.consumer.poll(0)
                if self._revoked_now:  # the next owner receives them
                    messages = [each for each in messages if offsets.source_of(each) not in self._revoked_now]
            self._progress.is_drained |= message is None
        except BaseException:
            offsets.rewind(self.consumer, [each for each in messages if each.error() is None])
            raise
        return messages

    def _raise_revocation_error(self) -> None:
        error, self._revocation_error = self._revocation_error, None
        if error is not None:
            raise error

    def _apply(self, events: Sequence[Event]) -> None:
        """Apply a batch. After an exception, rewind to the first unfinished event of each partition."""
        self._unfinished = {event.source: event.offset for event in reversed(events)}
        try:
            self._apply_batch(events)
        except BaseException:
            starts = (TopicPartition(*source, offset) for source, offset in self._unfinished.items())
            offsets.seek(self.consumer, starts)
            raise

    def _apply_batch(self, events: Sequence[Event]) -> None:
        """Apply the events in one transaction. If it fails, apply each event in a separate transaction."""
        if len(events) > 1 and not self.paused.any_failed(events):
            error = _error_of(self._in_transaction, events)
            if error is None:
                return
            if self._retries.reaction_to(error) is Reaction.WAIT:
                self._wait(events, error)
                return
        for number, event in enumerate(events):
            if event.source not in self.paused:
                self._apply_one(event, events[number + 1 :])

    def _apply_one(self, event: Event, following: Sequence[Event]) -> None:
        """Apply one event in a separate transaction. `following` contains the next events of the batch."""
        last = self.paused.last_attempt(event)
        if last.error is not None and last.is_recovering:
            self._recover(last, last.error, last.attempts)
            return
        error = _error_of(self._in_transaction, [event])
        if error is None:
            return
        reaction = self._retries.reaction_to(error)
        if reaction is Reaction.STOP:
            raise stopped_error(f"event {event.place} cannot be applied", error) from error
        if reaction is Reaction.WAIT:
            self._wait([event, *following], error)
        elif reaction is Reaction.TRANSIENT:
            self._wait([event], error)
        else:
            self._failed(last, error, reaction)

    def _in_transaction(self, events: Sequence[Event]) -> None:
        start = time.monotonic()
        with self._strategy.transaction([event.copy() for event in events]) as work:
            unhandled = self._handlers.apply(work.events, work.context, self._call, self.counters.observe)
            for event in work.duplicates:  # after the events, because a batch can contain an event and its duplicate
                self._handlers.handle_duplicate(event, work.context, self._call)
        committed(events, start, self.counters.observe)
        self.counters.add("handled", len(work.events) - unhandled)
        self.counters.add("unhandled", unhandled)
        self.counters.add("duplicates", len(work.duplicates))
        self._done(events)

    def _failed(self, last: Attempt, error: Exception, reaction: Reaction) -> None:
        """Pause the partition until the next attempt, or run the recoverer if no attempts are left."""
        event, attempts = last.event, last.attempts + 1
        log.warning("event %s failed: %s", event.place, describe(error), extra=_log_fields(event, attempts))
        if reaction is Reaction.RECOVER or attempts >= self._retries.attempts:
            self._recover(last, error, attempts)
        else:
            self.counters.add("retries")
            self._pause(last, error, attempts)

    def _wait(self, events: Sequence[Event], error: Exception) -> None:
        """Pause the partitions of all events, because during an outage the other events would fail too."""
        last_attempts = [self.paused.last_attempt(event) for event in events]
        first, fields = events[0], _log_fields(events[0], last_attempts[0].attempts)
        log.warning("waiting, because events from %s cannot be applied: %s", first.place, describe(error), extra=fields)
        self.counters.add("retries")
        for last in last_attempts:
            if last.event.source not in self.paused:
                self._pause(last, error, last.attempts)

    def _recover(self, last: Attempt, error: Exception, attempts: int) -> None:
        """Run the recoverer. If the recoverer fails, it is retried without a limit, with increasing delays."""
        event = last.event
        recoverer_error = _error_of(self._run_recoverer, Failure(event.copy(), error, attempts, self._group))
        if recoverer_error is None or isinstance(recoverer_error, AlreadyAppliedError):
            self._done([event])
            self.counters.add("duplicates" if recoverer_error else "recovered")
        else:
            self.counters.add("recoverer_errors")
            fields = _log_fields(event, attempts)
            log.error("recoverer failed for event %s: %s", event.place, describe(recoverer_error), extra=fields)
            self._pause(last, error, attempts, is_recovering=True)

    def _run_recoverer(self, failure: Failure) -> None:
        if self._recoverer is stop:  # stop() does not need a transaction, which could fail too
            stop(failure, None)
        with self._strategy.recovery(failure.event) as context:
            self._call(self._recoverer, failure, context)

    def _call(self, function: Callable[[Argument, Context], object], argument: Argument, context: Context) -> None:
        """Call a function of the service, and check the context before the next function gets it."""
        self._loop.call(function, argument, context)
        self._strategy.check(context)

    def _pause(self, last: Attempt, error: Exception, attempts: int, *, is_recovering: bool = False) -> None:
        failures = last.failures + 1 if last.is_recovering == is_recovering else 1
        due = time.monotonic() + self._retries.delay_s(failures)
        self._progress.reached.pop(last.event.source, None)  # the client will go back to the event
        self.paused.pause(Attempt(last.event, error, attempts, failures, due, is_recovering))

    def _done(self, events: Sequence[Event]) -> None:
        """Store the offsets after these events. The consumer commits them periodically and when it is closed."""
        self.paused.succeeded(events)
        ends = {event.source: event.offset + 1 for event in events}
        self._unfinished |= ends
        if self._stores_offsets:
            offsets.store_positions(self.consumer, [TopicPartition(*source, end) for source, end in ends.items()])

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.paused.forget(partitions)
        for partition in partitions:
            self._progress.reached.pop((partition.topic, partition.partition), None)
        self._assignments.add(partitions)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._revoked_now |= {(partition.topic, partition.partition) for partition in partitions}
        self.paused.forget(partitions)
        try:
            self._strategy.revoked(partitions)
        except Exception as error:  # the next poll raises the error; here, it would make the client lose polled records
            self._revocation_error = error
        self._assignments.remove(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Remove the partitions. The group has removed the receiver, which must join it again."""
        self._revoked(consumer, partitions)
        self._assignments.has_joined = False


def _error_of(action: Callable[[Argument], None], argument: Argument) -> Exception | None:
    """Run an action, and return its error or None. Errors that stop the receiver are raised again."""
    try:
        action(argument)
    except (ReceiverStoppedError, ClientStuckError):
        raise
    except Exception as error:
        return error
    return None


def _log_fields(event: Event, attempts: int) -> dict[str, object]:
    return {"event_id": event.event_id, "event_type": event.event_type, "attempts": attempts}


def _merged(settings: Mapping[str, Any], required: Mapping[str, Any]) -> dict[str, Any]:
    """Return the consumer's settings. Raises ConfigurationError if a setting differs from its required value."""
    fixed = {**FIXED, **required}
    for name, value in fixed.items():
        if name in settings and str(settings[name]).lower() != str(value).lower():
            raise ConfigurationError(f"{name} must be {value}, not {settings[name]}", f"remove {name}")
    if not settings.get("group.id"):
        raise ConfigurationError("group.id is missing", "set group.id to the name of the service")
    if not any(settings.get(name) for name in BROKERS):  # the client would wait for brokers forever
        raise ConfigurationError(f"{BROKERS[0]} is missing", f"set {BROKERS[0]} to HOST:PORT of the brokers")
    return {**DEFAULTS, **settings, **fixed}


@dataclass
class Counters:
    """Counters of a receiver since it was created."""

    received: int = 0
    """Polled records, including records that are polled again after a pause."""
    handled: int = 0
    duplicates: int = 0
    unhandled: int = 0
    """Events of a type that has no handler."""
    retries: int = 0
    recovered: int = 0
    """Events that could not be handled and were passed to the recoverer."""
    recoverer_errors: int = 0
    hook: Hook | None = field(default=None, repr=False, compare=False)
    observe: Observe | None = field(default=None, repr=False, compare=False)
    """Receives `handler_seconds`, `transaction_seconds`, `transaction_events` and `event_age_seconds`."""

    def __post_init__(self) -> None:
        require_body(self.hook)
        require_body(self.observe)

    def add(self, name: str, count: int = 1) -> None:
        """Increase a counter, and call the hook."""
        if count:
            setattr(self, name, getattr(self, name) + count)
            if self.hook is not None:
                try:
                    self.hook(name, count)
                except Exception:
                    log.exception("the hook of counter %s failed", name)

    def to_dict(self) -> dict[str, int]:
        """Return a mapping from counter names to counts."""
        return {
            entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in ("hook", "observe")
        }
