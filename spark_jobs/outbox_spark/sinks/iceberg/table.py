"""Iceberg: how its tables are named and made, and how the progress gets into their snapshots and back.

The progress is in the summary of a snapshot. A batch is merged into a branch of its own, made from the snapshot that
the run has looked at; then the main branch is moved forward to it, which the catalog refuses when somebody else has
committed meanwhile. So a batch and its progress become visible at once, or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql.types import StructType

from outbox_spark.decoding.columns import Column
from outbox_spark.errors import RefusedError, SchemaError
from outbox_spark.jobs.model import IcebergTarget, Mode
from outbox_spark.sinks.iceberg import maintenance
from outbox_spark.sinks.iceberg.progress import newest_of_ours, stored_in, was_rolled_back
from outbox_spark.sinks.lake.lease import LEASE_SUFFIX, Lease
from outbox_spark.sinks.lake.merge_sql import Merge, quoted
from outbox_spark.sinks.lake.table import PROGRESS_KEY, Changes, LakeTable
from outbox_spark.sinks.target_table import ANEW

_MAIN = "main"
_BRANCH_PREFIX = "outbox_"
_SNAPSHOT_PROPERTY = f"spark.sql.iceberg.snapshot-property.{PROGRESS_KEY}"
_COUNTS = "spark.merge-into.num-target-rows-"

_PROPERTIES = {
    # Deleted rows are bitmaps beside the files.
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    # The rows of a batch are few: a shuffle before they are written only costs.
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    # Every commit writes a file that describes the table.
    "write.metadata.delete-after-commit.enabled": "true",
}


RENAMED = {"_partition": "_kafka_partition"}
"""Iceberg has a `_partition` of its own on every table, and its MERGE cannot do with two."""
_TAKEN = {"_file", "_pos", "_spec_id", "_row_id", "_last_updated_sequence_number", *RENAMED.values()}


def use_catalog(spark: SparkSession, target: IcebergTarget) -> str:
    """Set up the catalog of a target in this session; returns the name that SQL knows it by."""
    settings = sorted(target.catalog.items())
    name = "outbox_" + hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]
    prefix = f"spark.sql.catalog.{name}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    # Every job carries the session's settings along, and the event log redacts those that are the application's too.
    application: Any = spark._jsc.sc().conf()
    for key, value in settings:
        application.set(f"{prefix}.{key}", value)
        spark.conf.set(f"{prefix}.{key}", value)
    # A cached table does not show what others have committed.
    spark.conf.set(f"{prefix}.cache-enabled", "false")
    return name


def table_name(spark: SparkSession, target: IcebergTarget, table: str) -> str:
    """A table of a target as SQL takes it."""
    return ".".join(quoted(part) for part in [use_catalog(spark, target), *target.namespace.split("."), table])


class IcebergTable(LakeTable):
    """One table of a namespace. A lease keeps runs apart where the catalog is a folder."""

    _renamed: Mapping[str, str] = RENAMED

    def __init__(self, spark: SparkSession, target: IcebergTarget, table: str, mode: Mode = Mode.HARD_DELETE) -> None:
        self._target, self._table = target, table
        self._catalog = use_catalog(spark, target)
        warehouse, lease = target.catalog.get("warehouse"), None
        if target.catalog.get("type") == "hadoop" and warehouse:
            folder = "/".join([warehouse.rstrip("/"), *target.namespace.split(".")])
            lease = Lease(spark, f"{folder}/{table}{LEASE_SUFFIX}")
        super().__init__(spark, f"{target.namespace}.{table}", mode, lease)
        self._entered: str | None = None
        """Where there is no lease: the token of the newest progress when this table was entered."""

    def __enter__(self) -> Self:
        super().__enter__()
        if self._lease is None:
            self._entered = maintenance.newest_token(self)
        return self

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError when the table cannot have, or hold, these columns."""
        taken = [column.name for column in columns if column.name.lower() in _TAKEN]
        if taken:
            raise SchemaError(f"field {taken[0]} has the name of a column that Iceberg keeps for itself", "rename it")
        super().check(columns, schema)

    def replace_by(self, shadow: Self) -> None:
        """Make the content of `shadow` this table's, in one step for readers."""
        maintenance.replace_by(self, shadow)

    def drop(self) -> None:
        """Remove the table and its ledger; the quarantine stays."""
        maintenance.drop(self)

    def maintain(self) -> str:
        """Compact files, expire what is no longer needed."""
        return maintenance.maintain(self)

    def _name(self, suffix: str = "") -> str:
        return table_name(self._spark, self._target, self._table + suffix)

    def _there(self, suffix: str = "") -> bool:
        return self._spark.catalog.tableExists(self._name(suffix))

    def _read(self, suffix: str = "") -> DataFrame:
        stored = {name: ours for ours, name in RENAMED.items()}
        return self._spark.table(self._name(suffix)).withColumnsRenamed(stored)

    def _replace(self, rows: DataFrame) -> None:
        """Make these rows, and their columns, the table's: one commit."""
        self._writer("", rows).createOrReplace()

    def _append(self, suffix: str, rows: DataFrame) -> int:
        if self._there(suffix):
            rows.withColumnsRenamed(RENAMED).writeTo(self._name(suffix)).append()
        else:
            self._make(suffix, rows)
        return int(self._loaded(suffix).currentSnapshot().summary().get("added-records") or 0)

    def _make(self, suffix: str, rows: DataFrame) -> None:
        namespace = ".".join(quoted(part) for part in [self._catalog, *self._target.namespace.split(".")])
        self._sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        self._writer(suffix, rows).create()

    def _writer(self, suffix: str, rows: DataFrame) -> DataFrameWriterV2:
        writer = rows.withColumnsRenamed(RENAMED).writeTo(self._name(suffix)).using("iceberg")
        for key, value in _PROPERTIES.items():
            writer = writer.tableProperty(key, value)
        return writer

    def _loaded(self, suffix: str = "") -> Any:  # noqa: ANN401 - of Iceberg
        """The table as Iceberg's own API has it, as it is now."""
        jvm: Any = self._spark._jvm
        util = jvm.org.apache.iceberg.spark.Spark3Util
        return util.loadIcebergTable(self._spark._jsparkSession, self._name(suffix))

    def _find_progress(self) -> dict[str, Any] | None:
        table = self._loaded()
        found = newest_of_ours(table)
        if found is None:
            return None
        if was_rolled_back(table, found):
            message = f"{self._label} was rolled back to an older snapshot"
            raise RefusedError(message, ANEW)
        return stored_in(found)

    def _commit_first(self, rows: DataFrame, progress: dict[str, Any]) -> Changes:
        with self._carrying(progress):
            self._make("", rows)
        return Changes(int(self._loaded().currentSnapshot().summary().get("added-records") or 0), 0, 0)

    def _commit_merge(self, merge: Merge, source: str, progress: dict[str, Any]) -> Changes:
        with self._branch(progress) as branch:
            self._sql(merge.sql(f"{self._name()}.{quoted('branch_' + branch)}", source))
        summary = dict(self._loaded().currentSnapshot().summary())
        inserted, updated, deleted = (
            int(summary.get(_COUNTS + kind, 0)) for kind in ("inserted", "matched-updated", "deleted")
        )
        return Changes(inserted, updated, deleted)

    def _commit_nothing(self, progress: dict[str, Any]) -> None:
        nothing = self._spark.createDataFrame([], self._spark.table(self._name()).schema)
        with self._branch(progress) as branch:
            nothing.writeTo(f"{self._name()}.{quoted('branch_' + branch)}").append()

    @contextmanager
    def _branch(self, progress: dict[str, Any]) -> Iterator[str]:
        """A branch to commit to, which the main branch is moved forward to afterwards."""
        table = self._loaded()
        found = newest_of_ours(table)
        stored = None if found is None else stored_in(found)
        if self._stored is None or stored is None or stored["token"] != self._stored["token"]:
            raise self._conflict()
        name = _BRANCH_PREFIX + progress["token"]
        change = table.manageSnapshots()
        for left in [ref for ref in table.refs() if ref.startswith(_BRANCH_PREFIX)]:  # by runs that died
            change = change.removeBranch(left)
        change.createBranch(name, table.currentSnapshot().snapshotId()).commit()
        try:
            with self._carrying(progress):
                yield name
            table.refresh()
            table.manageSnapshots().fastForwardBranch(_MAIN, name).removeBranch(name).commit()
        except BaseException:
            with suppress(Exception):
                table.refresh()
                table.manageSnapshots().removeBranch(name).commit()
            raise

    @contextmanager
    def _carrying(self, progress: dict[str, Any]) -> Iterator[None]:
        """Commits take it from the session only, where it would stick to every later one."""
        self._spark.conf.set(_SNAPSHOT_PROPERTY, json.dumps(progress))
        try:
            yield
        finally:
            self._spark.conf.unset(_SNAPSHOT_PROPERTY)

    def _is_conflict(self, error: Exception) -> bool:
        signs = ("TABLE_OR_VIEW_ALREADY_EXISTS", "Cannot fast-forward", "CommitFailedException", "ValidationException")
        return any(sign in str(error) for sign in signs)
