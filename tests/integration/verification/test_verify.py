"""Each check is made to fail once, and verify reports exactly that check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import yaml
from confluent_kafka import Producer
from tests.integration.support import in_process, records
from tests.integration.verification import breakages as b
from tests.integration.verification.bench import AUTHOR_STATES, AUTHORS, BOOK_STATES, BOOKS, Bench
from tests.integration.verification.breakages import (
    STOPPED,
    STUCK,
    Breakage,
    environment,
    live,
    lock,
    sql,
    together,
    topic,
)
from tests.remedies import commands_of
from tests.variations import variations

from outbox_events.errors import RefusedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import checks as connect_checks
from outbox_kit.deployment import apply, open_deployment
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres import slot_checks
from outbox_kit.results import silent
from outbox_kit.results.checks import Check, Status
from outbox_kit.verification import canary, recent_rows, verify
from outbox_lab.documents.check_catalogue import DEFAULT_IDS as IDS
from outbox_lab.documents.check_reference import REMEDIES_RUN_BY_TESTS

FOR_EVER = str(2**63 - 1)
REJECTED = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.NotNullViolation)
PREFIX = "transforms.outbox.aggregate."
CONFIG_CHANGES = {
    "connect.config": {"max.batch.size": "1000", "skipped.operations": "c"},
    "connect.placeholders": {"producer.override.client.id": "${env:OUTBOX_NOT_SET}"},
    "connect.exactly-once": {"exactly.once.support": "requested"},
    "path.producer-gives-up": {"producer.override.max.block.ms": FOR_EVER},
}


def change_config_and_topic(bench: Bench) -> None:
    """Make all changes to the config in one step, because each restarts the task."""
    bench.topic_setting(bench.topic("author"), "unclean.leader.election.enable", "true")
    bench.change_config(**{key: value for changes in CONFIG_CHANGES.values() for key, value in changes.items()})


# The order is arbitrary, because each case restores the state.
BREAKAGES = [
    # the source database
    environment("postgres.reachable", "source", ("connect.config",), port=1),
    lock("postgres.identity", lambda data: data["source"].update(system_identifier="1")),
    sql(
        "postgres.connector-role",
        "revoke select on {table} from outbox_connector",
    ),
    sql(
        "postgres.connector-role",
        "alter role outbox_connector valid until '2020-01-01'",
        follows=("connect.valid",),
        note="expired",
    ),
    sql(
        "postgres.table",
        "alter table {table} rename column headers to h",
        note="renamed column",
    ),
    sql(
        "postgres.table",
        "drop table {table}",
        follows=("postgres.key-not-empty", "postgres.publication"),
        note="dropped",
    ),
    sql(
        "postgres.table",
        "drop schema checked cascade",
        follows=("postgres.key-not-empty", "postgres.publication"),
        note="dropped with its schema",
    ),
    sql("postgres.table", "alter table {table} alter column payload type json", note="type"),
    lock("postgres.table-identity", lambda data: data["source"].update(table_oid=1)),
    Breakage(
        "postgres.other-tables",
        b.other_tables("create table other.checked_event (like {table} including all)"),
        heals=True,
        note="in another schema",
    ),
    Breakage(
        "postgres.other-tables",
        b.other_tables("create table other.checked_event (seq bigint generated always as identity) inherits ({table})"),
        heals=True,
        note="by inheritance",
    ),
    sql(
        "postgres.not-null",
        "alter table {table} alter column created_at drop not null",
    ),
    sql(
        "postgres.key-not-empty",
        "alter table {table} drop constraint checked_event_aggregate_id_check",
    ),
    Breakage("postgres.row-sequence", b.restarted_sequence, heals=True),
    Breakage(
        "postgres.partition-field", b.key_in_two_partitions, lambda bench: bench.sql(f"delete from {bench.table}")
    ),
    sql(
        "postgres.triggers",
        "create function nulls() returns trigger language plpgsql as 'begin new.payload = null; return new; end'; "
        "create trigger nulls before insert on {table} for each row execute function nulls()",
        "drop function nulls cascade",
        ("canary.record",),
        canary=30,
        heals=True,
    ),
    sql(
        "postgres.rules",
        "create rule drops as on insert to {table} do instead nothing",
        follows=("canary.delivered",),
        canary=10,
    ),
    Breakage("postgres.prepared-transactions", b.old_prepared_transaction, heals=True),
    Breakage("postgres.free-slots", b.use_all_slots),
    Breakage("path.unread-slots", b.leftover_slots, heals=True),
    Breakage("postgres.free-wal-senders", b.use_all_senders),
    Breakage(
        "postgres.wal-level",
        lambda bench, _: bench.server_setting("wal_level", "replica"),
        lambda bench: bench.server_setting("wal_level", None),
        heals=True,
    ),
    Breakage(
        "postgres.idle-slot-timeout",
        lambda bench, _: bench.server_setting("idle_replication_slot_timeout", "'1h'"),
        lambda bench: bench.server_setting("idle_replication_slot_timeout", None),
        heals=True,
    ),
    # publication and slot
    sql(
        "postgres.publication",
        "alter publication {publication} set (publish = 'insert, update')",
    ),
    sql(
        "postgres.publication-filter",
        "alter publication {publication} set table {table} where (aggregate_type <> 'author')",
        note="rows",
    ),
    Breakage("postgres.publication-filter", b.column_list, follows=STOPPED, heals=True, note="columns: the task fails"),
    Breakage(
        "postgres.publication",
        b.publication_of_all_tables,
        follows=("postgres.publication-older-than-slot",),
        heals=True,
        note="of all tables",
    ),
    Breakage("postgres.publication-older-than-slot", b.recreated_publication, heals=True),
    Breakage("postgres.slot", b.dropped_slot, follows=("connect.running",), heals=True),
    Breakage(
        "postgres.slot",
        b.slot_of_another_database,
        follows=(*STOPPED, "path.offset-covers-slot"),
        heals=True,
        note="of another database",
    ),
    Breakage(
        "postgres.slot",
        b.slot_with_another_plugin,
        follows=(*STOPPED, "path.offset-covers-slot"),
        heals=True,
        note="with another plugin",
    ),
    Breakage("postgres.slot-wal", b.lost_slot, follows=STOPPED, heals=True),
    lock("postgres.slot-identity", lambda data: data["source"].update(slot_lsn="FFFFFF/0")),
    Breakage("postgres.slot-active", b.another_reader, follows=("connect.running",), heals=True),
    Breakage("postgres.slot-retained", lambda _, patch: patch.setattr(slot_checks, "RETAINED_MB_WITHOUT_LIMIT", 0)),
    # Kafka
    environment("kafka.reachable", "kafka", bootstrap_servers=b.UNUSED_ADDRESS),
    environment("kafka.cluster", "kafka", cluster_id="another"),
    Breakage(
        "kafka.topics",
        b.missing_topic,
        follows=STUCK[:2],
        may_follow=("connect.offsets", STUCK[2]),
        heals=True,
        note="and a row: the task hangs as RUNNING",
    ),
    Breakage(
        "kafka.topics",
        b.missing_heartbeat_topic,
        follows=STUCK[:1],
        may_follow=("connect.offsets", STUCK[2]),
        heals=True,
        note="heartbeat",
    ),
    # The records of rows that are older than 60 s were deleted with the topic. The task fails if one of its requests
    # contains a partition of the deleted topic and another partition.
    Breakage(
        "kafka.topic-identity",
        b.another_topic,
        may_follow=("path.recent-rows", "connect.running", "postgres.slot-active"),
        heals=True,
    ),
    Breakage("kafka.keys-partition", b.state_in_another_partition, b.recreate_book_topic),
    Breakage("kafka.open-transactions", b.open_transaction),
    topic("kafka.cleanup-policy", "cleanup.policy", "delete"),
    Breakage("kafka.partitions", b.additional_partition, b.recreate_author_topic, follows=("path.partitions",)),
    # The remedy also sends the states that the previous case has deleted.
    lock("kafka.pending-backfill", lambda data: data["topics"]["checked.author"].update(pending_backfill="required")),
    environment("kafka.replication", "kafka", ("connect.internal-topics",), replication_factor=2),
    *together(
        "topic settings",
        topic("path.record-size", "max.message.bytes", "2000"),  # its remedy also restarts the connector
        topic("kafka.min-insync", "min.insync.replicas", "2"),
        topic("kafka.timestamp-limit", "message.timestamp.after.max.ms", "1000"),
        replace(topic("kafka.timestamp-limit", "message.timestamp.before.max.ms", "600000"), note="past"),
        topic("kafka.topic-settings", "retention.ms", "60000", aggregate="dead-letter"),
    ),
    Breakage("kafka.dead-letters", b.dead_letter, heals=True),
    Breakage("kafka.dead-letters", b.removed_dead_letter, heals=True, note="removed"),
    Breakage(
        "connect.internal-topics",
        lambda bench, _: bench.topic_setting("outbox-connect-offsets", "cleanup.policy", "delete"),
        follows=("connect.offsets",),  # Connect does not read offsets from a topic that is not compacted
        heals=True,
    ),
    # registry
    Breakage("registry.reachable", view=b.no_registry),
    Breakage("registry.schemas", view=b.different_schema),
    lock("path.interrupted", lambda data: data.update(unfinished="update")),
    lock("registry.ids", lambda data: data["schemas"]["author"][0].update(id=9999), follows=("connect.config",)),
    Breakage(
        "registry.compatibility",
        lambda bench, _: bench.deployment.registry.set_compatibility("checked.author-value", "NONE"),
        heals=True,
    ),
    # Connect
    Breakage("connect.reachable", view=b.no_connect),
    Breakage("connect.plugins", view=b.missing_transform, follows=("connect.config",)),
    Breakage("connect.smt-version", lambda _, patch: patch.setattr(connect_checks, "__version__", "99.0.0")),
    environment("connect.workers", "connect", workers=[f"http://{b.UNUSED_ADDRESS}"]),
    Breakage(
        "connect.connector",
        lambda bench, _: (bench.stop(), bench.connector("DELETE", bench.name)),
        follows=("postgres.slot-active",),
        heals=True,
    ),
    Breakage("connect.running", lambda bench, _: bench.stop(), follows=STOPPED, heals=True),
    Breakage("connect.running", b.failed_task, follows=("postgres.slot-active",), heals=True, note="FAILED"),
    Breakage("connect.valid", b.wrong_password),
    *together(
        "connector config",
        *(live(check, changes) for check, changes in CONFIG_CHANGES.items()),
        # Its remedy also needs the command that sends the states again.
        topic("kafka.unclean-election", "unclean.leader.election.enable", "true"),
        break_=change_config_and_topic,
    ),
    Breakage("connect.exclusive", b.second_connector, heals=True),
    Breakage("connect.offsets", b.no_offset, follows=STOPPED, heals=True),
    Breakage("connect.restarts", on_progress=b.restart),
    # comparisons of one system with another
    Breakage("path.partitions", b.partition_too_high, follows=("connect.config", *STUCK), heals=True),
    live("path.schema-ids", {f"{PREFIX}author.schema.1.id": "9999"}),
    Breakage("path.offset-not-ahead", b.stopped_at(2**50), follows=STOPPED, heals=True),
    Breakage("path.offset-covers-slot", b.stopped_at(None, advance=True), follows=STOPPED, heals=True),
    sql(
        "path.wal-sender-timeout",
        "alter role outbox_connector set wal_sender_timeout = '5s'",
    ),
    Breakage(
        "path.wal-sender-timeout",
        b.slow_acknowledgements,
        b.restore_acknowledgements,
        follows=("kafka.topics", "postgres.slot-active"),
        note="for real: the server cuts the connector off, which says RUNNING",
    ),
    # the canary
    Breakage(
        "canary.delivered",
        lambda bench, _: bench.sql(
            f"alter table {bench.table} add column needed int not null default 1",
            f"alter table {bench.table} alter column needed drop default",
        ),
        lambda bench: bench.sql(f"alter table {bench.table} drop column needed"),
        canary=10,
        heals=True,
    ),
    live("canary.record", {"transforms.outbox.source.epoch": "0"}, canary=30),
    Breakage("canary.latency", lambda _, patch: patch.setattr(canary, "MAX_LATENCY_S", 0), canary=30),
]
NOT_BROKEN_HERE = {
    "postgres.primary": "a standby is another server: tests/unit/postgres/test_checks.py",
    "postgres.row-security": "the login of the stack is a superuser: test_verify_postgres.py",
    "postgres.clock": "a server's clock cannot be set: tests/unit/postgres/test_checks.py",
    "postgres.slot-failover": "on a separate server: test_verify_postgres.py",
    "kafka.in-sync": "the stack has one broker, without which nothing answers: tests/unit/kafka/test_checks.py",
    "connect.cluster": "the stack has one Kafka cluster: tests/unit/connect/test_checks.py",
    "connect.debezium-version": "the stack has one version of Debezium: tests/unit/connect/test_checks.py",
    "canary.partition": "OutboxRouter sets it itself, no setting can move it: tests/unit/verification/test_canary.py",
    "canary.tombstone": "no setting makes the router send another value: tests/unit/verification/test_canary.py",
}


@pytest.fixture(scope="module")
def bench(make_pipeline: Callable[..., Path], project: Path, source_dsn: str) -> Iterator[Bench]:
    """A pipeline with a partition_field, five heartbeats per second, and one worker in the environment file."""
    folder = project / "connectors" / "environments"
    data = yaml.safe_load((folder / "local.yaml").read_text())
    data |= {
        "name": "quick",
        "connector": {"heartbeat_interval_ms": 200, "poll_interval_ms": 50},
    }
    (folder / "quick.yaml").write_text(yaml.safe_dump(data))
    library = yaml.safe_load((project / "connectors" / "library.yaml").read_text())
    author = library["aggregates"]["author"]
    author["partition_field"] = "region"
    author["backfill"] = {"table": AUTHORS, "key": "id", "query": f"{AUTHOR_STATES} where id = any(:keys)"}
    library["aggregates"]["book"]["backfill"] |= {"table": BOOKS, "query": BOOK_STATES}
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute(f"create table {AUTHORS} (id uuid primary key, name text)")
        connection.execute(f"create table {BOOKS} (id uuid primary key)")  # remains empty
    # The outbox table has its own schema, which a case drops.
    source = {"table": "checked.checked_event", "publication": "checked_p", "slot": "checked_s"}
    path = make_pipeline("checked", aggregates=library["aggregates"], source=source)
    with open_deployment(path, "quick") as deployment:
        apply(deployment, silent)
        connect = deployment.environment.connect
        connect = connect.model_copy(update={"workers": [connect.url]})
        actual = replace(deployment, environment=deployment.environment.model_copy(update={"connect": connect}))
        created = Bench(actual, source_dsn, path)
        created.wait_running()
        yield created


# Each of these checks is made to fail and healed by its own test.
HEALED_BY_OWN_TEST = {"path.recent-rows", "path.empty-topics", "kafka.source-sequence"}


def test_every_check_has_a_breakage_or_a_reason() -> None:
    covered = [item.id for item in BREAKAGES] + [item for row in BREAKAGES for item in row.follows]
    covered += HEALED_BY_OWN_TEST
    assert set(IDS) - set(covered) == set(NOT_BROKEN_HERE)
    assert set(covered) <= set(IDS)
    assert not set(NOT_BROKEN_HERE) & set(covered)


def test_documentation_counts_the_remedies_that_are_run() -> None:
    run_here = {item.id for item in BREAKAGES if item.heals} | HEALED_BY_OWN_TEST
    assert run_here == {name for name in REMEDIES_RUN_BY_TESTS if not name.startswith("states.")}


def test_passes_while_nothing_is_broken(bench: Bench) -> None:
    checks = verify(bench.deployment, silent, canary_seconds=None)
    assert [check.id for check in checks] == IDS
    unknown = {check.id for check in checks if check.status is Status.UNKNOWN}
    unset = {"kafka.cluster"} if not (bench.deployment.lock() or pytest.fail("no lock")).cluster_id else set()
    assert unknown == {*unset, *(item for item in IDS if item.startswith("canary."))}
    assert {check.id for check in checks if check.status in (Status.FAIL, Status.WARN)} == set()


def test_remedy_heals_equal_states_in_two_partitions(bench: Bench) -> None:
    """With a partition_field, either state can be in the right partition until a newer record is sent.

    This test precedes the breakages, because the check samples only the oldest records of the topic.
    """
    key = bench.write_author("copied")
    bench.wait_authors()
    [record] = [item for item in records(bench.deployment, bench.topic("author"), 4) if item.key() == key.encode()]
    servers = bench.deployment.environment.kafka.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    other_partition = (record.partition() + 1) % 4
    producer.produce(bench.topic("author"), record.value(), record.key(), other_partition, headers=record.headers())
    assert producer.flush(60) == 0
    failing = bench.failing_checks(bench.deployment, None, silent)
    assert set(failing) == {"kafka.keys-partition"}
    # The topic has few states, so the share of tombstones exceeds the default limit.
    for command in commands_of(failing["kafka.keys-partition"].remedy):
        options = {"apply": ["--yes"], "stuck": ["--max-deletions", "100", "--yes"]}
        name, *arguments = command.split()[1:]
        in_process(bench.deployment)(name, *arguments, *options.get(name, []))
    assert bench.failing_checks(bench.deployment, None, silent) == {}
    newest = [item for item in records(bench.deployment, bench.topic("author"), 4) if item.key() == key.encode()]
    assert {item.partition(): item.value() is None for item in newest} == {
        record.partition(): False,
        other_partition: True,
    }


def test_remedy_heals_rows_that_another_client_confirmed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector was stopped and resumed outside outbox-kit, so that no other check finds the advanced slot."""
    monkeypatch.setattr(recent_rows, "OLDER_THAN_S", 0.01)
    bench.names.clear()
    changed = bench.write_author("before")
    bench.wait_authors()
    bench.stop()
    bench.write_author("changed while stopped", changed)
    added = bench.write_author("added while stopped")
    bench.sql(f"select pg_replication_slot_advance('{bench.slot}', pg_current_wal_lsn())")
    bench.resume()
    failing = bench.failing_checks(bench.deployment, None, silent)
    assert set(failing) == {"path.recent-rows"}
    seen = failing["path.recent-rows"].seen
    assert seen.startswith("2 lost rows: ")
    assert f"author {changed} (stale)" in seen
    assert f"author {added} (missing)" in seen
    bench.run_remedy(failing["path.recent-rows"])
    bench.wait_authors()
    assert bench.failing_checks(bench.deployment, None, silent) == {}


