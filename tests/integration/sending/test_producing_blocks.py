"""Blocks of senders: what services execute in a block, and servers that do not respond at its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg.pq import TransactionStatus
from tests.integration.sending.producing_support import HookedProducer, World, world
from tests.integration.untrue_errors import EmptyError, InvalidError

from outbox_events import (
    ChainedSender,
    NotDeliveredError,
    ProducerUnusableError,
    ProofSender,
    Recovered,
    RecoveryStore,
    SenderTransaction,
    SupervisedSender,
    TwoPhaseSender,
    UnknownOutcomeError,
    fence,
    recover,
    two_phase,
)
from outbox_events.errors import RefusedError
from outbox_events.producing.database import Order
from outbox_kit.stack import Stack
from outbox_kit.stack.processes import find_processes
from outbox_lab.drill.senders.direct_sender import DirectSender

pytestmark = pytest.mark.integration
__all__ = ["world"]

INSERT = "insert into purchase values (%s)"
SAVED = "select event_id from recovery_store union all select event_id from unproven_record"
WAYS = ("direct", "database-first", "kafka-first", "database-first+store", "kafka-first+store", "two-phase", "proof")


class Sender(Protocol):
    def transaction(self) -> AbstractContextManager[SenderTransaction]: ...


def open_sender(world: World, way: str, kind: type[Producer] = Producer, **options: Any) -> tuple[Sender, Any]:  # noqa: ANN401
    """Return a sender and its producer."""
    connection = world.connect()
    if way in ("direct", "proof"):
        producer = world.producer(transactional=False, kind=kind)
        return (DirectSender if way == "direct" else ProofSender)(connection, producer, **options), producer
    producer = world.producer(kind=kind)
    fence(producer)
    if way == "two-phase":
        return TwoPhaseSender(connection, producer, world.transactional_id, **options), producer
    order, _, has_store = way.partition("+")
    store = RecoveryStore(world.connect(autocommit=True), world.transactional_id) if has_store else None
    return ChainedSender(connection, producer, order=order, store=store, **options), producer  # type: ignore[arg-type]


def execute(statement: str) -> Callable[[psycopg.Connection[Any]], object]:
    return lambda connection: connection.execute(statement)


def commit_and_go_on(connection: psycopg.Connection[Any]) -> None:
    connection.execute("commit")
    connection.execute(INSERT, ["after"])


def replace_transaction(end: str) -> Callable[[psycopg.Connection[Any]], None]:
    def replace(connection: psycopg.Connection[Any]) -> None:
        connection.execute(end)
        connection.execute("begin")
        connection.execute(INSERT, ["after"])

    return replace


ENDS: dict[str, Callable[[psycopg.Connection[Any]], object]] = {
    "commit()": lambda connection: connection.commit(),
    "rollback()": lambda connection: connection.rollback(),
    "COMMIT": execute("commit"),
    "ROLLBACK": execute("rollback"),
    "COMMIT and more": commit_and_go_on,
    "COMMIT and BEGIN": replace_transaction("commit"),
    "ROLLBACK and BEGIN": replace_transaction("rollback"),
    "COMMIT AND CHAIN": execute("commit and chain"),
    "ROLLBACK AND CHAIN": execute("rollback and chain"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_block_that_ends_its_transaction_sends_nothing(world: World, way: str, end: str) -> None:
    sender, _ = open_sender(world, way)

    def buy(event_id: str, end: Callable[[psycopg.Connection[Any]], object]) -> psycopg.Connection[Any]:
        with sender.transaction() as transaction:
            transaction.connection.execute(INSERT, [event_id])
            transaction.send(world.record(event_id))
            end(transaction.connection)
            return transaction.connection

    with pytest.raises(RefusedError):
        buy("a", ENDS[end])
    assert world.column(SAVED) == []
    assert "after" not in world.purchases() or end == "COMMIT and more"
    connection = buy("next", lambda _: None)  # the sender can be used again
    assert world.delivered() == {"next": 1}
    assert connection.info.transaction_status == TransactionStatus.IDLE
    assert not connection.autocommit
    assert "commit" not in vars(connection)


def enter(open_context: Callable[[psycopg.Connection[Any]], Any]) -> Callable[[psycopg.Connection[Any]], Any]:
    """Return a function that enters the context manager, and returns it without exiting it."""

    def entered(connection: psycopg.Connection[Any]) -> object:
        context = open_context(connection)
        context.__enter__()
        return context

    return entered


def synced_pipeline(connection: psycopg.Connection[Any]) -> object:
    """Leave a pipeline open whose statements have ended, so that the transaction does not look active."""
    pipeline = connection.pipeline()
    pipeline.__enter__().sync()
    return pipeline


def stream(connection: psycopg.Connection[Any]) -> object:
    rows = connection.cursor().stream("select generate_series(1, 9)")
    next(rows)
    return rows


LEFT_OPEN: dict[str, Callable[[psycopg.Connection[Any]], Any]] = {
    "pipeline": enter(lambda connection: connection.pipeline()),
    "synced pipeline": synced_pipeline,
    "savepoint": enter(lambda connection: connection.transaction()),
    "stream": stream,
}


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("left", LEFT_OPEN)
@pytest.mark.parametrize("way", WAYS)
def test_a_block_that_leaves_something_open_sends_nothing_and_ends(
    world: World, way: str, left: str, raises: bool
) -> None:
    """The suspended stream holds the lock of the connection, so that ROLLBACK would wait for ever."""
    sender, _ = open_sender(world, way)
    connections = []

    def buy() -> None:
        with sender.transaction() as transaction:
            connections.append(transaction.connection)
            transaction.connection.execute(INSERT, ["a"])
            transaction.send(world.record("a"))
            kept = LEFT_OPEN[left](transaction.connection)
            if raises:
                raise ValueError(str(kept))

    with pytest.raises(ValueError if raises else RefusedError):
        buy()
    assert world.column(SAVED) == []
    assert world.purchases() == set()
    assert connections[0].closed


def lost(connection: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.OperationalError):
        connection.execute("select pg_terminate_backend(pg_backend_pid())")


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (execute("select 1"), "not idle: INTRANS"),
        (lambda connection: connection.close(), "closed or lost"),
        (lost, "closed or lost"),
        (lambda connection: connection.set_autocommit(True), "autocommit mode"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_block_names_the_problem_of_its_connection(
    world: World, way: str, prepare: Callable[[psycopg.Connection[Any]], object], problem: str
) -> None:
    sender, _ = open_sender(world, way)
    with sender.transaction() as transaction:
        connection = transaction.connection
    prepare(connection)
    with pytest.raises(RefusedError, match=problem), sender.transaction():
        pass


@pytest.mark.parametrize("order", ["database-first", "kafka-first"])
def test_a_store_whose_connection_is_in_a_pipeline_sends_nothing(world: World, order: Order) -> None:
    """The rows of the store would be queued, and be missing after a crash."""
    producer = world.producer()
    fence(producer)
    store = RecoveryStore(world.connect(autocommit=True), world.transactional_id)
    sender = ChainedSender(world.connect(), producer, order=order, store=store)
    pipeline = store.connection.pipeline()
    pipeline.__enter__()
    with pytest.raises(RefusedError, match="recovery store"), sender.transaction() as transaction:
        transaction.send(world.record("a"))
    pipeline.__exit__(None, None, None)
    assert world.delivered() == {}


@pytest.mark.parametrize("way", ["two-phase", "proof"])
def test_a_nested_block_is_refused_because_its_connection_is_not_idle(world: World, way: str) -> None:
    sender, _ = open_sender(world, way)
    with pytest.raises(RefusedError, match="not idle"), sender.transaction(), sender.transaction():
        pass
    assert world.delivered() == {}


@pytest.mark.parametrize("way", WAYS)
def test_sending_after_the_block_is_refused(world: World, way: str) -> None:
    sender, _ = open_sender(world, way)
    with sender.transaction() as transaction:
        transaction.send(world.record("a"))
    with pytest.raises(RefusedError, match="had ended"):
        transaction.send(world.record("b"))
    assert world.delivered() == {"a": 1}


@pytest.mark.parametrize("way", WAYS)
def test_records_of_a_savepoint_share_its_fate(world: World, way: str) -> None:
    sender, _ = open_sender(world, way)
    with sender.transaction() as transaction:

        def buy(event_id: str, *, force_rollback: bool = False, error: Exception | None = None) -> None:
            with transaction.connection.transaction(force_rollback=force_rollback):
                transaction.send(world.record(event_id))
                transaction.connection.execute(INSERT, [event_id])
                if error is not None:
                    raise error

        buy("a")
        with suppress(psycopg.errors.UniqueViolation):
            buy("a")
        with suppress(KeyError):
            buy("b", error=KeyError())
        for kind in (EmptyError, InvalidError):
            with suppress(kind):
                buy("b", error=kind())
        buy("c", error=psycopg.Rollback())
        buy("d", force_rollback=True)
        with suppress(KeyError), transaction.connection.transaction():
            buy("e")
            raise KeyError
        buy("f")
    assert world.purchases() == {"a", "f"}
    assert world.delivered() == {"a": 1, "f": 1}


def test_a_joined_block_in_a_savepoint_can_fail(world: World) -> None:
    sender, _ = open_sender(world, "database-first")
    with sender.transaction() as outer:
        outer.send(world.record("outer"))
        with suppress(KeyError), outer.connection.transaction(), sender.transaction() as inner:
            inner.send(world.record("inner"))
            raise KeyError
    assert world.delivered() == {"outer": 1}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_produced_before_the_end_of_the_block(world: World, way: str) -> None:
    sender, producer = open_sender(world, way)
    with sender.transaction() as transaction:
        transaction.send(world.record("a"))
        producer.flush(10)
        assert world.produced() == 0
    assert world.delivered() == {"a": 1}


def test_settings_of_the_connection_apply_to_the_transaction(world: World) -> None:
    sender, _ = open_sender(world, "two-phase")
    connection: Any = sender._connection  # type: ignore[attr-defined]
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = False
    connection.deferrable = True
    with sender.transaction():
        assert connection.execute("show transaction_isolation").fetchall() == [("repeatable read",)]
        assert connection.execute("show transaction_deferrable").fetchall() == [("on",)]


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("way", ["database-first+store", "two-phase"])
def test_a_frozen_broker(world: World, stack: Stack, way: str) -> None:
    sender, producer = open_sender(world, way, HookedProducer, seconds=1.0)
    brokers = [process.pid for process in find_processes(stack.layout, ("kafka",))]
    locked: list[Any] = []
    producer.before_abort = lambda: locked.extend(world.column("select id from purchase for update nowait"))
    with world.connect() as connection:
        connection.execute(INSERT, ["locked"])

    def change() -> None:
        with sender.transaction() as transaction:
            transaction.connection.execute("update purchase set id = id")
            transaction.send(world.record("a"))

    with frozen(*brokers), pytest.raises(NotDeliveredError):
        change()
    assert locked == ["locked"]
    fence(world.producer())
    assert world.delivered() == {}


@pytest.mark.parametrize("way", ["database-first+store", "two-phase"])
def test_a_frozen_database(world: World, way: str) -> None:
    """The server might have received COMMIT or PREPARE TRANSACTION, so only the recovery determines the outcome."""
    sender, producer = open_sender(world, way, HookedProducer, seconds=1.0)
    with ExitStack() as resources:

        def freeze(connection: psycopg.Connection[Any]) -> None:
            resources.enter_context(frozen(connection.info.backend_pid))

        def change() -> None:
            with sender.transaction() as transaction:
                producer.after_flush = partial(freeze, transaction.connection)
                transaction.connection.execute(INSERT, ["a"])
                transaction.send(world.record("a"))

        with pytest.raises(UnknownOutcomeError):
            change()
    if way == "two-phase":
        two_phase.recover(world.connect(), world.producer(), world.transactional_id, world.settings)
    else:
        run_recovery(world)
    assert world.delivered() == dict.fromkeys(world.purchases(), 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_database_that_freezes_in_the_block(world: World, way: str) -> None:
    sender, _ = open_sender(world, way, seconds=1.0)

    def change(resources: ExitStack) -> None:
        with sender.transaction() as transaction:
            transaction.connection.execute(INSERT, ["a"])
            transaction.send(world.record("a"))
            resources.enter_context(frozen(transaction.connection.info.backend_pid))

    with ExitStack() as resources, pytest.raises(psycopg.OperationalError):
        change(resources)
    assert world.column(SAVED) == []
    assert world.delivered() == {}


def run_recovery(world: World) -> Recovered:
    store = RecoveryStore(world.connect(autocommit=True), world.transactional_id)
    return recover(store, world.producer(), world.settings)


class Supervised:
    """A supervised sender, and the senders and stores that it has opened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.opened: list[tuple[psycopg.Connection[Any], RecoveryStore]] = []
        self.sender = SupervisedSender(self.open)

    @contextmanager
    def open(self) -> Iterator[ChainedSender]:
        with self.world.connect() as connection, self.world.connect(autocommit=True) as second:
            producer, store = self.world.producer(), RecoveryStore(second, self.world.transactional_id)
            recover(store, producer, self.world.settings)
            self.opened.append((connection, store))
            yield ChainedSender(connection, producer, store=store)

    def buy(self, event_id: str) -> None:
        with self.sender.transaction() as transaction:
            transaction.connection.execute(INSERT, [event_id])
            transaction.send(self.world.record(event_id))


@pytest.mark.parametrize("broken", ["connection", "store"])
def test_a_supervised_sender_replaces_lost_connections(world: World, broken: str) -> None:
    service = Supervised(world)
    service.buy("a")
    connection, store = service.opened[0]
    world.terminate(connection if broken == "connection" else store.connection)
    with pytest.raises(psycopg.OperationalError):
        service.buy("b")
    service.buy("c")
    with pytest.raises(psycopg.errors.UniqueViolation):
        service.buy("c")
    service.buy("d")
    service.sender.close()
    assert [connection.closed for connection, _ in service.opened] == [True, True]
    assert world.purchases() == {"a", "c", "d"}
    assert world.delivered() == {"a": 1, "c": 1, "d": 1}


def test_a_supervised_sender_is_not_replaced_when_it_is_fenced_again(world: World) -> None:
    service = Supervised(world)
    for event_id in ("a", "b"):
        service.buy(event_id)
        fence(world.producer())
        with pytest.raises(NotDeliveredError):
            service.buy(f"{event_id}-fenced")
    with pytest.raises(ProducerUnusableError):
        service.buy("c")
    assert len(service.opened) == 2
    assert world.delivered() == dict.fromkeys(world.purchases(), 1) == {"a": 1, "b": 1}
