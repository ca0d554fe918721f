"""Classify differences between a row and the newest record of its key, with expressions over the joined frame.

A joined row has KEY_COLUMN, ROW (the stored row without its fields) and the columns of the newest record. ROW is NULL
if there is no stored row, and the columns of the record are NULL if there is no record.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import (
    DELETED_AT_COLUMN,
    KEY_COLUMN,
    METADATA_COLUMNS,
    ROW_STATE_COLUMNS,
    STALE_COLUMN,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
)
from outbox_spark.decoding.columns import Column as TableColumn
from outbox_spark.jobs.model import Mode
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks import TargetTable
from outbox_spark.sinks.target_table import DIFFERENT_COLUMNS, STORED_VERSION

KIND = "__outbox_kind"
ROW = "__outbox_row"
"""Struct of VERSION_COLUMNS, the other METADATA_COLUMNS, ROW_STATE_COLUMNS, and _IS_SUPERSEDED."""
_IS_SUPERSEDED = "is_superseded"
"""Whether the quarantine contains a newer record of the key, so that `_stale` must be true."""


class DifferenceKind(StrEnum):
    """Kind of difference between the table and the topic for one key."""

    MISSING = "missing"
    """The topic has a live record of the key, but the table has no row."""
    STALE = "stale"
    """The row is older than the topic's record."""
    DIFFERENT = "different"
    """The row has the version of the topic's record but different values, or its `_stale` is wrong."""
    ZOMBIE = "zombie"
    """For the row's key, the topic contains a tombstone or no longer contains a record."""
    DUPLICATE = "duplicate"
    """The key has more than one current row."""
    UNREADABLE = "unreadable"
    """The newest record cannot be decoded."""
    AHEAD = "ahead"
    """The row is newer than the topic's record, for example while a connector sends records again."""
    UNPROVEN = "unproven"
    """The topic has no record of the row's key, but the scan was not completed, or the log was truncated."""
    UNSURE = "unsure"
    """Like MISSING, but partitions were added to the topic, and another partition may contain a tombstone."""


REPAIRED = (DifferenceKind.MISSING, DifferenceKind.STALE, DifferenceKind.DIFFERENT, DifferenceKind.ZOMBIE)
"""Kinds that a repair removes."""
DIFFERENCES = (*REPAIRED, DifferenceKind.DUPLICATE)
"""Kinds that count as differences. The other kinds are only reported."""


class JoinedKind(StrEnum):
    """Kinds of joined rows whose DifferenceKind has not been determined yet."""

    SAME = "same"
    """The row has the version of the record."""
    DELETED = "deleted"
    """The record is a tombstone that is newer than the row."""
    ABSENT = "absent"
    """The row has no record."""
    UNORDERED = "unordered"
    """The record has no valid sequence, so it is in quarantine."""


DECODED_KINDS = (DifferenceKind.MISSING.value, DifferenceKind.STALE.value, JoinedKind.DELETED.value)
"""Kinds of joined rows from which decoded_kind() determines the exact kind after decoding."""


def with_quarantined(states: DataFrame, quarantined: DataFrame | None) -> DataFrame:
    """Combine TargetTable.row_states() and quarantined_versions(), and return the columns KEY_COLUMN and ROW."""
    is_superseded = F.lit(False)
    if quarantined is not None:
        states = states.join(quarantined, KEY_COLUMN, "left")
        is_superseded = F.coalesce(F.col(STORED_VERSION) > F.struct(*VERSION_COLUMNS), F.lit(False))
    # The version comes first, so that max() of two rows returns the newer row.
    others = [name for name in [*METADATA_COLUMNS, *ROW_STATE_COLUMNS] if name not in VERSION_COLUMNS]
    row = F.struct(*VERSION_COLUMNS, *others, is_superseded.alias(_IS_SUPERSEDED))
    return states.select(KEY_COLUMN, row.alias(ROW))


def joined_kind(row_count: Column) -> Column:
    """Return the DifferenceKind or JoinedKind of a joined row; NULL if neither the table nor the topic has the key.

    The partition epoch is not compared, because records with equal sequences are copies of one event, and topics
    without a sequence have a single epoch.
    """
    has_row, has_record = F.col(ROW).isNotNull(), F.col("_offset").isNotNull()
    sequence, row_sequence = F.col("_sequence"), F.col(ROW)["_sequence"]
    has_no_sequence = (sequence == row_sequence) & (sequence == F.lit(""))
    is_newer = (sequence > row_sequence) | (has_no_sequence & (F.col("_offset") > F.col(ROW)["_offset"]))
    is_older = (sequence < row_sequence) | (has_no_sequence & (F.col("_offset") < F.col(ROW)["_offset"]))
    is_deleted, row_is_deleted = F.col("value").isNull(), F.col(ROW)[DELETED_AT_COLUMN].isNotNull()
    # A later record can have the same sequence, because all records of one COPY statement share a sequence.
    is_deleted_later = is_deleted & ~row_is_deleted & (F.col("_offset") > F.col(ROW)["_offset"])
    return (
        F.when(F.col(KEY_COLUMN).isNull(), F.lit(None))  # records without a key have no row
        .when(has_record & sequence.isNull(), F.lit(JoinedKind.UNORDERED.value))
        .when(row_count > 1, F.lit(DifferenceKind.DUPLICATE.value))
        .when(~has_record & row_is_deleted, F.lit(None))
        .when(~has_record, F.lit(JoinedKind.ABSENT.value))
        .when(is_deleted & ~has_row, F.lit(None))
        .when(is_older, F.lit(DifferenceKind.AHEAD.value))
        .when((is_newer & is_deleted) | is_deleted_later, F.lit(JoinedKind.DELETED.value))
        .when(has_row & ~is_newer, F.lit(JoinedKind.SAME.value))
        .when(~has_row | row_is_deleted, F.lit(DifferenceKind.MISSING.value))
        .otherwise(F.lit(DifferenceKind.STALE.value))
    )


