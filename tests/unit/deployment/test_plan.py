"""Plan and apply across all systems, and recovery."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deployment.samples import (
    PLUGINS,
    Deployed,
    Serve,
    deployed_connector,
    registered,
    service,
)
from tests.unit.fake_postgres import FakePostgres
from tests.unit.postgres.samples import DEPLOYED, PUBLICATION, SLOT

from outbox_events.errors import RefusedError
from outbox_kit.deployment import make_plan, open_deployment
from outbox_kit.deployment.plan import check_rules, plan_connect, plan_postgres, plan_registry, plan_roll_outs
from outbox_kit.pipeline import Lock
from outbox_kit.registry.client import SchemaVersion
from outbox_kit.registry.state import ActualSubject, Subject
from outbox_kit.results.changes import Change
from outbox_kit.results.checks import Status

pytestmark = pytest.mark.usefixtures("database", "kafka")


def test_plan_uses_the_schemas_of_the_registry(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    """If an apply was killed after registering, the lock file lacks the id, but the plan must show it."""
    deployed().write_lock(lock)
    registry = serve(registered(lock, {"book": [8]}))
    connect = serve(deployed_connector(deployed().render(lock)))
    changes = make_plan(deployed(connect=service(connect), registry=service(registry))).changes
    assert [(change.object, change.after) for change in changes] == [
        ("connector library-outbox", "transforms.outbox.aggregate.book.schema.1.id: 7 → 8")
    ]
    assert deployed().lock() == lock, "a plan writes nothing"


@pytest.mark.parametrize(
    ("template", "state", "planned"),
    [
        ("outbox-postgres", "RUNNING", ["connector library-outbox"]),
        # apply detects both changes after registering, and would refuse a plan that lacks either.
        ("outbox-postgres", "STOPPED", ["connector library-outbox", "state library-outbox"]),
        # The config of this template contains no schema, so the task is not restarted.
        ("outbox-postgres-eventrouter", "RUNNING", []),
        ("outbox-postgres-eventrouter", "STOPPED", ["state library-outbox"]),
    ],
)
def test_new_schema_changes_a_connector_with_schemas(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    template: str,
    state: str,
    planned: list[str],
) -> None:
    deployment = deployed()
    connector = deployment.pipeline.connector.model_copy(update={"template": template})
    pipeline = deployment.pipeline.model_copy(update={"connector": connector})
    deployment.write_lock(lock)
    config = replace(deployment, pipeline=pipeline).render(lock)
    new = [Change("registry", "schema", "library.book-value", "update", "payload of book")]
    connect = deployed_connector(config, state)
    connect.plugins = [*PLUGINS, {"class": "io.debezium.transforms.outbox.EventRouter"}]
    changed = replace(deployed(connect=service(serve(connect))), pipeline=pipeline)
    assert [change.object for change in plan_connect(changed, lock, new, DEPLOYED)] == planned


def test_rejects_invalid_files_before_any_connection(serve: Serve, deployed: Deployed) -> None:
    connect, registry = serve([]), serve([])
    deployment = deployed(connect=service(connect), registry=service(registry))
    deployment.pipeline.connector.overrides["snapshot.mode"] = "initial"
    with pytest.raises(RefusedError, match=r"lint\.setting\.snapshot\.mode: snapshot\.mode=initial"):
        make_plan(deployment)
    assert (connect.seen, registry.seen) == ([], [])


def test_plan_does_not_require_secrets_of_jobs(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a variable of a target is not set, its section is empty, although the file contains it."""
    for name in ("ADMIN", "KAFKA", "REGISTRY"):
        monkeypatch.setenv(f"OUTBOX_{name}_PASSWORD", "x")
    environments = workspace / "connectors" / "environments"
    text = (environments / "production.example.yaml").read_text()
    port = '    port: "{{ env.OUTBOX_WAREHOUSE_PORT }}"\n    database: warehouse\n'
    (environments / "production.yaml").write_text(text.replace("    database: warehouse\n", port))
    with open_deployment(workspace / "connectors" / "library.yaml", "production") as deployment:
        assert deployment.pipeline.materializations
        assert deployment.environment.targets == {}
        checks = check_rules(deployment, None)
    assert [check.id for check in checks if check.status is Status.FAIL] == []


