"""Handlers that end the transaction of their events, or ignore an error in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import URL, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from tests.integration.receiving.service import Service, run_until

from outbox_events import (
    Event,
    ProcessedEvents,
    ReceiverStoppedError,
    Retries,
    StoredOffsets,
    WithoutDeduplication,
    recoverers,
)
from outbox_events.receiving.handlers import Handler
from outbox_events.receiving.strategies.ended_transactions import TransactionEndedError

KINDS = [ProcessedEvents, StoredOffsets, pytest.param(WithoutDeduplication, marks=pytest.mark.long)]
LEFT_OPEN: list[Any] = []
"""References, without which Python would close the object."""


class Base(DeclarativeBase):
    pass


class Effect(Base):
    """A row that the database rejects: the position is generated always."""

    __tablename__ = "effect"
    event_id: Mapped[str]
    position: Mapped[int] = mapped_column(primary_key=True, default=1)


def bad_then_good(service: Service, fail: Callable[[Any], None]) -> Handler[Any]:
    """Return a handler that writes an effect and, for the event `bad`, then ends the transaction."""

    def handle(event: Event, connection: Any) -> None:  # noqa: ANN401 - a connection or a session
        run(connection, f"insert into effect (consumer_group, event_id) values ('{service.group}', '{event.event_id}')")
        if event.event_id == "bad":
            fail(connection)

    return handle


def run(connection: Any, statement: str) -> None:  # noqa: ANN401
    connection.execute(text(statement) if isinstance(connection, Session) else statement)


def ignore_error(connection: Any) -> None:  # noqa: ANN401
    with suppress(Exception):
        run(connection, "select 1 / 0")


def ignore_error_of_flush(session: Session) -> None:
    with suppress(DBAPIError):
        session.add(Effect(event_id="x"))
        session.flush()


def sessions_of(service: Service) -> Callable[[], Session]:
    return sessionmaker(create_engine("postgresql+psycopg://", creator=service.connect, poolclass=NullPool))


@pytest.fixture
def pooled_sessions(service: Service) -> Iterator[Callable[[], Session]]:
    """Return a function that opens a session with the only connection of a pool."""
    engine = create_engine("postgresql+psycopg://", creator=service.connect, pool_size=1, max_overflow=0)
    yield sessionmaker(engine)
    engine.dispose()


@pytest.mark.parametrize(
    ("uses_session", "fail"), [(False, ignore_error), (True, ignore_error), (True, ignore_error_of_flush)]
)
def test_a_handler_that_ignores_an_error_loses_no_other_event(
    service: Service, uses_session: bool, fail: Callable[[Any], None]
) -> None:
    service.handlers.otherwise(bad_then_good(service, fail))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    strategy = ProcessedEvents(sessions_of(service) if uses_session else service.connect, service.group)
    retries = Retries(attempts=2, first_delay_s=0.05, jitter=0)
    with service.receiver(strategy, retries=retries, recoverer=recoverers.log_and_continue) as receiver:
        run_until(receiver, "the events", lambda: service.effects() == ["1", "2"])
        assert receiver.counters.recovered == 1


def ignore_refusal(connection: Any) -> None:  # noqa: ANN401
    with suppress(ReceiverStoppedError):
        connection.rollback()


def ignore_refusal_of_commit(session: Session) -> None:
    with suppress(ReceiverStoppedError):
        session.commit()


def ignore_refusal_of_statement(session: Session) -> None:
    with suppress(ReceiverStoppedError):
        run(session, "commit")


def roll_back_after_an_error(connection: Any) -> None:  # noqa: ANN401
    try:
        run(connection, "select 1 / 0")
    except Exception:
        with suppress(ReceiverStoppedError):
            connection.rollback()
        raise


def ignore_an_error_and_a_refusal(connection: Any) -> None:  # noqa: ANN401
    with suppress(psycopg.Error, DBAPIError):
        run(connection, "select 1 / 0")
    ignore_refusal(connection)


def fail_after_a_refusal(connection: Any) -> None:  # noqa: ANN401
    with suppress(ReceiverStoppedError):
        connection.commit()
    raise ValueError


def leave_pipeline(connection: psycopg.Connection[Any]) -> None:
    LEFT_OPEN.append(connection.pipeline())
    LEFT_OPEN[-1].__enter__()


def leave_synced_pipeline(connection: psycopg.Connection[Any]) -> None:
    LEFT_OPEN.append(connection.pipeline())
    LEFT_OPEN[-1].__enter__().sync()


def leave_stream(connection: psycopg.Connection[Any]) -> None:
    rows = connection.cursor().stream("select generate_series(1, 9)")
    next(rows)
    LEFT_OPEN.append(rows)


@pytest.mark.parametrize("uses_session", [False, True])
@pytest.mark.parametrize("batch_size", [1, 100])
@pytest.mark.parametrize("leave", [leave_pipeline, leave_synced_pipeline, leave_stream])
@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_leaves_a_statement_open_loses_no_event(
    service: Service,
    kind: type[Any],
    pooled_sessions: Callable[[], Session],
    leave: Callable[[psycopg.Connection[Any]], None],
    batch_size: int,
    uses_session: bool,
) -> None:
    """COMMIT would be queued in the pipeline and never be sent, and the next handler would wait for the stream."""
    is_broken = True
    connect = pooled_sessions if uses_session else service.connect

    def leave_if_broken(connection: Any) -> None:  # noqa: ANN401
        if is_broken:
            leave(raw(connection) if uses_session else connection)

    service.handlers.otherwise(bad_then_good(service, leave_if_broken))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    with service.receiver(kind(connect), batch_size=batch_size) as receiver:
        with pytest.raises(ReceiverStoppedError, match="pipeline, COPY or stream"):
            run_until(receiver, "an error", lambda: False)
        assert service.effects() == (["1"] if batch_size == 1 else [])
        is_broken = False
        run_until(receiver, "the events", lambda: service.effects() == ["1", "bad", "2"])


@pytest.mark.parametrize("uses_session", [False, True])
def test_an_error_while_rows_are_read_is_retried(
    service: Service, pooled_sessions: Callable[[], Session], uses_session: bool
) -> None:
    """The suspended stream holds the lock of the connection, so that ROLLBACK would wait for ever."""

    def fail(connection: Any) -> None:  # noqa: ANN401
        driver = raw(connection) if uses_session else connection
        rows = driver.cursor().stream("select generate_series(1, 9)")
        next(rows)
        raise ValueError(str(rows))

    service.handlers.otherwise(bad_then_good(service, fail))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    retries = Retries(attempts=2, first_delay_s=0.05, jitter=0)
    strategy = ProcessedEvents(pooled_sessions if uses_session else service.connect, service.group)
    with service.receiver(strategy, retries=retries, recoverer=recoverers.log_and_continue) as receiver:
        run_until(receiver, "the events", lambda: service.effects() == ["1", "2"])
        assert receiver.counters.recovered == 1


@pytest.mark.parametrize(
    ("uses_session", "end"),
    [
        (False, lambda connection: connection.commit()),
        (False, lambda connection: connection.rollback()),
        (False, lambda connection: connection.close()),
        (False, ignore_refusal),
        (False, roll_back_after_an_error),
        (False, ignore_an_error_and_a_refusal),
        (False, fail_after_a_refusal),
        (True, lambda session: session.rollback()),
        (True, lambda session: session.close()),
        (True, lambda session: session.reset()),
        (True, lambda session: session.commit()),
        (True, lambda session: session.connection().commit()),
        (True, lambda session: session.connection().rollback()),
        (True, lambda session: session.connection().close()),
        (True, lambda session: session.get_transaction().commit()),
        (True, lambda session: run(session, "/* all */ commit")),
        (True, lambda session: run(session, "rollback")),
        (True, ignore_refusal),
        (True, roll_back_after_an_error),
        (True, ignore_an_error_and_a_refusal),
        (True, fail_after_a_refusal),
        (True, ignore_refusal_of_commit),
        (True, ignore_refusal_of_statement),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_would_end_the_transaction_stops_the_receiver(
    service: Service, kind: type[Any], uses_session: bool, end: Callable[[Any], None]
) -> None:
    """Nothing is committed, and after the handler is corrected, all events are applied."""
    is_broken = True
    service.handlers.otherwise(bad_then_good(service, lambda connection: end(connection) if is_broken else None))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    strategy = kind(sessions_of(service) if uses_session else service.connect)
    with service.receiver(strategy, recoverer=recoverers.log_and_continue) as receiver:
        for _ in range(2):
            with pytest.raises(ReceiverStoppedError, match="nothing was committed"):
                run_until(receiver, "an error", lambda: False)
        assert service.effects() == []
        is_broken = False
        run_until(receiver, "the events", lambda: receiver.counters.handled == 3)
        assert receiver.counters.recovered == 0
    assert service.effects() == ["1", "bad", "2"]


def test_a_connection_that_is_already_closed_stops_the_receiver(service: Service) -> None:
    connection = service.connect()
    connection.close()
    service.send(("a", "1"))
    with (
        service.receiver(StoredOffsets(lambda: connection)) as receiver,
        pytest.raises(ReceiverStoppedError, match="closed connection"),
    ):
        run_until(receiver, "an error", lambda: False)


def raw(session: Session) -> psycopg.Connection[Any]:
    connection: Any = session.connection().connection.driver_connection
    return cast(psycopg.Connection[Any], connection)


@pytest.mark.parametrize("error", [None, ValueError(), psycopg.OperationalError("of another database")])
@pytest.mark.parametrize(
    ("uses_session", "replace"),
    [
        (False, lambda connection: connection.execute("rollback and chain")),
        (False, lambda connection: connection.execute("commit and chain")),
        (False, lambda connection: connection.execute("rollback; begin")),
        (True, lambda session: raw(session).rollback()),
        (True, lambda session: raw(session).commit()),
        (True, lambda session: session.connection().exec_driver_sql("select 1; rollback")),
    ],
)
def test_a_transaction_that_a_handler_has_replaced_stops_the_receiver(
    service: Service, uses_session: bool, replace: Callable[[Any], None], error: Exception | None
) -> None:
    """Otherwise the effects of the events before it would be lost, or be committed twice."""

    def fail(connection: Any) -> None:  # noqa: ANN401
        replace(connection)
        if error is not None:
            raise error

    service.handlers.otherwise(bad_then_good(service, fail))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    strategy = ProcessedEvents(sessions_of(service) if uses_session else service.connect, service.group)
    with (
        service.receiver(strategy, recoverer=recoverers.log_and_continue) as receiver,
        pytest.raises(ReceiverStoppedError, match="ended the transaction"),
    ):
        run_until(receiver, "an error", lambda: False)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000"])
@pytest.mark.parametrize("statements", [["rollback"], ["commit"], ["rollback", "begin"], ["prepare transaction 'x'"]])
@pytest.mark.parametrize("kind", [ProcessedEvents, StoredOffsets])
def test_a_statement_of_the_driver_loses_no_event(
    service: Service, kind: type[Any], statements: list[str], driver: str
) -> None:
    """The driver of a session does not know that it is no longer in a transaction."""
    url = URL.create(f"postgresql+{driver}", **url_of(service.dsn))
    is_broken = True

    def fail(session: Session) -> None:
        cursor = cast(Any, session.connection().connection.driver_connection).cursor()
        for statement in statements if is_broken else []:
            cursor.execute(statement)

    service.handlers.otherwise(bad_then_good(service, fail))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    strategy = kind(sessionmaker(create_engine(url, poolclass=NullPool)))
    with service.receiver(strategy, recoverer=recoverers.log_and_continue) as receiver:
        with pytest.raises(ReceiverStoppedError, match="ended the transaction"):
            run_until(receiver, "an error", lambda: False)
        is_broken = False
        with service.connect() as connection:
            connection.autocommit = True
            if connection.execute("select from pg_prepared_xacts where gid = 'x'").fetchall():
                connection.execute("rollback prepared 'x'")
        run_until(receiver, "the events", lambda: receiver.counters.handled == 3)
    assert set(service.effects()) == {"1", "bad", "2"}


def url_of(dsn: str) -> dict[str, Any]:
    """Return the parts of a URL of SQLAlchemy."""
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    names = {"host": "host", "port": "port", "user": "username", "password": "password", "dbname": "database"}
    return {names[key]: int(str(value)) if key == "port" else value for key, value in parts.items() if key in names}


def commit_and_leave_stream(connection: psycopg.Connection[Any]) -> None:
    connection.execute("commit")
    leave_stream(connection)


def commit_in_autocommit_mode(session: Session) -> None:
    raw(session).commit()
    raw(session).autocommit = True


def commit_and_fail(connection: psycopg.Connection[Any]) -> None:
    for statement in ("commit", "begin", "select 1 / 0"):
        connection.execute(statement)  # type: ignore[call-overload]


def commit_and_ignore_failure(connection: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.Error):
        commit_and_fail(connection)


def commit_in_session_and_fail(session: Session) -> None:
    raw(session).commit()
    run(session, "select 1 / 0")


def commit_in_session_and_exit(session: Session) -> None:
    raw(session).commit()
    raise SystemExit


def commit_and_leave_savepoint(connection: psycopg.Connection[Any]) -> None:
    run(connection, "commit")
    LEFT_OPEN.append(connection.transaction())
    LEFT_OPEN[-1].__enter__()


def commit_and_open_savepoint(connection: psycopg.Connection[Any]) -> None:
    run(connection, "commit")
    with connection.transaction():
        run(connection, "select 1")


def commit_and_fail_in_stream(connection: psycopg.Connection[Any]) -> None:
    commit_and_leave_stream(connection)
    raise ValueError


def commit_in_pipeline_and_fail(connection: psycopg.Connection[Any]) -> None:
    LEFT_OPEN.append(connection.pipeline())
    pipeline = LEFT_OPEN[-1].__enter__()
    run(connection, "commit")
    pipeline.sync()
    raise ValueError


def commit_and_lose_connection(connection: psycopg.Connection[Any]) -> None:
    run(connection, "commit")
    run(connection, "select pg_terminate_backend(pg_backend_pid())")


def commit_in_session_before_an_outage(session: Session) -> None:
    raw(session).commit()
    ignore_error(session)
    raise psycopg.OperationalError("of another database")


def commit_and_lose_connection_of_session(session: Session) -> None:
    commit_and_lose_connection(raw(session))


MISTAKES = [
    commit_and_leave_stream,
    commit_and_fail,
    commit_and_ignore_failure,
    commit_and_leave_savepoint,
    commit_and_open_savepoint,
    commit_and_fail_in_stream,
    commit_in_pipeline_and_fail,
    commit_and_lose_connection,
]
MISTAKES_IN_SESSION = [
    commit_in_autocommit_mode,
    commit_in_session_and_fail,
    commit_in_session_and_exit,
    commit_in_session_before_an_outage,
    commit_and_lose_connection_of_session,
]


@pytest.mark.parametrize("mistake", [*MISTAKES, *MISTAKES_IN_SESSION])
@pytest.mark.parametrize("kind", [ProcessedEvents, StoredOffsets])
def test_a_commit_that_another_mistake_hides_loses_no_event(
    service: Service, pooled_sessions: Callable[[], Session], kind: type[Any], mistake: Callable[[Any], None]
) -> None:
    is_broken = True
    connect: Any = pooled_sessions if mistake in MISTAKES_IN_SESSION else service.connect
    service.handlers.otherwise(bad_then_good(service, lambda connection: mistake(connection) if is_broken else None))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    with service.receiver(kind(connect), recoverer=recoverers.log_and_continue) as receiver:
        with pytest.raises(TransactionEndedError):
            run_until(receiver, "an error", lambda: False)
        is_broken = False
        run_until(receiver, "the events", lambda: receiver.counters.handled == 3)
    assert set(service.effects()) == {"1", "bad", "2"}


def test_a_savepoint_that_is_left_open_stops_the_receiver(service: Service) -> None:
    is_broken = True

    def fail(connection: psycopg.Connection[Any]) -> None:
        if is_broken:
            LEFT_OPEN.append(connection.transaction())
            LEFT_OPEN[-1].__enter__()

    service.handlers.otherwise(bad_then_good(service, fail))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    with service.receiver(ProcessedEvents(service.connect), recoverer=recoverers.log_and_continue) as receiver:
        with pytest.raises(ReceiverStoppedError, match="savepoint"):
            run_until(receiver, "an error", lambda: False)
        is_broken = False
        run_until(receiver, "the events", lambda: service.effects() == ["1", "bad", "2"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("uses_session", [False, True])
def test_events_of_a_lost_connection_are_applied_again(service: Service, kind: type[Any], uses_session: bool) -> None:
    """The handler ignores the error, and psycopg does not report it when the transaction ends."""
    is_lost = False

    def handle(event: Event, connection: Any) -> None:  # noqa: ANN401
        nonlocal is_lost
        run(connection, f"insert into effect (consumer_group, event_id) values ('{service.group}', '{event.event_id}')")
        if event.event_id == "bad" and not is_lost:
            is_lost = True
            with suppress(psycopg.Error, DBAPIError):
                run(connection, "select pg_terminate_backend(pg_backend_pid())")

    service.handlers.otherwise(handle)
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    strategy = kind(sessions_of(service) if uses_session else service.connect)
    with service.receiver(strategy, recoverer=recoverers.log_and_continue) as receiver:
        run_until(receiver, "the events", lambda: service.effects() == ["1", "bad", "2"])
        assert receiver.counters.recovered == 0


def test_a_recoverer_that_ends_the_transaction_stops_the_receiver(service: Service) -> None:
    def fail(*_: object) -> None:
        raise ValueError

    service.handlers.otherwise(fail)
    service.send(("a", "1"))
    options = {"retries": Retries(attempts=1), "recoverer": lambda _, connection: connection.commit()}
    with (
        service.receiver(ProcessedEvents(service.connect), **options) as receiver,
        pytest.raises(ReceiverStoppedError, match="nothing was committed"),
    ):
        run_until(receiver, "an error", lambda: False)


@pytest.mark.parametrize("ends", [["commit"], ["rollback"], ["commit", "select 1"], ["rollback", "select 1 / 0"]])
@pytest.mark.parametrize("kind", KINDS)
def test_a_statement_that_ends_the_transaction_stops_the_receiver(
    service: Service, kind: type[Any], ends: list[str]
) -> None:
    """After a commit, the ids and positions of later events must not be stored; they must not run in autocommit."""
    is_broken = True
    applied_at_error = {"commit": ["1", "bad"], "rollback": []}[ends[0]]

    def end(connection: psycopg.Connection) -> None:
        for statement in ends if is_broken else []:
            connection.execute(statement)  # type: ignore[arg-type]

    service.handlers.otherwise(bad_then_good(service, end))
    service.send(("a", "1"), ("a", "bad"), ("a", "2"), partition=0)
    with service.receiver(kind(service.connect), recoverer=recoverers.log_and_continue) as receiver:
        with pytest.raises(ReceiverStoppedError, match="ended the transaction"):
            run_until(receiver, "an error", lambda: False)
        assert receiver.counters.recovered == 0
        assert service.effects() == applied_at_error
        is_broken = False
        run_until(receiver, "the events", lambda: receiver.counters.handled == 3)
    assert set(service.effects()) == {"1", "bad", "2"}


@pytest.mark.parametrize("method", ["poll", "close"])
def test_a_handler_that_calls_its_receiver_stops_it(service: Service, method: str) -> None:
    service.handlers.otherwise(lambda *_: getattr(receiver, method)())
    service.send(("a", "1"))
    with (
        service.receiver(ProcessedEvents(service.connect)) as receiver,
        pytest.raises(ReceiverStoppedError, match=method),
    ):
        run_until(receiver, "an error", lambda: False)


def test_a_handler_can_use_savepoints(service: Service) -> None:
    def handle(event: Event, session: Session) -> None:
        with suppress(DBAPIError), session.begin_nested():
            run(session, "select 1 / 0")
        with session.begin_nested():
            run(
                session, f"insert into effect (consumer_group, event_id) values ('{service.group}', '{event.event_id}')"
            )

    service.handlers.otherwise(handle)  # type: ignore[arg-type]
    service.send(("a", "1"), ("a", "2"), partition=0)
    with service.receiver(ProcessedEvents(sessions_of(service), service.group)) as receiver:
        run_until(receiver, "the events", lambda: service.effects() == ["1", "2"])
        assert receiver.counters.retries == 0


def test_a_connection_with_an_open_transaction_is_refused(service: Service) -> None:
    def connect() -> psycopg.Connection:
        connection = service.connect()
        connection.execute("set lock_timeout = '5s'")
        return connection

    service.handlers.otherwise(service.write_effect)
    service.send(("a", "1"))
    with (
        service.receiver(ProcessedEvents(connect, service.group)) as receiver,
        pytest.raises(ReceiverStoppedError, match="already in a transaction"),
    ):
        run_until(receiver, "an error", lambda: False)
