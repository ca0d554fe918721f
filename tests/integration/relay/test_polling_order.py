"""Polling orders: the gap of an incrementing column, the fix for it, plain SKIP LOCKED, and buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from psycopg import sql

from outbox_kit.deployment import Deployment
from outbox_kit.postgres import client
from outbox_lab.drill.poller import IncrementingPoller

INSERT = "insert into public.polling (aggregate_id, note) values (%s, %s)"
CLAIM = "select note from public.polling order by seq limit 2 for update skip locked"


@pytest.fixture
def table(source_dsn: str, library: Deployment) -> Iterator[str]:
    del library
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(
            "create table public.polling (seq bigint generated always as identity, aggregate_id text, note text)"
        )
        yield "public.polling"
        connection.execute("drop table public.polling")


@contextmanager
def transactions(dsn: str, count: int) -> Iterator[list[psycopg.Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(dsn)) for _ in range(count)]


def notes_of(library: Deployment, dsn: str, table: str, *, horizon: bool) -> list[list[str]]:
    """Insert T1 to T5 in this order, and commit T1 and T3 last. Return the rows of a poll before and after that."""
    with client.connected(library.environment.source) as reader, transactions(dsn, 5) as sessions:
        poller = IncrementingPoller(reader, table, sql.SQL("note"), horizon)
        for number, session in enumerate(sessions, start=1):
            session.execute(INSERT, (f"a{number}", f"T{number}"))
        first, second, third, fourth, fifth = sessions
        for session in (second, fourth, fifth):
            session.commit()
        polls = [[row["note"] for row in poller.poll()]]
        for session in (first, third):
            session.commit()
        return [*polls, [row["note"] for row in poller.poll()]]


def test_an_incrementing_column_misses_rows_that_commit_late(library: Deployment, source_dsn: str, table: str) -> None:
    assert notes_of(library, source_dsn, table, horizon=False) == [["T2", "T4", "T5"], []]


def test_the_snapshot_horizon_misses_no_row(library: Deployment, source_dsn: str, table: str) -> None:
    assert notes_of(library, source_dsn, table, horizon=True) == [[], ["T1", "T2", "T3", "T4", "T5"]]


@pytest.mark.parametrize("horizon", [False, True])
def test_a_poller_continues_at_the_position_of_another(
    library: Deployment, source_dsn: str, table: str, *, horizon: bool
) -> None:
    with client.connected(library.environment.source) as reader, psycopg.connect(source_dsn) as writer:
        for number in range(1, 6):
            writer.execute(INSERT, ("a", f"row {number}"))
        writer.commit()
        first = IncrementingPoller(reader, table, sql.SQL("note"), horizon)
        assert len(first.poll(limit=3)) == 3
        second = IncrementingPoller(reader, table, sql.SQL("note"), horizon, first.position)
        assert [row["note"] for row in second.poll()] == ["row 4", "row 5"]


def test_the_order_of_transaction_ids_reverses_states(library: Deployment, source_dsn: str, table: str) -> None:
    """A transaction gets its id at its first write, possibly before it waits for the lock of the business row."""
    with client.connected(library.environment.source) as reader, transactions(source_dsn, 2) as (early, late):
        poller = IncrementingPoller(reader, table, sql.SQL("note"), horizon=True)
        early.execute("select pg_current_xact_id()")
        late.execute(INSERT, ("a", "first state"))
        late.commit()
        early.execute(INSERT, ("a", "second state"))
        early.commit()
        assert [row["note"] for row in poller.poll()] == ["second state", "first state"]
        ordered = reader.execute("select note from public.polling order by seq").fetchall()
        assert [row["note"] for row in ordered] == ["first state", "second state"]


def test_skip_locked_lets_a_second_process_overtake(source_dsn: str, table: str) -> None:
    """Both processes get states of one aggregate, so their sends race. A bucket, however, has one owner at a time."""
    with psycopg.connect(source_dsn) as writer:
        for number in range(1, 5):
            writer.execute(INSERT, ("a", f"state {number}"))
    with transactions(source_dsn, 2) as (first, second):
        slow = [note for (note,) in first.execute(CLAIM)]
        fast = [note for (note,) in second.execute(CLAIM)]
        assert (slow, fast) == (["state 1", "state 2"], ["state 3", "state 4"])
    del table
