"""The source database in memory, which replaces psycopg.connect and answers the queries of outbox_kit.postgres."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg import sql
from tests.unit.postgres.samples import DEPLOYED

from outbox_kit.postgres import advisory_lock, client, count_undelivered, privileges, replication_slot
from outbox_kit.postgres.replication_slot import Slot
from outbox_kit.postgres.state import ActualDatabase

Rows = list[dict[str, Any]]
COMMAND = re.compile("set local|set transaction|drop publication|comment on|select pg_drop_replication_slot")
COMMENT = re.compile(r'comment on publication "\w+" is \'(.*)\'')
HAS_ROWS = re.compile(r"select exists \(select from ([^)]*)\) as found")
PRIVILEGED_SERVER = {"wal_level": "logical", "database": "library", "has_slot": True, "has_publication": True}
LOCK_HOLDER = {"pid": 7, "application": "outbox-kit apply library", "address": "10.0.0.1", "since": "2026-11-20"}
BACKEND_PID = 42
SERVER_COLUMNS = ("version", "wal_level", "database", "is_standby", "timeline", "wal_position")


@dataclass
class FakePostgres:
    """A database in the state `actual`. While it is `down`, it rejects connections.

    The slot is active while `is_read` returns true. A connector then reads it and, if it `confirms`, has read each
    heartbeat immediately. Each of `polls` answers one query for the slot before the slot of `actual` is used. `events`
    is the number of events in the WAL of the slot, or the error of counting them. Clients have read `decoded`
    transactions from the slot. While `is_locked`, another session
    holds the lock of the pipeline. `retention_mb` is max_slot_wal_keep_size. `filled_tables` contains the business
    tables that have rows. `users` contains the users that connected, and `queries` contains "slot" and "heartbeat".
    """

    actual: ActualDatabase = DEPLOYED
    down: bool = False
    is_read: Callable[[], bool] = lambda: True
    polls: list[Slot | None] = field(default_factory=list)
    events: int | Exception = 0
    decoded: int = 0
    confirms: bool = True
    is_locked: bool = False
    retention_mb: int = -1
    users: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    filled_tables: set[str] = field(default_factory=set)

    def connect(self, *, user: str, **_: object) -> FakeConnection:
        """Stand in for psycopg.connect."""
        if self.down:
            raise psycopg.OperationalError("connection refused")
        self.users.append(user)
        return FakeConnection(self)

    def rows(self, query: str, parameters: Any) -> Rows:  # noqa: ANN401 - parameters of any query
        actual = self.actual
        if query == privileges.GRANTED:
            return [
                {"role": role, "object": "", "privileges": [*privileges.STATEMENTS]} for role in parameters["roles"]
            ]
        if query == replication_slot.SLOT:
            return self._slot()
        if query == client.HEARTBEAT:
            return self._heartbeat()
        if query == count_undelivered.EVENTS:
            if isinstance(self.events, Exception):
                raise self.events
            return [{"events": self.events}]
        if (table := HAS_ROWS.fullmatch(query)) is not None:
            return [{"found": table[1] in self.filled_tables}]
        results: dict[str, Rows] = {
            client.SERVER: [{name: getattr(actual, name) for name in SERVER_COLUMNS}],
            client.SYSTEM_IDENTIFIER: [{"value": actual.system_identifier}],
            client.STANDBY_TIMELINE: [{"value": actual.timeline}],
            client.TABLE_COLUMNS: [{"name": name, "type": kind} for name, kind in actual.columns.items()],
            client.TABLE_OID: [{"oid": actual.table_oid}],
            client.RELAY_TABLE: [{"found": False}],
            replication_slot.COUNTERS: [{"total_txns": self.decoded, "total_bytes": 0, "stats_reset": None}],
            replication_slot.RETENTION_LIMIT: [{"megabytes": self.retention_mb}],
            client.PUBLICATION: [actual.publication] if actual.publication else [],
            client.ROLE: [actual.role] if actual.role else [],
            advisory_lock.BACKEND: [{"pid": BACKEND_PID}],
            privileges.SERVER: [PRIVILEGED_SERVER],
            advisory_lock.SETTINGS: [],
            advisory_lock.ACQUIRE: [{"acquired": not self.is_locked}],
            advisory_lock.HOLDER: [LOCK_HOLDER],
            advisory_lock.RELEASE: [],
        }
        return results[query]

    def command(self, text: str) -> Rows:
        """Drop the slot or the publication, or set its comment. Ignore settings of the session."""
        if (comment := COMMENT.fullmatch(text)) is not None:
            self.actual = replace(self.actual, publication={**(self.actual.publication or {}), "comment": comment[1]})
        elif "slot" in text:
            self.actual = replace(self.actual, slot=None)
        elif "publication" in text:
            self.actual = replace(self.actual, publication=None)
        return []

    def _slot(self) -> Rows:
        self.queries.append("slot")
        if self.polls:
            slot = self.polls.pop(0)
        else:
            slot = self.actual.slot
            slot = slot and replace(slot, active=slot.active and self.is_read())
        return [dict(vars(slot))] if slot else []

    def _heartbeat(self) -> Rows:
        self.queries.append("heartbeat")
        slot = self.actual.slot
        if slot and slot.confirmed_flush is not None and self.confirms and self.is_read():
            self.actual = replace(self.actual, slot=replace(slot, confirmed_flush=slot.confirmed_flush + 1))
        return []


class FakeConnection:
    """Session of a FakePostgres."""

    info = SimpleNamespace(backend_pid=BACKEND_PID)

    def __init__(self, database: FakePostgres) -> None:
        self._database = database

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def execute(self, query: str | sql.Composable, parameters: object = None) -> FakeCursor:
        text = query if isinstance(query, str) else query.as_string(None)
        if COMMAND.match(text):
            return FakeCursor(self._database.command(text))
        return FakeCursor(self._database.rows(text, parameters))


class FakeCursor(Rows):
    """Result of a query."""

    def fetchall(self) -> Rows:
        return self

    def fetchone(self) -> dict[str, Any] | None:
        return self[0] if self else None
