"""Delete the outbox rows whose delivery is proven (`outbox prune`).

A snapshot determines the rows. The WAL position that is read after the snapshot is after the commits of these rows. The
rows are deleted only after the slot has confirmed this position, and only if Proof proves their delivery. A row remains
if an older row of its aggregate remains: otherwise, `outbox stuck` would compare the older row with the topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from outbox_kit.delivery.outbox_rows import OutboxSnapshot, StoredRow, delete_rows, open_snapshot
from outbox_kit.delivery.preconditions import refuse_unsafe_pruning, wait_delivered
from outbox_kit.delivery.proof import Proof, ProofReader
from outbox_kit.deployment import Deployment, connector_epoch
from outbox_kit.postgres import client as postgres_client
from outbox_kit.postgres.client import Connection
from outbox_kit.postgres.replication_slot import read_counters
from outbox_kit.results import Reporter

Reason = Literal["newest", "young", "unproven", "following"]
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
class RetainedRows:
    """Number of rows that remain for each reason.

    `unproven` rows are old, but no record proves their delivery. `following` rows would be deleted if no older row of
    their aggregate remained.
    """

    newest: int = 0
    young: int = 0
    unproven: int = 0
    following: int = 0

    def add(self, reason: Reason) -> None:
        setattr(self, reason, getattr(self, reason) + 1)


def decide(rows: Sequence[StoredRow], proof: Proof, *, keep_newest: bool) -> Iterator[tuple[StoredRow, Reason | None]]:
    """Yield each row of an aggregate, from oldest to newest, with the reason why it remains; None if it is deletable.

    If `keep_newest` is set, the newest row remains, unless the key's newest record is this row's tombstone.
    """
    newest = rows[-1] if keep_newest and not proof.is_tombstone(rows[-1]) else None
    must_remain = False
    for row, is_proven in zip(rows, proof.proven(rows), strict=True):
        reason: Reason | None = "following" if must_remain else None
        if not row.is_old:
            reason = "young"
        elif not is_proven:
            reason = "unproven"
        elif row is newest:
            reason = "newest"
        yield row, reason
        must_remain = must_remain or reason is not None


@dataclass
class PrunedType(RetainedRows):
    """Number of rows of one aggregate type that were deleted, or retained for each reason.

    `unproven_keys` contains the first keys that have unproven rows. `changed` counts rows that other sessions changed.
    """

    aggregate_type: str = ""
    deleted: int = 0
    changed: int = 0
    unproven_keys: list[str] = field(default_factory=list)

    def add_row(self, row: StoredRow, reason: Reason) -> None:
        self.add(reason)
        if reason == "unproven" and row.key not in self.unproven_keys and len(self.unproven_keys) < MAX_EXAMPLES:
            self.unproven_keys.append(row.key)


@dataclass(frozen=True)
class ProvenSnapshot:
    """Rows of the outbox table, which the slot has confirmed, with the proofs of their delivery."""

    rows: OutboxSnapshot
    proofs: ProofReader
    options: PruneOptions

    def decisions(self) -> Iterator[list[tuple[StoredRow, Reason | None]]]:
        """Yield the decisions on the rows of each aggregate. The aggregates are sorted by type."""
        for rows in self.rows.aggregates(older_than=self.options.older_than):
            proof = self.proofs.of_type(rows[0].aggregate_type)
            yield list(decide(rows, proof, keep_newest=self.options.keep_newest))


@contextmanager
def connections(deployment: Deployment, progress: Reporter) -> Iterator[tuple[Connection, Connection]]:
    """Hold the pipeline's lock. Yield one connection for the snapshot and another connection for changes."""
    source = deployment.environment.source
    with (
        deployment.exclusive("prune", progress),
        postgres_client.connected(source) as reader,
        postgres_client.connected(source) as writer,
    ):
        yield reader, writer


@contextmanager
def proven_snapshot(
    deployment: Deployment, reader: Connection, writer: Connection, progress: Reporter, options: PruneOptions
) -> Iterator[ProvenSnapshot]:
    """Take a snapshot, and wait until the slot has confirmed its rows.

    Raises RefusedError if the slot cannot prove delivery, and WaitTimeoutError if the slot does not reach the rows.
    """
    lock = refuse_unsafe_pruning(deployment, writer, progress)
    source = deployment.pipeline.source
    counters = read_counters(writer, source.slot)
    with open_snapshot(reader, source) as snapshot:
        wait_delivered(deployment, writer, counters, snapshot.position, options.wait_seconds, progress)
        epoch = max(lock.source_epoch, connector_epoch(deployment))
        yield ProvenSnapshot(snapshot, ProofReader(deployment, writer, snapshot.position, epoch), options)


def prune(deployment: Deployment, progress: Reporter, options: PruneOptions) -> list[PrunedType]:
    """Delete the proven rows that are older than `options.older_than`, and return the counts of each aggregate type.

    If `options.dry_run` is set, no row is deleted, but `deleted` counts deletable rows. Each batch is one transaction.
    Before any row is deleted, raises the same errors as proven_snapshot(); afterwards UnreachableError, RejectedError.
    """
    with (
        connections(deployment, progress) as (reader, writer),
        proven_snapshot(deployment, reader, writer, progress, options) as snapshot,
    ):
        run = _Run(deployment, writer, options)
        for decisions in snapshot.decisions():
            run.add(decisions)
        return run.finish()


class _Run:
    """Collects the rows to delete, and deletes them in batches."""

    def __init__(self, deployment: Deployment, connection: Connection, options: PruneOptions) -> None:
        self._source = deployment.pipeline.source
        self._connection = connection
        self._options = options
        self._batch: list[StoredRow] = []
        self._types: dict[str, PrunedType] = {}

    def add(self, decisions: Sequence[tuple[StoredRow, Reason | None]]) -> None:
        """Add the rows of one aggregate, in insertion order, and delete each batch that becomes full."""
        counts = self._counts(decisions[0][0].aggregate_type)
        for row, reason in decisions:
            if reason is not None:
                counts.add_row(row, reason)
                continue
            self._batch.append(row)
            if len(self._batch) == self._options.batch_size:
                self._delete_batch()

    def finish(self) -> list[PrunedType]:
        """Delete the last batch, and return the counts."""
        self._delete_batch()
        return list(self._types.values())

    def _counts(self, aggregate_type: str) -> PrunedType:
        """Return the counts for a type. Before a new type, delete the last batch, because a batch has only one type."""
        if aggregate_type not in self._types:
            self._delete_batch()
            self._types[aggregate_type] = PrunedType(aggregate_type=aggregate_type)
        return self._types[aggregate_type]

    def _delete_batch(self) -> None:
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        counts = self._types[batch[0].aggregate_type]
        deleted = len(batch) if self._options.dry_run else delete_rows(self._connection, self._source, batch)
        counts.deleted += deleted
        counts.changed += len(batch) - deleted
