"""Run the block of a sender in a database transaction, and keep its records until the block has ended.

Nothing is produced before the block has ended, so the block can take longer than transaction.timeout.ms, and consumers
with read_committed do not wait for it. The records of a savepoint that is rolled back are withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from outbox_events.errors import RefusedError
from outbox_events.kafka.record import Record
from outbox_events.producing.database import (
    MARK,
    Connection,
    has_open_statement,
    is_marked,
    limited,
    require_idle,
    roll_back,
    rolling_back_transaction,
)
from outbox_events.producing.deliveries import DELIVERY_S, KafkaTransaction
from outbox_events.producing.locks import shared

BEGIN_SENDER = f"select pg_current_xact_id()::text, {shared('sender')}, {shared('sending_lock')}"
GUARDED = ("commit", "rollback", "transaction")


class SenderTransaction:
    """Open database transaction of a sender, and the records that are sent when its block has ended."""

    def __init__(self, connection: Connection, transaction_id: str = "", *, seconds: float = DELIVERY_S) -> None:
        self.connection = connection
        self.transaction_id = transaction_id
        """The xid of the database transaction, or '' if it was not read."""
        self.records: list[Record] = []
        self._seconds = seconds
        self._is_rollback_only = self._has_ended = False
        self._open_savepoints = 0

    def send(self, record: Record) -> None:
        """Add a record, which is sent when the block has ended. Raises RefusedError after the end of the block."""
        if self._has_ended:
            raise RefusedError("send() was called after the block of the sender had ended", "call it in the block")
        self.records.append(record)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Run a nested block in this transaction. After an exception in the block, only a rollback is possible."""
        try:
            yield
        except BaseException:
            self._is_rollback_only = True
            raise

    @contextmanager
    def block(self) -> Iterator[None]:
        """Run the caller's block, and check at its end that its transaction is still open and can commit.

        In the block, `commit()` and `rollback()` of the connection raise RefusedError, and `transaction()` also
        withdraws the records of a savepoint that is rolled back. These methods are replaced on the connection, because
        psycopg's own `transaction()` could not end with PREPARE TRANSACTION.
        """
        replacements = (self._refuse, self._refuse, self._savepoint)
        vars(self.connection).update(zip(GUARDED, replacements, strict=True))
        try:
            yield
        finally:
            self._has_ended = True
            for name in GUARDED:
                del vars(self.connection)[name]
        self._require_committable()

    def _refuse(self) -> None:
        message = "commit() or rollback() was called in the block of a sender, whose end commits the transaction"
        raise RefusedError(message, "execute statements that may fail in a block of `connection.transaction()`")

    @contextmanager
    def _savepoint(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[psycopg.Transaction]:
        count, was_rollback_only, is_kept = len(self.records), self._is_rollback_only, False
        self._open_savepoints += 1
        try:
            with rolling_back_transaction(self.connection, savepoint_name, force_rollback) as savepoint:
                yield savepoint
                is_kept = not force_rollback
        finally:
            self._open_savepoints -= 1
            if not is_kept:
                del self.records[count:]
                self._is_rollback_only = was_rollback_only

    def _require_committable(self) -> None:
        if self._is_rollback_only:
            raise RefusedError("a nested block has failed, so the transaction cannot commit")
        if self._open_savepoints:
            message = "a savepoint of the block has not ended, so the transaction cannot commit"
            raise RefusedError(message, "open savepoints with `with connection.transaction():`")
        if has_open_statement(self.connection):
            message = "a pipeline, COPY or stream of rows of the block has not ended, so the transaction cannot commit"
            raise RefusedError(message, "close it in the block, for example with `with connection.pipeline():`")
        status = self.connection.info.transaction_status
        if status == TransactionStatus.IDLE or (status == TransactionStatus.INTRANS and self._is_replaced()):
            message = "the block has ended its database transaction itself, for example with COMMIT; no record was sent"
            raise RefusedError(
                message, "do not execute COMMIT, ROLLBACK or RESET ALL; compare the tables with the topic"
            )
        if status != TransactionStatus.INTRANS:
            message = f"the database transaction cannot commit: its status is {status.name}"
            raise RefusedError(message, "execute statements that may fail in a block of `connection.transaction()`")

    def _is_replaced(self) -> bool:
        """Return whether the block has ended the sender's transaction and begun the current one."""
        with limited(self.connection, self._seconds):
            return not is_marked(self.connection)


@contextmanager
def open_transaction(
    connection: Connection, sender: str | None = None, sending_lock: str | None = None, *, seconds: float = DELIVERY_S
) -> Iterator[SenderTransaction]:
    """Begin a database transaction, and roll it back after an exception. The caller commits it.

    With `sender`, recoveries of this sender wait for the transaction, and its xid is read. The transaction waits for a
    recovery that holds `sending_lock`. `seconds` limits the wait for the database. Raises RefusedError unless the
    connection is idle.
    """
    require_idle(connection)
    # Otherwise psycopg would begin another transaction after a block has executed COMMIT, which would be unnoticed.
    connection.autocommit = True
    try:
        transaction_id = _begin(connection, sender, sending_lock, seconds=seconds)
        yield SenderTransaction(connection, transaction_id, seconds=seconds)
    except BaseException:
        roll_back(connection)
        raise
    finally:
        if not connection.closed:
            with suppress(psycopg.Error):  # the connection was lost
                connection.autocommit = False


def _begin(connection: Connection, sender: str | None, sending_lock: str | None, *, seconds: float) -> str:
    """Begin a transaction in autocommit mode in one round trip. Return its xid, or '' without `sender`."""
    with (
        limited(connection, seconds),
        connection.pipeline(),
        psycopg.Cursor(connection, row_factory=tuple_row) as cursor,
    ):
        cursor.execute(_begin_statement(connection))
        cursor.execute(MARK)
        if sender is None:
            return ""
        cursor.execute(BEGIN_SENDER, {"sender": sender, "sending_lock": sending_lock})
        return str(cursor.fetchall()[0][0])


def _begin_statement(connection: Connection) -> sql.SQL:
    """Return BEGIN with the settings of the connection, as psycopg sends it if it is not in autocommit mode."""
    level, read_only, deferrable = connection.isolation_level, connection.read_only, connection.deferrable
    options = [
        None if level is None else f"isolation level {level.name.replace('_', ' ')}",
        None if read_only is None else f"read {'only' if read_only else 'write'}",
        None if deferrable is None else f"{'' if deferrable else 'not '}deferrable",
    ]
    return sql.SQL(" ".join(["begin", *filter(None, options)]))


@contextmanager
def aborted_on_error(connection: Connection, kafka: KafkaTransaction) -> Iterator[None]:
    """After an exception, roll back the database transaction, which releases its locks, and then abort Kafka's."""
    try:
        yield
    except BaseException:
        roll_back(connection)
        kafka.abort()
        raise
