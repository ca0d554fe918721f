"""apply, plan and verify on the embedded stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import yaml
from tests.integration.deployment.test_recovery import drop_slot
from tests.integration.support import Deploy, Outbox

from outbox_kit.deployment import Deployment
from outbox_lab.documents.check_catalogue import DEFAULT_IDS as IDS

# Checks of optional settings that the local environment file does not contain.
NOT_CONFIGURED = {"connect.workers", "kafka.cluster"}


def test_a_second_apply_changes_nothing(outbox: Outbox, library: Deployment) -> None:
    del library
    planned = outbox("plan", "--output", "json")
    assert planned.code == 0, planned.output
    assert json.loads(planned.stdout)["changes"] == []
    applied = outbox("apply", "--yes")
    assert applied.code == 0, applied.output
    assert "nothing to change" in applied.stderr


def test_verify_passes_every_check(outbox: Outbox, library: Deployment) -> None:
    del library
    done = outbox("verify", "--output", "json")
    assert done.code == 0, done.output
    checks = json.loads(done.stdout)["checks"]
    assert [check["id"] for check in checks] == IDS
    not_passed = {check["id"]: check["status"] for check in checks if check["status"] != "pass"}
    assert not_passed.keys() <= NOT_CONFIGURED, not_passed
    assert set(not_passed.values()) <= {"unknown"}


def test_plan_shows_pending_changes_with_exit_code_3(outbox: Outbox, make_pipeline: Callable[..., Path]) -> None:
    make_pipeline("planned")
    done = outbox("plan", "--output", "json", pipeline="planned")
    assert done.code == 3, done.output
    objects = [change["object"] for change in json.loads(done.stdout)["changes"]]
    # The order matters: a publication created after the slot loses rows.
    assert objects[:4] == [
        "table public.planned_event",
        "grant to outbox_connector",
        "publication planned_p",
        "slot planned_s",
    ]
    assert objects[-1] == "connector planned"


def test_verify_reports_changes_made_outside_outbox_kit(outbox: Outbox, deploy: Deploy, source_dsn: str) -> None:
    deploy("tampered")
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("alter publication tampered_p set (publish = 'insert, update')")
    done = outbox("verify", "--output", "json", pipeline="tampered")
    assert done.code == 1, done.output
    failed = {check["id"]: check for check in json.loads(done.stdout)["checks"] if check["status"] == "fail"}
    assert list(failed) == ["postgres.publication"]
    assert (
        failed["postgres.publication"]["seen"]
        == "insert, update of public.tampered_event, with publish_via_partition_root = true"
    )


def test_apply_rejects_a_missing_slot(outbox: Outbox, deploy: Deploy, source_dsn: str) -> None:
    deployment = deploy("slotless")
    drop_slot(deployment, source_dsn)
    done = outbox("apply", "--yes", pipeline="slotless")
    assert done.code == 1, done.output
    assert "slot 'slotless_s', created at" in done.stderr
    assert "hint:" in done.stderr


def test_rejects_an_incompatible_schema_before_any_change(outbox: Outbox, deploy: Deploy, project: Path) -> None:
    deployment = deploy("narrowed")
    path = project / "connectors" / "narrowed.yaml"
    schema = json.loads((project / "schemas" / "book.avsc").read_text())
    schema["fields"].append({"name": "isbn", "type": "string"})  # has no default, so old records cannot be read
    (project / "schemas" / "narrowed.avsc").write_text(json.dumps(schema))
    data = yaml.safe_load(path.read_text())
    data["aggregates"]["book"]["schema"] = "schemas/narrowed.avsc"
    data["aggregates"]["book"]["topic"] = {"delete.retention.ms": "123456789"}
    path.write_text(yaml.safe_dump(data))
    done = outbox("apply", "--yes", pipeline="narrowed")
    assert done.code == 1, done.output
    assert (
        "schema of book is not BACKWARD compatible with version 1 of narrowed.book-value: isbn (from nothing"
        in done.stderr
    )
    topics = deployment.kafka.describe(["narrowed.book"])
    assert topics["narrowed.book"].config["delete.retention.ms"] != "123456789"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"port": 1}, "cannot connect to PostgreSQL at 127.0.0.1:1/library"),
        ({"admin": {"user": "outbox_admin", "password": "wrong"}}, "password authentication failed"),
    ],
)
def test_reports_an_unreachable_database(
    outbox: Outbox, project: Path, change: dict[str, object], message: str
) -> None:
    data = yaml.safe_load((project / "connectors" / "environments" / "local.yaml").read_text())
    data["name"] = "broken"
    data["source"] |= change
    (project / "connectors" / "environments" / "broken.yaml").write_text(yaml.safe_dump(data))
    done = outbox("apply", "--yes", environment="broken")
    assert done.code == 1, done.output
    assert done.stdout == ""
    assert message in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_reports_a_wrong_connector_password_before_writing_the_connector(
    outbox: Outbox, make_pipeline: Callable[..., Path], project: Path
) -> None:
    make_pipeline("unresolved")
    data = yaml.safe_load((project / "connectors" / "environments" / "local.yaml").read_text())
    data["name"] = "unresolved"
    data["source"]["connector"]["password"] = "${env:OUTBOX_NOT_SET}"
    (project / "connectors" / "environments" / "unresolved.yaml").write_text(yaml.safe_dump(data))
    done = outbox("apply", "--yes", pipeline="unresolved", environment="unresolved")
    assert done.code == 1, done.output
    assert "Kafka Connect rejects the connector config: database." in done.stderr
    planned = outbox("plan", "--output", "json", pipeline="unresolved", environment="unresolved")
    assert [change["object"] for change in json.loads(planned.stdout)["changes"]] == ["connector unresolved"]


def test_deletes_a_copy_of_the_connector_while_the_connector_runs(deploy: Deploy, outbox_here: Outbox) -> None:
    owner = deploy("twinned")
    config = owner.connect.config(owner.pipeline.connector.name)
    assert config is not None
    owner.connect.create_stopped("twinned-copy", {**config, "name": "twinned-copy", "slot.name": "twinned_copy_s"})
    done = outbox_here("apply", "--yes", "--allow", "connector twinned-copy", pipeline="twinned")
    assert done.code == 0, done.output
    assert owner.connect.config("twinned-copy") is None
    lock = owner.lock()
    assert lock is not None
    assert lock.unfinished is None
