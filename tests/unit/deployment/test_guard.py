"""The cluster that was meant, the config that was planned, and the form of a plan as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.deployment.samples import Deployed, Serve, service

from outbox_kit.changes import Change
from outbox_kit.deployment import Plan, RollOut, read_plan, to_document
from outbox_kit.deployment.agreement import refuse_other_changes, refuse_other_config, refuse_other_schemas
from outbox_kit.deployment.guard import refuse_other_cluster
from outbox_kit.deployment.plan import without_schemas
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.pipeline import Kafka, Lock

BOTH = ["kafka", "connect"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka answers as cluster k."""
    monkeypatch.setattr(KafkaClient, "cluster_id", lambda _: "k")


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("expected", "locked", "connect", "words"),
    [
        (None, None, "k", None),
        ("k", "other", "k", None),
        (None, "k", "k", None),
        ("other", None, "k", r"kafka\.bootstrap_servers .* belongs to cluster k; kafka\.cluster_id of the env"),
        (
            None,
            "other",
            "k",
            r"belongs to cluster k; the cluster of the first apply \(library\.fixed\.lock\.json\)",
        ),
        ("k", None, "other", r"Kafka Connect .* belongs to cluster other; kafka\.cluster_id"),
        (None, None, "other", r"different clusters: kafka\.bootstrap_servers .* to k, Kafka Connect .* to other"),
    ],
)
def test_every_two_of_the_three_must_agree(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    expected: str | None,
    locked: str | None,
    connect: str,
    words: str | None,
) -> None:
    server = serve([(200, {"version": "4.3.1", "kafka_cluster_id": connect})])
    kafka = Kafka(bootstrap_servers="127.0.0.1:1", cluster_id=expected)
    deployment = deployed(connect=service(server), kafka=kafka)
    lock = lock.model_copy(update={"cluster_id": locked})
    if words is None:
        assert refuse_other_cluster(deployment, lock, BOTH) == "k"
    else:
        with pytest.raises(RefusedError, match=words):
            refuse_other_cluster(deployment, lock, BOTH)


def test_systems_that_were_not_asked_for_are_not_asked(deployed: Deployed, lock: Lock) -> None:
    assert refuse_other_cluster(deployed(), lock, ["postgres", "registry"]) is None


# --- after registering

SCHEMA = Change("registry", "schema library.book-value", "update", "payload of book", "version 1", "version 2")
CONNECTOR = Change("connect", "connector library-outbox", "update", "restarts the task", "", "schema versions and ids")
PLAN = Plan("library", "fixed", (SCHEMA, CONNECTOR))


def with_new_book(lock: Lock) -> Lock:
    new = lock.schemas["book"][0].model_copy(update={"version": 2, "id": 99})
    return lock.model_copy(update={"schemas": {**lock.schemas, "book": [new, *lock.schemas["book"]]}})


def test_the_planned_version_is_what_was_registered(lock: Lock) -> None:
    refuse_other_schemas(replace(PLAN, schemas=lock.schemas), with_new_book(lock))


def test_a_version_that_nobody_planned_is_refused(lock: Lock) -> None:
    plan = replace(PLAN, changes=(CONNECTOR,), schemas=lock.schemas)
    with pytest.raises(RefusedError, match=r"book has versions 2 \(id 99\), 1 \(id 7\) .*, planned were 1 \(id 7\)"):
        refuse_other_schemas(plan, with_new_book(lock))


def test_a_template_that_was_edited_in_between_is_refused(deployed: Deployed, lock: Lock) -> None:
    config = without_schemas(deployed(), lock)
    refuse_other_config(deployed(), replace(PLAN, config=config), with_new_book(lock))
    edited = {**config, "poll.interval.ms": "7"}
    with pytest.raises(RefusedError, match=r"would differ from the plan in poll\.interval\.ms"):
        refuse_other_config(deployed(), replace(PLAN, config=edited), lock)


def test_keys_of_new_schemas_are_no_difference() -> None:
    now = replace(CONNECTOR, after="changed: transforms.outbox.aggregate.book.schema.2.id")
    refuse_other_changes(PLAN, [now])
    with pytest.raises(RefusedError, match="is pending, planned was update connector library-outbox"):
        refuse_other_changes(replace(PLAN, changes=(CONNECTOR,)), [now])


@pytest.mark.parametrize("now", [[], [CONNECTOR, Change("connect", "start library-outbox", "create", "why")]])
def test_a_connector_that_stands_elsewhere_is_refused(now: list[Change]) -> None:
    with pytest.raises(RefusedError, match="the world moved: of the connector") as caught:
        refuse_other_changes(PLAN, now)
    assert "the connector was not touched" in caught.value.hint


# --- as JSON


def test_a_plan_survives_its_json_form(tmp_path: Path) -> None:
    plan = Plan(
        "library",
        "fixed",
        (SCHEMA, CONNECTOR),
        (RollOut("book", ("isbn",), (), ("outbox apply",)),),
        recover=False,
        only=("registry", "connect"),
        files="f" * 64,
        waits_for=("slot s",),
        cluster_id="k1",
        registry="http://a",
        database="1/library",
    )
    document = to_document(plan)
    assert document["format"] == 1
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert read_plan(path) == plan
