"""Define the base class of senders, and the settings of a sender, which the writers read from JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from outbox_events import OutboxEvent

Connection = psycopg.Connection[Any]
Send = Callable[[Sequence[OutboxEvent]], object]


@dataclass(frozen=True)
class SenderSettings:
    """The name of a sender, and the values of its options as text."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)


class Sender(ABC):
    """Sends the events of transactions. Each writer thread has its own sender."""

    is_last = False
    """Whether all writers have ended, so that a recovery need not skip what a running writer might send."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        """Open the sender's resources. `name` is unique among concurrent writers and stable across restarts."""
        self.options = options
        self.name = name

    @abstractmethod
    def transaction(self, connection: Connection) -> AbstractContextManager[Send]:
        """Open a transaction, and yield a function that sends events in this transaction.

        At the end of the block, commit in the database and in Kafka, in the order that the way of sending defines. If
        the block raises an exception, roll back.
        """

    def recover(self, connection: Connection) -> None:  # noqa: B027 - optional
        """Resolve the transactions that an earlier writer of this name left open.

        Call this method before the first transaction.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Release the sender's resources."""
