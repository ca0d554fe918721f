"""`outbox stuck` on the embedded stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
from tests.integration.support import Deploy, in_process, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.postgres.client import connected
from outbox_kit.postgres.replication_slot import wait_inactive
from outbox_kit.stack import Stack
from outbox_kit.waiting import Observation, wait_for

NAME, TOPIC, TABLE = "stuck", "stuck.book", "public.stuck_event"
# A parameter that outbox-kit sets, a literal `%`, and a comment that must not include the next line.
QUERY = "select id as aggregate_id, state as payload from stuck_book where id = any(:keys) and id not like 'x%' -- end"


@pytest.fixture(scope="module")
def pipeline(stack: Stack, deploy_once: Deploy, source_dsn: str) -> Deployment:
    """Books with a business table; authors with none."""
    del stack
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table stuck_book (id text primary key, state jsonb)")
    load = {"table": "public.stuck_book", "key": "id", "query": QUERY}
    aggregates = {
        "author": {"schema": "schemas/author.avsc", "partitions": 1},
        "book": {"schema": "schemas/book.avsc", "partitions": 4, "backfill": load},
    }
    return deploy_once(NAME, aggregates=aggregates)


ListReasons = Callable[..., dict[str, str]]


@pytest.fixture
def list_reasons(pipeline: Deployment) -> ListReasons:
    """Return the reasons that the command lists, by key; check that it exits with 1 if it lists any."""

    def keys(code: int, older_than: str = "0.1") -> dict[str, str]:
        done = in_process(pipeline)("stuck", "--older-than", older_than, "--output", "json", code=code)
        return {entry["key"]: entry["kind"] for entry in json.loads(done.stdout)["stuck"]}

    return keys


def stop(pipeline: Deployment) -> None:
    """Stop the connector and wait until its task has ended: Connect reports STOPPED before that."""
    connect_lifecycle.stop(pipeline.connect, NAME)
    with connected(pipeline.environment.source) as connection:
        wait_inactive(connection, pipeline.pipeline.source.slot)


def wait_old_enough(pipeline: Deployment) -> None:
    """Wait until each row is older than the default age of `list_reasons`."""
    query = "select coalesce(max(created_at) < clock_timestamp() - interval '0.1 s', true) as old from stuck_event"
    with connected(pipeline.environment.source) as connection:

        def poll() -> Observation[bool]:
            return Observation(connection.execute(query).fetchall()[0]["old"] or None, "a row is younger")

        wait_for("the newest row to be 0.1 s old", poll, seconds=10, interval=0.02)


def keep(dsn: str, *keys: str) -> None:
    """Make the business table contain exactly these keys."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("delete from stuck_book")
        for key in keys:
            connection.execute("insert into stuck_book values (%s, '{}')", (key,))


def test_lists_rows_until_they_are_delivered(pipeline: Deployment, list_reasons: ListReasons, source_dsn: str) -> None:
    old, new, removed, never = (str(uuid4()) for _ in range(4))
    keep(source_dsn, old, new, removed)
    for key in (old, removed):
        wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", key, book(key), table=TABLE))
    assert list_reasons(1, "1") == {new: "missing"}
    stop(pipeline)
    send(source_dsn, "book", old, book(old, pages=2), table=TABLE)
    send(source_dsn, "book", new, book(new), table=TABLE)
    send(source_dsn, "book", removed, None, table=TABLE)
    send(source_dsn, "book", never, None, table=TABLE)
    wait_old_enough(pipeline)
    # `never` has no state anywhere: topic and database agree.
    assert list_reasons(1) == {old: "stale", new: "missing", removed: "stale"}
    # The command waits for states missing in the business table, so none is missing here.
    keep(source_dsn, old, removed)
    assert list_reasons(0, "3600") == {}
    pipeline.connect.resume(NAME)
    connect_lifecycle.wait_for_state(pipeline.connect, NAME)
    wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", never, None, table=TABLE))
    wait_old_enough(pipeline)
    assert list_reasons(0) == {}


def test_compares_by_the_business_table_when_the_outbox_is_empty(
    pipeline: Deployment, list_reasons: ListReasons, source_dsn: str
) -> None:
    with_event, without_event, deleted = (str(uuid4()) for _ in range(3))
    for key in (with_event, deleted):
        wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", key, book(key), table=TABLE))
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        live = connection.execute(
            "select aggregate_id from stuck_event where payload is not null and aggregate_type = 'book'"
        ).fetchall()
        tombstones = connection.execute("select aggregate_id from stuck_event where payload is null").fetchall()
        connection.execute("delete from stuck_event")
    others = {key for (key,) in live} - {key for (key,) in tombstones} - {deleted}
    # The query excludes ids that start with x: not an aggregate.
    keep(source_dsn, *others, without_event, "xyz")
    assert list_reasons(1, "1") == {without_event: "missing", deleted: "ghost"}
    keep(source_dsn, *others, deleted)
    assert list_reasons(0, "1") == {}


def test_reports_when_no_comparison_is_possible(pipeline: Deployment) -> None:
    assert "author is not compared" in in_process(pipeline)("stuck", "--older-than", "1").stderr


def test_reports_a_missing_business_table(pipeline: Deployment, source_dsn: str) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("alter table stuck_book rename to stuck_books")
        try:
            messages = in_process(pipeline)("stuck", "--older-than", "0.1", code=1).stderr
        finally:
            connection.execute("alter table stuck_books rename to stuck_book")
    assert "error: backfill of table public.stuck_book: relation" in messages
    assert "hint: correct `table`, `key` and `query` of this `backfill`" in messages
