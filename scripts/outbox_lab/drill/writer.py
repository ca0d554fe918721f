"""Run business transactions at a limited rate in several threads until SIGTERM. This module runs as a process.

    python -m outbox_lab.drill.writer SETTINGS.json

A writer reconnects after its connection is lost. The outcome of the interrupted transaction is unknown.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from uuid import uuid4

import psycopg
from confluent_kafka import KafkaException

from outbox_events import SupervisedSender
from outbox_events.errors import OutboxError
from outbox_lab.drill import accounts
from outbox_lab.drill.components import flag_of_termination, read_settings
from outbox_lab.drill.ledger import LedgerFile, Outcome
from outbox_lab.drill.senders.catalogue import open_sender
from outbox_lab.drill.senders.sender import Send, Sender, SenderSettings

logger = logging.getLogger(__name__)

ROLLBACK_SHARE = 0.08
MAX_EVENTS = 3
# Fraction of transactions that stay open for longer, as in services that call other services within a transaction.
OPEN_SHARE = 0.05
LONGEST_OPEN_S = 0.2
STATES_PER_TRANSACTION = 20
RECONNECT_INTERVAL_S = 0.2
CONNECT_TIMEOUT_S = 5
# Statements fail after these timeouts, so that the writer detects a paused server or a lost connection.
SESSION_OPTIONS = "-c statement_timeout=20s -c lock_timeout=10s"


@dataclass(frozen=True)
class WriterSettings:
    """Settings of the writers of one cell. `rate` is the total number of transactions per second."""

    dsn: str
    ledger: str
    sender: SenderSettings
    accounts: int
    writers: int
    rate: float
    seed: str


def writer_name(number: int) -> str:
    """Return the name of a writer, which is stable across restarts."""
    return f"writer-{number}"


class RolledBackError(Exception):
    """Raised by a writer to roll back its transaction."""


@dataclass(frozen=True)
class ConnectedSender:
    """A sender and its connection."""

    connection: accounts.Connection
    sender: Sender

    @contextmanager
    def transaction(self) -> Iterator[tuple[accounts.Connection, Send]]:
        """Open a transaction, and yield the connection and the function that sends events."""
        with self.sender.transaction(self.connection) as send:
            yield self.connection, send


class Writer:
    """Runs the transactions of one writer thread, with one sender at a time."""

    def __init__(self, settings: WriterSettings, number: int, ledger: LedgerFile, stop: Flag) -> None:
        self._settings = settings
        self._name = writer_name(number)
        self._rng = random.Random(f"{settings.seed}/{number}")  # noqa: S311 - not a secret
        self._ledger = ledger
        self._stop = stop

    def run(self) -> None:
        """Run transactions until the stop flag is set. The sender is replaced after an error that requires it."""
        interval = self._settings.writers / self._settings.rate
        next_start = time.monotonic()
        with closing(self._sender()) as sender:
            while not self._stop.is_set():
                try:
                    self._transact(sender, self._choose())
                except (psycopg.Error, KafkaException, OutboxError) as error:
                    logger.warning("%s: %s: %s", self._name, type(error).__name__, str(error).splitlines()[:1])
                    self._stop.wait(RECONNECT_INTERVAL_S)
                next_start = max(next_start + interval, time.monotonic() - interval)
                self._stop.wait(max(0.0, next_start - time.monotonic()))

    def _sender(self) -> SupervisedSender[tuple[accounts.Connection, Send]]:
        # The drill also pauses writers for longer than transaction.timeout.ms, so that they are fenced repeatedly.
        return SupervisedSender(self._opened, fatal_interval_s=0)

    @contextmanager
    def _opened(self) -> Iterator[ConnectedSender]:
        with self._connected() as connection, closing(open_sender(self._settings.sender, self._name)) as sender:
            sender.recover(connection)
            yield ConnectedSender(connection, sender)

    @contextmanager
    def _connected(self) -> Iterator[accounts.Connection]:
        connection = psycopg.connect(
            self._settings.dsn,
            connect_timeout=CONNECT_TIMEOUT_S,
            options=SESSION_OPTIONS,
            application_name="outbox-drill",
            keepalives_idle=2,
            keepalives_interval=1,
            keepalives_count=3,
            tcp_user_timeout=15_000,
        )
        with closing(connection):
            yield connection

    def write_states(self) -> None:
        """Write a new state of every account, as services do after their database has been restored."""
        numbers = range(1, self._settings.accounts + 1)
        with closing(self._sender()) as sender:
            for start in range(0, len(numbers), STATES_PER_TRANSACTION):
                chosen = numbers[start : start + STATES_PER_TRANSACTION]
                self._transact(sender, chosen, rollback_share=0)

    def _choose(self) -> Sequence[int]:
        return self._rng.sample(range(1, self._settings.accounts + 1), self._rng.randint(1, MAX_EVENTS))

    def _transact(
        self,
        sender: SupervisedSender[tuple[accounts.Connection, Send]],
        numbers: Sequence[int],
        *,
        rollback_share: float = ROLLBACK_SHARE,
    ) -> None:
        transaction_id = str(uuid4())
        try:
            with sender.transaction() as (connection, send):
                changes = accounts.change_accounts(connection, [f"account-{number}" for number in numbers], self._rng)
                send([change.sent for change in changes])
                self._stay_open()
                xid = accounts.durable_xid(connection)
                self._ledger.intend(transaction_id, xid, [change.noted for change in changes])
                if self._rng.random() < rollback_share:
                    raise RolledBackError
        except RolledBackError:
            self._ledger.end(transaction_id, Outcome.ROLLED_BACK)
        else:
            self._ledger.end(transaction_id, Outcome.COMMITTED)

    def _stay_open(self) -> None:
        """With probability OPEN_SHARE, keep the current transaction open for a random time."""
        if self._rng.random() < OPEN_SHARE:
            self._stop.wait(self._rng.uniform(0, LONGEST_OPEN_S))


def run_writers(settings: WriterSettings) -> None:
    """Run all writers in threads until SIGTERM. Raises the exception that ended a writer."""
    stop = flag_of_termination()
    with LedgerFile(Path(settings.ledger)) as ledger, ThreadPoolExecutor(settings.writers) as pool:
        runs = [pool.submit(Writer(settings, number, ledger, stop).run) for number in range(settings.writers)]
        wait(runs, return_when=FIRST_EXCEPTION)
        stop.set()
    for run in runs:
        run.result(0)


if __name__ == "__main__":
    run_writers(read_settings(WriterSettings))
