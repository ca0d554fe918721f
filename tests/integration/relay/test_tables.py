"""Table and index of the relay, and its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from uuid import uuid4

import psycopg
import pytest
from tests.integration.relay.conftest import relay_once
from tests.integration.transforms.test_records import book, send_within

from outbox_events.errors import ConfigurationError, RefusedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Pipeline
from outbox_kit.postgres import client
from outbox_kit.relay import RelayOptions, epochs, floors, run_relay, unread_rows
from outbox_kit.relay.batches import BatchStore
from outbox_kit.relay.buckets import BUCKETS
from outbox_kit.relay.floors import Floors
from outbox_kit.relay.leases import Leases
from outbox_kit.relay.metrics import read_backlog
from outbox_kit.relay.preconditions import require_columns
from outbox_kit.relay.rows import RowReader
from outbox_kit.relay.tables import RelayTables, create

TABLE, LATE = "public.relayed_event", "public.late_event"


def test_writes_metrics(relayed: Deployment, source_dsn: str, tmp_path: Path) -> None:
    path, key = tmp_path / "relay.prom", str(uuid4())
    with psycopg.connect(source_dsn) as connection:
        for _ in range(3):
            send_within(connection, "book", key, book(key), table=TABLE)
        connection.execute(f"update {TABLE} set created_at = now() - interval '1 hour'")
    with client.connected(relayed.environment.source) as connection:
        tables = RelayTables(relayed.pipeline, marks=False)
        reader = RowReader(tables, client.read_column_types(connection, TABLE))
        backlog = read_backlog(connection, reader, range(16), [0] * 16)
        assert (backlog.buckets, backlog.rows) == (16, 3)
        assert 3600 <= backlog.seconds < 3700
        assert read_backlog(connection, reader, [], []).rows == 0
    relay_once(relayed, metrics_file=path)
    text = path.read_text()
    assert 'outbox_relay_records_sent_total{pipeline="relayed"} 3\n' in text
    assert 'outbox_relay_batches_total{pipeline="relayed"} 1\n' in text


def test_creates_the_outbox_table_but_no_object_of_the_connector(relayed: Deployment, source_dsn: str) -> None:
    """A slot that nobody reads retains WAL."""
    source = relayed.pipeline.source
    with psycopg.connect(source_dsn) as connection:
        assert connection.execute("select to_regclass(%s) is not null", [source.table]).fetchall() == [(True,)]
        for table, column, name in (
            ("pg_publication", "pubname", source.publication),
            ("pg_replication_slots", "slot_name", source.slot),
        ):
            assert connection.execute(f"select from {table} where {column} = %s", [name]).fetchall() == []


def test_names_a_slot_that_nobody_reads(relayed: Deployment, source_dsn: str) -> None:
    slot, reports = relayed.pipeline.source.slot, list[str]()
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        try:
            run_relay(relayed, RelayOptions(once=True), Event(), reports.append)
        finally:
            connection.execute("select pg_drop_replication_slot(%s)", [slot])
    assert any(f"pg_drop_replication_slot('{slot}')" in report for report in reports)


def test_rows_that_are_deleted_before_they_are_read_are_an_error(relayed: Deployment, source_dsn: str) -> None:
    relay_once(relayed)
    with psycopg.connect(source_dsn) as connection:
        send_within(connection, "book", "rolled-back", book(str(uuid4())), table=TABLE)
        connection.rollback()
    assert relay_once(relayed).unread == 0
    with psycopg.connect(source_dsn) as connection:
        for _ in range(3):
            event_id = send_within(connection, "book", "deleted", book(str(uuid4())), table=TABLE)
            connection.execute(f"delete from {TABLE} where id = %s", [event_id])
    with pytest.raises(RefusedError, match="3 rows"):
        relay_once(relayed)
    assert relay_once(relayed).unread == 0, "the rows are reported once"


def test_rows_are_not_unread_while_another_process_may_have_deleted_them(relayed: Deployment, source_dsn: str) -> None:
    """The statistics count the deletions of another relay process later than its last batch."""
    relay_once(relayed)
    deleted = f"select pg_stat_get_tuples_deleted('{TABLE}'::regclass)"
    with psycopg.connect(source_dsn, autocommit=True, application_name=client.relay_application(TABLE)) as other:
        [(before,)] = other.execute(deleted).fetchall()
        with psycopg.connect(source_dsn) as connection:
            event_id = send_within(connection, "book", "deleted", book(str(uuid4())), table=TABLE)
            connection.execute(f"delete from {TABLE} where id = %s", [event_id])

        def poll() -> Observation[bool]:
            [(count,)] = other.execute(deleted).fetchall()
            return Observation(True if count > before else None, f"{count} deletions")

        wait_for("the statistics to count the deletion", poll, seconds=30)
        assert relay_once(relayed).unread == 0


def test_counts_rows_that_were_deleted_before_the_first_relay(relayed: Deployment) -> None:
    """A service that keeps its outbox table empty can be older than the relay."""
    with other_table(relayed, "public.emptied_event") as (connection, tables):
        connection.execute(
            "insert into public.emptied_event (aggregate_type, aggregate_id, event_type)"
            " select 'book', n::text, 'x' from generate_series(1, 5) n"
        )
        connection.execute("delete from public.emptied_event")
        epochs.write_epoch(connection, tables, 1, "cluster")
        unread_rows.start(connection, tables, is_first_sender=True)
        assert [unread_rows.count(connection, tables) for _ in range(2)] == [5, 0]


def test_rows_of_a_claimed_batch_are_not_unread(relayed: Deployment) -> None:
    """A relay process ends after its batch was deleted, and before the rows were counted again."""
    with other_table(relayed, "public.batched_event") as (connection, tables):
        insert = (
            "insert into public.batched_event (aggregate_type, aggregate_id, event_type)"
            " select 'book', n::text, 'x' from generate_series(1, 5) n"
        )
        connection.execute(insert)
        epochs.write_epoch(connection, tables, 1, "cluster")
        connection.execute(
            "insert into public.outbox_relay_batch (outbox, bucket, number, ids)"
            " select 'public.batched_event', 0, 1, array_agg(id) from public.batched_event"
        )
        unread_rows.start(connection, tables, is_first_sender=True)
        assert unread_rows.count(connection, tables) == 0
        connection.execute("delete from public.batched_event")
        connection.execute("update public.outbox_relay_batch set ids = '{}' where outbox = 'public.batched_event'")
        connection.execute(insert)
        assert unread_rows.count(connection, tables) == 0
        connection.execute("delete from public.batched_event")
        assert unread_rows.count(connection, tables) == 0
        connection.execute(insert)
        connection.execute("delete from public.batched_event")
        assert unread_rows.count(connection, tables) == 5
        connection.execute("delete from public.outbox_relay_batch where outbox = 'public.batched_event'")


def test_replaces_an_index_whose_creation_was_interrupted(relayed: Deployment, source_dsn: str) -> None:
    valid = "select indisvalid from pg_index where indexrelid = 'public.relayed_event_relay'::regclass"
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        relay_once(relayed)
        update = "update pg_index set indisvalid = false where indexrelid = 'public.relayed_event_relay'::regclass"
        connection.execute(update)
        relay_once(relayed)
        assert connection.execute(valid).fetchall() == [(True,)]


def test_a_batch_of_large_rows_does_not_read_the_other_rows(relayed: Deployment) -> None:
    """Otherwise, each batch of a backlog of large rows would read up to 500 payloads."""
    read = "select pg_stat_get_xact_blocks_fetched(reltoastrelid) as blocks from pg_class where relname = 'large_event'"
    with other_table(relayed, "public.large_event") as (connection, tables):
        connection.execute("alter table public.large_event alter payload set storage external")
        connection.execute(
            "insert into public.large_event (aggregate_type, aggregate_id, event_type, payload)"
            " select 'book', '1', 'x', to_jsonb(repeat('x', 300000)) from generate_series(1, 40)"
        )
        epochs.write_epoch(connection, tables, 1, "cluster")
        store = BatchStore(connection, RowReader(tables, client.read_column_types(connection, "public.large_event")))
        with connection.transaction():
            before = connection.execute(read).fetchall()[0]["blocks"]
            [batch] = store.claim(range(BUCKETS), 500)
            blocks = connection.execute(read).fetchall()[0]["blocks"] - before
        assert [len(row["payload"]) for _, row in batch.rows] == [300_002] * 3
        assert blocks < 10 * 300_000 / 2_000, "a block contains up to 2 KB of a payload"


def test_polls_skip_the_entries_of_sent_rows_but_no_late_row(
    relayed: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "INTERVAL_S", 0)
    with other_table(relayed, LATE) as (connection, tables):
        subject = Floors(connection, tables)
        with psycopg.connect(source_dsn) as late:
            send_within(late, "book", "late", book(str(uuid4())), table=LATE)
            with psycopg.connect(source_dsn) as other:
                send_within(other, "book", "sent", book(str(uuid4())), table=LATE)
            connection.execute(f"delete from {LATE}")
            subject.refresh(range(BUCKETS))
            assert subject.of(range(BUCKETS)) == [0] * BUCKETS, "an open transaction has inserted a row"
        subject.refresh(range(BUCKETS))
        place = connection.execute(f"select seq from {LATE}").fetchall()[0]["seq"]
        assert min(subject.of(range(BUCKETS))) == place, "the late row"
        assert max(subject.of(range(BUCKETS))) > place + 1, "the other buckets skip the sent row"


def test_polls_do_not_skip_the_rows_of_a_prepared_transaction(
    relayed: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "INTERVAL_S", 0)
    with other_table(relayed, LATE) as (connection, tables):
        subject = Floors(connection, tables)
        with psycopg.connect(source_dsn) as late:
            send_within(late, "book", "late", book(str(uuid4())), table=LATE)
            subject.refresh(range(BUCKETS))
            late.execute("prepare transaction 'late'")
        subject.refresh(range(BUCKETS))
        assert subject.of(range(BUCKETS)) == [0] * BUCKETS
        connection.execute("commit prepared 'late'")
        subject.refresh(range(BUCKETS))
        assert sorted(set(subject.of(range(BUCKETS)))) == [1, 2], "the bucket of the row, and the others"


def test_starts_while_another_session_holds_a_lock(relayed: Deployment, source_dsn: str) -> None:
    """VACUUM and the creation of an index hold this lock."""
    with client.connected(relayed.environment.source) as admin:
        create(admin, RelayTables(relayed.pipeline, marks=False))
    with psycopg.connect(source_dsn) as connection:
        connection.execute(f"lock table {TABLE} in share update exclusive mode")
        relay_once(relayed)


def test_claims_are_flushed(relayed: Deployment) -> None:
    """After a crash, the number of a lost claim would be assigned again."""
    with client.connected(relayed.environment.source) as connection:
        connection.execute("set synchronous_commit = off")
        Leases(connection, TABLE)
        assert connection.execute("show synchronous_commit").fetchall() == [{"synchronous_commit": "local"}]


def test_adds_the_order_only_to_an_empty_table(relayed: Deployment, source_dsn: str) -> None:
    """After a VACUUM, the physical order of rows differs from the order in which they were inserted."""
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table public.unordered_event (id uuid, aggregate_type text, aggregate_id text)")
        connection.execute("insert into public.unordered_event values (gen_random_uuid(), 'book', '1')")
        tables = RelayTables(with_table(relayed, "public.unordered_event"), marks=False)
        with client.connected(relayed.environment.source) as admin:
            with pytest.raises(RefusedError):
                create(admin, tables)
            connection.execute("delete from public.unordered_event")
            create(admin, tables)
            assert client.read_column_types(admin, "public.unordered_event")["seq"] == "bigint"
        connection.execute("drop table public.unordered_event")


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ("alter column payload type bytea using null", "payload"),
        ("alter column id drop not null", "id"),
        ("drop column event_type", "event_type"),
    ],
)
def test_refuses_a_table_whose_rows_it_cannot_send(
    relayed: Deployment, source_dsn: str, change: str, column: str
) -> None:
    """A payload of another type would be a tombstone, and a row without an id would be sent again and again."""
    if column == "id":
        change = f"drop constraint broken_event_pkey, {change}"
    with psycopg.connect(source_dsn) as connection, client.connected(relayed.environment.source) as reader:
        connection.execute(f"create table public.broken_event (like {TABLE} including all)")
        connection.execute(f"alter table public.broken_event {change}")
        connection.commit()
        tables = RelayTables(with_table(relayed, "public.broken_event"), marks=False)
        with pytest.raises(ConfigurationError) as error:
            require_columns(reader, tables, client.read_column_types(reader, "public.broken_event"))
        assert column in error.value.message
        connection.execute("drop table public.broken_event")


@contextmanager
def other_table(deployment: Deployment, table: str) -> Iterator[tuple[client.Connection, RelayTables]]:
    """Create an empty outbox table. Yield a connection and the relay's names of the table, and drop it."""
    with client.connected(deployment.environment.source) as connection:
        connection.execute(f"create table {table} (like {TABLE} including all)".encode())
        yield connection, RelayTables(with_table(deployment, table), marks=False)
        connection.execute(f"drop table {table}".encode())


def with_table(deployment: Deployment, table: str) -> Pipeline:
    """Return the pipeline with another outbox table."""
    source = deployment.pipeline.source.model_copy(update={"table": table})
    return deployment.pipeline.model_copy(update={"source": source})
