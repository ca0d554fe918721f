"""Implement the Iceberg target, which stores the progress in the summaries of snapshots.

A batch is merged into a branch, which is created from the snapshot that the run has read. Then the main branch is
fast-forwarded to this branch, so that the rows and the progress become visible together. The catalog rejects the
fast-forward if another run has committed to the main branch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from outbox_common.object_stores import hadoop_warehouse
from outbox_events.errors import RefusedError
from outbox_spark.errors import REBUILD_HINT
from outbox_spark.jobs.model import IcebergTarget, Mode, Reporter
from outbox_spark.session.run_session import without_rows
from outbox_spark.session.settings import changed_settings
from outbox_spark.sinks.iceberg.storage import IcebergStorage, latest_with_progress, progress_in, was_rolled_back
from outbox_spark.sinks.lake.lease import LEASE_SUFFIX, Lease
from outbox_spark.sinks.lake.merge_sql import MergeStatement, literal, quoted
from outbox_spark.sinks.lake.single_writer import check_iceberg_target
from outbox_spark.sinks.lake.table import PROGRESS_KEY, ChangeCounts, LakeTable
from outbox_spark.sinks.lake.tombstone_ledger import LEDGER_ID
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

_MAIN_BRANCH = "main"
_BRANCH_PREFIX = "outbox_"
_SNAPSHOT_PROPERTY = f"spark.sql.iceberg.snapshot-property.{PROGRESS_KEY}"
_MERGE_COUNT_PREFIX = "spark.merge-into.num-target-rows-"
_CONFLICTS = ("TABLE_OR_VIEW_ALREADY_EXISTS", "Cannot fast-forward", "CommitFailedException", "ValidationException")


class IcebergTable(LakeTable):
    """One Iceberg table. It has a lease only if its catalog is of type hadoop, which stores tables in folders."""

    kind = "iceberg"
    _storage: IcebergStorage

    def __init__(self, spark: SparkSession, target: IcebergTarget, table: str, mode: Mode, report: Reporter) -> None:
        check_iceberg_target(target)
        warehouse, lease = hadoop_warehouse(target.catalog), None
        if warehouse:
            folder = "/".join([warehouse.rstrip("/"), *target.namespace.split(".")])
            lease = Lease(spark, f"{folder}/{table}{LEASE_SUFFIX}", report)
        super().__init__(IcebergStorage(spark, target, table), f"{target.namespace}.{table}", mode, lease)
        self._token_at_entry: str | None = None
        """Token of the latest progress at `__enter__`; set only if the table has no lease."""

    def __enter__(self) -> Self:
        super().__enter__()
        if self._lease is None:
            self._token_at_entry = self._current_token()
        return self

    def replace_by(self, shadow: Self) -> None:
        """Replace the table's content with that of the shadow table in one commit, then drop the shadow table.

        Raises RefusedError for a table of another job, and OverlapError if there is no lease and another run has
        committed since `__enter__`. Iceberg does not detect conflicts when it replaces a table. If another run commits
        while the rows are written, its commit is lost, and the next run applies the same records again.
        """
        self._latest_progress()
        if self._lease is None and self._current_token() != self._token_at_entry:
            raise self._conflict_error()
        progress = self._copy_companions(shadow)
        with self._snapshot_property(progress), self._raising_conflicts():
            self._storage.replace(shadow._storage.read())
        self._progress = progress
        self._ledger.restore(progress)
        if self._ledger.exists():
            is_obsolete = f"{LEDGER_ID} <> {literal(self._ledger.id)}"
            self._storage.execute(f"DELETE FROM {self._storage.sql_name(TOMBSTONES_SUFFIX)} WHERE {is_obsolete}")  # noqa: S608
        shadow.drop()
        shadow._storage.drop(QUARANTINE_SUFFIX)

    def _current_token(self) -> str | None:
        return _latest_token(self._storage.load()) if self._storage.exists() else None

    def _read_progress(self) -> dict[str, Any] | None:
        table = self._storage.load()
        snapshot = latest_with_progress(table)
        if snapshot is None:
            return None
        if was_rolled_back(table, snapshot):
            raise RefusedError(f"{self._label} was rolled back to an older snapshot", REBUILD_HINT)
        return progress_in(snapshot)

    def _latest_progress(self) -> dict[str, Any] | None:
        if not self._storage.exists():
            return None
        snapshot = latest_with_progress(self._storage.load())
        if snapshot is None:
            raise self._foreign_table_error()
        return progress_in(snapshot)

    def _commit_creation(self, rows: DataFrame, progress: dict[str, Any]) -> ChangeCounts:
        with self._snapshot_property(progress):
            return ChangeCounts(self._storage.create("", rows), 0, 0)

    def _commit_merge(self, merge: MergeStatement, source: str, progress: dict[str, Any]) -> ChangeCounts:
        with self._branch(progress) as branch:
            self._storage.execute(merge.sql(branch, source))
        summary = self._storage.load().currentSnapshot().summary()
        kinds = ("inserted", "matched-updated", "deleted")
        return ChangeCounts(*(int(summary.get(_MERGE_COUNT_PREFIX + kind) or 0) for kind in kinds))

    def _commit_progress(self, progress: dict[str, Any]) -> None:
        no_rows = without_rows(self._storage.spark.table(self._storage.sql_name()))
        with self._branch(progress) as branch:
            no_rows.writeTo(branch).append()

    @contextmanager
    def _branch(self, progress: dict[str, Any]) -> Iterator[str]:
        """Yield the SQL name of a new branch for a commit, then fast-forward the main branch to that branch."""
        table = self._storage.load()
        if self._progress is None or _latest_token(table) != self._progress["token"]:
            raise self._conflict_error()
        branch = _BRANCH_PREFIX + progress["token"]
        changes = table.manageSnapshots()
        jvm: Any = self._storage.spark._jvm
        for ref in jvm.java.lang.String.join("\n", table.refs().keySet()).split("\n"):
            if ref.startswith(_BRANCH_PREFIX):  # left by a killed run
                changes = changes.removeBranch(ref)
        changes.createBranch(branch, table.currentSnapshot().snapshotId()).commit()
        try:
            with self._snapshot_property(progress):
                yield f"{self._storage.sql_name()}.{quoted('branch_' + branch)}"
            table.refresh()
            table.manageSnapshots().fastForwardBranch(_MAIN_BRANCH, branch).removeBranch(branch).commit()
        except BaseException:
            with suppress(Exception):
                table.refresh()
                table.manageSnapshots().removeBranch(branch).commit()
            raise

    def _snapshot_property(self, progress: dict[str, Any]) -> AbstractContextManager[None]:
        """Add the progress to the summaries of commits inside `with`. MERGE has no options, so a setting is used."""
        return changed_settings(self._storage.spark, {_SNAPSHOT_PROPERTY: json.dumps(progress)})

    def _is_conflict(self, error: Exception) -> bool:
        return any(text in str(error) for text in _CONFLICTS)


def _latest_token(table: Any) -> str | None:  # noqa: ANN401 - org.apache.iceberg.Table
    """Return the token of the latest progress in the current snapshot and its ancestors, or None."""
    snapshot = latest_with_progress(table)
    progress = None if snapshot is None else progress_in(snapshot)
    return None if progress is None else progress["token"]
