"""`outbox destroy` on the embedded stack: deletions, retained objects and rejections."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
import pytest
from tests.integration.support import Deploy, Outbox, headers, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_events.errors import RefusedError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment, apply
from outbox_kit.pipeline import Source
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import drop_publication, drop_slot
from outbox_kit.postgres.count_undelivered import DeliveredPosition, count_between, count_undelivered
from outbox_kit.results import silent
from outbox_kit.results.checks import Status
from outbox_kit.verification import verify


@pytest.fixture
def outbox(outbox_here: Outbox) -> Outbox:
    """Run commands in this process."""
    return outbox_here


def database_objects(dsn: str, name: str) -> dict[str, int]:
    """Return the number of tables, publications and slots of a pipeline."""
    queries = {
        "rows": f"select count(*) from {name}_event",
        "publication": f"select count(*) from pg_publication where pubname = '{name}_p'",
        "slot": f"select count(*) from pg_replication_slots where slot_name = '{name}_s'",
    }
    with psycopg.connect(dsn) as connection:
        return {key: connection.execute(query).fetchall()[0][0] for key, query in queries.items()}  # type: ignore[arg-type]


def write(deployment: Deployment, dsn: str, name: str) -> str:
    """Write a row, and wait until the connector's offset includes its commit. Return the row's source_sequence."""
    key = str(uuid4())
    event = send(dsn, "book", key, book(key), table=f"public.{name}_event")
    sequence = headers(wait_record(deployment, f"{name}.book", 4, event))["source_sequence"]
    position = int(sequence.rpartition("-")[2], 16)

    def poll() -> Observation[bool]:
        offset = deployment.connect.offsets(name)[0]["offset"]
        return Observation(
            True if (offset.get("lsn_commit") or 0) > position else None, f"{offset}, the row is at {position}"
        )

    wait_for("the next heartbeat to record the commit", poll, seconds=30)
    return sequence


def no_topics(deployment: Deployment, part: str) -> Observation[bool]:
    names = [name for name in deployment.kafka.topics() if part in name]
    return Observation(None if names else True, f"topics {names}")


def states_are_complete(deployment: Deployment) -> bool:
    """Return whether the check kafka.pending-backfill passes."""
    checks = verify(deployment, silent, canary_seconds=None)
    return next(check for check in checks if check.id == "kafka.pending-backfill").status is Status.PASS


def test_destroy_keeps_data_and_a_new_pipeline_can_follow(outbox: Outbox, deploy: Deploy, source_dsn: str) -> None:
    deployment = deploy("torn")
    assert write(deployment, source_dsn, "torn").startswith("0001_")
    requests = outbox("destroy", pipeline="torn")
    assert requests.code == 1, requests.output
    assert "--confirm PIPELINE@ENVIRONMENT is required" in requests.stderr
    assert database_objects(source_dsn, "torn") == {"rows": 1, "publication": 1, "slot": 1}

    done = outbox("destroy", "--confirm", "torn@local", "--output", "json", pipeline="torn")
    assert done.code == 0, done.output
    report = json.loads(done.stdout)
    deleted = [change["object"] for change in report["changes"]]
    assert deleted[0] == "connector torn"
    assert deleted[-2:] == ["slot torn_s", "publication torn_p"]
    assert "topic torn.author" in deleted
    assert "topic torn.book, because it has records (--delete-topics deletes it)" in report["kept"]
    assert "schema torn.book-value, because records contain its ids (--delete-schemas deletes it)" in report["kept"]
    assert deployment.connect.config("torn") is None
    assert "torn.book" in deployment.kafka.topics()
    assert database_objects(source_dsn, "torn") == {"rows": 1, "publication": 0, "slot": 0}
    again = outbox("destroy", "--confirm", "torn@local", pipeline="torn")
    assert again.code == 0, again.output
    assert "nothing to delete" in again.stderr

    key = str(uuid4())
    send(source_dsn, "book", key, book(key), table="public.torn_event")  # there is no slot that retains this row
    with pytest.raises(RefusedError, match="slot torn_s: rows that were committed after `outbox destroy`"):
        apply(deployment, silent)
    apply(deployment, silent, allow=["slot torn_s"])
    assert write(deployment, source_dsn, "torn").startswith("0002_"), "above the states that stayed on the topic"
    assert states_are_complete(deployment) is False
    acknowledged = outbox("backfill", "--acknowledge", "book", pipeline="torn")
    assert acknowledged.code == 0, acknowledged.output
    assert states_are_complete(deployment) is True
    destroyed = outbox("destroy", "--confirm", "torn@local", "--delete-topics", "--delete-schemas", pipeline="torn")
    assert destroyed.code == 0, destroyed.output
    # The controller acknowledges the deletion of a topic before the broker's metadata shows it.
    wait_for("the topics to be deleted", lambda: no_topics(deployment, "torn"), seconds=20, interval=0.1)
    assert deployment.registry.latest("torn.book-value") is None
    assert not deployment.lock_file.exists()


def test_does_not_drop_a_slot_with_undelivered_rows(outbox: Outbox, deploy: Deploy, source_dsn: str) -> None:
    deployment = deploy("laden")
    write(deployment, source_dsn, "laden")
    connect_lifecycle.stop(deployment.connect, "laden")
    key = str(uuid4())
    send(source_dsn, "book", key, book(key), table="public.laden_event")
    refused = outbox("destroy", "--confirm", "laden@local", "--delete-topics", pipeline="laden")
    assert refused.code == 1, refused.output
    assert "slot 'laden_s' has 1 undelivered event; nothing was deleted" in refused.stderr
    assert "--drop-slot" in refused.stderr
    assert deployment.connect.config("laden") is not None
    assert "laden.book" in deployment.kafka.topics()
    done = outbox("destroy", "--confirm", "laden@local", "--drop-slot", pipeline="laden")
    assert done.code == 0, done.output
    assert database_objects(source_dsn, "laden") == {"rows": 2, "publication": 0, "slot": 0}


def test_deletes_nothing_without_a_lock_file(outbox: Outbox, deploy: Deploy, source_dsn: str) -> None:
    deployment = deploy("foreign")
    deployment.lock_file.unlink()
    refused = outbox("destroy", "--confirm", "foreign@local", pipeline="foreign")
    assert refused.code == 1, refused.output
    assert "connector foreign may belong to another pipeline" in refused.stderr
    assert database_objects(source_dsn, "foreign")["slot"] == 1


def test_counts_rows_as_delivered_by_commit_position(deploy: Deploy, source_dsn: str) -> None:
    """Rows of a long transaction have lower LSNs than rows of earlier commits, but are delivered after those rows."""
    deployment = deploy("lasting", applied=False)
    database, slot = deployment.environment.source, {"slot": "lasting_s", "publication": "lasting_p"}
    source = deployment.pipeline.source.model_copy(update=slot)
    with postgres_client.connected(database) as connection, psycopg.connect(source_dsn) as lasting:
        connection.execute("create table lasting_event (id int)")
        connection.execute("create publication lasting_p for table lasting_event with (publish = 'insert')")
        connection.execute("select pg_create_logical_replication_slot('lasting_s', 'pgoutput')")

        def undelivered(delivered: DeliveredPosition) -> int:
            return count_undelivered(connection, source, delivered)

        lasting.execute("insert into lasting_event values (0)")
        connection.execute("insert into lasting_event select generate_series(1, 3)")
        rows = connection.execute("""
            select (lsn - '0/0')::bigint as lsn, xid::text as xid, chr(get_byte(data, 0)) as kind
            from pg_logical_slot_peek_binary_changes(
                'lasting_s', null, null, 'proto_version', '1', 'publication_names', 'lasting_p')""").fetchall()
        commit = next(row["lsn"] for row in rows if row["kind"] == "C")
        inserts = [row for row in rows if row["kind"] == "I"]
        assert undelivered(DeliveredPosition()) == 3
        assert [undelivered(DeliveredPosition(1, row["lsn"], row["xid"])) for row in inserts] == [3, 2, 1]
        ended = DeliveredPosition(commit, inserts[-1]["lsn"], inserts[-1]["xid"])
        assert undelivered(ended) == 0
        lasting.commit()
        assert undelivered(ended) == 1
        drop_slot(connection, "lasting_s")
        drop_publication(connection, "lasting_p")


def test_counts_logical_messages_like_rows(deploy: Deploy) -> None:
    """Count a transaction's messages under the pipeline's prefix, because the router processes only these messages."""
    database = deploy("spoken", applied=False).environment.source
    source = Source(publication="spoken_p", slot="spoken_s", message_prefix="outbox")
    with postgres_client.connected(database) as connection:
        connection.execute("create publication spoken_p")
        connection.execute("select pg_create_logical_replication_slot('spoken_s', 'pgoutput')")
        for transactional, prefix in [
            (True, "outbox"),
            (True, "outboxes"),
            (False, "outbox-heartbeat"),
            (True, "outbox"),
        ]:
            connection.execute("select pg_logical_emit_message(%s, %s, 'x')", (transactional, prefix))
        assert count_undelivered(connection, source, DeliveredPosition()) == 2
        server = postgres_client.read_server(connection)["wal_position"]
        assert count_between(connection, source, after=0, upto=server) == 2
        drop_slot(connection, "spoken_s")
        drop_publication(connection, "spoken_p")
