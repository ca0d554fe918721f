"""Sessions that block a waiting session, read by a second connection while it waits."""

from __future__ import annotations

from threading import Event, Thread
from types import TracebackType
from typing import LiteralString

from outbox_kit.errors import OutboxKitError
from outbox_kit.pipeline import SourceDatabase
from outbox_kit.postgres import client
from outbox_kit.postgres.client import Connection, Row

HOLDERS: LiteralString = """
    select pid, coalesce(application_name, '') as application, coalesce(state, 'state not shown') as state,
           coalesce(extract(epoch from now() - xact_start), 0)::int as seconds
    from pg_stat_activity where pid = any(pg_blocking_pids(%s)) order by xact_start limit 3"""


class LockMonitor:
    """Polls the sessions that block `connection`, every `interval` seconds, while the context is open."""

    def __init__(self, database: SourceDatabase, connection: Connection, *, interval: float) -> None:
        self._database = database
        self._pid = connection.info.backend_pid
        self._interval = interval
        self._closed = Event()
        self._holders: list[Row] = []
        self._thread = Thread(target=self._poll, name="lock-monitor", daemon=True)

    def __enter__(self) -> LockMonitor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    @property
    def holders(self) -> str:
        """The blocking sessions of the last poll that had any."""
        return ", ".join(map(client.describe_session, self._holders)) or "an unknown session"

    def _poll(self) -> None:
        try:
            while not self._closed.wait(self._interval):
                with client.connected(self._database) as connection:
                    self._holders = connection.execute(HOLDERS, (self._pid,)).fetchall() or self._holders
        except OutboxKitError:
            return  # the holders stay unknown; the server limits the wait itself
