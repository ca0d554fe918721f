"""Drop the partitions of the outbox table in which every row is deletable (`outbox prune --partitions`).

A row is deletable under the same conditions as without --partitions. The snapshot locks each partition, so it must end
before a partition is dropped. Therefore a partition's content in the snapshot is compared with its content under a lock
that blocks writers. The oldest range is dropped first. If a partition contains rows of an aggregate that has older rows
in a partition that remains, it remains too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from outbox_kit.delivery.outbox_rows import StoredRow
from outbox_kit.deployment import Deployment
from outbox_kit.postgres.client import Connection
from outbox_kit.pruning.partitions import (
    Content,
    Partition,
    drop_unchanged,
    read_content,
    read_partitions,
    refuse_other_partitioning,
)
from outbox_kit.pruning.prune import PruneOptions, Reason, RetainedRows, connections, proven_snapshot
from outbox_kit.results import Reporter


@dataclass
class PrunedPartition(RetainedRows):
    """Row counts of one partition, and the reason why the partition remains, which is empty if it was dropped.

    Reasons: `open` (it can receive rows), `rows` (some rows must remain), `order` (older rows of an aggregate are in a
    partition that remains), `changed` (its rows changed during the run), `locked` (another session locks it).
    """

    partition: str = ""
    rows: int = 0
    reason: str = ""


class PartitionPlan:
    """Partitions of the outbox table, and the decisions on the rows that the snapshot contains."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._partitions = {partition.oid: partition for partition in partitions}
        self._retained: defaultdict[int, PrunedPartition] = defaultdict(PrunedPartition)
        self._required: defaultdict[int, set[int]] = defaultdict(set)
        self.contents: dict[int, Content] = {}

    def add(self, decisions: Sequence[tuple[StoredRow, Reason | None]]) -> None:
        """Add the rows of one aggregate. `decisions` must be in insertion order."""
        older: int | None = None
        for row, reason in decisions:
            counts = self._retained[row.table_oid]
            counts.rows += 1
            if reason is not None:
                counts.add(reason)
            if older is not None and older != row.table_oid:
                self._required[row.table_oid].add(older)
            older = row.table_oid

    def pruned(self, partition: Partition, dropped: set[int]) -> PrunedPartition:
        """Return the counts of a partition, with the reason why it remains after partitions `dropped` were dropped."""
        counts = self._retained[partition.oid]
        counts.partition = f"{partition.schema}.{partition.name}"
        if not partition.is_closed:
            counts.reason = "open"
        elif counts.newest or counts.young or counts.unproven or counts.following:
            counts.reason = "rows"
        elif not self._required[partition.oid] <= dropped:
            counts.reason = "order"
        elif self.contents[partition.oid].rows != counts.rows:  # attached during the run
            counts.reason = "changed"
        return counts


def prune_partitions(deployment: Deployment, progress: Reporter, options: PruneOptions) -> list[PrunedPartition]:
    """Drop the partitions whose rows are all deletable. Return the counts of each partition, the oldest range first.

    If `options.dry_run` is set, no partition is dropped. Each partition is dropped in its own transaction. Raises
    RefusedError if the table is not partitioned by time, and otherwise the same errors as prune().
    """
    source = deployment.pipeline.source
    with connections(deployment, progress) as (reader, writer):
        with proven_snapshot(deployment, reader, writer, progress, options) as snapshot:
            refuse_other_partitioning(writer, source)
            partitions = read_partitions(writer, source, older_than=options.older_than)
            plan = PartitionPlan(partitions)
            for decisions in snapshot.decisions():
                plan.add(decisions)
            closed = [partition for partition in partitions if partition.is_closed]
            plan.contents = {entry.oid: read_content(reader, source, entry) for entry in closed}
        return _drop(deployment, writer, plan, partitions, dry_run=options.dry_run)


def _drop(
    deployment: Deployment, connection: Connection, plan: PartitionPlan, partitions: list[Partition], *, dry_run: bool
) -> list[PrunedPartition]:
    dropped, results = set[int](), []
    for partition in partitions:
        result = plan.pruned(partition, dropped)
        if not result.reason and not dry_run:
            expected = plan.contents[partition.oid]
            result.reason = drop_unchanged(connection, deployment.pipeline.source, partition, expected)
        if not result.reason:
            dropped.add(partition.oid)
        results.append(result)
    return results
