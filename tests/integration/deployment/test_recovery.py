"""Recovery from a lost slot, a restored server and a failed connector with the commands of docs/incidents.md."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from tests.integration.support import Deploy, Outbox, headers, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect import lifecycle as connect_lifecycle
from outbox_kit.deployment import Deployment


def drop_slot(deployment: Deployment, dsn: str) -> None:
    """Stop the connector and drop its slot."""
    connect_lifecycle.stop(deployment.connect, deployment.pipeline.connector.name)
    slot = deployment.pipeline.source.slot
    with psycopg.connect(dsn, autocommit=True) as connection:

        def poll() -> Observation[bool]:
            row = connection.execute("select active from pg_replication_slots where slot_name = %s", (slot,)).fetchone()
            return Observation(True if row == (False,) else None, f"active: {row}")

        wait_for(f"slot {slot} to be given up", poll, seconds=30)
        connection.execute("select pg_drop_replication_slot(%s)", (slot,))


@pytest.mark.long
def test_rejects_a_lost_slot_until_recovered(outbox: Outbox, deploy: Deploy, source_dsn: str) -> None:
    deployment = deploy("lostslot")
    key = str(uuid4())
    table = "public.lostslot_event"
    first = wait_record(deployment, "lostslot.book", 4, send(source_dsn, "book", key, book(key), table=table))
    drop_slot(deployment, source_dsn)

    refused = outbox("apply", "--yes", pipeline="lostslot")
    assert refused.code == 1, refused.output
    assert "slot 'lostslot_s', created at " in refused.stderr
    assert "`outbox recover" in refused.stderr

    recovered = outbox("apply", "--yes", "--recover", pipeline="lostslot")
    assert recovered.code == 0, recovered.output
    again = wait_record(deployment, "lostslot.book", 4, send(source_dsn, "book", key, book(key), table=table))
    assert headers(first)["source_sequence"].startswith("0001_")
    assert headers(again)["source_sequence"].startswith("0002_")

    second_apply = outbox("apply", "--yes", pipeline="lostslot")
    assert "nothing to change" in second_apply.stderr, second_apply.output
    verified = outbox("verify", "--no-canary", pipeline="lostslot")
    assert verified.code == 1, verified.output
    assert "kafka.pending-backfill" in verified.stdout
    acknowledged = outbox("backfill", "--acknowledge", "author", "book", pipeline="lostslot")
    assert acknowledged.code == 0, acknowledged.output
    assert outbox("verify", pipeline="lostslot").code == 0


@pytest.mark.long
def test_rejects_a_connector_ahead_of_the_server(outbox: Outbox, deploy: Deploy, source_dsn: str) -> None:
    """After a restore, Debezium would start ahead of the server, and PostgreSQL would silently skip rows."""
    deployment = deploy("rewound")
    key = str(uuid4())
    wait_record(deployment, "rewound.book", 4, send(source_dsn, "book", key, book(key), table="public.rewound_event"))
    name = deployment.pipeline.connector.name
    connect_lifecycle.stop(deployment.connect, name)
    ahead = 2**50
    deployment.connect.patch_offsets(
        name, {"server": "rewound"}, {"lsn": ahead, "lsn_proc": ahead, "lsn_commit": ahead}
    )
    refused = outbox("plan", pipeline="rewound")
    assert refused.code == 1, refused.output
    assert f"the offset of connector 'rewound' is at LSN {ahead}, but the server is only at " in refused.stderr
    recovered = outbox("apply", "--yes", "--recover", pipeline="rewound")
    assert recovered.code == 0, recovered.output
    wait_record(deployment, "rewound.book", 4, send(source_dsn, "book", key, book(key), table="public.rewound_event"))


def test_apply_fails_for_a_failed_connector(outbox: Outbox, deploy: Deploy, source_dsn: str) -> None:
    """A second apply has nothing to change, but must not report success."""
    deployment = deploy("failing")
    name = deployment.pipeline.connector.name
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("alter table failing_event rename column aggregate_id to other_id")
        connection.execute("insert into failing_event (aggregate_type, other_id, event_type) values ('book', 'x', 'y')")

        def poll() -> Observation[bool]:
            status = deployment.connect.status(name)
            return Observation(True if status and "FAILED" in status.task_states else None, str(status))

        wait_for("the task to fail", poll, seconds=60)
        connection.execute("alter table failing_event rename column other_id to aggregate_id")
    done = outbox("apply", "--yes", pipeline="failing")
    assert done.code == 1, done.output
    assert "connector failing FAILED: " in done.stderr
