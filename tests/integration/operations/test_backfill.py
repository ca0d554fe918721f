"""`outbox backfill` and `outbox republish` on a real database, through a real connector."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from book_management import changes
from book_management.tables import Author, Book
from tests.conftest import REPOSITORY
from tests.integration.support import Deploy, in_process, live_keys, records, wait_confirmed, wait_record

from outbox_events import composite_id
from outbox_events.errors import ConfigurationError, RefusedError, RejectedError
from outbox_kit.backfill import BackfillOptions, backfill, republish
from outbox_kit.backfill.newest_states import open_states
from outbox_kit.demo import workload
from outbox_kit.deployment import Deployment
from outbox_kit.operations.preconditions import read_deletions
from outbox_kit.operations.stuck import list_stuck
from outbox_kit.postgres import aggregate_queries
from outbox_kit.postgres.aggregate_queries import UnreadableStatesError
from outbox_kit.postgres.client import connected
from outbox_kit.results import silent

GUIDE = (REPOSITORY / "docs" / "backfill.md").read_text(encoding="utf-8")
PARTITIONS = 2
SCHEMA = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "id", "type": "string"}, {"name": "version", "type": "long"}],
}
QUERY = "select id::text as aggregate_id, jsonb_build_object('id', id::text, 'version', version) as payload from {}"

OUTBOX = """
create table store_event (
  id uuid primary key default gen_random_uuid(), seq bigint generated always as identity,
  aggregate_type text not null, aggregate_id text not null check (aggregate_id <> ''), event_type text not null,
  payload jsonb, headers jsonb, created_at timestamptz not null default now(), tenant text)
"""

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def connection(source_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        yield connection


def entry(table: str, query: str = QUERY) -> dict[str, str]:
    """Return a `backfill` section of a pipeline file. `table` is the name of the table in SQL."""
    name = table.strip('"')
    return {"table": f"public.{name}", "key": "id", "query": query.format(table)}


def make_items(connection: Connection, table: str, count: int, *, key: str = "bigint") -> None:
    """Create a table of items that have no events."""
    connection.execute(f"create table {table} (id {key} primary key, version bigint not null default 0)")
    value = {"uuid": "md5(n::text)::uuid", "text": "n || ' ä%'"}.get(key, "n")
    connection.execute(f"insert into {table} (id) select {value} from generate_series(1, {count}) n")


TYPED = {"numbers": "bigint", "texts": "text", "uuids": "uuid"}
TABLES = {"numbers": "store_numbers", "texts": '"store_Texts"', "uuids": "store_uuids"}
"""Name of the table of each type in TYPED, as in SQL."""
SELECTED = QUERY + " where id = any(:keys) -- by the locked keys\n;"
MARKED = QUERY.replace("jsonb_build", "case when version >= 0 then jsonb_build").replace(
    " as payload", " end as payload"
)
FILTERED = QUERY + " where id %% 2 = 0".replace("%%", "%")
# The order of the columns in the index differs from the order in the key.
PAIRS = """
create table "store_Pairs" (
  "Warehouse" text, sku int, day date default '2026-11-28', k text, version bigint not null default 0,
  unique (day, sku, "Warehouse"))
