"""The migration of docs/migrating.md, from a running EventRouter connector to outbox-kit, under load."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conftest import REPOSITORY
from tests.integration.support import Deploy, headers, in_process, records, wait_record
from tests.integration.transforms.test_records import book

from outbox_events.errors import RefusedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.backfill import adopt
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.connect.config_diff import PIPELINE_KEY, was_edited
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.deployment import Deployment
from outbox_kit.postgres.advisory_lock import pipeline_lock
from outbox_kit.results import Reporter, silent

GUIDE = (REPOSITORY / "docs" / "migrating.md").read_text(encoding="utf-8")
# The columns that EventRouter requires. The guide adds the columns of the contract.
OUTBOX = """
create table {} (
  id uuid primary key, aggregate_type varchar(255) not null, aggregate_id varchar(255) not null,
  event_type varchar(255) not null, payload jsonb)
"""
INSERT = (
    "insert into {} (id, aggregate_type, aggregate_id, event_type, payload) values (%s, 'book', %s, 'book_added', %s)"
)
PARTITIONS = 4


def plain_connector(deployment: Deployment, **changes: str) -> dict[str, str]:
    """Return the config of Debezium's tutorial: EventRouter, a separate slot and publication, and no heartbeats."""
    source, place = deployment.pipeline.source, deployment.environment.source
    name = deployment.pipeline.name
    router = "transforms.outbox."
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": place.host,
        "database.port": str(place.port),
        "database.user": place.admin.user,
        "database.password": place.admin.password.get_secret_value(),
        "database.dbname": place.database,
        "topic.prefix": f"old-{name}",
        "plugin.name": "pgoutput",
        "slot.name": source.slot,
        "publication.name": source.publication,
        "publication.autocreate.mode": "filtered",
        "table.include.list": source.table,
        # Otherwise, heartbeats of other pipelines in the same database would become records.
        "message.prefix.exclude.list": "outbox-heartbeat",
        "tombstones.on.delete": "false",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "transforms": "outbox",
        router + "type": "io.debezium.transforms.outbox.EventRouter",
        router + "table.field.event.key": "aggregate_id",
        router + "table.field.event.payload": "payload",
        router + "route.by.field": "aggregate_type",
        router + "route.topic.replacement": f"old-{name}.${{routedByValue}}",
        **changes,
    }


@dataclass(frozen=True)
class ExistingConnector:
    """A pipeline, and the running connector that it adopts."""

    deployment: Deployment
    old: str

    @property
    def name(self) -> str:
        return self.deployment.pipeline.name

    def wait_streaming(self, dsn: str) -> None:
        """Wait until the snapshot is done and the slot is active, because Connect reports RUNNING earlier."""
        with psycopg.connect(dsn, autocommit=True) as connection:

            def poll() -> Observation[bool]:
                slot = self.deployment.pipeline.source.slot
                row = connection.execute(
                    "select active from pg_replication_slots where slot_name = %s", (slot,)
                ).fetchone()
                status = self.deployment.connect.status(self.old)
                return Observation(True if row == (True,) else None, f"slot {row}, {status}")

            wait_for(f"connector {self.old} to stream", poll, seconds=60)

    def sent_by_old(self) -> list[str]:
        """Return the event ids on the old topic."""
        actual = records(self.deployment, f"old-{self.name}.book", PARTITIONS)
        return [headers(message)["id"] for message in actual]

    def sent_by_new(self) -> list[str]:
        actual = records(self.deployment, f"{self.name}.book", PARTITIONS)
        return [headers(message)["event_id"] for message in actual]