def test_plan_of_a_deployed_pipeline_is_empty(serve: Serve, deployed: Deployed, lock: Lock) -> None:
    deployed().write_lock(lock)
    registry = serve(registered(lock))
    connect = serve(deployed_connector(deployed().render(lock)))
    plan = make_plan(deployed(connect=service(connect), registry=service(registry)))
    assert plan.changes == ()
    assert (plan.cluster_id, plan.registry, plan.database) == ("cluster-1", registry.url, "7301/library")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timeline": 2}, "the server was promoted or"),
        ({"system_identifier": "7302"}, "system identifier of the database is 7302"),
        ({"slot": None}, "slot 'library_outbox', created at .*, does not exist"),
    ],
    ids=["promoted", "another database", "slot gone"],
)
@pytest.mark.parametrize("is_old", [False, True], ids=["", "old lock file"])
def test_plan_with_recover_accepts_a_lost_slot(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    database: FakePostgres,
    changes: dict[str, Any],
    message: str,
    is_old: bool,
) -> None:
    database.actual = replace(DEPLOYED, **changes)
    database.is_read = lambda: False
    deployed().write_lock(lock.model_copy(update={"database": None}) if is_old else lock)
    registry = serve(registered(lock))
    connect = serve(deployed_connector(deployed().render(lock), lsn=DEPLOYED.wal_position + 1))
    deployment = deployed(connect=service(connect), registry=service(registry))
    with pytest.raises(RefusedError, match=message):
        make_plan(deployment)
    assert (connect.seen, registry.seen) == ([], []), "refused before anything else is asked"
    planned = [change.object for change in make_plan(deployment, recover=True).changes]
    slot = ["slot library_outbox"] if "slot" in changes else []
    database_change = ["database 7302/library"] if "system_identifier" in changes else []
    assert planned == [
        *database_change,
        *slot,
        *(f"{kind} library-outbox" for kind in ("offsets", "connector", "start")),
    ]


@pytest.mark.parametrize(("pending", "is_dangerous"), [("required", True), (None, False)])
def test_a_new_slot_beside_topics_of_a_destroyed_pipeline_is_dangerous(
    deployed: Deployed, lock: Lock, database: FakePostgres, pending: str | None, is_dangerous: bool
) -> None:
    """There was no slot to retain the rows that were committed after `destroy`."""
    database.actual = replace(DEPLOYED, slot=None, publication=None)
    book = lock.topics["library.book"].model_copy(update={"pending_backfill": pending})
    destroyed = lock.model_copy(update={"source": None, "topics": {"library.book": book}})
    publication, slot = plan_postgres(deployed(), destroyed, database.actual)
    assert (publication.danger, bool(slot.danger)) == ("", is_dangerous)
    assert ("run `outbox backfill book`" in slot.danger) is is_dangerous


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_standby": True}, "the database is a standby"),
        ({"wal_level": "replica"}, "wal_level is 'replica'"),
        ({"publication": None}, "exists but publication"),
        ({"publication": {**PUBLICATION, "filtered": True}}, "has a row filter"),
        ({"slot": replace(SLOT, wal_status="lost")}, "is lost"),
    ],
)
def test_recover_rejects_objects_that_cannot_deliver(
    deployed: Deployed, lock: Lock, database: FakePostgres, changes: dict[str, Any], message: str
) -> None:
    database.actual = replace(DEPLOYED, **changes)
    deployed().write_lock(lock)
    with pytest.raises(RefusedError, match=message):
        make_plan(deployed(), recover=True)


@pytest.mark.parametrize(
    ("backfill", "command"), [(True, "outbox backfill --restart book"), (False, "have the service")]
)
def test_roll_out_writes_added_fields_to_existing_states(deployed: Deployed, backfill: bool, command: str) -> None:
    pipeline = deployed().pipeline
    book = pipeline.aggregates["book"]
    book = book.model_copy(update={"backfill": book.backfill if backfill else None})
    pipeline = pipeline.model_copy(update={"aggregates": {"book": book}})
    old, new = (
        json.dumps({"type": "record", "name": "Book", "fields": [{"name": name, "type": "int"} for name in names]})
        for names in ("a", "ab")
    )
    for before, after, count in ((old, new, 1), (new, old, 0)):
        subject = Subject("book", "library.book-value", after, "NONE")
        actual = {subject.name: ActualSubject(SchemaVersion(1, 7, before), "NONE")}
        [roll_out] = plan_roll_outs(pipeline, [subject], actual)
        assert sum("shall have b," in step and command in step for step in roll_out.steps) == count


def test_plan_of_an_empty_registry(serve: Serve, deployed: Deployed) -> None:
    server = serve([(404, {"error_code": 40401, "message": "not found"})])
    changes = plan_registry(deployed(registry=service(server))).changes
    assert [change.object for change in changes] == [
        f"{kind} library.{name}-value"
        for name in ("author", "book", "outbox-canary")
        for kind in ("compatibility", "schema")
    ]
    assert {request.method for request in server.seen} == {"GET"}
