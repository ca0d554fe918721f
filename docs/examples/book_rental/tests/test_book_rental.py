"""Component test: each committed request is accepted or rejected once, also after failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from book_management import changes, tables
from book_rental.catalogue import Book, Catalogue
from book_rental.migration import DEAD_LETTERS
from book_rental.rentals import request_rental
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
            is_complete = any(event.event_type != "rental_requested" or topic == DEAD_LETTERS for event in found)
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


@pytest.fixture(scope="module")
def catalogue(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """Follow the topics of the book management, with snapshots of its own."""
    settings = replace(settings, snapshots=tmp_path_factory.mktemp("catalogue"))
    with closing(Catalogue(settings)) as catalogue:
        catalogue.follow()
        yield catalogue


@pytest.fixture
def book(settings: Settings, catalogue: Catalogue) -> str:
    """Add a book with its author; wait until both are in their topics."""
    with tables.connect(settings.database) as connection:
        author = changes.add_author(connection, tables.Author("Stanisław Lem"))
        book = str(changes.add_book(connection, author, tables.Book("Solaris", Decimal("9.90"))))
    wait_for(
        f"book {book}",
        lambda: Observation(catalogue.find(book) == Book("Solaris", "Stanisław Lem") or None, str(catalogue.books)),
        seconds=SECONDS,
        interval=0.05,
    )
    return book


@pytest.fixture
def service(settings: Settings, book: str) -> Iterator[Service]:
    """Return the service, which has received the book."""
    del book
    with closing(Service(settings)) as service:
        yield service


def run_until(service: Service, subject: str, condition: Callable[[], bool]) -> None:
    """Handle requests until the condition holds."""

    def poll() -> Observation[bool]:
        service.receiver.poll(0.1)
        return Observation(condition() or None, str(service.health()))

    wait_for(subject, poll, seconds=SECONDS, interval=0)


def request(settings: Settings, book: str) -> UUID:
    with settings.connect() as connection:
        return request_rental(connection, UUID(book), "reader-17")


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
    run_until(service, f"rental {rental}", lambda: status(settings, rental) != "REQUESTED")
    return status(settings, rental)


def test_accepts_a_request_and_sends_the_event(
    service: Service, settings: Settings, book: str, received: Received, deposits: DepositServer
) -> None:
    rental = request(settings, book)
    assert decide(service, settings, rental) == "ACCEPTED"
    requested, accepted = received.wait("rental.rental", rental)
    assert accepted.event_type == "rental_accepted"
    assert (accepted.value["title"], accepted.value["author"]) == ("Solaris", "Stanisław Lem")
    assert deposits.charged[requested.event_id] == "reader-17"


def test_rejects_a_request_for_a_removed_book(
    service: Service, settings: Settings, book: str, received: Received, deposits: DepositServer
) -> None:
    with tables.connect(settings.database) as connection:
        changes.remove_book(connection, UUID(book))
    run_until(service, "removal of the book", lambda: book not in service.catalogue.books)
    rental = request(settings, book)
    assert decide(service, settings, rental) == "REJECTED"
    requested, rejected = received.wait("rental.rental", rental)
    assert (rejected.event_type, rejected.value["reason"]) == ("rental_rejected", "no such book")
    assert requested.event_id not in deposits.requests


def test_waits_while_the_service_of_deposits_is_unavailable(
    service: Service, settings: Settings, book: str, received: Received, deposits: DepositServer
) -> None:
    deposits.failures = [503, 503]
    rental = request(settings, book)
    assert decide(service, settings, rental) == "ACCEPTED"
    requested, _ = received.wait("rental.rental", rental)
    assert deposits.requests.count(requested.event_id) == 3
    assert deposits.charged[requested.event_id] == "reader-17"
    assert sent(settings, rental) == ["rental_requested", "rental_accepted"]


def test_rejects_a_request_whose_deposit_is_refused(
    service: Service, settings: Settings, book: str, deposits: DepositServer
) -> None:
    deposits.failures = [402]
    rental = request(settings, book)
    assert decide(service, settings, rental) == "REJECTED"
    assert sent(settings, rental) == ["rental_requested", "rental_rejected"]


def test_sends_a_dead_letter_if_the_service_cannot_read_the_request(
    service: Service, settings: Settings, book: str, received: Received, deposits: DepositServer
) -> None:
    deposits.failures = [400]
    rental = request(settings, book)
    run_until(service, f"dead letter of {rental}", lambda: service.receiver.counters.recovered == 1)
    [dead_letter] = received.wait(DEAD_LETTERS, rental)
    assert dead_letter.headers["dead_letter_reason"] == "HTTPError"
    assert (dead_letter.headers["dead_letter_attempts"], service.receiver.counters.retries) == ("1", 0)
    assert status(settings, rental) == "REQUESTED"


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
    if events[0].event_type == "rental_requested":  # not at events that an earlier test has caused
        raise KeyboardInterrupt


@pytest.mark.parametrize(("strategy", "handled", "duplicates"), [(CrashBeforeCommit, 1, 0), (CrashAfterCommit, 0, 1)])
def test_accepts_once_after_a_crash(
    strategy: type[ProcessedEvents[Connection]],
    handled: int,
    duplicates: int,
    settings: Settings,
    book: str,
    received: Received,
    deposits: DepositServer,
) -> None:
    rental = request(settings, book)
    with closing(Service(settings, strategy)) as crashing, pytest.raises(KeyboardInterrupt):
        run_until(crashing, "crash", lambda: False)
    with closing(Service(settings)) as restarted:
        counters = restarted.receiver.counters
        run_until(restarted, "second delivery", lambda: counters.handled + counters.duplicates == 1)
    assert (counters.handled, counters.duplicates) == (handled, duplicates)
    assert sent(settings, rental) == ["rental_requested", "rental_accepted"]
    requested, _ = received.wait("rental.rental", rental)
    assert deposits.requests.count(requested.event_id) == 1 + handled
    assert deposits.charged[requested.event_id] == "reader-17"


def test_the_process_handles_requests_until_sigterm(settings: Settings, book: str) -> None:
    variables = {
        "DATABASE_URL": settings.database,
        "KAFKA": settings.kafka,
        "REGISTRY_URL": settings.registry,
        "DEPOSITS_URL": settings.deposits,
        "SNAPSHOTS": str(settings.snapshots),
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
