"""The table of processed events: what concurrent transactions see, and the libraries that can access it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from tests.integration.receiving.service import SECONDS, Service

from outbox_events import claim, claim_async, processed_table
from outbox_events.errors import ConfigurationError, RefusedError, WaitTimeoutError
from outbox_events.waiting import Observation, wait_for

Connection = psycopg.Connection[Any]
THREADS, IDS, BATCH = 8, 500, 50
INSERT_EFFECT = "insert into effect (consumer_group, event_id) values (%s, %s)"


@pytest.fixture
def engine(service: Service) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=service.connect)
    yield engine
    engine.dispose()


def waits(service: Service, connection: Connection) -> bool:
    """Return whether another session waits for a lock that a transaction holds."""
    with service.connect() as observer:
        query = "select cardinality(pg_blocking_pids(%s)) > 0"
        return bool(observer.execute(query, [connection.info.backend_pid]).fetchall()[0][0])


def wait_until(subject: str, condition: Callable[[], bool]) -> None:
    wait_for(subject, lambda: Observation(condition() or None, "not yet"), seconds=SECONDS, interval=0.02)


@pytest.mark.parametrize("commits", [True, False])
def test_the_second_transaction_waits_for_the_first(service: Service, commits: bool) -> None:
    with ThreadPoolExecutor(1) as pool, service.connect() as first, service.connect() as second:
        assert claim(first, service.group, ["a"]) == {"a"}
        claimed = pool.submit(claim, second, service.group, ["a", "b"])
        wait_until("the second transaction to wait", lambda: waits(service, second))
        assert not claimed.done()
        (first.commit if commits else first.rollback)()
        assert claimed.result(SECONDS) == ({"b"} if commits else {"a", "b"})


@pytest.mark.parametrize(("is_first", "expected_calls"), [(True, 1), (False, 2)], ids=["insert-first", "insert-last"])
def test_a_handler_is_called_once_only_if_the_insert_comes_first(
    service: Service, is_first: bool, expected_calls: int
) -> None:
    calls: list[int] = []

    def process(connection: Connection, end_of_handler: Callable[[], None]) -> None:
        with connection.transaction():
            if is_first and not claim(connection, service.group, ["a"]):
                return
            calls.append(connection.info.backend_pid)
            connection.execute(INSERT_EFFECT, [service.group, "a"])
            end_of_handler()
            if not is_first and not claim(connection, service.group, ["a"]):
                raise psycopg.Rollback

    with ThreadPoolExecutor(1) as pool, service.connect() as first, service.connect() as second:
        processed = []

        def wait_for_the_second() -> None:
            processed.append(pool.submit(process, second, lambda: None))
            wait_until("the second process", lambda: len(calls) == 2 or waits(service, second))

        process(first, wait_for_the_second)
        processed[0].result(SECONDS)
    assert service.effects() == ["a"]
    assert len(calls) == expected_calls


def test_many_threads_claim_each_id_once_without_a_deadlock(service: Service) -> None:
    ids = [f"e{number}" for number in range(IDS)]

    def process(seed: int) -> int:
        order, claimed = random.Random(seed).sample(ids, IDS), 0  # noqa: S311 - no secret
        with service.connect() as connection:
            for start in range(0, IDS, BATCH):
                with connection.transaction():
                    new = claim(connection, service.group, order[start : start + BATCH])
                    connection.cursor().executemany(INSERT_EFFECT, [(service.group, event_id) for event_id in new])
                    claimed += len(new)
        return claimed

    with ThreadPoolExecutor(THREADS) as pool:
        counts = list(pool.map(process, range(THREADS)))
    assert sum(counts) == IDS
    assert sorted(service.effects()) == sorted(ids)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("setting", "wait"), [("0", "50ms"), ("50ms", "1h")])
def test_the_wait_for_another_transaction_is_limited(
    service: Service, monkeypatch: pytest.MonkeyPatch, setting: str, wait: str, is_async: bool
) -> None:
    monkeypatch.setattr(processed_table, "WAIT", wait)
    options = f"-c lock_timeout={setting}"

    async def claim_by_async_connection() -> None:
        async with await psycopg.AsyncConnection.connect(service.dsn, options=options) as connection:
            await claim_async(connection, service.group, ["a"])

    with service.connect() as first, psycopg.connect(service.dsn, options=options) as second:
        claim(first, service.group, ["a"])
        assert claim(second, service.group, ["b"]) == {"b"}
        assert second.execute("show lock_timeout").fetchall() == [(setting,)]
        with pytest.raises(WaitTimeoutError):
            asyncio.run(claim_by_async_connection()) if is_async else claim(second, service.group, ["a"])


def test_groups_claim_ids_of_their_own(service: Service) -> None:
    with service.connect() as connection:
        assert claim(connection, service.group, ["a", "a", "b"]) == {"a", "b"}
        assert claim(connection, service.group, ["b", "c"]) == {"c"}
        assert claim(connection, f"{service.group}-other", ["a"]) == {"a"}
        assert claim(connection, service.group, []) == set()


def test_an_async_connection_claims_and_refuses_autocommit(service: Service) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(service.dsn) as connection:
            assert await claim_async(connection, service.group, ["a"]) == {"a"}
            await connection.rollback()
            assert await claim_async(connection, service.group, ["a"]) == {"a"}
            await connection.commit()
            assert await claim_async(connection, service.group, ["a", "b"]) == {"b"}
        async with await psycopg.AsyncConnection.connect(service.dsn, autocommit=True) as connection:
            with pytest.raises(RefusedError):
                await claim_async(connection, service.group, ["c"])
            async with connection.transaction():
                assert await claim_async(connection, service.group, ["c"]) == {"c"}

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["connection", "session", "scoped_session"])
def test_sqlalchemy_claims_in_the_open_transaction(service: Service, engine: sqlalchemy.Engine, kind: str) -> None:
    factories: dict[str, Callable[[], Any]] = {
        "connection": engine.connect,
        "session": lambda: Session(engine),
        "scoped_session": lambda: scoped_session(sessionmaker(engine)),
    }
    bind = factories[kind]()
    try:
        assert claim(bind, service.group, ["a"]) == {"a"}
        bind.rollback()
        assert claim(bind, service.group, ["a", "b"]) == {"a", "b"}
        processed_table.store_response(bind, service.group, "a", b"\x00answer")
        bind.commit()
        assert claim(bind, service.group, ["a"]) == set()
        assert processed_table.response(bind, service.group, "a") == b"\x00answer"
    finally:
        bind.close()


def test_an_async_session_claims_by_run_sync(service: Service) -> None:
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine  # noqa: PLC0415 - needs greenlet

    async def run() -> None:
        engine = create_async_engine(
            "postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(service.dsn)
        )
        async with AsyncSession(engine) as session:
            assert await session.run_sync(claim, service.group, ["a"]) == {"a"}
            await session.rollback()
            assert await session.run_sync(claim, service.group, ["a"]) == {"a"}
            await session.commit()
            assert await session.run_sync(claim, service.group, ["a", "b"]) == {"b"}
        await engine.dispose()

    asyncio.run(run())


def test_refuses_connections_that_commit_each_statement(service: Service, engine: sqlalchemy.Engine) -> None:
    with psycopg.connect(service.dsn, autocommit=True) as connection:
        with pytest.raises(RefusedError):
            claim(connection, service.group, ["a"])
        with connection.transaction():
            assert claim(connection, service.group, ["a"]) == {"a"}
    automatic = engine.execution_options(isolation_level="AUTOCOMMIT")
    with automatic.connect() as bind, pytest.raises(RefusedError):
        claim(bind, service.group, ["b"])
    with pytest.raises(ConfigurationError):
        claim(object(), service.group, ["b"])  # type: ignore[arg-type]


def test_a_duplicate_finds_the_stored_response(service: Service) -> None:
    with service.connect() as connection:
        claim(connection, service.group, ["a", "b"])
        processed_table.store_response(connection, service.group, "a", b"\x00answer")
        with pytest.raises(RefusedError):
            processed_table.store_response(connection, service.group, "c", b"answer")
    with service.connect() as connection:
        assert claim(connection, service.group, ["a", "b"]) == set()
        assert processed_table.response(connection, service.group, "a") == b"\x00answer"
        assert processed_table.response(connection, service.group, "b") is None
        assert processed_table.response(connection, f"{service.group}-other", "a") is None
