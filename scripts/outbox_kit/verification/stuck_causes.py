"""Facts about the topics that explain stuck aggregates."""

from __future__ import annotations

from collections.abc import Iterator

from outbox_kit.errors import OutboxKitError
from outbox_kit.kafka.state import desired_topics
from outbox_kit.operations.state_comparison import StateComparison, StuckAggregate

CANARY_ARRIVED = "the canary, which is newer, has arrived: the connector does not send these rows again"


def likely_causes(comparison: StateComparison, stuck: list[StuckAggregate], *, canary_arrived: bool) -> list[str]:
    """Return the facts that explain why the aggregates are stuck; none if the cluster does not respond."""
    if not stuck:
        return []
    has_lost_rows = any(entry.kind in ("missing", "stale") for entry in stuck)
    causes = [CANARY_ARRIVED] if canary_arrived and has_lost_rows else []
    try:
        return [*causes, *_deleted_records(comparison, stuck), *_other_topics(comparison, stuck)]
    except OutboxKitError:
        return causes


def _deleted_records(comparison: StateComparison, stuck: list[StuckAggregate]) -> Iterator[str]:
    """Yield the topics of missing states whose first records were deleted. Compaction does not change first offsets."""
    for name in sorted({entry.aggregate_type for entry in stuck if entry.kind == "missing"}):
        topic = comparison.deployment.pipeline.topic_of(name)
        bounds = comparison.deployment.kafka.bounds(topic)
        if any(bound.first > 0 for bound in bounds.values()):
            yield f"the first records of topic {topic} were deleted, by cleanup.policy=delete or kafka-delete-records"


def _other_topics(comparison: StateComparison, stuck: list[StuckAggregate]) -> Iterator[str]:
    """Yield topics outside the pipeline whose names contain that of a topic, as after a RegexRouter."""
    deployment = comparison.deployment
    own = {topic.name for topic in desired_topics(deployment.pipeline, deployment.environment)}
    others = deployment.kafka.topics().keys() - own
    for name in sorted({entry.aggregate_type for entry in stuck}):
        topic = deployment.pipeline.topic_of(name)
        similar = sorted(other for other in others if topic in other)
        if similar:
            yield f"records may be on {', '.join(similar)}, which the pipeline file does not contain"
