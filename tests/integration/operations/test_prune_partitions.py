"""`outbox prune --partitions` on the embedded stack. After each test, a consumer must have seen every dropped row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.integration.operations.test_prune import HISTORY, recreate_slot, resume, stop
from tests.integration.outbox_rows import insert
from tests.integration.support import Deploy, headers, invoke, records, wait_record
from tests.integration.transforms.test_records import book

from outbox_events.errors import RefusedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.offset_seeding import seed
from outbox_kit.deployment import Deployment, apply
from outbox_kit.postgres import client as postgres_client
from outbox_kit.pruning import partitions as pruning_partitions
from outbox_kit.pruning import prune_partitions as pruning
from outbox_kit.pruning.partitions import refuse_other_partitioning
from outbox_kit.results import silent

NAME, TABLE, BOOKS = "ranges", "public.ranges_event", "ranges.book"
CREATE_TABLE = f"""
    create table {TABLE} (
      id uuid default gen_random_uuid(), seq bigint generated always as identity, aggregate_type text not null,
      aggregate_id text not null check (aggregate_id <> ''), event_type text not null, payload jsonb, headers jsonb,
      created_at timestamptz not null default now(), primary key (id, created_at)
    ) partition by range (created_at);
    create table ranges_last partition of {TABLE} for values from ('2022-01-01') to ('2023-01-01');
    create table ranges_rest partition of {TABLE} default"""
YEARS = {"ranges_2020": "2020", "ranges_2021": "2021"}
Row = dict[str, Any]
Prune = Callable[..., dict[str, Row]]


@pytest.fixture(scope="module")
def pipeline(deploy_once: Deploy, source_dsn: str) -> Deployment:
    aggregates = {"book": {"schema": "schemas/book.avsc", "partitions": 1}}
    deployment = deploy_once(NAME, applied=False, aggregates=aggregates)
    with psycopg.connect(source_dsn) as connection:
        connection.execute(CREATE_TABLE)
        connection.execute(HISTORY.replace("prune_", "ranges_"))
    apply(deployment, silent)
    return deployment


@pytest.fixture(autouse=True)
def _partitions(pipeline: Deployment, source_dsn: str) -> Iterator[None]:
    """Create the partitions. Afterwards, check that each deleted row was delivered, and drop the partitions."""
    with psycopg.connect(source_dsn) as connection:
        for name, year in YEARS.items():
            bounds = f"from ('{year}-01-01') to ('{int(year) + 1}-01-01')"
            connection.execute(f"create table {name} partition of {TABLE} for values {bounds}")
    yield
    seen = {headers(record)["event_id"] for record in records(pipeline, BOOKS, 1)}
    with psycopg.connect(source_dsn) as connection:
        gone = f"select id from ranges_history where id not in (select id::text from {TABLE})"
        assert {event for (event,) in connection.execute(gone)} <= seen
        for name in YEARS:
            connection.execute(f"drop table if exists {name}")
        connection.execute(f"delete from {TABLE}")
        connection.execute("delete from ranges_history")


@pytest.fixture
def prune(pipeline: Deployment) -> Prune:
    """Run the command. Return the result of each partition by its name."""

    def run(*options: str, code: int = 0) -> dict[str, Row]:
        file = pipeline.templates.parent / f"{NAME}.yaml"
        arguments = ["prune", "--partitions", "--older-than", "1d", "--confirm", f"{NAME}@local", "--output", "json"]
        done = invoke(["-p", str(file), "-e", "local", *arguments, *options])
        assert done.code == code, done.output
        return {} if code else {row["partition"][7:]: row for row in json.loads(done.stdout)["partitions"]}

    return run


def reasons(results: dict[str, Row]) -> dict[str, str]:
    """Return the reasons why the closed partitions remain."""
    return {name: row["reason"] for name, row in results.items() if name in YEARS}


def tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select relname from pg_class where relname like 'ranges_20%' and relkind = 'r'")
        return {name for (name,) in found}


def write(dsn: str, key: str, created_at: str) -> str:
    return insert(dsn, TABLE, "book", key, json.dumps(book(key), default=str), created_at=created_at)


def deliver(pipeline: Deployment, dsn: str, *created_at: str) -> str:
    """Write a state of one book for each time, and wait for the record of the last state. Return the key."""
    key = str(uuid4())
    event = [write(dsn, key, time) for time in created_at][-1]
    wait_record(pipeline, BOOKS, 1, event)
    return key


def test_drops_partitions_with_delivered_rows(pipeline: Deployment, prune: Prune, source_dsn: str) -> None:
    deliver(pipeline, source_dsn, "2020-05-05", "2021-05-05")
    deliver(pipeline, source_dsn, "2022-05-05")
    deliver(pipeline, source_dsn, "2026-05-05")
    results = prune("--all", "--dry-run")
    assert [(name, row["rows"], row["reason"]) for name, row in results.items()] == [
        ("ranges_2020", 1, ""),
        ("ranges_2021", 1, ""),
        ("ranges_last", 1, "open"),  # the last range, although it is past
        ("ranges_rest", 1, "open"),
    ]
    assert tables(source_dsn) == {*YEARS}
    assert reasons(prune()) == {"ranges_2020": "", "ranges_2021": "rows"}  # the newest row of the aggregate
    assert tables(source_dsn) == {"ranges_2021"}
    assert reasons(prune("--all", "--older-than", "3650d")) == {"ranges_2021": "open"}
    assert reasons(prune("--all")) == {"ranges_2021": ""}
    assert tables(source_dsn) == set()
    deliver(pipeline, source_dsn, "2022-05-05")


def test_drops_the_older_rows_of_an_aggregate_first(pipeline: Deployment, prune: Prune, source_dsn: str) -> None:
    deliver(pipeline, source_dsn, "2021-05-05", "2020-05-05")
    assert reasons(prune("--all")) == {"ranges_2020": "order", "ranges_2021": ""}
    assert reasons(prune("--all")) == {"ranges_2020": ""}


def test_retains_undelivered_rows(pipeline: Deployment, prune: Prune, source_dsn: str) -> None:
    """The slot lags, then it is created again beyond the rows, whose delivery no record proves."""
    deliver(pipeline, source_dsn, "2020-05-05")
    stop(pipeline)
    lost = write(source_dsn, str(uuid4()), "2021-05-05")
    prune("--all", "--wait", "1", code=1)
    assert tables(source_dsn) == {*YEARS}
    position = recreate_slot(pipeline)
    prune("--all", code=1)
    assert tables(source_dsn) == {*YEARS}
    pipeline.connect.patch_offsets(NAME, {"server": NAME}, seed(position))
    resume(pipeline)
    deliver(pipeline, source_dsn, "2020-06-06")
    results = prune("--all")
    assert (reasons(results), results["ranges_2021"]["unproven"]) == ({"ranges_2020": "", "ranges_2021": "rows"}, 1)
    with psycopg.connect(source_dsn) as connection:
        connection.execute("delete from ranges_2021 where id = %s", (lost,))
        connection.execute("delete from ranges_history where id = %s", (lost,))


def test_retains_a_partition_with_a_row_that_arrives_after_the_proof(
    pipeline: Deployment, prune: Prune, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(pipeline, source_dsn, "2020-05-05")
    drop = pruning._drop

    def insert_and_drop(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the arguments of _drop
        write(source_dsn, str(uuid4()), "2020-06-06")
        return drop(*arguments, **options)

    monkeypatch.setattr(pruning, "_drop", insert_and_drop)
    assert reasons(prune("--all")) == {"ranges_2020": "changed", "ranges_2021": ""}
    assert tables(source_dsn) == {"ranges_2020"}


def is_waited_for(dsn: str, relation: str, *, seconds: float = 0) -> None:
    """Wait until a session has waited for the lock of a relation for a certain time."""
    query = """
        select count(*) from pg_locks where relation = %s::regclass and not granted
        and clock_timestamp() - waitstart > make_interval(secs => %s)"""
    with psycopg.connect(dsn, autocommit=True) as connection:

        def poll() -> Observation[bool]:
            count = connection.execute(query, (relation, seconds)).fetchall()[0][0]
            return Observation(count > 0 or None, f"{count} sessions wait")

        wait_for(f"a session that waits for {relation}", poll, seconds=20, interval=0.02)


@pytest.mark.parametrize("commits", [False, True])
def test_open_transaction_of_the_partition(
    prune: Prune, source_dsn: str, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    """The row of the transaction is not in the snapshot. It commits while the command waits for its lock, or later."""
    monkeypatch.setattr(postgres_client, "STATEMENT_TIMEOUTS", f"-c lock_timeout={20 if commits else 1}s")
    with psycopg.connect(source_dsn) as writer:
        row = "(aggregate_type, aggregate_id, event_type, created_at) values ('book', 'late', 'x', '2020-06-06')"
        writer.execute(f"insert into {TABLE} {row}")

        def commit() -> None:
            is_waited_for(source_dsn, "ranges_2020")
            writer.commit()

        thread = Thread(target=commit if commits else lambda: None)
        thread.start()
        expected = ["changed", ""] if commits else ["locked", "locked"]  # the writer has locked the table, too
        assert [*reasons(prune("--all")).values()] == expected
        thread.join(30)
    assert "ranges_2020" in tables(source_dsn)


def test_a_transaction_of_another_partition_is_not_awaited(prune: Prune, source_dsn: str) -> None:
    with psycopg.connect(source_dsn) as writer:
        row = "(aggregate_type, aggregate_id, event_type) values ('book', 'now', 'x')"
        writer.execute(f"insert into {TABLE} {row}")
        assert reasons(prune("--all")) == dict.fromkeys(YEARS, "locked")
    assert tables(source_dsn) == {*YEARS}


def test_never_ends_a_writer_by_a_deadlock(prune: Prune, source_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer waits for the partition while the command, which holds the lock, reads the partition.

    PostgreSQL checks for a deadlock after the writer has waited for 1 s, and would end it if the command also waited.
    """
    read_content, threads, written = pruning_partitions.read_content, list[Thread](), list[str]()

    def write_late() -> None:
        written.append(write(source_dsn, str(uuid4()), "2020-06-06"))

    def read_while_waited_for(*arguments: Any) -> Any:  # noqa: ANN401 - the arguments of read_content
        if not threads:
            threads.append(Thread(target=write_late))
            threads[0].start()
            is_waited_for(source_dsn, "ranges_2020", seconds=0.6)
        return read_content(*arguments)

    monkeypatch.setattr(pruning_partitions, "read_content", read_while_waited_for)
    assert reasons(prune("--all")) == {"ranges_2020": "locked", "ranges_2021": ""}
    threads[0].join(30)
    assert len(written) == 1
    assert tables(source_dsn) == {"ranges_2020"}


@pytest.mark.parametrize(
    "partitioning",
    ["", "partition by range (seq)", "partition by range (created_at, seq)", "partition by list (created_at)"],
)
def test_rejects_other_partitioning(pipeline: Deployment, partitioning: str) -> None:
    """The end of such a partition's range does not prove that no more rows will be inserted."""
    source = pipeline.pipeline.source.model_copy(update={"table": "public.ranges_other"})
    with postgres_client.connected(pipeline.environment.source) as connection, connection.transaction() as transaction:
        connection.execute(f"create table ranges_other (created_at timestamptz, seq bigint) {partitioning}")
        with pytest.raises(RefusedError):
            refuse_other_partitioning(connection, source)
        raise psycopg.Rollback(transaction)
