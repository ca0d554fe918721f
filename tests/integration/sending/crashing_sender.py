"""Child process that sends one event in a given way and exits abruptly at a named point.

    python crashing_sender.py WAY POINT EVENT_ID

DSN, BOOTSTRAP, TOPIC and TRANSACTIONAL_ID are environment variables. POINT is before-database, after-database,
before-kafka, after-kafka or none. `kafka` is the commit of the Kafka transaction or, without one, the delivery.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import psycopg
from confluent_kafka import Producer

from outbox_events import ChainedSender, Deliveries, DeliveryProof, RecoveryStore, TwoPhaseSender, fence
from outbox_events.kafka.record import PRODUCER_SETTINGS, Record
from outbox_lab.drill.senders.direct_sender import DirectSender

CRASH_CODE = 9
DSN, BOOTSTRAP, TOPIC = os.environ["DSN"], os.environ["BOOTSTRAP"], os.environ["TOPIC"]
TRANSACTIONAL_ID = os.environ["TRANSACTIONAL_ID"]
WAY, POINT, EVENT_ID = sys.argv[1:]


def reach(point: str) -> None:
    if point == POINT:
        os._exit(CRASH_CODE)


class CrashingConnection(psycopg.Connection[Any]):
    def commit(self) -> None:
        reach("before-database")
        super().commit()
        reach("after-database")


class CrashingProducer(Producer):
    def commit_transaction(self, *arguments: object) -> None:
        reach("before-kafka")
        super().commit_transaction(*arguments)
        reach("after-kafka")

    def flush(self, *arguments: object) -> int:
        if not WAY.startswith(("direct", "proof")):
            return super().flush(*arguments)
        reach("before-kafka")
        remaining = super().flush(*arguments)
        reach("after-kafka")
        return remaining


def record() -> Record:
    return Record(TOPIC, b"key", b"value", (("event_id", EVENT_ID.encode()),))


def work(connection: psycopg.Connection[Any]) -> None:
    connection.execute("insert into purchase values (%s)", [EVENT_ID])


def main() -> None:
    transactional = not WAY.startswith(("direct", "proof"))
    settings = {"bootstrap.servers": BOOTSTRAP, **PRODUCER_SETTINGS}
    if not transactional:
        settings["linger.ms"] = 60_000  # flush sends the record, which is not sent earlier
    producer = CrashingProducer({**settings, **({"transactional.id": TRANSACTIONAL_ID} if transactional else {})})
    connection = CrashingConnection.connect(DSN)
    if transactional:
        fence(producer)
    if WAY == "proof":
        work(connection)
        DeliveryProof().save(connection, [record()])
        connection.commit()
        deliveries = Deliveries(producer)
        deliveries.send(record())
        deliveries.wait()
    else:
        with sender_of(connection, producer).transaction() as transaction:
            work(connection)
            transaction.send(record())
    with suppress(psycopg.OperationalError):
        connection.close()


def sender_of(connection: psycopg.Connection[Any], producer: Producer) -> DirectSender | ChainedSender | TwoPhaseSender:
    if WAY == "two-phase":
        return TwoPhaseSender(connection, producer, TRANSACTIONAL_ID)
    order, _, has_store = WAY.removeprefix("direct-").partition("+")
    if WAY.startswith("direct"):
        return DirectSender(connection, producer, order=order)  # type: ignore[arg-type]
    store = RecoveryStore(psycopg.connect(DSN, autocommit=True), TRANSACTIONAL_ID) if has_store else None
    return ChainedSender(connection, producer, order=order, store=store)  # type: ignore[arg-type]


main()
