"""Interface of target tables: read the progress, and write one batch together with its offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from outbox_spark.decoding.columns import Column
from outbox_spark.jobs.model import TableProgress, WriteCounts
from outbox_spark.session.persisted import DecodedCounts

TOMBSTONES_SUFFIX = "__tombstones"
QUARANTINE_SUFFIX = "__quarantine"
REBUILD_HINT = "run `outbox-rebuild` (with --restart after a rebuild that was interrupted)"


@dataclass(frozen=True)
class StagedRows:
    """Rows that a target has received but not yet merged."""

    metrics: Mapping[str, Any]
    """Observed metrics of the pass that staged the rows, by name."""
    location: Any
    """Location of the rows, in a form that only the target itself reads."""


@dataclass(frozen=True)
class Batch:
    """The newest rows of one range of the topic, and the progress to commit with them."""

    rows: DataFrame
    """Rows of decode(), persisted because they are evaluated repeatedly. If `staged` is set, they are not evaluated.
    Per key (in history mode: per version), at most one row is readable (`_reason` is null). The other rows are for the
    quarantine, and flag an older row of their `aggregate_id` as stale."""
    counts: DecodedCounts
    """Counts of `rows`, including records without a key and quarantined records."""
    columns: Sequence[Column]
    reader_schema: str
    """The Avro schema that `columns` were derived from, as JSON."""
    previous: TableProgress | None
    committed: TableProgress
    staged: StagedRows | None = None
    """The same rows, as `stage_early` returned them."""


class TargetTable(Protocol):
    """One table of a target, as a context manager that locks it for one run."""

    def __enter__(self) -> Self:
        """Lock the table. Raises UnreachableError, or OverlapError when another run holds the lock."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def committed(self) -> TableProgress | None:
        """Return the progress of the table; None when the table does not exist."""

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError when the existing table is incompatible with these columns. Changes nothing.

        `schema` has the Spark types of the columns.
        """

    @staticmethod
    def is_unsupported(column: Column, value: Expression) -> Expression | None:
        """Return a condition that is true for values that the target cannot store; None when it stores all."""

    def stage_early(
        self, rows: DataFrame, columns: Sequence[Column], metrics: Sequence[Expression]
    ) -> StagedRows | None:
        """Stage the rows of the next batch in the pass that computes `metrics`.

        Staged rows are invisible to readers. Returns None when the target cannot stage these rows early.
        Staged rows that are not written are passed to `discard`, or removed at the end of the run.
        """

    def discard(self, staged: StagedRows, *, disable: bool) -> None:
        """Remove staged rows. `disable`: `stage_early` returns None until the end of the run."""

    def write(self, batch: Batch) -> WriteCounts:
        """Apply a batch: rows, deletions, tombstones, quarantine and progress become visible together or not at all.

        Idempotent: only newer versions change a row. `committed` of a batch is `previous` of the next batch. Raises
        OverlapError when another run has committed since `committed()` or the last `write()`.
        """

    def current_versions(self) -> DataFrame:
        """Return key and METADATA_COLUMNS of every row that is neither deleted nor superseded."""

    def expire_ledger(self, before: datetime) -> int:
        """Remove ledger entries whose record (`_timestamp`) is older than `before`, and return their number.

        Called after the commit of `ledger_since` = `before`. If the run crashes in between, the ledger has additional
        older entries, but no later entry is missing.
        """

    def replace_by(self, shadow: Self) -> None:
        """Replace rows, ledger and progress by those of `shadow`, in one step for readers, and drop `shadow`.

        Creates this table if it does not exist. Raises OverlapError when another run has committed to this table
        since it was entered.
        """

    def drop(self) -> None:
        """Drop the table and its ledger, but not its quarantine."""

    def maintain(self) -> str:
        """Compact files and remove obsolete data; return a summary line."""


class NoEarlyStaging:
    """`stage_early` and `discard` of targets that write the rows with the commit."""

    @staticmethod
    def stage_early(rows: DataFrame, columns: Sequence[Column], metrics: Sequence[Expression]) -> StagedRows | None:  # noqa: ARG004
        """Return None."""
        return None

    @staticmethod
    def discard(staged: StagedRows, *, disable: bool) -> None:
        """Do nothing."""
