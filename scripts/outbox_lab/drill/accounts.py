"""Create and change the business tables of the drill. They contain accounts, and one entry for each event.

The entry of an event is written in the transaction that sends the event.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import uuid4

import psycopg

from outbox_events import OutboxEvent, two_phase
from outbox_lab.drill.ledger import Event

AGGREGATE = "account"
TOMBSTONE_SHARE = 0.05

CREATE: LiteralString = """
    create schema if not exists drill;
    create table if not exists drill.account (
      id text primary key, version bigint not null, balance bigint not null, is_open boolean not null);
    create table if not exists drill.entry (
      event_id uuid primary key, account text not null, version bigint not null,
      is_superseded boolean not null default false)
"""
RESET: LiteralString = "truncate drill.account, drill.entry"
FILL: LiteralString = """
    insert into drill.account select 'account-' || number, 0, 0, true from generate_series(1, %s) number"""
LOCK: LiteralString = """
    select id, version, balance from drill.account where id = any(%s) order by id for update"""
CHANGE: LiteralString = """
    update drill.account set version = %(version)s, balance = %(balance)s, is_open = %(is_open)s where id = %(id)s"""
ENTER: LiteralString = "insert into drill.entry values (%s, %s, %s)"
VISIBLE: LiteralString = "select event_id::text from drill.entry where event_id = any(%s::uuid[])"

# The non-transactional message flushes the WAL. Otherwise PostgreSQL could assign the transaction id again after a
# crash, and pg_xact_status would report the status of another transaction.
DURABLE_XID: LiteralString = """
    select pg_current_xact_id()::text, pg_logical_emit_message(false, 'outbox-heartbeat', '', true)"""
MARK_SUPERSEDED: LiteralString = "update drill.entry set is_superseded = true where event_id = any(%s::uuid[])"
SUPERSEDED: LiteralString = "select event_id::text from drill.entry where is_superseded"
ENTRIES: LiteralString = "select event_id::text from drill.entry"
STATUS: LiteralString = "select pg_xact_status(%s::text::xid8)"

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One event. `noted` is its form in the ledger, and `sent` is the form in which the service sends it."""

    noted: Event
    sent: OutboxEvent


def prepare(connection: Connection, accounts: int) -> None:
    """Create the tables if necessary, delete their rows, and insert new accounts.

    Prepared transactions that an earlier cell left are rolled back, because they hold locks.
    """
    for gid, _ in connection.execute(two_phase.IN_DOUBT).fetchall():
        connection.tpc_rollback(gid)
    with connection.transaction():
        connection.execute(CREATE)
        connection.execute(RESET)
        connection.execute(FILL, (accounts,))


def change_accounts(connection: Connection, names: list[str], rng: random.Random) -> list[Change]:
    """In the open transaction, change the accounts and insert one entry for each. Return one event for each account."""
    changes = [_change(row, rng) for row in connection.execute(LOCK, (names,)).fetchall()]
    for change in changes:
        event, payload = change.noted, change.sent.payload
        balance = payload["balance"] if payload else 0
        values = {"id": event.account, "version": event.version, "balance": balance, "is_open": payload is not None}
        connection.execute(CHANGE, values)
        connection.execute(ENTER, (event.event_id, event.account, event.version))
    return changes


def durable_xid(connection: Connection) -> str:
    """Flush the id of the open transaction to disk, and return this id."""
    return str(connection.execute(DURABLE_XID).fetchall()[0][0])


def read_status(connection: Connection, xid: str) -> str:
    """Return the status of a transaction id: committed, aborted, in progress, or None as text if it is too old."""
    return str(connection.execute(STATUS, (xid,)).fetchall()[0][0])


def entered_events(connection: Connection) -> set[str]:
    """Return the ids of the events that have an entry in the database."""
    return {str(row[0]) for row in connection.execute(ENTRIES).fetchall()}


def mark_superseded(connection: Connection, event_ids: Sequence[str]) -> None:
    """Note events that a recovery did not send, because a newer event of their account was sent."""
    with connection.transaction():
        connection.execute(MARK_SUPERSEDED, (list(event_ids),))


def superseded_events(connection: Connection) -> set[str]:
    """Return the ids of the events that `mark_superseded` has noted."""
    return {str(row[0]) for row in connection.execute(SUPERSEDED).fetchall()}


def _change(row: tuple[str, int, int], rng: random.Random) -> Change:
    name, version, balance = row[0], row[1] + 1, row[2] + rng.randint(-100, 100)
    is_tombstone = rng.random() < TOMBSTONE_SHARE
    event_id = uuid4()
    payload = None if is_tombstone else {"id": name, "version": version, "balance": balance}
    event = OutboxEvent(
        aggregate_type=AGGREGATE,
        aggregate_id=name,
        event_type="account_closed" if is_tombstone else "account_changed",
        payload=payload,
        event_id=event_id,
    )
    return Change(Event(str(event_id), name, version, is_tombstone), event)
