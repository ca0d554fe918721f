"""Strategies of the matrix: how each is made, and what it promises for each failure."""

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

from outbox_kit.receiving import Event, ProcessedEvents, Strategy, WithoutDeduplication

INSERT = "insert into effect (consumer_group, event_id, aggregate_id) values "
EFFECTS = "select event_id, count(*) from effect where consumer_group = %s group by event_id"


@dataclass(frozen=True)
class Setup:
    """Addresses and names that the strategy of a cell uses, also in another process."""

    bootstrap: str
    dsn: str
    topic: str
    group: str

    @property
    def output(self) -> str:
        """Topic of the events that a strategy with Kafka transactions sends."""
        return f"{self.topic}.output"

    def connect(self) -> psycopg.Connection:
        """Connect to the database. The server shows the group as name of the application."""
        return psycopg.connect(self.dsn, application_name=self.group)

    def sessions(self) -> sessionmaker[Session]:
        """Return the session factory of SQLAlchemy."""
        return sessionmaker(create_engine("postgresql+psycopg://", creator=self.connect, poolclass=NullPool))


def write_row(setup: Setup, event: Event, context: Any) -> None:  # noqa: ANN401 - depends on the strategy
    """Apply an event: its effect is a row, which nothing but the strategy keeps unique."""
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
    """One strategy. `promises` are those that differ from the failure's usual outcome; None: the failure cannot occur.

    `write` applies an event, and `count` counts the effects by event.
    """

    name: str
    make: Callable[[Setup], Strategy[Any]]
    promises: Mapping[str, Outcome | None] = field(default_factory=dict)
    write: Callable[[Setup, Event, Any], None] = write_row
    count: Callable[[Setup], Counter[str]] = count_rows
    sends: bool = False
    """Whether the effects are events on the output topic, not rows."""


ENTRIES = [
    Entry(
        "without-deduplication",
        lambda setup: WithoutDeduplication(setup.connect),
        {
            "crash-after-commit": TWICE,
            "poll-timeout": TWICE,
            "concurrent-deliveries": Outcome(effects=2, calls=2),
            "first-rolls-back": Outcome(effects=2, calls=3),
            "produced-twice": TWICE,
        },
    ),
    Entry("processed-events", lambda setup: ProcessedEvents(setup.connect, setup.group)),
    Entry("processed-events-session", lambda setup: ProcessedEvents(setup.sessions(), setup.group)),
    Entry(
        "insert-last",
        lambda setup: InsertLast(setup.connect, setup.group),
        {"concurrent-deliveries": Outcome(effects=1, calls=2)},
    ),
    Entry(
        "offset-first",
        lambda setup: OffsetFirst(setup.connect),
        {
            "crash-before-commit": NEVER,
            "concurrent-deliveries": Outcome(effects=2, calls=2),
            "first-rolls-back": Outcome(effects=2, calls=3),
            "produced-twice": TWICE,
        },
    ),
]
