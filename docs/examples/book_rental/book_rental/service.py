"""The consumer of rental requests: accepts or rejects each of them once."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from threading import Event as StopEvent

from confluent_kafka import Producer

from book_rental import rentals
from book_rental.catalogue import Catalogue
from book_rental.deposits import Deposits, reaction
from book_rental.migration import DEAD_LETTER_BYTES, DEAD_LETTERS, PROCESSED
from book_rental.settings import Connection, Settings
from outbox_events import (
    PRODUCER_SETTINGS,
    AvroValues,
    DeadLetterTopic,
    Event,
    Handlers,
    ProcessedEvents,
    Receiver,
    Retries,
)

log = logging.getLogger("book_rental")
GROUP = "book-rental"
HEALTH_S = 60.0


class Service:
    """Receives the requests from the service's own topic. Serves one thread.

    `strategy` is a parameter for the tests, which crash it.
    """

    def __init__(self, settings: Settings, strategy: type[ProcessedEvents[Connection]] = ProcessedEvents) -> None:
        self.catalogue = Catalogue(settings)
        self.catalogue.follow()  # before the receiver joins the group, which would assign partitions to it
        self.deposits = Deposits(settings.deposits)
        # The topic also has the events that this service sends: they have no handler and are only counted.
        handlers = Handlers[Connection]()
        handlers.on("rental_requested")(self.decide)
        kafka = {"bootstrap.servers": settings.kafka}
        producer = Producer({**kafka, **PRODUCER_SETTINGS, "message.max.bytes": DEAD_LETTER_BYTES})
        self.receiver = Receiver(
            {**kafka, "group.id": GROUP},
            ["rental.rental"],
            strategy(settings.connect, table=PROCESSED),
            handlers,
            decode=AvroValues(settings.registry),
            retries=Retries(attempts=5, first_delay_s=0.5, max_delay_s=30, reaction=reaction),
            recoverer=DeadLetterTopic(producer, DEAD_LETTERS),
            batch_size=1,  # `decide` calls another service, which a rollback does not undo
        )

    def decide(self, event: Event, connection: Connection) -> None:
        """Accept or reject a request. Rental, sent event and the id of the request are committed together."""
        request = event.value
        book = self.catalogue.find(str(request["book_id"]))
        if book is None:
            rentals.reject(connection, event.aggregate_id, "no such book")
            return
        # If the process crashes before the commit, the next delivery has the same key.
        if self.deposits.charge(request["reader"], key=event.event_id):
            rentals.accept(connection, event.aggregate_id, book)
        else:
            rentals.reject(connection, event.aggregate_id, "deposit refused")

    def run(self, stop: StopEvent) -> None:
        """Handle requests until `stop` is set."""
        logged_at = 0.0
        while not stop.is_set():
            self.receiver.poll(1.0)
            if time.monotonic() - logged_at > HEALTH_S:
                logged_at = time.monotonic()
                log.info("health: %s", self.health())

    def health(self) -> dict[str, object]:
        """Return what the service has done, and how far it is behind."""
        return {
            "lag": self.receiver.lag(),
            "paused": [pause.event.place for pause in self.receiver.paused],
            **self.receiver.counters.to_dict(),
            "books": self.catalogue.books.status(),
            "authors": self.catalogue.authors.status(),
        }

    def close(self) -> None:
        """Leave the group, and save the catalogue."""
        with closing(self.catalogue):
            self.receiver.close()
