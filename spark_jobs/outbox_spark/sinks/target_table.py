"""Define the interface of target tables, which read their progress and write batches together with the progress."""

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
from outbox_spark.errors import REBUILD_HINT, SchemaError
from outbox_spark.jobs.model import TableProgress, WriteCounts
from outbox_spark.session.persisted import DecodedCounts

TOMBSTONES_SUFFIX = "__tombstones"
QUARANTINE_SUFFIX = "__quarantine"
STORED_VERSION = "__outbox_version"
"""Version of a stored row as a struct of VERSION_COLUMNS, in the results of several methods of TargetTable."""
DIFFERENT_COLUMNS = "__outbox_columns"
"""Names of the columns in which a stored row differs from the decoded row of its key."""
RetryResult = tuple[int, int, str | None]
"""Partition and offset of a retried record, and why it cannot be read (None for a record that can now be read)."""


def check_earlier_rows(
    columns: Sequence[Column], current: Collection[str], removed: Collection[str], label: str
) -> None:
    """Raise SchemaError for a new field that rows lack a value for, although the records of these rows may have one.

    `current` contains the field names of the table's last write; `removed` contains the names of earlier fields.
    A field was renamed if one of these names is its alias, and added again if its own name is an earlier name.
    """
    for column in columns:
        names = () if column.name in current else (column.name, *column.aliases)
        if any(name in current or name in removed for name in names):
            message = f"the rows of {label} lack the values of field {column.name}, which was renamed or added again"
            raise SchemaError(message, REBUILD_HINT)


def check_stored_columns(fields: Collection[str], actual: Collection[str], label: str) -> None:
    """Raise SchemaError if a column that earlier runs wrote is missing: adding it would leave its values empty.

    `fields` contains the field names of the table's last write, and `actual` the names of the table's columns.
    """
    existing = {name.lower() for name in actual}
    if missing := [name for name in (KEY_COLUMN, *METADATA_COLUMNS, *sorted(fields)) if name.lower() not in existing]:
        message = f"{label} lacks columns that outbox-materialize had created: {', '.join(missing)}"
        raise SchemaError(message, f"restore the table, or {REBUILD_HINT}")


@dataclass(frozen=True)
class StagedRows:
    """Rows that a target has received but has not merged yet."""

    metrics: Mapping[str, Any]
    """Values of the metrics that `stage_early` computed, by name."""
    location: Any
    """Location of the rows. Its type depends on the target that staged them."""


@dataclass(frozen=True)
class Batch:
    """The rows to write for one range of the topic, and the progress to commit with them."""

    rows: DataFrame
    """Rows of decode(). Unless `staged` is set, they are evaluated repeatedly, so they or their source are persisted.
    At most one row per key (in history mode, per version) is readable (`__outbox_reason` is null). The other rows are
    for the quarantine. Each of them makes an older row of its `aggregate_id` stale."""
    counts: DecodedCounts
    """Counts of `rows`, including quarantined records without a key."""
    columns: Sequence[Column]
    reader_schema: str
    """The Avro schema from which `columns` were derived, as JSON."""
    previous: TableProgress | None
    committed: TableProgress
    """`previous` is the progress of the table before this batch. `committed` is committed together with the batch."""
    staged: StagedRows | None = None
    may_repeat: bool = False
    """Whether an earlier batch may have applied some of these records, so that offsets do not show which are new."""
    rewrites: bool = False
    """Whether to replace the values of current rows that have exactly the version of a row of the batch, and correct
    `_stale`. Quarantined records and tombstones of the batch correct only the columns that describe the row's state. No
    rows are inserted or deleted, and nothing is added to the ledger or the quarantine."""


