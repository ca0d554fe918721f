"""Delivery by relay processes: order, takeover, fencing, dead letters, deletes and marks."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Callable, Sequence
from threading import Event
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message
from tests.integration.relay.conftest import (
    HANG_IN_COMMIT,
    MAIN,
    STOP_BEFORE_COMMIT,
    WITHOUT_CONNECT,
    RelayProcess,
    relay_once,
    wait_empty,
)
from tests.integration.support import Deploy, decode, headers, records
from tests.integration.transforms.test_records import book, send, send_within

from outbox_events import emit
from outbox_events.errors import RefusedError, RejectedError, WaitTimeoutError
from outbox_events.kafka import topic_reader
from outbox_events.kafka.record import Record
from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment, apply
from outbox_kit.encoding import OutboxRow, RecordEncoder
from outbox_kit.postgres import client
from outbox_kit.relay import batches, failures, leases, worker
from outbox_kit.relay.buckets import bucket_of_row
from outbox_kit.relay.leases import Leases
from outbox_kit.relay.producer import BucketProducer
from outbox_kit.results import silent

TABLE, BOOKS = "public.relayed_event", "relayed.book"


def test_sends_states_and_tombstones_and_deletes_the_rows(relayed: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    first = send(source_dsn, "book", key, book(key), table=TABLE)
    second = send(source_dsn, "book", key, None, table=TABLE)
    counters = relay_once(relayed)
    sent = [message for message in records(relayed, BOOKS, 4) if message.key() == key.encode()]
    assert [headers(message)["event_id"] for message in sent] == [first, second]
    assert sent[1].value() is None
    sequences = [headers(message)["source_sequence"] for message in sent]
    assert sequences[0] < sequences[1]
    assert counters.sent == 2
    wait_empty(source_dsn, TABLE)


def test_takes_over_the_buckets_of_a_killed_process(
    relayed: Deployment, relay_process: Callable[..., RelayProcess], source_dsn: str
) -> None:
    keys = [str(uuid4()) for _ in range(30)]
    before = len(records(relayed, BOOKS, 4))
    first, second = relay_process(relayed, "--batch", "7"), relay_process(relayed, "--batch", "7")
    for version in range(1, 31):
        with psycopg.connect(source_dsn) as connection:
            for key in keys:
                send_within(connection, "book", key, book(key, pages=version), table=TABLE)
        if version == 15:
            wait_records(relayed, BOOKS, before + 100)
            first.signal(signal.SIGKILL)
    wait_empty(source_dsn, TABLE)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    states: dict[str, set[tuple[str, str, int]]] = defaultdict(set)
    for message in records(relayed, BOOKS, 4):
        key, names = str(message.key(), "utf-8"), headers(message)  # type: ignore[arg-type]
        if key in keys:
            version = decode(relayed, "book", message)["pages"]
            states[key].add((names["source_sequence"], names["event_id"], version))
    for key in keys:
        versions = [version for _, _, version in sorted(states[key])]
        assert versions == list(range(1, 31)), "a replay has the sequence of the first sending"


def test_fences_a_process_that_is_stopped_before_its_commit(
    relayed: Deployment,
    relay_process: Callable[..., RelayProcess],
    source_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process's records are on the topic when it loses its lease, and its commit would make them readable."""
    key = str(uuid4())
    send(source_dsn, "book", key, book(key, pages=1), table=TABLE)
    zombie = relay_process(relayed, main=STOP_BEFORE_COMMIT + MAIN)
    zombie.wait_stopped()
    send(source_dsn, "book", key, book(key, pages=2), table=TABLE)
    successor = relay_process(relayed)
    wait_empty(source_dsn, TABLE)
    zombie.signal(signal.SIGCONT)
    send(source_dsn, "book", key, book(key, pages=3), table=TABLE)
    wait_empty(source_dsn, TABLE)
    for process in (zombie, successor):
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert versions_of(relayed, key) == [1, 2, 3]
    monkeypatch.setitem(topic_reader.read_records.__kwdefaults__, "isolation_level", "read_uncommitted")
    assert versions_of(relayed, key) == [1, 1, 2, 3], "the zombie has sent its record"


