"""The consumer: keeps a copy of the books, and accepts or rejects each rental request once."""

from __future__ import annotations

import logging
from threading import Event as StopEvent
from threading import Thread

from confluent_kafka import Producer

from book_rental import catalogue, rentals
from book_rental.catalogue import Book
from book_rental.deposits import Deposits, reaction
from book_rental.migration import DEAD_LETTER_BYTES, DEAD_LETTERS, PROCESSED
from book_rental.settings import Connection, Settings
from outbox_events import (
    PRODUCER_SETTINGS,
    AvroValues,
    DeadLetterTopic,
    Event,
    Failure,
    Handlers,
    ProcessedEvents,
    Receiver,
    Retries,
)

log = logging.getLogger("book_rental")
GROUP = "book-rental"
HEALTH_S = 60.0
EXIT_S = 10.0
"""Time for the current event after SIGTERM. Then the process ends, even if the database does not respond."""


class Service:
    """Receives books, authors, and the service's own rentals. Serves one thread.

    `strategy` is a parameter for the tests, which crash it.
    """

    def __init__(self, settings: Settings, strategy: type[ProcessedEvents[Connection]] = ProcessedEvents) -> None:
        self.deposits = Deposits(settings.deposits)
        # The topic also has the decisions that this service sends: they have no handler and are only counted.
        handlers = Handlers[Connection]()
        catalogue.register(handlers)
        handlers.on("rental_requested")(self.reserve)
        handlers.on("rental_reserved")(self.charge)
        kafka = {"bootstrap.servers": settings.kafka}
        producer = Producer({**kafka, **PRODUCER_SETTINGS, "message.max.bytes": DEAD_LETTER_BYTES})
        self.dead_letters = DeadLetterTopic(producer, DEAD_LETTERS)
        self.receiver = Receiver(
            {**kafka, "group.id": GROUP},
            ["books.author", "books.book", "rental.rental"],
            strategy(settings.connect, table=PROCESSED),
            handlers,
            decode=AvroValues(settings.registry),
            retries=Retries(attempts=5, first_delay_s=0.5, max_delay_s=30, reaction=reaction),
            recoverer=self.recover,
            batch_size=1,  # `charge` calls another service, which a rollback does not undo
        )

    def reserve(self, event: Event, connection: Connection) -> None:
        """Reserve the book of a request, or reject the request. The reservation is committed before the charge."""
        book = catalogue.reserve(connection, event.value["book_id"], event.aggregate_id)
        if isinstance(book, Book):
            rentals.reserve(connection, event.aggregate_id, book)
        else:
            rentals.reject(connection, event.aggregate_id, book)

    def charge(self, event: Event, connection: Connection) -> None:
        """Charge the deposit of a reserved rental, and accept or reject the rental.

        If the process crashes before the commit, the next delivery has the same key and the same reservation, so it
        makes the same decision. A dead letter that is replayed has no effect, because its rental was rejected.
        """
        if not rentals.is_reserved(connection, event.aggregate_id):
            return
        if self.deposits.charge(event.value["reader"], key=event.aggregate_id):
            rentals.accept(connection, event.aggregate_id)
        else:
            rentals.reject(connection, event.aggregate_id, "deposit refused")

    def recover(self, failure: Failure, connection: Connection) -> None:
        """Send a dead letter. If the deposit cannot be charged, reject the rental, so that its book is available."""
        self.dead_letters(failure, connection)
        event = failure.event
        if event.event_type == "rental_reserved" and rentals.is_reserved(connection, event.aggregate_id):
            rentals.reject(connection, event.aggregate_id, "deposit cannot be charged")

    def run(self, stop: StopEvent) -> None:
        """Handle requests until `stop` is set."""
        Thread(target=self._log_health, args=[stop], daemon=True).start()
        self.receiver.run(stop, exit_s=EXIT_S)

    def _log_health(self, stop: StopEvent) -> None:
        while not stop.wait(HEALTH_S):
            log.info("health: %s", self.health())

    def health(self) -> dict[str, object]:
        """Return what the service has done, and how far it is behind. Any thread can call this method."""
        status = self.receiver.status()
        return {"unread": status.unread, "paused": status.paused, **self.receiver.counters.to_dict()}

    def close(self) -> None:
        """Leave the group."""
        self.receiver.close()
