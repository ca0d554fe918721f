"""List and resend stuck aggregates, whose latest committed state is not confirmed to be on their topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from outbox_events.errors import RefusedError
from outbox_events.text import shortened_list
from outbox_kit import backfill
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.latest_records import READ_TIMEOUT_S
from outbox_kit.operations.misplaced_states import MisplacedStates, write_tombstones
from outbox_kit.operations.state_comparison import StateComparison, StuckAggregate
from outbox_kit.results import Reporter
from outbox_kit.results.repair_commands import recover_steps

MAX_LISTED = 5


def list_stuck(deployment: Deployment, progress: Reporter, *, older_than: float) -> list[StuckAggregate]:
    """Return the stuck aggregates in sorted order. Outbox rows younger than `older_than` seconds are ignored.

    Raises the same errors as StateComparison.run().
    """
    result = StateComparison(deployment, older_than, READ_TIMEOUT_S + older_than).run(progress)
    for name in result.uncompared_types(deployment.pipeline.aggregates):
        progress(
            f"{name} is not compared: no outbox row is older than {older_than:g} s, and the aggregate has no `backfill`"
        )
    return result.stuck


def keys_to_resend(deployment: Deployment, aggregates: Collection[StuckAggregate]) -> dict[str, list[str]]:
    """Return a mapping from each aggregate type to the keys of its stuck aggregates.

    Raises RefusedError if a type has no `backfill`, or if a record is ahead of the source.
    """
    ahead = [f"{entry.aggregate_type} {entry.key}" for entry in aggregates if entry.ahead]
    if ahead:
        raise RefusedError(
            f"states that are sent again would be older than the records of {shortened_list(ahead, MAX_LISTED)}",
            f"stop the other source of these records; {recover_steps(deployment.pipeline)}",
        )
    keys: dict[str, list[str]] = {}
    for entry in aggregates:
        keys.setdefault(entry.aggregate_type, []).append(entry.key)
    types_without_backfill = [name for name in sorted(keys) if deployment.pipeline.aggregates[name].backfill is None]
    if types_without_backfill:
        raise RefusedError(
            f"aggregate type {types_without_backfill[0]} has no `backfill`, so its states cannot be read",
            "add `backfill` (table, key, query) for this type, or let the service write the states again",
        )
    return keys


def resend(
    deployment: Deployment,
    keys: Mapping[str, Collection[str]],
    progress: Reporter,
    *,
    tombstones: Mapping[str, Collection[str]],
    misplaced: Mapping[str, MisplacedStates],
) -> int:
    """Write the latest state of each aggregate in `keys` to the outbox; return the number of rows.

    `tombstones` maps each type to the keys for which a tombstone is written if the aggregate was deleted. `misplaced`
    states are deleted first, because some readers apply a tombstone to the key in all partitions.
    """
    row_count = 0
    for name in keys:
        if name in misplaced:
            progress(f"write {misplaced[name].text}")
            write_tombstones(deployment, misplaced[name])
        row_count += backfill.republish(
            deployment, name, keys[name], progress, tombstones=tombstones.get(name, ()), exact=True
        )
    return row_count