def decoded_kind(*, partitions_added: bool) -> Column:
    """Return the DifferenceKind of a decoded row with KIND and DIFFERENT_COLUMNS; NULL if there is no difference."""
    missing = DifferenceKind.UNSURE if partitions_added else DifferenceKind.MISSING
    kind, is_unreadable = F.col(KIND), F.col("__outbox_reason").isNotNull()
    has_different_columns = F.coalesce(F.size(DIFFERENT_COLUMNS) > 0, F.lit(False))
    # If the value of a record is JSON null, only decoding shows that the record is a tombstone.
    return (
        F.when(is_unreadable & ~has_different_columns, F.lit(DifferenceKind.UNREADABLE.value))
        .when(
            is_unreadable | (kind == JoinedKind.SAME.value),
            F.when(has_different_columns, F.lit(DifferenceKind.DIFFERENT.value)),
        )
        .when(F.col("__outbox_deleted") & (kind != DifferenceKind.MISSING.value), F.lit(DifferenceKind.ZOMBIE.value))
        .when(kind == DifferenceKind.MISSING.value, F.when(~F.col("__outbox_deleted"), F.lit(missing.value)))
        .otherwise(kind)
    )


def different_state(mode: Mode, is_deleted: Column, is_unreadable: Column) -> Column:
    """Return the names of ROW's state columns whose values differ from the record of the same version.

    `is_deleted` states whether the record is a tombstone. If the record is unreadable, only `_stale` is compared.
    """
    row, row_is_deleted = F.col(ROW), F.col(ROW)[DELETED_AT_COLUMN].isNotNull()
    # Copies of one event have the same sequence, but different offsets and timestamps.
    is_same_record = (F.col("_partition") == row["_partition"]) & (F.col("_offset") == row["_offset"])
    has_other_timestamp = is_same_record & (row["_timestamp"] != F.col("_timestamp"))
    has_other_deletion = ~row_is_deleted | (is_same_record & (row[DELETED_AT_COLUMN] != F.col("_timestamp")))
    is_stale = F.coalesce(row[STALE_COLUMN], F.lit(False))
    conditions = {
        # If the newest record is unreadable, the row is stale even if the record was removed from the quarantine.
        STALE_COLUMN: (is_stale != row[_IS_SUPERSEDED]) & ~(is_stale & is_unreadable),
        "_timestamp": ~is_unreadable & has_other_timestamp,
    }
    if mode is Mode.SOFT_DELETE:
        is_wrong = F.when(is_deleted, has_other_deletion).otherwise(row_is_deleted)
        conditions[DELETED_AT_COLUMN] = ~is_unreadable & is_wrong
    if mode is Mode.HISTORY:
        conditions[VALID_FROM_COLUMN] = ~is_unreadable & (row[VALID_FROM_COLUMN] != row["_timestamp"])
    return F.array_compact(F.array(*[F.when(condition, F.lit(name)) for name, condition in conditions.items()]))


def compared_fields(table: TargetTable, columns: Sequence[TableColumn]) -> list[TableColumn]:
    """Return the columns that exist in the table. The next run adds the columns of new fields."""
    stored_names = set(table.column_names(columns))
    return [column for column in columns if column.name in stored_names]


def uncompared_names(table: TargetTable, columns: Sequence[TableColumn], compared: Sequence[TableColumn]) -> list[str]:
    """Return the columns of the table that are not compared, and the fields that have no column yet."""
    known_names = {KEY_COLUMN, *METADATA_COLUMNS, *ROW_STATE_COLUMNS, VALID_TO_COLUMN, *(c.name for c in compared)}
    names = dict.fromkeys([*(column.name for column in columns), *table.column_names(columns)])
    return [name for name in names if name not in known_names]


def count_by_kind(keys: DataFrame, kind_name: str, max_examples: int) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return, for each kind, the number of rows and the first `max_examples` keys. `keys` should be persisted.

    The executors sort the keys, and each returns at most `max_examples` of its keys.
    """
    counts = {row[kind_name]: int(row["count"]) for row in keys.groupBy(kind_name).count().collect()}
    example_keys: dict[str, list[str]] = {}
    for kind in counts if max_examples else ():
        of_kind = keys.where((F.col(kind_name) == kind) & F.col(KEY_COLUMN).isNotNull()).select(KEY_COLUMN)
        example_keys[kind] = [row[0] for row in of_kind.orderBy(KEY_COLUMN).limit(max_examples).collect()]
    return counts, example_keys


def count_columns(rows: DataFrame) -> dict[str, int]:
    """Return, for each column name in sorted order, the number of rows that have this name in DIFFERENT_COLUMNS."""
    names = rows.select(F.explode(DIFFERENT_COLUMNS).alias("name"))
    return {row["name"]: int(row["count"]) for row in names.groupBy("name").count().orderBy("name").collect()}
