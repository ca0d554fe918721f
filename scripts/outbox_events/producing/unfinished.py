"""List the senders that have left saved records or prepared transactions, and recover those senders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from confluent_kafka import Producer
from psycopg import sql

from outbox_events.errors import RefusedError
from outbox_events.kafka.record import PRODUCER_SETTINGS
from outbox_events.producing import delivery_proof, recovery_store, two_phase
from outbox_events.producing.database import Connection, rows_of
from outbox_events.producing.delivered import READ_S
from outbox_events.producing.stored_record import Recovered, identifier
from outbox_events.producing.two_phase import PreparedTransaction, Resolved

ROWS = sql.SQL(
    "select sender, count(*), array_agg(distinct topic), extract(epoch from min(created_at))::float8 from {} "
    "group by sender order by sender"
)

Way = Literal["recovery-store", "delivery-proof", "two-phase"]


@dataclass(frozen=True)
class UnfinishedSender:
    """Records or prepared transactions that a sender has left. `since` is the Unix time of the oldest."""

    way: Way
    sender: str
    count: int
    topics: tuple[str, ...]
    since: float
    table: str = ""


def unfinished_senders(
    connection: Connection,
    *,
    store_table: str = recovery_store.DEFAULT_TABLE,
    proof_table: str = delivery_proof.DEFAULT_TABLE,
) -> list[UnfinishedSender]:
    """Return what senders have left in the connection's database, including what running transactions have saved.

    A table that does not exist is ignored.
    """
    prepared: dict[str, list[PreparedTransaction]] = {}
    for entry in two_phase.in_doubt(connection):
        prepared.setdefault(entry.sender, []).append(entry)
    return [
        *_with_rows(connection, "recovery-store", store_table),
        *_with_rows(connection, "delivery-proof", proof_table),
        *(_with_transactions(sender, entries) for sender, entries in prepared.items()),
    ]


def _with_rows(connection: Connection, way: Way, table: str) -> list[UnfinishedSender]:
    name = identifier(table)
    with connection.transaction():
        if rows_of(connection, "select to_regclass(%s)", [name.as_string(connection)]) == [(None,)]:
            return []
        rows = rows_of(connection, ROWS.format(name))
    return [UnfinishedSender(way, sender, count, tuple(topics), since, table) for sender, count, topics, since in rows]


def _with_transactions(sender: str, entries: list[PreparedTransaction]) -> UnfinishedSender:
    topics = tuple(sorted({entry.topic for entry in entries}))
    return UnfinishedSender("two-phase", sender, len(entries), topics, entries[0].prepared_at)


def recover_sender(
    connection: Connection, unfinished: UnfinishedSender, settings: Mapping[str, Any], *, seconds: float = READ_S
) -> Recovered | Resolved:
    """Run the recovery of a sender, which fences a process that still uses its transactional.id. Return the result.

    `settings` are client properties of confluent-kafka, at least bootstrap.servers. `connection` is in autocommit mode.
    Raises the errors of the recovery, and RefusedError if the login may not resolve the prepared transactions.
    """
    way, sender = unfinished.way, unfinished.sender
    transactional = {} if way == "delivery-proof" else {"transactional.id": sender}
    producer = Producer({**settings, **PRODUCER_SETTINGS, **transactional})
    if way == "recovery-store":
        store = recovery_store.RecoveryStore(connection, sender, unfinished.table)
        return recovery_store.recover(store, producer, settings, seconds=seconds)
    if way == "delivery-proof":
        proof = delivery_proof.DeliveryProof(unfinished.table, sender=sender)
        return proof.recover(connection, producer, settings, seconds=seconds)
    connection.autocommit = False
    try:
        return two_phase.recover(connection, producer, sender, settings, seconds=seconds)
    except psycopg.errors.InsufficientPrivilege as error:
        message = f"cannot resolve the prepared transactions of {sender}: {error.diag.message_primary}"
        raise RefusedError(message, "log in as the role in pg_prepared_xacts.owner, or as a superuser") from error
    finally:
        connection.autocommit = True
