"""Component test: each committed request is accepted or rejected once, also after failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import LiteralString
from uuid import UUID, uuid4

import pytest
from book_management import changes, tables
from book_rental.migration import DEAD_LETTERS
from book_rental.rentals import request_rental, return_book
from book_rental.service import Service
from book_rental.settings import Connection, Settings
from deposit_server import DepositServer

from outbox_events import (
    AvroValues,
    Event,
    Handlers,
    Observation,
    ProcessedEvents,
    Receiver,
    WithoutDeduplication,
    Work,
    wait_for,
)

PROJECT = Path(__file__).parents[1]
SECONDS = 60.0
DECISIONS = {"rental_accepted", "rental_rejected"}


@dataclass
class Received:
    """Records that a consumer of the service receives."""

    receiver: Receiver[Connection]
    events: list[Event] = field(default_factory=list)

    def wait(self, topic: str, rental: UUID) -> list[Event]:
        """Wait for a decision or a dead letter; return all records of the rental in the topic."""

        def poll() -> Observation[list[Event]]:
            self.receiver.poll(0.1)
            found = self.of(topic, rental)
            is_complete = any(event.event_type in DECISIONS or topic == DEAD_LETTERS for event in found)
            return Observation(found if is_complete else None, str(found))

        return wait_for(f"records of rental {rental}", poll, seconds=SECONDS, interval=0)

    def of(self, topic: str, rental: UUID) -> list[Event]:
        """Return the records of the rental that were received until now."""
        return [event for event in self.events if event.topic == topic and event.aggregate_id == str(rental)]


@pytest.fixture(scope="module")
def received(settings: Settings) -> Iterator[Received]:
    handlers = Handlers[Connection]()
    consumer = {"bootstrap.servers": settings.kafka, "group.id": f"test-{uuid4()}"}
    topics = ["rental.rental", DEAD_LETTERS]
    decode = AvroValues(settings.registry)
    with Receiver(consumer, topics, WithoutDeduplication(settings.connect), handlers, decode=decode) as receiver:
        result = Received(receiver)
        handlers.otherwise(lambda event, _: result.events.append(event))
        yield result


@pytest.fixture
def book(settings: Settings) -> str:
    """Add a book with its author; wait until the service has a copy of both."""
    with tables.connect(settings.database) as connection:
        author = changes.add_author(connection, tables.Author("Stanisław Lem"))
        book = str(changes.add_book(connection, author, tables.Book("Solaris", Decimal("9.90"))))
    copied = "select from rental.book join rental.author on author.id = author_id where book.id = %s"
    with closing(Service(settings)) as service:
        run_until(service, f"book {book}", lambda: exists(settings, copied, book))
    return book


@pytest.fixture
def service(settings: Settings, book: str) -> Iterator[Service]:
    """Return the service, which has received the book."""
    del book
    with closing(Service(settings)) as service:
        yield service


def exists(settings: Settings, statement: LiteralString, *values: object) -> bool:
    with settings.connect() as connection:
        return connection.execute(statement, values).fetchone() is not None


def run_until(service: Service, subject: str, condition: Callable[[], bool]) -> None:
    """Handle requests until the condition holds."""

    def poll() -> Observation[bool]:
        service.receiver.poll(0.1)
        return Observation(condition() or None, str(service.health()))

    wait_for(subject, poll, seconds=SECONDS, interval=0)


def request(settings: Settings, book: str, reader: str = "reader-17") -> UUID:
    with settings.connect() as connection:
        return request_rental(connection, UUID(book), reader)


def status(settings: Settings, rental: UUID) -> str:
    with settings.connect() as connection:
        [row] = connection.execute("select status from rental.rental where id = %s", [rental])
        return str(row["status"])


def sent(settings: Settings, rental: UUID) -> list[str]:
    """Return the types of the events that the service sent."""
    statement = "select event_type from rental.outbox_event where aggregate_id = %s order by seq"
    with settings.connect() as connection:
        return [row["event_type"] for row in connection.execute(statement, [str(rental)])]


def decide(service: Service, settings: Settings, rental: UUID) -> str:
    """Handle requests until one is accepted or rejected; return its status."""
    run_until(service, f"rental {rental}", lambda: status(settings, rental) in ("ACCEPTED", "REJECTED"))
    return status(settings, rental)


def test_accepts_a_request_and_sends_the_event(
    service: Service, settings: Settings, book: str, received: Received, deposits: DepositServer
) -> None:
    rental = request(settings, book)
    assert decide(service, settings, rental) == "ACCEPTED"
    _, reserved, accepted = received.wait("rental.rental", rental)
    assert (reserved.event_type, accepted.event_type) == ("rental_reserved", "rental_accepted")
    assert (accepted.value["title"], accepted.value["author"]) == ("Solaris", "Stanisław Lem")
    assert deposits.charged[str(rental)] == "reader-17"


def test_rejects_a_request_for_a_removed_book(
    service: Service, settings: Settings, book: str, received: Received, deposits: DepositServer
) -> None:
    with tables.connect(settings.database) as connection:
        changes.remove_book(connection, UUID(book))
    removed = "select from rental.book where id = %s and is_removed"
    run_until(service, "removal of the book", lambda: exists(settings, removed, book))
    rental = request(settings, book)
    assert decide(service, settings, rental) == "REJECTED"
    _, rejected = received.wait("rental.rental", rental)
    assert (rejected.event_type, rejected.value["reason"]) == ("rental_rejected", "no such book")
    assert str(rental) not in deposits.requests


def test_one_of_several_readers_rents_a_book_until_it_is_returned(
    service: Service, settings: Settings, book: str, deposits: DepositServer
) -> None:
    rentals = [request(settings, book, f"reader-{number}") for number in range(4)]
    decisions = {decide(service, settings, rental): rental for rental in rentals}
    assert sorted(status(settings, rental) for rental in rentals) == ["ACCEPTED", *["REJECTED"] * 3]
    assert [str(rental) for rental in rentals if str(rental) in deposits.charged] == [str(decisions["ACCEPTED"])]
    with settings.connect() as connection:
        return_book(connection, decisions["ACCEPTED"])
    assert decide(service, settings, request(settings, book)) == "ACCEPTED"


def test_a_book_that_is_removed_and_added_again_remains_rented(service: Service, settings: Settings, book: str) -> None:
    assert decide(service, settings, request(settings, book)) == "ACCEPTED"
    with tables.connect(settings.database) as connection:
        changes.remove_book(connection, UUID(book))
        author = changes.add_author(connection, tables.Author("Stanisław Lem"))
        changes.add_book(connection, author, tables.Book("Solaris 2", Decimal("9.90")), UUID(book))
    added = "select from rental.book where id = %s and title = 'Solaris 2' and not is_removed"
    run_until(service, "the added book", lambda: exists(settings, added, book))
    assert decide(service, settings, request(settings, book)) == "REJECTED"


def test_waits_while_the_service_of_deposits_is_unavailable(
    service: Service, settings: Settings, book: str, received: Received, deposits: DepositServer
) -> None:
    deposits.failures = [503, 503]
    rental = request(settings, book)
    assert decide(service, settings, rental) == "ACCEPTED"
    received.wait("rental.rental", rental)
    assert deposits.requests.count(str(rental)) == 3
    assert deposits.charged[str(rental)] == "reader-17"
    assert sent(settings, rental) == ["rental_requested", "rental_reserved", "rental_accepted"]


def test_rejects_a_request_whose_deposit_is_refused(
    service: Service, settings: Settings, book: str, deposits: DepositServer
) -> None:
    deposits.failures = [402]
    rental = request(settings, book)
    assert decide(service, settings, rental) == "REJECTED"
    assert sent(settings, rental) == ["rental_requested", "rental_reserved", "rental_rejected"]
    assert decide(service, settings, request(settings, book)) == "ACCEPTED"


def test_sends_a_dead_letter_if_the_service_cannot_read_the_request(
    service: Service, settings: Settings, book: str, received: Received, deposits: DepositServer
) -> None:
    deposits.failures = [400]
    rental = request(settings, book)
    run_until(service, f"dead letter of {rental}", lambda: service.receiver.counters.recovered == 1)
    [dead_letter] = received.wait(DEAD_LETTERS, rental)
    assert dead_letter.headers["dead_letter_reason"] == "HTTPError"
    assert (dead_letter.headers["dead_letter_attempts"], service.receiver.counters.retries) == ("1", 0)
    assert status(settings, rental) == "REJECTED"
    assert sent(settings, rental) == ["rental_requested", "rental_reserved", "rental_rejected"]
    with settings.connect() as connection:  # as if the dead letter was replayed
        service.charge(dead_letter, connection)
    assert deposits.requests.count(str(rental)) == 1
    assert decide(service, settings, request(settings, book)) == "ACCEPTED"


def test_sends_nothing_for_a_request_that_is_rolled_back(
    service: Service, settings: Settings, book: str, received: Received
) -> None:
    with settings.connect() as connection:
        rolled_back = request_rental(connection, UUID(book), "reader-17")
        connection.rollback()
    rental = request(settings, book)
    assert decide(service, settings, rental) == "ACCEPTED"
    received.wait("rental.rental", rental)
    assert received.of("rental.rental", rolled_back) == []
    assert sent(settings, rolled_back) == []


class CrashBeforeCommit(ProcessedEvents[Connection]):
    """Interrupts the process after the deposit was charged, before the commit of the database."""

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connection]]:
        with super().transaction(events) as work:
            yield work
            interrupt(events)


class CrashAfterCommit(ProcessedEvents[Connection]):
    """Interrupts the process between the commit of the database and that of the offset."""

    @contextmanager
    def transaction(self, events: Sequence[Event]) -> Iterator[Work[Connection]]:
        with super().transaction(events) as work:
            yield work
        interrupt(events)


def interrupt(events: Sequence[Event]) -> None:
    if events[0].event_type == "rental_reserved":
        raise KeyboardInterrupt


@pytest.mark.parametrize(("strategy", "charges", "duplicates"), [(CrashBeforeCommit, 2, 0), (CrashAfterCommit, 1, 1)])
def test_accepts_once_after_a_crash_although_the_book_is_removed_meanwhile(
    strategy: type[ProcessedEvents[Connection]],
    charges: int,
    duplicates: int,
    settings: Settings,
    book: str,
    received: Received,
    deposits: DepositServer,
) -> None:
    rental = request(settings, book)
    with closing(Service(settings, strategy)) as crashing, pytest.raises(KeyboardInterrupt):
        run_until(crashing, "crash", lambda: False)
    with settings.connect() as connection:  # as if the service had received the removal
        connection.execute("update rental.book set is_removed = true where id = %s", [book])
    with closing(Service(settings)) as restarted:
        counters = restarted.receiver.counters
        run_until(
            restarted,
            "second delivery",
            lambda: counters.duplicates == duplicates and status(settings, rental) == "ACCEPTED",
        )
    assert sent(settings, rental) == ["rental_requested", "rental_reserved", "rental_accepted"]
    received.wait("rental.rental", rental)
    assert deposits.requests.count(str(rental)) == charges
    assert deposits.charged[str(rental)] == "reader-17"


def test_the_process_handles_requests_until_sigterm(settings: Settings, book: str) -> None:
    variables = {
        "DATABASE_URL": settings.database,
        "KAFKA": settings.kafka,
        "REGISTRY_URL": settings.registry,
        "DEPOSITS_URL": settings.deposits,
    }
    command, environment = [sys.executable, "-m", "book_rental"], {**os.environ, **variables}
    requested = subprocess.run(
        [*command, "request", book, "reader-17"],
        cwd=PROJECT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    rental = UUID(requested.stderr.split()[-1])

    def accepted() -> Observation[bool]:
        found = status(settings, rental)
        return Observation(found == "ACCEPTED" or None, found)

    with subprocess.Popen(command, cwd=PROJECT, env=environment) as process:
        try:
            wait_for(f"rental {rental}", accepted, seconds=SECONDS)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
