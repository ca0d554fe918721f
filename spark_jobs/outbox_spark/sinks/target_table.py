"""What every target does: say how far it is, and apply one batch together with its offsets."""

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
from outbox_spark.jobs.model import Committed, Written
from outbox_spark.session.persisted import Counts

TOMBSTONES_SUFFIX = "__tombstones"
QUARANTINE_SUFFIX = "__quarantine"
ANEW = "outbox-rebuild makes the table anew while it can be read (with --restart, if a rebuild was stopped before)"
"""In hints, where a rebuild does not refuse the same. The shadow that a rebuild has left when it was stopped may have
the fault of the table."""


@dataclass(frozen=True)
class Sent:
    """Rows that a target has taken already, and has not made visible."""

    sums: Mapping[str, Any]
    """What the pass that sent them has counted, by name."""
    place: Any
    """Where they are, in the target's words."""


@dataclass(frozen=True)
class Batch:
    """The newest rows of one range, and what is true once they are applied."""

    rows: DataFrame
    """As decode() yields them; read more than once, so its source is cached. With `sent` they must not be read. At
    most one row of a key has no `_reason` (in history mode: one of a version of a key); rows with a `_reason` go to
    quarantine, and flag the row of their `aggregate_id` as stale while it is older."""
    counts: Counts
    """Of these rows; records without a key and those for quarantine are among them."""
    columns: Sequence[Column]
    reader: str
    """The Avro schema that `columns` were made of, JSON text."""
    previous: Committed | None
    committed: Committed
    sent: Sent | None = None
    """What send_ahead() has taken: these rows."""


class TargetTable(Protocol):
    """One table of a target, held by one run at a time."""

    def __enter__(self) -> Self:
        """Raises UnreachableError, or RefusedError when another run holds the table."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def committed(self) -> Committed | None:
        """How far the table is; None when there is no table yet."""

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError when the table that is there cannot take these columns. Changes nothing.

        `schema` has the Spark types of the columns.
        """

    @staticmethod
    def limit(column: Column, value: Expression) -> Expression | None:
        """True for values that this target cannot hold; None when it holds all of the column's kind."""

    def send_ahead(self, rows: DataFrame, columns: Sequence[Column], sums: Sequence[Expression]) -> Sent | None:
        """Take the rows of the next batch before its counts are known, in the one pass that makes these `sums`.

        Changes nothing that anybody sees. None: this target has no such way, or not for this batch. What is not
        written after all is given to discard(), or goes when the table is left.
        """

    def discard(self, sent: Sent, *, for_good: bool) -> None:
        """Forget rows that were sent. `for_good`: none of this run's batches is to be sent ahead any more."""

    def write(self, batch: Batch) -> Written:
        """Apply a batch: rows, deletes, tombstones, quarantine and progress become visible together or not at all.

        Only newer versions change a row, so applying a batch again changes nothing. Can be called again for the
        next batch, whose `previous` is then this one's `committed`.
        Raises RefusedError when another run has committed since `committed()`, or the last `write()`.
        """

    def versions(self) -> DataFrame:
        """Key and METADATA_COLUMNS of every row that is there (in history mode: of the current versions; with soft
        deletes: of keys that are not deleted)."""

    def forget_deletions(self, before: datetime) -> int:
        """Remove ledger entries whose record (`_timestamp`) is older; returns how many. A step of its own: the next
        batch's `committed.ledger_since` is `before` already when this is called, so that a crash between the two
        leaves entries too many, never too few."""

    def replace_by(self, shadow: Self) -> None:
        """Make what is in `shadow`, a table of the same target, this table's content, in one step for readers: rows,
        ledger, progress. The shadow is gone afterwards. Works too when this table does not exist. Raises OverlapError
        when another run has committed to this table since it was entered."""

    def drop(self) -> None:
        """Remove the table and its ledger; the quarantine stays. For shadows that an interrupted rebuild left."""

    def maintain(self) -> str:
        """Compact files, expire what is no longer needed; returns a line about what was done."""


class SendsNothingAhead:
    """Of targets whose rows are written with the commit."""

    @staticmethod
    def send_ahead(rows: DataFrame, columns: Sequence[Column], sums: Sequence[Expression]) -> Sent | None:  # noqa: ARG004
        """There is no such way."""
        return None

    @staticmethod
    def discard(sent: Sent, *, for_good: bool) -> None:
        """Nothing was sent."""
