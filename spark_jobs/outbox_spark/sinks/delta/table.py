"""Delta: how its tables are named and made, and how the progress gets into their commits and back.

The progress is in the user metadata of a commit. Commits are told apart by the run number, which is Delta's own
transaction version: of two runs with the same number one fails, or is skipped without a word, which is looked for.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from outbox_spark.errors import RefusedError
from outbox_spark.jobs.model import DeltaTarget, Mode
from outbox_spark.sinks.delta import maintenance, replace
from outbox_spark.sinks.lake.lease import LEASE_SUFFIX, Lease
from outbox_spark.sinks.lake.merge_sql import Merge, quoted
from outbox_spark.sinks.lake.table import PROGRESS_KEY, Changes, LakeTable
from outbox_spark.sinks.target_table import ANEW, QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

TRANSACTION_ID = "outbox-materialize"

_PROPERTIES = {
    # Without them one stale row in a MERGE rewrites the whole file that holds its key.
    "delta.enableDeletionVectors": "true",
    # The progress is in the log of commits, which Delta else cleans after 30 days.
    "delta.logRetentionDuration": "interval 365 days",
}
_CONFIGURATION = "spark.databricks.delta"


class DeltaTable(LakeTable):
    """One table, at <path>/<table>."""

    def __init__(self, spark: SparkSession, target: DeltaTarget, table: str, mode: Mode = Mode.HARD_DELETE) -> None:
        self._path = f"{target.path.rstrip('/')}/{table}"
        self._ledger = self._path + TOMBSTONES_SUFFIX
        self._quarantine = self._path + QUARANTINE_SUFFIX
        super().__init__(spark, self._path, mode, Lease(spark, self._path + LEASE_SUFFIX))

    def replace_by(self, shadow: Self) -> None:
        """Make the content of `shadow` this table's, in one step for readers."""
        replace.replace_by(self, shadow)

    def drop(self) -> None:
        """Remove the table and its ledger; the quarantine stays."""
        maintenance.drop(self)

    def maintain(self) -> str:
        """Compact files, expire what is no longer needed."""
        return maintenance.maintain(self)

    def carry_forward(self) -> None:
        """Commit the progress again when others have committed since. Counts as a run, so that it meets no other."""
        commit = next(self._commits(), None)
        if self._stored is not None and commit is not None and _stored(commit) is None:
            progress = {**self._stored, "run": int(self._stored["run"]) + 1, "token": secrets.token_hex(8)}
            with self._explained():
                self._commit_nothing(progress)
            self._stored = progress

    def _name(self, suffix: str = "") -> str:
        return f"delta.{quoted(self._path + suffix)}"

    def _there(self, suffix: str = "") -> bool:
        return self._exists(self._path + suffix)

    def _exists(self, path: str) -> bool:
        jvm: Any = self._spark._jvm
        return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(self._spark._jsparkSession, path))

    def _read(self, suffix: str = "") -> DataFrame:
        return self._spark.read.format("delta").load(self._path + suffix)

    def _append(self, suffix: str, rows: DataFrame) -> int:
        token = str(uuid.uuid4())
        options = {**_PROPERTIES, "userMetadata": token}
        rows.write.format("delta").mode("append").options(**options).save(self._path + suffix)
        newest = next(self._commits(suffix))
        # Of no rows Delta makes no commit.
        return int(newest["operationMetrics"].get("numOutputRows", 0)) if newest.get("userMetadata") == token else 0

    def _find_progress(self) -> dict[str, Any] | None:
        for commit in self._commits():
            if commit["operation"] == "RESTORE":
                # The rows are older than the newest progress says: going on would skip what was undone.
                message = f"{self._path} was restored to an older version"
                raise RefusedError(message, ANEW)
            stored = _stored(commit)
            if stored is not None:
                return stored
        return None

    def _commits(self, suffix: str = "") -> Iterator[dict[str, Any]]:
        """What the commits say of themselves, newest first, as far as they are kept.

        Read from the log's files. DESCRIBE HISTORY tells the same, but is a Spark job and takes a third of a second.
        """
        jvm: Any = self._spark._jvm
        log: Any = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._path + suffix)
        none = jvm.scala.Option.apply(None)
        newest = log.update(False, none, none).version()
        files = log.logPath().getFileSystem(self._spark._jsc.hadoopConfiguration())
        for version in range(newest, -1, -1):
            path = jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020d}.json")
            try:
                stream = files.open(path)
            except Py4JJavaError as error:
                if "FileNotFound" in error.java_exception.getClass().getName():
                    return
                raise
            yield _commit_info(jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, "UTF-8")))

    def _commit_first(self, rows: DataFrame, progress: dict[str, Any]) -> Changes:
        self._write(rows, progress, _PROPERTIES)
        return Changes(int(self._verified(progress)["operationMetrics"].get("numOutputRows", 0)), 0, 0)

    def _commit_merge(self, merge: Merge, source: str, progress: dict[str, Any]) -> Changes:
        with self._commit_settings(progress):
            rows = self._spark.sql(merge.sql(self._name(), source)).collect()
        if not rows:  # skipped, because the run number is taken
            raise self._conflict()
        if not rows[0]["num_affected_rows"]:
            # Every row was stale, and such a MERGE makes no commit; the progress needs one.
            self._commit_nothing(progress)
        self._verified(progress)
        return Changes(*(rows[0][f"num_{kind}_rows"] for kind in ("inserted", "updated", "deleted")))

    def _commit_nothing(self, progress: dict[str, Any]) -> None:
        self._write(self._spark.createDataFrame([], self._read().schema), progress, {})
        self._verified(progress)

    def _write(self, rows: DataFrame, progress: dict[str, Any], properties: Mapping[str, str]) -> None:
        rows.write.format("delta").mode("append").options(
            **properties,
            userMetadata=json.dumps({PROGRESS_KEY: progress}),
            txnAppId=TRANSACTION_ID,
            txnVersion=str(progress["run"]),
        ).save(self._path)

    def _verified(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Our commit. A run number that another run has used makes Delta skip a write silently."""
        for commit in self._commits():
            stored = _stored(commit)
            if stored is not None and stored["token"] == progress["token"]:
                return commit
            if stored is not None and stored["run"] >= progress["run"]:
                break
        raise self._conflict()

    @contextmanager
    def _commit_settings(self, progress: dict[str, Any]) -> Iterator[None]:
        """MERGE takes these from the session only, where they would stick to every later commit."""
        settings = {
            f"{_CONFIGURATION}.commitInfo.userMetadata": json.dumps({PROGRESS_KEY: progress}),
            f"{_CONFIGURATION}.write.txnAppId": TRANSACTION_ID,
            f"{_CONFIGURATION}.write.txnVersion": str(progress["run"]),
        }
        for key, value in settings.items():
            self._spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in settings:
                self._spark.conf.unset(key)

    def _is_conflict(self, error: Exception) -> bool:
        # DeltaConcurrentModificationException and its kinds; PySpark has no class for them.
        return "io.delta.exceptions" in str(error) or "DELTA_CONCURRENT" in str(error)


def _commit_info(reader: Any) -> dict[str, Any]:  # noqa: ANN401 - of Java
    """The `commitInfo` of one file of the log, which begins with it. Closes the reader."""
    try:
        while (line := reader.readLine()) is not None:
            action = json.loads(line)
            if "commitInfo" in action:
                return {"operation": None, "operationMetrics": {}, **action["commitInfo"]}
    finally:
        reader.close()
    return {"operation": None, "operationMetrics": {}}


def _stored(commit: Mapping[str, Any]) -> dict[str, Any] | None:
    """Our part of a commit's user metadata; None in commits of others."""
    try:
        metadata = json.loads(commit.get("userMetadata") or "")
    except ValueError:
        return None
    found = metadata.get(PROGRESS_KEY) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else None
