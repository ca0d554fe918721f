"""outbox_events.testing: handlers run with the real Receiver on events in memory, and emitted events are collected."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox_events import (
    ConfigurationError,
    Counters,
    Event,
    Handlers,
    InvalidEventError,
    InvalidRecordError,
    OutboxEvent,
    ReceiverStoppedError,
    Retries,
    StoredOffsets,
    WaitTimeoutError,
    WithoutDeduplication,
    emit,
    emit_async,
    emit_many,
    json_value,
    recoverers,
)
from outbox_events.testing import EmittedEvents, InMemory, MakeReceiver, TestReceiver, collect_events, event

pytest_plugins = ["outbox_events.testing.fixtures"]
CHANGED_AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def handlers() -> Handlers[list[str]]:
    """Append the value of each event to the context. Values beginning with `bad` are appended, and then fail."""
    handlers = Handlers[list[str]]()

    @handlers.on("noted")
    def note(event: Event, notes: list[str]) -> None:
        notes.append(event.value)
        if event.value.startswith("bad"):
            raise ValueError(event.value)

    return handlers


def noted(*texts: str, **options: Any) -> list[Event]:  # noqa: ANN401
    return [event("noted", text, **options) for text in texts]


def test_handlers_receive_the_payload_as_the_service_decodes_it(make_receiver: MakeReceiver) -> None:
    received: list[Event] = []
    handlers = Handlers[None]()
    handlers.otherwise(lambda event, _: received.append(event))
    receiver = make_receiver(InMemory(None), handlers, decode=json_value)
    event_id = uuid4()
    receiver.deliver(
        [
            event("changed", {"at": CHANGED_AT}, key="b-1", event_id=event_id, headers={"tenant": "t"}, timestamp_ms=7),
            event("changed", b'{"at": 1}', topic="library.book", partition=2),
            event("removed", None, key=UUID(int=1)),
        ]
    )
    assert [each.value for each in received] == [{"at": CHANGED_AT}, {"at": 1}, None]
    first = received[0]
    assert (first.aggregate_id, first.event_type, first.event_id) == ("b-1", "changed", str(event_id))
    assert (first.headers["tenant"], first.timestamp_ms, received[2].aggregate_id) == ("t", 7, str(UUID(int=1)))
    assert receiver.committed == {("events", 0): 2, ("library.book", 2): 1}


def test_an_event_that_is_delivered_twice_is_applied_once(handlers: Handlers[list[str]]) -> None:
    notes: list[str] = []
    duplicates: list[str] = []
    handlers.on_duplicate(lambda event, _: duplicates.append(event.value))
    with TestReceiver(InMemory(notes), handlers) as receiver:
        first, second = noted("a", "b")
        receiver.deliver([first, second, first])
        receiver.deliver([second])
    assert (notes, duplicates) == (["a", "b"], ["a", "b"])
    assert (receiver.counters.handled, receiver.counters.duplicates) == (2, 2)


def test_attempts_and_recoverer_are_those_of_the_receiver(
    make_receiver: MakeReceiver, handlers: Handlers[list[str]]
) -> None:
    notes: list[str] = []
    failures: list[recoverers.Failure] = []
    receiver = make_receiver(
        InMemory(notes),
        handlers,
        batch_size=1,
        retries=Retries(attempts=4, first_delay_s=3600),
        recoverer=lambda failure, _: failures.append(failure),
    )
    receiver.deliver([*noted("a", "bad", "c"), *noted("other", partition=1)])
    assert notes.count("bad") == 4
    assert [note for note in notes if note not in ("bad", "other")] == ["a", "c"]
    assert notes.index("other") < notes.index("c")  # only the partition of the failed event waits
    assert [(failure.event.value, failure.attempts) for failure in failures] == [("bad", 4)]
    assert receiver.counters == Counters(received=7, handled=3, retries=3, recovered=1)


def test_a_stopped_receiver_has_the_error_of_the_handler_and_continues_at_its_event(
    make_receiver: MakeReceiver, handlers: Handlers[list[str]]
) -> None:
    receiver = make_receiver(InMemory([]), handlers, retries=Retries(attempts=2))
    with pytest.raises(ReceiverStoppedError) as caught:
        receiver.deliver(noted("a", "bad", "b"))
    assert isinstance(caught.value.__cause__, ValueError)
    assert receiver.committed == {("events", 0): 1}
    with pytest.raises(ReceiverStoppedError):
        receiver.deliver([])


def test_an_outage_does_not_retry_forever(make_receiver: MakeReceiver) -> None:
    def connect() -> psycopg.Connection:
        raise psycopg.OperationalError("no server")

    receiver = make_receiver(WithoutDeduplication(connect), Handlers[psycopg.Connection]())
    with pytest.raises(WaitTimeoutError) as caught:
        receiver.deliver(noted("a"))
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)


def test_refuses_strategies_that_need_brokers() -> None:
    with pytest.raises(ConfigurationError, match="StoredOffsets"):
        TestReceiver(StoredOffsets(lambda: psycopg.connect("")), Handlers[psycopg.Connection]())


def test_emitted_events_are_validated_and_collected_without_a_database(emitted_events: EmittedEvents) -> None:
    loan = {"aggregate_type": "loan", "aggregate_id": "l-1", "payload": {"at": CHANGED_AT}}
    event_id = emit(None, event_type="loaned", **loan)  # type: ignore[arg-type]
    emit_many(object(), [OutboxEvent(event_type="returned", **loan)])  # type: ignore[arg-type]
    asyncio.run(emit_async(None, OutboxEvent(event_type="lost", **loan)))  # type: ignore[arg-type]
    with pytest.raises(InvalidEventError):
        emit(None, event_type="", **loan)  # type: ignore[arg-type]
    assert [each.event_type for each in emitted_events] == ["loaned", "returned", "lost"]
    assert emitted_events.of_type("loaned")[0].event_id == event_id
    with collect_events() as inner:
        emit(None, event_type="inner", **loan)  # type: ignore[arg-type]
    assert (len(inner), len(emitted_events)) == (1, 3)


def test_events_of_failed_attempts_are_not_collected(
    emitted_events: EmittedEvents, make_receiver: MakeReceiver
) -> None:
    handlers = Handlers[None]()

    @handlers.on("noted")
    def answer(event: Event, _: None) -> None:
        emit(_, aggregate_type="answer", aggregate_id=event.value, event_type="answered", payload={})  # type: ignore[arg-type]
        if event.value == "bad":
            raise InvalidRecordError("bad")

    make_receiver(InMemory(None), handlers, recoverer=recoverers.log_and_continue).deliver(noted("a", "bad", "c"))
    assert [each.aggregate_id for each in emitted_events] == ["a", "c"]
