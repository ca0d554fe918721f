"""Outbox rows that are updated or deleted."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import psycopg
import yaml
from tests.integration.outbox_rows import RUNNING, connector_state, insert
from tests.integration.support import Deploy, headers, records, wait_record
from tests.integration.transforms.test_records import book

from outbox_events.sending.values import to_json
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.results import silent
from outbox_kit.results.checks import Status
from outbox_kit.verification import verify


def failure(deployment: Deployment) -> str:
    """Wait until the task has failed. Return its error."""
    name = deployment.pipeline.connector.name

    def poll() -> Observation[ConnectorStatus]:
        status = deployment.connect.status(name)
        assert status is not None
        return Observation(status if "FAILED" in status.text else None, status.text)

    return str(wait_for(f"the task of {name} to fail", poll, seconds=60))


def allow(project: Path, name: str, **policies: str) -> None:
    """Change `source` of a pipeline file, and apply it."""
    path = project / "connectors" / f"{name}.yaml"
    data = yaml.safe_load(path.read_text())
    data["source"] |= policies
    path.write_text(yaml.safe_dump(data))
    with open_deployment(path, "local") as deployment:
        apply(deployment, silent)


def test_updated_and_deleted_rows_stop_the_task_unless_allowed(deploy: Deploy, project: Path, source_dsn: str) -> None:
    """If updates and deletes are published and allowed, each inserted row is delivered once."""
    deployment = deploy("mended")
    table = "public.mended_event"

    def row() -> str:
        key = str(uuid4())
        return insert(source_dsn, table, "book", key, to_json(book(key)))

    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("alter publication mended_p set (publish = 'insert, update, delete, truncate')")
        # Debezium skips a published truncate, so it does not stop the task.
        sent = [row()]
        connection.execute(f"truncate {table}")
        sent.append(row())
        for event in sent:
            wait_record(deployment, "mended.book", 4, event)
        connection.execute(f"update {table} set payload = null where id = %s", (sent[1],))
        sent.append(row())
        error_message = failure(deployment)
        assert f"{table} with op=u" in error_message
        assert "table.op.invalid.behavior=warn" in error_message
        actual = {headers(message)["event_id"] for message in records(deployment, "mended.book", 4)}
        assert actual == set(sent[:2])

        allow(project, "mended", updated_rows="warn")
        wait_record(deployment, "mended.book", 4, sent[2])
        connection.execute(f"delete from {table} where id = %s", (sent[1],))
        sent.append(row())
        assert "deleted.rows=ignore" in failure(deployment)

        allow(project, "mended", deleted_rows="ignore")
        wait_record(deployment, "mended.book", 4, sent[3])
    delivered = [headers(message)["event_id"] for message in records(deployment, "mended.book", 4)]
    assert sorted(delivered) == sorted(sent)
    assert connector_state(deployment) == RUNNING
    with open_deployment(project / "connectors" / "mended.yaml", "local") as now:
        checks = {check.id: check for check in verify(now, silent)}
    assert checks["postgres.publication"].status is Status.PASS
    assert checks["postgres.publication"].seen.startswith("insert, update, delete, truncate of ")
