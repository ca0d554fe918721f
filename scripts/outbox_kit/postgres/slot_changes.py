"""What a slot would send, as pgoutput writes it: which of its messages are events of a pipeline."""

from __future__ import annotations

from typing import LiteralString

from outbox_kit.pipeline import Source

# The first byte says which kind: I is an inserted row. M is a logical message: a byte of flags (1: transactional), its
# position in 8 bytes, its prefix, which a zero ends (PostgreSQL: logical replication message formats). Heartbeats are
# messages too: of another prefix, or of no transaction.
IS_EVENT: LiteralString = """(get_byte(data, 0) = ascii('I')
           or (substring(data from 1 for 2) = '\\x4d01'::bytea
               and substring(data from 11 for length(%(prefix)s::bytea)) = %(prefix)s::bytea))"""
# Without `messages` pgoutput leaves them out.
OPTIONS: LiteralString = """'proto_version', '1', 'publication_names', %(publication)s, 'messages', %(messages)s"""

# C is a commit, whose position is the end of the transaction. Transactions come in the order of their commits, so an
# event of a long one can stand before events that were delivered long ago: what counts is the commit.
COMMITTED_EVENTS: LiteralString = (
    """
    with change as materialized (
        select lsn, xid::text as xid, get_byte(data, 0) = ascii('C') as is_commit, """  # noqa: S608
    + IS_EVENT
    + """ as is_event
        from pg_logical_slot_peek_binary_changes(%(slot)s, '0/0'::pg_lsn + %(upto)s::numeric, null, """
    + OPTIONS
    + """))
    select count(*) as rows
    from change as entry join change as end_of_it on end_of_it.xid = entry.xid and end_of_it.is_commit
    where entry.is_event and end_of_it.lsn > '0/0'::pg_lsn + %(after)s::numeric"""
)
"""Counts events, up to a position or, with NULL, to the end of the log."""


def values(source: Source) -> dict[str, object]:
    """The values of IS_EVENT and OPTIONS, and the `slot`."""
    prefix = source.message_prefix
    return {
        "slot": source.slot,
        "publication": f'"{source.publication}"',  # a list of quoted names
        "messages": "false" if prefix is None else "true",
        "prefix": None if prefix is None else prefix.encode() + b"\0",
    }
