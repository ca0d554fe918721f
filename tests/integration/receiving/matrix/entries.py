"""Strategies of the matrix: how each strategy is created, and what it promises for each failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.orm import Session, sessionmaker
from tests.integration.receiving.matrix.baselines import InsertLast, OffsetFirst
from tests.integration.receiving.matrix.outcomes import NEVER, TWICE, Outcome
from tests.integration.receiving.matrix.topics import count_values

from outbox_events import (
    BloomFilter,
    Event,
    KafkaTransactions,
    ProcessedEvents,
    StoredOffsets,
    Strategy,
    WithoutDeduplication,
)
from outbox_events.kafka.record import Record

INSERT = "insert into effect (consumer_group, event_id, aggregate_id) values "
EFFECTS = "select event_id, count(*) from effect where consumer_group = %s group by event_id"


@dataclass(frozen=True)
class Setup:
    """Addresses and names that the strategy of a cell uses, including in another process."""

    bootstrap: str
    dsn: str
    topic: str
    group: str
    member: int = 0
    """Number of the member. A process that replaces a crashed process has the same number."""

    @property
    def output(self) -> str:
        """Topic of the events that a strategy with Kafka transactions sends."""
        return f"{self.topic}.output"

    @property
    def kafka(self) -> dict[str, str]:
        """Settings of producers and admin clients."""
        return {"bootstrap.servers": self.bootstrap}

    def connect(self) -> psycopg.Connection:
        """Connect to the database, with the group as the name of the application."""
        return psycopg.connect(self.dsn, application_name=self.group)

    def sessions(self) -> sessionmaker[Session]:
        """Return the session factory of SQLAlchemy."""
        return sessionmaker(create_engine("postgresql+psycopg://", creator=self.connect, poolclass=NullPool))


def write_row(setup: Setup, event: Event, context: Any) -> None:  # noqa: ANN401 - depends on the strategy
    """Apply an event. Its effect is a row, and only the strategy prevents duplicates of this row."""
    values = {"group": setup.group, "id": event.event_id, "key": event.aggregate_id}
    if isinstance(context, Session):
        context.execute(text(f"{INSERT} (:group, :id, :key)"), values)
    else:
        context.execute(f"{INSERT} (%(group)s, %(id)s, %(key)s)", values)


def count_rows(setup: Setup) -> Counter[str]:
    """Return the number of effects by event."""
    with setup.connect() as connection:
        return Counter(dict(connection.execute(EFFECTS, [setup.group]).fetchall()))


@dataclass(frozen=True)
class Entry:
    """One strategy. `promises` contains outcomes that differ from the failure's usual one, or None if it cannot occur.

    `write` applies an event. `count` counts the effects by event.
    """

    name: str
    text: str
    make: Callable[[Setup], Strategy[Any]]
    promises: Mapping[str, Outcome | None] = field(default_factory=dict)
    write: Callable[[Setup, Event, Any], None] = write_row
    count: Callable[[Setup], Counter[str]] = count_rows
    sends: bool = False
    """Whether the effects are events on the output topic instead of rows."""


def send_event(setup: Setup, event: Event, context: Any) -> None:  # noqa: ANN401 - a KafkaTransaction
    """Apply an event. Its effect is an event on the output topic."""
    context.send(Record(setup.output, event.key, event.raw_value))


REPEATED: Mapping[str, Outcome | None] = {
    "two-deliveries": Outcome(effects=2, calls=2),
    "first-rolls-back": Outcome(effects=2, calls=3),
}
"""The effect of a second delivery that the strategy does not recognize."""
ENTRIES = [
    Entry(
        "none",
        "`WithoutDeduplication`",
        lambda setup: WithoutDeduplication(setup.connect),
        {"crash-after-commit": TWICE, "produced-twice": TWICE, **REPEATED},
    ),
    Entry(
        "table",
        "`ProcessedEvents` with a psycopg connection",
        lambda setup: ProcessedEvents(setup.connect, setup.group),
    ),
    Entry(
        "session",
        "`ProcessedEvents` with a SQLAlchemy session",
        lambda setup: ProcessedEvents(setup.sessions(), setup.group),
    ),
    Entry(
        "offsets",
        "`StoredOffsets`",
        lambda setup: StoredOffsets(setup.connect, setup.group),
        {"produced-twice": TWICE},
    ),
    Entry(
        "bloom",
        "`BloomFilter`; it also loses a fraction `error_rate` of the events, which 30 events cannot show",
        lambda setup: BloomFilter(setup.connect, setup.group, capacity=1000),
    ),
    Entry(
        "kafka",
        "`KafkaTransactions`; the effect is an event that a reader with `read_committed` can read",
        lambda setup: KafkaTransactions({**setup.kafka, "transactional.id": f"{setup.group}-{setup.member}"}),
        {
            "two-deliveries": None,
            "first-rolls-back": None,
            "produced-twice": TWICE,
            "connection-lost": None,
        },
        write=send_event,
        count=lambda setup: count_values(setup.bootstrap, setup.output, 1),
        sends=True,
    ),
    Entry(
        "insert-last",
        "not part of the library; inserts the id after the handler, so both deliveries call the dependency",
        lambda setup: InsertLast(setup.connect, setup.group),
        {"two-deliveries": Outcome(effects=1, calls=2)},
    ),
    Entry(
        "offset-first",
        "not part of the library; commits the offset before the handler runs, so a crash loses the event",
        lambda setup: OffsetFirst(setup.connect),
        {"crash-before-commit": NEVER, "produced-twice": TWICE, **REPEATED},
    ),
]
