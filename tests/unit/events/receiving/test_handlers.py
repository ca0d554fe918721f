"""Handlers and ids of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, cast

import msgspec
import pydantic
import pytest

from outbox_events import Event, Handlers, InvalidRecordError, Receiver, json_value, payload_id, position_id, recoverers
from outbox_events.errors import ConfigurationError
from outbox_events.receiving.handler_loop import HandlerLoop
from outbox_events.testing import InMemory, TestReceiver, event
from outbox_events.testing.memory_consumer import MemoryConsumer

EVENT = Event("library.book", 1, 7, b"b-1", b'{"loan": "l-1"}', decode=lambda _: {"loan": "l-1"})
TOMBSTONE = replace(EVENT, raw_value=None)


def ignore(event: Event, context: None) -> None:
    del event, context


def test_a_tombstone_has_an_id_if_a_function_is_given() -> None:
    assert payload_id("loan")(EVENT) == "l-1"
    with pytest.raises(InvalidRecordError):
        payload_id("loan")(TOMBSTONE)
    assert payload_id("loan", tombstones=position_id)(TOMBSTONE) == "library.book/1/7"
    with pytest.raises(InvalidRecordError):
        payload_id("isbn", tombstones=position_id)(EVENT)


@pytest.mark.parametrize(
    "register",
    [
        lambda handlers: handlers.on()(ignore),
        lambda handlers: handlers.on(ignore)(ignore),
        lambda handlers: handlers.batch()(ignore),
        lambda handlers: handlers.on("a", type="Book")(ignore),
        lambda handlers: handlers.on("a", type=Receiver)(ignore),
    ],
)
def test_a_handler_that_would_never_run_is_refused(register: Callable[[Handlers[None]], object]) -> None:
    with pytest.raises(ConfigurationError):
        register(Handlers[None]())


# --- topics


@pytest.mark.parametrize(("topics", "is_refused"), [(["a"], True), (["a", "b"], False), (["^.*"], False)])
def test_handlers_of_topics_that_are_not_received_are_refused(topics: list[str], is_refused: bool) -> None:
    handlers = Handlers[None]()
    handlers.on("x", topic="b")(ignore)
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "partition.assignment.strategy": "cooperative-sticky",
    }
    with pytest.raises(ConfigurationError, match="'b'") if is_refused else nullcontext():
        Receiver(settings, topics, InMemory(None), handlers, create=lambda _: cast(Any, MemoryConsumer())).close()


def test_a_handler_of_a_topic_has_priority() -> None:
    calls: list[tuple[str, str]] = []
    handlers = Handlers[None]()
    handlers.on("changed", topic="library.book")(lambda event, _: calls.append(("book", event.topic)))
    handlers.on("changed")(lambda event, _: calls.append(("any", event.topic)))
    handlers.on("removed", topic="library.book")(lambda event, _: calls.append(("removed", event.topic)))
    handlers.otherwise(lambda event, _: calls.append(("other", event.topic)))
    for topic in ("library.book", "library.author"):
        handlers.apply([event("changed", topic=topic), event("removed", topic=topic)], None, HandlerLoop().call)
    assert calls == [
        ("book", "library.book"),
        ("removed", "library.book"),
        ("any", "library.author"),
        ("other", "library.author"),
    ]
    with pytest.raises(ConfigurationError, match=r"changed.*library\.book"):
        handlers.on("changed", topic="library.book")(ignore)


# --- types


class Condition(Enum):
    GOOD = "good"


@dataclass
class Loan:
    book: str
    price: Decimal
    at: datetime | None = None
    condition: Condition = Condition.GOOD


class LoanStruct(msgspec.Struct):
    book: str
    price: Decimal
    at: datetime | None = None


class LoanModel(pydantic.BaseModel):
    book: str
    price: Decimal
    at: datetime | None = None


def test_a_class_can_refer_to_a_class_that_is_defined_later() -> None:
    namespace: dict[str, Any] = {"dataclass": dataclass}
    exec("@dataclass\nclass Copy:\n    original: 'Later'", namespace)  # noqa: S102 - the annotation has no class yet
    Handlers[None]().on("copied", type=namespace["Copy"])(ignore)


@pytest.mark.parametrize("kind", [Loan, LoanStruct, LoanModel])
@pytest.mark.parametrize(
    "payload",
    [
        {"book": "b-1", "price": Decimal("9.90"), "at": datetime(2026, 1, 1, tzinfo=UTC)},  # as AvroValues returns it
        {"book": "b-1", "price": 9.9, "at": "2026-01-01T00:00:00Z", "added": 1},
        b'{"book": "b-1", "price": 9.90, "at": "2026-01-01T00:00:00Z"}',
    ],
)
@pytest.mark.parametrize("decode", [None, json_value])
def test_a_handler_receives_the_value_as_an_object(kind: type[Loan], payload: object, decode: object) -> None:
    received: list[Event[Loan]] = []
    handlers = Handlers[None]()
    handlers.on("lent", type=kind)(lambda event, _: received.append(event))
    sent = event("lent", payload, key="l-1")
    with TestReceiver(InMemory(None), handlers, decode=decode) as receiver:  # type: ignore[arg-type]
        receiver.deliver([sent])
    (loan,) = received
    assert (
        loan.value == kind("b-1", Decimal("9.9"), datetime(2026, 1, 1, tzinfo=UTC)) if kind is not LoanModel else True
    )
    assert (loan.value.book, loan.value.price) == ("b-1", Decimal("9.9"))
    assert (loan.event_id, loan.aggregate_id) == (sent.event_id, "l-1")


def test_undecoded_json_keeps_all_digits() -> None:
    handlers = Handlers[list[Decimal]]()

    @handlers.on("lent", type=Loan)
    def lend(event: Event[Loan], prices: list[Decimal]) -> None:
        prices.append(event.value.price)

    prices: list[Decimal] = []
    handlers.apply([event("lent", b'{"book": "b", "price": 12345678901234567890.12}')], prices, HandlerLoop().call)
    assert prices == [Decimal("12345678901234567890.12")]


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        (Loan, {"book": "secret"}, "price"),
        (Loan, {"book": 17, "price": 1}, r"\$\.book"),
        (Loan, {"book": "b", "price": 1, "condition": "secret"}, r"\$\.condition"),
        (Loan, b'{"book": "secret', "Loan"),
        (LoanModel, {"book": "secret", "price": "secret"}, "LoanModel"),
        (LoanModel, b'{"book": "secret', "LoanModel"),
        (Loan, None, "tombstone"),
    ],
)
def test_a_value_that_does_not_match_is_an_invalid_record(kind: type[Loan], payload: object, reason: str) -> None:
    handlers = Handlers[None]()
    handlers.on("lent", type=kind)(ignore)
    with pytest.raises(InvalidRecordError, match=reason) as caught:
        handlers.apply([event("lent", payload)], None, HandlerLoop().call)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


# --- batches


@pytest.fixture
def batches() -> Handlers[list[str]]:
    """Append one text per call. The batch handler fails if its events contain `bad`."""
    handlers = Handlers[list[str]]()

    @handlers.batch("read", "seen")
    def count(events: Sequence[Event], calls: list[str]) -> None:
        calls.append(" ".join(event.value for event in events))
        if "bad" in [event.value for event in events]:
            raise ValueError("bad")

    @handlers.on("lent")
    def lend(event: Event, calls: list[str]) -> None:
        calls.append(f"lent {event.value}")

    return handlers


def test_a_batch_handler_receives_consecutive_events(batches: Handlers[list[str]]) -> None:
    calls: list[str] = []
    sent = [event("read", "1"), event("seen", "2"), event("lent", "3"), event("unknown"), event("read", "4")]
    with TestReceiver(InMemory(calls), batches) as receiver:
        receiver.deliver([*sent, sent[0], event("read", "5")])
    # The events of a transaction do not contain its duplicates.
    assert calls == ["1 2", "lent 3", "4 5"]
    assert (receiver.counters.handled, receiver.counters.unhandled, receiver.counters.duplicates) == (5, 1, 1)


def test_after_a_failure_the_events_of_a_batch_are_applied_separately(batches: Handlers[list[str]]) -> None:
    calls: list[str] = []
    failed: list[str] = []
    with TestReceiver(
        InMemory(calls), batches, recoverer=lambda failure, _: failed.append(failure.event.value)
    ) as receiver:
        receiver.deliver([event("read", text) for text in ("1", "bad", "3", "4")])
    assert calls[:2] == ["1 bad 3 4", "1"]
    assert calls[2:].count("bad") == 3
    assert [call for call in calls[2:] if call != "bad"] == ["3", "4"]
    assert failed == ["bad"]


def test_a_batch_handler_can_have_a_type() -> None:
    handlers = Handlers[list[Decimal]]()

    @handlers.batch("lent", type=Loan)
    def add(events: Sequence[Event[Loan]], sums: list[Decimal]) -> None:
        sums.append(sum((event.value.price for event in events), Decimal(0)))

    sums: list[Decimal] = []
    bad = {"book": "b", "price": "many"}
    with TestReceiver(InMemory(sums), handlers, recoverer=recoverers.log_and_continue) as receiver:
        receiver.deliver([event("lent", {"book": "b", "price": price}) for price in (1, 2)])
        receiver.deliver([event("lent", bad), event("lent", {"book": "b", "price": 4})])
    assert sums == [3, 4]
    assert receiver.counters.recovered == 1