def test_remedy_fills_an_empty_topic(bench: Bench) -> None:
    bench.names.clear()
    bench.write_author("only in the business table")
    bench.wait_authors()
    bench.sql(f"delete from {bench.table}")
    bench.delete_topic(bench.topic("author"))
    bench.create_topic(bench.topic("author"))
    failing = bench.failing_checks(bench.deployment, None, silent)
    assert set(failing) == {"path.empty-topics"}
    bench.run_remedy(failing["path.empty-topics"])
    bench.wait_authors()
    assert bench.failing_checks(bench.deployment, None, silent) == {}


@pytest.mark.long
def test_remedy_removes_a_record_without_source_sequence(bench: Bench, request: pytest.FixtureRequest) -> None:
    """By default, the broker's log cleaner runs only every 15 s."""
    bench.broker_setting("log.cleaner.backoff.ms", "100")
    request.addfinalizer(lambda: bench.broker_setting("log.cleaner.backoff.ms", "15000"))
    bench.names.clear()
    key = bench.write_author("before")
    bench.wait_authors()
    topic = bench.topic("author")
    place = b.record_without_headers(bench, topic, key)
    failing = bench.failing_checks(bench.deployment, None, silent)
    assert set(failing) == {"kafka.source-sequence"}
    assert f"{topic} {place} ({key})" in failing["kafka.source-sequence"].seen
    bench.run_remedy(failing["kafka.source-sequence"])

    def poll() -> Observation[dict[str, Check]]:
        actual = bench.failing_checks(bench.deployment, None, silent)
        return Observation(None if "kafka.source-sequence" in actual else actual, ", ".join(actual))

    failing = wait_for("the log cleaner to remove the record", poll, seconds=60)
    assert set(failing) == {"kafka.topic-settings"}
    bench.run_remedy(failing["kafka.topic-settings"])
    assert bench.failing_checks(bench.deployment, None, silent) == {}
    bench.wait_authors()


