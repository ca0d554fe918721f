"""Count the events that a slot has not delivered. The slot must be inactive, and counting does not advance it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from outbox_events.errors import RejectedError
from outbox_kit.pipeline import Source
from outbox_kit.postgres.client import Connection

# This is longer than the default statement timeout, because a slot that was inactive for days retains days of WAL.
PEEK_TIMEOUT_MS = 600_000
COUNT_TIMEOUT_MS = 60_000

# The first byte of `data` is the type of the pgoutput message (PostgreSQL: logical replication message formats):
# I: insert of a row.
# M: logical decoding message: 1 byte of flags (1: transactional), 8 bytes of LSN, prefix, a zero byte. Heartbeats are
#    not counted, because they have another prefix or are not transactional.
# C: commit. The LSN of the pgoutput message is the end of the transaction.
# pgoutput sends transactions in commit order, so an event was delivered if its commit LSN is not above `commit`. Of the
# transaction `xid`, which was delivered in part, the events below `lsn` were delivered. Its events at `lsn` are counted
# as undelivered, because the rows of one COPY can have the same LSN.
EVENTS: LiteralString = """
    with change as materialized (
        select lsn, xid::text as xid, get_byte(data, 0) = ascii('C') as is_commit,
               (get_byte(data, 0) = ascii('I')
                or (substring(data from 1 for 2) = '\\x4d01'::bytea
                    and substring(data from 11 for length(%(prefix)s::bytea)) = %(prefix)s::bytea)) as is_event
        from pg_logical_slot_peek_binary_changes(%(slot)s, '0/0'::pg_lsn + %(upto)s::numeric, null,
            'proto_version', '1', 'publication_names', %(publication)s, 'messages', %(messages)s))
    select count(*) as events
    from change as event join change as transaction_end on transaction_end.xid = event.xid and transaction_end.is_commit
    where event.is_event and transaction_end.lsn > '0/0'::pg_lsn + %(commit)s::numeric
      and not (event.xid = %(xid)s and event.lsn < '0/0'::pg_lsn + %(lsn)s::numeric)"""


@dataclass(frozen=True)
class DeliveredPosition:
    """Position from a connector's offset: LSN of the last delivered `commit`; `lsn` and `xid` of the last event."""

    commit: int = 0
    lsn: int = 0
    xid: str = ""


def count_undelivered(
    connection: Connection, source: Source, delivered_up_to: DeliveredPosition, *, upto: int | None = None
) -> int:
    """Return the number of retained events after `delivered_up_to` whose transactions committed before the LSN `upto`.

    Raises RejectedError if reading the WAL takes longer than PEEK_TIMEOUT_MS.
    """
    try:
        return _count(connection, source, delivered_up_to, upto=upto, timeout_ms=PEEK_TIMEOUT_MS)
    except psycopg.errors.QueryCanceled:
        raise RejectedError(
            f"reading the WAL of slot {source.slot!r} took longer than {PEEK_TIMEOUT_MS // 1000} s, so it is unknown "
            "whether the WAL contains undelivered events",
            "let the connector deliver the events first (see `outbox status`), or discard them with --drop-slot",
        ) from None


def count_between(connection: Connection, source: Source, *, after: int, upto: int) -> int | None:
    """Return the number of events whose commit LSN is above `after` and that pgoutput sends up to the LSN `upto`.

    Return None if the slot is active, the login lacks a privilege, or counting takes longer than COUNT_TIMEOUT_MS.
    """
    try:
        return _count(connection, source, DeliveredPosition(commit=after), upto=upto, timeout_ms=COUNT_TIMEOUT_MS)
    except (psycopg.errors.ObjectInUse, psycopg.errors.QueryCanceled, psycopg.errors.InsufficientPrivilege):
        return None


def _count(
    connection: Connection, source: Source, delivered_up_to: DeliveredPosition, *, upto: int | None, timeout_ms: int
) -> int:
    prefix = source.message_prefix
    parameters = {
        "slot": source.slot,
        "publication": f'"{source.publication}"',  # comma-separated list of quoted identifiers
        "messages": "false" if source.uses_table else "true",  # pgoutput omits logical decoding messages by default
        "prefix": None if prefix is None else prefix.encode() + b"\0",
        "upto": upto,
        **vars(delivered_up_to),
    }
    with connection.transaction():
        connection.execute(sql.SQL("set local statement_timeout = {}").format(timeout_ms))
        return int(connection.execute(EVENTS, parameters).fetchall()[0]["events"])
