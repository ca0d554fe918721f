"""Interface of target tables: read the progress, and write batches together with the progress."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from outbox_spark.decoding.columns import DELETED_AT_COLUMN, KEY_COLUMN, METADATA_COLUMNS, Column
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import TableProgress, WriteCounts
from outbox_spark.session.persisted import DecodedCounts

TOMBSTONES_SUFFIX = "__tombstones"
QUARANTINE_SUFFIX = "__quarantine"
STORED_VERSION = "__outbox_version"
"""Version of a stored row, as a struct of VERSION_COLUMNS, in the results of `quarantined_versions` and others."""
DIFFERENT_COLUMNS = "__outbox_columns"
"""Names of the columns in which a stored row differs."""
RetryResult = tuple[int, int, str | None]
"""Partition and offset of a record that was tried again, and why it cannot be read; None if it can be read now."""
REBUILD_HINT = "run `outbox-rebuild` (with --restart if an earlier rebuild was interrupted)"


def check_earlier_rows(
    columns: Sequence[Column], current: Collection[str], removed: Collection[str], label: str
) -> None:
    """Raise SchemaError for a new field whose values the rows lack, although their records can have the field.

    `current` are the names of the fields when the table was last written, `removed` those of earlier fields. A new
    field was renamed if it has the name of one of them as an alias, or was removed and added again.
    """
    for column in columns:
        names = () if column.name in current else (column.name, *column.aliases)
        if any(name in current or name in removed for name in names):
            message = f"the rows of {label} lack the values of field {column.name}, which was renamed or added again"
            raise SchemaError(message, REBUILD_HINT)


@dataclass(frozen=True)
class StagedRows:
    """Rows that a target has received but not yet merged."""

    metrics: Mapping[str, Any]
    """Values of the metrics that `stage_early` computed, by name."""
    location: Any
    """Location of the rows, of a type that only the target that staged them uses."""


@dataclass(frozen=True)
class Batch:
    """The rows to write for one range of the topic, and the progress to commit with them."""

    rows: DataFrame
    """Rows of decode(). Unless `staged` is set, they are evaluated repeatedly, so they or their source are persisted.
    Per key (in history mode: per version), at most one row is readable (`__outbox_reason` is null). The other rows are
    for the quarantine; each of them makes an older row of the same `aggregate_id` stale."""
    counts: DecodedCounts
    """Counts of `rows`; quarantined records without a key count too."""
    columns: Sequence[Column]
    reader_schema: str
    """The Avro schema from which `columns` were derived, as JSON."""
    previous: TableProgress | None
    committed: TableProgress
    """`previous` is the progress of the table before this batch; `committed` is committed with the batch."""
    staged: StagedRows | None = None
    may_repeat: bool = False
    """Whether an earlier batch may have applied some of these records, so that offsets do not show what is new."""
    rewrites: bool = False
    """Replace the values of the current rows that have exactly the version of a row of the batch, and correct `_stale`.
    Quarantined records and tombstones of the batch correct only the columns that describe the row's state. Nothing is
    inserted, deleted, or added to ledger or quarantine."""


class TargetTable(Protocol):
    """One table of a target; a context manager for one run."""

    def __enter__(self) -> Self:
        """Lock the table if its target has locks. Raises UnreachableError, or OverlapError if another run locked it."""

    def __exit__(self, *_: object) -> None: ...

    def current_time(self) -> datetime:
        """Return the time of the target's clock; of the driver's clock if the target has none. Only inside `with`."""

    def committed(self) -> TableProgress | None:
        """Return the table's progress; None if there is no table. Raises RefusedError for a table without progress."""

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError or ConfigurationError when an existing table is incompatible with the columns or mode.

        `schema` has the Spark types of the columns.
        """

    @staticmethod
    def is_unsupported(column: Column, value: Expression) -> Expression | None:  # noqa: ARG004
        """Return the condition that the target cannot store the value of a column; None if it can store every value."""
        return None

    def stage_early(
        self,
        rows: DataFrame,  # noqa: ARG002
        columns: Sequence[Column],  # noqa: ARG002
        metrics: Sequence[Expression],  # noqa: ARG002
    ) -> StagedRows | None:
        """Stage the rows of the next batch in the pass that computes `metrics`.

        Staged rows are invisible to readers. Returns None when the target cannot stage these rows early.
        The caller passes staged rows that it does not write to `discard`; the end of the run removes all others.
        """
        return None

    def discard(self, staged: StagedRows, *, disable: bool) -> None:  # noqa: ARG002
        """Remove staged rows. With `disable`, `stage_early` returns None from now on until the end of the run."""
        raise AssertionError("the target has no staging table")

    def write(self, batch: Batch) -> WriteCounts:
        """Apply a batch: rows, deletions and progress become visible together or not at all.

        Idempotent, because only newer versions change a row. Lake tables write ledger and quarantine before that.
        Raises OverlapError when another run has committed since `committed()` or the previous `write()`.
        """

    def current_versions(self) -> DataFrame:
        """Return KEY_COLUMN and METADATA_COLUMNS of the rows that are neither marked as deleted nor older versions."""
        return self.row_states().where(F.col(DELETED_AT_COLUMN).isNull()).select(KEY_COLUMN, *METADATA_COLUMNS)

    def quarantined(self, topic_id: str, reason: str) -> DataFrame:
        """Return KEY_COLUMN, METADATA_COLUMNS, `value` and `schema_header` of the quarantined records of a reason."""

    def update_quarantined(self, topic_id: str, results: Sequence[RetryResult]) -> None:
        """Remove the quarantined records that can be read now, and replace the reason of the others."""

    def row_states(self) -> DataFrame:
        """Return KEY_COLUMN, METADATA_COLUMNS and ROW_STATE_COLUMNS of the rows that are not older versions.

        The result includes rows that are marked as deleted. State columns that the mode lacks are NULL.
        """

    def column_names(self, columns: Sequence[Column]) -> list[str]:
        """Return the names of all columns, in the case of `columns` where they match; empty if there is no table."""

    def quarantined_versions(self, topic_id: str) -> DataFrame | None:
        """Return KEY_COLUMN and STORED_VERSION of each key's newest quarantined record; None without a quarantine."""

    def different_fields(self, stack: ExitStack, rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
        """Compare rows of decode(), at most one per key, with the stored rows of their keys.

        Returns KEY_COLUMN, STORED_VERSION and DIFFERENT_COLUMNS of the stored rows with another value in one of
        `columns`, which the table must have. The names are empty if the record is quarantined, as its values are
        unknown. Tombstones and older versions are not compared. The result is persisted until `stack` is closed.
        """

    def expire_ledger(self, before: datetime) -> int:
        """Remove the ledger entries whose `_timestamp` is earlier than `before`, and return their number.

        Called after the commit of a progress with `ledger_since` = `before`. If the run crashes between the two steps,
        the ledger still has earlier entries, but no later entry is missing.
        """

    def replace_by(self, shadow: Self) -> None:
        """Replace rows, ledger and progress by those of `shadow`, in one step for readers, and drop `shadow`.

        Creates this table if it does not exist. Raises RefusedError for a table of another job or when `shadow` does
        not exist, OverlapError when another run has committed to this table at the same time.
        """

    def drop(self) -> None:
        """Drop the table and its ledger, but not its quarantine."""

    def maintain(self) -> str:
        """Compact files and remove obsolete data; return one line of text with the numbers."""
