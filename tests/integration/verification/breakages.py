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

NOBODY = "127.0.0.1:1"
STOPPED = ("connect.running", "postgres.slot-active")
WEDGED = ("postgres.slot-moving", "kafka.heartbeat", "connect.offsets-moving")


def same(bench: Bench) -> Deployment:
    return bench.deployment


def nothing(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    del bench, patch


@dataclass(frozen=True)
class Breakage:
    """`id` must be reported, and nothing else but `follows`. `view` is passed to verify."""

    id: str
    break_: Callable[[Bench, pytest.MonkeyPatch], object] = nothing
    mend: Callable[[Bench], object] = lambda _: None
    follows: tuple[str, ...] = ()
    view: Callable[[Bench], Deployment] = same
    canary: float | None = None
    during: Callable[[Bench, str], None] = lambda _, __: None
    note: str = ""

    @property
    def title(self) -> str:
        return f"{self.id} {self.note}".strip()


def sql(identifier: str, statement: str, mend: str, follows: tuple[str, ...] = (), note: str = "") -> Breakage:
    """Broken and repaired by one statement each; {table}, {slot}, {publication} are substituted."""

    def run(bench: Bench, text: str) -> None:
        bench.sql(text.format(table=bench.table, slot=bench.slot, publication=bench.publication))

    return Breakage(identifier, lambda b, _: run(b, statement), lambda b: run(b, mend), follows, note=note)


def lock(identifier: str, change: Callable[[dict[str, object]], object], follows: tuple[str, ...] = ()) -> Breakage:
    """Broken by an edit of the lock file."""

    def edit(bench: Bench, _: pytest.MonkeyPatch) -> None:
        bench.remember_lock()
        with bench.locked() as data:
            change(data)

    return Breakage(identifier, edit, follows=follows)


def live(identifier: str, changes: dict[str, str], canary: float | None = None) -> Breakage:
    """Broken by a change of the live connector config; the drift check fails too."""
    follows = ("connect.config",) if identifier != "connect.config" else ()
    return Breakage(identifier, lambda b, _: b.live(**changes), lambda b: b.restore_config(), follows, canary=canary)


def topic(identifier: str, key: str, value: str, aggregate: str = "author") -> Breakage:
    """Broken by a setting of a live topic."""
    return Breakage(
        identifier,
        lambda b, _: b.topic_setting(b.topic(aggregate), key, value),
        lambda b: b.restore_settings(b.topic(aggregate)),
    )


def environment(identifier: str, section: str, follows: tuple[str, ...] = (), **changes: object) -> Breakage:
    """Broken by an environment file with other values."""

    def view(bench: Bench) -> Deployment:
        actual = bench.deployment.environment
        update = {section: getattr(actual, section).model_copy(update=changes)}
        return replace(bench.deployment, environment=actual.model_copy(update=update))

    return Breakage(identifier, follows=follows, view=view)


# --- the database


def hold_slots(bench: Bench, _: pytest.MonkeyPatch) -> None:
    names = bench.sql(
        "select pg_create_physical_replication_slot('spare_' || n) from generate_series(1, "
        "(select setting::int from pg_settings where name = 'max_replication_slots') "
        "- (select count(*)::int from pg_replication_slots)) as n"
    )
    drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name like 'spare_%'"
    assert names
    bench.held.callback(bench.sql, drop)


def hold_senders(bench: Bench, _: pytest.MonkeyPatch) -> None:
    free = bench.sql(
        "select (select setting::int from pg_settings where name = 'max_wal_senders') "
        "- (select count(*)::int from pg_stat_replication)"
    )[0][0]
    for _number in range(free):
        bench.held.enter_context(psycopg.connect(bench.dsn, replication="database", autocommit=True))


def another_reader(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """The administrator reads the connector's slot."""
    bench.stop()
    dsn = psycopg.conninfo.make_conninfo(**psycopg.conninfo.conninfo_to_dict(bench.dsn))
    bench.held.enter_context(reading(dsn, bench.slot, bench.publication))


def prepared(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(postgres_checks, "FORGOTTEN_S", -1)
    bench.sql("begin", f"lock table {bench.table} in row share mode", "prepare transaction 'forgotten'")


def moved_key(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.row("author", "moved-key", "one")
    bench.row("author", "moved-key", "two")


def remade_publication(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.sql(
        f"drop publication {bench.publication}",
        f"create publication {bench.publication} for table {bench.table} "
        "with (publish = 'insert', publish_via_partition_root = true)",
    )


def accept_publication(bench: Bench) -> None:
    with bench.locked() as data:
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
    """The running task keeps its connection: only its next start would fail."""
    user = bench.deployment.environment.source.connector.user
    before = bench.sql(f"select rolpassword from pg_authid where rolname = '{user}'")[0][0]
    bench.held.callback(bench.sql, f"alter role {user} password '{before}'")
    bench.sql(f"alter role {user} password 'another'")


# --- Kafka


def no_topic_and_a_row(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """The first silent stall: the producer waits for the topic, and the state is RUNNING."""
    bench.delete_topic(bench.topic("author"))
    bench.row("author")
    wait_stuck(bench)


def partition_too_high(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """The second: the router sends to a partition that the topic does not have.

    Only an aggregate with a partition_field: else the producer chooses among those that there are.
    """
    bench.live(**{"transforms.outbox.aggregate.author.partitions": "4000"})
    bench.row("author")
    wait_stuck(bench)


def wait_stuck(bench: Bench) -> None:
    """The row is sent just before progress stops; the state is RUNNING."""
    last, still = 0, 0

    def poll() -> Observation[bool]:
        nonlocal last, still
        now = bench.confirmed()
        still = still + 1 if now == last else 0
        last = now
        return Observation(True if still >= 10 else None, f"slot at {now}")

    wait_for("the connector to be stuck", poll, seconds=SECONDS, interval=0.15)


def unwedge(bench: Bench) -> None:
    bench.create_topic(bench.topic("author"))
    bench.restart()


def slow_acknowledgements(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """A stuck producer fills Debezium's queue; then only its keep-alive speaks to the server, every ten seconds."""
    bench.sql("alter role outbox_connector set wal_sender_timeout = '4s'")
    bench.restart()
    bench.delete_topic(bench.topic("author"))
    bench.sql(
        f"insert into {bench.table} (aggregate_type, aggregate_id, event_type, region) "
        "select 'author', n::text, 'many', 'here' from generate_series(1, 60000) as n"
    )
    wait_for(
        "the server to cut the connector off", lambda: Observation(not bench.reader() or None, "read"), seconds=SECONDS
    )


def quick_acknowledgements(bench: Bench) -> None:
    bench.sql("alter role outbox_connector reset wal_sender_timeout", f"truncate {bench.table}")
    bench.create_topic(bench.topic("author"))
    bench.restart()


def grown(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.grow_topic(bench.topic("author"), 5)


def remake_author(bench: Bench) -> None:
    bench.delete_topic(bench.topic("author"))
    bench.create_topic(bench.topic("author"))


def dead_letter(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.row("nobody-routes-this")

    def poll() -> Observation[bool]:
        count = dead_letters.count(bench.deployment.kafka, bench.deployment.pipeline)
        return Observation(count > 0 or None, f"{count} dead letters")

    wait_for("the dead letter", poll, seconds=SECONDS)


def impatient(bench: Bench, patch: pytest.MonkeyPatch) -> None:
    del bench
    patch.setattr(kafka_client, "REQUEST_TIMEOUT_S", 1)


# --- registry and Connect


def no_registry(bench: Bench) -> Deployment:
    client = RegistryClient(HttpService(url=f"http://{NOBODY}"))
    bench.held.callback(client.close)
    return replace(bench.deployment, registry=client)


def no_connect(bench: Bench) -> Deployment:
    client = ConnectClient(Connect(url=f"http://{NOBODY}"))
    bench.held.callback(client.close)
    return replace(bench.deployment, connect=client)


def other_schema(bench: Bench) -> Deployment:
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


def restart(bench: Bench, said: str) -> None:
    """Between the two polls."""
    if said.startswith("check for progress"):
        bench.restart()


def twin(bench: Bench, _: pytest.MonkeyPatch) -> None:
    config = bench.deployment.render(bench.deployment.lock())
    bench.deployment.connect.create_stopped("twin", {**config, "topic.prefix": "twin"})


def no_offset(bench: Bench, _: pytest.MonkeyPatch) -> None:
    bench.stop()
    bench.deployment.connect.delete_offsets(bench.name)


def stopped_at(lsn: int | None, advance: bool = False) -> Callable[[Bench, pytest.MonkeyPatch], None]:
    def run(bench: Bench, _: pytest.MonkeyPatch) -> None:
        bench.stop()
        if lsn is not None:
            bench.seek(lsn)
        if advance:
            bench.sql(f"select pg_replication_slot_advance('{bench.slot}', pg_current_wal_lsn())")

    return run


def seek_and_resume(bench: Bench) -> None:
    bench.seek()
    bench.resume()


def again(bench: Bench) -> None:
    apply(bench.deployment, silent)
    bench.wait_running()
