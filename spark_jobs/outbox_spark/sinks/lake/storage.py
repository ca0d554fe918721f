"""Base class for the storage of a Delta or Iceberg table and its companion tables."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.sinks.lake.merge_sql import literal, quoted


@contextmanager
def temporary_view(rows: DataFrame) -> Iterator[str]:
    """Yield the name of a temporary view of the rows for a MERGE."""
    name = f"outbox_source_{secrets.token_hex(4)}"
    rows.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        rows.sparkSession.catalog.dropTempView(name)


_KEY_FILTER = "outbox_may_contain"
"""Name of the function of `key_filter`. Generated code contains it, so with another name for each batch, Spark would
compile the code again, and Java would never optimize it."""


@contextmanager
def key_filter(rows: DataFrame, column: str, count: int) -> Iterator[str]:
    """Yield the name of a SQL function of xxhash64(key).

    It is true for the keys in a column of `rows`, and false for nearly all other keys. `count` is the approximate
    number of keys.
    """
    spark: Any = rows.sparkSession
    name = _KEY_FILTER
    while spark.catalog.functionExists(name):  # of another run in the same session
        name += "_"
    spark._jvm.io.outboxkit.spark.KeyFilter.register(name, rows._jdf, column, count)
    try:
        yield name
    finally:
        spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


def with_keys(rows: DataFrame, may_contain: str | None) -> DataFrame:
    """Return the rows for whose key the function of `key_filter` is true; all rows if there is no function."""
    return rows if may_contain is None else rows.where(f"{may_contain}(xxhash64({KEY_COLUMN}))")


class LakeStorage(ABC):
    """A table and its companion tables. The parameter `suffix` selects a table; it is empty for the table itself."""

    stored_names: ClassVar[Mapping[str, str]] = {}
    """Maps columns whose names the format reserves to their stored names. `read` and `append` translate the names."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @abstractmethod
    def sql_name(self, suffix: str = "") -> str:
        """Return the quoted name of the table for SQL statements."""

    @abstractmethod
    def exists(self, suffix: str = "") -> bool: ...

    @abstractmethod
    def versions(self, suffix: str) -> tuple[str, str]:
        """Return the version of an existing table, and the version before its last commit. Each is "" if there is none.

        Each commit changes the version, and versions that are equal have the same content.
        """

    @abstractmethod
    def read(self, suffix: str = "") -> DataFrame: ...

    @abstractmethod
    def append(self, suffix: str, rows: DataFrame) -> int:
        """Append rows, and create the table if necessary. Return the number of appended rows."""

    @abstractmethod
    def drop(self, suffix: str) -> None:
        """Drop the table if it exists."""

    @abstractmethod
    def compact(self, suffix: str) -> str:
        """Rewrite small files and remove obsolete data. Return text with the numbers of files."""

    def can_widen(self, actual: str, desired: str) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the format can change a column of Spark type `actual` to `desired` without a rewrite."""
        return False

    def execute(self, statement: str) -> None:
        self.spark.sql(statement).collect()

    def column_types(self) -> dict[str, str]:
        """Return a mapping from lower-case column names to Spark types; empty if there is no table."""
        if not self.exists():
            return {}
        return {field.name.lower(): field.dataType.simpleString() for field in self.read().schema.fields}

    def add_columns(self, types: Mapping[str, str], comments: Mapping[str, str]) -> None:
        """Add the columns that the table lacks, widen types, and update the comments that differ from `comments`."""
        actual_fields = {field.name.lower(): field for field in self.read().schema.fields}
        missing = [name for name in types if name.lower() not in actual_fields]
        if missing:
            definitions = ", ".join(
                f"{quoted(name)} {types[name]}" + (f" COMMENT {literal(comments[name])}" if name in comments else "")
                for name in missing
            )
            self.execute(f"ALTER TABLE {self.sql_name()} ADD COLUMNS ({definitions})")
        for name in types.keys() - missing:
            if self.can_widen(actual_fields[name.lower()].dataType.simpleString(), types[name]):
                self.execute(f"ALTER TABLE {self.sql_name()} ALTER COLUMN {quoted(name)} TYPE {types[name]}")
        for name, comment in comments.items():
            if name not in missing and actual_fields[name.lower()].metadata.get("comment") != comment:
                self.execute(f"ALTER TABLE {self.sql_name()} ALTER COLUMN {quoted(name)} COMMENT {literal(comment)}")
