"""OPTIMIZE and VACUUM of a Delta table."""

from __future__ import annotations

from outbox_spark.sinks.lake.storage import LakeStorage

_LISTING_TASKS = 16


def compact(storage: LakeStorage, suffix: str) -> str:
    """Run OPTIMIZE and VACUUM; return a text with the numbers of files that OPTIMIZE removed and added.

    VACUUM retains removed files for `delta.deletedFileRetentionDuration` of the table (default: 7 days), for readers of
    older versions and for time travel.
    """
    name = storage.sql_name(suffix)
    metrics = storage.spark.sql(f"OPTIMIZE {name}").collect()[0]["metrics"]
    _vacuum(storage, name)
    return f"{metrics['numFilesRemoved']} files into {metrics['numFilesAdded']}"


def _vacuum(storage: LakeStorage, table_name: str) -> None:
    """Run VACUUM with _LISTING_TASKS tasks for listing folders, instead of Spark's default of 10,000."""
    conf, setting = storage.spark.conf, "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    previous = conf.get(setting)
    conf.set(setting, str(_LISTING_TASKS))
    try:
        storage.execute(f"VACUUM {table_name}")
    finally:
        conf.set(setting, str(previous))
