"""What every target does: say how far it is, and apply one batch together with its offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from outbox_spark.columns import Column
from outbox_spark.model import Committed, Written

TOMBSTONES_SUFFIX = "__tombstones"
QUARANTINE_SUFFIX = "__quarantine"


@dataclass(frozen=True)
class Batch:
    """The newest rows of one range, and what is true once they are applied."""

    rows: DataFrame
    """As decode() yields them; read more than once, so its source is cached."""
    keys: int
    """How many rows there are, records without a key and those for quarantine among them."""
    columns: Sequence[Column]
    reader: str
    """The Avro schema that `columns` were made of, JSON text."""
    previous: Committed | None
    committed: Committed


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

    def limit(self, column: Column, value: Expression) -> Expression | None:
        """True for values that this target cannot hold; None when it holds all of the column's kind."""

    def write(self, batch: Batch) -> Written:
        """Apply a batch: rows, deletes, tombstones, quarantine and progress become visible together or not at all.

        Only newer versions change a row, so applying a batch again changes nothing.
        Raises RefusedError when another run has committed since `committed()` was asked.
        """