def test_writes_dead_letters_that_the_command_lists(relayed: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    broken = send(source_dsn, "book", key, book(key, pages="many"), table=TABLE)
    send(source_dsn, "book", key, book(key), table=TABLE)
    counters = relay_once(relayed)
    dead_letters = relayed.dead_letters().read()
    assert [(dead_letter.event_id, dead_letter.reason, dead_letter.key) for dead_letter in dead_letters] == [
        (broken, "payload-invalid", key)
    ]
    assert (counters.sent, counters.dead_letters) == (1, 1)


def test_a_batch_of_large_rows_has_fewer_rows(
    relayed: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_BYTES", 5_000)
    key = str(uuid4())
    titles = ["x" * size for size in (1_000, 1_000, 1_000, 20_000, 1_000)]
    with psycopg.connect(source_dsn) as connection:
        for title in titles:
            send_within(connection, "book", key, book(key, title=title), table=TABLE)
    assert relay_once(relayed).batches == 3
    sent = [message for message in by_position(records(relayed, BOOKS, 4)) if message.key() == key.encode()]
    assert [decode(relayed, "book", message)["title"] for message in sent] == titles


def test_the_lease_is_kept_while_a_batch_is_encoded(
    relayed: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, each owner of the bucket would lose it before the batch is sent."""
    monkeypatch.setattr(leases, "LEASE_S", 3)
    encode = RecordEncoder.encode

    def encode_slowly(encoder: RecordEncoder, row: OutboxRow, sequence: str) -> Record:
        Event().wait(0.7)
        return encode(encoder, row, sequence)

    monkeypatch.setattr(RecordEncoder, "encode", encode_slowly)
    key = str(uuid4())
    with psycopg.connect(source_dsn) as connection:
        for _ in range(5):
            send_within(connection, "book", key, book(key), table=TABLE)
    counters = relay_once(relayed)
    assert (counters.sent, counters.errors) == (5, 0)


def test_once_sends_the_rows_of_a_process_whose_session_still_lives(
    relayed: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends the session of a lost host only after LEASE_S."""
    monkeypatch.setattr(leases, "LEASE_S", 3)
    key = str(uuid4())
    with client.connected(relayed.environment.source) as other:
        Leases(other, TABLE).rebalance()
        send(source_dsn, "book", key, book(key), table=TABLE)
        assert relay_once(relayed).sent == 1


def test_once_fails_if_another_process_keeps_its_rows(
    relayed: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_S", 0)  # never ends
    monkeypatch.setattr(worker, "ONCE_MARGIN_S", 1)
    key = str(uuid4())
    with client.connected(relayed.environment.source) as other:
        Leases(other, TABLE).rebalance()
        send(source_dsn, "book", key, book(key), table=TABLE)
        with pytest.raises(WaitTimeoutError):
            relay_once(relayed)
    assert relay_once(relayed).sent == 1


def test_marks_sent_rows(relayed: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    send(source_dsn, "book", key, book(key), table=TABLE)
    assert relay_once(relayed, marks=True).sent == 1
    assert relay_once(relayed, marks=True).sent == 0
    with pytest.raises(RefusedError):
        relay_once(relayed)  # would send the marked row again
    with psycopg.connect(source_dsn) as connection:
        marked = connection.execute(f"select count(*) from {TABLE} where relayed_at is not null").fetchall()
        connection.execute(f"delete from {TABLE}")
    assert marked == [(1,)]


def test_new_states_are_newer_after_a_restore(relayed: Deployment, source_dsn: str) -> None:
    """A backup contains an earlier number of the last batch, and sinks drop states with lower sequences."""
    key = str(uuid4())
    restores = (
        "select 1",
        "select setval('public.outbox_relay_batch_number', 1)",
        f"update public.outbox_relay set timeline = timeline - 1 where outbox = '{TABLE}'",
        "select 1",
    )
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        for restore in restores:
            connection.execute(restore)
            with connection.transaction():
                for _ in range(2):
                    send_within(connection, "book", key, book(key), table=TABLE)
            relay_once(relayed, batch_rows=1)
    sent = [message for message in by_position(records(relayed, BOOKS, 4)) if message.key() == key.encode()]
    sequences = [headers(message)["source_sequence"] for message in sent]
    assert sequences == sorted({*sequences})
    epochs = [int(sequence[:4], 16) for sequence in sequences[::2]]
    assert [epoch - epochs[0] for epoch in epochs] == [0, 1, 2, 2]


def test_a_failing_topic_does_not_hold_back_the_other_topics(
    relayed: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [str(uuid4()) for _ in range(20)]
    send_produce = BucketProducer.send

    def reject_authors(producer: BucketProducer, sent: Sequence[Record]) -> None:
        if any(record.topic == "relayed.author" for record in sent):
            raise RejectedError("the topic is missing")
        send_produce(producer, sent)

    monkeypatch.setattr(failures, "GIVE_UP_S", 1)
    with psycopg.connect(source_dsn) as connection:
        send_within(connection, "author", "rejected", None, table=TABLE)
        for key in keys:
            send_within(connection, "book", key, book(key), table=TABLE)
        bucket = f"select count(distinct {bucket_of_row(relayed.pipeline).as_string(connection)}) from {TABLE}"
        count = connection.execute(bucket).fetchall()[0][0]  # type: ignore[arg-type]
    assert count > 1
    with monkeypatch.context() as patch:
        patch.setattr(BucketProducer, "send", reject_authors)
        with pytest.raises(RejectedError):
            relay_once(relayed)
    with psycopg.connect(source_dsn) as connection:
        left = [row[0] for row in connection.execute(f"select aggregate_id from {TABLE}").fetchall()]
    assert "rejected" in left
    assert len(left) < len(keys)
    relay_once(relayed)
    wait_empty(source_dsn, TABLE)


def test_sends_the_rows_of_a_partition_in_order(deploy: Deploy, source_dsn: str) -> None:
    """With the connector, the rows of a partition are in commit order. With buckets by aggregate, they were not."""
    aggregates = {"loan": {"payload": "text", "partitions": 3, "partition_field": "reader"}}
    deployment = deploy("partitionedrelay", aggregates=aggregates, materializations=[], applied=False)
    apply(deployment, silent, **WITHOUT_CONNECT)
    relay_once(deployment)
    with psycopg.connect(source_dsn) as connection:
        for number in range(60):
            emit(
                connection,
                aggregate_type="loan",
                aggregate_id=str(number),
                event_type="x",
                payload={},
                additional_columns={"reader": f"reader-{number % 2}"},
                table="public.partitionedrelay_event",
            )
    relay_once(deployment, batch_rows=7)
    sent: dict[int, list[int]] = defaultdict(list)
    for message in by_position(records(deployment, "partitionedrelay.loan", 3)):
        sent[int(message.key()) % 2].append(int(message.key()))  # type: ignore[arg-type]
    assert sent == {0: [*range(0, 60, 2)], 1: [*range(1, 60, 2)]}


def test_ends_after_a_signal_although_a_call_of_the_kafka_client_hangs(
    relayed: Deployment, relay_process: Callable[..., RelayProcess], source_dsn: str
) -> None:
    key = str(uuid4())
    send(source_dsn, "book", key, book(key), table=TABLE)
    process = relay_process(relayed, main=HANG_IN_COMMIT + MAIN)
    process.wait_stopped()
    process.signal(signal.SIGCONT)
    process.signal(signal.SIGTERM)
    assert process.wait() == 1
    relay_once(relayed)
    assert versions_of(relayed, key)


def wait_records(relayed: Deployment, topic: str, count: int) -> None:
    """Wait until a topic has at least `count` records."""

    def poll() -> Observation[bool]:
        found = len(records(relayed, topic, 4))
        return Observation(True if found >= count else None, f"{found} records")

    wait_for(f"{count} records on {topic}", poll, seconds=60)


def by_position(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def versions_of(relayed: Deployment, key: str) -> list[int]:
    """Return the versions of a book in the order of their records."""
    mine = [message for message in by_position(records(relayed, BOOKS, 4)) if message.key() == key.encode()]
    return [decode(relayed, "book", message)["pages"] for message in mine]
