"""Ways in which the writers send their events, selected by the JSON form of a `SenderSettings`."""

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
    """Name of a sender and its text options."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)


class Sender(ABC):
    """Sends the events of transactions. Each writer thread has its own."""

    def __init__(self, options: Mapping[str, str], name: str) -> None:
        """Open what the sender needs. `name` is unique among the concurrent writers, and the same after a restart."""
        self.options = options
        self.name = name

    @abstractmethod
    def transaction(self, connection: Connection) -> AbstractContextManager[Send]:
        """Open a transaction and yield the function that sends its events.

        The end of the block commits database and Kafka, in the order of the way. An exception rolls back.
        """

    def recover(self, connection: Connection) -> None:  # noqa: B027 - optional
        """Resolve what an earlier writer of this name left. Called before the first transaction."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release what the sender opened."""
