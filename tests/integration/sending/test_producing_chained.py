"""Chained commits with and without a recovery store: real crashes between the commits, then recovery."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import IsolationLevel, Producer
from psycopg import sql
from psycopg.pq import TransactionStatus
from tests.integration.sending.producing_support import (
    HookedProducer,
    LosingConnection,
    LostResponseProducer,
    World,
    world,
)

from outbox_events import (
    ChainedSender,
    InvalidEventError,
    NotDeliveredError,
    ProducerUnusableError,
    Recovered,
    RecoveryStore,
    UnknownOutcomeError,
    fence,
    recover,
)
from outbox_events.errors import ConfigurationError, RefusedError, WaitTimeoutError
from outbox_events.kafka.record import Record
from outbox_events.producing.database import Order
from outbox_events.producing.errors import FENCED_HINT
from outbox_events.waiting import Observation, wait_for

pytestmark = pytest.mark.integration
__all__ = ["world"]

ORDERS: list[Order] = ["database-first", "kafka-first"]
INSERT = "insert into purchase values (%s)"


class Service:
    """A sender with its connections, as a service creates it."""

    def __init__(
        self,
        world: World,
        *,
        order: Order = "database-first",
        connection: type[psycopg.Connection[Any]] = psycopg.Connection,
        kind: type[Producer] = HookedProducer,
        **producer_settings: object,
    ) -> None:
        self.world = world
        self.connection = world.connect(connection)
        self.producer: Any = world.producer(kind=kind, **producer_settings)
        fence(self.producer)
        sender_id = producer_settings.get("transactional.id", world.transactional_id)
        self.store = RecoveryStore(world.connect(autocommit=True), sender_id)
        self.sender = ChainedSender(self.connection, self.producer, order=order, store=self.store)

    def buy(self, event_id: str | None = None) -> str:
        event_id = event_id or str(uuid4())
        with self.sender.transaction() as transaction:
            self.connection.execute(INSERT, [event_id])
            transaction.send(self.world.record(event_id))
        return event_id


def run_recovery(world: World, **options: object) -> Recovered:
    store = RecoveryStore(world.connect(autocommit=True), world.transactional_id)
    return recover(store, world.producer(), world.settings, **options)


@pytest.mark.parametrize("order", ORDERS)
def test_commits_both_and_deletes_the_saved_rows(world: World, order: Order) -> None:
    service = Service(world, order=order)
    events = {service.buy(), service.buy()}
    assert world.purchases() == events
    assert world.delivered() == dict.fromkeys(events, 1)
    assert world.column("select event_id from recovery_store") == []


@pytest.mark.parametrize("order", ORDERS)
def test_exception_rolls_back_both(world: World, order: Order) -> None:
    service = Service(world, order=order)

    def insert_twice() -> None:
        with service.sender.transaction() as transaction:
            service.connection.execute(INSERT, ["a"])
            transaction.send(world.record("a"))
            service.connection.execute(INSERT, ["a"])

    with pytest.raises(psycopg.errors.UniqueViolation):
        insert_twice()
    kept = service.buy()  # the sender can be used again
    assert world.purchases() == {kept}
    assert world.delivered() == {kept: 1}


CRASHES = {
    ("database-first", "before-database"): Recovered(rolled_back=1),
    ("database-first", "after-database"): Recovered(resent=1),
    ("database-first", "after-kafka"): Recovered(proven=1),
    ("kafka-first", "before-kafka"): Recovered(rolled_back=1),
    ("kafka-first", "after-database"): Recovered(proven=1),
}


@pytest.mark.parametrize(("order", "point"), CRASHES)
def test_recovery_makes_both_equal_after_a_crash(world: World, order: Order, point: str) -> None:
    event_id = world.crash(f"{order}+store", point)
    recovered = run_recovery(world)
    assert recovered == CRASHES[order, point]
    assert world.delivered() == dict.fromkeys(world.purchases(), 1)
    assert (event_id in world.purchases()) == (recovered.rolled_back == 0)
    assert run_recovery(world) == Recovered()


def test_recovery_reports_a_phantom(world: World) -> None:
    event_id = world.crash("kafka-first+store", "after-kafka")
    assert run_recovery(world) == Recovered(phantoms=(event_id,))
    assert world.purchases() == set()
    assert world.delivered() == {event_id: 1}


@pytest.mark.parametrize(
    ("order", "point", "purchases", "records"),
    [("database-first", "after-database", 1, 0), ("kafka-first", "after-kafka", 0, 1)],
)
def test_crash_without_a_store_leaves_one_of_both(
    world: World, order: Order, point: str, purchases: int, records: int
) -> None:
    world.crash(order, point)
    fence(world.producer())
    assert (len(world.purchases()), world.delivered().total()) == (purchases, records)


def test_resent_record_equals_the_saved_one(world: World) -> None:
    service = Service(world)
    records = [world.record(), Record(world.topic, b"\xff", None, world.record().headers, partition=1)]
    transaction_id = str(service.connection.execute("select pg_current_xact_id()::text").fetchall()[0][0])
    service.store.save(transaction_id, records)
    service.connection.commit()
    assert [row.record for row in service.store.read()] == records
    assert run_recovery(world).resent == 2
    assert world.delivered().total() == 2


def test_executes_four_statements_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(world)
    statements: list[str] = []

    class Counting(psycopg.Cursor[Any]):
        def execute(self, query: sql.Composed | str, *arguments: object, **options: object) -> psycopg.Cursor[Any]:
            statements.append(query if isinstance(query, str) else query.as_string())
            return super().execute(query, *arguments, **options)

    monkeypatch.setattr(psycopg, "Cursor", Counting)
    with service.sender.transaction() as transaction:
        for _ in range(5):
            transaction.send(world.record())
    assert [statement.split()[0] for statement in statements] == [
        "begin",
        "select",
        "select",
        "select",
        "insert",
        "with",
    ]
    assert world.delivered().total() == 5


class TestNested:
    def test_joined_block_is_committed_by_the_outermost(self, world: World) -> None:
        service = Service(world)
        with service.sender.transaction() as outer:
            outer.send(world.record("outer"))
            with service.sender.transaction() as inner:
                inner.send(world.record("inner"))
            assert world.delivered(IsolationLevel.READ_COMMITTED) == {}
            assert world.column("select event_id from recovery_store") == []
        assert world.delivered() == {"outer": 1, "inner": 1}

    def test_failed_joined_block_prevents_the_commit(self, world: World) -> None:
        service = Service(world)

        def outer_block() -> None:
            with service.sender.transaction() as outer:
                outer.send(world.record("outer"))
                with suppress(KeyError), service.sender.transaction() as inner:
                    inner.send(world.record("inner"))
                    raise KeyError

        with pytest.raises(RefusedError):
            outer_block()
        assert world.delivered() == {}

    def test_independent_transactions_count_separately(self, world: World) -> None:
        outer, inner = Service(world), Service(world, **{"transactional.id": f"{world.transactional_id}-inner"})
        with suppress(KeyError), outer.sender.transaction() as transaction:
            outer.connection.execute(INSERT, ["outer"])
            transaction.send(world.record("outer"))
            inner.buy("inner")
            assert world.purchases() == {"inner"}
            raise KeyError
        assert world.purchases() == {"inner"}
        assert world.delivered() == {"inner": 1}
        assert world.column("select event_id from recovery_store") == []

    def test_rejects_an_independent_transaction_on_the_same_connection(self, world: World) -> None:
        service = Service(world)
        second = ChainedSender(service.connection, service.producer)
        service.connection.execute("select 1")
        with pytest.raises(RefusedError), second.transaction():
            raise AssertionError
        assert service.connection.info.transaction_status == TransactionStatus.INTRANS


class TestOrder:
    """A recovery does not send the old state of a key to a compacted topic."""

    @pytest.mark.parametrize("is_compacted", [True, pytest.param(False, marks=pytest.mark.long)])
    def test_newer_record_was_delivered(self, world: World, *, is_compacted: bool) -> None:
        if is_compacted:
            world.compact()
        old = world.crash("database-first+store", "after-database")
        new = Service(world, **{"transactional.id": f"{world.transactional_id}-2"}).buy()
        expected = Recovered(superseded=(old,)) if is_compacted else Recovered(resent=1)
        assert run_recovery(world) == expected
        assert world.delivered() == {new: 1} if is_compacted else {old: 1, new: 1}
        assert world.column("select event_id from recovery_store") == []

    @pytest.mark.long
    def test_newer_record_is_saved_but_not_delivered(self, world: World) -> None:
        world.compact()
        old, new = [world.crash("database-first+store", "after-database") for _ in range(2)]
        assert run_recovery(world) == Recovered(resent=1, superseded=(old,))
        assert world.delivered() == {new: 1}

    @pytest.mark.long
    def test_newer_transaction_was_rolled_back(self, world: World) -> None:
        world.compact()
        old = world.crash("database-first+store", "after-database")
        world.crash("database-first+store", "before-database")
        assert run_recovery(world) == Recovered(resent=1, rolled_back=1)
        assert world.delivered() == {old: 1}

    def test_recovery_waits_for_open_transactions_of_other_senders(self, world: World) -> None:
        """A record that was sent before the commit would otherwise precede the record of the recovery."""
        world.compact()
        old = world.crash("database-first+store", "after-database")
        other = Service(world, **{"transactional.id": f"{world.transactional_id}-2"})
        with ThreadPoolExecutor(1) as executor:
            with other.sender.transaction() as transaction:
                other.connection.execute(INSERT, ["new"])
                transaction.send(world.record("new"))
                recovery = executor.submit(run_recovery, world)
                wait_for("the lock request of the recovery", partial(waiting_sessions, world), seconds=30)
            assert recovery.result(timeout=60) == Recovered(superseded=(old,))
        assert world.delivered() == {"new": 1}


def waiting_sessions(world: World) -> Observation[int]:
    waiting = "select pid from pg_locks where locktype = 'advisory' and not granted"
    return Observation(len(world.column(waiting)) or None, "no session waits")


class TestErrors:
    def test_failed_save_aborts(self, world: World) -> None:
        service = Service(world)
        with world.connect(autocommit=True) as admin:
            admin.execute("alter table recovery_store add check (event_id <> 'rejected')")
        with pytest.raises(psycopg.errors.CheckViolation):
            service.buy("rejected")
        assert world.purchases() == set()
        assert world.delivered() == {}

    def test_save_on_a_lost_connection_aborts(self, world: World) -> None:
        service = Service(world)
        service.store.connection.close()
        with pytest.raises(psycopg.OperationalError):
            service.buy()
        assert world.purchases() == set()
        assert world.delivered() == {}

    @pytest.mark.parametrize("order", ORDERS)
    def test_rows_remain_after_a_commit_error(self, world: World, order: Order) -> None:
        service = Service(world, order=order)
        with world.connect(autocommit=True) as admin:
            admin.execute("alter table purchase add constraint once unique (id) deferrable initially deferred")
            admin.execute("alter table purchase drop constraint purchase_pkey")
        first = service.buy()
        with pytest.raises(psycopg.errors.UniqueViolation):
            service.buy(first)
        assert world.column("select event_id from recovery_store") == [first]
        assert service.connection.info.transaction_status == TransactionStatus.IDLE

    def test_swallowed_database_error_does_not_send(self, world: World) -> None:
        service = Service(world)

        def swallow_error() -> None:
            with service.sender.transaction() as transaction:
                transaction.send(world.record())
                with suppress(psycopg.Error):
                    service.connection.execute("select 1/0")

        with pytest.raises(RefusedError):
            swallow_error()
        assert world.delivered() == {}

    def test_undelivered_record_rolls_back(self, world: World) -> None:
        service = Service(world)
        record = Record(world.topic, b"key", b"x", world.record().headers, partition=99)

        def send_to_a_missing_partition() -> None:
            with service.sender.transaction() as transaction:
                service.connection.execute(INSERT, ["a"])
                transaction.send(record)

        with pytest.raises(NotDeliveredError):
            send_to_a_missing_partition()
        assert world.purchases() == set()

    def test_fenced_producer_leaves_the_row_to_the_recovery(self, world: World) -> None:
        """The outcome of a fenced producer's commit is unknown, and the commit is never treated as aborted."""
        service = Service(world)
        service.producer.before_commit = lambda: fence(world.producer())
        with pytest.raises(UnknownOutcomeError):
            service.buy("a")
        assert world.purchases() == {"a"}
        assert run_recovery(world) == Recovered(resent=1)
        assert world.delivered() == {"a": 1}

    @pytest.mark.parametrize("order", ORDERS)
    def test_lost_response_to_the_commit_of_the_database(self, world: World, order: Order) -> None:
        """The recovery determines the outcome, and Kafka is not aborted."""
        service = Service(world, order=order, connection=LosingConnection)
        with pytest.raises(UnknownOutcomeError):
            service.buy("a")
        assert world.purchases() == {"a"}
        assert run_recovery(world) == (Recovered(resent=1) if order == "database-first" else Recovered(proven=1))
        assert world.delivered() == {"a": 1}

    def test_connection_that_is_lost_before_the_commit(self, world: World) -> None:
        service = Service(world)
        service.producer.after_flush = lambda: world.terminate(service.connection)
        with pytest.raises(UnknownOutcomeError):
            service.buy("a")
        assert run_recovery(world) == Recovered(rolled_back=1)
        assert world.purchases() == set(world.delivered()) == set()

    def test_without_a_store_the_caller_decides_after_an_unknown_outcome(self, world: World) -> None:
        producer = world.producer()
        fence(producer)
        connection = world.connect(LosingConnection)
        sender = ChainedSender(connection, producer)

        def buy() -> None:
            with sender.transaction() as transaction:
                connection.execute(INSERT, ["a"])
                transaction.send(world.record("a"))

        with pytest.raises(UnknownOutcomeError):
            buy()
        assert world.purchases() == {"a"}
        producer.commit_transaction(30)
        assert world.delivered() == {"a": 1}

    def test_unknown_outcome_in_kafka_is_a_reported_phantom_with_kafka_first(self, world: World) -> None:
        service = Service(world, order="kafka-first", kind=LostResponseProducer)
        with pytest.raises(UnknownOutcomeError):
            service.buy("a")
        assert world.purchases() == set()
        assert run_recovery(world) == Recovered(phantoms=("a",))

    def test_row_locks_are_released_before_kafka_is_aborted(self, world: World) -> None:
        service = Service(world)
        service.buy("locked")
        locked: list[Any] = []
        service.producer.before_abort = lambda: locked.append(
            world.column("select id from purchase where id = 'locked' for update nowait")
        )

        def update() -> None:
            with service.sender.transaction() as transaction:
                service.connection.execute("update purchase set id = id where id = 'locked'")
                transaction.send(Record(world.topic, b"key", b"x", world.record().headers, partition=99))

        with pytest.raises(NotDeliveredError):
            update()
        assert locked == [["locked"]]

    def test_fenced_producer_leads_to_the_other_process(self, world: World) -> None:
        service = Service(world)
        with suppress(NotDeliveredError), service.sender.transaction() as transaction:
            fence(world.producer())
            transaction.send(world.record())
        with pytest.raises(ProducerUnusableError) as raised:
            service.buy()
        assert raised.value.hint == FENCED_HINT
        assert service.connection.info.transaction_status == TransactionStatus.IDLE

    def test_failed_begin_rolls_back(self, world: World) -> None:
        service = Service(world)
        service.connection.execute("set lock_timeout = 100")
        service.connection.commit()
        key = "select pg_advisory_lock(hashtextextended(%s, 0))"
        with world.connect(autocommit=True) as other:
            other.execute(key, [world.transactional_id])
            with pytest.raises(psycopg.errors.LockNotAvailable):
                service.buy()
        kept = service.buy()
        assert world.purchases() == {kept}

    def test_recovery_waits_for_an_open_business_transaction(self, world: World) -> None:
        service = Service(world)
        transaction_id = str(service.connection.execute("select pg_current_xact_id()::text").fetchall()[0][0])
        service.store.save(transaction_id, [world.record()])
        with pytest.raises(WaitTimeoutError):
            run_recovery(world, seconds=2)
        assert [row.transaction_id for row in service.store.read()] == [transaction_id]
        service.connection.rollback()
        assert run_recovery(world) == Recovered(rolled_back=1)

    def test_recovery_waits_for_a_fenced_process_before_its_save(self, world: World) -> None:
        """The old process has flushed, but saves only after the new process has fenced it."""
        service = Service(world)
        recoveries: list[Future[Recovered]] = []

        def start_recovery() -> None:
            with pytest.raises(WaitTimeoutError):
                run_recovery(world, seconds=5)
            recoveries.append(executor.submit(run_recovery, world))

        service.producer.after_flush = start_recovery
        with ThreadPoolExecutor(1) as executor, pytest.raises(UnknownOutcomeError):
            service.buy("a")
        assert recoveries[0].result(timeout=60) == Recovered(resent=1)
        assert world.purchases() == {"a"}
        assert world.delivered() == {"a": 1}

    def test_recovery_does_not_interpret_transaction_ids_of_another_database(self, world: World) -> None:
        """A copy of the table, for example from a dump, contains the transaction ids of its origin."""
        event_id = world.crash("database-first+store", "after-database")
        with world.connect(autocommit=True) as admin:
            admin.execute("update recovery_store set database = '1/1', transaction_id = '999999999999'")
        assert run_recovery(world) == Recovered(undecided=1)
        assert world.column("select event_id from recovery_store") == [event_id]
        assert world.delivered() == {}

    @pytest.mark.long
    def test_row_with_a_missing_topic_does_not_block_the_other_rows(self, world: World) -> None:
        crashed = world.crash("database-first+store", "after-database")
        store = RecoveryStore(world.connect(autocommit=True), world.transactional_id)
        [transaction_id] = world.column("select transaction_id::text from recovery_store")
        store.save(transaction_id, [world.record("elsewhere", topic=f"{world.topic}-missing")])
        assert run_recovery(world) == Recovered(resent=1, missing_topics=(f"{world.topic}-missing",))
        assert world.column("select event_id from recovery_store") == ["elsewhere"]
        assert world.delivered() == {crashed: 1}

    def test_recovery_does_not_read_rows_of_other_senders(self, world: World) -> None:
        store = RecoveryStore(world.connect(autocommit=True), "other")
        store.save("3", [world.record()])
        assert run_recovery(world) == Recovered()
        assert len(store.read()) == 1

    def test_rejects_records_without_an_event_id(self, world: World) -> None:
        service = Service(world)
        with pytest.raises(InvalidEventError), service.sender.transaction() as transaction:
            transaction.send(Record(world.topic, b"key", b"x"))
        assert world.delivered() == {}

    def test_rejects_unsafe_connections(self, world: World) -> None:
        producer = world.producer()
        autocommit, plain = world.connect(autocommit=True), world.connect()
        with pytest.raises(RefusedError), ChainedSender(autocommit, producer).transaction():
            raise AssertionError
        with pytest.raises(RefusedError):
            RecoveryStore(plain, "s")
        with pytest.raises(RefusedError):
            ChainedSender(autocommit, producer, store=RecoveryStore(autocommit, "s"))
        with pytest.raises(ConfigurationError):
            ChainedSender(plain, producer, order="both")  # type: ignore[arg-type]
        with pytest.raises(RefusedError), ChainedSender(plain, producer).transaction() as transaction:
            transaction.send(world.record())  # the producer is not initialized
        assert plain.info.transaction_status == TransactionStatus.IDLE
