"""Stuck aggregates: aggregates whose latest committed state is not confirmed to be on their topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from outbox_kit import backfill
from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.latest_records import READ_TIMEOUT_S
from outbox_kit.operations.misplaced_states import MisplacedState, write_tombstones
from outbox_kit.operations.state_comparison import StateComparison, StuckAggregate
from outbox_kit.progress import Reporter, plural


def list_stuck(deployment: Deployment, progress: Reporter, *, older_than: float) -> list[StuckAggregate]:
    """Return the stuck aggregates in sorted order. Outbox rows younger than `older_than` seconds are ignored.

    Raises the errors of StateComparison.run().
    """
    result = StateComparison(deployment, older_than, READ_TIMEOUT_S + older_than).run(progress)
    for name in result.uncompared_types(deployment.pipeline.aggregates):
        progress(
            f"{name} is not compared: no outbox row is older than {older_than:g} s, and the aggregate has no `backfill`"
        )
    return result.stuck


def keys_to_resend(deployment: Deployment, aggregates: Iterable[StuckAggregate]) -> dict[str, list[str]]:
    """Return the keys of the stuck aggregates by type. Raises RefusedError if a type has no `backfill`."""
    keys: dict[str, list[str]] = {}
    for entry in aggregates:
        keys.setdefault(entry.aggregate_type, []).append(entry.key)
    types_without_backfill = [name for name in sorted(keys) if deployment.pipeline.aggregates[name].backfill is None]
    if types_without_backfill:
        raise RefusedError(
            f"aggregate type {types_without_backfill[0]} has no `backfill` in the pipeline file: states cannot be read",
            "add `backfill` (table, key, query) for this type, or emit the states again from the service",
        )
    return keys


def misplaced_states(
    deployment: Deployment, aggregates: Iterable[StuckAggregate]
) -> dict[str, tuple[MisplacedState, ...]]:
    """Return the states in wrong partitions, by topic."""
    by_topic: dict[str, tuple[MisplacedState, ...]] = {}
    for entry in aggregates:
        states = tuple(MisplacedState(entry.key, number, text) for number, text in entry.partitions.items())
        if states:
            topic = deployment.pipeline.topic_of(entry.aggregate_type)
            by_topic[topic] = (*by_topic.get(topic, ()), *states)
    return by_topic


def delete_misplaced(
    deployment: Deployment, by_topic: Mapping[str, Collection[MisplacedState]], progress: Reporter
) -> None:
    """Write a tombstone into each wrong partition in which an aggregate has a state.

    The connector cannot write it, because it sends every record of a key to the partition of the key. resend() writes
    the latest state afterwards, for readers that apply a tombstone to the key in all partitions.
    Raises UnreachableError, RejectedError.
    """
    for topic, states in by_topic.items():
        progress(f"write {plural(len(states), 'tombstone')} into wrong partitions of topic {topic}")
        write_tombstones(deployment.environment.kafka, topic, states)


def resend(
    deployment: Deployment,
    keys: Mapping[str, Collection[str]],
    progress: Reporter,
    *,
    tombstones: Mapping[str, Collection[str]],
) -> int:
    """Write the latest state of each aggregate to the outbox, by type; return the number of rows.

    `tombstones` are the keys, by type, for which a tombstone is written if the aggregate was deleted.
    """
    return sum(
        backfill.republish(deployment, name, keys[name], progress, tombstones=tombstones.get(name, ()), exact=True)
        for name in keys
    )
