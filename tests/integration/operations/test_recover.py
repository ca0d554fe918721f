"""`outbox recover` on the embedded stack: events that have a row are not lost, and possible losses are reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.integration.support import CommandResult, Deploy, headers, in_process, live_keys, records, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_events.contract import lsn
from outbox_events.sending.values import to_json
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment, make_plan
from outbox_kit.kafka.topic_identity import types_with_pending_backfill
from outbox_kit.postgres.client import connected
from outbox_kit.postgres.replication_slot import read_slot, wait_inactive
from outbox_kit.recovery import completion
from outbox_kit.results import silent
from outbox_kit.results.checks import Status
from outbox_kit.verification import verify

NAME, TABLE, TOPIC, SLOT = "recover", "public.recover_event", "recover.book", "recover_s"
PARTITIONS = 2
AGGREGATES = {"book": {"schema": "schemas/book.avsc", "partitions": PARTITIONS}}


@dataclass
class Service:
    """The service of the pipeline, which writes events and whose database has the incidents."""

    deployment: Deployment
    dsn: str

    def send(self, key: str, pages: int | None = 1) -> str:
        """Write a state of a book, or a tombstone if `pages` is None. Return the event id."""
        payload = None if pages is None else book(key, pages=pages)
        return send(self.dsn, "book", key, payload, table=TABLE)

    def deliver(self, key: str) -> str:
        event = self.send(key)
        wait_record(self.deployment, TOPIC, PARTITIONS, event)
        return event

    def sql(self, *statements: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursors = [connection.execute(statement.encode()) for statement in statements]
            return cursors[-1].fetchall() if cursors[-1].description else []

    def stop(self) -> None:
        connect_lifecycle.stop(self.deployment.connect, self.deployment.pipeline.connector.name)
        with connected(self.deployment.environment.source) as connection:
            wait_inactive(connection, self.deployment.pipeline.source.slot)

    def drop_slot(self) -> None:
        self.stop()
        self.sql(f"select pg_drop_replication_slot('{SLOT}')")

    def invalidate_slot(self) -> None:
        """Make the server invalidate the slot. The slots of running connectors are not affected."""
        self.stop()
        self.sql("alter system set idle_replication_slot_timeout = '1s'", "select pg_reload_conf()")

        def poll() -> Observation[bool]:
            self.sql("checkpoint")
            status = self.sql(f"select wal_status from pg_replication_slots where slot_name = '{SLOT}'")[0][0]
            return Observation(status == "lost" or None, status)

        try:
            wait_for("the slot to be lost", poll, seconds=30, interval=0.2)
        finally:
            self.sql("alter system reset idle_replication_slot_timeout", "select pg_reload_conf()")

    def recover(self, code: int = 0) -> dict[str, Any]:
        """Run the command. Return its JSON output."""
        return document(in_process(self.deployment)("recover", "--yes", "--output", "json", code=code))

    def delivered(self, key: str) -> list[str]:
        """Return the event ids of the records of a key, in the order of the records."""
        found = records(self.deployment, TOPIC, PARTITIONS)
        return [headers(record)["event_id"] for record in found if record.key() == key.encode()]

    def pending(self) -> list[str]:
        lock = self.deployment.lock()
        assert lock is not None
        return types_with_pending_backfill(lock.topics)


def document(done: CommandResult) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def service(deploy_once: Deploy, source_dsn: str) -> Service:
    service = Service(deploy_once(NAME, aggregates=AGGREGATES), source_dsn)
    service.deliver(str(uuid4()))
    return service


def test_changes_nothing_if_the_connector_can_continue(service: Service) -> None:
    before = service.deployment.lock_file.read_bytes()
    result = service.recover()
    assert (result["cause"], result["resent"], result["unproven"]) == (None, {}, [])
    assert service.deployment.lock_file.read_bytes() == before


def test_refuses_without_confirmation(service: Service) -> None:
    service.drop_slot()
    done = in_process(service.deployment)("recover", code=1)
    assert "slot-missing: slot recover_s does not exist" in done.stderr
    assert "--yes is required" in done.stderr
    assert make_plan(service.deployment, recover=True).changes[0].object == f"slot {SLOT}"  # it was not created
    service.recover()


def test_sends_the_rows_of_a_dropped_slot_in_their_order(service: Service) -> None:
    key, deleted = str(uuid4()), str(uuid4())
    events = [service.deliver(key)]
    service.deliver(deleted)
    service.stop()
    events.append(service.send(key, 2))  # written while the slot existed, and never read
    service.drop_slot()
    events += [service.send(key, 3), service.send(key, 4)]
    service.send(deleted, None)
    result = service.recover()
    assert result["cause"]["name"] == "slot-missing"
    assert result["resent"] == {"book": 4}
    assert service.delivered(key) == events
    assert deleted not in live_keys(service.deployment, TOPIC, PARTITIONS)
    assert service.pending() == []
    assert [check.id for check in verify(service.deployment, silent) if check.status is Status.FAIL] == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_continues_at_another_address(service: Service, host: str) -> None:
    """A promoted or restored server usually has another address than the one in the config of the connector."""
    key = str(uuid4())
    service.drop_slot()
    event = service.send(key)
    recover = ("recover", "--yes", "--set", f"environment.source.host={host}")
    done = in_process(service.deployment)(*recover)
    assert "database-replaced" not in done.stderr
    assert service.delivered(key) == [event]
    config = service.deployment.connect.config(service.deployment.pipeline.connector.name)
    assert config is not None
    assert config["database.hostname"] == host


def test_replaces_an_invalidated_slot(service: Service) -> None:
    key = str(uuid4())
    service.invalidate_slot()
    event = service.send(key)
    result = service.recover()
    assert result["cause"]["name"] == "slot-invalidated"
    assert "wal_status lost, invalidation_reason idle_timeout" in result["cause"]["text"]
    assert result["unread"]["from"]["number"] < result["unread"]["to"]["number"]
    assert service.delivered(key) == [event]
    service.deliver(key)


def test_sends_the_rows_that_another_client_confirmed(service: Service) -> None:
    key = str(uuid4())
    service.stop()
    event = service.send(key)
    service.sql(f"select pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")
    result = service.recover()
    assert result["cause"]["name"] == "slot-ahead"
    assert service.delivered(key) == [event]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        ("aggregates.book.partitions=1", f"topic {TOPIC} has {PARTITIONS} partitions"),
        ('aggregates.book.topic={"segment.ms": "abc"}', "Invalid value abc for configuration segment.ms"),
        ('connector.overrides={"poll.interval.ms": "-5x"}', "poll.interval.ms"),
    ],
)
def test_changes_nothing_if_the_apply_after_it_would_be_refused(service: Service, edit: str, problem: str) -> None:
    """An unfinished edit of the files is found before the connector is stopped and the slot is dropped."""
    names = service.deployment.pipeline.source, service.deployment.pipeline.connector.name
    publication = f"publication {names[0].publication}"
    [(mark,)] = service.sql(
        f"select obj_description(oid, 'pg_publication') from pg_publication where pubname = '{names[0].publication}'"
    )
    service.sql(
        f"drop {publication}",
        f"create {publication} for table {TABLE} with (publish = 'insert')",
        f"comment on {publication} is '{mark}'",
    )
    slot = service.sql(f"select slot_name, catalog_xmin::text from pg_replication_slots where slot_name = '{SLOT}'")
    before = service.deployment.lock_file.read_bytes()
    done = in_process(service.deployment)("recover", "--yes", "--set", edit, code=1)
    assert problem in done.stderr
    assert connect_lifecycle.is_running(service.deployment.connect.status(names[1]))
    assert [row[0] for row in slot] == [
        row[0] for row in service.sql(f"select slot_name from pg_replication_slots where slot_name = '{SLOT}'")
    ]
    assert service.deployment.lock_file.read_bytes() == before
    assert service.recover()["cause"]["name"] == "publication-recreated"


def test_stops_an_allowed_copy_that_reads_the_slot(service: Service) -> None:
    key, connect = str(uuid4()), service.deployment.connect
    service.stop()
    config = connect.config(service.deployment.pipeline.connector.name)
    assert config is not None
    connect.create_stopped("recover-copy", config | {"name": "recover-copy"})
    connect.resume("recover-copy")
    event = service.send(key)
    wait_record(service.deployment, TOPIC, PARTITIONS, event)
    refused = in_process(service.deployment)("recover", "--yes", code=1)
    assert '--allow "connector recover-copy"' in refused.stderr
    done = in_process(service.deployment)("recover", "--yes", "--allow", "connector recover-copy", "--output", "json")
    assert document(done)["cause"]["name"] == "slot-ahead"
    assert connect.config("recover-copy") is None
    assert service.delivered(key)[0] == event
    service.deliver(key)


def test_apply_records_the_gap_of_an_advanced_slot(service: Service) -> None:
    """`apply --recover` does not send the rows that another client has confirmed."""
    service.stop()
    service.send(str(uuid4()))
    service.sql(f"select pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")
    [planned] = [change for change in make_plan(service.deployment, recover=True).changes if change.kind == "offsets"]
    assert "are not sent to Kafka" in planned.danger
    in_process(service.deployment)("apply", "--yes", "--recover")
    assert service.pending() == ["book"]
    remaining = in_process(service.deployment)("recover", "--yes", code=1)  # as after an interrupted recovery
    assert "a backfill is pending: have the service write every state of book" in remaining.stderr
    in_process(service.deployment)("backfill", "--acknowledge", "book")


def test_completes_an_interrupted_recovery_whose_slot_was_invalidated(service: Service) -> None:
    lock, key = service.deployment.lock(), str(uuid4())
    assert lock is not None
    service.invalidate_slot()
    update = {"source": None, "source_epoch": lock.source_epoch + 1, "unfinished": "recover"}
    service.deployment.write_lock(lock.model_copy(update=update))
    event = service.send(key)
    assert service.recover(code=1)["cause"]["name"] == "recovery-interrupted"
    assert service.delivered(key) == [event]
    in_process(service.deployment)("backfill", "--acknowledge", "book")


def test_a_connector_is_not_created_with_an_older_epoch(service: Service) -> None:
    """The lock file is from before a recovery, and somebody has deleted the connector."""
    name, before = service.deployment.pipeline.connector.name, service.deployment.lock()
    assert before is not None
    service.drop_slot()
    service.recover()
    service.deliver(str(uuid4()))
    after = service.deployment.lock()
    assert after is not None
    service.stop()
    service.deployment.connect.delete(name)
    service.deployment.write_lock(after.model_copy(update={"source_epoch": before.source_epoch}))
    done = in_process(service.deployment)("apply", "--yes", code=1)
    assert f"records of source epoch {after.source_epoch}, but the lock file" in done.stderr
    assert service.deployment.connect.config(name) is None
    service.deployment.write_lock(after)
    in_process(service.deployment)("apply", "--yes")
    service.deliver(str(uuid4()))


def test_apply_after_an_interrupted_recovery_asks_for_the_gap(service: Service) -> None:
    service.stop()
    service.send(str(uuid4()))
    service.sql(f"select pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")
    lock = service.deployment.lock()
    assert lock is not None
    update = {"source": None, "source_epoch": lock.source_epoch + 1, "unfinished": "recover"}
    service.deployment.write_lock(lock.model_copy(update=update))
    name = f"offsets {service.deployment.pipeline.connector.name}"
    assert f'--allow "{name}"' in in_process(service.deployment)("apply", "--yes", code=1).stderr
    in_process(service.deployment)("apply", "--yes", "--allow", name)
    assert service.pending() == ["book"]
    in_process(service.deployment)("backfill", "--acknowledge", "book")


def test_apply_records_the_gap_of_a_deleted_connector(service: Service) -> None:
    """Connect keeps the offset of the connector, so the gap is known when the connector exists again."""
    service.stop()
    service.send(str(uuid4()))
    service.sql(f"select pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")
    service.deployment.connect.delete(service.deployment.pipeline.connector.name)
    done = in_process(service.deployment)("apply", "--yes")
    assert "are not sent to Kafka" in done.stderr
    assert service.pending() == ["book"]
    in_process(service.deployment)("backfill", "--acknowledge", "book")


def test_reports_rows_of_a_type_that_the_pipeline_does_not_have(service: Service) -> None:
    service.drop_slot()
    send(service.dsn, "magazine", str(uuid4()), {"id": "1"}, table=TABLE)
    done = in_process(service.deployment)("recover", "--yes")
    assert "rows of magazine, which the pipeline does not have, became dead letters" in done.stdout + done.stderr
    service.sql(f"delete from {TABLE} where aggregate_type = 'magazine'")
    in_process(service.deployment)("dead-letter", "drop", "--all", "--yes")


def test_loses_and_duplicates_nothing_of_concurrent_writers(service: Service) -> None:
    service.drop_slot()
    with writing(service) as sent:
        service.recover()
    for key, events in sent.items():
        wait_record(service.deployment, TOPIC, PARTITIONS, events[-1])
        assert service.delivered(key) == events


@contextmanager
def writing(service: Service) -> Iterator[dict[str, list[str]]]:
    """Write events of several aggregates until the end of the block. Yield the event ids by aggregate."""
    sent: dict[str, list[str]] = {str(uuid4()): [] for _ in range(3)}
    stopped = Event()

    def run(key: str) -> None:
        while not stopped.is_set():
            sent[key].append(service.send(key, len(sent[key]) + 1))

    threads = [Thread(target=run, args=(key,)) for key in sent]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def test_does_not_skip_an_event_whose_row_is_deleted(service: Service) -> None:
    """The slot exists before the rows are compared, so an event of this time does not have to have a row."""
    service.deliver(str(uuid4()))
    service.drop_slot()
    stopped = Event()
    deleted: list[str] = []

    def run() -> None:
        while not stopped.is_set():
            event = service.send(str(uuid4()))
            service.sql(f"delete from {TABLE} where id = '{event}'")
            deleted.append(event)

    thread = Thread(target=run)
    thread.start()
    try:
        result = service.recover(code=1)
    finally:
        stopped.set()
        thread.join()
    assert "may have no row" in result["unproven"][0]
    wait_record(service.deployment, TOPIC, PARTITIONS, deleted[-1])
    delivered = {headers(record)["event_id"] for record in records(service.deployment, TOPIC, PARTITIONS)}
    lost = [event not in delivered for event in deleted]
    assert lost == sorted(lost, reverse=True)  # every event after the creation of the slot is delivered


def test_reports_types_whose_lost_rows_may_be_deleted(service: Service) -> None:
    key = str(uuid4())
    service.drop_slot()
    service.send(key)
    service.sql(f"delete from {TABLE}")
    result = service.recover(code=1)
    assert "outbox backfill --acknowledge book" in result["unproven"][0]
    assert service.pending() == ["book"]
    assert service.delivered(key) == []
    in_process(service.deployment)("backfill", "--acknowledge", "book")


def test_reports_states_that_a_restore_has_undone(service: Service) -> None:
    """A restored disk snapshot has the same system identifier and timeline, and its WAL soon exceeds the old offset."""
    service.deliver(str(uuid4()))
    undone = service.deliver(str(uuid4()))
    service.drop_slot()
    service.sql(f"delete from {TABLE} where id = '{undone}'")
    result = service.recover(code=1)
    assert (result["cause"]["name"], len(result["unproven"])) == ("slot-missing", 1)
    assert service.pending() == ["book"]
    in_process(service.deployment)("backfill", "--acknowledge", "book")


def test_sends_the_states_of_a_type_with_backfill(
    deploy: Deploy, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even without outbox rows, the business table shows lost states and lost deletions."""
    backfill = {
        "table": "public.recover2_book",
        "key": "id",
        "query": "select id as aggregate_id, state as payload from recover2_book",
    }
    lost, deleted, table = str(uuid4()), str(uuid4()), "public.recover2_event"
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table recover2_book (id text primary key, state jsonb not null)")
        deployment = deploy("recover2", aggregates={"book": {**AGGREGATES["book"], "backfill": backfill}})
        connection.execute("insert into recover2_book values (%s, %s)", (lost, Jsonb(book(lost), dumps=to_json)))
        event = send(source_dsn, "book", deleted, book(deleted), table=table)
        wait_record(deployment, "recover2.book", PARTITIONS, event)
        service = Service(deployment, source_dsn)
        service.stop()
        connection.execute("select pg_drop_replication_slot('recover2_s')")
        connection.execute("delete from recover2_event")
    with monkeypatch.context() as patch:
        patch.setattr(completion.stuck, "list_stuck", interrupt)
        in_process(deployment)("recover", "--yes", code=130)
    interrupted = document(in_process(deployment)("recover", "--yes", "--output", "json", code=1))
    assert "outbox stuck --resend" in interrupted["unproven"][0]
    service.stop()
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("select pg_drop_replication_slot('recover2_s')")
    refused = document(in_process(deployment)("recover", "--yes", "--output", "json", code=1))
    assert "--max-deletions" in refused["unproven"][0]
    wait_for_keys(deployment, {lost, deleted})
    in_process(deployment)("stuck", "--older-than", "1", "--resend", "--max-deletions", "1", "--yes")
    wait_for_keys(deployment, {lost})


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def wait_for_keys(deployment: Deployment, expected: set[str]) -> None:
    """Wait until exactly these keys have a state."""

    def poll() -> Observation[bool]:
        keys = live_keys(deployment, "recover2.book", PARTITIONS)
        return Observation(keys == expected or None, str(keys))

    wait_for("the states", poll, seconds=30)