@pytest.mark.parametrize(
    "case", variations(BREAKAGES, key=lambda case: case.group or case.id, name=lambda case: case.title)
)
def test_reports_exactly_what_is_broken(bench: Bench, case: Breakage, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.names.clear()
    try:
        changed = bench.write_author("before") if case.heals else None
        case.break_(bench, monkeypatch)
        if case.heals:
            with suppress(*REJECTED):  # the service's transaction fails, so there is no event
                bench.write_author("changed while broken", changed)
                bench.write_author("added while broken")
        actual = bench.failing_checks(case.view(bench), case.canary, lambda message: case.on_progress(bench, message))
        if case.heals:
            commands = {name: set(commands_of(actual[name].remedy)) for name in (case.id, *case.healed)}
            assert all(commands.values())
            assert all(others <= commands[case.id] for others in commands.values())
            bench.run_remedy(actual[case.id])
    finally:
        monkeypatch.undo()
        bench.cleanup.close()
        case.repair(bench)
    assert set(actual) - set(case.may_follow) == {case.id, *case.follows}, "\n".join(
        f"{c.id}: {c.seen}" for c in actual.values()
    )
    assert all(check.seen and check.expected and check.remedy for check in actual.values())
    assert len(IDS) == len(set(IDS))
    if case.heals:
        bench.write_author("after")
        bench.wait_running()
        assert bench.failing_checks(bench.deployment, case.canary, silent) == {}
        bench.wait_authors()


def test_remedy_of_a_missing_publication_sends_the_events(bench: Bench) -> None:
    """Events that were written without a publication are sent, not only the latest states."""
    bench.sql(f"drop publication {bench.publication}")
    key = bench.write_author("while the publication is missing")
    [check] = bench.failing_checks(bench.deployment, None, silent).values()
    assert check.id == "postgres.publication"
    bench.run_remedy(check)
    bench.wait_authors()
    newest = [item for item in records(bench.deployment, bench.topic("author"), 4) if item.key() == key.encode()]
    assert b"written" in [dict(item.headers() or [])["event_type"] for item in newest]
    bench.wait_running()
    assert bench.failing_checks(bench.deployment, None, silent) == {}


def test_remedy_names_the_constraint_that_rejects_the_canary(bench: Bench) -> None:
    bench.sql(f"alter table {bench.table} add constraint known_types check (aggregate_type = 'author') not valid")
    try:
        actual = bench.failing_checks(bench.deployment, 10, silent)
    finally:
        bench.sql(f"alter table {bench.table} drop constraint known_types")
    assert set(actual) == {"canary.delivered"}
    assert actual["canary.delivered"].remedy.startswith("change constraint known_types so that it accepts")


def test_names_the_prepared_transaction_that_blocks_a_new_slot(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_client, "SLOT_TIMEOUT_MS", 500)
    bench.sql("begin; select pg_current_xact_id(); prepare transaction 'orphan'")
    try:
        with (
            postgres_client.connected(bench.deployment.environment.source) as connection,
            pytest.raises(RefusedError, match="prepared transaction 'orphan'"),
        ):
            postgres_client.create_slot(connection, "blocked_s", failover=False)
    finally:
        bench.sql("rollback prepared 'orphan'")


def test_passes_after_the_repair(bench: Bench) -> None:
    """All breakages have been repaired, and the canary is delivered."""
    assert bench.failing_checks(bench.deployment, 60, silent) == {}
