"""Why a plan is not carried out, and which changes of a connector are dangerous."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outbox_kit.changes import Change
from outbox_kit.deployment import Plan
from outbox_kit.deployment.dangers import of_connector, of_database
from outbox_kit.deployment.refusals import (
    refuse_broken_rules,
    refuse_dangerous,
    refuse_early_connector,
    refuse_moved,
)
from outbox_kit.errors import RefusedError
from outbox_kit.rules import Check, Severity, Status

GROW = Change("kafka", "topic a", "update", "why", "4 partitions", "8 partitions", "keys move")
RULE = Change("registry", "compatibility b", "update", "why", "NONE", "FULL")
SLOT = Change("postgres", "slot s", "create", "why", danger="rows are lost")
PLAN = Plan("library", "local", (GROW, RULE), files="f1")
HERE = replace(PLAN, cluster_id="k1", registry="http://a", database="1/library")


def test_a_dangerous_change_is_refused_with_the_flag_to_give() -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_dangerous(replace(PLAN, changes=(SLOT, *PLAN.changes)), ["topic b"])
    assert caught.value.message == "dangerous, so nothing was changed: slot s: rows are lost; topic a: keys move"
    assert caught.value.hint == 'if it is meant: outbox apply --allow "slot s" --allow "topic a"'


@pytest.mark.parametrize(
    ("plan", "allowed"),
    [
        (PLAN, ["topic a"]),
        (PLAN, ["topic a", "of no concern"]),
        (replace(PLAN, changes=(RULE,)), []),
        (replace(PLAN, changes=(SLOT,), recover=True), []),
    ],
    ids=["allowed", "more than needed", "nothing dangerous", "recovering"],
)
def test_what_is_allowed_goes_on(plan: Plan, allowed: list[str]) -> None:
    refuse_dangerous(plan, allowed)


def test_recovery_allows_no_other_danger() -> None:
    with pytest.raises(RefusedError, match="topic a"):
        refuse_dangerous(replace(PLAN, recover=True), [])


def test_the_connector_waits_for_what_it_needs() -> None:
    refuse_early_connector(PLAN)
    with pytest.raises(RefusedError, match="still pending: slot s, topic a"):
        refuse_early_connector(replace(PLAN, waits_for=("slot s", "topic a")))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"changes": (GROW,)}, "update compatibility b is not pending any more"),
        ({"changes": (GROW, RULE, SLOT)}, "create slot s was not in the plan"),
        (
            {"changes": (replace(GROW, before="5 partitions"), RULE)},
            "update topic a was planned as 4 partitions → 8 partitions, and is now 5 partitions → 8 partitions",
        ),
        ({"changes": (replace(GROW, action="create"), RULE)}, "create topic a was not in the plan"),
        ({"files": "f2"}, "pipeline, environment or schema files were changed since the plan"),
        ({"cluster_id": "k2"}, "the plan was made for Kafka cluster k1, this is k2"),
        ({"registry": "http://b"}, "the plan was made for registry http://a, this is http://b"),
        ({"database": "2/library"}, "the plan was made for database 1/library, this is 2/library"),
        ({"database": None}, "the plan was made for database 1/library, this is unknown"),
        ({"environment": "production"}, "the plan is of 'library' in 'local'"),
    ],
)
def test_a_world_that_moved_is_refused_by_its_first_difference(now: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        refuse_moved(HERE, replace(HERE, **now))
    assert caught.value.message == f"the world moved: {words}"


def test_the_same_world_is_not_refused() -> None:
    refuse_moved(PLAN, replace(PLAN, cluster_id="c", config={"a": "b"}))


def test_a_broken_rule_stops_the_plan() -> None:
    broken = Check("lint.a", Status.FAIL, "1", "2", "do b")
    warned = replace(broken, id="lint.c", severity=Severity.WARNING)
    refuse_broken_rules([warned, Check("lint.d", Status.PASS, "", "")])
    with pytest.raises(RefusedError, match=r"the files break rules: lint\.a: 1, expected 2$") as caught:
        refuse_broken_rules([warned, broken])
    assert caught.value.hint == "do b"


# --- dangers of a connector

CONNECTOR = Change("connect", "connector c", "update", "restarts the task", "", "changed")
ROUTER = {
    "topic.prefix": "library",
    "transforms.outbox.table.field.event.key": "aggregate_id",
    "transforms.outbox.aggregate.book.topic": "library.book",
    "transforms.outbox.aggregate.book.partition.field": "shelf",
    "transforms.outbox.max.record.bytes": "1000",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "aggregate_id",
}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("transforms.outbox.table.field.event.key", "id", "aggregate_id → id: records get another key"),
        ("transforms.key.fields", "id", "records get another key"),
        ("transforms.outbox.aggregate.book.partition.field", "room", "tombstones miss the old one"),
        ("transforms.outbox.aggregate.book.partition.field", None, "shelf → unset: keys move to other partitions"),
        ("transforms.outbox.aggregate.author.partition.field", "room", "unset → room"),
        ("transforms.outbox.aggregate.book.topic", "library.books", "records go to another topic"),
        ("topic.prefix", "shop", "records go to another topic"),
    ],
)
def test_another_key_partition_or_topic_is_dangerous(key: str, value: str | None, words: str) -> None:
    desired = {**ROUTER, key: value} if value else {k: v for k, v in ROUTER.items() if k != key}
    danger = of_connector(CONNECTOR, {k: v for k, v in desired.items() if v is not None}, ROUTER).danger
    assert words in danger
    assert "write the newest state of every aggregate again" in danger


@pytest.mark.parametrize(
    ("key", "value"),
    [("transforms.outbox.max.record.bytes", "2000"), ("transforms.outbox.aggregate.author.topic", "library.author")],
)
def test_other_settings_are_not_dangerous(key: str, value: str) -> None:
    assert of_connector(CONNECTOR, {**ROUTER, key: value}, ROUTER) == CONNECTOR


def test_a_new_connector_and_its_start_are_not_dangerous() -> None:
    start = replace(CONNECTOR, object="start c")
    assert of_connector(CONNECTOR, ROUTER, None) == CONNECTOR
    assert of_connector(start, ROUTER, {}) == start


@pytest.mark.parametrize(("kind", "dangerous"), [("slot", True), ("publication", True), ("table", False)])
def test_a_slot_or_publication_that_is_made_again(kind: str, dangerous: bool) -> None:
    change = Change("postgres", f"{kind} x", "create", "why")
    assert bool(of_database(change).danger) is dangerous