class TargetTable(Protocol):
    """One table of a target. The object is a context manager for one run."""

    stages_early: bool = False
    """Whether `stage_early` stages rows in this run."""

    def __enter__(self) -> Self:
        """Lock the table if supported. Raises OverlapError if it is locked, UnreachableError if the target is down."""

    def __exit__(self, *_: object) -> None: ...

    def current_time(self) -> datetime:
        """Return the time of the target's clock, or of the driver's if the target has none. Call it inside `with`."""

    def committed(self) -> TableProgress | None:
        """Return the table's progress; None if there is no table. Raises RefusedError if the table has no progress."""

    def written_topic(self) -> tuple[str, str] | None:
        """Return name and id of the topic that the table was written from, also if the rows were restored since then.

        Return None if there is no table. Raises RefusedError if the table has no progress.
        """
        committed = self.committed()
        return None if committed is None else (committed.topic, committed.topic_id)

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError or ConfigurationError if an existing table is incompatible with the columns or the mode.

        `schema` contains the Spark types of the columns.
        """

    @staticmethod
    def is_unsupported(column: Column, value: Expression) -> Expression | None:  # noqa: ARG004
        """Return the condition under which the target cannot store a column's value; None if it can store any value."""
        return None

    def stage_early(
        self,
        rows: DataFrame,  # noqa: ARG002
        columns: Sequence[Column],  # noqa: ARG002
        metrics: Sequence[Expression],  # noqa: ARG002
    ) -> StagedRows | None:
        """Stage the rows of the next batch in the pass that computes `metrics`.

        Staged rows are invisible to readers. Returns None if the target cannot stage these rows early. The caller must
        pass staged rows that it does not write to `discard`; any other staged rows are removed at the end of the run.
        """
        return None

    def discard(self, staged: StagedRows, *, disable: bool) -> None:  # noqa: ARG002
        """Remove staged rows. With `disable`, `stage_early` returns None for the rest of the run."""
        raise AssertionError("the target has no staging table")

    def write(self, batch: Batch) -> WriteCounts:
        """Apply a batch. Its rows, deletions and progress become visible together or not at all.

        Writing is idempotent, because only newer versions change a row. Lake tables write their ledger and quarantine
        first. Raises OverlapError if another run has committed since `committed()` or the previous `write()`.
        """

    def current_versions(self) -> DataFrame:
        """Return KEY_COLUMN and METADATA_COLUMNS of the rows that are neither marked as deleted nor older versions."""
        return self.row_states().where(F.col(DELETED_AT_COLUMN).isNull()).select(KEY_COLUMN, *METADATA_COLUMNS)

    def quarantined(self, topic_id: str, reason: str) -> DataFrame:
        """Return KEY_COLUMN, METADATA_COLUMNS, `value` and `schema_header` of records quarantined for this reason."""

    def update_quarantined(self, topic_id: str, results: Sequence[RetryResult]) -> None:
        """Remove quarantined records that are now readable, and update the reasons why the others are unreadable."""

    def row_states(self) -> DataFrame:
        """Return KEY_COLUMN, METADATA_COLUMNS and ROW_STATE_COLUMNS of the rows that are not older versions.

        The result includes rows that are marked as deleted. State columns that the mode lacks are NULL.
        """

    def column_names(self, columns: Sequence[Column]) -> list[str]:
        """Return all column names, as spelled in `columns` if only their case differs; empty if there is no table."""

    def quarantined_versions(self, topic_id: str) -> DataFrame | None:
        """Return KEY_COLUMN and STORED_VERSION of each key's newest quarantined record; None if there are none."""

    def different_fields(self, stack: ExitStack, rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
        """Compare rows of decode(), at most one per key, with the stored rows of their keys.

        Returns KEY_COLUMN, STORED_VERSION and DIFFERENT_COLUMNS of the stored rows that have a different value in one
        of `columns`, which the table must have. DIFFERENT_COLUMNS is empty if the record is quarantined, because its
        values are unknown. Tombstones and older versions are not compared. `stack` unpersists the result.
        """

    def expire_ledger(self, before: datetime) -> int:
        """Remove the ledger entries whose `_timestamp` is earlier than `before`, and return their number.

        Call this after committing a progress with `ledger_since` = `before`. If the run crashes between the two steps,
        the ledger still contains some earlier entries, but it lacks no later entry.
        """

    def replace_by(self, shadow: Self) -> None:
        """Replace the table's rows, ledger and progress with those of `shadow`, atomically for readers. Drop `shadow`.

        Creates this table if it does not exist. Raises RefusedError for a table of another job or if `shadow` does not
        exist, and OverlapError if another run has committed to this table at the same time.
        """

    def drop(self) -> None:
        """Drop the table and its ledger, but not its quarantine."""

    def maintain(self) -> str:
        """Compact files and remove obsolete data. Return one line that reports the results."""
