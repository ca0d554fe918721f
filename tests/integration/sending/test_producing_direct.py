"""Direct sends: what each order loses or announces wrongly after a crash."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.integration.sending.producing_support import World, world

from outbox_kit.sending.producing import NotDeliveredError, send_after_commit, send_before_commit
from outbox_kit.sending.record import Record

pytestmark = pytest.mark.integration
__all__ = ["world"]


def work(connection: psycopg.Connection[Any]) -> str:
    connection.execute("insert into purchase values ('a')")
    return "result"


@pytest.mark.parametrize("send", [send_after_commit, send_before_commit])
def test_commits_and_sends(world: World, send: Any) -> None:  # noqa: ANN401
    producer = world.producer(transactional=False)
    assert send(world.connect(), producer, world.record("a"), work) == "result"
    assert world.purchases() == {"a"}
    assert world.delivered() == {"a": 1}


@pytest.mark.parametrize("send", [send_after_commit, send_before_commit])
def test_failed_work_sends_nothing(world: World, send: Any) -> None:  # noqa: ANN401
    connection = world.connect()

    def fail(connection: psycopg.Connection[Any]) -> None:
        work(connection)
        raise KeyError

    with pytest.raises(KeyError):
        send(connection, world.producer(transactional=False), world.record("a"), fail)
    assert world.purchases() == set()
    assert world.delivered() == {}


def test_database_first_loses_the_record_after_a_crash(world: World) -> None:
    event_id = world.crash("direct-after", "after-database")
    assert world.purchases() == {event_id}
    assert world.delivered() == {}


def test_kafka_first_announces_what_did_not_happen_after_a_crash(world: World) -> None:
    event_id = world.crash("direct-before", "after-kafka")
    assert world.purchases() == set()
    assert world.delivered() == {event_id: 1}


def test_kafka_first_sends_before_the_commit_is_visible(world: World) -> None:
    connection = world.connect()
    seen: list[set[str]] = []

    class Observing(psycopg.Connection[Any]):
        def commit(self) -> None:
            assert world.delivered() == {"a": 1}
            seen.append(world.purchases())
            super().commit()

    with Observing.connect(world.dsn) as observing:
        send_before_commit(observing, world.producer(transactional=False), world.record("a"), work)
        assert seen[0] == set()
    assert world.purchases() == {"a"}
    connection.close()


def test_undelivered_record_rolls_back_only_with_kafka_first(world: World) -> None:
    record = Record(world.topic, b"key", b"x", partition=99)
    producer = world.producer(transactional=False)
    with pytest.raises(NotDeliveredError):
        send_before_commit(world.connect(), producer, record, work)
    assert world.purchases() == set()
    with pytest.raises(NotDeliveredError):
        send_after_commit(world.connect(), producer, record, work)
    assert world.purchases() == {"a"}
