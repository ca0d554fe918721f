"""Each check is broken once, and verify reports exactly that check."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.integration.verification import breakages as b
from tests.integration.verification.bench import Bench
from tests.integration.verification.breakages import STOPPED, STUCK, Breakage, environment, live, lock, sql, topic

from outbox_kit.connect import checks as connect_checks
from outbox_kit.deployment import apply, open_deployment
from outbox_kit.postgres import slot_checks
from outbox_kit.progress import silent
from outbox_kit.rules import Status
from outbox_kit.verification import canary, verify
from outbox_kit.verification.check_catalogue import IDS

VERIFY_SECONDS = 3
FOR_EVER = str(2**63 - 1)
PREFIX = "transforms.outbox.aggregate."

# The order is arbitrary: each case restores the state.
BREAKAGES = [
    # the source database
    environment("postgres.reachable", "source", ("connect.config",), port=1),
    lock("postgres.identity", lambda data: data["source"].update(system_identifier="1")),
    sql(
        "postgres.connector-role",
        "revoke select on {table} from outbox_connector",
        "grant select on {table} to outbox_connector",
    ),
    sql(
        "postgres.table",
        "alter table {table} rename column headers to h",
        "alter table {table} rename column h to headers",
    ),
    sql(
        "postgres.not-null",
        "alter table {table} alter column created_at drop not null",
        "alter table {table} alter column created_at set not null",
    ),
    sql(
        "postgres.key-not-empty",
        "alter table {table} drop constraint checked_event_aggregate_id_check",
        "alter table {table} add constraint checked_event_aggregate_id_check check (aggregate_id <> '')",
    ),
    Breakage(
        "postgres.partition-field", b.key_in_two_partitions, lambda bench: bench.sql(f"delete from {bench.table}")
    ),
    Breakage(
        "postgres.prepared-transactions",
        b.old_prepared_transaction,
        lambda bench: bench.sql("rollback prepared 'forgotten'"),
    ),
    Breakage("postgres.free-slots", b.use_all_slots),
    Breakage("postgres.free-wal-senders", b.use_all_senders),
    Breakage(
        "postgres.idle-slot-timeout",
        lambda bench, _: bench.server_setting("idle_replication_slot_timeout", "'1h'"),
        lambda bench: bench.server_setting("idle_replication_slot_timeout", None),
    ),
    # publication and slot
    sql(
        "postgres.publication",
        "alter publication {publication} set (publish = 'insert, update')",
        "alter publication {publication} set (publish = 'insert')",
    ),
    sql(
        "postgres.publication-filter",
        "alter publication {publication} set table {table} where (aggregate_type <> 'author')",
        "alter publication {publication} set table {table}",
        note="rows",
    ),
    sql(
        "postgres.publication-filter",
        "alter publication {publication} set table {table} (id, aggregate_type, aggregate_id, event_type, created_at)",
        "alter publication {publication} set table {table}",
        note="columns",
    ),
    Breakage("postgres.publication-older-than-slot", b.recreated_publication, b.accept_publication),
    Breakage("postgres.slot", b.dropped_slot, b.recover, follows=("connect.running",)),
    lock("postgres.slot-identity", lambda data: data["source"].update(slot_lsn="FFFFFF/0")),
    Breakage("postgres.slot-active", b.another_reader, lambda bench: bench.resume(), follows=("connect.running",)),
    Breakage("postgres.slot-retained", lambda _, patch: patch.setattr(slot_checks, "RETAINED_MB_WITHOUT_LIMIT", 0)),
    # Kafka
    environment("kafka.reachable", "kafka", bootstrap_servers=b.UNUSED_ADDRESS),
    environment("kafka.cluster", "kafka", cluster_id="another"),
    Breakage(
        "kafka.topics", b.missing_topic, b.recreate_topic, follows=STUCK, note="and a row: the task hangs as RUNNING"
    ),
    topic("kafka.cleanup-policy", "cleanup.policy", "delete"),
    Breakage("kafka.partitions", b.additional_partition, b.recreate_author_topic, follows=("path.partitions",)),
    environment("kafka.replication", "kafka", replication_factor=2),
    topic("kafka.min-insync", "min.insync.replicas", "2"),
    topic("kafka.timestamp-limit", "message.timestamp.after.max.ms", "1000"),
    topic("kafka.topic-settings", "retention.ms", "60000", aggregate="dead-letter"),
    Breakage("kafka.dead-letters", b.dead_letter, lambda bench: bench.acknowledge()),
    # registry
    Breakage("registry.reachable", view=b.no_registry),
    Breakage("registry.schemas", view=b.different_schema),
    lock("registry.ids", lambda data: data["schemas"]["author"][0].update(id=9999), follows=("connect.config",)),
    Breakage(
        "registry.compatibility",
        lambda bench, _: bench.deployment.registry.set_compatibility("checked.author-value", "NONE"),
        lambda bench: bench.deployment.registry.set_compatibility("checked.author-value", "BACKWARD"),
    ),
    # Connect
    Breakage("connect.reachable", view=b.no_connect),
    Breakage("connect.plugins", view=b.missing_transform, follows=("connect.config",)),
    Breakage("connect.smt-version", lambda _, patch: patch.setattr(connect_checks, "__version__", "99.0.0")),
    environment("connect.workers", "connect", workers=[f"http://{b.UNUSED_ADDRESS}"]),
    Breakage(
        "connect.connector",
        lambda bench, _: (bench.stop(), bench.connector("DELETE", bench.name)),
        b.apply_again,
        follows=("postgres.slot-active",),
    ),
    Breakage("connect.running", lambda bench, _: bench.stop(), lambda bench: bench.resume(), follows=STOPPED),
    live("connect.config", {"max.batch.size": "1000"}),
    Breakage("connect.valid", b.wrong_password),
    live("connect.placeholders", {"producer.override.client.id": "${env:OUTBOX_NOT_SET}"}),
    live("connect.exactly-once", {"exactly.once.support": "requested"}),
    Breakage("connect.exclusive", b.second_connector, lambda bench: bench.connector("DELETE", "twin")),
    Breakage("connect.offsets", b.no_offset, b.set_offset_and_resume, follows=STOPPED),
    Breakage("connect.restarts", on_progress=b.restart),
    # one system against another
    Breakage("path.partitions", b.partition_too_high, lambda bench: bench.restore_config(), ("connect.config", *STUCK)),
    topic("path.record-size", "max.message.bytes", "2000"),
    live("path.schema-ids", {f"{PREFIX}author.schema.1.id": "9999"}),
    Breakage("path.offset-not-ahead", b.stopped_at(2**50), b.set_offset_and_resume, follows=STOPPED),
    Breakage("path.offset-covers-slot", b.stopped_at(None, advance=True), b.set_offset_and_resume, follows=STOPPED),
    sql(
        "path.wal-sender-timeout",
        "alter role outbox_connector set wal_sender_timeout = '5s'",
        "alter role outbox_connector reset wal_sender_timeout",
    ),
    Breakage(
        "path.wal-sender-timeout",
        b.slow_acknowledgements,
        b.restore_acknowledgements,
        follows=("kafka.topics", "postgres.slot-active"),
        note="for real: the server cuts the connector off, which says RUNNING",
    ),
    live("path.producer-gives-up", {"producer.override.max.block.ms": FOR_EVER}),
    # the canary
    Breakage(
        "canary.delivered",
        lambda bench, _: bench.sql(
            f"alter table {bench.table} add column needed int not null default 1",
            f"alter table {bench.table} alter column needed drop default",
        ),
        lambda bench: bench.sql(f"alter table {bench.table} drop column needed"),
        canary=10,
    ),
    live("canary.record", {"transforms.outbox.source.epoch": "7"}, canary=30),
    Breakage("canary.latency", lambda _, patch: patch.setattr(canary, "MAX_LATENCY_S", 0), canary=30),
]
NOT_BROKEN_HERE = {
    "postgres.primary": "a standby is another server: tests/unit/postgres/test_checks.py",
    "postgres.wal-level": "a server with a logical slot does not start under another one: test_checks.py",
    "postgres.slot-wal": "a lost slot needs a separate server: test_verify_postgres.py",
    "postgres.slot-failover": "on a separate server: test_verify_postgres.py",
    "kafka.in-sync": "the stack has one broker, without which nothing answers: tests/unit/kafka/test_checks.py",
    "connect.cluster": "the stack has one Kafka cluster: tests/unit/connect/test_checks.py",
    "canary.partition": "OutboxRouter sets it itself, no setting can move it: tests/unit/verification/test_canary.py",
    "canary.tombstone": "no setting makes the router send another value: tests/unit/verification/test_canary.py",
}


@pytest.fixture(scope="module")
def bench(make_pipeline: Callable[..., Path], project: Path, source_dsn: str) -> Iterator[Bench]:
    """A pipeline with a partition_field, five heartbeats per second, and one worker in the environment file."""
    folder = project / "connectors" / "environments"
    data = yaml.safe_load((folder / "local.yaml").read_text())
    data |= {"name": "quick", "connector": {"heartbeat_interval_ms": 200}}
    (folder / "quick.yaml").write_text(yaml.safe_dump(data))
    library = yaml.safe_load((project / "connectors" / "library.yaml").read_text())
    author = library["aggregates"]["author"]
    author["partition_field"] = "region"
    query = author["backfill"]["query"]
    author["backfill"]["query"] = query.replace("as payload", "as payload, country as region")
    path = make_pipeline("checked", aggregates=library["aggregates"])
    with open_deployment(path, "quick") as deployment:
        apply(deployment, silent)
        connect = deployment.environment.connect
        connect = connect.model_copy(update={"workers": [connect.url]})
        actual = replace(deployment, environment=deployment.environment.model_copy(update={"connect": connect}))
        created = Bench(actual, source_dsn)
        created.wait_running()
        yield created


def test_every_check_has_a_breakage_or_a_reason() -> None:
    covered = [item.id for item in BREAKAGES] + [item for row in BREAKAGES for item in row.follows]
    assert set(IDS) - set(covered) == set(NOT_BROKEN_HERE)
    assert set(covered) <= set(IDS)
    assert not set(NOT_BROKEN_HERE) & set(covered)


def test_passes_within_seconds(bench: Bench) -> None:
    seconds = []
    for _ in range(2):  # the first run also imports modules and connects
        started = time.monotonic()
        checks = verify(bench.deployment, silent, canary_seconds=None)
        seconds.append(time.monotonic() - started)
    assert [check.id for check in checks] == IDS
    unknown = {check.id for check in checks if check.status is Status.UNKNOWN}
    unset = {"kafka.cluster"} if not (bench.deployment.lock() or pytest.fail("no lock")).cluster_id else set()
    assert unknown == {*unset, *(item for item in IDS if item.startswith("canary."))}
    assert {check.id for check in checks if check.status in (Status.FAIL, Status.WARN)} == set()
    assert min(seconds) < VERIFY_SECONDS


@pytest.mark.parametrize("case", BREAKAGES, ids=lambda case: case.title)
def test_reports_exactly_what_is_broken(bench: Bench, case: Breakage, monkeypatch: pytest.MonkeyPatch) -> None:
    if case.id.endswith(".reachable"):
        b.short_kafka_timeout(bench, monkeypatch)
    try:
        case.break_(bench, monkeypatch)
        actual = bench.failing_checks(case.view(bench), case.canary, lambda message: case.on_progress(bench, message))
    finally:
        monkeypatch.undo()
        bench.cleanup.close()
        case.repair(bench)
    assert set(actual) == {case.id, *case.follows}, "\n".join(f"{c.id}: {c.seen}" for c in actual.values())
    assert all(check.seen and check.expected and check.remedy for check in actual.values())
    assert len(IDS) == len(set(IDS))


def test_passes_after_the_repair(bench: Bench) -> None:
    """All breakages were repaired; the canary is delivered."""
    assert bench.failing_checks(bench.deployment, 60, silent) == {}