"""
PAIRS_QUERY = """
select "Warehouse", sku, day, jsonb_build_object('id', sku::text, 'version', version) as payload
from "store_Pairs" where ("Warehouse", sku, day) = any(:keys) -- with % and ?
"""
DAY = date(2026, 11, 28)
WAREHOUSES = ["EU", "a/b", "a~1b", "a~b/", "", 'it\'s "q" %s', "ä"]


@pytest.fixture(scope="module")
def item_schema(project: Path) -> str:
    """Write the schema of items, and return its path in the project."""
    (project / "schemas" / "item.avsc").write_text(json.dumps(SCHEMA))
    return "schemas/item.avsc"


@pytest.fixture(scope="module")
def store(deploy_once: Deploy, source_dsn: str, item_schema: str) -> Deployment:
    """Deploy a pipeline of several aggregate types, each with a table of existing items."""
    aggregates: dict[str, dict[str, Any]] = {}
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(OUTBOX)
        for name, key in TYPED.items():
            make_items(connection, TABLES[name], 23, key=key)
            aggregates[name] = {"backfill": entry(TABLES[name], SELECTED)}
        for name in ("blocked", "paced", "swept", "mended", "unmended", "plain"):
            make_items(connection, f"store_{name}", 30)
            aggregates[name] = {"backfill": entry(f"store_{name}")}
        make_items(connection, "store_filtered", 30)
        aggregates["filtered"] = {"backfill": entry("store_filtered", FILTERED)}
        make_items(connection, "store_marked", 3)
        aggregates["marked"] = {"backfill": entry("store_marked", MARKED)}
        make_items(connection, "store_tenanted", 3)
        connection.execute(PAIRS)
        pairs = {"table": "public.store_Pairs", "key": ["Warehouse", "sku", "day"], "query": PAIRS_QUERY}
        aggregates["pairs"] = {"backfill": pairs}
        tenant = QUERY.replace(" as payload", " as payload, 'north' as tenant")
        aggregates["tenanted"] = {"backfill": entry("store_tenanted", tenant), "partition_field": "tenant"}
    item = {"schema": item_schema, "partitions": PARTITIONS}
    return deploy_once("store", aggregates={name: {**item, **more} for name, more in aggregates.items()})


def outbox_rows(connection: Connection, aggregate_type: str) -> list[tuple[Any, ...]]:
    """Return (aggregate_id, event_type, payload, tenant) of the rows of an aggregate type, in insertion order."""
    query = "select aggregate_id, event_type, payload, tenant from store_event where aggregate_type = %s order by seq"
    return connection.execute(query, (aggregate_type,)).fetchall()


def items(connection: Connection, table: str) -> dict[str, dict[str, Any]]:
    """Return the payload of every item."""
    rows = connection.execute(f"select id::text, version from {table}").fetchall()
    return {key: {"id": key, "version": version} for key, version in rows}


@pytest.mark.parametrize("aggregate_type", TYPED)
def test_writes_every_aggregate_once_for_each_key_type(
    store: Deployment, connection: Connection, aggregate_type: str
) -> None:
    [done] = backfill(store, [aggregate_type], silent, BackfillOptions(batch_size=4))
    assert (done.rows, done.skipped) == (23, 0)
    rows = outbox_rows(connection, aggregate_type)
    assert len(rows) == 23
    assert {row[1] for row in rows} == {"backfill"}
    assert {key: payload for key, _, payload, _ in rows} == items(connection, TABLES[aggregate_type])


def test_waits_for_a_locked_row_reports_it_and_resumes(
    store: Deployment, connection: Connection, source_dsn: str
) -> None:
    options = BackfillOptions(batch_size=10, lock_seconds=0.6)
    with psycopg.connect(source_dsn, application_name="old-service") as other:
        other.execute("update store_blocked set version = 7 where id = 15")
        with pytest.raises(RejectedError) as caught:
            backfill(store, ["blocked"], silent, options)
        pid = other.info.backend_pid
        assert caught.value.message.startswith("no lock on rows of public.store_blocked within 0.6 s: blocked by")
        assert f"pid {pid} (old-service, idle in transaction, " in caught.value.message
        assert len(outbox_rows(connection, "blocked")) == 10  # whole batches only
        other.commit()
    messages: list[str] = []
    [done] = backfill(store, ["blocked"], messages.append, options)
    assert messages == ["blocked: resume after 10 aggregates", "blocked: finished, 30 rows"]
    assert (done.rows, done.rows_now) == (30, 20)
    rows = outbox_rows(connection, "blocked")
    assert Counter(row[0] for row in rows) == Counter({str(number): 1 for number in range(1, 31)})
    assert {key: payload for key, _, payload, _ in rows}["15"]["version"] == 7


def test_resumes_an_interrupted_backfill_without_duplicates(
    store: Deployment, connection: Connection, project: Path
) -> None:
    command = [sys.executable, "-c", "from outbox_kit.cli import main; main()", "-p", "connectors/store.yaml"]
    command += ["backfill", "plain", "--rows-per-second", "4", "--batch-size", "2"]
    with subprocess.Popen(command, cwd=project, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        line = run.stderr.readline()
        run.send_signal(signal.SIGTERM)  # ends like Ctrl-C, even where SIGINT is ignored
        stderr = run.stderr.read()
    assert run.returncode == 130, line + stderr
    assert line.startswith("plain: ")
    assert "run the same command again\ninterrupted\n" in stderr
    written = len(outbox_rows(connection, "plain"))
    assert 0 < written < 30
    done = in_process(store)("backfill", "plain")
    assert f"plain: resume after {written} aggregates" in done.stderr
    assert Counter(row[0] for row in outbox_rows(connection, "plain")) == {str(number): 1 for number in range(1, 31)}


def test_does_not_repeat_a_finished_backfill_unless_requested(store: Deployment, connection: Connection) -> None:
    backfill(store, ["filtered"], silent)
    messages: list[str] = []
    [again] = backfill(store, ["filtered"], messages.append)
    assert again.rows_now == 0
    assert messages[0].startswith("filtered: finished on ")
    assert len(outbox_rows(connection, "filtered")) == 15
    [restarted] = backfill(store, ["filtered"], messages.append, BackfillOptions(restart=True))
    # The query omits every second item, but the count of keys includes all items.
    assert (restarted.rows, restarted.skipped) == (15, 15)
    assert messages[-1] == "filtered: finished, 15 rows, 15 skipped, because the query returns no state for them"
    assert len(outbox_rows(connection, "filtered")) == 30


def test_each_new_topic_needs_its_own_backfill(
    deploy: Deploy, connection: Connection, source_dsn: str, item_schema: str
) -> None:
    """After `destroy`, neither the lock file nor a topic is left, but the progress of the first backfill is."""
    make_items(connection, "renewed_item", 5)
    item = {"schema": item_schema, "partitions": PARTITIONS, "backfill": entry("renewed_item")}
    deployment = deploy("renewed", applied=False, aggregates={"item": item})
    outbox = in_process(deployment)
    for _ in range(2):
        assert "run `outbox backfill item" in outbox("plan", code=3).stdout.replace("\n", " ")
        outbox("apply", "--yes")
        assert "run `outbox backfill item" in outbox("plan").stderr
        assert "needs a backfill: item" in outbox("verify", "--no-canary", code=1).stdout
        [done] = json.loads(outbox("backfill", "--output", "json").stdout)["aggregates"]
        assert (done["rows"], done["rows_now"]) == (5, 5)
        outbox("verify", "--no-canary")
        [again] = backfill(deployment, ["item"], silent)
        assert (again.rows, again.rows_now) == (5, 0)
        wait_confirmed(source_dsn, "renewed_s")
        assert live_keys(deployment, "renewed.item", PARTITIONS) == {"1", "2", "3", "4", "5"}
        outbox("destroy", "--delete-topics", "--delete-schemas", "--drop-slot", "--confirm", "renewed@local")
        assert deployment.lock() is None


def test_rows_can_be_deleted_in_the_inserting_transaction(store: Deployment, connection: Connection) -> None:
    [done] = backfill(store, ["swept"], silent, BackfillOptions(delete=True))
    assert done.rows == 30
    assert outbox_rows(connection, "swept") == []
    last = connection.execute(
        "insert into store_event (aggregate_type, aggregate_id, event_type, payload)"
        """ values ('swept', 'last', 'written', '{"id": "last", "version": 1}') returning id"""
    ).fetchone()
    assert last is not None
    wait_record(store, "store.swept", PARTITIONS, str(last[0]))
    actual = records(store, "store.swept", PARTITIONS)
    assert {message.key() for message in actual} == {str(number).encode() for number in range(1, 31)} | {b"last"}


def test_respects_the_rate_limit(store: Deployment) -> None:
    [done] = backfill(store, ["paced"], silent, BackfillOptions(rows_per_second=20))
    assert done.rows == 30
    assert done.seconds >= 30 / 20


def test_places_states_and_tombstones_by_partition_field(store: Deployment, connection: Connection) -> None:
    backfill(store, ["tenanted"], silent)
    connection.execute("delete from store_tenanted where id = 3")
    assert republish(store, "tenanted", ["3", "1"], silent, tombstones=["3"]) == 2
    rows = outbox_rows(connection, "tenanted")[3:]
    assert rows == [("1", "republish", {"id": "1", "version": 0}, "north"), ("3", "republish", None, "north")]
    # The partition of a key that has neither a row nor a record is unknown, so a tombstone is not written.
    with pytest.raises(RefusedError, match=r"1 key not written: 99 \(no row in public") as caught:
        republish(store, "tenanted", ["99"], silent, tombstones=["99"])
    assert "partition field" in caught.value.hint


def test_deletes_states_of_aggregates_without_any_row(store: Deployment, connection: Connection) -> None:
    """The business row and all outbox rows have been deleted, so only the topic shows the partition of the state."""
    insertion = """insert into store_event (aggregate_type, aggregate_id, event_type, payload, tenant)
                   values ('tenanted', %s, 'created', jsonb_build_object('id', %s::text, 'version', 1), %s)
                   returning id::text"""
    states = []
    for key, tenant in (("801", "east"), ("802", "west"), ("803", "south")):
        [(event,)] = connection.execute(insertion, (key, key, tenant)).fetchall()
        states.append(wait_record(store, "store.tenanted", PARTITIONS, event))
    assert {state.partition() for state in states} == set(range(PARTITIONS))
    keys = ["801", "802", "803"]
    connection.execute("delete from store_event where aggregate_type = 'tenanted' and aggregate_id = any(%s)", (keys,))
    assert republish(store, "tenanted", keys, silent, tombstones=keys) == 3
    query = "select id::text from store_event where aggregate_type = 'tenanted' and aggregate_id = any(%s) order by seq"
    for state, (event,) in zip(states, connection.execute(query, (keys,)).fetchall(), strict=True):
        tombstone = wait_record(store, "store.tenanted", PARTITIONS, event)
        assert (tombstone.key(), tombstone.value()) == (state.key(), None)
        assert tombstone.partition() == state.partition()


def test_a_key_of_several_columns(store: Deployment, connection: Connection) -> None:
    """Every command uses the text of composite_id(), also for values that contain its separator."""
    ids = {(name, sku): composite_id(name, sku, DAY) for name in WAREHOUSES for sku in (-1, 2)}
    with connection.cursor() as cursor:
        cursor.executemany('insert into "store_Pairs" ("Warehouse", sku) values (%s, %s)', list(ids))
    connection.execute('insert into "store_Pairs" ("Warehouse", sku) values (null, 3)')
    [done] = backfill(store, ["pairs"], silent, BackfillOptions(batch_size=4))
    assert (done.rows, done.skipped) == (14, 0)
    assert sorted(row[0] for row in outbox_rows(connection, "pairs")) == sorted(ids.values())
    pairs = store.pipeline.model_copy(update={"aggregates": {"pairs": store.pipeline.aggregates["pairs"]}})
    compared = replace(store, pipeline=pairs)
    assert pairs.aggregates["pairs"].backfill is not None
    every_row = pairs.aggregates["pairs"].backfill.model_copy(update={"query": PAIRS_QUERY.partition("where")[0]})
    with connected(store.environment.source) as database:
        assert aggregate_queries.live_keys(database, every_row) == set(ids.values())
    assert stuck_after_last_event(compared, connection) == []
    connection.execute("""delete from "store_Pairs" where "Warehouse" = 'a/b' and sku = 2""")
    deleted, changed = ids["a/b", 2], ids["a~1b", 2]
    assert stuck_after_last_event(compared, connection) == [(deleted, "ghost")]
    keys = [deleted, changed, "a/b/2/2026-11-28", "EU/x/2026-11-28"]
    deletions = read_deletions(store, "pairs", keys, silent)
    assert deletions is not None
    assert deletions.keys == (deleted, *keys[2:])
    assert republish(store, "pairs", ["EU/02/20261128", *keys[:2]], silent, tombstones=[deleted]) == 3
    assert [row[:3] for row in outbox_rows(connection, "pairs")[-3:]] == [
        ("EU/2/2026-11-28", "republish", {"id": "2", "version": 0}),
        (changed, "republish", {"id": "2", "version": 0}),
        (deleted, "republish", None),
    ]
    assert stuck_after_last_event(compared, connection) == []


def stuck_after_last_event(deployment: Deployment, connection: Connection) -> list[tuple[str, str]]:
    """Return (key, kind) of the stuck aggregates after the last outbox row of the type was delivered."""
    query = "select id::text from store_event where aggregate_type = 'pairs' order by seq desc limit 1"
    [(event,)] = connection.execute(query).fetchall()
    wait_record(deployment, "store.pairs", PARTITIONS, event)
    return [(entry.key, entry.kind) for entry in list_stuck(deployment, silent, older_than=0.1)]


def test_republishes_selected_keys(store: Deployment, connection: Connection) -> None:
    with pytest.raises(RefusedError) as caught:
        republish(store, "mended", [" 2", "2", "999", "1"], silent)
    assert caught.value.message == (
        "1 key not written: 999 (no row in public.store_mended, no state in the result of the query, or a trigger that "
        "omits the outbox row); 2 other keys written"
    )
    assert "--tombstones" in caught.value.hint
    assert [row[:2] for row in outbox_rows(connection, "mended")] == [("1", "republish"), ("2", "republish")]
    assert republish(store, "mended", ["999", "3"], silent, tombstones=["999"]) == 2
    assert [(row[0], row[2]) for row in outbox_rows(connection, "mended")[2:]] == [
        ("3", {"id": "3", "version": 0}),
        ("999", None),
    ]


def test_a_null_payload_deletes_a_state_only_after_confirmation(store: Deployment, connection: Connection) -> None:
    """A query that returns null by mistake does not delete states."""
    connection.execute("update store_marked set version = -1 where id = 2")
    [done] = backfill(store, ["marked"], silent)
    assert (done.rows, done.skipped) == (2, 1)
    with pytest.raises(RefusedError, match="1 key not written"):
        republish(store, "marked", ["2"], silent)
    with pytest.raises(RefusedError, match="1 key not written"):
        republish(store, "marked", ["2"], silent, tombstones=[])
    assert [row[0] for row in outbox_rows(connection, "marked")] == ["1", "3"]
    deletions = read_deletions(store, "marked", ["1", "2"], silent)
    assert deletions is not None
    assert republish(store, "marked", ["1", "2"], silent, tombstones=deletions.keys) == 2
    written = {(key, payload is None) for key, _, payload, _ in outbox_rows(connection, "marked")[2:]}
    assert written == {("1", False), ("2", True)}


def test_tombstones_are_compared_with_the_topic_and_limited_to_the_confirmed_keys(
    store: Deployment, connection: Connection
) -> None:
    """The state of 900 is on the topic, but neither 900 nor 901 is in the table."""
    insertion = """insert into store_event (aggregate_type, aggregate_id, event_type, payload)
                   values ('numbers', '900', 'created', '{"id": "900", "version": 1}') returning id::text"""
    [(event,)] = connection.execute(insertion).fetchall()
    wait_record(store, "store.numbers", PARTITIONS, event)
    deletions = read_deletions(store, "numbers", ["900", "901", " 1"], silent)
    assert deletions is not None
    assert (deletions.keys, deletions.deleted_states, deletions.table_is_empty) == (("900", "901"), 1, False)
    assert read_deletions(store, "numbers", ["1"], silent) is None
    # The query does not return odd keys of this type. They exist, so they do not get a tombstone.
    assert read_deletions(store, "filtered", ["1", "2"], silent) is None
    with pytest.raises(RefusedError, match="1 key not written"):
        republish(store, "numbers", ["900", "901"], silent, tombstones=["900"])
    assert [row[:3] for row in outbox_rows(connection, "numbers")[-1:]] == [("900", "republish", None)]
    connection.execute("delete from store_numbers")
    deletions = read_deletions(store, "numbers", ["1"], silent)
    assert deletions is not None
    assert deletions.table_is_empty


def test_a_record_whose_key_no_row_can_have_gets_a_tombstone(store: Deployment, connection: Connection) -> None:
    """Such records come from another key converter, or from a service that formats keys differently."""
    keys = ['"1"', "01", "1", "x"]
    deletions = read_deletions(store, "mended", keys, silent, exact=True)
    assert deletions is not None
    assert deletions.keys == ('"1"', "01", "x")
    assert republish(store, "mended", keys, silent, tombstones=deletions.keys, exact=True) == 4
    written = [(key, payload is None) for key, _, payload, _ in outbox_rows(connection, "mended")[-4:]]
    assert sorted(written) == [('"1"', True), ("01", True), ("1", False), ("x", True)]
    with pytest.raises(RefusedError, match="1 key not written"):
        republish(store, "mended", ["x", "01"], silent)


def test_rows_that_the_login_cannot_read_are_refused(store: Deployment) -> None:
    """Otherwise, the rows would look like deleted aggregates."""
    with connected(store.environment.source) as connection, connection.transaction(force_rollback=True):
        connection.execute("alter table store_plain enable row level security")
        connection.execute("create role store_reader")
        connection.execute("grant select on store_plain to store_reader")
        connection.execute("set local role store_reader")
        with pytest.raises(UnreadableStatesError, match="store_plain"):
            open_states(connection, store.pipeline, "plain", delete=False)
        backfill_section = store.pipeline.aggregates["plain"].backfill
        assert backfill_section is not None
        for read in (aggregate_queries.live_keys, partial(aggregate_queries.states, keys=["1"])):
            with pytest.raises(UnreadableStatesError, match="store_plain"):
                read(connection, backfill_section)
        connection.execute("reset role; alter table store_plain disable row level security")
        connection.execute("revoke all on store_plain from store_reader; set local role store_reader")
        with pytest.raises(UnreadableStatesError, match="permission denied for table store_plain") as raised:
            open_states(connection, store.pipeline, "plain", delete=False)
        assert "outbox doctor" in raised.value.hint


def test_tombstone_waits_for_concurrent_inserts(store: Deployment, connection: Connection, source_dsn: str) -> None:
    """There is no row to lock, so the table is locked. The recreated aggregate gets its state, not a tombstone."""
    with psycopg.connect(source_dsn) as other:
        other.execute("insert into store_unmended (id, version) values (77, 5)")
        with pytest.raises(RejectedError, match=r"public\.store_unmended within .* s: blocked by pid "):
            republish(store, "unmended", ["77"], silent, tombstones=["77"], lock_seconds=2.0)
        assert outbox_rows(connection, "unmended") == []
        other.commit()
    assert republish(store, "unmended", ["77"], silent, tombstones=["77"]) == 1
    assert outbox_rows(connection, "unmended")[0][2] == {"id": "77", "version": 5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": ["version"]}, r"backfill.key: public.store_plain has no unique index on version alone"),
        ({"key": ["id", "version"]}, r"has no unique index on id, version alone"),
        ({"key": ["nope"]}, r"there is no table public.store_plain with a column nope"),
        ({"table": "public.nope"}, r"there is no table public.nope with a column id"),
        ({"query": "selec 1"}, r"aggregates.plain.backfill.query: syntax error"),
        ({"query": "select 1; select 2"}, r"backfill.query: syntax error"),
        ({"query": "select id::text as aggregate_id from store_plain"}, r"query does not return column payload"),
        (
            {"query": "select id::text as aggregate_id, '{}'::jsonb as payload from store_plain, (values (1), (2)) v"},
            r"returns an aggregate_id more than once",
        ),
        (
            {"query": QUERY.format("store_plain") + " where id = -1"},
            "returned no state for any of 30 rows of public.st",
        ),
    ],
)
def test_rejects_an_invalid_backfill(store: Deployment, change: dict[str, Any], message: str) -> None:
    aggregate = store.pipeline.aggregates["plain"]
    assert aggregate.backfill is not None
    changed = aggregate.model_copy(update={"backfill": aggregate.backfill.model_copy(update=change)})
    pipeline = store.pipeline.model_copy(update={"aggregates": {"plain": changed}})
    with pytest.raises((ConfigurationError, RefusedError), match=message):
        backfill(replace(store, pipeline=pipeline), ["plain"], silent, BackfillOptions(restart=True))


def test_a_query_without_states_leaves_the_backfill_unfinished(store: Deployment, connection: Connection) -> None:
    """The query selects no row, as if it compared the columns of the key in another order."""
    connection.execute("""insert into "store_Pairs" ("Warehouse", sku) values ('US', 1)""")
    pairs = store.pipeline.aggregates["pairs"]
    assert pairs.backfill is not None
    wrong = pairs.backfill.model_copy(update={"query": pairs.backfill.query.replace("where", "where false and")})
    pipeline = store.pipeline.model_copy(update={"aggregates": {"pairs": pairs.model_copy(update={"backfill": wrong})}})
    with pytest.raises(ConfigurationError):
        backfill(replace(store, pipeline=pipeline), ["pairs"], silent, BackfillOptions(restart=True))
    [done] = backfill(store, ["pairs"], silent)
    assert done.rows_now > 0


def test_writes_nothing_without_a_slot(
    store: Deployment, deploy: Deploy, connection: Connection, tmp_path: Path
) -> None:
    """Writing rows that the connector never reads would look like a successful backfill."""
    with pytest.raises(RefusedError, match="pipeline unready is not deployed to local"):
        backfill(deploy("unready", applied=False), ["book"], silent)
    removed = with_slot(store, "unready_s", tmp_path)
    written = connection.execute("select count(*) from store_event").fetchone()
    with pytest.raises(RefusedError, match=r"slot 'unready_s', created at .*, does not exist"):
        republish(removed, "mended", ["1"], silent)
    assert connection.execute("select count(*) from store_event").fetchone() == written


def test_a_type_that_is_not_applied_is_refused(store: Deployment, connection: Connection) -> None:
    """The connector would send its rows to the dead letter topic."""
    aggregates = {**store.pipeline.aggregates, "later": store.pipeline.aggregates["plain"]}
    changed = replace(store, pipeline=store.pipeline.model_copy(update={"aggregates": aggregates}))
    for write in (partial(backfill, changed, ["plain", "later"]), partial(republish, changed, "later", ["1"])):
        with pytest.raises(RefusedError, match="later of the pipeline file has not been applied"):
            write(silent)
    assert outbox_rows(connection, "later") == []


def with_slot(deployment: Deployment, name: str, lock_folder: Path) -> Deployment:
    """Simulate a deployment with a slot that does not exist in the database."""
    source = deployment.pipeline.source.model_copy(update={"slot": name})
    changed = replace(
        deployment,
        pipeline=deployment.pipeline.model_copy(update={"source": source}),
        environment=deployment.environment.model_copy(update={"lock_folder": lock_folder}),
    )
    lock = deployment.lock()
    assert lock is not None
    assert lock.source is not None
    changed.write_lock(lock.model_copy(update={"source": lock.source.model_copy(update={"slot": name})}))
    return changed


def test_commands_and_grants_of_the_guide_work(
    library: Deployment, project: Path, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "keys.txt").write_text("00000000-0000-0000-0000-00000000dead\n")
    [visible] = re.findall(r"--key (\S+)", GUIDE)
    with workload.connect(source_dsn) as connection:
        workload.create_tables(connection)
        author = changes.add_author(connection, Author("Ursula"))
        changes.add_book(connection, author, Book("Lavinia", Decimal(1)), UUID(visible))
        for statement in re.findall(r"^grant .*?;", GUIDE, re.MULTILINE):
            connection.execute(statement)
    commands = re.findall(r"^outbox (.*?)(?: *#.*)?$", GUIDE, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        confirmation = ["--yes"] if "--tombstones" in command else []
        in_process(library)(*shlex.split(command), *confirmation)


def test_backfill_writes_the_payloads_of_the_service(library: Deployment, source_dsn: str) -> None:
    outbox = in_process(library)
    with workload.connect(source_dsn) as connection:
        workload.create_tables(connection)
        author = changes.add_author(connection, Author("Ursula", born=date(1929, 10, 21), pen_names=["U. K."]))
        book = changes.add_book(connection, author, Book("Lavinia ${x}", Decimal("12.50"), tags=["ä"]))
        connection.commit()
        done = outbox("backfill", "--restart", "--output", "json")
        assert [(item["aggregate_type"], item["skipped"]) for item in json.loads(done.stdout)["aggregates"]] == [
            ("author", 0),
            ("book", 0),
        ]
        outbox("republish", "book", "--key", str(book))
        for aggregate_type, key, times in (("author", author, 1), ("book", book, 2)):
            rows = connection.execute(
                "select payload, id::text from outbox_event where aggregate_id = %s order by seq", (str(key),)
            ).fetchall()
            assert len(rows) == 1 + times
            assert all(row["payload"] == rows[0]["payload"] for row in rows)
            first = wait_record(library, f"library.{aggregate_type}", 4, rows[0]["id"])
            last = wait_record(library, f"library.{aggregate_type}", 4, rows[-1]["id"])
            assert (first.key(), first.value(), first.partition()) == (last.key(), last.value(), last.partition())
    outbox("republish", "author", "--keys-from", "-", "--output", "json", code=2)
    removed = outbox("republish", "author", "--key", "00000000-0000-0000-0000-000000000000", code=1)
    assert "1 key not written: 00000000-0000-0000-0000-000000000000 (no row in library.author" in removed.stderr
