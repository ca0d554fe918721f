"""Implement the Delta target, which stores the progress in the user metadata of commits.

The number of a commit (`run` of the progress) is also Delta's transaction version, `txnVersion`. If two runs commit the
same number, Delta either rejects the second commit or skips it without an error; the second run detects the skip.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

from outbox_events.errors import RefusedError
from outbox_spark.errors import REBUILD_HINT
from outbox_spark.jobs.model import DeltaTarget, Mode, Reporter, TableProgress
from outbox_spark.session.run_session import without_rows
from outbox_spark.session.settings import changed_settings
from outbox_spark.sinks.delta.storage import TABLE_PROPERTIES, DeltaStorage, progress_in
from outbox_spark.sinks.lake.lease import LEASE_SUFFIX, Lease
from outbox_spark.sinks.lake.merge_sql import MergeStatement
from outbox_spark.sinks.lake.single_writer import check_delta_target
from outbox_spark.sinks.lake.table import PROGRESS_KEY, ChangeCounts, LakeTable
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX

TRANSACTION_ID = "outbox-materialize"
_MERGE_SETTINGS = {
    "userMetadata": "commitInfo.userMetadata",
    "txnAppId": "write.txnAppId",
    "txnVersion": "write.txnVersion",
}
"""For each option of a write, the Delta setting that replaces it in a MERGE, which has no options."""


class DeltaTable(LakeTable):
    """One Delta table, in the folder <path of the target>/<table>."""

    kind = "delta"
    _storage: DeltaStorage

    def __init__(self, spark: SparkSession, target: DeltaTarget, table: str, mode: Mode, report: Reporter) -> None:
        check_delta_target(spark, target)
        path = f"{target.path.rstrip('/')}/{table}"
        super().__init__(DeltaStorage(spark, path), path, mode, Lease(spark, path + LEASE_SUFFIX, report))

    def committed(self) -> TableProgress | None:
        committed = super().committed()
        if committed is None:
            self._storage.refuse_foreign_files()
        return committed

    def replace_by(self, shadow: Self) -> None:
        """Replace the table's content with that of the shadow table in one commit, then drop the shadow table."""
        latest_progress = self._latest_progress()
        progress = self._copy_companions(shadow)
        run = max(int(progress["run"]), int(latest_progress["run"]) if latest_progress else 0) + 1
        progress = {**progress, "run": run, "token": secrets.token_hex(8)}
        with self._raising_conflicts():
            properties = {} if self._storage.exists() else TABLE_PROPERTIES
            self._save(shadow._storage.read(), progress, "overwrite", {**properties, "overwriteSchema": "true"})
        self._progress = progress
        self._ledger.restore(progress)
        shadow.drop()
        shadow._storage.drop(QUARANTINE_SUFFIX)

    def maintain(self) -> str:
        """Compact the table and its companion tables. If the newest commit has no progress, commit the progress again.

        The latest progress is then near the end of the log, so reading it is fast and log cleanup does not remove it.
        """
        summary = super().maintain()
        if self._progress is not None and progress_in(next(self._storage.commits())) is None:
            progress = {**self._progress, "run": int(self._progress["run"]) + 1, "token": secrets.token_hex(8)}
            with self._raising_conflicts():
                self._commit_progress(progress)
            self._progress = progress
        return summary

    def _read_progress(self) -> dict[str, Any] | None:
        for commit in self._storage.commits():
            if commit["operation"] == "RESTORE":
                # The rows are older than the latest progress, so the next run would skip the changes that were undone.
                raise RefusedError(f"{self._label} was restored to an older version", REBUILD_HINT)
            progress = progress_in(commit)
            if progress is not None:
                return progress
        return None

    def _latest_progress(self) -> dict[str, Any] | None:
        if not self._storage.exists():
            self._storage.refuse_foreign_files()
            return None
        progress = next(filter(None, map(progress_in, self._storage.commits())), None)
        if progress is None:
            raise self._foreign_table_error()
        return progress

    def _commit_creation(self, rows: DataFrame, progress: dict[str, Any]) -> ChangeCounts:
        commit = self._save(rows, progress, "append", TABLE_PROPERTIES)
        return ChangeCounts(int(commit["operationMetrics"].get("numOutputRows", 0)), 0, 0)

    def _commit_merge(self, merge: MergeStatement, source: str, progress: dict[str, Any]) -> ChangeCounts:
        options = _commit_options(progress)
        settings = {f"spark.databricks.delta.{name}": options[option] for option, name in _MERGE_SETTINGS.items()}
        with changed_settings(self._storage.spark, settings):
            metrics = self._storage.spark.sql(merge.sql(self._storage.sql_name(), source)).collect()
        if not metrics:  # Delta skipped the MERGE, because another run has committed this run number
            raise self._conflict_error()
        if not metrics[0]["num_affected_rows"]:
            # A MERGE that does not change rows does not commit, so the progress is committed separately.
            self._commit_progress(progress)
        self._find_commit(progress)
        return ChangeCounts(*(metrics[0][f"num_{kind}_rows"] for kind in ("inserted", "updated", "deleted")))

    def _commit_progress(self, progress: dict[str, Any]) -> None:
        self._save(without_rows(self._storage.read()), progress, "append", {})

    def _save(self, rows: DataFrame, progress: dict[str, Any], mode: str, options: Mapping[str, str]) -> dict[str, Any]:
        """Write the rows in one commit with the progress, and return the commit."""
        writer = rows.write.format("delta").mode(mode).options(**options, **_commit_options(progress))
        writer.save(self._storage.path)
        return self._find_commit(progress)

    def _find_commit(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Return the commit of this progress. Raises OverlapError if Delta skipped it because of `txnVersion`."""
        for commit in self._storage.commits():
            stored_progress = progress_in(commit)
            if stored_progress is not None and stored_progress["token"] == progress["token"]:
                return commit
            if stored_progress is not None and stored_progress["run"] >= progress["run"]:
                break
        raise self._conflict_error()

    def _is_conflict(self, error: Exception) -> bool:
        # PySpark has no classes for DeltaConcurrentModificationException and its subclasses.
        return "io.delta.exceptions" in str(error) or "DELTA_CONCURRENT" in str(error)


def _commit_options(progress: Mapping[str, Any]) -> dict[str, str]:
    return {
        "userMetadata": json.dumps({PROGRESS_KEY: progress}),
        "txnAppId": TRANSACTION_ID,
        "txnVersion": str(progress["run"]),
    }
