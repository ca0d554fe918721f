"""Dangers of a change of a connector's config."""

from __future__ import annotations

import pytest
from tests.unit.connect_samples import MOVED, RUNNING

from outbox_kit.connect.config_diff import compare
from outbox_kit.connect.preconditions import BACKFILL_HINT, config_dangers
from outbox_kit.connect.state import ActualConnector, diff

LIVE = {
    "topic.prefix": "library",
    "slot.name": "library_outbox",
    "database.dbname": "library",
    "transforms.outbox.table.field.event.key": "aggregate_id",
    "transforms.outbox.aggregate.book.topic": "library.book",
    "transforms.outbox.aggregate.book.partition.field": "shelf",
    "transforms.outbox.max.record.bytes": "1000",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "aggregate_id",
}


def dangers(key: str, value: str | None) -> str:
    """Return the dangers of setting a key; None removes it."""
    desired = {name: text for name, text in {**LIVE, key: value}.items() if text is not None}
    return config_dangers(compare(desired, LIVE), desired)


@pytest.mark.parametrize(
    ("key", "value", "danger"),
    [
        ("transforms.outbox.table.field.event.key", "id", "aggregate_id → id: records get a different key"),
        ("transforms.key.fields", "id", "records get a different key"),
        ("transforms.outbox.aggregate.book.partition.field", "room", "tombstones do not reach the old partition"),
        ("transforms.outbox.aggregate.book.partition.field", None, "shelf → unset: keys move to other partitions"),
        ("transforms.outbox.aggregate.author.partition.field", "room", "unset → room"),
        ("transforms.outbox.aggregate.book.topic", "library.books", "records are written to another topic"),
        ("topic.prefix", "shop", "records are written to another topic"),
        ("topic.prefix", "shop", "offsets by prefix"),
    ],
)
def test_reports_a_changed_key_partition_or_topic(key: str, value: str | None, danger: str) -> None:
    text = dangers(key, value)
    assert danger in text
    assert text.endswith(BACKFILL_HINT)


def test_rows_of_a_removed_aggregate_type_become_dead_letters() -> None:
    """Regression test: the reported danger was that records are written to another topic, with a backfill as remedy."""
    text = dangers("transforms.outbox.aggregate.book.topic", None)
    assert "library.book → unset: rows of this aggregate type become dead letters" in text
    assert BACKFILL_HINT not in text


@pytest.mark.parametrize(
    ("key", "danger"), [("slot.name", "only the previous slot retains"), ("database.dbname", "another database")]
)
def test_reports_a_changed_slot_or_database(key: str, danger: str) -> None:
    assert danger in dangers(key, "new")
    assert BACKFILL_HINT not in dangers(key, "new")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transforms.outbox.max.record.bytes", "2000"),
        ("transforms.outbox.aggregate.author.topic", "library.author"),
        ("transforms.outbox.table.field.event.id", "id"),
        ("max.batch.size", "5"),
    ],
)
def test_accepts_other_settings(key: str, value: str) -> None:
    assert dangers(key, value) == ""


def test_reports_every_danger_of_an_update() -> None:
    """Regression test: only one danger of an update was reported."""
    desired = {**LIVE, "topic.prefix": "shop", "slot.name": "shop_outbox", "database.dbname": "shop"}
    (change,) = diff("c", desired, ActualConnector(LIVE, RUNNING, MOVED))
    assert "topic.prefix library → shop: records are written to another topic" in change.danger
    assert "slot.name library_outbox → shop_outbox: rows that only the previous slot retains" in change.danger
    assert (
        "database.dbname library → shop: the LSN in the connector's offset is not valid in another database"
        in change.danger
    )
    assert change.danger.count(BACKFILL_HINT) == 1


def test_accepts_a_new_connector() -> None:
    (change,) = diff("c", LIVE, ActualConnector(None, None, []))
    assert change.danger == ""


def test_a_recovery_may_replace_only_the_database_of_the_last_apply() -> None:
    """A connector that reads another database can be that of another environment."""
    desired = {**LIVE, "database.dbname": "restored"}
    changes = compare(desired, LIVE)
    assert config_dangers(changes, desired, {"database.dbname": "library"}) == ""
    for accepted in ({}, {"database.dbname": "other"}, None):
        assert "another database" in config_dangers(changes, desired, accepted)
