"""Commits and slots that a database has after a restore of a backup and after the promotion of a standby."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import LiteralString

import psycopg
import pytest

from outbox_kit.results import silent
from outbox_kit.stack import Stack
from outbox_lab.drill.faults import database
from outbox_lab.drill.project import DrillProject
from outbox_lab.drill.proxy import Proxy
from outbox_lab.drill.spark_job import SparkJob
from outbox_lab.drill.stack import DrillStack

pytestmark = pytest.mark.long

CREATE_SLOT: LiteralString = "select pg_create_logical_replication_slot('connector', 'pgoutput', false, false, true)"
# As a connector does. The standby copies a slot once it has the WAL that follows the slot's restart_lsn.
CONFIRM: LiteralString = "select pg_replication_slot_advance('connector', pg_current_wal_flush_lsn())"
SLOTS: LiteralString = "select slot_name from pg_replication_slots where not temporary"
TIMELINE: LiteralString = "select timeline_id from pg_control_checkpoint()"


@pytest.fixture
def drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DrillStack]:
    """Start a stack of the drill with only PostgreSQL."""
    project = DrillProject(tmp_path)
    monkeypatch.setattr(DrillStack, "wait_for_registry", lambda _: None)
    stack = Stack(project.folder)
    state = stack.up(services=("postgres",))
    try:
        with Proxy(state.postgres_port) as proxy:
            drill = DrillStack(project, stack, state, proxy, SparkJob(project), silent)
            drill.logs.mkdir()
            yield drill
    finally:
        stack.down(purge=True)


@dataclass
class Found:
    """Numbers and slots that exist after a fault, and the commits that were acknowledged before the fault."""

    acknowledged: set[int]
    rows: set[int]
    slots: set[str]
    timeline: int


@pytest.mark.parametrize(
    ("fault", "is_undone", "slots", "timeline"),
    [
        (database.restore_backup, True, set(), 1),
        (database.promote_standby, False, set(), 2),
        (database.promote_standby_with_slot, False, {"connector"}, 2),
    ],
)
def test_what_a_replaced_database_has(
    drill: DrillStack,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[DrillStack], None],
    is_undone: bool,
    slots: set[str],
    timeline: int,
) -> None:
    monkeypatch.setattr(database, "WRITING_S", 1)
    found = inject_during_writes(drill, fault)
    assert bool(found.acknowledged - found.rows) is is_undone
    assert 0 in found.rows  # committed before the fault
    assert (found.slots, found.timeline) == (slots, timeline)


def test_a_second_promotion_follows_the_first(drill: DrillStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WRITING_S", 0)
    with drill.connect_to_database() as connection:
        connection.execute("create table entry (number int)")
    for _ in range(2):
        database.promote_standby(drill)
    with drill.connect_to_database() as connection:
        assert connection.execute(TIMELINE).fetchall() == [(3,)]


def inject_during_writes(drill: DrillStack, fault: Callable[[DrillStack], None]) -> Found:
    """Inject a fault while a thread inserts ascending numbers. Return what the fault left, before further writes."""
    with drill.connect_to_database() as connection:
        connection.execute("create table entry (number int)")
        connection.execute("insert into entry values (0)")
        connection.execute(CREATE_SLOT)
    acknowledged: set[int] = set()
    stop = Flag()
    writer = Thread(target=write_until_lost, args=(drill.state.postgres, acknowledged, stop))
    writer.start()
    try:
        fault(drill)
    finally:
        stop.set()
        writer.join()
    with drill.connect_to_database() as connection:
        rows = {int(str(row[0])) for row in connection.execute("select number from entry").fetchall()}
        names = {str(row[0]) for row in connection.execute(SLOTS).fetchall()}
        [(timeline,)] = connection.execute(TIMELINE).fetchall()
    return Found(acknowledged, rows, names, int(str(timeline)))


def write_until_lost(dsn: str, acknowledged: set[int], stop: Flag) -> None:
    """Insert numbers until the connection is lost."""
    number = 1
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            while not stop.wait(0.01):
                connection.execute("insert into entry values (%s)", (number,))
                acknowledged.add(number)
                connection.execute(CONFIRM)
                number += 1
    except psycopg.Error:
        return
