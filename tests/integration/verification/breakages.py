"""Breakages: one per check, and its repair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from tests.integration.verification.bench import SECONDS, Bench
from tests.integration.verification.servers import reading

from outbox_kit.connect.client import ConnectClient
from outbox_kit.deployment import Deployment, apply
from outbox_kit.kafka import client as kafka_client
from outbox_kit.kafka import dead_letters
from outbox_kit.pipeline import Connect, HttpService
from outbox_kit.postgres import checks as postgres_checks
from outbox_kit.progress import silent
from outbox_kit.registry.client import RegistryClient
from outbox_kit.waiting import Observation, wait_for

UNUSED_ADDRESS = "127.0.0.1:1"
STOPPED = ("connect.running", "postgres.slot-active")
STUCK = ("postgres.slot-moving", "kafka.heartbeat", "connect.offsets-moving")


def own_deployment(bench: Bench) -> Deployment:
    return bench.deployment


def do_nothing(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    del bench, patch


@dataclass(frozen=True)
class Breakage:
    """A change that makes the check `id` fail, and the checks `follows`; `view` returns the deployment to verify."""

    id: str
    break_: Callable[[Bench, pytest.MonkeyPatch], object] = do_nothing
    repair: Callable[[Bench], object] = lambda _: None
    follows: tuple[str, ...] = ()
    view: Callable[[Bench], Deployment] = own_deployment
    canary: float | None = None
    on_progress: Callable[[Bench, str], None] = lambda _, __: None
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.id} {self.note}".strip()


def sql(identifier: str, statement: str, repair: str, follows: tuple[str, ...] = (), note: str = "") -> Breakage:
    """Break and repair with one SQL statement each; {table}, {slot} and {publication} are substituted."""

    def run(bench: Bench, text: str) -> None:
        bench.sql(text.format(table=bench.table, slot=bench.slot, publication=bench.publication))

    return Breakage(identifier, lambda b, _: run(b, statement), lambda b: run(b, repair), follows, note=note)


def lock(identifier: str, change: Callable[[dict[str, object]], object], follows: tuple[str, ...] = ()) -> Breakage:
    """Break by editing the lock file."""

    def edit(bench: Bench, _: pytest.MonkeyPatch) -> None:
        bench.restore_lock_on_repair()
        with bench.edited_lock() as data:
            change(data)

    return Breakage(identifier, edit, follows=follows)


def live(identifier: str, changes: dict[str, str], canary: float | None = None) -> Breakage:
    """Break by changing the live connector config; the check connect.config fails too."""
    follows = ("connect.config",) if identifier != "connect.config" else ()
    return Breakage(
        identifier, lambda b, _: b.change_config(**changes), lambda b: b.restore_config(), follows, canary=canary
    )


def topic(identifier: str, key: str, value: str, aggregate: str = "author") -> Breakage:
    """Break by changing a setting of a live topic."""
    return Breakage(
        identifier,
        lambda b, _: b.topic_setting(b.topic(aggregate), key, value),
        lambda b: b.restore_settings(b.topic(aggregate)),
    )


def environment(identifier: str, section: str, follows: tuple[str, ...] = (), **changes: object) -> Breakage:
    """Break by verifying with other values in the environment file."""

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


def use_all_senders(bench: Bench, _: pytest.MonkeyPatch) -> None:
    free = bench.sql(
        "select (select setting::int from pg_settings where name = 'max_wal_senders') "
        "- (select count(*)::int from pg_stat_replication)"
    )[0][0]
    for _number in range(free):
        bench.cleanup.enter_context(psycopg.connect(bench.dsn, replication="database", autocommit=True))


def another_reader(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """The administrator reads the connector's slot."""
    bench.stop()
    dsn = psycopg.conninfo.make_conninfo(**psycopg.conninfo.conninfo_to_dict(bench.dsn))
    bench.cleanup.enter_context(reading(dsn, bench.slot, bench.publication))


def old_prepared_transaction(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(postgres_checks, "MAX_PREPARED_AGE_S", -1)
    bench.sql("begin", f"lock table {bench.table} in row share mode", "prepare transaction 'forgotten'")


def key_in_two_partitions(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.row("author", "moved-key", "one")
    bench.row("author", "moved-key", "two")


def recreated_publication(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.sql(
        f"drop publication {bench.publication}",
        f"create publication {bench.publication} for table {bench.table} "
        "with (publish = 'insert', publish_via_partition_root = true)",
    )


def accept_publication(bench: Bench) -> None:
    with bench.edited_lock() as data:
        data["source"]["publication_oid"] = bench.sql(
            f"select oid::bigint from pg_publication where pubname = '{bench.publication}'"
        )[0][0]


def dropped_slot(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.stop()
    bench.sql(f"select pg_drop_replication_slot('{bench.slot}')")


def recover(bench: Bench) -> None:
    apply(bench.deployment, silent, recover=True)
    bench.wait_running()


def wrong_password(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Change the connector's password: the running task is not affected, but its next start would fail."""
    user = bench.deployment.environment.source.connector.user
    verifier = bench.sql(f"select rolpassword from pg_authid where rolname = '{user}'")[0][0]
    bench.cleanup.callback(bench.sql, f"alter role {user} password '{verifier}'")
    bench.sql(f"alter role {user} password 'another'")


# --- Kafka


def missing_topic(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Delete a topic: the producer waits for it without an error, and the connector remains RUNNING."""
    bench.delete_topic(bench.topic("author"))
    bench.row("author")
    wait_stuck(bench)


def partition_too_high(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Make the router send to a partition that does not exist; the connector remains RUNNING.

    This requires a partition_field: otherwise the producer selects among the existing partitions.
    """
    bench.change_config(**{"transforms.outbox.aggregate.author.partitions": "4000"})
    bench.row("author")
    wait_stuck(bench)


def wait_stuck(bench: Bench) -> None:
    """Wait until the slot no longer advances; the connector remains RUNNING."""
    last, unchanged = 0, 0

    def poll() -> Observation[bool]:
        nonlocal last, unchanged
        now = bench.confirmed_lsn()
        unchanged = unchanged + 1 if now == last else 0
        last = now
        return Observation(True if unchanged >= 10 else None, f"slot at {now}")

    wait_for("the connector to be stuck", poll, seconds=SECONDS, interval=0.15)


def recreate_topic(bench: Bench) -> None:
    bench.create_topic(bench.topic("author"))
    bench.restart()


def slow_acknowledgements(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Block the producer until Debezium's queue is full; then Debezium contacts the server only every ten seconds."""
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


def recreate_author_topic(bench: Bench) -> None:
    bench.delete_topic(bench.topic("author"))
    bench.create_topic(bench.topic("author"))


def dead_letter(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.row("unknown-aggregate-type")

    def poll() -> Observation[bool]:
        count = dead_letters.count(bench.deployment.kafka, bench.deployment.pipeline)
        return Observation(count > 0 or None, f"{count} dead letters")

    wait_for("the dead letter", poll, seconds=SECONDS)


def short_kafka_timeout(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    del bench
    patch.setattr(kafka_client, "REQUEST_TIMEOUT_S", 1)


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


def set_offset_and_resume(bench: Bench) -> None:
    bench.set_offset()
    bench.resume()


def apply_again(bench: Bench) -> None:
    apply(bench.deployment, silent)
    bench.wait_running()
