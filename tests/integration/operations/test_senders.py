"""`outbox senders` lists and recovers senders that do not start again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
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


def test_all_excludes_senders_to_topics_of_other_pipelines(outbox_here: Outbox, world: World) -> None:
    with world.connect() as connection:
        connection.execute("insert into purchase values ('unproven')")
        record = dataclasses.replace(world.record("unproven"), topic="other.book")
        DeliveryProof(sender="other").save(connection, [record])
    remaining = {("delivery-proof", "other", "other.book")}
    done = outbox_here(*ALL, "--yes")
    assert (done.code, left(outbox_here)) == (0, remaining), done.output
    assert "'other' sends to other.book" in done.stderr
