"""`outbox stuck` on the embedded stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from tests.integration.support import Deploy, in_process, live_keys, records, run_remedy, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_events.kafka.record import text_headers
from outbox_events.waiting import Observation, wait_for
from outbox_kit.cli.options import CommonOptions
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment
from outbox_kit.postgres import aggregate_queries
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import connected
from outbox_kit.postgres.replication_slot import wait_inactive
from outbox_kit.results import silent
from outbox_kit.results.checks import Check, Status
from outbox_kit.stack import Stack
from outbox_kit.verification import comparison_of, state_checks

NAME, TOPIC, TABLE = "stuck", "stuck.book", "public.stuck_event"
# A parameter that outbox-kit sets, a literal `%`, and a comment that must not include the next line.
QUERY = "select id as aggregate_id, state as payload from stuck_book where id = any(:keys) and id not like 'x%' -- end"


@pytest.fixture(scope="module")
def pipeline(stack: Stack, deploy_once: Deploy, source_dsn: str) -> Deployment:
    """Books have a business table; authors do not."""
    del stack
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table stuck_book (id text primary key, state jsonb)")
    load = {"table": "public.stuck_book", "key": "id", "query": QUERY}
    aggregates = {
        "author": {"schema": "schemas/author.avsc", "partitions": 1},
        "book": {"schema": "schemas/book.avsc", "partitions": 4, "backfill": load},
    }
    deployment = deploy_once(NAME, aggregates=aggregates)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(SERVICE)
    return deployment


ListReasons = Callable[..., dict[str, str]]
# The business table has the state of the newest event, as if the service had written both in one transaction.
SERVICE = f"""
    create function stuck_service() returns trigger language plpgsql as $$ begin
      delete from stuck_book where id = new.aggregate_id;
      insert into stuck_book select new.aggregate_id, new.payload where new.payload is not null;
      return null;
    end $$;
    create trigger stuck_service after insert on {TABLE} for each row when (new.aggregate_type = 'book')
    execute function stuck_service()"""


@pytest.fixture
def list_reasons(pipeline: Deployment) -> ListReasons:
    """Return the reasons that the command lists, by key. Check that it exits with 1 if it lists any."""

    def keys(code: int, older_than: str = "0.1") -> dict[str, str]:
        done = in_process(pipeline)("stuck", "--older-than", older_than, "--output", "json", code=code)
        return {entry["key"]: entry["kind"] for entry in json.loads(done.stdout)["stuck"]}

    return keys


def stop(pipeline: Deployment) -> None:
    """Stop the connector and wait until its task has ended, because Connect reports STOPPED earlier."""
    connect_lifecycle.stop(pipeline.connect, NAME)
    with connected(pipeline.environment.source) as connection:
        wait_inactive(connection, pipeline.pipeline.source.slot)


def check_states(pipeline: Deployment) -> dict[str, Check]:
    """Run the checks of `verify --states`."""
    comparison = comparison_of(pipeline, seconds=60, max_records=100_000)
    return {check.id: check for check in state_checks.check(comparison, silent)}


def send_at(dsn: str, key: str, created_at: str, payload: object = None) -> str:
    """Write a state of a book with this created_at, and return its event id."""
    query = f"""insert into {TABLE} (aggregate_type, aggregate_id, event_type, payload, created_at)
                values ('book', %s, 'changed', %s, %s) returning id::text"""
    with psycopg.connect(dsn) as connection:
        text = json.dumps(payload or book(key, price=1))
        [(event,)] = connection.execute(query, (key, text, created_at)).fetchall()
    return str(event)


def wait_old_enough(pipeline: Deployment) -> None:
    """Wait until each row is older than the default age of `list_reasons`."""
    query = """select coalesce(max(created_at) < clock_timestamp() - interval '0.1 s', true) as old from stuck_event
               where created_at < '2090-01-01'"""
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
    # `never` has no state anywhere, so the topic and the database agree.
    assert list_reasons(1) == {old: "stale", new: "missing", removed: "stale"}
    # The command waits for states that are missing in the business table, so the table is complete here.
    keep(source_dsn, old, removed)
    assert list_reasons(0, "3600") == {}
    pipeline.connect.resume(NAME)
    connect_lifecycle.wait_for_state(pipeline.connect, NAME)
    wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", never, None, table=TABLE))
    keep(source_dsn, old, new)
    wait_old_enough(pipeline)
    assert list_reasons(0) == {}


def test_a_future_created_at_confirms_nothing(pipeline: Deployment, list_reasons: ListReasons, source_dsn: str) -> None:
    """If times were compared, the record of the first event would be newer than every later row."""
    key, other = str(uuid4()), str(uuid4())
    wait_record(pipeline, TOPIC, 4, send_at(source_dsn, key, "2099-01-01"))
    assert list_reasons(0) == {}
    stop(pipeline)
    events = [send(source_dsn, "book", key, book(key, pages=2), table=TABLE), send_at(source_dsn, other, "2099-01-01")]
    wait_old_enough(pipeline)
    assert list_reasons(1) == {key: "stale", other: "missing"}
    pipeline.connect.resume(NAME)
    connect_lifecycle.wait_for_state(pipeline.connect, NAME)
    for event in events:
        wait_record(pipeline, TOPIC, 4, event)
    assert list_reasons(0) == {}


def test_a_frequently_changed_aggregate_is_listed(
    pipeline: Deployment, list_reasons: ListReasons, source_dsn: str
) -> None:
    """The newest row of the aggregate is always young, but an earlier row has not arrived, either."""
    key = str(uuid4())
    stop(pipeline)
    send_at(source_dsn, key, "2000-01-01")
    event = send(source_dsn, "book", key, book(key, pages=2), table=TABLE)
    assert list_reasons(1, "2") == {key: "missing"}
    pipeline.connect.resume(NAME)
    connect_lifecycle.wait_for_state(pipeline.connect, NAME)
    wait_record(pipeline, TOPIC, 4, event)
    assert list_reasons(0) == {}


def test_without_seq_rows_are_ordered_by_transaction(
    pipeline: Deployment, list_reasons: ListReasons, source_dsn: str
) -> None:
    key = str(uuid4())
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("alter table stuck_event rename column seq to number")
        try:
            wait_record(pipeline, TOPIC, 4, send_at(source_dsn, key, "2099-01-01"))
            wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", key, book(key, pages=2), table=TABLE))
            wait_old_enough(pipeline)
            assert key not in list_reasons(0)
            wait_record(pipeline, TOPIC, 4, send_at(source_dsn, key, "2000-01-01"))
            assert key not in list_reasons(0)
        finally:
            connection.execute("alter table stuck_event rename column number to seq")


@pytest.mark.parametrize(
    ("module", "name"), [(postgres_client, "read_insert_position"), (aggregate_queries, "latest_events")]
)
def test_a_record_after_the_rows_confirms_by_its_position(
    pipeline: Deployment,
    list_reasons: ListReasons,
    source_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    name: str,
) -> None:
    """A state that arrives while the tables are compared has no row among the rows that were read."""
    key = str(uuid4())
    send(source_dsn, "book", key, book(key), table=TABLE)
    wait_old_enough(pipeline)
    read = getattr(module, name)

    def send_another(*arguments: object, **options: object) -> object:
        result = read(*arguments, **options)
        wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", key, book(key, pages=3), table=TABLE))
        return result

    monkeypatch.setattr(module, name, send_another)
    assert list_reasons(0) == {}


@pytest.mark.parametrize("identifier", ["states.complete", "states.dead-letters"])
def test_remedies_heal_acknowledged_dead_letters_of_stale_aggregates(
    pipeline: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch, identifier: str
) -> None:
    monkeypatch.setattr(state_checks, "OLDER_THAN_S", 0.1)
    key = str(uuid4())
    wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", key, book(key), table=TABLE))
    # `stuck` compares only rows of some age. Every aggregate has a business row, so that no state is a ghost.
    keep(source_dsn, *live_keys(pipeline, TOPIC, 4))
    event = send_at(source_dsn, key, "2000-01-01", {"id": key})  # does not match any schema version
    wait_record(pipeline, pipeline.pipeline.dead_letter_topic, 1, event)
    in_process(pipeline)("dead-letter", "acknowledge", "--all", "--yes")
    wait_old_enough(pipeline)
    failed = check_states(pipeline)
    assert {name for name, check in failed.items() if check.status is Status.FAIL and key in check.seen} == {
        "states.complete",
        "states.dead-letters",
    }
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("update stuck_book set state = %s where id = %s", (json.dumps(book(key, price=1)), key))
        file = pipeline.templates.parent / f"{NAME}.yaml"
        run_remedy(failed[identifier], CommonOptions(file, pipeline.environment.name).arguments, connection.execute)
        [(event,)] = connection.execute("select id::text from stuck_event order by seq desc limit 1").fetchall()
    wait_record(pipeline, TOPIC, 4, event)
    wait_old_enough(pipeline)
    assert {name: check.status for name, check in check_states(pipeline).items()} == {
        "states.compared": Status.WARN,  # authors
        "states.complete": Status.PASS,
        "states.equal": Status.PASS,
        "states.schema-ids": Status.PASS,
        "states.dead-letters": Status.PASS,
        "states.source-sequence": Status.PASS,
    }


def test_remedy_heals_records_of_another_producer(
    pipeline: Deployment, list_reasons: ListReasons, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is an older record after the newest one, as from MirrorMaker, and a state in another hash's partition."""
    monkeypatch.setattr(state_checks, "OLDER_THAN_S", 0.1)
    overwritten, deleted, misplaced = str(uuid4()), str(uuid4()), str(uuid4())
    first = wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", overwritten, book(overwritten), table=TABLE))
    tombstone = wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", deleted, None, table=TABLE))
    states = {key: book(key, price=2) for key in (overwritten, deleted, misplaced)}
    for key, state in states.items():
        newest = wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", key, state, table=TABLE))
    keep(source_dsn, *live_keys(pipeline, TOPIC, 4))
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        for key, state in states.items():
            connection.execute("update stuck_book set state = %s where id = %s", (json.dumps(state), key))
    producer = Producer({"bootstrap.servers": pipeline.environment.kafka.bootstrap_servers, "log_level": 0})
    wrong_partition = (newest.partition() + 1) % 4
    for record, partition in (
        (first, first.partition()),
        (tombstone, tombstone.partition()),
        (newest, wrong_partition),
    ):
        producer.produce(TOPIC, record.value(), record.key(), partition, headers=record.headers())
    assert producer.flush(10) == 0
    wait_old_enough(pipeline)
    assert list_reasons(1) == {overwritten: "overwritten", deleted: "overwritten", misplaced: "misplaced"}
    file = pipeline.templates.parent / f"{NAME}.yaml"
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        failed = check_states(pipeline)["states.complete"]
        run_remedy(failed, CommonOptions(file, pipeline.environment.name).arguments, connection.execute)
        [(event,)] = connection.execute("select id::text from stuck_event order by seq desc limit 1").fetchall()
    wait_record(pipeline, TOPIC, 4, event)
    [written] = [item for item in records(pipeline, TOPIC, 4) if item.key() == newest.key() and item.value() is None]
    # Tables that are ordered by source_sequence do not accept a record without this header.
    assert text_headers(written)["source_sequence"] == "0000_0000000000000000-0000000000000000"
    assert text_headers(written).keys() <= text_headers(newest).keys()
    wait_old_enough(pipeline)
    assert check_states(pipeline)["states.complete"].status is Status.PASS


