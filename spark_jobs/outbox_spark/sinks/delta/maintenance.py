"""What is done to a delta table beside writing batches, in its own way: removal and maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_spark.sinks.delta import replace
from outbox_spark.sinks.lake.merge_sql import quoted

if TYPE_CHECKING:
    from outbox_spark.sinks.delta.table import DeltaTable

_LISTING_TASKS = 16


def drop(table: DeltaTable) -> None:
    """Remove the table and its ledger; the quarantine stays."""
    for path in (table._path, table._ledger):
        replace.remove(table, path)


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
