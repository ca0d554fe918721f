"""Run transactions and statements through SQLAlchemy, or on a psycopg connection that is reopened after a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.transaction import OutOfOrderTransactionNesting

from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_events.producing.database import has_open_statement, is_marked, rolling_back_transaction, rows_of
from outbox_events.receiving.recoverers import ReceiverStoppedError, describe
from outbox_events.receiving.retries import needs_connection
from outbox_events.receiving.strategies.ended_transactions import (
    MARK_WITH_ID,
    READ_OUTCOME,
    StatementLeftOpenError,
    TransactionEndedError,
    refused,
)
from outbox_events.sending.emit import is_sqlalchemy
from outbox_events.sending.psycopg_writer import refuse_autocommit

if TYPE_CHECKING:
    from outbox_events.sending.emit import SyncConnection

log = logging.getLogger("outbox_events.receiving")
SAVEPOINT_HINT = "execute statements that may fail in a savepoint: `with connection.transaction():`"
IDLE_HINT = "return an idle connection from `connect`, such as psycopg.connect(dsn, options='-c lock_timeout=5s')"
Connected = TypeVar("Connected")
MAX_POLL_INTERVAL_MS = 300_000  # the default of librdkafka
LIMIT_IDLE = """
    select set_config('idle_in_transaction_session_timeout', :limit, false)
    where current_setting('idle_in_transaction_session_timeout') = '0'"""


class Database(Generic[Connected]):
    """Opens transactions. `connect` returns a psycopg Connection, which is kept open, or a SQLAlchemy Session.

    Examples of `connect` are `lambda: psycopg.connect(dsn)` and `sessionmaker(engine)`. A psycopg connection is set to
    autocommit mode, and its transactions are opened explicitly.
    """

    def __init__(self, connect: Callable[[], Connected]) -> None:
        """Raises ConfigurationError if `connect` is not a function."""
        if not callable(connect):
            message = f"connect must be a function that returns a connection, not {type(connect).__name__}"
            raise ConfigurationError(message, "pass, for example, lambda: psycopg.connect(dsn)")
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None
        self._idle_limit_ms = MAX_POLL_INTERVAL_MS

    def bind(self, settings: Mapping[str, Any]) -> None:
        """Limit idle transactions to max.poll.interval.ms, so that a suspended process does not hold locks for longer.

        Raises ConfigurationError unless `connect` returns a supported connection or session. Other errors, such as
        those of an outage, are logged, because each transaction opens a missing connection.
        """
        self._idle_limit_ms = max_poll_interval_ms(settings)
        try:
            connected = self._open()
            if not isinstance(connected, psycopg.Connection):
                from outbox_events.receiving.strategies import sqlalchemy_execution  # noqa: PLC0415 - an optional dependency

                sqlalchemy_execution.warn_if_blocking(cast(Any, connected))
        except ConfigurationError:
            raise
        except Exception as error:
            log.warning("the database cannot be checked yet: %s", describe(error))

    @contextmanager
    def transaction(self) -> Iterator[Connected]:
        """Open a transaction. Commit it at the end of the block, or roll it back after an exception."""
        connected = self._open()
        if isinstance(connected, psycopg.Connection):
            with self._committed(connected):
                yield cast(Connected, connected)
        else:
            from outbox_events.receiving.strategies import sqlalchemy_execution  # noqa: PLC0415 - an optional dependency

            limit = {"limit": str(self._idle_limit_ms)}
            with sqlalchemy_execution.committed(cast(Any, connected), LIMIT_IDLE, limit) as session:
                yield cast(Connected, session)

    def check(self, connected: Connected) -> None:
        """Raise ReceiverStoppedError if a handler has ended the transaction, or has left a statement open.

        Otherwise, the handler of the next event would wait for the statement, or would run without a transaction.
        """
        if not isinstance(connected, psycopg.Connection):
            from outbox_events.receiving.strategies import sqlalchemy_execution  # noqa: PLC0415 - an optional dependency

            sqlalchemy_execution.check(cast(Any, connected))
        elif has_open_statement(connected):
            raise StatementLeftOpenError
        elif _has_status(connected, TransactionStatus.IDLE):
            raise TransactionEndedError

    def close(self) -> None:
        """Close the connection that was kept open."""
        if self._connection is not None:
            self._connection.close()

    def _open(self) -> Connected:
        """Return the connection that was kept open, or a new connection or session."""
        if self._connection is not None and not self._connection.closed:
            return cast(Connected, self._connection)
        connected = self._connect()
        if isinstance(connected, psycopg.Connection):
            if connected.closed:
                hint = "open a new connection in each call, for example `lambda: psycopg.connect(dsn)`"
                raise ReceiverStoppedError("connect returned a closed connection", hint)
            if _has_status(connected, TransactionStatus.IDLE):
                connected.execute(LIMIT_IDLE.replace(":limit", "%s"), [str(self._idle_limit_ms)])
                connected.commit()
            self._connection = connected
        elif is_sqlalchemy(connected):
            from outbox_events.receiving.strategies import sqlalchemy_execution  # noqa: PLC0415 - an optional dependency

            sqlalchemy_execution.require_supported(connected)
        else:
            if iscoroutine(connected):
                connected.close()
            raise _unsupported("connect returned", connected)
        return connected

    @contextmanager
    def _committed(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Run the block in a separate transaction, and ensure that its effects are committed at the end.

        In an open transaction, psycopg would only set a savepoint. If a handler has ignored an error, PostgreSQL would
        silently roll back on COMMIT. Both cases are errors.
        """
        if not _has_status(connection, TransactionStatus.IDLE):
            message = "the connection is already in a transaction, whose rollback would undo the effects of the event"
            raise ReceiverStoppedError(message, IDLE_HINT)
        # Otherwise psycopg would begin a new transaction after a handler has ended this one.
        connection.autocommit = True
        transaction_id, is_handling = "", False
        try:
            with rolling_back_transaction(connection):
                [(_, transaction_id)] = rows_of(connection, MARK_WITH_ID, [])
                is_handling = True
                with _not_ended(connection):
                    yield
                if _has_status(connection, TransactionStatus.INERROR):
                    message = "a handler ignored a database error, so its transaction cannot commit"
                    raise RejectedError(message, SAVEPOINT_HINT)
                _require_connected(connection)  # psycopg would not report it
                is_handling = False
        except TransactionEndedError:
            connection.close()  # the handler might have changed its settings
            raise
        except BaseException as error:
            # A statement might have been left open. After a failover, the server might be a read-only standby.
            if needs_connection(error) or not _has_status(connection, TransactionStatus.IDLE):
                connection.close()
            if is_handling and self._has_committed(transaction_id):
                self.close()
                raise TransactionEndedError from error
            if isinstance(error, OutOfOrderTransactionNesting):
                message = "a handler or recoverer left a savepoint open, so its transaction was rolled back"
                raise ReceiverStoppedError(message, SAVEPOINT_HINT) from error
            raise

    def _has_committed(self, transaction_id: str) -> bool:
        """Return whether a handler has committed the transaction, which the mark does not show if it began another one.

        Returns False if the database cannot be reached.
        """
        try:
            connection: Any = self._open()
            connection.autocommit = True
            return rows_of(connection, READ_OUTCOME.format("%s"), [transaction_id]) == [("committed",)]
        except Exception:
            return False


