"""OPTIMIZE and VACUUM of a Delta table."""

from __future__ import annotations

from outbox_spark.sinks.lake.storage import LakeStorage

_LISTING_TASKS = 16


def compact(storage: LakeStorage, suffix: str) -> str:
    """Run OPTIMIZE and VACUUM; return the numbers of files that OPTIMIZE removed and added.

    VACUUM retains files for the table's `delta.deletedFileRetentionDuration`, by default 7 days, for readers of older
    versions and time travel.
    """
    name = storage.sql_name(suffix)
    metrics = storage.spark.sql(f"OPTIMIZE {name}").collect()[0]["metrics"]
    _vacuum(storage, name)
    return f"{metrics['numFilesRemoved']} files into {metrics['numFilesAdded']}"


def _vacuum(storage: LakeStorage, name: str) -> None:
    """Run VACUUM with fewer tasks than the 10,000 that Spark uses by default to list folders."""
    conf, setting = storage.spark.conf, "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    previous = conf.get(setting)
    conf.set(setting, str(_LISTING_TASKS))
    try:
        storage.execute(f"VACUUM {name}")
    finally:
        conf.set(setting, str(previous))
