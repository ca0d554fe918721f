"""plan and apply for a running pipeline: dangerous changes, saved plans, concurrency, another cluster, shared types."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import yaml
from tests.integration.support import CommandResult, Deploy, Outbox, decode, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_kit.deployment import Deployment
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.advisory_lock import pipeline_lock
from outbox_kit.stack import StackState

Edit = Callable[..., None]


@pytest.fixture
def edit(project: Path) -> Edit:
    """Change a pipeline file."""

    def run(name: str, change: Callable[[dict[str, Any]], object]) -> None:
        path = project / "connectors" / f"{name}.yaml"
        data = yaml.safe_load(path.read_text())
        change(data)
        path.write_text(yaml.safe_dump(data))

    return run


@pytest.fixture(scope="module")
def unchanged(deploy_once: Deploy) -> Deployment:
    """A deployment that the tests do not change."""
    return deploy_once("steady")


@pytest.fixture
def outbox(outbox_here: Outbox) -> Outbox:
    """Run commands in this process."""
    return outbox_here


def planned(outbox: Outbox, name: str, *options: str) -> dict[str, Any]:
    """Return the plan as JSON."""
    done = outbox("plan", "--output", "json", *options, pipeline=name)
    assert done.code in (0, 3), done.output
    return dict(json.loads(done.stdout))


def objects(plan: dict[str, Any]) -> list[str]:
    return [change["object"] for change in plan["changes"]]


def assert_rejected(result: CommandResult, *fragments: str) -> None:
    assert result.code == 1, result.output
    assert "Traceback" not in result.stderr
    for fragment in fragments:
        assert fragment in result.stderr, result.output


def test_adds_partitions_only_when_allowed_and_before_the_connector(
    outbox: Outbox, deploy: Deploy, edit: Edit, source_dsn: str
) -> None:
    deployment = deploy("growing")
    edit("growing", lambda data: data["aggregates"]["book"].update(partitions=6))
    plan = planned(outbox, "growing")
    assert objects(plan) == ["topic growing.book", "connector growing"]
    assert "keys move to other partitions" in plan["changes"][0]["danger"]
    assert_rejected(outbox("apply", "--yes", pipeline="growing"), "no change", '--allow "topic growing.book"')
    assert deployment.kafka.topics()["growing.book"][0] == 4
    assert_rejected(
        outbox("apply", "--yes", "--only", "connect", pipeline="growing"),
        "the connector requires changes that --only excludes: topic growing.book",
    )
    only = outbox("apply", "--yes", "--only", "kafka", "--allow", "topic growing.book", pipeline="growing")
    assert only.code == 0, only.output
    assert deployment.kafka.topics()["growing.book"][0] == 6
    assert objects(planned(outbox, "growing")) == ["connector growing"]
    remaining = outbox("apply", "--yes", "--only", "connect", pipeline="growing")
    assert remaining.code == 0, remaining.output
    assert planned(outbox, "growing")["changes"] == []
    key = str(uuid4())
    wait_record(deployment, "growing.book", 6, send(source_dsn, "book", key, book(key), table="public.growing_event"))


def test_saved_plan_is_applied_once_or_rejected(
    outbox: Outbox, deploy: Deploy, edit: Edit, project: Path, tmp_path: Path
) -> None:
    deployment = deploy("saved")
    schema = json.loads((project / "schemas" / "book.avsc").read_text())
    schema["fields"].append({"name": "isbn", "type": ["null", "string"], "default": None})
    (project / "schemas" / "saved.avsc").write_text(json.dumps(schema))
    edit("saved", lambda data: data["aggregates"]["book"].update(schema="schemas/saved.avsc"))
    file = tmp_path / "plan.json"
    plan = planned(outbox, "saved", "--save", str(file))
    assert json.loads(file.read_text()) == plan
    assert objects(plan) == ["schema saved.book-value", "connector saved"]
    assert [(entry["aggregate"], entry["added"], entry["removed"]) for entry in plan["rollout"]] == [
        ("book", ["isbn"], [])
    ]
    assert [step.split(":")[0].split(";")[0] for step in plan["rollout"][0]["steps"][:3]] == [
        "run `outbox apply`",
        "deploy the service that writes isbn",
        "if the states of existing rows shall have isbn, have the service write every state of book again",
    ]
    deployment.kafka.set_config("saved.author", {"segment.ms": "604800000"})
    stale_plan = outbox("apply", "--yes", "--plan", str(file), pipeline="saved")
    assert_rejected(stale_plan, "cannot be applied: the change `update topic saved.author` was not in the plan")
    assert objects(planned(outbox, "saved")) == ["topic saved.author", "schema saved.book-value", "connector saved"]
    deployment.kafka.set_config("saved.author", {"segment.ms": "86400000"})
    done = outbox("apply", "--yes", "--plan", str(file), "--output", "json", pipeline="saved")
    assert done.code == 0, done.output
    assert [change["object"] for change in json.loads(done.stdout)["changes"]] == objects(plan)
    again = outbox("apply", "--yes", "--plan", str(file), pipeline="saved")
    assert_rejected(again, "cannot be applied: the change `update schema saved.book-value` is no longer pending")
    # A registry cannot make an earlier version the latest again.
    edit("saved", lambda data: data["aggregates"]["book"].update(schema="schemas/book.avsc"))
    assert_rejected(outbox("plan", pipeline="saved"), "version 2 remains the latest")


def test_requires_allow_for_a_changed_logical_type(outbox: Outbox, deploy: Deploy, project: Path) -> None:
    def clock(unit: str) -> None:
        moment = {"type": "long", "logicalType": f"timestamp-{unit}"}
        schema = {"type": "record", "name": "Clock", "namespace": "t", "fields": [{"name": "at", "type": moment}]}
        (project / "schemas" / "clock.avsc").write_text(json.dumps(schema))

    clock("millis")
    deployment = deploy("logical", aggregates={"clock": {"schema": "schemas/clock.avsc"}})
    clock("micros")
    (schema, _) = planned(outbox, "logical")["changes"]
    assert schema["danger"].startswith("field at is timestamp-millis in existing records and would be read as")
    assert_rejected(outbox("apply", "--yes", pipeline="logical"), '--allow "schema logical.clock-value"')
    assert deployment.registry.versions("logical.clock-value") == [1]
    clock("millis")
    assert planned(outbox, "logical")["changes"] == []


def test_registers_shared_types_first_and_lets_them_evolve(
    outbox: Outbox, deploy: Deploy, project: Path, source_dsn: str
) -> None:
    def money(*fields: dict[str, Any]) -> None:
        cents = {"name": "cents", "type": "long"}
        schema = {"type": "record", "name": "Money", "namespace": "t.shared", "fields": [cents, *fields]}
        (project / "schemas" / "money.avsc").write_text(json.dumps(schema))

    money()
    fields = [{"name": "total", "type": "t.shared.Money"}]
    order = {"type": "record", "name": "Order", "namespace": "t.shop", "fields": fields}
    (project / "schemas" / "order.avsc").write_text(json.dumps(order))
    aggregates = {"order": {"schema": "schemas/order.avsc", "references": ["schemas/money.avsc"]}}
    deployment = deploy("shared", aggregates=aggregates)
    first = deployment.registry.latest("shared.order-value")
    assert first is not None
    assert [(entry.name, entry.subject, entry.version) for entry in first.references] == [
        ("t.shared.Money", "t.shared.Money", 1)
    ]
    assert "cents" not in first.text
    assert deployment.registry.compatibility("t.shared.Money") == "BACKWARD"
    assert planned(outbox, "shared")["changes"] == []
    money({"name": "currency", "type": "string", "default": "EUR"})
    plan = planned(outbox, "shared")
    assert objects(plan) == ["schema t.shared.Money", "schema shared.order-value", "connector shared"]
    assert plan["rollout"][0]["added"] == ["total.currency"]
    done = outbox("apply", "--yes", pipeline="shared")
    assert done.code == 0, done.output
    assert planned(outbox, "shared")["changes"] == []
    second = deployment.registry.latest("shared.order-value")
    assert second is not None
    assert [entry.version for entry in second.references] == [2]
    payload = {"total": {"cents": 5, "currency": "CHF"}}
    table = "public.shared_event"
    message = wait_record(deployment, "shared.order", 1, send(source_dsn, "order", "o1", payload, table=table))
    assert decode(deployment, "order", message) == payload


def test_rejects_a_concurrent_apply(outbox: Outbox, unchanged: Deployment, source_dsn: str) -> None:
    with pipeline_lock(unchanged.environment.source, "steady", command="apply"):
        done = outbox("apply", "--yes", pipeline="steady")
        waited = outbox("apply", "--yes", "--wait", "1", pipeline="steady")
    assert_rejected(
        done,
        "another command that changes pipeline 'steady' is running: pid ",
        "'outbox-kit apply steady' from 127.0.0.1, since 2",
    )
    assert_rejected(waited, "waited 1 s for the other command that changes pipeline 'steady' to end; last seen: pid ")
    with psycopg.connect(source_dsn) as connection:
        row = connection.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone()
    assert row == (0,)
    after = outbox("apply", "--yes", "--wait", "1", pipeline="steady")
    assert after.code == 0, after.output


def test_next_command_does_not_wait_for_an_ended_session(
    unchanged: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = unchanged.environment.source
    with postgres_client.connected(database) as session:
        with monkeypatch.context() as patch:
            patch.setattr(postgres_client, "connected", lambda _: nullcontext(session))
            with pipeline_lock(database, "steady", command="apply"):
                pass
        with pipeline_lock(database, "steady", command="apply"):
            pass


@pytest.fixture
def make_environment(project: Path) -> Callable[..., str]:
    """Write an environment file with a different Kafka cluster id or a different Connect cluster."""

    def make(name: str, **sections: dict[str, object]) -> str:
        folder = project / "connectors" / "environments"
        data = yaml.safe_load((folder / "local.yaml").read_text())
        data["name"] = name
        for section, values in sections.items():
            data[section] |= values
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data))
        return name

    return make


@pytest.mark.parametrize("command", [["plan"], ["apply", "--yes"], ["destroy", "--confirm", "astray@astray"]])
def test_rejects_another_kafka_cluster_before_any_change(
    outbox: Outbox,
    make_pipeline: Callable[..., Path],
    make_environment: Callable[..., str],
    state: StackState,
    source_dsn: str,
    command: list[str],
) -> None:
    make_pipeline("astray")
    environment = make_environment("astray", kafka={"cluster_id": "another-cluster"})
    done = outbox(*command, pipeline="astray", environment=environment)
    assert_rejected(done, f"belongs to cluster {state.kafka_cluster_id}, but kafka.cluster_id", "is another-cluster")
    with psycopg.connect(source_dsn) as connection:
        assert connection.execute("select to_regclass('public.astray_event')").fetchone() == (None,)


def test_records_the_cluster_of_the_first_apply(outbox: Outbox, unchanged: Deployment, state: StackState) -> None:
    lock = unchanged.lock()
    assert lock is not None
    assert lock.cluster_id == state.kafka_cluster_id
    unchanged.write_lock(lock.model_copy(update={"cluster_id": "the-old-one"}))
    try:
        assert_rejected(outbox("plan", pipeline="steady"), "the cluster of the first apply (steady.local.lock.json)")
    finally:
        unchanged.write_lock(lock)


def test_database_only_plan_queries_no_other_system(
    outbox: Outbox, make_pipeline: Callable[..., Path], make_environment: Callable[..., str], source_dsn: str
) -> None:
    """A database administrator may have no access to Kafka."""
    make_pipeline("alone")
    unreachable = {"url": "http://127.0.0.1:1"}
    environment = make_environment(
        "alone", kafka={"bootstrap_servers": "127.0.0.1:1"}, connect=unreachable, registry=unreachable
    )
    done = outbox("apply", "--yes", "--only", "postgres", pipeline="alone", environment=environment)
    assert done.code == 0, done.output
    with psycopg.connect(source_dsn) as connection:
        actual = connection.execute("select 1 from pg_replication_slots where slot_name = 'alone_s'").fetchone()
    assert actual == (1,)


def test_documented_json_has_the_structure_of_real_output(outbox: Outbox, make_pipeline: Callable[..., Path]) -> None:
    """docs/plan.md describes the stable fields."""
    make_pipeline("documented")
    plan = planned(outbox, "documented")
    text = (Path(__file__).parents[3] / "docs" / "plan.md").read_text(encoding="utf-8")
    example = json.loads(text.split("```json\n")[1].split("```")[0])
    assert example.keys() == plan.keys()
    assert {key: type(value) for key, value in example.items()} == {key: type(value) for key, value in plan.items()}
    for change in [*example["changes"], *plan["changes"]]:
        assert list(change) == ["system", "object", "action", "why", "before", "after", "danger", "loss"]
        assert all(isinstance(value, str) for value in change.values())
    assert [list(entry) for entry in example["rollout"]] == [["aggregate", "added", "removed", "steps"]]


def test_rejects_a_plan_when_files_changed(
    outbox: Outbox, unchanged: Deployment, edit: Edit, project: Path, tmp_path: Path
) -> None:
    """Both plans list the same changes, but the schemas that they register differ."""
    schema = json.loads((project / "schemas" / "book.avsc").read_text())
    field = {"name": "isbn", "type": "string", "default": ""}
    schema["fields"].append(field)
    (project / "schemas" / "edited.avsc").write_text(json.dumps(schema))
    edit("steady", lambda data: data["aggregates"]["book"].update(schema="schemas/edited.avsc"))
    file = tmp_path / "plan.json"
    planned(outbox, "steady", "--save", str(file))
    field["default"] = "none"
    (project / "schemas" / "edited.avsc").write_text(json.dumps(schema))
    done = outbox("apply", "--yes", "--plan", str(file), pipeline="steady")
    assert_rejected(done, "cannot be applied: pipeline, environment or schema files were changed")
    assert unchanged.registry.versions("steady.book-value") == [1]
    edit("steady", lambda data: data["aggregates"]["book"].update(schema="schemas/book.avsc"))
    assert planned(outbox, "steady")["changes"] == []