@contextmanager
def _not_ended(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Raise TransactionEndedError after the block if a handler has executed COMMIT or ROLLBACK as a statement.

    Its calls of `commit`, `rollback` and `close` are refused, which also affects `with connection:`. If it has left a
    statement open, which would block ROLLBACK, the connection is closed.
    """
    try:
        with refused(connection, "commit", "rollback", "close"):
            vars(connection)["transaction"] = partial(rolling_back_transaction, connection)
            try:
                yield
            finally:
                del vars(connection)["transaction"]
    finally:
        is_open = _has_status(connection, TransactionStatus.INTRANS)
        if has_open_statement(connection):
            connection.close()  # the server rolls back
        elif _has_status(connection, TransactionStatus.IDLE) or (is_open and not is_marked(connection)):
            raise TransactionEndedError


def _require_connected(connection: psycopg.Connection[Any]) -> None:
    """Raise UnreachableError if a handler has ignored that the connection was lost."""
    if _has_status(connection, TransactionStatus.UNKNOWN):
        raise UnreachableError("the connection to the database was lost before COMMIT", "check the database")


def max_poll_interval_ms(settings: Mapping[str, Any]) -> int:
    """Return the consumer's max.poll.interval.ms."""
    return int(settings.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS))


def _has_status(connection: psycopg.Connection[Any], status: TransactionStatus) -> bool:
    return connection.info.transaction_status is status


def execute(connection: SyncConnection, statement: str, table: str, **values: object) -> list[tuple[Any, ...]]:
    """Execute a statement with named parameters through psycopg or SQLAlchemy, and return its rows."""
    if isinstance(connection, psycopg.Connection):
        _require_connected(connection)
        refuse_autocommit(connection)
        return rows_of(connection, composed(statement, table, tuple(values)), values)
    if is_sqlalchemy(connection):
        from outbox_events.receiving.strategies import sqlalchemy_execution  # noqa: PLC0415 - an optional dependency

        return sqlalchemy_execution.execute(connection, statement, table, values)
    raise _unsupported("cannot use", connection)


def _unsupported(subject: str, connected: object) -> ConfigurationError:
    kind = f"{type(connected).__module__}.{type(connected).__qualname__}"
    hint = "use a psycopg 3 Connection or a SQLAlchemy 2 Session, such as lambda: psycopg.connect(dsn)"
    return ConfigurationError(f"{subject} {kind}", hint)


@lru_cache(maxsize=64)
def composed(statement: str, table: str, names: tuple[str, ...]) -> sql.Composed:
    """Return a psycopg statement that contains the table's name and a parameter for each of `names`."""
    placeholders = {name: sql.Placeholder(name) for name in names}
    return sql.SQL(statement).format(table=sql.Identifier(*table.split(".")), **placeholders)
