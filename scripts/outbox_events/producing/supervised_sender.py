"""Open a sender, and open it again after an error that leaves its connections or its producer unusable.

An example is in docs/ways-in-detail.md, "Supervised sender".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Generic, Protocol, TypeVar

import psycopg
from confluent_kafka import KafkaException

from outbox_events.errors import OutboxError
from outbox_events.kafka.topic_requests import kafka_error
from outbox_events.producing.errors import FENCED_HINT, ProducerUnusableError, is_unusable

log = logging.getLogger("outbox_events.producing")
Transaction_co = TypeVar("Transaction_co", covariant=True)
FATAL_INTERVAL_S = 60.0
# Lost connection, invalid transaction state or read-only server, unexpected prepared statements, server shutdown,
# system error, internal error.
UNUSABLE_SQLSTATES = ("08", "25", "26000", "42P05", "57P", "58", "XX")


class Sender(Protocol[Transaction_co]):
    """A sender of this package, or another object that opens transactions."""

    def transaction(self) -> AbstractContextManager[Transaction_co]:
        """Open a transaction."""


class SupervisedSender(Generic[Transaction_co]):
    """Opens a sender when it is needed, and replaces it after an error. Not thread-safe.

    A transaction is never repeated: its error is raised, and the next transaction opens a new sender.
    """

    def __init__(
        self,
        open_sender: Callable[[], AbstractContextManager[Sender[Transaction_co]]],
        *,
        fatal_interval_s: float = FATAL_INTERVAL_S,
    ) -> None:
        """`open_sender` opens connections and a producer, runs the recovery, and closes them at the end of its block.

        After a second fatal error of a producer within `fatal_interval_s`, the sender is not replaced again, because
        another process that uses its transactional.id would be fenced. The first error can have another cause, such as
        a pause of this process for longer than transaction.timeout.ms.
        """
        self._open_sender = open_sender
        self._fatal_interval_s = fatal_interval_s
        self._fatal_at = float("-inf")
        self._is_stopped = False
        self._is_open = False
        self._sender: Sender[Transaction_co] | None = None
        self._resources = ExitStack()

    @contextmanager
    def transaction(self) -> Iterator[Transaction_co]:
        """Run a block in a transaction of the sender, which is opened if necessary.

        Raises the errors of `open_sender` and of the sender, and ProducerUnusableError if the sender is not replaced.
        """
        if self._is_stopped:
            message = f"the producer had a fatal error twice within {self._fatal_interval_s:g} s"
            raise ProducerUnusableError(message, FENCED_HINT)
        is_nested, self._is_open = self._is_open, True
        try:
            if self._sender is None:
                self._sender = self._resources.enter_context(self._open_sender())
            with self._sender.transaction() as transaction:
                yield transaction
        except BaseException as error:
            if not is_nested and leaves_unusable(error):
                self._discard(error)
            raise
        finally:
            self._is_open = is_nested

    def close(self) -> None:
        """Close the resources of the sender. The next transaction opens them again."""
        self._sender = None
        self._resources.close()

    def _discard(self, error: BaseException) -> None:
        log.warning("the sender is discarded after %s", type(error).__name__)
        if isinstance(cause := error.__cause__, KafkaException) and is_unusable(kafka_error(cause)):
            self._is_stopped = time.monotonic() - self._fatal_at < self._fatal_interval_s
            self._fatal_at = time.monotonic()
        try:
            self.close()
        except (psycopg.Error, KafkaException, OutboxError) as failure:  # the caller needs the first error
            log.warning("the sender was not closed: %s", type(failure).__name__)


def leaves_unusable(error: BaseException) -> bool:
    """Return whether a connection or the producer might be unusable after an error of a transaction.

    After an error of a statement, for example a violated constraint or a deadlock, the sender can be used again. After
    an interrupt, a call of the Kafka client might still be running.
    """
    if isinstance(error, psycopg.Error):
        return error.sqlstate is None or error.sqlstate.startswith(UNUSABLE_SQLSTATES)
    return isinstance(error, OutboxError | KafkaException) or not isinstance(error, Exception)
