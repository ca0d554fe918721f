"""Deletion of old ids, and the check that no event can be delivered again after its id has been deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from tests.integration.receiving.service import Service, run_until

from outbox_events import ProcessedEvents, ReceiverStoppedError, Retries, claim, processed_table
from outbox_events.errors import ConfigurationError, RefusedError, UnreachableError
from outbox_events.receiving.strategies.processed_retention import check_retention, expire

DAY = timedelta(days=1)
DAY_MS = str(24 * 3600 * 1000)
WEEK_MS = str(7 * 24 * 3600 * 1000)


def fill(service: Service, table: str, *, old: int, new: int) -> None:
    with service.connect() as connection:
        claim(connection, service.group, [f"old{number}" for number in range(old)], table=table)
        connection.execute(f"update {table} set processed_at = now() - interval '8 days'")  # type: ignore[arg-type]
        claim(connection, service.group, [f"new{number}" for number in range(new)], table=table)


@pytest.mark.parametrize("shards", [pytest.param(3, marks=pytest.mark.long), 1], ids=["shards", "one table"])
def test_deletes_the_old_ids_in_batches(service: Service, shards: int) -> None:
    table = f"public.expire_{service.group.replace('-', '_')}"
    with service.connect() as connection:
        connection.execute(processed_table.create_table_sql(table, shards=shards))
    fill(service, table, old=5_000, new=100)
    with psycopg.connect(service.dsn, autocommit=True) as connection:
        before = connection.execute("select pg_current_xact_id()::text::bigint").fetchall()[0][0]
        assert expire(connection, "another group", table=table) == 0
        assert expire(connection, service.group, batch=500, table=table) == 5_000
        after = connection.execute("select pg_current_xact_id()::text::bigint").fetchall()[0][0]
        assert after - before > 5_000 / 500 / 2, "the batches share a transaction"
        assert expire(connection, table=table) == 0
        left = connection.execute(f"select event_id from {table}").fetchall()  # type: ignore[arg-type]
    assert {row[0] for row in left} == {f"new{number}" for number in range(100)}


def test_refuses_to_expire_within_a_transaction(service: Service) -> None:
    with service.connect() as connection:
        claim(connection, service.group, ["a"])
        with pytest.raises(RefusedError):
            expire(connection)


@pytest.mark.parametrize(
    ("config", "keep", "named"),
    [
        ({"retention.ms": DAY_MS, "segment.ms": DAY_MS}, 2 * DAY, ""),
        ({"retention.ms": DAY_MS, "segment.ms": DAY_MS}, 1.9 * DAY, "retention.ms=86400000"),
        ({"retention.ms": "-1"}, 1000 * DAY, "retention.ms=-1"),
        ({"cleanup.policy": "compact"}, 7 * DAY, ""),
        ({"cleanup.policy": "compact"}, 6 * DAY, "offsets.retention.minutes=10080"),
        ({"cleanup.policy": "compact,delete", "retention.ms": WEEK_MS, "segment.ms": DAY_MS}, 7 * DAY, "retention.ms"),
    ],
)
def test_ids_must_be_kept_as_long_as_an_event_can_come_again(
    service: Service, create_topic: Callable[..., str], config: dict[str, str], keep: timedelta, named: str
) -> None:
    topic = create_topic(**config)
    if not named:
        check_retention(service.settings(on_commit=print), [topic], keep)
        return
    with pytest.raises(ConfigurationError) as raised:
        check_retention(service.settings(), [topic], keep)
    assert topic in str(raised.value)
    assert named in str(raised.value)
    assert str(keep) in str(raised.value)


def test_a_receiver_checks_how_long_ids_are_kept(service: Service, create_topic: Callable[..., str]) -> None:
    service.topic = create_topic(**{"retention.ms": DAY_MS, "segment.ms": DAY_MS})
    service.handlers.otherwise(service.write_effect)
    service.send(("a", "1"))
    for keep, is_enough in ((1.9 * DAY, False), (2 * DAY, True)):
        with service.receiver(ProcessedEvents(service.connect, keep=keep)) as receiver:
            if is_enough:
                run_until(receiver, "the effect", lambda: service.effects() == ["1"])
                continue
            with pytest.raises(ReceiverStoppedError, match="86400000") as raised:
                run_until(receiver, "never", lambda: False)
            assert str(2 * DAY) in raised.value.hint


def test_ids_must_be_kept_during_the_retries(service: Service, create_topic: Callable[..., str]) -> None:
    topic = create_topic(**{"retention.ms": "1000", "segment.ms": "1000"})
    retries = Retries(attempts=3, first_delay_s=3600, max_delay_s=7200, jitter=0)
    check_retention(service.settings(), [topic], timedelta(hours=3), retries)
    with pytest.raises(ConfigurationError):
        check_retention(service.settings(), [topic], timedelta(hours=2, minutes=59), retries)


def test_an_unknown_topic_is_an_error(service: Service) -> None:
    with pytest.raises(UnreachableError):
        check_retention(service.settings(), ["receiving.unknown"], 7 * DAY)