def test_reports_the_unread_wal_of_messages(deploy: Deploy, source_dsn: str) -> None:
    source = {"publication": "recover3_p", "slot": "recover3_s", "message_prefix": "recover3"}
    connector = {"name": "recover3", "template": "outbox-postgres-messages"}
    deployment = deploy("recover3", source=source, connector=connector, aggregates=AGGREGATES)
    service, topic = Service(deployment, source_dsn), "recover3.book"
    wait_record(deployment, topic, PARTITIONS, emit_message(source_dsn))
    service.stop()
    service.sql("select pg_drop_replication_slot('recover3_s')")
    lost = emit_message(source_dsn)
    position = lsn.parse(service.sql("select pg_current_wal_lsn()::text")[0][0])
    result = document(in_process(deployment)("recover", "--yes", "--output", "json", code=1))
    assert result["unread"]["from"]["number"] < position <= result["unread"]["to"]["number"]
    assert result["unread"]["from"]["text"] in result["unproven"][0]
    wait_record(deployment, topic, PARTITIONS, emit_message(source_dsn))
    assert lost not in {headers(record)["event_id"] for record in records(deployment, topic, PARTITIONS)}
    with connected(deployment.environment.source) as connection:
        assert read_slot(connection, "recover3_s") is not None


def emit_message(dsn: str) -> str:
    """Write one event as a message. Return its id."""
    event, key = str(uuid4()), str(uuid4())
    with psycopg.connect(dsn) as connection:
        created_at = connection.execute("select to_json(now())").fetchall()[0][0]
        message = {
            "id": event,
            "aggregate_type": "book",
            "aggregate_id": key,
            "event_type": "book_changed",
            "payload": book(key),
            "headers": None,
            "created_at": created_at,
        }
        connection.execute("select pg_logical_emit_message(true, 'recover3', %s)", (to_json(message),))
    return event