@pytest.fixture(scope="module")
def start_existing(deploy_once: Deploy, source_dsn: str) -> Callable[..., ExistingConnector]:
    """Start an existing connector on a separate table."""

    def make(name: str, **changes: str) -> ExistingConnector:
        deployment = deploy_once(name, applied=False)
        with psycopg.connect(source_dsn, autocommit=True) as connection:
            connection.execute(OUTBOX.format(deployment.pipeline.source.table))
        admin = AdminClient({"bootstrap.servers": deployment.environment.kafka.bootstrap_servers})
        created = admin.create_topics([NewTopic(f"old-{name}.book", PARTITIONS, 1)])
        for future in created.values():
            future.result()
        old = f"old-{name}"
        deployment.connect.create_stopped(old, plain_connector(deployment, **changes))
        connect_lifecycle.stop(deployment.connect, old)
        deployment.connect.resume(old)
        connect_lifecycle.wait_for_state(deployment.connect, old)
        existing = ExistingConnector(deployment, old)
        existing.wait_streaming(source_dsn)
        return existing

    return make


class Load(threading.Thread):
    """Service that writes events continuously, and deletes each outbox row after a short time."""

    def __init__(self, dsn: str, table: str) -> None:
        super().__init__(name="load")
        self.stop = threading.Event()
        self.events: list[str] = []
        self._dsn, self._table = dsn, table

    def run(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            while not self.stop.is_set():
                ids = [self._write(connection) for _ in range(3)]
                connection.commit()
                self.events += ids
                connection.execute(f"delete from {self._table} where id = any(%s::uuid[])", (ids,))
                connection.execute("select pg_sleep(0.005)")
                connection.commit()

    def _write(self, connection: psycopg.Connection[Any]) -> str:
        event, key = str(uuid4()), str(uuid4())
        connection.execute(INSERT.format(self._table), (event, key, json.dumps(book(key, price="12.50"))))
        return event


@contextmanager
def load(dsn: str, table: str) -> Iterator[Load]:
    """Write events during the block."""
    thread = Load(dsn, table)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop.set()
        thread.join()


def wait_for_records(description: str, count: Callable[[], int], minimum: int) -> None:
    def poll() -> Observation[bool]:
        actual = count()
        return Observation(True if actual >= minimum else None, f"{actual} records")

    wait_for(description, poll, seconds=60)


def sql_of_the_guide(existing: ExistingConnector, heading: str) -> list[str]:
    """Return the statements below a heading of docs/migrating.md, with the names of this test."""
    section = GUIDE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    source = existing.deployment.pipeline.source
    text = "".join(blocks).replace("library_outbox", source.publication).replace("public.outbox_event", source.table)
    assert text, heading
    return [statement for statement in text.split(";") if statement.strip()]


def interrupt_at(prefix: str) -> Reporter:
    """Return a reporter that raises KeyboardInterrupt at a message with this prefix."""

    def progress(message: str) -> None:
        if message.startswith(prefix):
            raise KeyboardInterrupt(message)

    return progress


def test_adopts_a_running_connector_without_gaps_or_duplicates(
    start_existing: Callable[..., ExistingConnector], source_dsn: str
) -> None:
    existing = start_existing("moved")
    deployment, outbox = existing.deployment, in_process(existing.deployment)
    with load(source_dsn, "public.moved_event") as service:
        wait_for_records("records on the old topic", lambda: len(existing.sent_by_old()), 100)
        columns, publication = sql_of_the_guide(existing, "Take over")
        with psycopg.connect(source_dsn, autocommit=True) as connection:
            for statement, missing in (
                (columns, "headers is missing; created_at is missing"),
                (publication, "publication 'moved_p' publishes insert, update, delete, truncate"),
            ):
                assert missing in outbox("adopt", "old-moved", "--yes", code=1).stderr
                assert connect_lifecycle.is_running(deployment.connect.status("old-moved"))
                connection.execute(statement)
        for step in ("create connector", "start connector moved", "wait for connector", "delete"):
            with pytest.raises(KeyboardInterrupt, match=step):
                adopt(deployment, "old-moved", interrupt_at(step))
        # Both connectors exist and one runs, so only the same command can continue.
        live = deployment.connect.config("moved")
        assert live is not None
        assert (live[PIPELINE_KEY], live["skipped.operations"], was_edited(live)) == ("moved", "u,d,t", False)
        assert "`outbox adopt old-moved" in outbox("apply", "--yes", code=1).stderr
        done = outbox("adopt", "old-moved", "--yes", "--output", "json")
        assert json.loads(done.stdout)["offset"]["lsn"] > 0
        wait_for_records("records on the new topic", lambda: len(existing.sent_by_new()), 100)
    wait_record(deployment, "moved.book", PARTITIONS, service.events[-1])
    old, new = existing.sent_by_old(), existing.sent_by_new()
    assert len(old) >= 100
    assert len(new) >= 100
    assert Counter(old + new) == Counter(service.events)
    # In insertion order, all events of the old topic precede the events of the new topic.
    assert set(service.events[: len(old)]) == set(old)

    assert deployment.connect.config("old-moved") is None
    outbox("plan")
    outbox("verify")


@pytest.fixture(scope="module")
def shared(start_existing: Callable[..., ExistingConnector], source_dsn: str) -> ExistingConnector:
    """Start a connector whose publication has more tables. The tests run in order, and the last test adopts it."""
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table freed_other (id int primary key)")
    tables = "public.freed_event,public.freed_other"
    existing = start_existing("freed", **{"publication.name": "shared", "table.include.list": tables})
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        columns, _ = sql_of_the_guide(existing, "Take over")
        for statement in [columns, *sql_of_the_guide(existing, "A shared publication")]:
            connection.execute(statement)
    return existing


def test_rejects_an_unsupported_connector_before_stopping_it(shared: ExistingConnector, library: Deployment) -> None:
    deployment = shared.deployment

    def with_source(**changes: str) -> Deployment:
        source = deployment.pipeline.source.model_copy(update=changes)
        return replace(deployment, pipeline=deployment.pipeline.model_copy(update={"source": source}))

    def with_connector(name: str) -> Deployment:
        connector = deployment.pipeline.connector.model_copy(update={"name": name})
        return replace(deployment, pipeline=deployment.pipeline.model_copy(update={"connector": connector}))

    for target, old, message in (
        (deployment, "nobody", "connector 'nobody' does not exist"),
        (with_source(slot="nowhere"), "old-freed", "slot 'nowhere' does not exist"),
        (with_source(publication="nowhere"), "old-freed", "publication 'nowhere' does not exist"),
        (
            with_source(slot=library.pipeline.source.slot),
            "old-freed",
            "has slot.name 'freed_s', but source.slot is 'library",
        ),
        (with_connector("old-freed"), "old-freed", "connector 'old-freed' is the pipeline's own connector"),
        (
            with_connector("library-outbox"),
            "old-freed",
            "exists although connector 'old-freed', which it replaces, is still RUNNING",
        ),
    ):
        with pytest.raises(RefusedError, match=message):
            adopt(target, old, silent)
    with (
        pipeline_lock(deployment.environment.source, "freed", command="apply"),
        pytest.raises(RefusedError, match="another command that changes pipeline 'freed' is running"),
    ):
        adopt(deployment, "old-freed", silent)
    assert connect_lifecycle.is_running(deployment.connect.status("old-freed"))
    assert deployment.lock() is None


def test_keeps_a_shared_publication(shared: ExistingConnector, source_dsn: str) -> None:
    """A separate publication is created while the old connector runs."""
    store_offset(shared.deployment, 10**15)
    with load(source_dsn, "public.freed_event") as service:
        wait_for_records("records on the old topic", lambda: len(shared.sent_by_old()), 50)
        in_process(shared.deployment)("adopt", "old-freed", "--yes")
        wait_for_records("records on the new topic", lambda: len(shared.sent_by_new()), 50)
    wait_record(shared.deployment, "freed.book", PARTITIONS, service.events[-1])
    assert Counter(shared.sent_by_old() + shared.sent_by_new()) == Counter(service.events)


def store_offset(deployment: Deployment, lsn: int) -> None:
    """Store the offset of a deleted connector under the new name. A start from this offset would skip rows."""
    client, name = deployment.connect, deployment.pipeline.connector.name
    client.create_stopped(name, plain_connector(deployment, **{"topic.prefix": deployment.pipeline.prefix}))
    connect_lifecycle.wait_stopped(client, name)
    client.patch_offsets(name, {"server": deployment.pipeline.prefix}, seed(lsn))
    connect_lifecycle.remove(client, name)
