"""`outbox senders` lists and recovers senders that do not start again."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest
from tests.integration.sending.producing_support import World, create_tables
from tests.integration.support import Outbox

from outbox_events import DeliveryProof, RecoveryStore
from outbox_kit.deployment import Deployment
from outbox_kit.stack import StackState

pytestmark = pytest.mark.integration
ALL = ("senders", "recover", "--all", "--older-than", "0")
FOREIGN = "foreign"


@pytest.fixture
def world(library: Deployment, source_dsn: str, state: StackState) -> Iterator[World]:
    """Create the tables of the senders in the database of the pipeline."""
    del library  # its lock file identifies the systems
    with psycopg.connect(source_dsn) as connection:
        create_tables(connection)
    with ExitStack() as cleanup:
        yield World(source_dsn, state.kafka, cleanup, prefix="library.")
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        for (gid,) in connection.execute("select gid from pg_prepared_xacts where database = current_database()"):
            connection.tpc_rollback(gid)
        connection.execute("drop table purchase, recovery_store, unproven_record")


@pytest.fixture
def new_topic(library: Deployment) -> Iterator[Callable[[str], None]]:
    """Return a function that creates a topic, which is deleted after the test."""
    with ExitStack() as cleanup:

        def create(name: str) -> None:
            library.kafka.create(name, partitions=1, replication_factor=1, config={})
            cleanup.callback(library.kafka.delete, name)

        yield create


def left(outbox: Outbox) -> set[tuple[str, str, str]]:
    listed = json.loads(outbox("senders", "list", "--output", "json").stdout)["senders"]
    return {(entry["way"], entry["sender"], entry["topics"]) for entry in listed}


def test_senders_that_do_not_start_again_are_recovered(outbox_here: Outbox, world: World) -> None:
    events = {world.crash("two-phase", "after-kafka"), "saved", "unproven"}
    sender, topic = world.transactional_id, world.topic
    store = RecoveryStore(world.connect(autocommit=True), sender)
    with world.connect() as connection:
        connection.execute("insert into purchase values ('saved'), ('unproven')")
        [(transaction_id,)] = connection.execute("select pg_current_xact_id()::text").fetchall()
        store.save(transaction_id, [world.record("saved")])
        DeliveryProof().save(connection, [world.record("unproven")])
    young = outbox_here("senders", "recover", "", "--yes")
    assert (young.code, "in the last 60 s" in young.stderr) == (1, True), young.output
    with world.connect(autocommit=True) as connection:
        connection.execute("begin")
        connection.execute(f"prepare transaction '{FOREIGN}'")
        connection.execute("update unproven_record set created_at = created_at - interval '2 minutes'")
    everything = {
        ("two-phase", sender, topic),
        ("recovery-store", sender, topic),
        ("delivery-proof", "", topic),
    }
    assert left(outbox_here) == everything
    assert outbox_here(*ALL).code == 1  # not confirmed
    assert outbox_here(*ALL[:-2], "--yes").code == 0  # not old enough
    assert outbox_here("senders", "recover", "unknown", "--yes").code == 1
    assert left(outbox_here) == everything
    assert outbox_here(*ALL, "--yes").code == 0
    assert world.purchases() == events
    assert world.delivered() == dict.fromkeys(events, 1)
    assert left(outbox_here) == {("delivery-proof", "", topic)}
    assert outbox_here("senders", "recover", "", "--older-than", "0", "--yes").code == 0
    assert left(outbox_here) == set()
    assert world.column("select gid from pg_prepared_xacts") == [FOREIGN]


def test_senders_of_other_pipelines_are_not_recovered(
    outbox_here: Outbox, world: World, library: Deployment, new_topic: Callable[[str], None]
) -> None:
    """A topic with the acknowledged dead letters of a pipeline shows that the pipeline exists."""
    new_topic("senders-other.dead-letter.acknowledged")
    topics = {
        "foreign": ["senders-other.book"],
        "unowned": ["nobody.book"],
        "shared": ["senders-other.book", world.topic],
    }
    for topic in ("senders-other.book", "nobody.book"):
        new_topic(topic)
    with world.connect() as connection:
        for sender, names in topics.items():
            records = [dataclasses.replace(world.record(f"{sender}-{name}"), topic=name) for name in names]
            DeliveryProof(sender=sender).save(connection, records)
        connection.execute("update unproven_record set created_at = created_at - interval '2 minutes'")

    def ends() -> tuple[int, ...]:
        return tuple(library.kafka.bounds(name)[0].end for name in ("senders-other.book", "nobody.book"))

    done = outbox_here("senders", "recover", "foreign", "--yes")
    assert (done.code, "prefix senders-other" in done.stderr) == (1, True), done.output
    assert ends() == (0, 0)
    done = outbox_here(*ALL, "--yes")
    assert (done.code, ends()) == (0, (1, 0)), done.output  # the record of the shared sender
    assert re.search("'foreign' sends to senders-other.book: .*prefix senders-other", done.stderr)
    assert "'unowned' sends to nobody.book: name it" in done.stderr
    done = outbox_here("senders", "recover", "unowned", "--yes")
    assert (done.code, ends()) == (0, (1, 1)), done.output
