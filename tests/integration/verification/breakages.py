"""Breakages, one per check, and their repairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from tests.integration.support import records
from tests.integration.verification.bench import AUTHORS, SECONDS, Bench
from tests.integration.verification.servers import reading

from outbox_events.contract.partitioner import partition_of
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.client import ConnectClient
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Connect, HttpService
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.registry.client import RegistryClient

UNUSED_ADDRESS = "127.0.0.1:1"
STOPPED = ("connect.running", "postgres.slot-active")
STUCK = ("postgres.slot-moving", "kafka.heartbeat", "connect.offsets-moving")


def own_deployment(bench: Bench) -> Deployment:
    return bench.deployment


def do_nothing(bench: Bench, patch: pytest.MonkeyPatch | None = None) -> None:
    del bench, patch


@dataclass(frozen=True)
class Breakage:
    """A change that makes the check `id` and the checks `follows` fail. `view` returns the deployment to verify.

    The checks `may_follow` fail or pass, depending on timing. With `heals`, the test runs the printed remedy, and
    then `repair` for anything that the remedy does not restore. The remedy must contain the commands of the remedies of
    the checks `healed`. Of the breakages with one `group` (by default, one `id`), `make test` runs the first.
    """

    id: str
    break_: Callable[[Bench, pytest.MonkeyPatch], object] = do_nothing
    repair: Callable[[Bench], object] = do_nothing
    follows: tuple[str, ...] = ()
    may_follow: tuple[str, ...] = ()
    view: Callable[[Bench], Deployment] = own_deployment
    canary: float | None = None
    on_progress: Callable[[Bench, str], None] = lambda _, __: None
    note: str = ""
    heals: bool = False
    group: str = ""
    healed: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.id} {self.note}".strip()


def sql(
    identifier: str,
    statement: str,
    repair: str = "",
    follows: tuple[str, ...] = (),
    note: str = "",
    canary: float | None = None,
    *,
    heals: bool = False,
) -> Breakage:
    """Break and repair with one SQL statement each, in which {table}, {slot} and {publication} are substituted.

    If `heals` is set or `repair` is missing, the test runs the printed remedy.
    """

    def run(bench: Bench, text: str) -> None:
        bench.sql(text.format(table=bench.table, slot=bench.slot, publication=bench.publication))

    restore = (lambda b: run(b, repair)) if repair else do_nothing
    return Breakage(
        identifier,
        lambda b, _: run(b, statement),
        restore,
        follows,
        canary=canary,
        note=note,
        heals=heals or not repair,
    )


def lock(identifier: str, change: Callable[[dict[str, object]], object], follows: tuple[str, ...] = ()) -> Breakage:
    """Break by editing the lock file."""

    def edit(bench: Bench, _: pytest.MonkeyPatch) -> None:
        with bench.edited_lock() as data:
            change(data)

    return Breakage(identifier, edit, follows=follows, heals=True)


def live(identifier: str, changes: dict[str, str], canary: float | None = None) -> Breakage:
    """Break by changing the live connector config. The check connect.config also fails."""
    follows = ("connect.config",) if identifier != "connect.config" else ()
    return Breakage(identifier, lambda b, _: b.change_config(**changes), follows=follows, canary=canary, heals=True)


def topic(identifier: str, key: str, value: str, aggregate: str = "author") -> Breakage:
    """Break by changing a setting of a live topic."""
    return Breakage(identifier, lambda b, _: b.topic_setting(b.topic(aggregate), key, value), heals=True)


def together(group: str, *cases: Breakage, break_: Callable[[Bench], object] | None = None) -> list[Breakage]:
    """Return a breakage that makes the checks of all cases fail, and then the cases. `make test` runs only the first.

    `break_` makes the changes of all cases in one step; by default, they are made one after the other.
    """
    assert all((case.repair, case.view, case.canary) == (do_nothing, own_deployment, None) for case in cases)

    def break_all(bench: Bench, patch: pytest.MonkeyPatch) -> None:
        if break_:
            break_(bench)
            return
        for case in cases:
            case.break_(bench, patch)

    first = cases[0]
    ids = dict.fromkeys(name for case in cases for name in (case.id, *case.follows))
    follows = tuple(name for name in ids if name != first.id)
    combined = replace(first, break_=break_all, follows=follows, healed=follows, note="together with others")
    return [replace(case, group=group) for case in (combined, *cases)]


def environment(identifier: str, section: str, follows: tuple[str, ...] = (), **changes: object) -> Breakage:
    """Break by verifying with different values in the environment file."""

    def view(bench: Bench) -> Deployment:
        actual = bench.deployment.environment
        update = {section: getattr(actual, section).model_copy(update=changes)}
        return replace(bench.deployment, environment=actual.model_copy(update=update))

    return Breakage(identifier, follows=follows, view=view)


# --- the database


def use_all_slots(bench: Bench, _: pytest.MonkeyPatch) -> None:
    names = bench.sql(
        "select pg_create_physical_replication_slot('spare_' || n) from generate_series(1, "
        "(select setting::int from pg_settings where name = 'max_replication_slots') "
        "- (select count(*)::int from pg_replication_slots)) as n"
    )
    drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name like 'spare_%'"
    assert names
    bench.cleanup.callback(bench.sql, drop)


def leftover_slots(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Leave the slot of a deleted copy of the connector, in addition to the slot of another, stopped connector."""
    bench.sql("select pg_create_logical_replication_slot(name, 'pgoutput') from unnest(array['copy', 'other']) as name")
    bench.cleanup.callback(bench.sql, "select pg_drop_replication_slot('other')")
    config = bench.deployment.render(bench.deployment.lock())
    names = {name: "other" for name in ("slot.name", "publication.name", "topic.prefix")}
    source = {key: value for key, value in config.items() if key.startswith("database.") or key == "connector.class"}
    bench.deployment.connect.create_stopped("other", {**source, **names})
    bench.cleanup.callback(bench.connector, "DELETE", "other")