def test_remedy_heals_a_restarted_sequence(
    pipeline: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest rows of an aggregate have a lower `seq` than its earlier rows, even if they are sent again."""
    monkeypatch.setattr(state_checks, "OLDER_THAN_S", 0.1)
    key = str(uuid4())
    for statement in ("", "", "", "", "alter table stuck_event alter column seq restart with 1"):
        with psycopg.connect(source_dsn, autocommit=True) as connection:
            connection.execute(statement)
        wait_record(pipeline, TOPIC, 4, send_at(source_dsn, key, "2000-01-01"))
    keep(source_dsn, *live_keys(pipeline, TOPIC, 4))
    failed = check_states(pipeline)["states.complete"]
    assert f"book {key} (stale)" in failed.seen
    file = pipeline.templates.parent / f"{NAME}.yaml"
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("update stuck_book set state = %s where id = %s", (json.dumps(book(key, price=1)), key))
        run_remedy(failed, CommonOptions(file, pipeline.environment.name).arguments, connection.execute)
        [(event,)] = connection.execute("select id::text from stuck_event order by seq desc limit 1").fetchall()
    wait_record(pipeline, TOPIC, 4, event)
    wait_old_enough(pipeline)
    assert check_states(pipeline)["states.complete"].status is Status.PASS


def test_remedy_heals_records_ahead_of_the_source(
    pipeline: Deployment, list_reasons: ListReasons, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another environment's connector wrote states with a higher epoch, and states with LSNs after the source's."""
    monkeypatch.setattr(state_checks, "OLDER_THAN_S", 0.1)
    prefixes = ("0009_", "0001_ffffffff", "0009_", "0009_")
    later_epoch, later_lsn, foreign, equal = keys = [str(uuid4()) for _ in prefixes]
    states = {key: book(key, price=1) for key in keys}
    newest = {
        key: wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", key, state, table=TABLE))
        for key, state in states.items()
    }
    event = send(source_dsn, "book", later_epoch, book(later_epoch, price=9), table=TABLE)
    other = wait_record(pipeline, TOPIC, 4, event)
    keep(source_dsn, *live_keys(pipeline, TOPIC, 4))
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        # The remedy sends every aggregate again.
        text = json.dumps(states[equal])
        connection.execute("update stuck_book set state = %s::jsonb || jsonb_build_object('id', id)", (text,))
        connection.execute("delete from stuck_event where aggregate_id = any(%s)", (keys,))
        connection.execute("delete from stuck_book where id = %s", (foreign,))
    producer = Producer({"bootstrap.servers": pipeline.environment.kafka.bootstrap_servers, "log_level": 0})
    for key, prefix in zip(keys, prefixes, strict=True):
        record = newest[key]
        value = record.value() if key in (foreign, equal) else other.value()
        sequence = prefix + text_headers(record)["source_sequence"][len(prefix) :]
        headers = [*text_headers(record).items(), ("source_sequence", sequence), ("event_id", str(uuid4()))]
        producer.produce(TOPIC, value, key, record.partition(), headers=list(dict(headers).items()))
    assert producer.flush(10) == 0
    expected = {later_epoch: "different", later_lsn: "different", foreign: "ghost", equal: "ahead"}
    assert list_reasons(1).items() >= expected.items()
    in_process(pipeline)("stuck", "--older-than", "0.1", "--resend", "--max-deletions", "1", "--yes", code=1)
    file = pipeline.templates.parent / f"{NAME}.yaml"
    failed = check_states(pipeline)
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        run_remedy(
            failed["states.complete"], CommonOptions(file, pipeline.environment.name).arguments, connection.execute
        )
        [(event,)] = connection.execute("select id::text from stuck_event order by seq desc limit 1").fetchall()
    wait_record(pipeline, TOPIC, 4, event)
    wait_old_enough(pipeline)
    checks = check_states(pipeline)
    statuses = {name: checks[name].status for name in ("states.complete", "states.equal")}
    assert statuses == dict.fromkeys(statuses, Status.PASS), checks["states.complete"].seen
    assert foreign not in live_keys(pipeline, TOPIC, 4)


def test_compares_by_the_business_table_when_the_outbox_is_empty(
    pipeline: Deployment, list_reasons: ListReasons, source_dsn: str
) -> None:
    with_event, without_event, deleted = (str(uuid4()) for _ in range(3))
    for key in (with_event, deleted):
        wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", key, book(key), table=TABLE))
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("delete from stuck_event")
    others = set(live_keys(pipeline, TOPIC, 4)) - {deleted}
    # The query excludes ids that start with x, which are not aggregates.
    keep(source_dsn, *others, without_event, "xyz")
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("update stuck_book set state = %s where id = %s", ('{"pages": 77}', sorted(others)[0]))
    changed = {sorted(others)[0]: "different"}
    assert list_reasons(1, "1") == {without_event: "missing", deleted: "ghost", **changed}
    keep(source_dsn, *others, deleted)
    assert list_reasons(0, "1") == {}


def test_names_why_a_state_has_no_aggregate(
    pipeline: Deployment, source_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either a foreign key deleted the business row, or a migration of the service changed the form of the keys."""
    monkeypatch.setattr(state_checks, "OLDER_THAN_S", 0.1)
    new_form = str(uuid4())
    old_form = new_form.upper()
    wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", old_form, book(old_form), table=TABLE))
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table stuck_shelf (id text primary key)")
        connection.execute("alter table stuck_book add shelf text references stuck_shelf on delete cascade")
        try:
            connection.execute("update stuck_book set id = %s where id = %s", (new_form, old_form))
            check = check_states(pipeline)["states.complete"]
        finally:
            connection.execute("alter table stuck_book drop column shelf; drop table stuck_shelf")
            connection.execute("delete from stuck_book where id = %s", (new_form,))
    assert f"topic {TOPIC} has keys in a different form than the database: {old_form!r}, not {new_form!r}" in check.seen
    assert "foreign key stuck_book_shelf_fkey (ON DELETE CASCADE) deletes rows of public.stuck_book" in check.seen
    wait_record(pipeline, TOPIC, 4, send(source_dsn, "book", old_form, None, table=TABLE))


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
