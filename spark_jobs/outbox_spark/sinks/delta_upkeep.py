"""What is done to a delta table beside writing batches: reconcile, rebuild, ledger, maintenance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.columns import DELETED_AT_COLUMN, KEY_COLUMN, METADATA_COLUMNS, VALID_TO_COLUMN
from outbox_spark.sinks import delta_replace
from outbox_spark.sinks.base import TOMBSTONES_SUFFIX
from outbox_spark.sinks.merging import quoted

if TYPE_CHECKING:
    from outbox_spark.sinks.delta import DeltaTable

_LISTING_TASKS = 16


def versions(table: DeltaTable) -> DataFrame:
    """Key and METADATA_COLUMNS of the current rows of the newest commit."""
    rows = table._spark.read.format("delta").load(table._path)
    for name in (DELETED_AT_COLUMN, VALID_TO_COLUMN):
        if name in rows.columns:
            rows = rows.where(F.col(name).isNull())
    return rows.select(KEY_COLUMN, *METADATA_COLUMNS)


def forget_deletions(table: DeltaTable, before: datetime) -> int:
    """Remove ledger entries whose record is older than `before`; returns how many."""
    if not table._exists(table._ledger):
        return 0
    old = f"_timestamp < timestamp'{before.astimezone(UTC).isoformat()}'"
    # Answered from the files' statistics when nothing is due; a DELETE costs a commit's time even then.
    if table._spark.read.format("delta").load(table._ledger).where(old).isEmpty():
        return 0
    result = table._spark.sql(f"DELETE FROM {table._name(TOMBSTONES_SUFFIX)} WHERE {old}").collect()  # noqa: S608
    return int(result[0]["num_affected_rows"])


def replace_by(table: DeltaTable, shadow: DeltaTable) -> None:
    """Make the content of `shadow` this table's, in one commit."""
    delta_replace.replace_by(table, shadow)


def drop(table: DeltaTable) -> None:
    """Remove the table and its ledger; the quarantine stays."""
    for path in (table._path, table._ledger):
        delta_replace.remove(table, path)


def maintain(table: DeltaTable) -> str:
    """OPTIMIZE and VACUUM the table, its ledger and its quarantine.

    VACUUM keeps what the table's own `delta.deletedFileRetentionDuration` says, 7 days unless set: readers of an
    older version, and time travel within it, go on. The progress is then committed again, so that it never gets far
    from the end of the log, where it would be looked for longer, and some day be cleaned.
    """
    if table.committed() is None:
        return f"{table._label}: there is no table yet"
    parts = []
    for path in (table._path, table._ledger, table._quarantine):
        if table._exists(path):
            metrics = table._spark.sql(f"OPTIMIZE delta.{quoted(path)}").collect()[0]["metrics"]
            _vacuum(table, path)
            parts.append(f"{metrics['numFilesRemoved']} files into {metrics['numFilesAdded']}")
    table.carry_forward()
    return f"{table._label}: rewrote {parts[0]}" + (f"; beside it {', '.join(parts[1:])}" if parts[1:] else "")


def _vacuum(table: DeltaTable, path: str) -> None:
    """VACUUM lists the folder with as many tasks as this setting says, 10,000 unless told otherwise."""
    conf, name = table._spark.conf, "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    before = conf.get(name)
    conf.set(name, str(_LISTING_TASKS))
    try:
        table._spark.sql(f"VACUUM delta.{quoted(path)}").collect()
    finally:
        conf.set(name, str(before))
