"""Who holds the lock that a session waits for; asked from beside, because afterwards it can no longer be seen."""

from __future__ import annotations

from threading import Event, Thread
from types import TracebackType
from typing import LiteralString

from outbox_kit.errors import OutboxKitError
from outbox_kit.pipeline import SourceDatabase
from outbox_kit.postgres import client
from outbox_kit.postgres.client import Connection, Row

BLOCKERS: LiteralString = """
    select pid, coalesce(application_name, '') as application, coalesce(state, 'state not shown') as state,
           coalesce(extract(epoch from now() - xact_start), 0)::int as seconds
    from pg_stat_activity where pid = any(pg_blocking_pids(%s)) order by xact_start limit 3"""


class Watch:
    """While it is open, looks every so many seconds for who blocks `connection`. Costs nothing before the first."""

    def __init__(self, database: SourceDatabase, connection: Connection, *, every: float) -> None:
        self._database = database
        self._pid = connection.info.backend_pid
        self._every = every
        self._over = Event()
        self._seen: list[Row] = []
        self._thread = Thread(target=self._look, name="blockers", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def words(self) -> str:
        """The sessions that were last seen in the way: pid, application, state, age of the transaction."""
        described = [
            f"pid {row['pid']} ({row['application'] or 'no name'}, {row['state']}, {row['seconds']} s)"
            for row in self._seen
        ]
        return ", ".join(described) or "a session that was not seen"

    def _look(self) -> None:
        try:
            while not self._over.wait(self._every):
                with client.connected(self._database) as other:
                    self._seen = other.execute(BLOCKERS, (self._pid,)).fetchall() or self._seen
        except OutboxKitError:
            return  # the words then say so; the wait itself is bounded by the server
