"""The demo's workload: its counts match the database, and the latest outbox states equal the tables."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from book_management.tables import Connection as ServiceConnection

from outbox_kit.demo import workload
from outbox_kit.demo.compare_values import canonical_conversions, compare, table_rows
from outbox_kit.demo.workload import WorkloadCounts
from outbox_kit.demo.writer import Ids, SharedIds, Writer
from outbox_kit.pipeline.avro import read_definition

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMAS = Path(__file__).parents[3] / "schemas"


def totals(connection: Connection) -> tuple[int, int, dict[str, int]]:
    """Return the numbers of events and tombstones in the outbox, and of events by aggregate type."""
    rows = connection.execute(
        "select aggregate_type, count(*), count(*) filter (where payload is null)"
        " from outbox_event group by 1 order by 1"
    ).fetchall()
    return sum(row[1] for row in rows), sum(row[2] for row in rows), {row[0]: row[1] for row in rows}


def newest_states(connection: Connection, kind: str) -> list[dict[str, Any]]:
    """Return the newest payload of each aggregate, as a compacted topic would. Prices are text."""
    rows = connection.execute(
        "select aggregate_id, payload, payload->>'price' from ("
        "  select distinct on (aggregate_id) * from outbox_event where aggregate_type = %s"
        "  order by aggregate_id, seq desc) newest where payload is not null",
        [kind],
    ).fetchall()
    return [{"aggregate_id": row[0], **row[1], **({"price": row[2]} if row[2] else {})} for row in rows]


def assert_outbox_matches_tables(connection: Connection) -> None:
    for kind in ("author", "book"):
        result = compare(
            kind,
            "outbox",
            schema=read_definition(SCHEMAS / f"{kind}.avsc"),
            source=table_rows(connection, "library", kind),
            rows=newest_states(connection, kind),
        )
        assert result.match, result
        assert result.source_rows > 0


@pytest.fixture(scope="module")
def counts(dsn: str) -> WorkloadCounts:
    with psycopg.connect(dsn) as connection:
        connection.execute("truncate outbox_event, library.book, library.author")
    return workload.run(dsn, transactions=600, seed=7, writers=4)


class TestRun:
    """One run, shared by the tests."""

    def test_counts_match_the_database(self, dsn: str, counts: WorkloadCounts) -> None:
        with psycopg.connect(dsn) as connection:
            assert totals(connection) == (counts.events, counts.tombstones, counts.events_by_aggregate)

    def test_counts_every_transaction(self, counts: WorkloadCounts) -> None:
        assert counts.transactions == 600
        assert 10 < counts.rolled_back < 120

    def test_workload_has_every_kind_of_event(self, dsn: str, counts: WorkloadCounts) -> None:
        with psycopg.connect(dsn) as connection:
            kinds = connection.execute("select distinct event_type from outbox_event order by 1").fetchall()
        assert [row[0] for row in kinds] == [
            *("author_added", "author_changed", "author_removed"),
            *("book_added", "book_changed", "book_removed"),
        ]
        assert counts.savepoints_rolled_back > 0
        assert counts.tombstones > 10
        assert counts.events > counts.committed

    def test_latest_outbox_states_equal_the_tables(self, dsn: str, counts: WorkloadCounts) -> None:
        assert counts.committed
        with psycopg.connect(dsn) as connection:
            assert_outbox_matches_tables(connection)

    def test_recreates_some_deleted_aggregates(self, dsn: str, counts: WorkloadCounts) -> None:
        assert counts.committed
        query = (
            "select count(*) from outbox_event a join outbox_event b using (aggregate_id)"
            " where a.payload is null and b.payload is not null and b.seq > a.seq"
        )
        with psycopg.connect(dsn) as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        assert row[0] > 0

    def test_second_run_continues_from_the_first(self, dsn: str, counts: WorkloadCounts) -> None:
        again = workload.run(dsn, transactions=200, seed=7, writers=2)
        with psycopg.connect(dsn) as connection:
            assert totals(connection)[:2] == (
                counts.events + again.events,
                counts.tombstones + again.tombstones,
            )
            assert_outbox_matches_tables(connection)


def test_one_writer_is_deterministic(clean_dsn: str) -> None:
    def run() -> tuple[Any, ...]:
        with psycopg.connect(clean_dsn) as connection:
            connection.execute("truncate outbox_event, library.book, library.author")
        counts = workload.run(clean_dsn, transactions=60, seed=3, writers=1)
        with psycopg.connect(clean_dsn) as connection:
            kinds = connection.execute("select event_type from outbox_event order by seq").fetchall()
        return counts.rolled_back, kinds[:10]

    assert run() == run()


def test_writers_do_not_deadlock(clean_dsn: str) -> None:
    """There are few rows and many writers, so all writers must lock authors before books."""
    for seed in range(10):
        with psycopg.connect(clean_dsn) as connection:
            connection.execute("truncate outbox_event, library.book, library.author")
        workload.run(clean_dsn, transactions=60, seed=seed, writers=6)
    with psycopg.connect(clean_dsn) as connection:
        row = connection.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
    assert row == (0,)


def test_progress_ends_at_the_total(clean_dsn: str) -> None:
    message: list[str] = []
    workload.run(clean_dsn, transactions=10, seed=1, writers=3, progress=message.append)
    assert message[-1] == "10 of 10 transactions"


def test_accepts_a_connection_factory(clean_dsn: str) -> None:
    opened: list[ServiceConnection] = []

    def connect() -> ServiceConnection:
        opened.append(workload.connect(clean_dsn))
        opened[-1].autocommit = True
        return opened[-1]

    assert workload.run(connect, transactions=12, seed=1, writers=2).transactions == 12
    assert len(opened) == 3
    assert all(connection.closed for connection in opened)


def test_error_of_a_writer_stops_the_run(clean_dsn: str) -> None:
    broken: list[ServiceConnection] = []

    def connect() -> ServiceConnection:
        connection = workload.connect(clean_dsn)
        if broken:
            connection.execute("set default_transaction_read_only = on")
            connection.commit()
        broken.append(connection)
        return connection

    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        workload.run(connect, transactions=100_000, seed=1, writers=2)
    assert all(connection.closed for connection in broken)


def test_writer_continues_without_existing_aggregates(clean_dsn: str, connection: Connection) -> None:
    """A step that selects deleted ids is rolled back, and another step is tried."""
    deleted = SharedIds(*(Ids([uuid4() for _ in range(5)]) for _ in range(3)))
    with workload.connect(clean_dsn) as session:
        writer = Writer(session, Random(1), deleted)  # noqa: S311
        done = [writer.transact() for _ in range(30)]
    states = sum(effects.states.total() for effects, committed in done if committed)
    assert all(effects.states or effects.tombstones for effects, _ in done)
    assert totals(connection)[0] >= states > 0


def test_invalid_events_violate_schema_and_contract(connection: Connection, second_session: Connection) -> None:
    events = workload.write_invalid_events(connection)
    rows = second_session.execute(
        "select aggregate_type, aggregate_id, payload from outbox_event order by seq"
    ).fetchall()
    assert [row[:2] for row in rows] == [(event.aggregate_type, event.aggregate_id) for event in events]
    fields = canonical_conversions(read_definition(SCHEMAS / "book.avsc"))
    assert fields.keys() - rows[0][2].keys()
    assert not (SCHEMAS / f"{rows[1][0]}.avsc").exists()


def test_stores_prices_exactly_in_the_outbox(dsn: str, counts: WorkloadCounts) -> None:
    assert counts.committed
    with psycopg.connect(dsn) as connection:
        workload.run(dsn, transactions=200, seed=11)
        row = connection.execute(
            "select count(*) from outbox_event where payload->>'price' = '9999999999.99'"
        ).fetchone()
    assert row is not None
    assert row[0] > 0
