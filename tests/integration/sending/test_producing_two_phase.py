"""Last-resource commit: the topic determines whether a prepared transaction is committed or rolled back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from tests.integration.sending.producing_support import HookedProducer, LostResponseProducer, World, world

from outbox_events import InvalidEventError, Resolved, TwoPhaseSender, UnknownOutcomeError, fence, two_phase
from outbox_events.errors import RefusedError, WaitTimeoutError

pytestmark = pytest.mark.integration
__all__ = ["world"]

PREPARED = "select gid from pg_prepared_xacts where database = current_database()"


@pytest.fixture(autouse=True)
def _no_prepared_transactions(world: World) -> Any:  # noqa: ANN401
    """Roll back prepared transactions that a test leaves, because they would block the drop of its tables."""
    yield
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        for gid in world.column(PREPARED):
            connection.tpc_rollback(gid)


def sender(
    world: World, kind: type[Producer] = HookedProducer, **hooks: Callable[[], object]
) -> tuple[TwoPhaseSender, psycopg.Connection[Any]]:
    connection, producer = world.connect(), world.producer(kind=kind)
    for name, function in hooks.items():
        setattr(producer, name, function)
    fence(producer)
    return TwoPhaseSender(connection, producer, world.transactional_id), connection


def run_recovery(world: World, *, seconds: float = 30) -> Resolved:
    return two_phase.recover(world.connect(), world.producer(), world.transactional_id, world.settings, seconds=seconds)


def buy(sender: TwoPhaseSender, connection: psycopg.Connection[Any], world: World, *event_ids: str) -> None:
    with sender.transaction() as transaction:
        for event_id in event_ids:
            connection.execute("insert into purchase values (%s)", [event_id])
            transaction.send(world.record(event_id))


def test_commits_both(world: World) -> None:
    service, connection = sender(world)
    events = [str(uuid4()) for _ in range(3)]
    buy(service, connection, world, *events)
    buy(service, connection, world, "next")
    assert world.purchases() == {*events, "next"}
    assert world.delivered() == dict.fromkeys([*events, "next"], 1)
    assert world.column(PREPARED) == []


def test_an_exception_of_a_signal_handler_after_prepare_is_an_unknown_outcome(world: World) -> None:
    """Otherwise, a SupervisedSender would use the sender again, and wait for the locks of the prepared transaction."""

    def interrupt() -> None:
        raise TimeoutError

    service, connection = sender(world, before_commit=interrupt)
    with pytest.raises(UnknownOutcomeError):
        buy(service, connection, world, "a")
    assert run_recovery(world) == Resolved(0, 1)
    assert (world.purchases(), world.delivered()) == (set(), {})


def test_transaction_without_records_is_committed_in_one_phase(world: World) -> None:
    service, connection = sender(world)
    with service.transaction():
        connection.execute("insert into purchase values ('a')")
    assert world.purchases() == {"a"}
    buy(service, connection, world, "b")
    assert world.delivered() == {"b": 1}


def test_exception_rolls_back_both(world: World) -> None:
    service, connection = sender(world)
    with pytest.raises(psycopg.errors.UniqueViolation):
        buy(service, connection, world, "a", "a")
    assert world.column(PREPARED) == []
    buy(service, connection, world, "b")
    assert world.purchases() == {"b"}
    assert world.delivered() == {"b": 1}


@pytest.mark.parametrize(
    ("point", "resolved"), [("before-kafka", Resolved(rolled_back=1)), ("after-kafka", Resolved(committed=1))]
)
def test_recovery_resolves_a_transaction_in_doubt(world: World, point: str, resolved: Resolved) -> None:
    event_id = world.crash("two-phase", point)
    assert [event_id in gid for gid in world.column(PREPARED)] == [True]
    assert world.purchases() == set()
    assert run_recovery(world) == resolved
    assert world.column(PREPARED) == []
    assert world.purchases() == ({event_id} if resolved.committed else set())
    assert world.delivered() == dict.fromkeys(world.purchases(), 1)


def test_transactions_whose_topic_does_not_exist_stay_prepared(world: World) -> None:
    """The other transactions are resolved, and those of other software are ignored."""
    event_id = world.crash("two-phase", "after-kafka")
    renamed, foreign = f"{world.transactional_id}:{uuid4()}@{world.topic}-renamed", f"{world.transactional_id}:foreign"
    with world.connect(autocommit=True) as connection:
        for gid in (renamed, foreign):
            connection.execute("begin")
            connection.execute(f"prepare transaction '{gid}'")
    with pytest.raises(RefusedError, match=renamed) as raised:
        run_recovery(world)
    assert foreign not in raised.value.message
    assert set(world.column(PREPARED)) == {renamed, foreign}
    assert world.purchases() == {event_id}


def test_fenced_commit_stays_prepared(world: World) -> None:
    service, connection = sender(world, before_commit=lambda: fence(world.producer()))
    with pytest.raises(UnknownOutcomeError):
        buy(service, connection, world, "a")
    assert len(world.column(PREPARED)) == 1
    assert run_recovery(world) == Resolved(rolled_back=1)


def test_lost_response_to_the_commit_stays_prepared(world: World) -> None:
    service, connection = sender(world, kind=LostResponseProducer)
    with pytest.raises(UnknownOutcomeError):
        buy(service, connection, world, "a")
    assert run_recovery(world) == Resolved(committed=1)
    assert world.purchases() == {"a"}
    assert world.delivered() == {"a": 1}


def test_recovery_waits_for_a_fenced_process_before_its_prepare(world: World) -> None:
    """The old process has flushed, but prepares only after the new process has fenced it."""
    recoveries: list[Future[Resolved]] = []

    def start_recovery() -> None:
        with pytest.raises(WaitTimeoutError):
            run_recovery(world, seconds=5)
        recoveries.append(executor.submit(run_recovery, world))

    service, connection = sender(world, after_flush=start_recovery)
    with ThreadPoolExecutor(1) as executor, suppress(UnknownOutcomeError):
        buy(service, connection, world, "a")
    assert recoveries[0].result(timeout=60).committed == 0
    assert world.column(PREPARED) == []
    assert world.purchases() == set()
    assert world.delivered() == {}


def test_connection_lost_at_prepare_commits_nothing(world: World) -> None:
    class LosingProducer(Producer):
        def flush(self, *arguments: float) -> int:
            world.terminate(connection)
            return super().flush(*arguments)

    service, connection = sender(world, kind=LosingProducer)
    with pytest.raises(UnknownOutcomeError):
        buy(service, connection, world, "a")
    assert run_recovery(world).committed == 0
    assert world.purchases() == set()
    assert world.delivered() == {}


def test_connection_lost_at_commit_prepared_is_resolved_by_the_recovery(world: World) -> None:
    class LosingProducer(Producer):
        def commit_transaction(self, *arguments: float) -> None:
            super().commit_transaction(*arguments)
            world.terminate(connection)

    service, connection = sender(world, kind=LosingProducer)
    with pytest.raises(UnknownOutcomeError):
        buy(service, connection, world, "a")
    assert run_recovery(world) == Resolved(committed=1)
    assert world.purchases() == {"a"}
    assert world.delivered() == {"a": 1}


def test_recovery_leaves_transactions_of_other_senders(world: World) -> None:
    with world.connect(autocommit=True) as connection:
        connection.execute("begin")
        connection.execute(f"prepare transaction '{world.transactional_id}:other:{uuid4()}'")
    assert run_recovery(world) == Resolved()
    assert len(world.column(PREPARED)) == 1


def test_rejects_ids_that_are_no_valid_gid(world: World) -> None:
    service, connection = sender(world)
    for event_id in ("a:b", "x" * (198 - len(world.transactional_id) - len(world.topic))):
        with pytest.raises(InvalidEventError):
            buy(service, connection, world, event_id)
    assert world.purchases() == set()
    assert world.delivered() == {}


def test_rejects_a_connection_in_autocommit_mode(world: World) -> None:
    service = TwoPhaseSender(world.connect(autocommit=True), world.producer(), world.transactional_id)
    with pytest.raises(RefusedError), service.transaction():
        raise AssertionError
