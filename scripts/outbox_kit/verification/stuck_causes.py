"""Find facts about topics, keys and business tables that explain why aggregates are stuck."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from outbox_events.errors import OutboxError
from outbox_kit.kafka.state import desired_topics
from outbox_kit.operations.state_comparison import ComparisonResult, Kind, StateComparison, StuckAggregate
from outbox_kit.postgres import aggregate_queries, row_sequence
from outbox_kit.postgres import client as postgres_client

AHEAD = (
    "the source has not reached the source_sequence (source epoch, LSN) of records, so its next events are older: "
    "another source, such as a connector of another environment, has written the records"
)
UUID_FORM = re.compile(r"\{?[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\}?")
CANARY_ARRIVED = "the canary is newer and has arrived, so the connector will not send these rows again"
OTHER_PRODUCER = (
    "the topic contains records in an order or a partition that the connector does not produce: another producer, such "
    "as MirrorMaker or a second connector, has written them, or the live config has another partitioner"
)


def likely_causes(comparison: StateComparison, result: ComparisonResult, *, canary_arrived: bool) -> list[str]:
    """Return the facts that explain why aggregates are stuck. Facts that cannot be read are omitted."""
    stuck = result.stuck
    if not stuck:
        return []
    has_lost_rows = any(entry.kind in ("missing", "stale") for entry in stuck)
    causes = [CANARY_ARRIVED] if canary_arrived and has_lost_rows else []
    causes += [AHEAD] if any(entry.ahead for entry in stuck) else []
    causes += _other_producers(comparison, stuck)
    causes += _reformatted_keys(comparison, result)
    for read_causes in (_cascading_deletions, _deleted_records, _other_topics):
        with suppress(OutboxError):
            causes += [*read_causes(comparison, stuck)]
    return causes


def sequence_repair(comparison: StateComparison, result: ComparisonResult) -> str:
    """Return the SQL statement that gives new outbox rows the highest `seq`, or "" if it is not needed.

    If the sequence was restarted, the newest row of an aggregate does not have the highest `seq`.
    """
    if not any(entry.kind == "stale" for entry in result.stuck):
        return ""
    deployment = comparison.deployment
    with suppress(OutboxError), postgres_client.connected(deployment.environment.source) as connection:
        return row_sequence.sequence_repair(connection, deployment.pipeline.source)
    return ""


def _other_producers(comparison: StateComparison, stuck: list[StuckAggregate]) -> Iterator[str]:
    """Yield the reasons why records are in wrong partitions or in a wrong order."""
    aggregates, grown_topics = comparison.deployment.pipeline.aggregates, set[str]()
    types = sorted({entry.aggregate_type for entry in stuck if entry.kind == "overwritten" or entry.partitions})
    for name in types:
        count, declared_count = comparison.topic(name).partition_count, aggregates[name].partitions
        if count != declared_count:
            grown_topics.add(name)
            topic = comparison.deployment.pipeline.topic_of(name)
            actual = f"topic {topic} has {count} partitions instead of {declared_count}"
            yield f"{actual}: see docs/planned-changes.md, Adding partitions"
    if grown_topics != set(types):
        yield OTHER_PRODUCER


def _reformatted_keys(comparison: StateComparison, result: ComparisonResult) -> Iterator[str]:
    """Yield topics with a ghost whose key is a different form of an existing aggregate's key."""
    for name in _types(result.stuck, "ghost"):
        ghosts = {
            canonical_key(entry.key): entry.key
            for entry in result.stuck
            if (entry.aggregate_type, entry.kind) == (name, "ghost")
        }
        other = next((key for key in result.compared_keys[name] if ghosts.get(canonical_key(key), key) != key), None)
        if other is not None:
            topic, ghost = comparison.deployment.pipeline.topic_of(name), ghosts[canonical_key(other)]
            yield f"topic {topic} has keys in a different form than the database: {ghost!r}, not {other!r}"


def canonical_key(key: str) -> str:
    """Return the same text for all forms in which services write a UUID, a number, or padded or quoted text."""
    text = key.strip().strip('"').lower()
    if UUID_FORM.fullmatch(text):
        return text.strip("{}").replace("-", "")
    return text.lstrip("0") if text.isdecimal() else text


def _cascading_deletions(comparison: StateComparison, stuck: list[StuckAggregate]) -> Iterator[str]:
    """Yield the foreign keys that delete ghosts' rows without the service, so that no tombstones are written."""
    aggregates = comparison.deployment.pipeline.aggregates
    tables = {name: entry.table for name in _types(stuck, "ghost") if (entry := aggregates[name].backfill)}
    if not tables:
        return
    with postgres_client.connected(comparison.deployment.environment.source) as connection:
        for table in tables.values():
            for name, parent in aggregate_queries.cascading_foreign_keys(connection, table).items():
                yield f"foreign key {name} (ON DELETE CASCADE) deletes rows of {table} with the rows of {parent}"


def _types(stuck: list[StuckAggregate], kind: Kind) -> list[str]:
    """Return the sorted aggregate types of the stuck aggregates of one kind."""
    return sorted({entry.aggregate_type for entry in stuck if entry.kind == kind})


def _deleted_records(comparison: StateComparison, stuck: list[StuckAggregate]) -> Iterator[str]:
    """Yield topics that lack states and whose first records were deleted. Compaction keeps the log start offset."""
    for name in _types(stuck, "missing"):
        topic = comparison.deployment.pipeline.topic_of(name)
        bounds = comparison.deployment.kafka.bounds(topic)
        if any(bound.first > 0 for bound in bounds.values()):
            yield f"the first records of topic {topic} were deleted by cleanup.policy=delete or kafka-delete-records"


def _other_topics(comparison: StateComparison, stuck: list[StuckAggregate]) -> Iterator[str]:
    """Yield topics outside the pipeline whose names contain a pipeline topic's name, as happens with RegexRouter."""
    deployment = comparison.deployment
    own = {topic.name for topic in desired_topics(deployment.pipeline, deployment.environment)}
    others = deployment.kafka.topics().keys() - own
    for name in sorted({entry.aggregate_type for entry in stuck}):
        topic = deployment.pipeline.topic_of(name)
        similar = sorted(other for other in others if topic in other)
        if similar:
            yield f"records might be on {', '.join(similar)}, which the pipeline file does not contain"
