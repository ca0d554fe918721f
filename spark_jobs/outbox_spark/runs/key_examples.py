"""Counts and examples of keys by kind of difference."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.sinks.target_table import DIFFERENT_COLUMNS


def count_by_kind(keys: DataFrame, kind_name: str, max_examples: int) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return by kind: the number of rows of `keys`, and the first `max_examples` keys. `keys` should be persisted.

    The keys are sorted in the executors, each of which returns at most `max_examples` of its keys.
    """
    counts = {row[kind_name]: int(row["count"]) for row in keys.groupBy(kind_name).count().collect()}
    example_keys: dict[str, list[str]] = {}
    for kind in counts if max_examples else ():
        of_kind = keys.where((F.col(kind_name) == kind) & F.col(KEY_COLUMN).isNotNull()).select(KEY_COLUMN)
        example_keys[kind] = [row[0] for row in of_kind.orderBy(KEY_COLUMN).limit(max_examples).collect()]
    return counts, example_keys


def count_columns(rows: DataFrame) -> dict[str, int]:
    """Return by column: the number of rows with its name in DIFFERENT_COLUMNS; in the order of the names."""
    names = rows.select(F.explode(DIFFERENT_COLUMNS).alias("name"))
    return {row["name"]: int(row["count"]) for row in names.groupBy("name").count().orderBy("name").collect()}
