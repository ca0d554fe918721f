"""Names that PostgreSQL misinterprets if they are not quoted: upper case, spaces, double quotes and dollar signs."""

from __future__ import annotations

from pathlib import Path

import psycopg
import yaml
from psycopg import sql
from tests.integration.support import Deploy

from outbox_kit.deployment import make_plan
from outbox_kit.results import silent
from outbox_kit.results.checks import Status
from outbox_kit.stack import StackState
from outbox_kit.verification import verify

NAME = "Names"
ROLE = '$role$ "Shop" Connector'
SOURCE = {
    "table": "Shop.OutboxEvent",
    "publication": "_names_0",
    "slot": "_names_0",
    "columns": {
        "id": "Id",
        "aggregate_type": "AggregateType",
        "aggregate_id": "AggregateId",
        "event_type": "EventType",
        "payload": "Payload",
        "headers": "Headers",
        "created_at": "CreatedAt",
    },
}


def create_environment(project: Path, state: StackState) -> str:
    """Create a role for the connector and an environment that uses it; return the name of the environment."""
    folder = project / "connectors" / "environments"
    data = yaml.safe_load((folder / "local.yaml").read_text(encoding="utf-8"))
    data["name"] = NAME
    data["source"]["connector"]["user"] = ROLE
    (folder / f"{NAME}.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    create_role = sql.SQL("create role {} with login replication password {}")
    with psycopg.connect(state.postgres, autocommit=True) as connection:
        connection.execute(create_role.format(sql.Identifier(ROLE), sql.Literal(state.connector_password)))
    return NAME


def test_deploys_names_that_require_quotes(project: Path, state: StackState, deploy: Deploy) -> None:
    deployment = deploy(NAME, environment=create_environment(project, state), source=SOURCE)
    assert make_plan(deployment).changes == ()
    checks = verify(deployment, silent)
    assert [check for check in checks if check.status in (Status.FAIL, Status.WARN)] == []
    assert [check.status for check in checks if check.id == "postgres.table-identity"] == [Status.PASS]
    assert {check.status for check in checks if check.id.startswith("canary.")} == {Status.PASS}
