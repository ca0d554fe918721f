"""prune: delete the outbox rows whose delivery is proven.

A snapshot determines the rows, and the WAL position that is read after it is after the commit of each of them. Rows are
deleted only when the slot has confirmed this position, and only those that DeliveryProof proves. Of each aggregate the
oldest rows are deleted first: a row remains if an older one of its aggregate remains, because `outbox stuck` would
otherwise compare the older one with the topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outbox_kit.deployment import Deployment, connector_epoch
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.replication_slot import read_counters
from outbox_kit.progress import Reporter
from outbox_kit.pruning.conditions import refuse_unsafe_pruning, wait_delivered
from outbox_kit.pruning.delivery_proof import DeliveryProof, ProofReader
from outbox_kit.pruning.outbox_rows import OutboxRow, delete_rows, open_snapshot

DAY_S = 24 * 60 * 60
MAX_EXAMPLES = 5


@dataclass(frozen=True)
class PruneOptions:
    """Options of `outbox prune`. `older_than` and `wait_seconds` are in seconds."""

    older_than: float = 3 * DAY_S
    batch_size: int = 10_000
    wait_seconds: float = 60
    keep_newest: bool = True
    dry_run: bool = False


@dataclass
class PrunedType:
    """Numbers of rows of one aggregate type: deleted, and retained for a reason.

    `unproven` rows are old but not proven; `unproven_keys` are the first of their keys. `following` rows would be
    deleted if no older row of their aggregate remained. `changed` rows were changed or deleted by others meanwhile.
    """

    aggregate_type: str
    deleted: int = 0
    newest: int = 0
    young: int = 0
    unproven: int = 0
    following: int = 0
    changed: int = 0
    unproven_keys: list[str] = field(default_factory=list)

    def add_unproven(self, key: str) -> None:
        self.unproven += 1
        if key not in self.unproven_keys and len(self.unproven_keys) < MAX_EXAMPLES:
            self.unproven_keys.append(key)


def prune(deployment: Deployment, progress: Reporter, options: PruneOptions) -> list[PrunedType]:
    """Delete the proven rows that are older than `options.older_than`, and return the counts of each aggregate type.

    With `options.dry_run` nothing is deleted, and `deleted` counts the rows that would be. A batch is a transaction.
    Raises RefusedError if the slot cannot prove a delivery, and WaitTimeoutError if the slot does not reach the rows,
    both before any row is deleted; UnreachableError, RejectedError.
    """
    source = deployment.pipeline.source
    with (
        deployment.exclusive("prune", progress),
        postgres_client.connected(deployment.environment.source) as reader,
        postgres_client.connected(deployment.environment.source) as writer,
    ):
        lock = refuse_unsafe_pruning(deployment, writer, progress)
        counters = read_counters(writer, source.slot)
        with open_snapshot(reader, source) as snapshot:
            wait_delivered(deployment, writer, counters, snapshot.position, options.wait_seconds, progress)
            epoch = max(lock.source_epoch, connector_epoch(deployment))
            proofs = ProofReader(deployment, writer, snapshot.position, epoch)
            run = _Run(deployment, writer, options)
            for rows in snapshot.aggregates(older_than=options.older_than):
                run.add(rows, proofs.of_type(rows[0].aggregate_type))
            return run.finish()


class _Run:
    """Collects the rows to delete, and deletes them in batches."""

    def __init__(self, deployment: Deployment, connection: Connection, options: PruneOptions) -> None:
        self._source = deployment.pipeline.source
        self._connection = connection
        self._options = options
        self._batch: list[OutboxRow] = []
        self._types: dict[str, PrunedType] = {}

    def add(self, rows: Sequence[OutboxRow], proof: DeliveryProof) -> None:
        """Add the rows of an aggregate, which are in insertion order, and delete full batches."""
        counts = self._counts(rows[0].aggregate_type)
        for row in prunable_rows(rows, proof, counts, keep_newest=self._options.keep_newest):
            self._batch.append(row)
            if len(self._batch) == self._options.batch_size:
                self._delete_batch()

    def finish(self) -> list[PrunedType]:
        """Delete the last batch, and return the counts."""
        self._delete_batch()
        return list(self._types.values())

    def _counts(self, aggregate_type: str) -> PrunedType:
        """Return the counts of a type. A batch has rows of one type only, so that its counts are of this type."""
        if aggregate_type not in self._types:
            self._delete_batch()
            self._types[aggregate_type] = PrunedType(aggregate_type)
        return self._types[aggregate_type]

    def _delete_batch(self) -> None:
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        counts = self._types[batch[0].aggregate_type]
        deleted = len(batch) if self._options.dry_run else delete_rows(self._connection, self._source, batch)
        counts.deleted += deleted
        counts.changed += len(batch) - deleted


def prunable_rows(
    rows: Sequence[OutboxRow], proof: DeliveryProof, counts: PrunedType, *, keep_newest: bool
) -> Iterator[OutboxRow]:
    """Yield the rows of an aggregate to delete, the oldest one first, and count the others.

    With `keep_newest` the last row remains unless it is the tombstone on the topic, because the aggregate is deleted.
    """
    newest = rows[-1] if keep_newest and not proof.is_tombstone(rows[-1]) else None
    must_remain = False
    for row, is_proven in zip(rows, proof.proven(rows), strict=True):
        if not row.is_old:
            counts.young += 1
        elif not is_proven:
            counts.add_unproven(row.key)
        elif row is newest:
            counts.newest += 1
        elif must_remain:
            counts.following += 1
        else:
            yield row
            continue
        must_remain = True
