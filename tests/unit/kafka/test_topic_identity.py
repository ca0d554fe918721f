"""Entries of the topics in the lock file."""

from __future__ import annotations

import pytest

from outbox_kit.kafka.client import ActualTopic
from outbox_kit.kafka.topic_identity import locked_topic, require_backfill, types_with_pending_backfill
from outbox_kit.pipeline import LockedTopic

NEW = ActualTopic(4, 3, {}, "id-2")
OLD = LockedTopic(id="id-1", partitions=4, aggregate_type="book")
SAME = OLD.model_copy(update={"id": "id-2"})


@pytest.mark.parametrize(
    ("recorded", "pending"),
    [
        ({}, None),
        ({"library.book": SAME}, None),
        ({"library.book": OLD}, "required"),
        ({"library.book": OLD.model_copy(update={"pending_backfill": "started"})}, "required"),
        ({"library.book": SAME.model_copy(update={"pending_backfill": "started"})}, "started"),
        ({"previous-prefix.book": OLD}, "required"),
        ({"library.author": OLD.model_copy(update={"aggregate_type": "author"})}, None),
    ],
    ids=["first", "unchanged", "recreated", "recreated during a backfill", "in a backfill", "renamed", "new type"],
)
def test_a_topic_that_replaces_another_requires_a_backfill(
    recorded: dict[str, LockedTopic], pending: str | None
) -> None:
    entry = locked_topic("library.book", NEW, "book", recorded)
    assert (entry.id, entry.partitions, entry.aggregate_type) == ("id-2", 4, "book")
    assert entry.pending_backfill == pending


def test_a_topic_that_apply_creates_again_requires_a_backfill_without_ids() -> None:
    """Clusters without topic ids do not identify a topic."""
    recorded = {"library.book": OLD.model_copy(update={"id": ""})}
    topic = ActualTopic(4, 3, {}, "")
    assert locked_topic("library.book", topic, "book", recorded).pending_backfill is None
    assert locked_topic("library.book", topic, "book", recorded, created=True).pending_backfill == "required"
    assert locked_topic("library.book", topic, "book", {}, created=True).pending_backfill is None, "the first apply"


def test_a_recreated_topic_without_states_requires_no_backfill() -> None:
    recorded = {"library.dead-letter": OLD.model_copy(update={"aggregate_type": None})}
    assert locked_topic("library.dead-letter", NEW, None, recorded).pending_backfill is None


def test_only_topics_with_states_require_a_backfill() -> None:
    recorded = {"library.book": OLD, "library.dead-letter": LockedTopic(id="id-3", partitions=1)}
    assert types_with_pending_backfill(recorded) == []
    required = require_backfill(recorded)
    assert types_with_pending_backfill(required) == ["book"]
    assert required["library.dead-letter"] == recorded["library.dead-letter"]
