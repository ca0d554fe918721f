"""Transactions of the service's database: psycopg connections, which are opened again after a failure, or sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

import psycopg

Connected = TypeVar("Connected")


class Database(Generic[Connected]):
    """Opens transactions. `connect` returns a psycopg Connection, which is kept, or a SQLAlchemy Session.

    lambda: psycopg.connect(dsn) and sessionmaker(engine) are examples.
    """

    def __init__(self, connect: Callable[[], Connected]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def transaction(self) -> Iterator[Connected]:
        """Open a transaction; commit at the end of the block, roll back after an exception."""
        connected = self._connection if self._connection and not self._connection.closed else self._connect()
        if isinstance(connected, psycopg.Connection):
            self._connection = connected
            with connected.transaction():
                yield cast(Connected, connected)
        else:
            with cast(Any, connected) as session, session.begin():
                yield session

    def close(self) -> None:
        """Close the kept connection."""
        if self._connection is not None:
            self._connection.close()