def use_all_senders(bench: Bench, _: pytest.MonkeyPatch) -> None:
    free = bench.sql(
        "select (select setting::int from pg_settings where name = 'max_wal_senders') "
        "- (select count(*)::int from pg_stat_replication)"
    )[0][0]
    for _number in range(free):
        bench.cleanup.enter_context(psycopg.connect(bench.dsn, replication="database", autocommit=True))


def restarted_sequence(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """The table has more rows than the test adds after the restart."""
    for _row in range(4):
        bench.row("author")
    bench.sql(f"alter table {bench.table} alter column seq restart with 1")


def another_reader(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Let the administrator read the connector's slot."""
    bench.stop()
    dsn = psycopg.conninfo.make_conninfo(**psycopg.conninfo.conninfo_to_dict(bench.dsn))
    bench.cleanup.enter_context(reading(dsn, bench.slot, bench.publication))


def old_prepared_transaction(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(postgres_checks, "MAX_PREPARED_AGE_S", -1)
    bench.sql("begin", f"lock table {bench.table} in row share mode", "prepare transaction 'forgotten'")


def other_tables(create_table: str) -> Callable[[Bench, pytest.MonkeyPatch], None]:
    """Write events to a table that the statement creates. One event is newer than the event in the outbox table."""

    def break_(bench: Bench, _: pytest.MonkeyPatch) -> None:
        bench.cleanup.callback(bench.sql, "drop schema other cascade")
        bench.sql("create schema other", create_table.format(table=bench.table))
        bench.write_author("only there", table="other.checked_event")
        changed = bench.write_author("here and there")
        bench.write_author("newer there", changed, table="other.checked_event")
        newer_here = bench.write_author("older there", table="other.checked_event")
        bench.write_author("newer here", newer_here)

    return break_


def key_in_two_partitions(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.row("author", "moved-key", "one")
    bench.row("author", "moved-key", "two")


def recreated_publication(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.sql(
        f"drop publication {bench.publication}",
        f"create publication {bench.publication} for table {bench.table} "
        "with (publish = 'insert', publish_via_partition_root = true)",
    )


def publication_of_all_tables(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.sql(f"drop publication {bench.publication}", f"create publication {bench.publication} for all tables")


def column_list(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Exclude columns of the contract. The task fails on the first row, which lacks these columns in the WAL."""
    columns = "id, aggregate_type, aggregate_id, event_type, created_at"
    bench.sql(f"alter publication {bench.publication} set table {bench.table} ({columns})")
    bench.write_author("without columns")
    bench.wait_failed()


def dropped_slot(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.stop()
    bench.sql(f"select pg_drop_replication_slot('{bench.slot}')")


def slot_with_another_plugin(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    dropped_slot(bench, patch)
    bench.sql(f"select pg_create_logical_replication_slot('{bench.slot}', 'test_decoding', false, false, true)")


def lost_slot(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Make the server invalidate the slot. Only the server's slots without a reader are affected."""
    bench.stop()
    bench.server_setting("idle_replication_slot_timeout", "'1s'")

    def poll() -> Observation[bool]:
        bench.sql("checkpoint")
        status = bench.sql(f"select wal_status from pg_replication_slots where slot_name = '{bench.slot}'")[0][0]
        return Observation(status == "lost" or None, status)

    try:
        wait_for("the slot to be lost", poll, seconds=SECONDS, interval=0.2)
    finally:
        bench.server_setting("idle_replication_slot_timeout", None)


def slot_of_another_database(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    dropped_slot(bench, patch)
    with psycopg.connect(bench.dsn, dbname="postgres", autocommit=True) as connection:
        connection.execute(
            f"select pg_create_logical_replication_slot('{bench.slot}', 'pgoutput', false, false, true)".encode()
        )


def wrong_password(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Change the connector's password. The running task is not affected, but its next start would fail."""
    user = bench.deployment.environment.source.connector.user
    verifier = bench.sql(f"select rolpassword from pg_authid where rolname = '{user}'")[0][0]
    bench.cleanup.callback(bench.sql, f"alter role {user} password '{verifier}'")
    bench.sql(f"alter role {user} password 'another'")


# --- Kafka


def missing_heartbeat_topic(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.delete_topic(bench.deployment.pipeline.heartbeat_topic)
    wait_stuck(bench)


def failed_task(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Restart the task while its role cannot log in, and remove the cause when the task has failed."""
    role = bench.deployment.environment.source.connector.user
    bench.sql(f"alter role {role} nologin")
    try:
        bench.deployment.connect.restart(bench.name)
        bench.wait_failed()
    finally:
        bench.sql(f"alter role {role} login")


def missing_topic(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Delete a topic. The producer waits for the topic without an error, and the connector remains RUNNING."""
    bench.delete_topic(bench.topic("author"))
    bench.row("author")
    wait_stuck(bench)


def partition_too_high(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Make the router send to a partition that does not exist. The connector remains RUNNING.

    This requires a partition_field. Otherwise, the producer selects one of the existing partitions.
    """
    bench.change_config(**{"transforms.outbox.aggregate.author.partitions": "4000"})
    bench.row("author")
    wait_stuck(bench)


def wait_stuck(bench: Bench) -> None:
    """Wait until the slot no longer advances. The connector remains RUNNING."""
    last, unchanged = 0, 0

    def poll() -> Observation[bool]:
        nonlocal last, unchanged
        now = bench.confirmed_lsn()
        unchanged = unchanged + 1 if now == last else 0
        last = now
        return Observation(True if unchanged >= 10 else None, f"slot at {now}")

    wait_for("the connector to be stuck", poll, seconds=SECONDS, interval=0.15)


def slow_acknowledgements(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Block the producer until Debezium's queue is full. Then Debezium contacts the server only every ten seconds."""
    bench.sql("alter role outbox_connector set wal_sender_timeout = '4s'")
    bench.restart()
    bench.delete_topic(bench.topic("author"))
    bench.sql(
        f"insert into {bench.table} (aggregate_type, aggregate_id, event_type, region) "
        "select 'author', n::text, 'many', 'here' from generate_series(1, 60000) as n"
    )
    wait_for(
        "the server to close the connection", lambda: Observation(not bench.slot_pid() or None, "read"), seconds=SECONDS
    )


def restore_acknowledgements(bench: Bench) -> None:
    bench.sql("alter role outbox_connector reset wal_sender_timeout", f"truncate {bench.table}")
    bench.create_topic(bench.topic("author"))
    bench.restart()


def additional_partition(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.grow_topic(bench.topic("author"), 5)


def another_topic(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.delete_topic(bench.topic("author"))
    bench.create_topic(bench.topic("author"), recorded=False)


def state_in_another_partition(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Write a state that no record of the connector supersedes, as after an addition of partitions."""
    partitions = bench.deployment.pipeline.aggregates["book"].partitions
    producer = Producer({"bootstrap.servers": bench.deployment.environment.kafka.bootstrap_servers})
    wrong_partition = (partition_of(b"moved", partitions) + 1) % partitions
    producer.produce(bench.topic("book"), key=b"moved", value=b"state", partition=wrong_partition)
    assert producer.flush(SECONDS) == 0


def record_without_headers(bench: Bench, topic: str, key: str) -> str:
    """Write a record after the records of the key, as a producer without outbox-kit does. Return its place."""
    partition = next(item.partition() for item in records(bench.deployment, topic, 4) if item.key() == key.encode())
    places: list[str] = []
    producer = Producer({"bootstrap.servers": bench.deployment.environment.kafka.bootstrap_servers})
    producer.produce(
        topic,
        key=key.encode(),
        value=b"not avro",
        partition=partition,
        on_delivery=lambda _, record: places.append(f"{record.partition()}/{record.offset()}"),
    )
    assert producer.flush(SECONDS) == 0
    return places[0]


def open_transaction(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Leave a transaction of another producer open on a topic of states."""
    servers = bench.deployment.environment.kafka.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "another-producer"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(bench.topic("book"), key=b"another", value=b"state", partition=0)
    assert producer.flush(SECONDS) == 0
    bench.cleanup.callback(producer.abort_transaction, SECONDS)


def recreate_book_topic(bench: Bench) -> None:
    bench.delete_topic(bench.topic("book"))
    bench.create_topic(bench.topic("book"))


def recreate_author_topic(bench: Bench) -> None:
    """Recreate the topic and delete the authors, because `outbox stuck` would wait for their states."""
    bench.sql(f"delete from {AUTHORS}; delete from {bench.table}")
    bench.delete_topic(bench.topic("author"))
    bench.create_topic(bench.topic("author"))


def dead_letter(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.row("unknown-aggregate-type")

    def poll() -> Observation[bool]:
        count = bench.deployment.dead_letters().count()
        return Observation(count > 0 or None, f"{count} dead letters")

    wait_for("the dead letter", poll, seconds=SECONDS)


def removed_dead_letter(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    dead_letter(bench, patch)
    kafka, topic = bench.deployment.kafka, bench.deployment.pipeline.dead_letter_topic
    kafka.delete_records(topic, {number: bound.end for number, bound in kafka.bounds(topic).items()})


# --- registry and Connect


def no_registry(bench: Bench) -> Deployment:
    client = RegistryClient(HttpService(url=f"http://{UNUSED_ADDRESS}"))
    bench.cleanup.callback(client.close)
    return replace(bench.deployment, registry=client)


def no_connect(bench: Bench) -> Deployment:
    client = ConnectClient(Connect(url=f"http://{UNUSED_ADDRESS}"))
    bench.cleanup.callback(client.close)
    return replace(bench.deployment, connect=client)


def different_schema(bench: Bench) -> Deployment:
    pipeline = bench.deployment.pipeline
    author = pipeline.aggregates["author"].model_copy(update={"schema_file": pipeline.aggregates["book"].schema_file})
    update = {"aggregates": {**pipeline.aggregates, "author": author}}
    return replace(bench.deployment, pipeline=pipeline.model_copy(update=update))


def missing_transform(bench: Bench) -> Deployment:
    folder = bench.deployment.lock_file.parent / "other-templates"
    folder.mkdir(exist_ok=True)
    name = f"{bench.deployment.pipeline.connector.template}.json.j2"
    text = (bench.deployment.templates / name).read_text().replace("io.outboxkit.smt.OutboxRouter", "io.outboxkit.No")
    Path(folder / name).write_text(text)
    return replace(bench.deployment, templates=folder)


def restart(bench: Bench, message: str) -> None:
    """Restart the connector between the two polls of verify."""
    if message.startswith("check for progress"):
        bench.restart()


def second_connector(bench: Bench, _: pytest.MonkeyPatch) -> None:
    config = bench.deployment.render(bench.deployment.lock())
    bench.deployment.connect.create_stopped("twin", {**config, "topic.prefix": "twin"})


def no_offset(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.stop()
    bench.deployment.connect.delete_offsets(bench.name)


def stopped_at(lsn: int | None, advance: bool = False) -> Callable[[Bench, pytest.MonkeyPatch], None]:
    def run(bench: Bench, _: pytest.MonkeyPatch) -> None:
        bench.stop()
        if lsn is not None:
            bench.set_offset(lsn)
        if advance:
            bench.sql(f"select pg_replication_slot_advance('{bench.slot}', pg_current_wal_lsn())")

    return run
