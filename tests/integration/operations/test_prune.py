"""`outbox prune` on the embedded stack. After each test, a consumer must have seen every deleted row."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.integration.support import CommandResult, Deploy, headers, in_process, invoke, records, wait_record
from tests.integration.transforms.test_records import book, send, send_within

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.delivery import outbox_rows
from outbox_kit.deployment import Deployment
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection, connected
from outbox_kit.postgres.replication_slot import read_slot, wait_inactive
from outbox_kit.pruning import prune as pruning
from outbox_kit.stack import Stack, StackState
from outbox_kit.stack.services.kafka import NODE_ID

NAME, TABLE, BOOKS, AUTHORS, DEAD = "prune", "public.prune_event", "prune.book", "prune.author", "prune.dead-letter"
# The log cleaner removes superseded records of authors as soon as possible, but never those of books.
COMPACTED = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
}
# Every row that was ever committed, even if it has been deleted.
HISTORY = f"""
    create table prune_history (id text, key text, seq bigint);
    create function prune_history() returns trigger language plpgsql as $$ begin
      insert into prune_history values (new.id::text, new.aggregate_id, new.seq);
      return null;
    end $$;
    create trigger prune_history after insert on {TABLE} for each row execute function prune_history()"""


@pytest.fixture(scope="module")
def pipeline(deploy_once: Deploy, source_dsn: str) -> Deployment:
    aggregates = {
        "author": {"schema": "schemas/author.avsc", "partitions": 1, "topic": COMPACTED},
        "book": {"schema": "schemas/book.avsc", "partitions": 1},
    }
    deployment = deploy_once(NAME, aggregates=aggregates)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(HISTORY)
    return deployment


@dataclass
class Consumer:
    """Event ids that a consumer of all topics has seen."""

    deployment: Deployment
    seen: set[str] = field(default_factory=set)

    def read(self) -> set[str]:
        """Read all topics again. Return the event ids that they contain now."""
        now = {headers(record)["event_id"] for topic in (BOOKS, AUTHORS, DEAD) for record in self._read(topic)}
        self.seen |= now
        return now

    def _read(self, topic: str) -> list[Any]:
        return records(self.deployment, topic, 1)


@pytest.fixture(scope="module")
def consumer(pipeline: Deployment) -> Consumer:
    return Consumer(pipeline)


@pytest.fixture(autouse=True)
def _every_deleted_row_was_delivered(consumer: Consumer, source_dsn: str) -> Iterator[None]:
    """Check that the consumer has seen each deleted event or a later event of its key."""
    yield
    consumer.read()
    with psycopg.connect(source_dsn) as connection:
        history = connection.execute("select id, key, seq from prune_history").fetchall()
    remaining = ids(source_dsn)
    last_seen: dict[str, int] = {}
    for event, key, seq in history:
        if event in consumer.seen:
            last_seen[key] = max(seq, last_seen.get(key, 0))
    assert len(history) > len(remaining)
    assert [event for event, key, seq in history if event not in remaining and seq > last_seen.get(key, 0)] == []


def ids(dsn: str) -> set[str]:
    """Return the ids of all outbox rows."""
    with psycopg.connect(dsn) as connection:
        return {event for (event,) in connection.execute(f"select id::text from {TABLE}")}


Counts = dict[str, dict[str, Any]]
Prune = Callable[..., Counts]


@pytest.fixture
def prune(pipeline: Deployment) -> Prune:
    """Run the command for rows of any age. Return its counts by aggregate type."""

    def run(*options: str, code: int = 0) -> Counts:
        done = invoke_prune(pipeline, *options)
        assert done.code == code, done.output
        return {} if code else counts_of(done)

    return run


def invoke_prune(pipeline: Deployment, *options: str) -> CommandResult:
    file = pipeline.templates.parent / f"{NAME}.yaml"
    arguments = ["prune", "--older-than", "0s", "--confirm", f"{NAME}@local", "--output", "json", *options]
    return invoke(["-p", str(file), "-e", "local", *arguments])


def counts_of(done: CommandResult) -> Counts:
    """Return the counts in the output of the command, by aggregate type."""
    return {entry["aggregate_type"]: entry for entry in json.loads(done.stdout)["aggregates"]}


def send_book(dsn: str, key: str, **changes: object) -> str:
    return send(dsn, "book", key, book(key, **changes), table=TABLE)


def deliver(pipeline: Deployment, dsn: str, key: str, count: int = 1) -> list[str]:
    """Send states of a book, and wait for the record of the last state."""
    events = [send_book(dsn, key, pages=number) for number in range(1, count + 1)]
    wait_record(pipeline, BOOKS, 1, events[-1])
    return events


def stop(pipeline: Deployment) -> None:
    connect_lifecycle.stop(pipeline.connect, pipeline.pipeline.connector.name)
    with connected(pipeline.environment.source) as connection:
        wait_inactive(connection, pipeline.pipeline.source.slot)


def resume(pipeline: Deployment) -> None:
    name = pipeline.pipeline.connector.name
    pipeline.connect.resume(name)
    connect_lifecycle.wait_for_state(pipeline.connect, name)


def test_deletes_delivered_rows_except_the_newest_of_an_aggregate(
    pipeline: Deployment, prune: Prune, source_dsn: str
) -> None:
    key, deleted_key = str(uuid4()), str(uuid4())
    first, second, newest = deliver(pipeline, source_dsn, key, 3)
    state = send_book(source_dsn, deleted_key)
    tombstone = send(source_dsn, "book", deleted_key, None, table=TABLE)
    wait_record(pipeline, BOOKS, 1, tombstone)
    before = ids(source_dsn)
    assert prune("--dry-run")["book"]["deleted"] == 4
    assert ids(source_dsn) == before >= {first, second, newest, state, tombstone}
    assert prune("--older-than", "1h")["book"]["young"] == 5
    assert prune("--batch", "1")["book"] == {
        "aggregate_type": "book",
        "deleted": 4,
        "newest": 1,
        "young": 0,
        "unproven": 0,
        "following": 0,
        "changed": 0,
        "unproven_keys": [],
    }
    assert ids(source_dsn) == {newest}
    assert in_process(pipeline)("stuck", "--older-than", "0.1", code=0)
    assert prune("--all")["book"]["deleted"] == 1
    assert ids(source_dsn) == set()


def test_a_row_remains_after_an_older_one_of_its_aggregate(pipeline: Deployment, prune: Prune, source_dsn: str) -> None:
    """Otherwise, `stuck` would compare the older row with the topic."""
    key = str(uuid4())
    older, newer = deliver(pipeline, source_dsn, key, 2)
    with psycopg.connect(source_dsn) as connection:
        connection.execute(f"update {TABLE} set created_at = '2099-01-01' where id = %s", (older,))
    assert prune("--all")["book"]["following"] == 1
    assert ids(source_dsn) == {older, newer}
    assert in_process(pipeline)("stuck", "--older-than", "0.1", code=0)
    with psycopg.connect(source_dsn) as connection:
        connection.execute(f"update {TABLE} set created_at = now() where id = %s", (older,))
    prune("--all")
    assert ids(source_dsn) == set()


def test_rows_of_one_transaction_are_distinguished(pipeline: Deployment, prune: Prune, source_dsn: str) -> None:
    """The rows have the same xmin, and only the older row may be deleted."""
    key = str(uuid4())
    with psycopg.connect(source_dsn) as connection:
        older, newest = (send_within(connection, "book", key, book(key, pages=n), table=TABLE) for n in (1, 2))
    wait_record(pipeline, BOOKS, 1, newest)
    assert {older, newest} <= ids(source_dsn)
    counts = prune()["book"]
    assert (counts["deleted"], counts["newest"]) == (1, 1)
    assert ids(source_dsn) == {newest}
    prune("--all")


def test_deletes_nothing_while_the_slot_lags(pipeline: Deployment, prune: Prune, source_dsn: str) -> None:
    key = str(uuid4())
    delivered = deliver(pipeline, source_dsn, key)
    stop(pipeline)
    undelivered = send_book(source_dsn, str(uuid4()))
    prune("--all", "--wait", "1", code=1)
    assert ids(source_dsn) >= {*delivered, undelivered}
    resume(pipeline)
    wait_record(pipeline, BOOKS, 1, undelivered)
    prune("--all")
    assert ids(source_dsn) == set()


def test_open_transactions(
    pipeline: Deployment, prune: Prune, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction commits between the snapshot and the deletions, one commits later, and one is rolled back."""
    before = deliver(pipeline, source_dsn, str(uuid4()))
    wait_delivered = pruning.wait_delivered
    keys = [str(uuid4()) for _ in range(3)]
    with psycopg.connect(source_dsn) as during, psycopg.connect(source_dsn) as late, psycopg.connect(source_dsn) as no:
        during_row, late_row, rolled_back = (
            send_within(connection, "book", key, book(key), table=TABLE)
            for connection, key in zip((during, late, no), keys, strict=True)
        )

        def commit_and_wait(*arguments: object) -> None:
            no.rollback()
            during.commit()
            wait_record(pipeline, BOOKS, 1, during_row)
            wait_delivered(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(pruning, "wait_delivered", commit_and_wait)
        assert prune("--all")["book"]["deleted"] == len(before)
        monkeypatch.undo()
        assert ids(source_dsn) == {during_row}
        late.commit()
    assert ids(source_dsn) == {during_row, late_row}
    wait_record(pipeline, BOOKS, 1, late_row)
    assert prune("--all")["book"]["deleted"] == 2
    assert rolled_back not in ids(source_dsn) | {headers(record)["event_id"] for record in records(pipeline, BOOKS, 1)}


def test_position_is_after_each_row_of_the_snapshot(
    pipeline: Deployment, prune: Prune, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is committed after the position has been read is not part of the snapshot."""
    before, late = deliver(pipeline, source_dsn, str(uuid4())), list[str]()

    def read_and_commit(connection: Connection) -> int | None:
        position = postgres_client.read_insert_position(connection)
        late.append(send_book(source_dsn, str(uuid4())))
        return position

    with monkeypatch.context() as patch, connected(pipeline.environment.source) as connection:
        patch.setattr(outbox_rows, "read_insert_position", read_and_commit)
        with outbox_rows.open_snapshot(connection, pipeline.pipeline.source) as snapshot:
            rows = {row.id for aggregate in snapshot.aggregates(older_than=0) for row in aggregate}
    assert rows >= {*before}
    assert not rows & {*late}
    wait_record(pipeline, BOOKS, 1, late[0])
    prune("--all")


def test_a_row_that_was_updated_meanwhile_remains(
    pipeline: Deployment, prune: Prune, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = deliver(pipeline, source_dsn, str(uuid4()), 2)
    delete_rows = outbox_rows.delete_rows

    def update_and_delete(*arguments: Any) -> int:  # noqa: ANN401 - the arguments of delete_rows
        with psycopg.connect(source_dsn) as connection:
            connection.execute(f"update {TABLE} set headers = null where id = %s", (events[1],))
        return delete_rows(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pruning, "delete_rows", update_and_delete)
        counts = prune("--all")["book"]
    assert (counts["deleted"], counts["changed"]) == (1, 1)
    assert ids(source_dsn) == {events[1]}
    prune("--all")


def test_deletes_dead_letters(pipeline: Deployment, prune: Prune, source_dsn: str) -> None:
    key = str(uuid4())
    deliver(pipeline, source_dsn, key)
    invalid = send(source_dsn, "book", key, {"id": key}, table=TABLE)
    unknown = send(source_dsn, "unknown", key, book(key), table=TABLE)
    wait_record(pipeline, DEAD, 1, unknown)
    assert prune()["book"]["deleted"] == 1
    assert ids(source_dsn) == {invalid, unknown}
    counts = prune("--all")
    assert (counts["book"]["deleted"], counts["unknown"]["deleted"]) == (1, 1)


@pytest.fixture
def _eager_cleaner(state: StackState) -> Iterator[None]:
    """Set the pause of the broker's log cleaner to 0.1 s instead of 15 s."""
    client = AdminClient({"bootstrap.servers": state.kafka})

    def set_pause(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
        broker = ConfigResource(ResourceType.BROKER, str(NODE_ID), incremental_configs=[entry])
        for done in client.incremental_alter_configs([broker]).values():
            done.result(10)

    set_pause(AlterConfigOpType.SET)
    yield
    set_pause(AlterConfigOpType.DELETE)


AUTHOR = {"name": "Umberto Eco", "country": "IT", "born": 1932, "pen_names": [], "updated_at": "2026-11-20T18:31:38Z"}


@pytest.mark.usefixtures("_eager_cleaner")
def test_deletes_rows_whose_records_were_compacted(
    pipeline: Deployment, consumer: Consumer, prune: Prune, source_dsn: str
) -> None:
    key, other = str(uuid4()), str(uuid4())
    events = [send(source_dsn, "author", key, {"id": key, **AUTHOR}, table=TABLE) for _ in range(3)]
    wait_record(pipeline, AUTHORS, 1, events[-1])
    consumer.read()

    def poll() -> Observation[bool]:
        send(source_dsn, "author", other, {"id": other, **AUTHOR}, table=TABLE)  # closes the segment
        remaining = {*events[:2]} & consumer.read()
        return Observation(None if remaining else True, f"{len(remaining)} records are left")

    wait_for("compaction", poll, seconds=60)
    assert events[2] in consumer.read()
    prune()
    assert ids(source_dsn) & {*events} == {events[2]}
    prune("--all")


def recreate_slot(pipeline: Deployment) -> int:
    """Drop the slot and create it again, as another client could. Return its position."""
    name = pipeline.pipeline.source.slot
    with connected(pipeline.environment.source) as connection:
        wait_inactive(connection, name)
        postgres_client.drop_slot(connection, name)
        postgres_client.create_slot(connection, name, failover=False)
        slot = read_slot(connection, name)
    assert slot is not None
    assert slot.confirmed_flush is not None
    return slot.confirmed_flush


def test_a_recreated_slot_proves_nothing(
    pipeline: Deployment, prune: Prune, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = str(uuid4())
    delivered = deliver(pipeline, source_dsn, key)
    stop(pipeline)
    lost = [send_book(source_dsn, str(uuid4())), send_book(source_dsn, key, pages=2)]
    with monkeypatch.context() as patch:
        patch.setattr(postgres_client, "commit_heartbeat", lambda _: recreate_slot(pipeline))
        prune("--all", code=1)  # the new slot is immediately beyond the rows
    assert ids(source_dsn) == {*delivered, *lost}
    position = recreate_slot(pipeline)
    prune("--all", code=1)  # the offset of the connector is before the slot
    assert ids(source_dsn) == {*delivered, *lost}
    # With another offset, the connector runs, and neither the slot nor the offset shows that rows were lost.
    pipeline.connect.patch_offsets(NAME, {"server": NAME}, seed(position))
    resume(pipeline)
    later = deliver(pipeline, source_dsn, str(uuid4()))
    counts = prune("--all")["book"]
    assert (counts["deleted"], counts["unproven"]) == (len([*delivered, *later]), len(lost))
    assert ids(source_dsn) == {*lost}
    # A later event of the key supersedes the lost one, whose state was never delivered.
    deliver(pipeline, source_dsn, key)
    assert prune("--all")["book"]["deleted"] == 2
    assert ids(source_dsn) == {lost[0]}
    with psycopg.connect(source_dsn) as connection:
        connection.execute(f"delete from {TABLE}")
        connection.execute("delete from prune_history where id = %s", (lost[0],))


def test_killed_worker(pipeline: Deployment, stack: Stack, prune: Prune, source_dsn: str) -> None:
    """Connect is killed while events are written, some in transactions that are rolled back, and rows are pruned."""
    keys, done, count = [str(uuid4()) for _ in range(20)], Event(), 0

    def write() -> None:
        nonlocal count
        with psycopg.connect(source_dsn) as connection:
            while not done.is_set():
                count += 1
                key = keys[count % len(keys)]
                payload = None if count % 7 == 0 else book(key, pages=count)
                send_within(connection, "book", key, payload, table=TABLE)
                if count % 5 == 0:
                    connection.rollback()
                else:
                    connection.commit()
                done.wait(0.01)

    writer = Thread(target=write)
    writer.start()
    try:
        deleted = prune("--all")["book"]["deleted"]
        pid = stack.pid("connect")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        before = ids(source_dsn)
        prune("--all", "--wait", "1", code=1)
        assert before <= ids(source_dsn)
        deleted += _prune_until_running(pipeline)
    finally:
        done.set()
        writer.join()
    deliver(pipeline, source_dsn, keys[0])
    prune("--all")
    assert deleted
    assert ids(source_dsn) == set()


def _prune_until_running(pipeline: Deployment) -> int:
    """Prune until a run succeeds after the worker was killed. Return the number of rows that this run deleted."""

    def poll() -> Observation[int]:
        done = invoke_prune(pipeline, "--all", "--wait", "60")
        counts = counts_of(done) if done.code == 0 else {}
        return Observation(counts["book"]["deleted"] if counts else None, done.output)

    return wait_for("a run of prune that succeeds", poll, seconds=120)
