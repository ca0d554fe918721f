"""Delivery by relay processes: order, takeover, fencing, dead letters, deletes and marks."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message
from tests.integration.relay.conftest import RelayProcess, relay_once, wait_empty
from tests.integration.support import Deploy, decode, headers, records, wait_record
from tests.integration.transforms.test_records import book, send, send_within

from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.kafka import dead_letters
from outbox_kit.operations import lifecycle
from outbox_kit.progress import silent
from outbox_kit.waiting import Observation, wait_for

Stopped = Callable[..., Deployment]


def test_sends_states_and_tombstones_and_deletes_the_rows(stopped: Stopped, source_dsn: str) -> None:
    deployment = stopped("relaybasic")
    table = deployment.pipeline.source.table
    key = str(uuid4())
    first = send(source_dsn, "book", key, book(key), table=table)
    second = send(source_dsn, "book", key, None, table=table)
    counters = relay_once(deployment)
    sent = [message for message in records(deployment, "relaybasic.book", 4) if message.key() == key.encode()]
    assert [headers(message)["event_id"] for message in sent] == [first, second]
    assert sent[1].value() is None
    sequences = [headers(message)["source_sequence"] for message in sent]
    assert sequences[0] < sequences[1]
    assert counters.sent == 2
    wait_empty(source_dsn, table)


def test_refuses_to_start_while_the_connector_runs(stopped: Stopped) -> None:
    deployment = stopped("relayrunning")
    lifecycle.resume(deployment, silent)
    with pytest.raises(RefusedError) as error:
        relay_once(deployment)
    assert "outbox stop" in error.value.hint


def test_moves_from_the_connector_to_the_relay_without_old_states(deploy: Deploy, source_dsn: str) -> None:
    deployment = deploy("relaymove")
    table, key = deployment.pipeline.source.table, str(uuid4())
    by_connector = [send(source_dsn, "book", key, book(key, pages=number), table=table) for number in (1, 2)]
    wait_record(deployment, "relaymove.book", 4, by_connector[-1])
    lifecycle.stop(deployment, silent)
    with pytest.raises(RefusedError):
        relay_once(deployment)
    with psycopg.connect(source_dsn) as connection:
        connection.execute(f"delete from {table} where id = any(%s::uuid[])", (by_connector,))
    by_relay = send(source_dsn, "book", key, book(key, pages=3), table=table)
    assert relay_once(deployment).sent == 1
    sent = [headers(message) for message in by_position(records(deployment, "relaymove.book", 4))]
    assert [entry["event_id"] for entry in sent] == [*by_connector, by_relay]
    assert sent[1]["source_sequence"] < sent[2]["source_sequence"]
    with pytest.raises(RefusedError):
        lifecycle.resume(deployment, silent)


def test_takes_over_the_buckets_of_a_killed_process(
    stopped: Stopped, relay_process: Callable[..., RelayProcess], source_dsn: str
) -> None:
    deployment = stopped("relaykill")
    table = deployment.pipeline.source.table
    keys = [str(uuid4()) for _ in range(40)]
    first, second = relay_process(deployment, "--batch", "7"), relay_process(deployment, "--batch", "7")
    for version in range(1, 41):
        with psycopg.connect(source_dsn) as connection:
            for key in keys:
                send_within(connection, "book", key, book(key, pages=version), table=table)
        if version == 20:
            wait_records(deployment, "relaykill.book", 200)
            first.signal(signal.SIGKILL)
    wait_empty(source_dsn, table)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    versions: dict[bytes, list[int]] = defaultdict(list)
    for message in by_position(records(deployment, "relaykill.book", 4)):
        versions[message.key()].append(decode(deployment, "book", message)["pages"])  # type: ignore[index]
    for key in keys:
        assert without_replays(versions[key.encode()]) == list(range(1, 41))


def test_fences_a_stopped_process_that_lost_its_lease(
    stopped: Stopped, relay_process: Callable[..., RelayProcess], source_dsn: str
) -> None:
    deployment = stopped("relayzombie")
    table = deployment.pipeline.source.table
    key = str(uuid4())
    send(source_dsn, "book", key, book(key, pages=1), table=table)
    zombie = relay_process(deployment)
    wait_records(deployment, "relayzombie.book", 1)
    zombie.signal(signal.SIGSTOP)
    send(source_dsn, "book", key, book(key, pages=2), table=table)
    successor = relay_process(deployment)
    wait_empty(source_dsn, table)
    zombie.signal(signal.SIGCONT)
    send(source_dsn, "book", key, book(key, pages=3), table=table)
    wait_empty(source_dsn, table)
    for process in (zombie, successor):
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    sent = by_position(records(deployment, "relayzombie.book", 4))
    assert [decode(deployment, "book", message)["pages"] for message in sent] == [1, 2, 3]


def test_writes_dead_letters_that_the_command_lists(stopped: Stopped, source_dsn: str) -> None:
    deployment = stopped("relayletter")
    table = deployment.pipeline.source.table
    key = str(uuid4())
    broken = send(source_dsn, "book", key, book(key, pages="many"), table=table)
    send(source_dsn, "book", key, book(key), table=table)
    counters = relay_once(deployment)
    letters = dead_letters.list_letters(deployment.kafka, deployment.pipeline)
    assert [(letter.event_id, letter.reason, letter.key) for letter in letters] == [(broken, "payload-invalid", key)]
    assert (counters.sent, counters.dead_letters) == (1, 1)


def test_marks_sent_rows(stopped: Stopped, source_dsn: str) -> None:
    deployment = stopped("relaymark")
    table = deployment.pipeline.source.table
    key = str(uuid4())
    send(source_dsn, "book", key, book(key), table=table)
    assert relay_once(deployment, marks=True).sent == 1
    assert relay_once(deployment, marks=True).sent == 0
    with psycopg.connect(source_dsn) as connection:
        marked = connection.execute(f"select count(*) from {table} where relayed_at is not null").fetchall()
    assert marked == [(1,)]


def wait_records(deployment: Deployment, topic: str, count: int) -> None:
    """Wait until a topic has at least `count` records."""

    def poll() -> Observation[bool]:
        found = len(records(deployment, topic, 4))
        return Observation(True if found >= count else None, f"{found} records")

    wait_for(f"{count} records on {topic}", poll, seconds=60)


def by_position(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda message: (message.partition(), message.offset()))


def without_replays(versions: list[int]) -> list[int]:
    """Return the versions in the order of their first record. A takeover sends a batch again, in the same order."""
    return list(dict.fromkeys(versions))
