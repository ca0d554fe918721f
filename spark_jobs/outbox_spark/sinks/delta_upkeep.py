"""What is done to a delta table beside writing batches: reconcile, rebuild, ledger, maintenance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.columns import DELETED_AT_COLUMN, KEY_COLUMN, METADATA_COLUMNS, VALID_TO_COLUMN
from outbox_spark.sinks import delta_replace

if TYPE_CHECKING:
    from outbox_spark.sinks.delta import DeltaTable


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
    result = table._spark.sql(f"DELETE FROM {delta_replace.by_path(table._ledger)} WHERE {old}").collect()  # noqa: S608
    return int(result[0]["num_affected_rows"])


def replace_by(table: DeltaTable, shadow: DeltaTable) -> None:
    """Make the content of `shadow` this table's, in one commit."""
    delta_replace.replace_by(table, shadow)


def drop(table: DeltaTable) -> None:
    """Remove the table and its ledger; the quarantine stays."""
    for path in (table._path, table._ledger):
        delta_replace.remove(table, path)


def maintain(table: DeltaTable) -> str:
    raise NotImplementedError
