"""Differences between a plan and the state at the time when the plan is applied."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.deployment.samples import Deployed

from outbox_events.errors import RefusedError
from outbox_kit.deployment import Plan
from outbox_kit.deployment.preconditions import (
    refuse_stale_plan,
    refuse_unplanned_changes,
    refuse_unplanned_config,
    refuse_unplanned_schemas,
)
from outbox_kit.pipeline import Lock
from outbox_kit.results.changes import Change

ADD_PARTITIONS = Change("kafka", "topic", "a", "update", "why", "4 partitions", "8 partitions", "keys move")
CHANGE_COMPATIBILITY = Change("registry", "compatibility", "b", "update", "why", "NONE", "FULL")
SLOT = Change("postgres", "slot", "s", "create", "why", danger="rows are lost")
SHOWN_PLAN = Plan("library", "local", (ADD_PARTITIONS, CHANGE_COMPATIBILITY), files="f1")
IDENTIFIED_PLAN = replace(SHOWN_PLAN, cluster_id="k1", registry="http://a", database="1/library")
SCHEMA = Change("registry", "schema", "library.book-value", "update", "payload of book", "version 1", "version 2")
CONNECTOR = Change("connect", "connector", "library-outbox", "update", "restarts the task", "", "schema versions, ids")
PLAN = Plan("library", "fixed", (SCHEMA, CONNECTOR))


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"changes": (ADD_PARTITIONS,)}, "the change `update compatibility b` is no longer pending"),
        ({"changes": (ADD_PARTITIONS, CHANGE_COMPATIBILITY, SLOT)}, "the change `create slot s` was not in the plan"),
        (
            {"changes": (replace(ADD_PARTITIONS, before="5 partitions"), CHANGE_COMPATIBILITY)},
            "`update topic a` was planned as 4 partitions → 8 partitions, and is now 5 partitions → 8 partitions",
        ),
        (
            {"changes": (replace(ADD_PARTITIONS, action="create"), CHANGE_COMPATIBILITY)},
            "the change `create topic a` was not in the plan",
        ),
        ({"files": "f2"}, "pipeline, environment or schema files were changed"),
        ({"cluster_id": "k2"}, "it was made for Kafka cluster k1, but the current Kafka cluster is k2"),
        ({"registry": "http://b"}, "it was made for registry http://a, but the current registry is http://b"),
        ({"database": "2/library"}, "it was made for database 1/library, but the current database is 2/library"),
        ({"database": None}, "it was made for database 1/library, but the current database is unknown"),
        ({"environment": "production"}, "it is for pipeline 'library' in environment 'local'"),
    ],
)
def test_rejects_a_stale_plan_with_its_first_difference(now: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_stale_plan(IDENTIFIED_PLAN, replace(IDENTIFIED_PLAN, **now))
    assert caught.value.message == f"the plan cannot be applied: {message}"


def test_accepts_a_plan_of_the_same_state() -> None:
    refuse_stale_plan(SHOWN_PLAN, replace(SHOWN_PLAN, cluster_id="c", config={"a": "b"}))


def test_accepts_other_texts_of_the_same_effects() -> None:
    """Reasons and dangers are not effects. apply examines the dangers of the current plan."""
    changes = tuple(replace(change, reason="another", danger="another") for change in SHOWN_PLAN.changes)
    refuse_stale_plan(SHOWN_PLAN, replace(SHOWN_PLAN, changes=changes))
    refuse_unplanned_changes(replace(PLAN, changes=(CONNECTOR,)), [replace(CONNECTOR, reason="another")])


def with_new_book(lock: Lock) -> Lock:
    new = lock.schemas["book"][0].model_copy(update={"version": 2, "id": 99})
    return lock.model_copy(update={"schemas": {**lock.schemas, "book": [new, *lock.schemas["book"]]}})


def test_accepts_the_registered_planned_version(lock: Lock) -> None:
    refuse_unplanned_schemas(replace(PLAN, schemas=lock.schemas), with_new_book(lock))


def test_rejects_an_unplanned_version(lock: Lock) -> None:
    plan = replace(PLAN, changes=(CONNECTOR,), schemas=lock.schemas)
    with pytest.raises(RefusedError, match=r"book .* 2 \(id 99\), 1 \(id 7\) .* 1 \(id 7\) in the plan"):
        refuse_unplanned_schemas(plan, with_new_book(lock))


def test_rejects_an_edited_template(deployed: Deployed, lock: Lock) -> None:
    config = deployed().render_without_schemas(lock)
    refuse_unplanned_config(deployed(), replace(PLAN, config=config), with_new_book(lock))
    edited = {**config, "poll.interval.ms": "7"}
    with pytest.raises(RefusedError, match=r"plan in poll\.interval\.ms"):
        refuse_unplanned_config(deployed(), replace(PLAN, config=edited), lock)


def test_ignores_keys_of_new_schemas() -> None:
    now = replace(CONNECTOR, after="changed: transforms.outbox.aggregate.book.schema.2.id")
    refuse_unplanned_changes(PLAN, [now])
    with pytest.raises(RefusedError, match="update connector library-outbox"):
        refuse_unplanned_changes(replace(PLAN, changes=(CONNECTOR,)), [now])


def test_a_new_schema_can_get_the_id_that_the_connector_already_has() -> None:
    refuse_unplanned_changes(PLAN, [])


@pytest.mark.parametrize(
    ("planned", "now"),
    [
        ((CONNECTOR,), []),
        (PLAN.changes, [CONNECTOR, Change("connect", "start", "library-outbox", "create", "why")]),
    ],
)
def test_rejects_other_pending_changes_of_the_connector(planned: tuple[Change, ...], now: list[Change]) -> None:
    with pytest.raises(RefusedError, match="pending changes") as caught:
        refuse_unplanned_changes(replace(PLAN, changes=planned), now)
    assert "but not the connector" in caught.value.hint
