"""A strategy belongs to one receiver, and its connections are checked when the receiver is created."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outbox_events import (
    BloomFilter,
    Handlers,
    KafkaTransactions,
    ProcessedEvents,
    Receiver,
    StoredOffsets,
    Strategy,
    WithoutDeduplication,
)
from outbox_events.errors import ConfigurationError, UnreachableError

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "letters", "log_level": 0}
OTHER = {**SETTINGS, "group.id": "statistics"}
CONNECT: Callable[[], Any] = lambda: psycopg.connect("host=127.0.0.1 port=1")  # noqa: E731
STRATEGIES: list[Callable[[Callable[[], Any]], Strategy[Any]]] = [
    ProcessedEvents,
    StoredOffsets,
    WithoutDeduplication,
    BloomFilter,
]


def receiver(strategy: Strategy[Any], settings: dict[str, Any] = SETTINGS) -> Receiver[Any]:
    return Receiver(settings, ["t"], strategy, Handlers())


@pytest.mark.parametrize("create", STRATEGIES)
def test_a_strategy_belongs_to_one_receiver(create: Callable[[Callable[[], Any]], Strategy[Any]]) -> None:
    strategy = create(CONNECT)
    with receiver(strategy), pytest.raises(ConfigurationError, match="another receiver"):
        receiver(strategy, OTHER)
    with receiver(strategy, OTHER):  # the first one was closed
        pass


def test_the_next_receiver_of_a_strategy_has_its_own_group() -> None:
    for strategy in (ProcessedEvents(CONNECT), StoredOffsets(CONNECT)):
        for settings in (SETTINGS, OTHER):
            with receiver(strategy, settings):
                assert strategy.group == settings["group.id"]


def test_a_strategy_can_be_used_after_an_outage_of_kafka() -> None:
    producer = {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "t", "log_level": 0}
    strategy = KafkaTransactions(producer, seconds=0.1)
    for _ in range(2):
        with pytest.raises(UnreachableError):
            receiver(strategy)


async def coroutine() -> None:
    pass


def engine(url: str, driver: str = "") -> Callable[[], Session]:
    created = sqlalchemy.create_engine(url, creator=lambda: None)
    created.dialect.driver = driver or created.dialect.driver
    return sessionmaker(created)


@pytest.mark.parametrize(
    ("connect", "named"),
    [
        (coroutine, "coroutine"),
        (object, "object"),
        (lambda: scoped_session(sessionmaker()), "scoped_session"),
        (sessionmaker(), "engine"),
        (engine("sqlite://"), "sqlite"),
        (engine("postgresql+psycopg://", "asyncpg"), "asyncpg"),
    ],
)
@pytest.mark.parametrize("kind", [ProcessedEvents, StoredOffsets, WithoutDeduplication])
def test_a_connection_that_cannot_be_used_is_refused(kind: type[Any], connect: Callable[[], Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        receiver(kind(connect))


@pytest.mark.parametrize(
    ("driver", "wait_callback", "warns"),
    [("psycopg", None, False), ("psycopg2", None, True), ("psycopg2", "select", False), ("pg8000", None, False)],
)
def test_sessions_of_three_drivers_can_be_used(
    driver: str,
    wait_callback: str | None,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    extensions = SimpleNamespace(get_wait_callback=lambda: wait_callback)
    monkeypatch.setitem(sys.modules, "psycopg2.extensions", extensions)
    with closing(receiver(ProcessedEvents(engine("postgresql+psycopg://", driver)))):
        assert ("psycopg2 blocks" in caplog.text) == warns
