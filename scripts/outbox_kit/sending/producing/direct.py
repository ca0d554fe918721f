"""Direct send (dual write): the record and the database transaction are independent. A baseline, no guarantee.

Both orders have a moment in which a crash leaves one of the two systems changed, and nothing remembers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Producer

from outbox_kit.sending.producing.database import Connection, commit, require_committable, require_idle, roll_back
from outbox_kit.sending.producing.delivery import DELIVERY_S, Deliveries
from outbox_kit.sending.record import Record

T = TypeVar("T")


def send_after_commit(
    connection: Connection,
    producer: Producer,
    record: Record,
    work: Callable[[Connection], T],
    *,
    seconds: float = DELIVERY_S,
) -> T:
    """Run `work`, commit, then send the record; return the result of `work`.

    The record is lost if the process crashes after the commit, or if Kafka does not confirm it: NotDeliveredError
    then means that the database has the change and consumers may never receive it.
    """
    require_idle(connection)
    result = _run(connection, work)
    commit(connection)
    _send(producer, record, seconds)
    return result


def send_before_commit(
    connection: Connection,
    producer: Producer,
    record: Record,
    work: Callable[[Connection], T],
    *,
    seconds: float = DELIVERY_S,
) -> T:
    """Run `work`, send the record, then commit; return the result of `work`.

    If the commit fails, or the process crashes before it, the record announces a change that did not happen. Even
    without a failure, a consumer can receive the record and read the database before the change is committed.
    """
    require_idle(connection)
    result = _run(connection, work)
    try:
        _send(producer, record, seconds)
    except BaseException:
        roll_back(connection)
        raise
    commit(connection)
    return result


def _run(connection: Connection, work: Callable[[Connection], T]) -> T:
    try:
        result = work(connection)
        require_committable(connection)
    except BaseException:
        roll_back(connection)
        raise
    return result


def _send(producer: Producer, record: Record, seconds: float) -> None:
    deliveries = Deliveries(producer, seconds=seconds)
    deliveries.send(record)
    deliveries.wait()
